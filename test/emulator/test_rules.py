"""Each rule is broken on purpose, and must be reported with its status."""

from __future__ import annotations

from collections.abc import Callable
import ctypes
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

from dla_ros.cuda.calls import cuda, cudla
from dla_ros.cuda.dla import DlaDevice, DlaModule, Registration, Task
from dla_ros.cuda.owners import DeviceBuffer, Event, Owners, PinnedBuffer, PrimaryContext, Stream
from dla_ros.emulator.rules import RULES
from dla_ros.errors import DlaError
from test.conftest import ROOT
from test.emulation import clean, emulator, stand_in_gpu
from test.networks import emulated_loadable

Breaker = Callable[['Bench'], Any]
BREAKERS: list[tuple[tuple[str, ...], int, Breaker]] = []


class Bench:
    """A working device with one slot, to break rules with."""

    def __init__(self) -> None:
        self.owners = Owners()
        hold = self.owners.hold
        self.context = hold(PrimaryContext())
        self.stream = hold(Stream())
        self.device = hold(DlaDevice(0))
        self.module = hold(DlaModule(self.device, emulated_loadable()))
        (inputs,), (outputs,) = self.module.inputs, self.module.outputs
        self.input = hold(DeviceBuffer(inputs.size))
        self.output = hold(DeviceBuffer(outputs.size))
        self.registered = [hold(Registration(self.device, b)) for b in (self.input, self.output)]
        self.task = Task(self.module, self.registered[:1], self.registered[1:])
        self.pinned = hold(PinnedBuffer(inputs.size))

    def submit(self, **changes: Any) -> None:
        """Submit the task with raw fields changed."""
        from cuda.bindings import cudla as binding

        native = np.zeros(1, binding.task_dtype)
        ctypes.memmove(native.ctypes.data, self.task.address, native.nbytes)
        stream = changes.pop('stream', int(self.stream.handle))
        for field, value in changes.items():
            native[field] = value
        cudla('submit_task', self.device.handle, native.ctypes.data, 1, stream, 0)

    def busy(self, stream: Stream | None = None) -> None:
        """Queue a task that takes until `emulator.release`."""
        emulator.fail_task(0, hang=True)
        self.device.submit(self.task, stream or self.stream)


def breaks(
    name: str, *, status: int | None = None, needs_stand_in: bool = False, also: str = ''
) -> Callable[[Breaker], Breaker]:
    """Enter a function that breaks a rule, with the status that the last call is to return."""
    (rule,) = (rule for rule in RULES if rule.name == name)

    def enter(function: Breaker) -> Breaker:
        if not (emulator.real_gpu and (needs_stand_in or rule.source.startswith('cuda.h'))):
            broken = (name, also) if also else (name,)
            BREAKERS.append((broken, rule.status if status is None else status, function))
        return function

    return enter


@breaks('alignment')
def _(bench):
    cudla('mem_register', bench.device.handle, bench.input.address + 8, 8, 0)


@breaks('registered-twice')
def _(bench):
    Registration(bench.device, bench.input)


@breaks('device-memory')
def _(bench):
    cudla('mem_register', bench.device.handle, bench.pinned.handle + 32, 32, 0)


@breaks('whole-allocation')
def _(bench):
    with DeviceBuffer(256) as buffer:
        cudla('mem_register', bench.device.handle, buffer.address + 32, 32, 0)


@breaks('registered-pointer')
def _(bench):
    address = np.array([bench.input.address], np.uint64)
    bench.submit(input_tensor=address.ctypes.data)


@breaks('registered-pointer')
def _(bench):
    other = DlaDevice(1)
    foreign = Registration(other, bench.input)
    try:
        bench.device.submit(Task(bench.module, [foreign], bench.registered[1:]), bench.stream)
    finally:
        foreign.close()
        other.close()


@breaks('tensor-size')
def _(bench):
    with DeviceBuffer(32) as buffer, Registration(bench.device, buffer) as small:
        bench.device.submit(Task(bench.module, [small], bench.registered[1:]), bench.stream)


@breaks('tensor-count')
def _(bench):
    task = Task(bench.module, bench.registered, bench.registered[1:])
    bench.device.submit(task, bench.stream)


@breaks('null-tensors')
def _(bench):
    bench.submit(output_tensor=0)


@breaks('events')
def _(bench):
    bench.submit(wait_events=bench.pinned.handle)


@breaks('one-module')
def _(bench):
    DlaModule(bench.device, emulated_loadable())


@breaks('handles-per-core')
def _(bench):
    others = Owners()
    try:
        for _ in range(16):
            others.hold(DlaDevice(0))
    finally:
        others.close()


@breaks('capture')
def _(bench):
    from cuda.bindings import driver

    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    cuda('cuStreamBeginCapture', bench.stream.handle, relaxed)
    try:
        bench.device.submit(bench.task, bench.stream)
    finally:
        cuda('cuStreamEndCapture', bench.stream.handle)


