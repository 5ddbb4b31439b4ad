"""What every decoder is: heads or whole tensors that it reads, and a prediction that it makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from dla_ros.decoders.heads import Candidates, Head
from dla_ros.geometry import Geometry
from dla_ros.predictions import Detections, Prediction
from dla_ros.tensor import TensorSpec


@dataclass(frozen=True)
class Thresholds:
    """What may change from frame to frame.

    Attributes
    ----------
    confidence:
        Least score of a detection, 0 to 1.
    nms:
        Two boxes of one class that overlap more than this (IoU, 0 to 1) are one object.
    class_agnostic:
        Whether boxes of different classes are one object too, if they overlap so.
    max_detections:
        At most so many detections, the best.
    class_ids:
        Only these classes; None for all.

    """

    confidence: float = 0.35
    nms: float = 0.45
    class_agnostic: bool = False
    max_detections: int = 100
    class_ids: frozenset[int] | None = None


class DecoderError(ValueError):
    """The network's outputs are not what the decoder in model.yaml needs."""


class DecoderConfig(BaseModel):
    """The decoder section of model.yaml; a key that it does not know is a fault."""

    model_config = ConfigDict(extra='forbid', frozen=True)


class DetectionConfig(DecoderConfig):
    """What all detection decoders take.

    multi_label:
        Whether a box counts once for each class whose score passes, and not for the best alone.
    """

    multi_label: bool = False


class Decoder(Protocol):
    """Turns the outputs of one family of networks into predictions.

    Attributes
    ----------
    Config:
        Its section of model.yaml.
    makes:
        The kind of prediction.
    heads:
        Where candidates are searched for; empty for none.
    tensors:
        The names of the outputs that it needs whole.

    """

    Config: ClassVar[type[BaseModel]]
    makes: ClassVar[type[Prediction] | None]
    heads: tuple[Head, ...]
    tensors: tuple[str, ...]

    def __init__(
        self,
        config: Any,
        outputs: Sequence[TensorSpec],
        network_size: tuple[int, int],
        labels: Sequence[str],
    ) -> None:
        """Match the outputs to what is read; raise DecoderError where they do not fit."""

    def decode(
        self,
        candidates: Candidates,
        tensors: Mapping[str, npt.NDArray[np.float32]],
        geometry: Geometry,
        thresholds: Thresholds,
    ) -> Prediction:
        """Make the prediction, in pixels of the source image.

        Parameters
        ----------
        candidates:
            What the heads have above the confidence threshold.
        tensors:
            The whole outputs by name, float32 [1, c, h, w].
        geometry:
            How the image was fitted into the network's input.
        thresholds:
            See there.

        """


class DetectionDecoder:
    """What detection decoders have in common: they say their heads and the candidates' boxes."""

    makes: ClassVar[type[Prediction] | None] = Detections
    heads: tuple[Head, ...] = ()
    tensors: tuple[str, ...] = ()

    def boxes(self, candidates: Candidates) -> npt.NDArray[np.float32]:
        """Return the candidates' boxes, xyxy float32 [N, 4], in network pixels."""
        raise NotImplementedError

    def keypoints(self, candidates: Candidates) -> npt.NDArray[np.float32] | None:
        """Return the candidates' keypoints, float32 [N, K, 3]: x, y in network pixels, score."""
        return None

    def decode(
        self,
        candidates: Candidates,
        tensors: Mapping[str, npt.NDArray[np.float32]],
        geometry: Geometry,
        thresholds: Thresholds,
    ) -> Detections:
        """See Decoder.decode."""
        boxes, keypoints = self.boxes(candidates), self.keypoints(candidates)
        return finish(boxes, candidates, geometry, thresholds, keypoints)

    def strides(self, candidates: Candidates) -> npt.NDArray[np.float32]:
        """Return the candidates' strides, float32 [N, 2]: across and down."""
        return np.array([head.stride for head in self.heads], np.float32)[candidates.head]


def stride_of(
    output: TensorSpec, network_size: tuple[int, int]
) -> tuple[float, float]:
    """Return the network pixels per cell of an output [1, c, h, w], across and down."""
    return network_size[0] / output.shape[3], network_size[1] / output.shape[2]


def named(outputs: Sequence[TensorSpec], name: str, channels: int, what: str) -> TensorSpec:
    """Return the output of a name; raise DecoderError if it is none or has other channels."""
    for output in outputs:
        if output.name == name:
            if output.shape[1] != channels:
                raise DecoderError(
                    f'output {name!r} has {output.shape[1]} channels, but {what} '
                    f'{"needs" if channels == 1 else "need"} {channels}'
                )
            return output
    have = ', '.join(repr(output.name) for output in outputs)
    raise DecoderError(f'there is no output {name!r} for {what}; the network has {have}')


def corners(
    center: npt.NDArray[np.float32], size: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Return boxes xyxy [N, 4] from their centers and sizes [N, 2]."""
    half = size / 2
    return np.concatenate([center - half, center + half], 1).astype(np.float32)


def finish(
    boxes: npt.NDArray[np.float32],
    candidates: Candidates,
    geometry: Geometry,
    thresholds: Thresholds,
    keypoints: npt.NDArray[np.float32] | None = None,
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
    keypoints:
        float32 [N, K, 3]: x, y in network pixels, score.

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
    if keypoints is not None:
        keypoints = keypoints[chosen]
        keypoints[..., :2] = geometry.to_image(keypoints[..., :2])
    return Detections(
        clipped[chosen].astype(np.float32), candidates.score[chosen],
        candidates.class_id[chosen], keypoints,
    )


def _nms(
    boxes: npt.NDArray[np.float32],
    candidates: Candidates,
    chosen: npt.NDArray[np.intp],
    thresholds: Thresholds,
) -> npt.NDArray[np.intp]:
    import cv2

    xywh = np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1)
    class_id = candidates.class_id[chosen] * (not thresholds.class_agnostic)
    # OpenCV keeps what is above the score threshold; the candidates have passed theirs already.
    kept = np.asarray(
        cv2.dnn.NMSBoxesBatched(
            xywh.astype(np.float64).tolist(), candidates.score[chosen].tolist(),
            class_id.tolist(), -1.0, thresholds.nms,
        ),
        np.intp,
    ).reshape(-1)
    best = np.argsort(-candidates.score[chosen][kept], kind='stable')
    return kept[best][: thresholds.max_detections]
