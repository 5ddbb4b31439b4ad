"""The select kernel against select_candidates, on random heads in every layout."""

from __future__ import annotations

from hypothesis import given, HealthCheck, settings, strategies as st
import numpy as np
import pytest

from dla_ros.cuda.owners import DeviceBuffer, Owners, PinnedBuffer, PrimaryContext, Stream
from dla_ros.cuda.select import Selector
from dla_ros.decoders.base import Head, select_candidates
from dla_ros.tensor import TensorSpec
from test.emulation import clean


@pytest.fixture(scope='module')
def context():
    with PrimaryContext() as made:
        yield made


FORMATS = (
    ('float16', 'chw16'), ('int8', 'chw32'), ('float16', 'dla_linear'), ('int8', 'dla_linear'),
    ('float32', 'nchw'),
)


@st.composite
def networks(draw):
    sigmoid, objectness = draw(st.booleans()), draw(st.booleans())
    heads, specs = [], []
    for i in range(draw(st.integers(1, 3))):
        anchors, classes = draw(st.integers(1, 3)), draw(st.integers(1, 30))
        h, w = draw(st.integers(1, 9)), draw(st.integers(1, 9))
        dtype, layout = draw(st.sampled_from(FORMATS))
        heads.append(Head(f'head{i}', anchors, classes, (8.0, 8.0), sigmoid, objectness))
        shape = (1, heads[-1].channels, h, w)
        scale = 0.05 if dtype == 'int8' else 1.0
        specs.append(TensorSpec.of(f'head{i}', shape, dtype, layout, scale=scale))
    seed = draw(st.integers(0, 2**32 - 1))
    return heads, specs, sigmoid, seed, draw(st.sampled_from([0.05, 0.3, 0.6, 0.9]))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(networks())
def test_the_kernel_selects_what_the_reference_selects(context, network):
    heads, specs, sigmoid, seed, confidence = network
    random = np.random.default_rng(seed)
    owners = Owners()
    with clean():
        context.make_current()
        try:
            stream = owners.hold(Stream())
            tensors, arrays = {}, {}
            for spec in specs:
                values = random.normal(0, 3, spec.shape) if sigmoid else random.random(spec.shape)
                bad = random.random(spec.shape)
                values[bad < 0.01] = np.nan if spec.dtype.kind == 'f' else 0.0
                values[bad > 0.99] = np.inf if spec.dtype.kind == 'f' else 1.0
                host = owners.hold(PinnedBuffer(spec.size))
                spec.pack(spec.quantize(values), host.array)
                arrays[spec.name] = spec.dequantize(spec.unpack(host.array.copy()))
                tensors[spec.name] = owners.hold(DeviceBuffer(spec.size))
                tensors[spec.name].upload(host, stream)
            selector = owners.hold(Selector(heads, specs, context.architecture))
            found = selector.buffers(owners)
            found[0].fill(0xAA, stream)
            selector.queue(tensors, *found, confidence, stream)
            assert stream.drain(5.0)
            got = selector.candidates(*found)
        finally:
            owners.close()
    assert_candidates(got, arrays, heads, confidence)


def assert_candidates(got, arrays, heads, confidence):
    """Both must agree, but for scores within float rounding of the threshold."""
    margin = 1e-5
    least = keys(select_candidates(heads, arrays, confidence + margin))
    most = keys(select_candidates(heads, arrays, confidence - margin))
    found = keys(got)
    assert set(least) <= set(found) <= set(most)
    assert list(found) == sorted(found)
    for key, (score, box) in found.items():
        np.testing.assert_allclose(score, most[key][0], rtol=2e-6)
        np.testing.assert_allclose(box, most[key][1], rtol=1e-6)


def keys(candidates):
    names = ('head', 'anchor', 'row', 'column', 'class_id')
    columns = [getattr(candidates, name).tolist() for name in names]
    values = zip(candidates.score, candidates.box, strict=True)
    return dict(zip(zip(*columns, strict=True), values, strict=True))


def test_more_candidates_than_are_copied_with_the_frame_are_all_fetched(context):
    spec = TensorSpec.of('head', (1, 6, 40, 40), 'float16', 'chw16')
    owners = Owners()
    with clean():
        context.make_current()
        stream = owners.hold(Stream())
        buffer, host = owners.hold(DeviceBuffer(spec.size)), owners.hold(PinnedBuffer(spec.size))
        spec.pack(np.ones(spec.shape, np.float16), host.array)
        buffer.upload(host, stream)
        head = Head('head', 1, 1, (8.0, 8.0), sigmoid=False)
        selector = owners.hold(Selector([head], [spec], context.architecture))
        found = selector.buffers(owners)
        selector.queue({'head': buffer}, *found, 0.0, stream)
        assert stream.drain(5.0)
        got = selector.candidates(*found)
        owners.close()
    assert len(got.score) == selector.capacity == 1600 > found[1].size // 32
    np.testing.assert_array_equal(got.row * 40 + got.column, np.arange(1600))
