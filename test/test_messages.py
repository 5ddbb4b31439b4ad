from __future__ import annotations

import numpy as np
import pytest
from std_msgs.msg import Header

from dla_ros.image import ImageError
from dla_ros.messages import detection_rows, detections_message, image_view
from dla_ros.parameters import TRANSPORT_NAMES
from dla_ros.predictions import Detections
from dla_ros.topics import SOURCES
from test.ros import message


def test_every_transport_is_a_choice_of_the_parameter():
    assert tuple(SOURCES) == (*TRANSPORT_NAMES, 'tensors')


def test_an_image_message_is_viewed_without_a_copy():
    image = message(np.arange(24, dtype=np.uint8).reshape(2, 4, 3), step=20)
    view = image_view(image)
    image.data[0] = 99
    assert view.pixels[0, 0, 0] == 99 and view.step == 20
    assert view.pixels[1, 3].tolist() == [21, 22, 23]


def test_big_endian_and_overridden_encodings():
    image = message(np.array([[1, 256]], '>u2'), 'mono16')
    image.is_bigendian = 1
    assert image_view(image).pixels[0, :, 0].tolist() == [1, 256]
    assert image_view(image, 'mono8').encoding.name == 'mono8'
    image.encoding = 'what'
    with pytest.raises(ImageError, match="'what'"):
        image_view(image)


def test_detections_there_and_back():
    detections = Detections(
        np.array([[10.25, 20.5, 30.75, 60], [0, 0, 1, 1]], np.float32),
        np.array([0.75, 0.5], np.float32), np.array([1, 0], np.int32),
    )
    header = Header(frame_id='eye')
    made = detections_message(detections, header, ('cat', 'dog'))
    assert detection_rows(made) == [
        ('dog', 0.75, [10.25, 20.5, 30.75, 60.0]), ('cat', 0.5, [0.0, 0.0, 1.0, 1.0])
    ]
    assert made.detections[0].bbox.center.position.x == 20.5
    assert made.detections[0].bbox.size_y == 39.5
    assert made.header == header and made.detections[1].header == header
