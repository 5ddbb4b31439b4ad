"""The emulator in the tests: one for the test process, and what must be true after each test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
import os

import pytest

from dla_ros import emulator as emulation

emulator = emulation.load(stand_in_gpu=True if os.environ.get('DLA_ROS_STAND_IN_GPU') else None)
stand_in_gpu = pytest.mark.skipif(emulator.real_gpu, reason='needs the emulated GPU')


@contextmanager
def clean(*, violations: tuple[str, ...] = ()) -> Iterator[emulation.Emulator]:
    """Start with nothing remembered; end with nothing held and only these rules broken."""
    emulator.reset()
    emulator.delay(0.0)
    before = emulator.alive()
    try:
        yield emulator
    finally:
        emulator.release()
    assert emulator.alive() == before
    broken = {line.partition(':')[0] for line in emulator.violations()}
    assert broken == set(violations), emulator.violations()
