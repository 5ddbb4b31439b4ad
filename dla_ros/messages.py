"""ROS messages to plain types and back: the only place that knows message fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import Header
from vision_msgs.msg import Detection2D, Detection2DArray, ObjectHypothesisWithPose

from dla_ros.detections import Detections
from dla_ros.image import ImageView


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


def compressed_image_view(message: CompressedImage, encoding: str = '') -> ImageView:
    """Return a compressed image decoded to bgr8; `encoding` is for images that are not.

    Raises
    ------
    ImageError
        If it is no picture that OpenCV can read.

    """
    return ImageView.from_encoded(message.data)


@dataclass(frozen=True)
class Transport:
    """One row of the table of ways that images come in.

    Attributes
    ----------
    type:
        The message type.
    suffix:
        What is added to the image topic's name, as image_transport does.
    view:
        Returns a message as an ImageView, given an overriding encoding or ''; may raise
        ImageError.

    """

    type: Any
    suffix: str
    view: Callable[[Any, str], ImageView]


TRANSPORTS = MappingProxyType({
    'raw': Transport(Image, '', image_view),
    'compressed': Transport(CompressedImage, '/compressed', compressed_image_view),
})
"""Every way that images come in, by image_transport's name."""


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
