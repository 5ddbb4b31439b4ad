"""What every decoder is made of: heads, candidates, thresholds, and the last steps to boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from dla_ros.detections import Detections
from dla_ros.geometry import Geometry
from dla_ros.tensor import TensorSpec


@dataclass(frozen=True)
class Head:
    """Where scores and boxes sit in one output of a detection network.

    The channels of a cell are `anchors` times (4 box values, objectness if there is one,
    `classes` scores).

    Attributes
    ----------
    tensor:
        The output's name.
    anchors:
        Boxes per cell.
    classes:
        Class scores per box.
    stride:
        Network pixels per cell, across and down.
    sigmoid:
        Whether objectness and class scores are logits, still to go through a sigmoid.
    objectness:
        Whether a box has an objectness, which its class scores are multiplied with.

    """

    tensor: str
    anchors: int
    classes: int
    stride: tuple[float, float]
    sigmoid: bool
    objectness: bool = True

    @property
    def channels(self) -> int:
        """Channels of the output."""
        return self.anchors * (4 + self.objectness + self.classes)


@dataclass(frozen=True, eq=False)
class Candidates:
    """Boxes whose score passes the confidence threshold, as the network wrote them.

    Attributes
    ----------
    head, anchor, row, column:
        int32 [N]: which box this is; `head` indexes the decoder's heads.
    class_id:
        int32 [N], the best class.
    score:
        float32 [N], the best class's score, times objectness if there is one.
    box:
        float32 [N, 4], the raw box values.

    """

    head: npt.NDArray[np.int32]
    anchor: npt.NDArray[np.int32]
    row: npt.NDArray[np.int32]
    column: npt.NDArray[np.int32]
    class_id: npt.NDArray[np.int32]
    score: npt.NDArray[np.float32]
    box: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Thresholds:
    """What may change from frame to frame.

    Attributes
    ----------
    confidence:
        Least score of a detection, 0 to 1.
    nms:
        Two boxes of one class that overlap more than this (IoU, 0 to 1) are one object.
    max_detections:
        At most so many detections, the best.
    class_ids:
        Only these classes; None for all.

    """

    confidence: float = 0.35
    nms: float = 0.45
    max_detections: int = 100
    class_ids: frozenset[int] | None = None


class DecoderError(ValueError):
    """The network's outputs are not what the decoder in model.yaml needs."""


class Decoder(Protocol):
    """Turns the outputs of one family of networks into detections."""

    Config: ClassVar[type[BaseModel]]
    heads: tuple[Head, ...]

    def __init__(
        self,
        config: Any,
        outputs: Sequence[TensorSpec],
        network_size: tuple[int, int],
        labels: Sequence[str],
    ) -> None:
        """Match the outputs to heads; raise DecoderError where they do not fit."""

    def boxes(self, candidates: Candidates) -> npt.NDArray[np.float32]:
        """Return the candidates' boxes, xyxy float32 [N, 4], in network pixels."""


def logit(probability: float) -> float:
    """Return the x whose sigmoid is `probability`: ln(p / (1 - p)), infinite at 0 and 1."""
    with np.errstate(divide='ignore'):
        return float(np.log(np.float64(probability)) - np.log1p(-np.float64(probability)))


def sigmoid(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return 1 / (1 + exp(-x)) without overflow."""
    y: npt.NDArray[np.float32] = np.tanh(np.float32(0.5) * x)
    return np.float32(0.5) * (np.float32(1.0) + y)


def select_candidates(
    heads: Sequence[Head], tensors: Mapping[str, npt.NDArray[Any]], confidence: float
) -> Candidates:
    """Select the boxes of all heads whose score is at least `confidence`: the numpy reference.

    No factor of a score is above 1, so a box whose objectness or best class is below the threshold
    is none. NaN and infinite scores are no candidates.

    Parameters
    ----------
    heads:
        The decoder's heads.
    tensors:
        The outputs by name, [1, channels of the head, h, w], any float type.
    confidence:
        0 to 1.

    """
    parts = [
        _select_head(i, head, tensors[head.tensor], confidence) for i, head in enumerate(heads)
    ]
    fields = (np.concatenate([part[k] for part in parts]) for k in range(7))
    return Candidates(*fields)


def _select_head(
    index: int, head: Head, tensor: npt.NDArray[Any], confidence: float
) -> tuple[npt.NDArray[Any], ...]:
    _, _, h, w = tensor.shape
    values = tensor.reshape(head.anchors, head.channels // head.anchors, h, w)
    first = 4 + head.objectness
    # With an objectness, most boxes need not be looked at any further.
    foremost = values[:, 4] if head.objectness else values[:, first:].max(1)
    least = logit(confidence) if head.sigmoid else confidence
    anchor, row, column = np.nonzero(foremost.astype(np.float32) >= least)
    touched = values[anchor, :, row, column].astype(np.float32)
    class_id = touched[:, first:].argmax(1)
    factors = touched[:, [4] * head.objectness]
    factors = np.concatenate([touched[np.arange(len(anchor)), first + class_id, None], factors], 1)
    if head.sigmoid:
        factors = sigmoid(factors)
    score = factors.prod(1)
    keep = (score >= confidence) & np.isfinite(score)
    integers = (np.full(len(anchor), index), anchor, row, column, class_id)
    return (
        *(part[keep].astype(np.int32) for part in integers), score[keep], touched[keep, :4]
    )


def finish(
    boxes: npt.NDArray[np.float32],
    candidates: Candidates,
    geometry: Geometry,
    thresholds: Thresholds,
) -> Detections:
    """Turn candidates into detections: class filter, NMS within each class, back to the image.

    Parameters
    ----------
    boxes:
        xyxy float32 [N, 4], network pixels.
    candidates:
        The candidates that the boxes belong to.
    geometry:
        How the image was fitted into the network's input.
    thresholds:
        See there.

    Returns
    -------
    Detections in pixels of the source image, clipped to it, the best first; boxes that lie
    outside the image or are not finite are left out.

    """
    keep = np.isfinite(boxes).all(1)
    if thresholds.class_ids is not None:
        keep &= np.isin(candidates.class_id, list(thresholds.class_ids))
    width, height = geometry.image_size
    clipped = np.clip(geometry.to_image(boxes), 0, [width, height, width, height])
    keep &= (clipped[:, 2] > clipped[:, 0]) & (clipped[:, 3] > clipped[:, 1])
    chosen = np.flatnonzero(keep)
    if len(chosen):
        chosen = chosen[_nms(boxes[chosen], candidates, chosen, thresholds)]
    return Detections(
        clipped[chosen].astype(np.float32), candidates.score[chosen], candidates.class_id[chosen]
    )


def _nms(
    boxes: npt.NDArray[np.float32],
    candidates: Candidates,
    chosen: npt.NDArray[np.intp],
    thresholds: Thresholds,
) -> npt.NDArray[np.intp]:
    import cv2

    xywh = np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1)
    # OpenCV keeps what is above the score threshold; the candidates have passed theirs already.
    kept = np.asarray(
        cv2.dnn.NMSBoxesBatched(
            xywh.astype(np.float64).tolist(), candidates.score[chosen].tolist(),
            candidates.class_id[chosen].tolist(), -1.0, thresholds.nms,
        ),
        np.intp,
    ).reshape(-1)
    best = np.argsort(-candidates.score[chosen][kept], kind='stable')
    return kept[best][: thresholds.max_detections]
