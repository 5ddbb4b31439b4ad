"""The preprocess kernel against the numpy reference, to the bit, and that one against OpenCV."""

from __future__ import annotations

from itertools import product
import zlib

import cv2
from hypothesis import given, HealthCheck, settings, strategies as st
import numpy as np
import pytest

from dla_ros.color import convert_reference
from dla_ros.cuda.owners import DeviceBuffer, Owners, PinnedBuffer, PrimaryContext, Stream
from dla_ros.cuda.preprocess import encoding_definitions, ImagePreprocessor
from dla_ros.geometry import Geometry, Rect
from dla_ros.image import ENCODINGS, ImageView
from dla_ros.model import InputConfig
from dla_ros.preprocess import preprocess_reference
from dla_ros.tensor import TensorSpec
from test.emulation import clean, emulator

FORMATS = (
    ('float16', 'chw16'), ('int8', 'chw32'), ('float16', 'dla_linear'), ('int8', 'dla_linear'),
    ('uint8', 'dla_linear'), ('float16', 'dla_hwc4'), ('int8', 'dla_hwc4'), ('float32', 'nchw'),
    ('float16', 'nchw'),
)
# One of each set of encodings that are stored alike, in both byte orders where there are two.
KINDS = {
    encoding_definitions(e, swapped=s): (e.name, s)
    for e, s in product(ENCODINGS.values(), (False, True)) if e.has_color
}.values()


@pytest.fixture(scope='module')
def context():
    with PrimaryContext() as made:
        yield made


def config_of(color_order, interpolation='linear', **changes):
    channels = 1 if color_order == 'mono' else 3
    values = {
        'color_order': color_order, 'resize': 'letterbox', 'interpolation': interpolation,
        'scale': 1 / 255, 'mean': [0.485, 0.456, 0.406][:channels],
        'stddev': [0.229, 0.224, 0.225][:channels], 'border_value': 114,
    }
    return InputConfig(**{**values, **changes})


