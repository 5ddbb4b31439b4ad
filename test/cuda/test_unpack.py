"""The unpack kernel against TensorSpec.unpack, to the bit."""

from __future__ import annotations

from hypothesis import given, HealthCheck, settings, strategies as st
import numpy as np
import pytest

from dla_ros.cuda.owners import DeviceBuffer, Owners, PinnedBuffer, PrimaryContext, Stream
from dla_ros.cuda.unpack import Unpacked, Unpacker
from dla_ros.tensor import LAYOUTS, TensorSpec
from test.emulation import clean


@pytest.fixture(scope='module')
def context():
    with PrimaryContext() as made:
        yield made


@st.composite
def specs(draw):
    layout = draw(st.sampled_from(list(LAYOUTS.values())))
    channels = draw(st.sampled_from(layout.channels or range(1, 70)))
    shape = (draw(st.integers(1, 3)), channels, draw(st.integers(1, 20)), draw(st.integers(1, 20)))
    return TensorSpec.of(
        'tensor', shape, draw(st.sampled_from(layout.dtypes)), layout.name,
        scale=draw(st.sampled_from([0.5, 0.0123])),
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(specs(), st.integers(0, 2**32 - 1))
def test_any_layout_becomes_plain(context, spec, seed):
    if spec.dtype.kind == 'f':
        spec = TensorSpec.of(spec.name, spec.shape, spec.dtype, spec.layout.name)
    random = np.random.default_rng(seed)
    owners = Owners()
    with clean():
        context.make_current()
        stream = owners.hold(Stream())
        host = owners.hold(PinnedBuffer(spec.size))
        host.array[:] = random.integers(0, 256, spec.size, np.uint8)
        tensor = owners.hold(DeviceBuffer(spec.size))
        tensor.upload(host, stream)
        unpacker = owners.hold(Unpacker([spec], context.architecture))
        room = Unpacked(owners, [spec])
        room.device['tensor'].fill(0xCB, stream)
        unpacker.queue({'tensor': tensor}, room, stream)
        assert stream.drain(10.0)
        found = unpacker.arrays(room)['tensor']
        bytes_in = host.array.copy()
        owners.close()
    expected = spec.dequantize(spec.unpack(bytes_in)).astype(np.float32)
    np.testing.assert_array_equal(found, expected)
