"""What the node takes and publishes: one row for each topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
import functools
import re
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import Float32MultiArray, Header
import vision_msgs.msg

from dla_ros.detector import Result
from dla_ros.image import ImageView
from dla_ros.messages import (
    classification_message,
    compressed_image_view,
    detections_message,
    image_message,
    image_view,
    multi_array_message,
    tensor,
    tensor_list_message,
    TensorList,
)
from dla_ros.model import Model
from dla_ros.predictions import Classification, Detections, Prediction, Segmentation
from dla_ros.tensor import TensorSpec

Input = ImageView | npt.NDArray[np.float32]


@dataclass(frozen=True)
class Source:
    """One row of the table of ways that frames come in.

    Attributes
    ----------
    type:
        The message type.
    topic, suffix:
        The topic's name, and what is added to it after remapping, as image_transport does.
    read:
        Returns what a message holds, given an overriding encoding or '', and the network's input;
        may raise ImageError.

    """

    type: Any
    topic: str
    suffix: str
    read: Callable[[Any, str, TensorSpec], Input]


SOURCES = MappingProxyType({
    'raw': Source(
        Image, 'image', '',
        lambda message, encoding, spec: image_view(message, encoding).require_color(),
    ),
    'compressed': Source(
        CompressedImage, 'image', '/compressed',
        lambda message, encoding, spec: compressed_image_view(message).require_color(),
    ),
    'tensors': Source(
        TensorList, 'tensor_pub', '',
        lambda message, encoding, spec: tensor(message, spec.name, spec.shape),
    ),
})
"""Every way that frames come in: image_transport's names, and tensors."""


@dataclass(frozen=True)
class Topic:
    """One row of the tables of topics that results go out on.

    Attributes
    ----------
    name, type:
        Of the topic.
    message:
        Returns the message for a result, the frame's header and the labels; None for none.

    """

    name: str
    type: Any
    message: Callable[[Result, Header, Sequence[str]], Any]


def _detections(result: Result, header: Header, labels: Sequence[str]) -> Any:
    assert isinstance(result.prediction, Detections)
    return detections_message(result.prediction, header, labels)


def _classification(result: Result, header: Header, labels: Sequence[str]) -> Any:
    assert isinstance(result.prediction, Classification)
    return classification_message(result.prediction, header, labels)


def _mask(result: Result, header: Header, labels: Sequence[str]) -> Any:
    assert isinstance(result.prediction, Segmentation)
    return image_message(result.prediction.class_id, header)


def _confidence(result: Result, header: Header, labels: Sequence[str]) -> Any:
    assert isinstance(result.prediction, Segmentation)
    confidence = result.prediction.confidence
    return None if confidence is None else image_message(confidence, header)


def _multi_array(name: str, result: Result, header: Header, labels: Sequence[str]) -> Any:
    return multi_array_message(result.tensors[name])


PREDICTIONS: MappingProxyType[type[Prediction], tuple[Topic, ...]] = MappingProxyType({
    Detections: (Topic('detections_output', vision_msgs.msg.Detection2DArray, _detections),),
    Classification: (
        Topic('classification_output', vision_msgs.msg.Classification, _classification),
    ),
    Segmentation: (
        Topic('segmentation_output', Image, _mask),
        Topic('segmentation_confidence', Image, _confidence),
    ),
})
"""The topics of each kind of prediction."""


def result_topics(
    model: Model, makes: type[Prediction] | None, outputs: Sequence[TensorSpec], wanted: str
) -> tuple[Topic, ...]:
    """Return the topics of the node's parameter `output`, for a model's kind of prediction."""
    topics: list[Topic] = []
    if wanted != 'tensors' and makes is not None:
        topics += PREDICTIONS[makes]
    if wanted != 'predictions':
        topics += _tensor_topics(outputs)
    if not getattr(model.decoder, 'confidence', False):
        topics = [topic for topic in topics if topic.message is not _confidence]
    return tuple(topics)


def _tensor_topics(outputs: Sequence[TensorSpec]) -> Iterator[Topic]:
    """Yield TensorList's topic or, where Isaac's interfaces are absent, one for each tensor."""
    if TensorList is not None:
        yield Topic(
            'tensor_sub', TensorList,
            lambda result, header, labels: tensor_list_message(result.tensors, header),
        )
        return
    for spec in outputs:
        yield Topic(
            f'tensor_sub/{topic_token(spec.name)}', Float32MultiArray,
            functools.partial(_multi_array, spec.name),
        )


def topic_token(name: str) -> str:
    """Return a tensor's name as a part of a topic's name: letters, digits, underscores."""
    token = re.sub(r'[^A-Za-z0-9_]+', '_', name).strip('_')
    return token if token[:1].isalpha() else f'tensor_{token}'
