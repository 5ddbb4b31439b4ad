from __future__ import annotations

import cv2
from hypothesis import given, strategies as st
import numpy as np
import pytest

from dla_ros.color import color_channels, COLOR_ORDERS, convert_reference
from dla_ros.image import ENCODINGS, ImageError, ImageView
from test.conftest import picture, PICTURES

COLORED = [name for name, encoding in ENCODINGS.items() if encoding.has_color]
BAYER = [name for name, encoding in ENCODINGS.items() if encoding.family == 'bayer']


def random_view(name, width, height, padding=0, big_endian=False, seed=0):
    encoding = ENCODINGS[name]
    width, height = width * encoding.multiple[0], height * encoding.multiple[1]
    step = encoding.row_bytes(width) + padding
    data = np.random.default_rng(seed).integers(0, 256, int(step * height * encoding.rows))
    return ImageView.of(
        data.astype(np.uint8), width=width, height=height, encoding=name, step=step,
        big_endian=big_endian,
    )


def as_order(image, letters, order):
    """Pick the channels of `order` from an image with the channels `letters`."""
    if letters == 'y':
        return image if order == 'mono' else np.repeat(image, 3, axis=2)
    rgb = image[..., [letters.index(letter) for letter in 'rgb']]
    if order == 'mono':
        gray = cv2.cvtColor(np.ascontiguousarray(rgb), cv2.COLOR_RGB2GRAY)
        return np.asarray(gray).reshape(*rgb.shape[:2], 1)
    return rgb if order == 'rgb' else rgb[..., ::-1]


@pytest.mark.parametrize('name', COLORED)
@given(
    st.integers(1, 12), st.integers(1, 12), st.integers(0, 5), st.booleans(),
    st.sampled_from(COLOR_ORDERS), st.integers(0, 1000),
)
def test_the_fast_conversion_is_the_reference(
    name, width, height, padding, big_endian, order, seed
):
    view = random_view(name, width, height, padding * 2, big_endian, seed)
    expected = convert_reference(view, order)
    assert expected.dtype == np.uint8
    assert expected.shape == (view.height, view.width, 1 if order == 'mono' else 3)
    channels, letters = color_channels(view)
    np.testing.assert_array_equal(as_order(channels, letters, order), expected)


@pytest.mark.parametrize('name', COLORED)
def test_padding_and_byte_order_do_not_change_the_picture(name):
    packed = random_view(name, 7, 6)
    item = packed.encoding.dtype.itemsize
    rows = packed.data.reshape(int(packed.height * packed.encoding.rows), packed.step)
    if name == 'nv24':  # Its chroma rows take two steps each.
        luma, chroma = rows[: packed.height], rows[packed.height :].reshape(packed.height, -1)
        padded = np.concatenate([
            np.pad(luma, ((0, 0), (0, 5))).reshape(-1),
            np.pad(chroma, ((0, 0), (0, 10))).reshape(-1),
        ])
        step = packed.step + 5
    else:
        step = packed.step + 6
        padded = np.pad(rows, ((0, 0), (0, 6)), constant_values=99).reshape(-1)
    swapped = padded.reshape(-1, item)[:, ::-1].reshape(-1)
    view = ImageView.of(
        np.ascontiguousarray(swapped), width=packed.width, height=packed.height, encoding=name,
        step=step, big_endian=item > 1,
    )
    for order in COLOR_ORDERS:
        np.testing.assert_array_equal(
            convert_reference(view, order), convert_reference(packed, order)
        )


@pytest.mark.parametrize('name', PICTURES)
@pytest.mark.parametrize('encoding', BAYER)
def test_bayer_renderings_of_pictures_against_opencv(name, encoding):
    image = picture(name)
    pattern, bits = encoding[6:10], int(encoding[10:])
    mosaic = np.empty(image.shape[:2], np.uint8)
    for site in range(4):
        y, x = divmod(site, 2)
        mosaic[y::2, x::2] = image[y::2, x::2, 'bgr'.index(pattern[site])]
    raw = mosaic if bits == 8 else mosaic.astype(np.uint16) * 257
    view = ImageView.from_array(raw, encoding)
    expected = cv2.cvtColor(raw, getattr(cv2, f'COLOR_Bayer{pattern.upper()}2BGR'))
    if bits == 16:
        expected = np.rint(expected / 257).astype(np.uint8)
    np.testing.assert_array_equal(convert_reference(view, 'bgr'), expected)
    # Demosaicing gives the picture back, but for its finest detail.
    error = np.abs(expected.astype(int) - image.astype(int)).mean()
    assert error < 9, error


@pytest.mark.parametrize(
    # This cv_bridge has neither bayer_grbg8 nor mono16 to 8 bits in its table.
    'encoding', ['mono8', 'bgr8', 'rgb8', 'bgra8', 'bayer_rggb8', 'bayer_bggr8', 'bayer_gbrg8']
)
@pytest.mark.parametrize('name', PICTURES[:3])
def test_renderings_of_pictures_against_cv_bridge(name, encoding):
    cv_bridge = pytest.importorskip('cv_bridge')
    messages = pytest.importorskip('sensor_msgs.msg')
    image = picture(name)
    rendered = {
        'mono8': lambda: cv2.cvtColor(image, cv2.COLOR_BGR2GRAY),
        'bgr8': lambda: image,
        'rgb8': lambda: np.ascontiguousarray(image[..., ::-1]),
        'bgra8': lambda: cv2.cvtColor(image, cv2.COLOR_BGR2BGRA),
    }.get(encoding, lambda: np.ascontiguousarray(image[..., 1]))()
    message = messages.Image(
        height=image.shape[0], width=image.shape[1], encoding=encoding, step=rendered.strides[0],
        data=rendered.tobytes(),
    )
    expected = cv_bridge.CvBridge().imgmsg_to_cv2(message, 'bgr8')
    view = ImageView.from_array(rendered, encoding)
    np.testing.assert_array_equal(convert_reference(view, 'bgr'), expected)


def test_big_endian_samples_are_swapped_before_they_are_scaled():
    values = np.array([[0, 1000, 32768, 65535]], '>u2')
    view = ImageView.of(
        values.tobytes(), width=4, height=1, encoding='mono16', step=8, big_endian=True
    )
    assert convert_reference(view, 'rgb')[0, :, 0].tolist() == [0, 4, 128, 255]


def test_both_names_of_a_yuv_packing_mean_the_same():
    for old, new in (('yuv422', 'uyvy'), ('yuv422_yuy2', 'yuyv')):
        np.testing.assert_array_equal(
            convert_reference(random_view(old, 5, 3), 'rgb'),
            convert_reference(random_view(new, 5, 3), 'rgb'),
        )
    assert (
        convert_reference(random_view('uyvy', 5, 3), 'rgb')
        != convert_reference(random_view('yuyv', 5, 3), 'rgb')
    ).any()


def test_known_yuv_colors():
    # BT.601: black, white, and red at full saturation.
    for y, u, v, rgb in ((16, 128, 128, 0), (235, 128, 128, 255), (82, 90, 240, (255, 1, 0))):
        view = ImageView.of(
            bytes([u, y, v, y]), width=2, height=1, encoding='uyvy', step=4
        )
        expected = np.broadcast_to(np.array(rgb), 3)
        assert np.abs(convert_reference(view, 'rgb')[0, 0].astype(int) - expected).max() <= 2


def test_no_color_no_conversion():
    view = ImageView.of(bytes(16), width=2, height=2, encoding='32FC1', step=8)
    for convert in (color_channels, lambda v: convert_reference(v, 'rgb')):
        with pytest.raises(ImageError, match='32FC1'):
            convert(view)