def random_view(random, name, swapped, width, height, padding=0):
    encoding = ENCODINGS[name]
    width, height = (
        max(n // m, 1) * m for n, m in zip((width, height), encoding.multiple, strict=True)
    )
    step = encoding.row_bytes(width) + padding
    data = random.integers(0, 256, int(step * height * encoding.rows), np.uint8)
    return ImageView.of(
        data, width=width, height=height, encoding=encoding, step=step, big_endian=swapped
    )


def run_kernel(context, view, geometry, config, spec, *, offset=0, mapped=False):
    """Return the tensor's bytes, poisoned before."""
    owners = Owners()
    context.make_current()
    try:
        stream = owners.hold(Stream())
        host = owners.hold(PinnedBuffer(offset + view.data.size))
        host.array[:offset] = 0xEE
        host.array[offset:] = view.data
        image = owners.hold(DeviceBuffer(host.size))
        tensor = owners.hold(DeviceBuffer(spec.size))
        tensor.fill(0xCB, stream)
        kernel = owners.hold(ImagePreprocessor(config, spec, context.architecture))
        if mapped:
            address = host.device_address
        else:
            image.upload(host, stream)
            address = image.address
        kernel.queue(view, address + offset, geometry, tensor.address, stream)
        assert stream.drain(20.0)
        return tensor.read()
    finally:
        owners.close()


def assert_agrees(context, view, geometry, config, spec, **options):
    expected = preprocess_reference(view, geometry, config, spec)
    found = run_kernel(context, view, geometry, config, spec, **options)
    np.testing.assert_array_equal(spec.unpack(found), expected)
    grouped = spec.view(found).transpose(0, 1, 4, 2, 3)
    lanes = grouped.reshape(1, -1, *spec.shape[2:])
    assert not lanes[:, spec.shape[1]:].any(), 'padding channels'


def combinations():
    """Each kind of image with every color order, interpolation and format at least once."""
    others = list(product(('rgb', 'bgr', 'mono'), ('linear', 'area')))
    for i, (name, swapped) in enumerate(KINDS):
        for k in range(3 if not emulator.real_gpu else 18):
            order, interpolation = others[(i + k) % len(others)]
            dtype, layout = FORMATS[(i + 2 * k) % len(FORMATS)]
            yield name, swapped, order, interpolation, dtype, layout


@pytest.mark.parametrize(
    ('name', 'swapped', 'order', 'interpolation', 'dtype', 'layout'), combinations()
)
def test_every_kind_of_image(context, name, swapped, order, interpolation, dtype, layout):
    random = np.random.default_rng(zlib.crc32(f'{name}{order}{layout}'.encode()))
    config = config_of(order, interpolation)
    spec = TensorSpec.of('t', (1, config.channels, 23, 31), dtype, layout, scale=0.02)
    with clean():
        for width, height, padding in ((64, 50, 0), (35, 71, 13), (12, 10, 1), (2, 1, 0)):
            view = random_view(random, name, swapped, width, height, padding)
            geometry = config.fit((view.width, view.height), (31, 23))
            assert_agrees(context, view, geometry, config, spec)


@st.composite
def cases(draw):
    name = draw(st.sampled_from(('bgr8', 'rgba16', 'bayer_grbg8', 'yuyv', 'nv12', 'mono8')))
    dtype, layout = draw(st.sampled_from(FORMATS[:3]))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    view = random_view(
        random, name, False, draw(st.integers(1, 90)), draw(st.integers(1, 90)),
        draw(st.integers(0, 9)),
    )
    x, y = draw(st.integers(0, view.width - 1)), draw(st.integers(0, view.height - 1))
    roi = Rect(
        x, y, draw(st.integers(1, view.width - x)), draw(st.integers(1, view.height - y))
    )
    size = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    mode = draw(st.sampled_from(('letterbox', 'stretch', 'crop')))
    padding = draw(st.sampled_from(('center', 'top_left')))
    config = config_of('rgb', draw(st.sampled_from(('linear', 'area'))), border_value=7)
    geometry = Geometry.fit((view.width, view.height), size, mode, padding=padding, roi=roi)
    spec = TensorSpec.of('t', (1, 3, size[1], size[0]), dtype, layout, scale=0.02)
    return view, geometry, config, spec, draw(st.integers(0, 70)), draw(st.booleans())


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_any_size_region_and_place(context, case):
    view, geometry, config, spec, offset, mapped = case
    with clean():
        assert_agrees(context, view, geometry, config, spec, offset=offset, mapped=mapped)


@pytest.mark.parametrize('interpolation', ['linear', 'area'])
@pytest.mark.parametrize('size', [(4096, 3072), (1, 1), (1, 500), (500, 1)])
def test_large_and_tiny(context, size, interpolation):
    random = np.random.default_rng(5)
    view = random_view(random, 'bgr8', False, *size)
    config = config_of('rgb', interpolation, resize='stretch')
    spec = TensorSpec.of('t', (1, 3, 120, 160), 'float16', 'chw16')
    geometry = config.fit(size, (160, 120))
    with clean():
        assert_agrees(context, view, geometry, config, spec)


# The reference against OpenCV, where both mean the same.


@pytest.mark.parametrize('size', [(640, 480), (333, 77), (50, 61), (94, 66), (188, 132)])
@pytest.mark.parametrize(
    ('interpolation', 'flag'), [('linear', cv2.INTER_LINEAR), ('area', cv2.INTER_AREA)]
)
def test_the_reference_resizes_as_opencv_does(size, interpolation, flag):
    random = np.random.default_rng(3)
    view = random_view(random, 'rgb8', False, *size)
    config = config_of(
        'rgb', interpolation, resize='stretch', scale=1.0, mean=[0.0], stddev=[1.0]
    )
    spec = TensorSpec.of('t', (1, 3, 33, 47), 'float32')
    found = preprocess_reference(view, config.fit(size, (47, 33)), config, spec)
    resized = cv2.resize(view.pixels, (47, 33), interpolation=flag).astype(np.float32)
    difference = np.abs(found - resized.transpose(2, 0, 1)[None])
    # OpenCV adds up areas in another order, and rounds halves to even unless it halves.
    assert difference.max() <= (interpolation == 'area') and (difference > 0).mean() < 0.04


def test_the_reference_without_resizing_is_the_color():
    random = np.random.default_rng(4)
    for name, swapped in KINDS:
        view = random_view(random, name, swapped, 24, 18, 3)
        config = config_of('bgr', resize='stretch', scale=1.0, mean=[0.0], stddev=[1.0])
        spec = TensorSpec.of('t', (1, 3, view.height, view.width), 'float32')
        size = view.width, view.height
        found = preprocess_reference(view, config.fit(size, size), config, spec)
        expected = convert_reference(view, 'bgr').transpose(2, 0, 1)[None]
        np.testing.assert_array_equal(found, expected, err_msg=name)
