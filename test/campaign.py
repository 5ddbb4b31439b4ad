"""The fault campaign: every call of CUDA and cuDLA fails in turn, through the node's whole life.

    python -m test.campaign [--part N]

For each call that a clean life makes, its first and a later occurrence fail with each status that
its documentation names. Every run must end as promised: in the state and with the exit code that
the error stands for, in time, with nothing held and no rule broken.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
import os
from pathlib import Path
import sys
import tempfile
import time
from typing import Any

import numpy as np
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter

from dla_ros.cuda.calls import LOST
from dla_ros.ending import REPLACE_PROCESS
from dla_ros.node import DlaNode
from test.emulation import emulator
from test.networks import save_model
from test.ros import message

FRAMES = 4
FRAME_TIMEOUT, TASK_TIMEOUT = 0.4, 0.2
LONGEST = 8.0  # Seconds for a whole life with recoveries; more is a hang.

_COMMON = (3, 4, 201)  # NOT_INITIALIZED, DEINITIALIZED, INVALID_CONTEXT
_DRIVER_NOT_FOUND = 15
STATUSES: dict[str, tuple[int, ...]] = {
    # cuda.h 13
    'cuInit': (1, 101, 803, 804, 100),
    'cuDriverGetVersion': (1,),
    'cuDeviceGet': (*_COMMON, 1, 101),
    'cuDeviceGetName': (*_COMMON, 1, 101),
    'cuDeviceGetAttribute': (*_COMMON, 1, 101),
    'cuDevicePrimaryCtxRetain': (*_COMMON, 1, 2, 101, 999),
    'cuDevicePrimaryCtxRelease': (*_COMMON, 101),
    'cuCtxSetCurrent': _COMMON,
    'cuStreamCreate': (*_COMMON, 1, 2),
    'cuStreamDestroy': (*_COMMON, 1, 400),
    'cuStreamQuery': (*_COMMON, 400, 600, 911),
    'cuEventCreate': (*_COMMON, 1, 2),
    'cuEventDestroy': (*_COMMON, 400),
    'cuEventRecord': (*_COMMON, 1, 400),
    'cuEventQuery': (3, 4, 1, 400, 600, 911),
    'cuEventElapsedTime': (*_COMMON, 400, 600, 999),
    'cuMemAlloc': (*_COMMON, 1, 2),
    'cuMemFree': (*_COMMON, 1),
    'cuMemHostAlloc': (*_COMMON, 1, 2),
    'cuMemHostGetDevicePointer': (*_COMMON, 1),
    'cuMemFreeHost': (*_COMMON, 1),
    'cuMemcpyHtoDAsync': (*_COMMON, 1, 400),
    'cuMemcpyDtoHAsync': (*_COMMON, 1, 400),
    'cuMemcpyDtoH': (*_COMMON, 1, 911),
    'cuMemsetD8Async': (*_COMMON, 1),
    'cuModuleLoadData': (*_COMMON, 1, 2, 209, 218, 221, 222, 302, 303),
    'cuModuleUnload': (*_COMMON, 1, 800),
    'cuModuleGetFunction': (*_COMMON, 1, 500),
    'cuLaunchKernel': (*_COMMON, 1, 200, 303, 400, 500, 701, 702, 703, 719),
    # nvrtc.h 13
    'nvrtcVersion': (3,),
    'nvrtcCreateProgram': (1, 2, 3, 4),
    'nvrtcCompileProgram': (1, 3, 4, 5, 6, 7),
    'nvrtcGetCUBINSize': (3, 4),
    'nvrtcGetCUBIN': (3, 4),
    'nvrtcDestroyProgram': (4,),
    # cudla.h 1.5
    'cudlaGetVersion': (1, _DRIVER_NOT_FOUND),
    'cudlaDeviceGetCount': (1, 7, 10, _DRIVER_NOT_FOUND),
    'cudlaCreateDevice': (2, 1, 10, 3, 6, 7, 13, _DRIVER_NOT_FOUND),
    'cudlaDestroyDevice': (8, 6, 7, _DRIVER_NOT_FOUND, 0x40000007),
    'cudlaDeviceGetAttribute': (1, 8, 7, 9, _DRIVER_NOT_FOUND, 0x40000001),
    'cudlaSetTaskTimeoutInMs': (1, _DRIVER_NOT_FOUND),
    'cudlaModuleLoadFromMemory': (8, 1, 2, 13, 7, _DRIVER_NOT_FOUND),
    'cudlaModuleGetAttributes': (1, 12, 8, 7, 9, 13, _DRIVER_NOT_FOUND, 0x40000005),
    'cudlaModuleUnload': (1, 8, 12, 7, _DRIVER_NOT_FOUND, 0x40000002),
    'cudlaMemRegister': (8, 1, 4, 6, 7, 2, 11, 13, _DRIVER_NOT_FOUND),
    'cudlaMemUnregister': (8, 4, 7, _DRIVER_NOT_FOUND, 0x40000006),
    'cudlaSubmitTask': (1, 8, 12, 6, 7, 2, 4, 13, 9, 14, 5, _DRIVER_NOT_FOUND, 0x40000004),
    'cudlaGetLastError': (
        8, *range(0x40000001, 0x40000008), 0x7FFFFFFF, _DRIVER_NOT_FOUND, 12345,
    ),
}
"""What each call may return beside success, by its documentation; and 12345, which no enumeration
has."""


_ERROR = 2  # DiagnosticStatus.ERROR
_POLLED = ('cuStreamQuery', 'cuEventQuery', 'cuCtxSetCurrent')


@dataclass(frozen=True)
class Injection:
    """One thing that goes wrong.

    Attributes
    ----------
    name:
        For people.
    inject:
        Arms it.
    lost:
        Whether a new process must be asked for.
    compiles:
        Whether the kernels must be compiled, not taken from the cache.

    """

    name: str
    inject: Callable[[], None]
    lost: bool = False
    compiles: bool = False


class Life:
    """A node from its creation to its end, with what it said."""

    def __init__(self, model: Path) -> None:
        settings = {
            'model': str(model), 'backend': 'cudla', 'emulate': True, 'max_recoveries': 2,
            'recovery_delay': 0.01, 'frame_timeout': FRAME_TIMEOUT, 'task_timeout': TASK_TIMEOUT,
        }
        self.node = DlaNode(
            parameter_overrides=[Parameter(name, value=v) for name, v in settings.items()]
        )
        self.levels: list[int] = []
        publish = self.node._diagnostics.publish
        self.node._diagnostics.publish = lambda array: (
            self.levels.append(array.status[0].level[0]), publish(array)
        )
        self.detectors: list[Any] = []
        opener = self.node._open_detector
        self.node._open_detector = lambda: self._keep(opener())
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self.node)
        self.image = message(np.full((4, 4, 3), 7, np.uint8), 'rgb8')
        self.pushed = 0

    def _keep(self, detector: Any) -> Any:
        self.detectors.append(detector)
        return detector

    @property
    def state(self) -> str:
        return str(self.node._state_machine.current_state[1])

    def start(self) -> bool:
        succeeded = TransitionCallbackReturn.SUCCESS
        return (
            self.node.trigger_configure() == succeeded
            and self.node.trigger_activate() == succeeded
        )

    def process(self, frames: int = FRAMES) -> int:
        """Push frames one by one and return how many came through."""
        statistics = self.node._statistics
        before = statistics.processed
        for _ in range(frames):
            done = statistics.processed + sum(statistics.dropped.values())
            self.node._take(self.image)
            self._spin_until(
                lambda done=done: statistics.processed + sum(statistics.dropped.values()) > done
            )
            self._spin_until(lambda: not self.node._trouble or self.node.exit_code)
            if self.node.exit_code:
                break
        return statistics.processed - before

    def _spin_until(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + LONGEST
        while not condition() and time.monotonic() < deadline:
            self._executor.spin_once(0.002)

    def end(self) -> None:
        """Deactivate, clean up, shut down, as far as the state allows."""
        if self.state == 'active':
            self.node.trigger_deactivate()
        if self.state == 'inactive':
            self.node.trigger_cleanup()
        self.node.trigger_shutdown()

    def bury(self) -> None:
        """Do for the emulator what the end of a process would do."""
        emulator.release()
        for detector in self.detectors:
            for _ in range(50):
                try:
                    detector.close()
                    break
                except Exception:
                    time.sleep(0.02)
        self.node.close()
        self._executor.shutdown()
        self.node.destroy_node()


def injections(calls: dict[str, int]) -> Iterator[Injection]:
    """Give all injections, for the calls of a clean life and how often it makes them."""
    missing = set(calls) - set(STATUSES)
    assert not missing, f'no statuses are known for {missing}'
    for call, count in calls.items():
        for status in STATUSES[call]:
            # How often a call that polls is made depends on the weather.
            later = count // 3 if call in _POLLED else count - 1
            for skip in sorted({0, count // 3, later}):
                yield Injection(
                    f'{call} #{skip + 1} -> {status}',
                    lambda call=call, status=status, skip=skip: emulator.fail(
                        call, status, skip=skip, sticky=status == 911
                    ),
                    lost=call.startswith('cu') and not call.startswith('cudla')
                    and status in LOST,
                    compiles=call.startswith('nvrtc'),
                )
    for frame in (0, 2):
        skip = 4 + frame  # The warm-up runs each of two slots twice.
        for status in (*range(0x40000001, 0x40000008), 0x7FFFFFFF):
            yield Injection(
                f'task of frame {frame} ends with {status:#x}, the wait succeeds',
                lambda status=status, skip=skip: emulator.fail_task(status, skip=skip),
            )
        yield Injection(
            f'task of frame {frame} ends with the task timeout',
            lambda skip=skip: emulator.fail_task(0, skip=skip, until_timeout=True),
        )
        yield Injection(
            f'task of frame {frame} never completes',
            lambda skip=skip: emulator.fail_task(0, skip=skip, hang=True), lost=True,
        )
        yield Injection(
            f'submission of frame {frame} hangs',
            lambda skip=skip: emulator.fail('cudlaSubmitTask', 0, skip=skip, hang=True),
            lost=True,
        )
    for slot in (0, 3):
        yield Injection(
            f'task {slot} of the warm-up ends with the task timeout',
            lambda slot=slot: emulator.fail_task(0, skip=slot, until_timeout=True),
        )


def clean_life(model: Path) -> dict[str, int]:
    """Live once without faults and return how often each call was made."""
    emulator.reset()
    life = Life(model)
    assert life.start() and life.process() == FRAMES
    life.end()
    life.bury()
    assert not emulator.alive() and not emulator.violations(), emulator.violations()
    return emulator.calls()


def run(injection: Injection, model: Path) -> list[str] | None:
    """Live with a fault; return what did not end as promised, None if it never came up."""
    emulator.reset()
    begin = time.monotonic()
    life = Life(model)
    faults = []
    with fresh_cache() if injection.compiles else nullcontext():
        injection.inject()
        started = life.start()
        processed = life.process() if started else 0
        life.node._report()
        faults += after_fault(life, started=started, failed=processed < FRAMES)
    life.end()
    code = life.node.exit_code
    if emulator.pending():
        life.bury()
        return None
    if injection.lost and code != REPLACE_PROCESS:
        faults.append(f'exit code {code} where only a new process helps')
    if not injection.lost and code:
        faults.append(f'exit code {code} where the node could go on')
    if not code and life.state != 'finalized':
        faults.append(f'state {life.state} after shutdown')
    if time.monotonic() - begin > LONGEST:
        faults.append(f'hung: {time.monotonic() - begin:.1f} s')
    life.bury()
    if emulator.alive():
        faults.append(f'leaked: {emulator.alive()}')
    if emulator.violations():
        faults.append(f'broke rules: {emulator.violations()}')
    return faults


def after_fault(life: Life, *, started: bool, failed: bool) -> list[str]:
    """Look at a node after its first frames; without the fault it must work again."""
    faults = []
    if failed and started and _ERROR not in life.levels:
        faults.append('frames failed, but the diagnostics show no ERROR')
    if failed and not life.node.exit_code:
        if not started and life.state != 'unconfigured':
            faults.append(f'a failed start left the node {life.state}')
        if (not started and not life.start()) or life.process() != FRAMES:
            faults.append('the node did not recover')
    return faults


@contextmanager
def fresh_cache() -> Iterator[None]:
    """Have an empty cache, so that kernels are compiled."""
    before = os.environ.get('XDG_CACHE_HOME')
    with tempfile.TemporaryDirectory() as folder:
        os.environ['XDG_CACHE_HOME'] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ['XDG_CACHE_HOME']
            else:
                os.environ['XDG_CACHE_HOME'] = before


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign; return 0 if every run ended as promised."""
    parser = argparse.ArgumentParser(prog='make campaign', description=__doc__)
    parser.add_argument('--part', type=int, default=1, help='run only every Nth injection')
    parser.add_argument('--only', default='', help='run only injections whose name contains this')
    options = parser.parse_args(arguments)
    rclpy.init(args=['--ros-args', '--log-level', 'fatal', '--disable-rosout-logs'])
    with tempfile.TemporaryDirectory() as folder:
        model = save_model(Path(folder))
        with fresh_cache():
            calls = clean_life(model)
        every = [i for i in injections(calls) if options.only in i.name][:: options.part]
        bad: dict[str, list[str]] = {}
        injected = 0
        for number, injection in enumerate(every, 1):
            faults = run(injection, model)
            injected += faults is not None
            if faults:
                bad[injection.name] = faults
                print(f'\n{injection.name}: {"; ".join(faults)}', flush=True)
            print(f'\r{number} of {len(every)}', end='', flush=True)
    rclpy.try_shutdown()
    leaked = sum('leaked' in str(faults) for faults in bad.values())
    hung = sum('hung' in str(faults) for faults in bad.values())
    print(
        f'\nfault campaign: {injected} injected, {injected - len(bad)} survived, '
        f'{leaked} leaked, {hung} hung'
    )
    return bool(bad)


if __name__ == '__main__':
    sys.exit(main())
