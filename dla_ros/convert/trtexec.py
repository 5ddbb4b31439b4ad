"""TensorRT's trtexec: which version, its flags for a standalone loadable, what its errors mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
import re
import shutil
import subprocess

from dla_ros.tensor import TensorFormat

Version = tuple[int, ...]
NEWEST: Version = (11, 4, 1)
LOADABLE, ONNX, CACHE, LOG = 'model.bin', 'model.onnx', 'calibration.cache', 'trtexec.log'
_STRONGLY_TYPED = 11
_WITHOUT_DLA = (11, 0), (11, 4)
BESIDE_PATH = Path('/usr/src/tensorrt/bin/trtexec')
_BANNER = re.compile(r'TensorRT\.trtexec \[TensorRT v(\d+)\]')
_OUT_OF_MEMORY = -9

_CUT = 'cut the network before it (--cut-outputs)'

FAILURES = {
    r'Cannot create DLA engine, (\S+) not available':
        'this computer has no DLA (or not core {0}): run it on a Jetson with one, as AGX Orin',
    r'Unknown option: (\S+)':
        'this trtexec does not know {0}: is it of the version that --tensorrt names?',
    r"[Ll]ayer '?([^']+?)'? \((\w+)\): Unsupported on DLA":
        'the DLA does not run layer {0!r} ({1}), and a standalone loadable cannot fall back on '
        f'the GPU: {_CUT}',
    r'Validation failed for DLA layer: (.+?)\.':
        'the DLA refuses layer {0!r} for one of its parameters: `check` names the limits',
    r'(DLA only supports concatenation on the C dimension)': f'{{0}}: {_CUT}',
    r'Safe DLA is enabled but not all layers are running on DLA|Assertion std::all_of.*isDLA':
        'some layer does not run on the DLA, and a standalone loadable cannot fall back on the '
        f'GPU: {LOG} names it further up; {_CUT}',
    r'I/O formats for safe DLA capability are restricted':
        'inputs and outputs can only be chw16, chw32, dla_linear or dla_hwc4: give '
        '--inputIOFormats and --outputIOFormats one of them',
    r'Cannot deserialize serialized engine built with EngineCapability::kDLA_STANDALONE':
        'the loadable was built, but this trtexec then tries to run it, which cannot be',
    r'kPREFER_PRECISION_CONSTRAINTS cannot be set':
        'this TensorRT takes the precision from the network: --tensorrt must name its version',
    r'No importer registered for op: (\w+)': f'TensorRT does not know the operator {{0}}: {_CUT}',
}
"""What trtexec prints when it fails, and what it means, with what is in brackets filled in."""


class TrtexecError(RuntimeError):
    """A trtexec that cannot be run, or that failed; the text says why and what to do."""


def find_trtexec() -> Path | None:
    """Return trtexec from PATH, or from where JetPack puts it; None if there is none."""
    found = shutil.which('trtexec') or shutil.which(str(BESIDE_PATH))
    return Path(found) if found else None


def read_version(trtexec: Path) -> Version:
    """Return the TensorRT version of a trtexec, from the first line that it prints.

    Raises
    ------
    TrtexecError
        If it does not run or names no version.

    """
    try:
        done = subprocess.run(
            [trtexec, '--help'], text=True, errors='replace', timeout=60, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TrtexecError(f'{trtexec} does not run: {error}') from error
    banner = _BANNER.search(done.stdout)
    if banner is None:
        raise TrtexecError(f'{trtexec} does not say which TensorRT it is of: {done.stdout[:200]}')
    return version_of(int(banner[1]))


def version_of(number: int) -> Version:
    """Return the version that a number such as 8502 (to 9) or 110401 (from 10) stands for."""
    if number >= 100_000:
        return number // 10_000, number // 100 % 100, number % 100
    return number // 1000, number // 100 % 10, number % 100


def number_of(version: Version) -> int:
    """Return TensorRT's number of a version; see version_of."""
    major, minor, patch = (*version, 0, 0)[:3]
    return major * (10_000 if major >= 10 else 1000) + minor * 100 + patch


