"""The node's answers and parameters, one process for each model, over real DDS."""

from __future__ import annotations

import numpy as np
import pytest

from dla_ros.messages import detection_rows as rows
from dla_ros.parameters import PARAMETERS
from test.conftest import assert_same, MODELS, picture, PICTURES
from test.ros import description, message, running


@pytest.fixture(scope='module', params=MODELS)
def detector(request, tmp_path_factory):
    log = tmp_path_factory.mktemp('node') / 'node.log'
    with running(log, description(model=request.param)) as (process, client):
        client.wait_for_node()
        yield request.param, process, client


def renderings(image):
    alpha = np.full((*image.shape[:2], 1), 200, np.uint8)
    width = image.shape[1]
    yield 'bgr8', message(image)
    yield 'rgb8', message(image[..., ::-1], 'rgb8')
    yield 'bgra8', message(np.concatenate([image, alpha], 2), 'bgra8')
    yield 'padded', message(image, step=3 * width + 29)


# Right answers


@pytest.mark.parametrize('name', PICTURES)
def test_golden_detections_through_dds(detector, golden, name):
    model, _, client = detector
    for rendering, image in renderings(picture(name)):
        found = client.detect(image)
        assert_same(rows(found), golden[model][name])
        assert found.header == image.header, rendering


def test_the_header_is_copied_unchanged(detector):
    _, _, client = detector
    image = picture('coral_grace_hopper.bmp')
    headers = ((0, 0), ''), ((2**31 - 1, 999_999_999), 'a/b c'), ((5, 1), 'x' * 300)
    for stamp, frame_id in headers:
        found = client.detect(message(image, stamp=stamp, frame_id=frame_id))
        assert len(found.detections) == 2
        for header in (found.header, *(d.header for d in found.detections)):
            assert (header.stamp.sec, header.stamp.nanosec) == stamp
            assert header.frame_id == frame_id


def test_messages_follow_the_conventions(detector):
    _, _, client = detector
    image = picture('coral_grace_hopper.bmp')
    for detection in client.detect(message(image)).detections:
        (result,) = detection.results
        assert result.hypothesis.class_id in ('person', 'tie') and 0 < result.hypothesis.score <= 1
        assert detection.id == '' and detection.bbox.center.theta == 0
    for _, _, (left, top, right, bottom) in rows(client.received[-1]):
        assert 0 <= left < right <= image.shape[1] and 0 <= top < bottom <= image.shape[0]


def test_nothing_found_is_an_empty_array(detector):
    _, _, client = detector
    for image in (picture('coral_sunflower.bmp'), np.zeros((48, 64, 3), np.uint8)):
        found = client.detect(message(image))
        assert not found.detections and found.header.frame_id == 'camera'


def test_stamps_may_jump_back(detector):
    _, _, client = detector
    image = picture('coral_cat.bmp')
    for second in (100, 50, 101, 0):
        assert client.detect(message(image, stamp=(second, 0))).header.stamp.sec == second



@pytest.mark.parametrize(
    ('change', 'words'),
    [
        ({'confidence_threshold': 1.5}, 'confidence_threshold out of range'),
        ({'confidence_threshold': 'high'}, "confidence_threshold must be of type double"),
        ({'nms_threshold': -1}, 'nms_threshold must be 0 to 1, got -1'),
        ({'max_detections': 0}, 'max_detections out of range'),
        ({'class_filter': ['persn']}, "no label 'persn'; it has, for example, 'person'"),
        ({'model': 'yolox_nano'}, 'model cannot change while the node is configured'),
        ({'depth': 3}, 'depth cannot change while'),
    ],
)
def test_a_wrong_change_is_refused_in_a_sentence(detector, change, words):
    model, _, client = detector
    if change.get('model') == model:
        change = {'model': 'yolo_fastest'}
    (result,) = client.set(**change)
    assert not result.successful and words in result.reason


def test_parameters_describe_themselves(detector):
    _, _, client = detector
    names = [parameter.name for parameter in PARAMETERS]
    for parameter, found in zip(PARAMETERS, client.describe(*names), strict=True):
        assert found.description.startswith(parameter.description)
        assert found.additional_constraints == parameter.constraints
    (threshold,) = client.describe('confidence_threshold')
    assert threshold.floating_point_range[0].to_value == 1.0
