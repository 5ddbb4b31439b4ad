"""Loading the stand-in libraries into this process, and what they know and can be told to do."""

from __future__ import annotations

from collections import Counter
import ctypes
import logging
import os
import subprocess
import sys
from typing import Any

from dla_ros.emulator.libraries import build_all, CUDA, CUDLA, NVRTC
from dla_ros.emulator.network import Runner
from dla_ros.errors import BackendError

_log = logging.getLogger(__name__)
_FOREVER = -1
_TASK_TIMEOUT, _NEVER = 1, 2
_HAS_GPU = """
import ctypes, sys
cuda = ctypes.CDLL('libcuda.so.1')
count = ctypes.c_int()
sys.exit(bool(cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or not count.value))
"""


class Emulator:
    """The emulator of this process.

    Attributes
    ----------
    real_gpu:
        Whether the DLA is emulated on a real CUDA driver; else the GPU is emulated too.

    """

    def __init__(self, *, real_gpu: bool) -> None:
        """Load the libraries; `load` is the usual way."""
        self.real_gpu = real_gpu
        stand_ins = (CUDLA,) if real_gpu else (CUDA, NVRTC, CUDLA)
        self._libraries = [_open(str(path)) for path in build_all(stand_ins)]
        self._cudla = self._libraries[-1]
        self._runner = Runner()
        self._cudla.emulator_runner(*self._runner.callbacks)

    def __str__(self) -> str:
        """Say what is emulated."""
        return 'emulated DLA on a real GPU' if self.real_gpu else 'emulated DLA and GPU'

    def alive(self) -> dict[str, int]:
        """Return what is held: kind of handle -> how many."""
        return self._counts('emulator_alive')

    def calls(self) -> dict[str, int]:
        """Return how often each function was called since `reset`."""
        return self._counts('emulator_calls')

    def violations(self) -> list[str]:
        """Return the broken rules since `reset`, each as 'rule: what happened'; see rules.py."""
        self._collect()
        return [
            line for library in self._libraries
            for line in _text(library, 'emulator_violations').splitlines()
        ]

    def _collect(self) -> None:
        """Make broken rules of the touches of memory that the emulated GPU has caught."""
        if not self.real_gpu:
            self._libraries[0].emulator_collect()

    def fail(
        self, call: str, status: int, *, skip: int = 0, delay: float = 0.0, hang: bool = False,
        sticky: bool = False,
    ) -> None:
        """Let a call fail.

        Parameters
        ----------
        call:
            The function's name in C, without version suffix.
        status:
            What it returns; 0 to let it go well, late.
        skip:
            How many calls go well first.
        delay:
            Seconds before it starts.
        hang:
            Whether it starts only after `release`.
        sticky:
            Whether every later call of the library fails alike.

        A function that releases something does so nevertheless: its status may be that of
        earlier work, and nobody could release it again.
        """
        library = self._library_of(call)
        milliseconds = _FOREVER if hang else round(1e3 * delay)
        library.emulator_fail(call.encode(), skip, status, milliseconds, int(sticky))

    def fail_task(
        self, status: int, *, skip: int = 0, hang: bool = False, until_timeout: bool = False
    ) -> None:
        """Let a DLA task fail.

        Parameters
        ----------
        status:
            What cudlaGetLastError says afterwards.
        skip:
            How many tasks go well first.
        hang:
            Whether it ends only after `release`, whatever the task timeout.
        until_timeout:
            Whether it ends with the task timeout.

        """
        mode = _NEVER if hang else _TASK_TIMEOUT if until_timeout else 0
        self._cudla.emulator_fail_task(skip, status, mode)

    def pending(self) -> int:
        """Return how many faults have not come up yet."""
        return sum(int(library.emulator_pending()) for library in self._libraries) + int(
            self._cudla.emulator_pending_tasks()
        )

    def delay(self, seconds: float) -> None:
        """Let each piece of work on an emulated GPU take this long, so that races show."""
        self._libraries[0].emulator_delay(round(1e6 * seconds))

    def release(self) -> None:
        """End every hang and forget the task faults that have not come up."""
        self._cudla.emulator_release_tasks()
        for library in self._libraries:
            library.emulator_release()

    def reset(self) -> None:
        """Forget faults, counts and broken rules; what is held stays held."""
        self.release()
        self._collect()  # What was touched up to now is of the time before, too.
        for library in self._libraries:
            library.emulator_reset()

    def _library_of(self, call: str) -> Any:
        prefixes = {'cudla': CUDLA, 'nvrtc': NVRTC, 'cu': CUDA}
        names = [prefixes[start].name for start in prefixes if call.startswith(start)]
        if not names:
            raise BackendError(f'{call} is no function of CUDA, NVRTC or cuDLA')
        for library in self._libraries:
            if library.name == names[0]:
                return library
        raise BackendError(f'{call} belongs to {names[0]}, which is not emulated here')

    def _counts(self, function: str) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for library in self._libraries:
            for line in _text(library, function).splitlines():
                kind, _, number = line.rpartition(' ')
                counts[kind] += int(number)
        return dict(counts)


class _NamedLibrary(ctypes.CDLL):
    """A library that knows its soname."""

    name = ''


def _open(path: str) -> Any:
    # Global, so that the bindings' dlopen by soname finds it.
    library = _NamedLibrary(path, ctypes.RTLD_GLOBAL)
    library.name = path.rpartition('/')[2]
    return library


def _text(library: Any, function: str) -> str:
    size = 1 << 16
    while True:
        buffer = ctypes.create_string_buffer(size)
        needed = int(getattr(library, function)(buffer, size))
        if needed < size:
            return buffer.value.decode()
        size = needed + 1


_loaded: list[Emulator] = []


def emulator() -> Emulator | None:
    """Return the emulator of this process, if it is loaded."""
    return _loaded[0] if _loaded else None


def load(*, stand_in_gpu: bool | None = None) -> Emulator:
    """Load the emulator into this process, once; it stays until the process ends.

    Parameters
    ----------
    stand_in_gpu:
        Whether to emulate the GPU too; None to do so where CUDA finds no GPU.

    Raises
    ------
    BackendError
        If the libraries cannot be compiled, or real ones are loaded already.

    """
    found = emulator()
    if found is not None:
        return found
    if _is_loaded('libcudla.so.1'):
        raise BackendError(
            'this process has loaded the real libcudla.so.1 already; emulate in another process'
        )
    real_gpu = _has_gpu() if stand_in_gpu is None else not stand_in_gpu
    if not real_gpu and _is_loaded('libcuda.so.1'):
        raise BackendError(
            'this process has loaded the real libcuda.so.1 already; emulate in another process'
        )
    _loaded.append(Emulator(real_gpu=real_gpu))
    _log.warning('%s: what runs here says nothing about a DLA', _loaded[0])
    return _loaded[0]


def _is_loaded(name: str) -> bool:
    try:
        ctypes.CDLL(name, ctypes.DEFAULT_MODE | os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


def _has_gpu() -> bool:
    # In a process of its own: a driver that has been loaded cannot be replaced.
    done = subprocess.run([sys.executable, '-c', _HAS_GPU], capture_output=True)
    return done.returncode == 0
