from __future__ import annotations

import math

from hypothesis import given, strategies as st
import numpy as np
import pytest

from dla_ros.tensor import LAYOUT_NAMES, LAYOUTS, TensorFormat, TensorSpec


def ru(value, multiple):
    return math.ceil(value / multiple) * multiple


def reference_offset(layout, shape, es, n, c, h, w):
    """Byte offsets and sizes as NVIDIA's documentation of the formats gives them."""
    _, channels, height, width = shape
    if layout == 'nchw':
        return ((n * channels + c) * height + h) * width * es + w * es
    if layout in ('chw16', 'chw32'):
        lanes = int(layout[3:])
        line = 32 * width
        surface = line * height
        block = n * math.ceil(channels / lanes) + c // lanes
        return block * surface + h * line + w * 32 + (c % lanes) * es
    if layout == 'dla_linear':
        return ((n * channels + c) * height + h) * ru(width * es, 64) + w * es
    stored = 1 if channels == 1 else 4
    return (n * height + h) * ru(width * stored * es, 64) + (w * stored + c) * es


def reference_size(layout, shape, es):
    batch, channels, height, width = shape
    return batch * {
        'nchw': channels * height * width * es,
        'chw16': math.ceil(channels / 16) * 32 * width * height,
        'chw32': math.ceil(channels / 32) * 32 * width * height,
        'dla_linear': channels * height * ru(width * es, 64),
        'dla_hwc4': height * ru(width * (1 if channels == 1 else 4) * es, 64),
    }[layout]


@st.composite
def specs(draw):
    layout = LAYOUTS[draw(st.sampled_from(LAYOUT_NAMES))]
    channels = draw(st.sampled_from(layout.channels) if layout.channels else st.integers(1, 70))
    shape = (draw(st.integers(1, 2)), channels, draw(st.integers(1, 5)), draw(st.integers(1, 40)))
    return TensorSpec.of('t', shape, draw(st.sampled_from(layout.dtypes)), layout.name)


def random_elements(spec, seed=0):
    random = np.random.default_rng(seed)
    bits = random.integers(0, 256, (*spec.shape, spec.dtype.itemsize), dtype=np.uint8)
    return bits.view(spec.dtype)[..., 0]


@given(specs(), st.data())
def test_offsets_and_sizes_are_those_of_the_documentation(spec, data):
    assert spec.size == reference_size(spec.layout.name, spec.shape, spec.dtype.itemsize)
    index = [data.draw(st.integers(0, length - 1)) for length in spec.shape]
    assert spec.offset(*index) == reference_offset(
        spec.layout.name, spec.shape, spec.dtype.itemsize, *index
    )


