from __future__ import annotations

from hypothesis import given, strategies as st
import numpy as np
import pytest

from dla_ros.image import ENCODINGS, find_encoding, ImageError, ImageView

SIZE = st.integers(1, 9)


@st.composite
def described_images(draw):
    """A valid image of any encoding: its encoding, size, step and bytes."""
    encoding = ENCODINGS[draw(st.sampled_from(list(ENCODINGS)))]
    width = draw(SIZE) * encoding.multiple[0]
    height = draw(SIZE) * encoding.multiple[1]
    step = encoding.row_bytes(width) + draw(st.integers(0, 17))
    data = draw(st.binary(min_size=1, max_size=1)) * int(step * height * encoding.rows)
    return encoding, width, height, step, data


def test_the_table_has_every_encoding_of_sensor_msgs():
    colors = [f'{order}{bits}' for order in ('rgb', 'rgba', 'bgr', 'bgra') for bits in (8, 16)]
    types = [
        f'{depth}C{channels}'
        for depth in ('8U', '8S', '16U', '16S', '32S', '32F', '64F') for channels in (1, 2, 3, 4)
    ]
    bayer = [f'bayer_{p}{b}' for p in ('rggb', 'bggr', 'gbrg', 'grbg') for b in (8, 16)]
    yuv = ['uyvy', 'yuv422', 'yuyv', 'yuv422_yuy2', 'nv12', 'nv21', 'nv24']
    assert set(ENCODINGS) == {*colors, 'mono8', 'mono16', *types, *bayer, *yuv}


def test_the_table_agrees_with_cv_bridge():
    bridge = pytest.importorskip('cv_bridge').CvBridge()
    for name, encoding in ENCODINGS.items():
        # This cv_bridge does not know yuv, and takes 16UC1 for 8 bits wide.
        if encoding.family in ('yuv422', 'semiplanar') or name.startswith('16UC'):
            continue
        dtype, channels = bridge.encoding_to_dtype_with_channels(name)
        assert (np.dtype(dtype), channels) == (encoding.dtype, encoding.channels), name


@given(described_images())
def test_a_view_is_not_a_copy(image):
    encoding, width, height, step, data = image
    buffer = bytearray(data)
    view = ImageView.of(buffer, width=width, height=height, encoding=encoding, step=step)
    before = view.pixels.copy()
    buffer[0] ^= 0xFF
    assert view.pixels.reshape(-1)[:1].tobytes() != before.reshape(-1)[:1].tobytes()
    assert view.pixels.shape == (height, width, encoding.channels)


@given(described_images(), st.integers(1, 400))
def test_missing_bytes_are_refused_with_both_sizes(image, missing):
    encoding, width, height, step, data = image
    padding = step - encoding.row_bytes(width)
    cut = data[: max(len(data) - padding - missing, 0)]
    with pytest.raises(ImageError) as caught:
        ImageView.of(cut, width=width, height=height, encoding=encoding, step=step)
    assert caught.value.kind in ('data', 'empty')
    if cut:
        assert str(len(cut)) in str(caught.value) and str(len(data)) in str(caught.value)


@given(described_images())
def test_the_padding_of_the_last_row_may_be_missing(image):
    encoding, width, height, step, data = image
    padding = step - encoding.row_bytes(width)
    short = data[: len(data) - padding]
    ImageView.of(short, width=width, height=height, encoding=encoding, step=step)


@pytest.mark.parametrize(
    ('change', 'kind', 'words'),
    [
        ({'width': 0}, 'size', ['0x2']),
        ({'height': 0}, 'size', ['4x0']),
        ({'width': 0, 'height': 0}, 'size', ['0x0']),
        ({'data': b''}, 'empty', ['4x2', 'bgr8']),
        ({'step': 0}, 'step', ['0 bytes', '12']),
        ({'step': 11}, 'step', ['11', '12']),
        ({'data': bytes(23)}, 'data', ['23', '24']),
        ({'height': 3}, 'data', ['24', '36']),
        ({'encoding': 'bgra8'}, 'step', ['12', '16']),
        ({'encoding': 'rbg8'}, 'encoding', ['rbg8', 'rgb8']),
        ({'encoding': ''}, 'encoding', ["''"]),
        ({'width': 3, 'encoding': 'yuyv'}, 'size', ['3x2', 'multiple of 2']),
        ({'height': 1, 'encoding': 'nv12'}, 'size', ['4x1']),
    ],
)
def test_a_contradiction_is_refused_with_its_numbers(change, kind, words):
    image = {
        'data': bytes(24), 'width': 4, 'height': 2, 'encoding': 'bgr8', 'step': 12, **change
    }
    with pytest.raises(ImageError) as caught:
        ImageView.of(image.pop('data'), **image)
    assert caught.value.kind == kind
    for word in words:
        assert word in str(caught.value)


def test_bytes_of_four_channels_labelled_bgr8_without_a_step():
    with pytest.raises(ImageError, match='step is 0 bytes.*960'):
        ImageView.of(bytes(320 * 320 * 4), width=320, height=320, encoding='bgr8', step=0)


@pytest.mark.parametrize('name', [n for n, e in ENCODINGS.items() if not e.has_color])
def test_what_says_nothing_about_color_is_a_view_but_no_picture(name):
    encoding = find_encoding(name)
    step = encoding.row_bytes(2)
    view = ImageView.of(bytes(2 * step), width=2, height=2, encoding=name, step=step)
    assert view.pixels.dtype == encoding.dtype
    with pytest.raises(ImageError, match=f'{name}.*input_encoding') as caught:
        view.require_color()
    assert caught.value.kind == 'color'


@given(
    st.sampled_from(['bgr8', 'rgba8', 'mono8', 'mono16', 'bgr16', 'bayer_rggb8']),
    SIZE, SIZE, st.integers(0, 3),
)
def test_from_array_takes_slices_and_transposed_arrays(name, width, height, margin):
    encoding = find_encoding(name)
    random = np.random.default_rng(width * 10 + height)
    shape = (height, width + margin, encoding.channels)
    array = random.integers(0, 256, shape).astype(encoding.dtype)
    for image in (array[:, :width], array[:, margin:], np.asfortranarray(array[:, :width])):
        given_array = image[..., 0] if encoding.channels == 1 else image
        view = ImageView.from_array(given_array, name)
        np.testing.assert_array_equal(view.pixels, image)


def test_from_array_refuses_another_type():
    with pytest.raises(ImageError, match=r'bgr8 needs uint8 with 3 channels.*\(2, 2, 4\)'):
        ImageView.from_array(np.zeros((2, 2, 4), np.uint8), 'bgr8')
    with pytest.raises(ImageError, match='float64'):
        ImageView.from_array(np.zeros((2, 2, 3)), 'bgr8')
    with pytest.raises(ImageError, match='must be positive'):
        ImageView.from_array(np.zeros((0, 2, 3), np.uint8), 'bgr8')
