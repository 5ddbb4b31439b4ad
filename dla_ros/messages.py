"""ROS messages to plain types and back: the only place that knows message fields."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import Float32MultiArray, Header, MultiArrayDimension
import vision_msgs.msg
from vision_msgs.msg import (
    Classification as ClassificationMessage,
    Detection2D,
    Detection2DArray,
    ObjectHypothesis,
    ObjectHypothesisWithPose,
)

from dla_ros.image import ImageError, ImageView
from dla_ros.predictions import Classification, Detections

try:
    from isaac_ros_tensor_list_interfaces.msg import (
        Tensor,
        TensorList as TensorList,
        TensorShape,
    )
except ImportError:  # A robot without Isaac ROS.
    TensorList = None

FLOAT32 = 9
"""TensorList's code of float32."""
LABEL_INFO = getattr(vision_msgs.msg, 'LabelInfo', None)
"""vision_msgs/LabelInfo, which older releases of vision_msgs do not have."""


def image_view(message: Image, encoding: str = '') -> ImageView:
    """Return a view of an image message, without a copy.

    Parameters
    ----------
    message:
        sensor_msgs/Image.
    encoding:
        Overrides the message's encoding unless empty.

    Raises
    ------
    ImageError
        If the message contradicts itself or cannot be used.

    """
    return ImageView.of(
        message.data,
        width=message.width,
        height=message.height,
        encoding=encoding or message.encoding,
        step=message.step,
        big_endian=bool(message.is_bigendian),
    )


def compressed_image_view(message: CompressedImage) -> ImageView:
    """Return a compressed image decoded to bgr8.

    Raises
    ------
    ImageError
        If it is no picture that OpenCV can read.

    """
    return ImageView.from_encoded(message.data)


