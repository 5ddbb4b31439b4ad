from __future__ import annotations

import numpy as np

from dla_ros.decoders.base import finish, Thresholds
from dla_ros.decoders.heads import Candidates
from dla_ros.geometry import Geometry, Rect


def candidates(scores, class_ids):
    n = len(scores)
    zero = np.zeros(n, np.int32)
    return Candidates(
        zero, zero, zero, zero, np.array(class_ids, np.int32), np.array(scores, np.float32),
        np.zeros((n, 4), np.float32),
    )


IDENTITY = Geometry.fit((100, 80), (100, 80), 'stretch')


def run(boxes, scores, classes, geometry=IDENTITY, **thresholds):
    return finish(
        np.array(boxes, np.float32).reshape(-1, 4), candidates(scores, classes), geometry,
        Thresholds(**thresholds),
    )


def test_nms_keeps_the_best_of_a_class_and_the_other_classes():
    boxes = [[10, 10, 50, 50], [11, 10, 51, 50], [12, 10, 52, 50], [60, 10, 90, 50]]
    found = run(boxes, [0.6, 0.9, 0.8, 0.5], [0, 0, 1, 0])
    np.testing.assert_allclose(found.score, [0.9, 0.8, 0.5])
    np.testing.assert_array_equal(found.class_id, [0, 1, 0])
    np.testing.assert_allclose(found.xyxy[0], [11, 10, 51, 50])


def test_the_nms_threshold_is_an_iou():
    boxes = [[0, 0, 30, 30], [10, 0, 40, 30]]  # IoU 0.5
    assert len(run(boxes, [0.9, 0.8], [0, 0], nms=0.51)) == 2
    assert len(run(boxes, [0.9, 0.8], [0, 0], nms=0.49)) == 1


def test_the_best_remain_when_there_are_too_many():
    boxes = [[10 * i, 0, 10 * i + 5, 5] for i in range(10)]
    found = run(boxes, np.linspace(0.4, 0.9, 10), range(10), max_detections=3)
    np.testing.assert_allclose(found.score, np.linspace(0.4, 0.9, 10)[:-4:-1], rtol=1e-6)


def test_only_the_wanted_classes():
    boxes = [[0, 0, 9, 9], [20, 0, 29, 9], [40, 0, 49, 9]]
    found = run(boxes, [0.9, 0.8, 0.7], [0, 1, 2], class_ids=frozenset({0, 2}))
    np.testing.assert_array_equal(found.class_id, [0, 2])


def test_a_filtered_class_does_not_suppress_another():
    boxes = [[0, 0, 9, 9], [0, 0, 9, 9]]
    assert len(run(boxes, [0.9, 0.8], [0, 1], class_ids=frozenset({1}))) == 1


def test_boxes_are_clipped_to_the_image_and_left_out_beyond_it():
    boxes = [[-5, -5, 50, 50], [50, 50, 200, 200], [101, 0, 120, 50], [5, -9, 9, 0]]
    found = run(boxes, [0.9, 0.8, 0.7, 0.6], [0, 1, 2, 3])
    np.testing.assert_allclose(found.xyxy, [[0, 0, 50, 50], [50, 50, 100, 80]])


def test_boxes_in_a_region_of_interest_are_those_of_the_image():
    geometry = Geometry.fit((100, 80), (20, 20), 'stretch', roi=Rect(40, 20, 40, 40))
    np.testing.assert_allclose(
        run([[0, 0, 10, 20]], [0.9], [0], geometry).xyxy, [[40, 20, 60, 60]]
    )


def test_boxes_that_are_not_finite_or_empty_are_left_out():
    boxes = [[0, 0, np.inf, 5], [np.nan, 0, 5, 5], [5, 5, 5, 9], [9, 9, 5, 5], [1, 1, 5, 5]]
    assert len(run(boxes, [0.9] * 5, range(5))) == 1


def test_nothing_found_is_an_empty_result():
    found = run([], [], [])
    assert len(found) == 0 and found.xyxy.shape == (0, 4) and found.xyxy.dtype == np.float32
