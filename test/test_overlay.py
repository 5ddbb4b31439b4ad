from __future__ import annotations

from hypothesis import given, strategies as st
import numpy as np
import pytest

from dla_ros.overlay import contact_sheet, draw, draw_mask, draw_prediction, label_color
from dla_ros.predictions import Classification, Detections, VOID


def test_a_box_is_drawn_where_it_is_and_the_image_is_left_alone():
    image = np.full((200, 300, 3), 60, np.uint8)
    picture = draw(image, [('person', 0.9, (100.0, 80.0, 200.0, 160.0))])
    assert (image == 60).all() and picture.shape == image.shape
    color = np.array(label_color('person'))
    for y, x in ((120, 100), (120, 200), (160, 150)):
        assert np.abs(picture[y, x].astype(int) - color).max() < 60
    assert (picture[115:140, 110:190] == 60).all()
    assert (picture[60:79, 105:125] != 60).any()


@pytest.mark.parametrize('box', [(0, 0, 20, 20), (0, 0, 1, 1), (19, 29, 20, 30), (-9, -9, 99, 99)])
def test_labels_stay_in_small_images(box):
    assert draw(np.zeros((30, 20, 3), np.uint8), [('diningtable', 1.0, box)]).any()


def test_labels_have_their_own_colors():
    labels = ('person', 'car', 'truck', 'cat', 'dog', 'cup')
    assert len({label_color(label) for label in labels}) == len(labels)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=9))
def test_a_sheet_has_room_for_all(sizes):
    images = [np.full((h, w, 3), 200, np.uint8) for h, w in sizes]
    sheet = contact_sheet(images, columns=3, height=20)
    rows = -(-len(sizes) // 3)
    assert sheet.shape[0] == rows * 20 + (rows - 1) * 6
    widths = sum(max(1, round(w * 20 / h)) for h, w in sizes)
    assert (sheet == 200).all(2).sum() == 20 * widths


def test_a_mask_tints_all_but_the_background():
    image = np.full((90, 120, 3), 100, np.uint8)
    classes = np.zeros((30, 40), np.uint8)
    classes[10:, 20:], classes[:, :5] = 2, VOID
    drawn = draw_mask(image, classes, ('background', 'cat', 'dog'))
    assert (image == 100).all() and drawn.shape == image.shape
    tint = 0.55 * np.array(label_color('dog')) + 45
    assert np.abs(drawn[40, 80] - tint).max() < 2
    assert (drawn[80, 30] == 100).all() and (drawn[80, 5] == 45).all()
    assert (drawn[:15, 20:40] != 100).any()  # The legend.


def test_keypoints_are_drawn_where_they_score():
    image = np.zeros((100, 100, 3), np.uint8)
    detections = Detections(
        np.array([[5, 30, 95, 95]], np.float32), np.array([0.9], np.float32),
        np.zeros(1, np.int32),
        np.array([[[50, 60, 0.9], [70, 60, 0.1], [np.nan, 3, 0.9]]], np.float32),
    )
    drawn = draw_prediction(image, detections, ['face'])
    assert drawn[60, 50].any() and not drawn[60, 70].any()


def test_classes_are_listed():
    found = Classification(np.array([0.8, 0.1], np.float32), np.array([1, 0], np.int32))
    drawn = draw_prediction(np.zeros((200, 300, 3), np.uint8), found, ['cat', 'dog'])
    assert (drawn[3, 2] == label_color('dog')).all()