def tensor(message: TensorList, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Return the tensor of a name, or the only one, as float32 of the network's input's shape.

    Parameters
    ----------
    message:
        isaac_ros_tensor_list_interfaces/TensorList.
    name, shape:
        Those of the network's input.

    Raises
    ------
    ImageError
        If there is none, or it is not float32, dense and of that shape.

    """
    fitting = [item for item in message.tensors if item.name == name] or message.tensors
    if len(fitting) != 1:
        have = ', '.join(repr(item.name) for item in message.tensors) or 'none'
        raise ImageError('tensor', f'the list has no tensor {name!r}; it has {have}')
    (item,) = fitting
    dims = tuple(item.shape.dims)
    if item.data_type != FLOAT32 or dims != shape:
        raise ImageError(
            'tensor', f'tensor {item.name!r} is of type {item.data_type} and shape {dims}, but '
            f'the network takes float32 (type {FLOAT32}) of {shape}'
        )
    strides = tuple(item.strides)
    if strides and strides != dense_strides(shape):
        raise ImageError(
            'tensor', f'tensor {item.name!r} has strides {strides}, not {dense_strides(shape)}'
        )
    if len(item.data) != 4 * math.prod(shape):
        raise ImageError(
            'tensor', f'tensor {item.name!r} has {len(item.data)} bytes of data, but its shape '
            f'takes {4 * math.prod(shape)}'
        )
    return np.frombuffer(item.data, '<f4').reshape(shape)


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the bytes from one element to the next along each axis of a dense float32 tensor."""
    return tuple(4 * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def detections_message(
    detections: Detections, header: Header, labels: Sequence[str]
) -> Detection2DArray:
    """Return detections as a message; it and each detection carry the image's header as it is."""
    message = Detection2DArray(header=header)
    for (left, top, right, bottom), score, class_id in detections.rows():
        result = ObjectHypothesisWithPose()
        result.hypothesis.class_id = labels[class_id]
        result.hypothesis.score = score
        detection = Detection2D(header=header, results=[result])
        detection.bbox.center.position.x = (left + right) / 2
        detection.bbox.center.position.y = (top + bottom) / 2
        detection.bbox.size_x = right - left
        detection.bbox.size_y = bottom - top
        message.detections.append(detection)
    return message


def detection_rows(message: Any) -> list[tuple[str, float, list[float]]]:
    """Return a Detection2DArray as (label, score, [left, top, right, bottom]) rows."""
    rows = []
    for detection in message.detections:
        center, box = detection.bbox.center.position, detection.bbox
        best = max(detection.results, key=lambda result: result.hypothesis.score).hypothesis
        rows.append((
            best.class_id,
            best.score,
            [
                center.x - box.size_x / 2, center.y - box.size_y / 2,
                center.x + box.size_x / 2, center.y + box.size_y / 2,
            ],
        ))
    return rows


def classification_message(
    classification: Classification, header: Header, labels: Sequence[str]
) -> ClassificationMessage:
    """Return a classification as a message with the image's header."""
    return ClassificationMessage(
        header=header,
        results=[
            ObjectHypothesis(class_id=labels[class_id], score=score)
            for class_id, score in zip(
                classification.class_id.tolist(), classification.score.tolist(), strict=True
            )
        ],
    )


_ENCODINGS = {('uint8', 2): 'mono8', ('float32', 2): '32FC1', ('uint8', 3): 'bgr8'}


def image_message(pixels: npt.NDArray[Any], header: Header) -> Image:
    """Return an image message without padding.

    Parameters
    ----------
    pixels:
        uint8 [h, w] (mono8), float32 [h, w] (32FC1) or uint8 [h, w, 3] (bgr8).
    header:
        That of the image it was made from.

    """
    height, width = pixels.shape[:2]
    # An array of bytes is taken as it is; anything else is checked byte by byte.
    return Image(
        header=header, height=height, width=width,
        encoding=_ENCODINGS[pixels.dtype.name, pixels.ndim], is_bigendian=0,
        step=pixels[0].nbytes, data=array('B', np.ascontiguousarray(pixels).tobytes()),
    )


def jpeg_message(pixels: npt.NDArray[np.uint8], header: Header) -> CompressedImage:
    """Return a BGR image [h, w, 3] as a compressed image message."""
    import cv2

    data = cv2.imencode('.jpg', pixels)[1].tobytes()
    return CompressedImage(
        header=header, format='bgr8; jpeg compressed bgr8', data=array('B', data)
    )


def tensor_list_message(
    tensors: Mapping[str, npt.NDArray[np.float32]], header: Header
) -> TensorList:
    """Return tensors as an isaac_ros_tensor_list_interfaces/TensorList of float32."""
    return TensorList(
        header=header,
        tensors=[
            Tensor(
                name=name,
                shape=TensorShape(rank=values.ndim, dims=array('I', values.shape)),
                data_type=FLOAT32,
                strides=array('Q', dense_strides(values.shape)),
                data=array('B', np.ascontiguousarray(values, '<f4').tobytes()),
            )
            for name, values in tensors.items()
        ],
    )


def multi_array_message(values: npt.NDArray[np.float32]) -> Float32MultiArray:
    """Return a tensor [n, c, h, w] as std_msgs/Float32MultiArray with named dimensions."""
    message = Float32MultiArray(data=array('f', np.ascontiguousarray(values).tobytes()))
    for axis, label in enumerate(('batch', 'channel', 'row', 'column')):
        message.layout.dim.append(MultiArrayDimension(
            label=label, size=values.shape[axis], stride=math.prod(values.shape[axis:]),
        ))
    return message


def label_info_message(name: str, labels: Sequence[str], confidence: float, header: Header) -> Any:
    """Return vision_msgs/LabelInfo with the labels, or VisionInfo with the model's name."""
    if LABEL_INFO is None:
        return vision_msgs.msg.VisionInfo(header=header, method=name, database_location=name)
    names = [
        vision_msgs.msg.VisionClass(class_id=i, class_name=label)
        for i, label in enumerate(labels)
    ]
    return LABEL_INFO(header=header, class_map=names, threshold=confidence)