def text_of(version: Version) -> str:
    """Return a version as people write it."""
    return '.'.join(map(str, version))


def has_dla(version: Version) -> bool:
    """Whether a TensorRT can build for a DLA: 11.0 to 11.3 cannot."""
    first, end = _WITHOUT_DLA
    return not first <= version[:2] < end


def is_strongly_typed(version: Version) -> bool:
    """Whether a TensorRT takes precisions from the network alone: from 11 on."""
    return version[0] >= _STRONGLY_TYPED


def command(
    version: Version, precision: str, inputs: TensorFormat, outputs: TensorFormat
) -> list[str]:
    """Return the command that builds a standalone loadable, in the folder that build writes.

    From TensorRT 11 the network carries types and scales and formats are bare layouts; before,
    flags give the precision.

    Parameters
    ----------
    version:
        Of TensorRT.
    precision:
        fp16 or int8.
    inputs, outputs:
        Formats of the tensors.

    """
    if is_strongly_typed(version):
        typed = [f'--onnx={typed_name(precision)}']
        formats = [inputs.layout, outputs.layout]
    else:
        typed = [f'--onnx={ONNX}', '--fp16']
        if precision == 'int8':
            typed += ['--int8', f'--calib={CACHE}']
        formats = [str(inputs), str(outputs)]
    return [
        'trtexec', *typed, '--useDLACore=0', '--buildDLAStandalone', f'--saveEngine={LOADABLE}',
        f'--inputIOFormats={formats[0]}', f'--outputIOFormats={formats[1]}',
        '--memPoolSize=dlaSRAM:1',
    ]


def typed_name(precision: str) -> str:
    """Return the name of the network that carries its precision."""
    return f'model.{precision}.onnx'


def run(
    trtexec: Path, arguments: Sequence[str], folder: Path, show: Callable[[str], None]
) -> None:
    """Build a loadable; its folder then has it, and the log.

    Parameters
    ----------
    trtexec:
        The program.
    arguments:
        See `command`, whose first word is replaced.
    folder:
        Where the networks are.
    show:
        Called with each line that trtexec prints.

    Raises
    ------
    TrtexecError
        If it fails or what it wrote is no standalone loadable; nothing is left of that then.

    """
    loadable = folder / LOADABLE
    loadable.unlink(missing_ok=True)
    try:
        status = _run(trtexec, arguments, folder, show)
        log = (folder / LOG).read_text(errors='replace')
        if status:
            raise TrtexecError(f'{explain(log, status)} ({folder / LOG})')
        if not loadable.is_file():
            raise TrtexecError(f'trtexec ended well but wrote no {loadable} ({folder / LOG})')
        if loadable.read_bytes()[:4] == b'ftrt':
            raise TrtexecError('trtexec wrote a TensorRT plan, not a standalone loadable')
    except BaseException:
        loadable.unlink(missing_ok=True)
        raise


def _run(
    trtexec: Path, arguments: Sequence[str], folder: Path, show: Callable[[str], None]
) -> int:
    with (folder / LOG).open('w') as log, subprocess.Popen(
        [trtexec.absolute(), *arguments[1:]], cwd=folder, text=True, errors='replace',
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                log.write(line)
                show(line.rstrip())
        except BaseException:
            process.terminate()
            raise
    return process.returncode


def explain(log: str, status: int) -> str:
    """Return what went wrong in a run of trtexec, in a sentence if it is known."""
    for pattern, sentence in FAILURES.items():
        found = re.search(pattern, log)
        if found:
            return sentence.format(*found.groups())
    if status == _OUT_OF_MEMORY:
        return 'trtexec was killed, as a rule because memory ran out: close what else runs'
    errors = re.findall(r'\[E\] (.+)', log)
    return f'trtexec ended with {status}: {errors[0] if errors else "no error in its log"}'
