from __future__ import annotations

import ctypes
from typing import ClassVar

import numpy as np
import pytest

from dla_ros.cuda.owners import (
    DeviceBuffer,
    Event,
    Module,
    Owner,
    Owners,
    PinnedBuffer,
    PrimaryContext,
    Stream,
)
from dla_ros.errors import DlaError
from test.emulation import clean, emulator, stand_in_gpu


@pytest.fixture
def context():
    with clean(), PrimaryContext() as made:
        yield made


class Noted(Owner):
    released: ClassVar[list[str]] = []

    def _release(self, handle):
        self.released.append(handle)
        if handle.startswith('bad'):
            raise RuntimeError(handle)


def test_release_is_in_reverse_and_goes_on_after_failures():
    Noted.released.clear()
    owners = Owners()
    for name in ('first', 'bad 1', 'middle', 'bad 2', 'last'):
        owners.hold(Noted(name))
    with pytest.raises(RuntimeError, match='bad 2'):
        owners.close()
    assert Noted.released == ['last', 'bad 2', 'middle', 'bad 1', 'first']
    owners.close()
    assert len(Noted.released) == 5


def test_a_handle_is_released_once():
    Noted.released.clear()
    with Noted('handle') as owner:
        assert owner.handle == 'handle' and not owner.closed
        owner.close()
        assert owner.closed
    assert Noted.released == ['handle']
    with pytest.raises(ValueError, match='Noted is closed'):
        _ = owner.handle


@pytest.mark.parametrize(
    'make', [Stream, Event, lambda: DeviceBuffer(100), lambda: PinnedBuffer(100)],
    ids=['Stream', 'Event', 'DeviceBuffer', 'PinnedBuffer'],
)
@stand_in_gpu
def test_each_owner_releases_what_it_acquires(context, make):
    before = emulator.alive()
    owner = make()
    assert emulator.alive() != before
    owner.close()
    owner.close()
    assert emulator.alive() == before


@stand_in_gpu
def test_a_failed_constructor_holds_nothing():
    with clean():
        emulator.fail('cuCtxSetCurrent', 201)
        with pytest.raises(DlaError):
            PrimaryContext()
        assert not emulator.alive()


def test_bytes_go_there_and_back(context):
    data = np.random.default_rng(1).integers(0, 256, 10_007, np.uint8)
    with (
        Stream() as stream, PinnedBuffer(data.size) as source, PinnedBuffer(data.size) as target,
        DeviceBuffer(data.size) as buffer,
    ):
        source.array[:] = data
        target.array[:] = 0
        buffer.upload(source, stream)
        buffer.download(target, stream)
        assert stream.drain(5.0)
        np.testing.assert_array_equal(target.array, data)
        buffer.fill(7, stream, 3)
        assert stream.drain(5.0)
        assert buffer.read()[:4].tolist() == [7, 7, 7, data[3]]


@stand_in_gpu
def test_a_stream_is_a_queue_and_a_deadline_is_kept(context):
    emulator.delay(0.02)
    with Stream() as stream, DeviceBuffer(64) as buffer, Event() as start, Event() as end:
        start.record(stream)
        for _ in range(5):
            buffer.fill(1, stream)
        end.record(stream)
        assert not end.done and not stream.drain(0.01)
        assert stream.drain(5.0) and end.done
        assert 90 < end.since(start) < 1000


def test_the_context_knows_its_gpu(context):
    assert context.name and context.architecture.startswith('sm_')
    assert isinstance(context.integrated, bool)


def test_kernels_take_values(context):
    from dla_ros.cuda.compile import _compile

    source = (
        b'extern "C" __global__ void scale(const float* from, float* to, int n, float by) {\n'
        b'  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n'
        b'  if (i < n) to[i] = by * from[i];\n}\n'
    )
    image = _compile('scale', source, [f'-arch={context.architecture}'])
    values = np.arange(1000, dtype=np.float32)
    pointer = ctypes.c_void_p
    with (
        Module(image) as module, Stream() as stream, PinnedBuffer(4000) as host,
        DeviceBuffer(4000) as start, DeviceBuffer(4000) as end,
    ):
        kernel = module.kernel('scale', (pointer, pointer, ctypes.c_int, ctypes.c_float))
        host.array[:] = values.view(np.uint8)
        start.upload(host, stream)
        end.fill(0xFF, stream)
        kernel.launch((1000, 1), stream, start.address, end.address, 999, 0.5)
        assert stream.drain(5.0)
        found = end.read().view(np.float32)
    np.testing.assert_array_equal(found[:999], values[:999] / 2)
    assert np.isnan(found[999])
