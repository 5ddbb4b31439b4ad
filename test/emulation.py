"""The emulator in the tests: one for the test process, and what must be true after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
import gc
import os
from pathlib import Path
from typing import Any

import pytest

from dla_ros import Detector, emulator as emulation
from dla_ros.backends.base import BackendOptions

emulator = emulation.load()
assert emulator.real_gpu or not os.environ.get('DLA_ROS_REQUIRE_GPU'), 'CUDA finds no GPU'
stand_in_gpu = pytest.mark.skipif(emulator.real_gpu, reason='needs the emulated GPU')


@contextmanager
def clean(*, violations: tuple[str, ...] = ()) -> Iterator[emulation.Emulator]:
    """Start with nothing remembered; end with nothing held and only these rules broken."""
    emulator.reset()
    if not emulator.real_gpu:
        emulator.delay(0.0)
    before = emulator.alive()
    try:
        yield emulator
    finally:
        emulator.release()
    assert emulator.alive() == before
    broken = {line.partition(':')[0] for line in emulator.violations()}
    assert broken == set(violations), emulator.violations()


def opened(path: str | Path, *, tensors: bool = False, **options: Any) -> Detector:
    """Open a model on the emulated DLA."""
    settings = {'emulate': True, 'task_timeout': 0.5, **options}
    return Detector.open(
        path, backend='cudla', options=BackendOptions(**settings), tensors=tensors
    )


def usage(key: str) -> int:
    """Return a number of /proc/self/status; memory in KiB."""
    lines = Path('/proc/self/status').read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f'{key}:'))


def assert_flat(live: Callable[[], object]) -> None:
    """Fail if a hundred lives leave handles, threads or memory behind."""
    with clean():
        for _ in range(10):
            live()
        gc.collect()
        memory, threads = usage('VmRSS'), usage('Threads')
        for _ in range(100):
            live()
            assert not emulator.alive()
        gc.collect()
        assert usage('Threads') == threads
        assert usage('VmRSS') - memory < 8 << 10, 'KiB'
