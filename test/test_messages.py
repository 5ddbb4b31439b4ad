from __future__ import annotations

import numpy as np
import pytest
from std_msgs.msg import Header

from dla_ros import messages
from dla_ros.image import ImageError
from dla_ros.messages import (
    detection_rows,
    detections_message,
    image_message,
    image_view,
    label_info_message,
    tensor,
    tensor_list_message,
)
from dla_ros.predictions import Detections
from test.ros import message


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


@pytest.mark.parametrize('shape', [(1, 1), (3, 5), (7, 9, 3)])
@pytest.mark.parametrize('dtype', [np.uint8, np.float32])
def test_images_go_out_as_they_come_in(shape, dtype):
    if len(shape) == 3 and dtype is np.float32:
        return
    pixels = np.random.default_rng(1).integers(0, 255, shape).astype(dtype)
    header = Header(frame_id='camera')
    made = image_message(pixels[::-1], header)  # Not contiguous.
    assert made.header == header and made.step * made.height == len(made.data)
    read = np.frombuffer(made.data, dtype).reshape(shape)
    np.testing.assert_array_equal(read, pixels[::-1])


SHAPE = (1, 3, 2, 4)


def tensors(**changes):
    values = np.arange(24, dtype=np.float32).reshape(SHAPE)
    made = tensor_list_message({'images': values}, Header())
    for name, value in changes.items():
        setattr(made.tensors[0], name, value)
    return made


def test_a_tensor_comes_in_as_it_went_out():
    values = tensor(tensors(), 'images', SHAPE)
    np.testing.assert_array_equal(values.reshape(-1), np.arange(24))
    assert tensor(tensors(), 'another_name', SHAPE).shape == SHAPE  # The only one.
    assert tensor(tensors(strides=[]), 'images', SHAPE).shape == SHAPE


@pytest.mark.parametrize(
    ('made', 'words'),
    [
        (tensors(data_type=5), r"'images' is of type 5 and shape .* float32 \(type 9\)"),
        (tensors(strides=[1, 2, 3, 4]), r'strides \(1, 2, 3, 4\), not \(96, 32, 16, 4\)'),
        (tensors(data=b'123'), '3 bytes of data, but its shape takes 96'),
        (tensor_list_message({}, Header()), "no tensor 'images'; it has none"),
        (tensor_list_message({n: np.zeros(SHAPE, np.float32) for n in 'ab'}, Header()),
         "no tensor 'images'; it has 'a', 'b'"),
        (tensor_list_message({'images': np.zeros((1, 3), np.float32)}, Header()),
         r'shape \(1, 3\), but the network takes .* \(1, 3, 2, 4\)'),
    ],
)
def test_tensors_that_do_not_fit_are_refused_with_both_sides(made, words):
    with pytest.raises(ImageError, match=words) as caught:
        tensor(made, 'images', SHAPE)
    assert caught.value.kind == 'tensor'


def test_label_info_falls_back_to_vision_info(monkeypatch):
    made = label_info_message('net', ('a', 'b'), 0.5, Header())
    assert [(c.class_id, c.class_name) for c in made.class_map] == [(0, 'a'), (1, 'b')]
    monkeypatch.setattr(messages, 'LABEL_INFO', None)
    assert label_info_message('net', ('a', 'b'), 0.5, Header()).method == 'net'
