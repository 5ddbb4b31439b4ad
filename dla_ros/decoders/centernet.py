"""CenterNet and CenterFace: a heatmap of objects' centers, with their sizes beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from dla_ros.decoders.base import (
    corners,
    DetectionConfig,
    DetectionDecoder,
    named,
    stride_of,
)
from dla_ros.decoders.heads import Candidates, Head, Span
from dla_ros.tensor import TensorSpec

OutputName = Annotated[str, Field(min_length=1)]


class CenternetConfig(DetectionConfig):
    """The decoder section of model.yaml for CenterNet.

    `heatmap`, `size` and `offset` name the outputs; `logits` says that the heatmap has yet to go
    through its sigmoid.
    """

    type: Literal['centernet']
    heatmap: OutputName
    size: OutputName
    offset: OutputName
    logits: bool = False


class CenternetDecoder(DetectionDecoder):
    """Decodes a heatmap [1, classes, h, w], size and offset [1, 2, h, w].

    A candidate is a peak of its class among its eight neighbors; center = (cell + offset) *
    stride, size = value * stride (Zhou et al., Objects as Points, 2019, section 4).
    """

    Config: ClassVar[type[BaseModel]] = CenternetConfig

    def __init__(
        self,
        config: CenternetConfig,
        outputs: Sequence[TensorSpec],
        network_size: tuple[int, int],
        labels: Sequence[str],
    ) -> None:
        heatmap = named(outputs, config.heatmap, len(labels), f'the {len(labels)} labels')
        self.heads = (
            Head(
                Span(heatmap.name, len(labels)),
                (
                    Span(named(outputs, config.size, 2, 'width and height').name, 2),
                    Span(named(outputs, config.offset, 2, 'the offset, x and y,').name, 2),
                ),
                stride_of(heatmap, network_size),
                'sigmoid' if config.logits else 'none',
                peak=True,
                multi_label=config.multi_label,
            ),
        )

    def boxes(self, candidates: Candidates) -> npt.NDArray[np.float32]:
        """Return xyxy float32 [N, 4] in network pixels."""
        strides = self.strides(candidates)
        size, offset = candidates.values[:, :2], candidates.values[:, 2:]
        return corners((candidates.cell + offset) * strides, size * strides)


class CenterfaceConfig(DetectionConfig):
    """The decoder section of model.yaml for CenterFace; all but `type` name outputs."""

    type: Literal['centerface']
    heatmap: OutputName
    size: OutputName
    offset: OutputName
    landmarks: OutputName


class CenterfaceDecoder(DetectionDecoder):
    """Decodes a heatmap [1, 1, h, w], size and offset [1, 2, h, w], landmarks [1, 2 k, h, w].

    Sizes and offsets are y before x: center = (cell + offset + 0.5) * stride, size = exp(value) *
    stride; landmarks are y before x, in shares of the size, from the box's corner (Xu et al.,
    CenterFace, 2019, section 3, and its export).
    """

    Config: ClassVar[type[BaseModel]] = CenterfaceConfig

    def __init__(
        self,
        config: CenterfaceConfig,
        outputs: Sequence[TensorSpec],
        network_size: tuple[int, int],
        labels: Sequence[str],
    ) -> None:
        heatmap = named(outputs, config.heatmap, len(labels), f'the {len(labels)} labels')
        landmarks = max(
            (output.shape[1] for output in outputs if output.name == config.landmarks), default=2
        )
        self.heads = (
            Head(
                Span(heatmap.name, len(labels)),
                (
                    Span(named(outputs, config.size, 2, 'height and width').name, 2),
                    Span(named(outputs, config.offset, 2, 'the offset, y and x,').name, 2),
                    Span(
                        named(outputs, config.landmarks, landmarks // 2 * 2, 'landmarks').name,
                        landmarks,
                    ),
                ),
                stride_of(heatmap, network_size),
                multi_label=config.multi_label,
            ),
        )

    def boxes(self, candidates: Candidates) -> npt.NDArray[np.float32]:
        """Return xyxy float32 [N, 4] in network pixels."""
        center = candidates.cell + candidates.values[:, 3:1:-1] + np.float32(0.5)
        return corners(center * self.strides(candidates), self._size(candidates))

    def keypoints(self, candidates: Candidates) -> npt.NDArray[np.float32]:
        """Return the landmarks; each has its face's score."""
        count = (candidates.values.shape[1] - 4) // 2
        yx = candidates.values[:, 4:].reshape(-1, count, 2)
        corner = self.boxes(candidates)[:, None, :2]
        xy = corner + yx[..., ::-1] * self._size(candidates)[:, None]
        score = np.broadcast_to(candidates.score[:, None, None], (*yx.shape[:2], 1))
        return np.asarray(np.concatenate([xy, score], 2), np.float32)

    def _size(self, candidates: Candidates) -> npt.NDArray[np.float32]:
        with np.errstate(over='ignore'):
            size = np.exp(candidates.values[:, 1::-1]) * self.strides(candidates)
        return np.asarray(size, np.float32)