@given(specs())
def test_pack_puts_each_element_at_its_offset(spec):
    elements = random_elements(spec)
    buffer = np.full(spec.size, 0xA5, np.uint8)
    spec.pack(elements, buffer)
    es = spec.dtype.itemsize
    for index in list(np.ndindex(spec.shape))[:: max(1, elements.size // 50)]:
        at = spec.offset(*index)
        assert buffer[at : at + es].tobytes() == elements[index].tobytes()


@given(specs())
def test_unpack_is_the_inverse_of_pack(spec):
    elements = random_elements(spec)
    buffer = np.full(spec.size, 0xA5, np.uint8)
    spec.pack(elements, buffer)
    back = spec.unpack(buffer)
    assert back.shape == spec.shape and back.dtype == spec.dtype
    assert back.tobytes() == elements.tobytes()


@given(specs())
def test_packing_what_was_unpacked_changes_only_the_padding(spec):
    buffer = np.random.default_rng(1).integers(0, 256, spec.size, dtype=np.uint8)
    again = buffer.copy()
    spec.pack(spec.unpack(buffer), again)
    assert spec.unpack(again).tobytes() == spec.unpack(buffer).tobytes()
    padding = spec.groups * spec.lanes - spec.shape[1]
    if padding:
        last = np.ascontiguousarray(spec.view(again)[:, -1, ..., -padding:])
        assert not last.view(np.uint8).any()
    between = np.ones(spec.size, bool)
    for row in np.ndindex(spec.shape[0], spec.groups, spec.shape[2]):
        start = sum(i * stride for i, stride in zip(row, spec.strides, strict=False))
        between[start : start + spec.shape[3] * spec.strides[3]] = False
    np.testing.assert_array_equal(again[between], buffer[between])


@pytest.mark.parametrize(
    ('shape', 'layout', 'size', 'strides'),
    [
        # Descriptors that cuDLA printed (NVIDIA/cuda-samples#192).
        ((1, 4, 512, 960), 'dla_hwc4', 1966080, (1, 3840, 0)),
        ((1, 64, 32, 60), 'dla_linear', 131072, (1, 64, 2048)),
    ],
)
def test_real_descriptors_are_reproduced(shape, layout, size, strides):
    spec = TensorSpec.of("input'", shape, np.int8, layout)
    assert spec.size == size
    assert spec.descriptor_strides == strides


@pytest.mark.parametrize(('width', 'line'), [(84, 2688), (42, 1344), (21, 672)])
def test_chw16_is_tight_as_in_nvidias_yolov5_sample(width, line):
    spec = TensorSpec.of('o', (1, 255, width, width), np.float16, 'chw16')
    assert spec.descriptor_strides == (2, line, line * width)
    assert TensorSpec.of('i', (1, 3, 672, 672), np.float16, 'chw16').size == 14450688


@pytest.mark.parametrize(
    ('shape', 'dtype', 'layout', 'words'),
    [
        ((1, 3, 4), 'float16', 'chw16', r'four positive numbers.*\(1, 3, 4\)'),
        ((1, 3, 0, 4), 'float16', 'chw16', r'four positive numbers'),
        ((1, 'c', 4, 4), 'float16', 'chw16', r'four positive numbers'),
        ((1, 3, 4, 4), 'float32', 'chw16', 'chw16 exists for float16, not for float32'),
        ((1, 3, 4, 4), 'float16', 'chw32', 'chw32 exists for int8'),
        ((1, 2, 4, 4), 'int8', 'dla_hwc4', '1 or 3 or 4 channels, not for int8 with 2'),
        ((1, 3, 4, 4), 'int8', 'chw4', "'chw4'.*dla_linear"),
    ],
)
def test_what_does_not_exist_is_refused(shape, dtype, layout, words):
    with pytest.raises(ValueError, match=words):
        TensorSpec.of('t', shape, dtype, layout)


def test_buffers_and_arrays_of_another_size_are_refused():
    spec = TensorSpec.of('t', (1, 3, 2, 2), np.float16)
    with pytest.raises(ValueError, match='24 bytes.*23'):
        spec.view(bytearray(23))
    with pytest.raises(ValueError, match=r'float16 \(1, 3, 2, 2\).*float32'):
        spec.pack(np.zeros(spec.shape, np.float32), bytearray(24))


def test_quantizing_rounds_and_saturates():
    spec = TensorSpec.of('t', (1, 1, 1, 5), 'int8', 'dla_linear', scale=0.5)
    elements = spec.quantize(np.array([0.24, 0.26, -0.76, 1000, -1000]))
    assert elements.dtype == np.int8 and elements.tolist() == [0, 1, -2, 127, -128]
    assert spec.dequantize(elements).tolist() == [0, 0.5, -1, 63.5, -64]
    half = TensorSpec.of('t', (1, 1, 1, 2), 'float16', 'chw16')
    assert half.quantize(np.array([0.1, 1e6])).tolist() == [np.float16(0.1), np.inf]


FORMATS = {
    'fp16:chw16': ('float16', 'chw16'), 'int8:chw32': ('int8', 'chw32'),
    'fp16:dla_linear': ('float16', 'dla_linear'), 'int8:dla_hwc4': ('int8', 'dla_hwc4'),
    'chw16': ('float16', 'chw16'), 'chw32': ('int8', 'chw32'),
}


@pytest.mark.parametrize(('text', 'expected'), FORMATS.items())
def test_formats_are_those_of_trtexec(text, expected):
    form = TensorFormat.parse(text)
    assert form == TensorFormat(*expected) == TensorFormat.parse(str(form))


@pytest.mark.parametrize(
    ('text', 'words'),
    [
        ('fp16:chw17', "Invalid layout 'chw17'.*chw16"), ('fp32:chw16', "Invalid type 'fp32'"),
        ('int8:chw16', 'chw16 exists for float16'), ('fp16:nchw', "Invalid layout 'nchw'"),
    ],
)
def test_formats_that_do_not_exist(text, words):
    with pytest.raises(ValueError, match=words):
        TensorFormat.parse(text)
