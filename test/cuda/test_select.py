"""The select kernel against select_candidates, on random heads of every kind in every layout."""

from __future__ import annotations

import dataclasses

from hypothesis import given, HealthCheck, settings, strategies as st
import numpy as np
import pytest

from dla_ros.cuda.owners import DeviceBuffer, Owners, PinnedBuffer, PrimaryContext, Stream
from dla_ros.cuda.select import Selector
from dla_ros.decoders.heads import Head, select_candidates
from dla_ros.tensor import TensorSpec
from test.decoders.test_heads import heads as any_heads, random_outputs
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
    """Return heads with equally many values, and [(spec, values)] of what they read."""
    heads, outputs, seed = [], {}, draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    for i in range(draw(st.integers(1, 2))):
        head, shapes = draw(any_heads(f'h{i}'))
        if heads and head.width != heads[0].width:
            continue
        heads.append(head)
        for name, values in random_outputs(head, shapes, random).items():
            dtype, layout = draw(st.sampled_from(FORMATS))
            if dtype == 'int8':
                values = np.nan_to_num(values, nan=0.0, posinf=1.0, neginf=0.0)
            scale = 0.05 if dtype == 'int8' else 1.0
            spec = TensorSpec.of(name, values.shape, dtype, layout, scale=scale)
            outputs[name] = spec, values
    return heads, outputs, draw(st.sampled_from([0.05, 0.3, 0.6, 0.9]))


def run(context, heads, outputs, confidence):
    """Return the kernel's candidates and the outputs as it sees them."""
    owners = Owners()
    with clean():
        context.make_current()
        stream = owners.hold(Stream())
        try:
            tensors, arrays = {}, {}
            for name, (spec, values) in outputs.items():
                host = owners.hold(PinnedBuffer(spec.size))
                spec.pack(spec.quantize(values), host.array)
                arrays[name] = spec.dequantize(spec.unpack(host.array.copy()))
                tensors[name] = owners.hold(DeviceBuffer(spec.size))
                tensors[name].upload(host, stream)
            specs = [spec for spec, _ in outputs.values()]
            selector = owners.hold(Selector(heads, specs, context.architecture))
            found = selector.buffers(owners, tensors, stream)
            found.device.fill(0xAA, stream)
            selector.queue(tensors, found, confidence, stream)
            assert stream.drain(5.0)
            return selector.candidates(found), arrays
        finally:
            stream.drain(5.0)
            owners.close()


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(networks())
def test_the_kernel_selects_what_the_reference_selects(context, network):
    heads, outputs, confidence = network
    got, arrays = run(context, heads, outputs, confidence)
    # Both must agree, but for scores within float rounding of the threshold.
    margin = 1e-5
    least = keys(select_candidates(heads, arrays, confidence + margin))
    most = keys(select_candidates(heads, arrays, confidence - margin))
    found = keys(got)
    assert set(least) <= set(found) <= set(most)
    assert list(found) == sorted(found)
    for key, (score, values) in found.items():
        np.testing.assert_allclose(score, most[key][0], rtol=5e-6, atol=2e-6)
        np.testing.assert_allclose(values, most[key][1], rtol=1e-5, atol=1e-5)
    assert got.not_finite == select_candidates(heads, arrays, confidence).not_finite


def keys(candidates):
    names = ('head', 'anchor', 'row', 'column', 'class_id')
    columns = [getattr(candidates, name).tolist() for name in names]
    values = zip(candidates.score, candidates.values, strict=True)
    return dict(zip(zip(*columns, strict=True), values, strict=True))


@pytest.mark.parametrize('multi_label', [False, True])
def test_more_candidates_than_are_copied_with_the_frame_are_all_fetched(context, multi_label):
    spec = TensorSpec.of('head', (1, 7, 40, 40), 'float16', 'chw16')
    head = Head.packed('head', 2, (8.0, 8.0), multi_label=multi_label)
    got, _ = run(context, [head], {'head': (spec, np.ones(spec.shape))}, 0.0)
    assert len(got.score) == 1600 * (1 + multi_label)
    np.testing.assert_array_equal(
        got.row * 40 + got.column, np.repeat(np.arange(1600), 1 + multi_label)
    )


def test_heads_with_different_numbers_of_values_are_refused(context):
    spec = TensorSpec.of('head', (1, 7, 4, 4), 'float16', 'chw16')
    head = Head.packed('head', 2, (8.0, 8.0))
    other = dataclasses.replace(head, values=head.values * 2)
    with pytest.raises(ValueError, match=r'different numbers of values: \[4, 8\]'):
        run(context, [head, other], {'head': (spec, np.ones(spec.shape))}, 0.5)
