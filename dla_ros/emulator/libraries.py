"""The stand-in libraries, compiled on first use into the user's cache."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
import logging
import os
from pathlib import Path
import shutil
import subprocess
import tempfile

from dla_ros.cache import cache_directory, digest, write_atomically
from dla_ros.errors import BackendError

_log = logging.getLogger(__name__)
NATIVE = Path(__file__).parent / 'native'


@dataclass(frozen=True)
class Library:
    """A shared library: the name that the bindings look for, and its source in native/."""

    name: str
    source: str


CUDLA = Library('libcudla.so.1', 'cudla.cpp')
CUDA = Library('libcuda.so.1', 'cuda.cpp')
NVRTC = Library('libnvrtc.so.13', 'nvrtc.cpp')


def compiler() -> str:
    """Return the C++ compiler: $CXX, c++, g++ or clang++.

    Raises
    ------
    BackendError
        If there is none.

    """
    for name in (os.environ.get('CXX', ''), 'c++', 'g++', 'clang++'):
        if name and shutil.which(name):
            return name
    raise BackendError(
        'the emulator is compiled on first use and there is no C++ compiler: '
        'sudo apt-get install g++'
    )


def build_all(libraries: Sequence[Library]) -> list[Path]:
    """Return the compiled libraries; those that the cache does not have are compiled at once."""
    with ThreadPoolExecutor(len(libraries)) as pool:
        return list(pool.map(build, libraries))


def build(library: Library) -> Path:
    """Return the compiled library, compiling it if the cache does not have it."""
    sources = sorted(NATIVE.iterdir())
    command = [
        compiler(), '-std=c++20', '-O2', '-shared', '-fPIC', '-fvisibility=hidden',
        f'-Wl,-soname,{library.name}', '-Wl,-Bsymbolic', f'-DCOMPILER="{compiler()}"',
        f'-DNATIVE_DIRECTORY="{NATIVE}"', str(NATIVE / library.source),
    ]
    key = digest(*(path.read_bytes() for path in sources), *command)
    path = cache_directory() / 'emulator' / key / library.name
    if path.is_file():
        return path
    _log.info('compiling the emulator\'s %s, once', library.name)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / library.name
        done = subprocess.run(
            [*command, '-o', str(made), '-ldl', '-lpthread'], capture_output=True, text=True
        )
        if done.returncode:
            raise BackendError(f'{library.source} does not compile:\n{done.stderr}')
        try:
            write_atomically(path, made.read_bytes())
        except OSError as error:
            raise BackendError(
                f'the emulator cannot be kept in {path.parent}: {error}; set XDG_CACHE_HOME to a '
                'folder that can be written'
            ) from error
    return path
