"""Kernels from source to machine code: NVRTC, once on each machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dla_ros.cache import cached, digest
from dla_ros.cuda.calls import nvrtc
from dla_ros.errors import BackendError, DlaError

KERNELS = Path(__file__).parent / 'kernels'
_ELEMENT = KERNELS / 'element.cuh'  # Shared by all of them; NVRTC is given one text.


def compile_kernel(name: str, architecture: str, definitions: Sequence[str] = ()) -> bytes:
    """Return the machine code of kernels/NAME.cu.

    Parameters
    ----------
    name:
        The file's name without .cu.
    architecture:
        Such as sm_87.
    definitions:
        Macros, each NAME=VALUE.

    Raises
    ------
    DlaError
        If NVRTC cannot be used.
    BackendError
        If the source does not compile; with the compiler's messages.

    """
    source = _ELEMENT.read_bytes() + (KERNELS / f'{name}.cu').read_bytes()
    # Without fused multiply-add the kernels agree with the numpy references to the bit.
    options = [
        f'-arch={architecture}', '--std=c++17', '--fmad=false',
        *(f'-D{macro}' for macro in definitions),
    ]
    version = '.'.join(map(str, nvrtc('nvrtcVersion')))
    key = digest(source, version, *options)
    return cached(f'kernels/{name}-{key}', lambda: _compile(name, source, options))


def _compile(name: str, source: bytes, options: Sequence[str]) -> bytes:
    program = nvrtc('nvrtcCreateProgram', source, f'{name}.cu'.encode(), 0, [], [])
    try:
        encoded = [option.encode() for option in options]
        try:
            nvrtc('nvrtcCompileProgram', program, len(encoded), encoded)
        except DlaError as error:
            log = bytearray(nvrtc('nvrtcGetProgramLogSize', program))
            nvrtc('nvrtcGetProgramLog', program, log)
            text = log.rstrip(b'\0').decode(errors='replace')
            raise BackendError(f'{error}\n{text}', error.remedy) from error
        image = bytearray(nvrtc('nvrtcGetCUBINSize', program))
        nvrtc('nvrtcGetCUBIN', program, image)
        return bytes(image)
    finally:
        nvrtc('nvrtcDestroyProgram', program)
