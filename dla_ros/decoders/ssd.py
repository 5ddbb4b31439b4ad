"""SSD: class scores and offsets from prior boxes, or boxes that the graph has decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field, model_validator

from dla_ros.decoders.base import (
    corners,
    DecoderError,
    DetectionConfig,
    DetectionDecoder,
    stride_of,
)
from dla_ros.decoders.centernet import OutputName
from dla_ros.decoders.flat import grid_cells, values_axis
from dla_ros.decoders.heads import Activation, Candidates, Head, Span
from dla_ros.tensor import TensorSpec

Pixels = Annotated[float, Field(gt=0)]
Stride = Annotated[int, Field(gt=0)]


class SsdConfig(DetectionConfig):
    """The decoder section of model.yaml for SSD.

    scores, boxes:
        Names of outputs, pairwise: one each with all boxes, [1, boxes, values], or one for each
        grid, [1, priors * values, h, w].
    activation:
        What the class scores have yet to go through.
    background:
        Whether the first class score stands for no object.
    priors:
        Stride to the widths and heights of its prior boxes, network pixels; without, the boxes
        are decoded: corners from 0 to 1.
    variances:
        Of the offsets of center and size.
    order:
        Of the offsets: xy for x, y, width, height; yx for y, x, height, width.
    """

    type: Literal['ssd']
    scores: list[OutputName] = Field(min_length=1)
    boxes: list[OutputName] = Field(min_length=1)
    activation: Activation = 'softmax'
    background: bool = True
    priors: dict[Stride, list[tuple[Pixels, Pixels]]] = Field(default_factory=dict)
    variances: tuple[Pixels, Pixels] = (0.1, 0.2)
    order: Literal['xy', 'yx'] = 'xy'

    @model_validator(mode='after')
    def _pairs(self) -> SsdConfig:
        if len(self.scores) != len(self.boxes):
            raise ValueError(
                f'{len(self.scores)} outputs of scores, but {len(self.boxes)} of boxes'
            )
        return self


class SsdDecoder(DetectionDecoder):
    """Decodes class scores with offsets from priors, or with boxes.

    center = prior center + offset * variances[0] * prior size, size = prior size * exp(offset *
    variances[1]) (Liu et al., SSD, 2016, section 2.2); a prior's center is its cell's.
    """

    Config: ClassVar[type[BaseModel]] = SsdConfig

    def __init__(
        self,
        config: SsdConfig,
        outputs: Sequence[TensorSpec],
        network_size: tuple[int, int],
        labels: Sequence[str],
    ) -> None:
        self._config = config
        self._network_size = np.array(network_size, np.float32)
        self._classes = len(labels) + config.background
        by_name = {output.name: output for output in outputs}
        for name in (*config.scores, *config.boxes):
            if name not in by_name:
                raise DecoderError(
                    f'there is no output {name!r}; the network has '
                    f'{", ".join(map(repr, by_name))}'
                )
        pairs = [
            (by_name[scores], by_name[boxes])
            for scores, boxes in zip(config.scores, config.boxes, strict=True)
        ]
        self._flat = len(pairs) == 1 and values_axis(pairs[0][1], 4) is not None
        self._priors: list[npt.NDArray[np.float32]] = []
        if self._flat:
            self.heads = (self._flat_head(*pairs[0]),)
        else:
            self.heads = tuple(self._grid_head(*pair) for pair in pairs)

    def _head(
        self, scores: Span, boxes: Span, stride: tuple[float, float], anchors: int
    ) -> Head:
        config = self._config
        # Without a softmax the background needs no reading.
        if config.background and config.activation != 'softmax':
            scores = Span(
                scores.tensor, scores.count - 1, scores.first + 1, scores.step, scores.axis
            )
        return Head(
            scores, (boxes,), stride, config.activation, anchors=anchors,
            background=config.background and config.activation == 'softmax',
            multi_label=config.multi_label,
        )

    def _flat_head(self, scores: TensorSpec, boxes: TensorSpec) -> Head:
        scores_axis, boxes_axis = values_axis(scores, self._classes), values_axis(boxes, 4)
        if scores_axis is None or scores_axis != boxes_axis:
            shape = 'x'.join(map(str, scores.shape[2:]))
            raise DecoderError(
                f'output {scores.name!r} is {shape}, but the labels need {self._classes} scores '
                f'for each box of {boxes.name!r}'
            )
        if self._config.priors:
            self._priors = [self._all_priors(boxes.shape[5 - boxes_axis])]
        return self._head(
            Span(scores.name, self._classes, axis=scores_axis),
            Span(boxes.name, 4, axis=boxes_axis), (1.0, 1.0), 1,
        )

    def _all_priors(self, boxes: int) -> npt.NDArray[np.float32]:
        """Return center and size, float32 [boxes, 4], of the priors of all grids."""
        grids = []
        for stride, sizes in self._config.priors.items():
            width, height = (-(-int(size) // stride) for size in self._network_size)
            cell, step = grid_cells(
                width * height * len(sizes), [stride],
                (int(self._network_size[0]), int(self._network_size[1])), len(sizes),
            )
            size = np.tile(np.array(sizes, np.float32), (width * height, 1))
            grids.append(np.concatenate([(cell + np.float32(0.5)) * step, size], 1))
        priors: npt.NDArray[np.float32] = np.concatenate(grids)
        if len(priors) != boxes:
            raise DecoderError(f'there are {len(priors)} priors for {boxes} boxes')
        return priors

    def _grid_head(self, scores: TensorSpec, boxes: TensorSpec) -> Head:
        stride = stride_of(boxes, (int(self._network_size[0]), int(self._network_size[1])))
        sizes = self._config.priors.get(round(stride[0]))
        if sizes is None:
            have = ', '.join(map(str, self._config.priors)) or 'none'
            raise DecoderError(
                f'output {boxes.name!r} has stride {stride[0]:g}, but decoder.priors has {have}'
            )
        for output, values in ((scores, self._classes), (boxes, 4)):
            if output.shape[1] != len(sizes) * values:
                raise DecoderError(
                    f'output {output.name!r} has {output.shape[1]} channels, but {len(sizes)} '
                    f'priors of {values} values need {len(sizes) * values}'
                )
        self._priors.append(np.array(sizes, np.float32))
        return self._head(
            Span(scores.name, self._classes, step=self._classes), Span(boxes.name, 4, step=4),
            stride, len(sizes),
        )

    def boxes(self, candidates: Candidates) -> npt.NDArray[np.float32]:
        """Return xyxy float32 [N, 4] in network pixels."""
        raw = candidates.values
        if self._config.order == 'yx':
            raw = raw[:, [1, 0, 3, 2]]
        if not self._priors:
            return np.asarray(raw * np.tile(self._network_size, 2), np.float32)
        center, size = self._candidates_priors(candidates)
        near, far = (np.float32(variance) for variance in self._config.variances)
        with np.errstate(over='ignore', invalid='ignore'):
            return corners(center + raw[:, :2] * near * size, size * np.exp(raw[:, 2:] * far))

    def _candidates_priors(
        self, candidates: Candidates
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        if self._flat:
            priors: npt.NDArray[np.float32] = self._priors[0][candidates.column]
            return priors[:, :2], priors[:, 2:]
        size = np.empty((len(candidates.head), 2), np.float32)
        for head, sizes in enumerate(self._priors):
            mine = candidates.head == head
            size[mine] = sizes[candidates.anchor[mine]]
        return (candidates.cell + np.float32(0.5)) * self.strides(candidates), size
