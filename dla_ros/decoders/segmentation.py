"""Semantic segmentation: one score for each class and pixel, or one for a mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from dla_ros.decoders.base import DecoderConfig, DecoderError, Thresholds
from dla_ros.decoders.heads import Activation, Candidates, Head, sigmoid, softmax
from dla_ros.geometry import Geometry
from dla_ros.predictions import Prediction, Segmentation, VOID
from dla_ros.tensor import TensorSpec


class SegmentationConfig(DecoderConfig):
    """The decoder section of model.yaml for semantic segmentation.

    activation:
        What the scores have yet to go through to be probabilities; softmax is for several classes.
    threshold:
        For a mask, an output of one channel: least probability of the second label.
    size:
        Of the label image: that of the source image, or of the network's input.
    confidence:
        Whether the probability of each pixel's label is wanted too.
    """

    type: Literal['segmentation']
    activation: Activation = 'softmax'
    threshold: float = 0.5
    size: Literal['source', 'network'] = 'source'
    confidence: bool = False


class SegmentationDecoder:
    """Decodes one output [1, classes, h, w], or [1, 1, h, w] for a mask with two labels.

    The scores are upsampled to the network's input, linearly, and the best class is taken there;
    the label image is then scaled to the nearest pixel.
    """

    Config: ClassVar[type[BaseModel]] = SegmentationConfig
    makes: ClassVar[type[Prediction] | None] = Segmentation
    heads: tuple[Head, ...] = ()
    tensors: tuple[str, ...]

    def __init__(
        self,
        config: SegmentationConfig,
        outputs: Sequence[TensorSpec],
        network_size: tuple[int, int],
        labels: Sequence[str],
    ) -> None:
        if len(outputs) != 1:
            raise DecoderError(f'segmentation needs one output, not {len(outputs)}')
        (output,) = outputs
        channels = output.shape[1]
        if len(labels) != max(channels, 2):
            raise DecoderError(
                f'output {output.name!r} has {channels} channels, but there are {len(labels)} '
                f'labels{", not 2" * (channels == 1)}'
            )
        if len(labels) > VOID:
            raise DecoderError(f'{len(labels)} labels do not fit a mono8 image')
        self.tensors = (output.name,)
        self._config = config
        self._network_size = network_size

    def decode(
        self,
        candidates: Candidates,
        tensors: Mapping[str, npt.NDArray[np.float32]],
        geometry: Geometry,
        thresholds: Thresholds,
    ) -> Segmentation:
        """Return the label image, of the whole source image; what was not looked at is VOID."""
        scores = _upsample(tensors[self.tensors[0]][0], self._network_size)
        if len(scores) == 1:
            share = sigmoid(scores[0]) if self._config.activation == 'sigmoid' else scores[0]
            class_id = (share >= self._config.threshold).astype(np.uint8)
            confidence = np.where(class_id, share, 1 - share)
        else:
            class_id = scores.argmax(0).astype(np.uint8)
            confidence = self._confidence(scores)
        return Segmentation(
            self._fit(class_id, geometry, VOID),
            self._fit(confidence.astype(np.float32), geometry, 0)
            if self._config.confidence else None,
        )

    def _confidence(self, scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the probability of the best class, [h, w]."""
        if not self._config.confidence or self._config.activation == 'none':
            return np.asarray(scores.max(0))
        if self._config.activation == 'sigmoid':
            return sigmoid(scores.max(0))
        return np.asarray(softmax(scores, 0).max(0))

    def _fit(self, image: npt.NDArray[Any], geometry: Geometry, outside: int) -> npt.NDArray[Any]:
        """Return the network's image as one of the source, or of its size, nearest pixel."""
        import cv2

        size = geometry.image_size if self._config.size == 'source' else self._network_size
        source, target = geometry.source, geometry.target
        seen = image[
            target.y : target.y + target.height, target.x : target.x + target.width
        ]
        scale = size[0] / geometry.image_size[0], size[1] / geometry.image_size[1]
        left, right = (round(x * scale[0]) for x in (source.x, source.x + source.width))
        top, bottom = (round(y * scale[1]) for y in (source.y, source.y + source.height))
        result = np.full((size[1], size[0]), outside, image.dtype)
        if right > left and bottom > top:
            result[top:bottom, left:right] = cv2.resize(
                seen, (right - left, bottom - top), interpolation=cv2.INTER_NEAREST
            )
        return result


def _upsample(
    scores: npt.NDArray[np.float32], size: tuple[int, int]
) -> npt.NDArray[np.float32]:
    """Return scores [c, h, w] in another width and height."""
    import cv2

    return np.stack([cv2.resize(channel, size) for channel in scores])
