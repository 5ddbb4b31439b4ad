from __future__ import annotations

from hypothesis import given, strategies as st
import numpy as np
import pytest

from dla_ros.geometry import Geometry, Rect, RESIZE_MODES

LENGTH = st.integers(1, 5000)
SIZE = st.tuples(LENGTH, LENGTH)


@st.composite
def fitted(draw):
    width, height = draw(SIZE)
    x, y = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
    roi = Rect(x, y, draw(st.integers(0, width - x)), draw(st.integers(0, height - y)))
    return Geometry.fit(
        (width, height), draw(SIZE), draw(st.sampled_from(RESIZE_MODES)),
        padding=draw(st.sampled_from(['center', 'top_left'])), roi=roi,
    ), roi


@given(fitted(), st.lists(st.tuples(*[st.floats(0, 1)] * 4), min_size=1, max_size=5))
def test_the_way_back_is_exact(fit, fractions):
    geometry, _ = fit
    boxes = np.array(fractions) * (geometry.image_size * 2)
    there = geometry.to_network(boxes)
    assert there.shape == boxes.shape
    np.testing.assert_allclose(geometry.to_image(there), boxes, atol=1e-6)


@given(fitted())
def test_source_lies_in_the_image_and_target_in_the_network(fit):
    geometry, roi = fit
    for rect, (width, height) in (
        (geometry.source, geometry.image_size), (geometry.target, geometry.network_size),
    ):
        assert rect.x >= 0 and rect.y >= 0 and rect.width >= 1 and rect.height >= 1
        assert rect.x + rect.width <= width and rect.y + rect.height <= height
    assert geometry.source.x >= roi.x and geometry.source.y >= roi.y


@given(fitted())
def test_the_corners_of_source_are_the_corners_of_target(fit):
    geometry, _ = fit
    s, t = geometry.source, geometry.target
    np.testing.assert_allclose(
        geometry.to_network([s.x, s.y, s.x + s.width, s.y + s.height]),
        [t.x, t.y, t.x + t.width, t.y + t.height], atol=1e-6,
    )


@given(SIZE, SIZE, st.sampled_from(['center', 'top_left']))
def test_letterbox_fills_one_side_and_keeps_the_ratio_within_a_pixel(image, network, padding):
    geometry = Geometry.fit(image, network, 'letterbox', padding=padding)
    target = geometry.target
    assert geometry.source == (0, 0, *image)
    assert target.width == network[0] or target.height == network[1]
    ratio = min(network[0] / image[0], network[1] / image[1])
    assert abs(target.width - max(image[0] * ratio, 1)) <= 1
    assert abs(target.height - max(image[1] * ratio, 1)) <= 1
    if padding == 'top_left':
        assert (target.x, target.y) == (0, 0)
    else:
        assert abs(2 * target.x + target.width - network[0]) <= 1
        assert abs(2 * target.y + target.height - network[1]) <= 1


@given(SIZE, SIZE)
def test_crop_fills_the_network_and_uses_all_of_one_side(image, network):
    geometry = Geometry.fit(image, network, 'crop')
    assert geometry.target == (0, 0, *network)
    assert geometry.source.width == image[0] or geometry.source.height == image[1]


@given(SIZE, SIZE)
def test_stretch_maps_all_to_all(image, network):
    geometry = Geometry.fit(image, network, 'stretch')
    assert geometry.source == (0, 0, *image) and geometry.target == (0, 0, *network)


def test_known_letterbox():
    # YOLOX: 1280x720 into 416x416 is 416x234 at the top left.
    geometry = Geometry.fit((1280, 720), (416, 416), 'letterbox', padding='top_left')
    assert geometry.target == (0, 0, 416, 234)
    np.testing.assert_allclose(geometry.to_image([208, 117]), [640, 360])
    geometry = Geometry.fit((1280, 720), (416, 416), 'letterbox')
    assert geometry.target == (0, 91, 416, 234)


def test_a_region_of_interest_gives_boxes_of_the_whole_image():
    geometry = Geometry.fit((640, 480), (100, 100), 'stretch', roi=Rect(320, 240, 200, 100))
    np.testing.assert_allclose(geometry.to_image([0, 0, 100, 100]), [320, 240, 520, 340])


@pytest.mark.parametrize(
    'roi', [Rect(0, 0, 641, 480), Rect(640, 0, 0, 0), Rect(600, 0, 100, 0), Rect(0, -1, 0, 0)]
)
def test_a_region_outside_the_image_is_refused(roi):
    with pytest.raises(ValueError, match='640x480'):
        Geometry.fit((640, 480), (100, 100), 'letterbox', roi=roi)


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="'squash'.*letterbox, stretch, crop"):
        Geometry.fit((1, 1), (1, 1), 'squash')
