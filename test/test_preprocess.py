from __future__ import annotations

import cv2
from hypothesis import given, settings, strategies as st
import numpy as np
import pytest

from dla_ros.color import COLOR_ORDERS, convert_reference
from dla_ros.geometry import RESIZE_MODES
from dla_ros.image import ENCODINGS, ImageError, ImageView
from dla_ros.model import InputConfig
from dla_ros.preprocess import Preprocessor
from dla_ros.tensor import LAYOUTS, TensorSpec
from test.test_color import COLORED, random_view


def naive(view, config, spec, geometry):
    """The same in plain steps: convert, cut, resize, pad, normalize, quantize."""
    image = convert_reference(view, config.color_order)
    s, t = geometry.source, geometry.target
    shrinks = s.width >= t.width and s.height >= t.height
    area = config.interpolation == 'area' and shrinks
    resized = cv2.resize(
        np.ascontiguousarray(image[s.y : s.y + s.height, s.x : s.x + s.width]),
        (t.width, t.height),
        interpolation=cv2.INTER_AREA if area else cv2.INTER_LINEAR,
    ).reshape(t.height, t.width, -1)
    _, c, h, w = spec.shape
    padded = np.full((h, w, c), config.border_value, np.float64)
    padded[t.y : t.y + t.height, t.x : t.x + t.width] = resized
    values = (padded * config.scale - config.mean) / config.stddev
    if spec.dtype == np.int8:
        values = np.clip(np.rint((values / spec.scale).astype(np.float32)), -128, 127)
    return values.transpose(2, 0, 1)[None].astype(np.float32).astype(spec.dtype)


@st.composite
def cases(draw):
    order = draw(st.sampled_from(COLOR_ORDERS))
    channels = 1 if order == 'mono' else 3
    config = InputConfig(
        color_order=order,
        resize=draw(st.sampled_from(RESIZE_MODES)),
        padding=draw(st.sampled_from(['center', 'top_left'])),
        border_value=draw(st.integers(0, 255)),
        interpolation=draw(st.sampled_from(['linear', 'area'])),
        scale=draw(st.sampled_from([1.0, '1/255'])),
        mean=[draw(st.floats(-1, 1)) for _ in range(channels)],
        stddev=[draw(st.floats(0.25, 4)) for _ in range(channels)],
    )
    layout = draw(st.sampled_from(list(LAYOUTS.values())))
    dtype = draw(st.sampled_from([d for d in layout.dtypes if d != 'uint8']))
    shape = (1, channels, draw(st.integers(1, 12)), draw(st.integers(1, 12)))
    spec = TensorSpec.of('input', shape, dtype, layout.name, scale=draw(st.floats(0.01, 2)))
    return config, spec


@settings(max_examples=300)
@given(cases(), st.sampled_from(COLORED), st.integers(1, 9), st.integers(1, 9), st.integers(0, 9))
def test_every_encoding_into_every_layout(case, encoding, width, height, seed):
    config, spec = case
    view = random_view(encoding, width, height, 2, False, seed)
    geometry = config.fit((view.width, view.height), (spec.shape[3], spec.shape[2]))
    buffer = np.full(spec.size, 0xA5, np.uint8)
    Preprocessor(config, spec, buffer)(view, geometry)
    found, expected = spec.unpack(buffer), naive(view, config, spec, geometry)
    if ENCODINGS[encoding].family == 'mono' or config.color_order != 'mono':
        np.testing.assert_array_equal(found, expected)
    else:  # Gray of the resized color against resized gray: a pixel value of difference.
        step = config.scale / min(config.stddev) / spec.scale
        difference = np.abs(found.astype(np.float64) - expected.astype(np.float64)).max()
        assert difference <= step * 1.01 + 1e-2
    padding = spec.groups * spec.lanes - spec.shape[1]
    if padding:
        assert not spec.view(buffer)[:, -1, ..., -padding:].any()


@pytest.mark.parametrize('mode', RESIZE_MODES)
@pytest.mark.parametrize('interpolation', ['linear', 'area'])
@pytest.mark.parametrize('size', [(3000, 60), (60, 3000), (1237, 5), (7, 900), (640, 480)])
def test_what_is_in_the_image_is_found_again_where_it_was(mode, interpolation, size):
    config = InputConfig(
        color_order='bgr', resize=mode, interpolation=interpolation, border_value=0
    )
    spec = TensorSpec.of('input', (1, 3, 416, 320), 'float32', 'nchw')
    geometry = config.fit(size, (320, 416))
    source = geometry.source
    box = np.array([
        source.x + source.width // 5, source.y + source.height // 5,
        source.x + 4 * source.width // 5, source.y + 4 * source.height // 5,
    ])
    image = np.zeros((size[1], size[0], 3), np.uint8)
    image[box[1] : box[3], box[0] : box[2]] = 255
    buffer = np.zeros(spec.size, np.uint8)
    Preprocessor(config, spec, buffer)(ImageView.from_array(image, 'bgr8'), geometry)
    bright = spec.unpack(buffer)[0, 0] > 255 * config.scale / 2
    rows, columns = np.flatnonzero(bright.any(1)), np.flatnonzero(bright.any(0))
    edges = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
    coarser = np.maximum(1, 1 / np.array(geometry.scale * 2))  # One pixel of either raster.
    assert (np.abs(geometry.to_image(edges) - box) <= coarser).all()


def test_the_border_is_painted_anew_when_the_size_changes():
    config = InputConfig(color_order='bgr', resize='letterbox', border_value=7)
    spec = TensorSpec.of('input', (1, 3, 8, 8), 'float32')
    buffer = np.full(spec.size, 0xA5, np.uint8)
    preprocess = Preprocessor(config, spec, buffer)
    for width, height in ((8, 2), (2, 8), (4, 4)):
        view = random_view('bgr8', width, height)
        geometry = config.fit((width, height), (8, 8))
        preprocess(view, geometry)
        np.testing.assert_array_equal(spec.unpack(buffer), naive(view, config, spec, geometry))


@pytest.mark.parametrize('shape', [(1, 1, 4, 4), (1, 4, 4, 4), (2, 3, 4, 4)])
def test_a_network_with_other_channels_or_a_batch_is_refused(shape):
    config = InputConfig(color_order='bgr', resize='stretch')
    spec = TensorSpec.of('input', shape, 'float32')
    with pytest.raises(ValueError, match=r"'input' is .*bgr needs a batch of 1 and 3 channel"):
        Preprocessor(config, spec, bytearray(spec.size))


def test_no_color_no_input():
    config = InputConfig(color_order='bgr', resize='stretch')
    spec = TensorSpec.of('input', (1, 3, 4, 4), 'float32')
    view = ImageView.of(bytes(16), width=2, height=2, encoding='32FC1', step=8)
    with pytest.raises(ImageError, match='32FC1'):
        Preprocessor(config, spec, bytearray(spec.size))(view, config.fit((2, 2), (4, 4)))