@breaks('own-stream')
def _(bench):
    bench.submit(stream=0)


@breaks('handle')
def _(bench):
    cudla('device_get_attribute', bench.device.handle + 64, 1)


@breaks('task-timeout')
def _(bench):
    bench.device.set_task_timeout(1000.1)


@breaks('in-flight')
def _(bench):
    bench.busy()
    cudla('destroy_device', bench.device.handle)


@breaks('in-flight', status=4)
def _(bench):
    bench.busy()
    cudla('mem_unregister', bench.device.handle, bench.registered[0].handle)


@breaks('in-flight', status=12)
def _(bench):
    bench.busy()
    cudla('module_unload', bench.module.handle, 0)


@breaks('in-flight', status=0, needs_stand_in=True, also='use-after-free')
def _(bench):
    with DeviceBuffer(64) as buffer:
        bench.busy()
        buffer.fill(0, bench.stream)
        threading.Timer(0.1, emulator.release).start()


@breaks('in-flight', status=0, needs_stand_in=True)
def _(bench):
    stream = Stream()
    bench.busy(stream)
    threading.Timer(0.1, emulator.release).start()
    stream.close()


@breaks('release-order')
def _(bench):
    with DeviceBuffer(64) as buffer:
        handle = DlaDevice(1).handle
        cudla('mem_register', handle, buffer.address, 64, 0)
        cudla('destroy_device', handle)


@breaks('context-last', needs_stand_in=True)
def _(bench):
    cuda('cuDevicePrimaryCtxRelease', 0)
    cuda('cuDevicePrimaryCtxRetain', 0)


@breaks('current-context')
def _(bench):
    from cuda.bindings import driver

    cuda('cuCtxSetCurrent', driver.CUcontext(0))
    try:
        Stream()
    finally:
        bench.context.make_current()


@breaks('bounds')
def _(bench):
    cuda('cuMemsetD8Async', bench.input.handle, 0, bench.input.size + 1, bench.stream.handle)


@breaks('use-after-free')
def _(bench):
    buffer = DeviceBuffer(64)
    address = buffer.handle
    buffer.close()
    cuda('cuMemsetD8Async', address, 0, 64, bench.stream.handle)


@breaks('pageable-copy')
def _(bench):
    source = np.zeros(bench.input.size, np.uint8)
    cuda(
        'cuMemcpyHtoDAsync', bench.input.handle, source.ctypes.data, source.size,
        bench.stream.handle,
    )


@breaks('pinned-before-event')
def _(bench):
    emulator.delay(0.05)
    bench.input.download(bench.pinned, bench.stream)
    bench.pinned.array[0]
    assert bench.stream.drain(5.0)


def test_every_rule_is_broken_here():
    assert emulator.real_gpu or {names[0] for names, _, _ in BREAKERS} == {r.name for r in RULES}


@pytest.mark.parametrize(
    ('names', 'status', 'breaker'), BREAKERS, ids=[f'{n[0]}-{s}' for n, s, _ in BREAKERS]
)
def test_a_broken_rule_is_reported(names, status, breaker):
    with clean(violations=names):
        bench = Bench()
        returned = 0
        try:
            breaker(bench)
        except DlaError as error:
            returned = error.status
        emulator.release()
        assert bench.stream.drain(5.0)
        bench.owners.close()
        assert returned == status


def test_keeping_the_rules_is_not_reported():
    with clean():
        bench = Bench()
        bench.pinned.array[:] = 0
        bench.input.upload(bench.pinned, bench.stream)
        event = Event()
        for _ in range(3):
            bench.device.submit(bench.task, bench.stream)
        event.record(bench.stream)
        assert bench.stream.drain(5.0)
        bench.device.check()
        event.close()
        bench.owners.close()


@pytest.mark.parametrize('later', ['get_last_error', 'module_get_attributes', 'mem_unregister'])
def test_an_error_of_a_task_shows_in_a_later_call(later):
    with clean():
        bench = Bench()
        emulator.fail_task(0x40000007)
        bench.device.submit(bench.task, bench.stream)
        assert bench.stream.drain(5.0)
        with pytest.raises(DlaError, match='DLA_ERR_DATA_MISMATCH') as caught:
            if later == 'get_last_error':
                bench.device.check()
            elif later == 'module_get_attributes':
                _ = bench.module.inputs
            else:
                bench.registered.pop().close()
        assert caught.value.status == 0x40000007
        bench.owners.close()


@stand_in_gpu
def test_what_is_left_at_exit_is_reported():
    code = (
        'from dla_ros import emulator; emulator.load(stand_in_gpu=True)\n'
        'from dla_ros.cuda.owners import PrimaryContext, DeviceBuffer\n'
        'context = PrimaryContext(); buffer = DeviceBuffer(64)\n'
    )
    done = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert 'leaked at exit:\ndevice buffer 1\nprimary context 1\n' in done.stderr
