"""YOLOX: anchor-free heads that already went through their sigmoids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from dla_ros.decoders.base import (
    corners,
    DecoderError,
    DetectionConfig,
    DetectionDecoder,
    stride_of,
)
from dla_ros.decoders.flat import grid_cells, values_axis
from dla_ros.decoders.heads import Candidates, Head
from dla_ros.tensor import TensorSpec


class YoloxConfig(DetectionConfig):
    """The decoder section of model.yaml for YOLOX.

    `strides` is for the export with one output of all boxes; else they come from the tensors.
    """

    type: Literal['yolox']
    strides: tuple[Annotated[int, Field(gt=0)], ...] = (8, 16, 32)


class YoloxDecoder(DetectionDecoder):
    """Decodes outputs [1, 5 + classes, h, w], one for each stride, or one [1, boxes, 5 + classes].

    center = (value + cell) * stride, size = exp(value) * stride; objectness and class scores are
    0 to 1 already (Ge et al., YOLOX: Exceeding YOLO Series in 2021, and Megvii's export).
    """

    Config: ClassVar[type[BaseModel]] = YoloxConfig

    def __init__(
        self,
        config: YoloxConfig,
        outputs: Sequence[TensorSpec],
        network_size: tuple[int, int],
        labels: Sequence[str],
    ) -> None:
        values = 5 + len(labels)
        self._flat = None
        strides = [stride_of(output, network_size) for output in outputs]
        axis = values_axis(outputs[0], values) if len(outputs) == 1 else None
        if axis is not None:
            boxes = outputs[0].shape[5 - axis]
            self._flat = grid_cells(boxes, config.strides, network_size)
            strides = [(1.0, 1.0)]
        for output in outputs:
            if axis is None and output.shape[1] != values:
                raise DecoderError(
                    f'output {output.name!r} has {output.shape[1]} channels, that is '
                    f'{output.shape[1] - 5} classes, but there are {len(labels)} labels'
                )
        self.heads = tuple(
            Head.packed(
                output.name, len(labels), stride, axis=axis or 1, multi_label=config.multi_label
            )
            for output, stride in zip(outputs, strides, strict=True)
        )

    def boxes(self, candidates: Candidates) -> npt.NDArray[np.float32]:
        """Return xyxy float32 [N, 4] in network pixels."""
        cell, stride = candidates.cell, self.strides(candidates)
        if self._flat is not None:
            cell, stride = (table[candidates.column] for table in self._flat)
        raw = candidates.values
        with np.errstate(over='ignore', invalid='ignore'):
            return corners((raw[:, :2] + cell) * stride, np.exp(raw[:, 2:]) * stride)
