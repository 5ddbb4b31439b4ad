"""YOLOX: anchor-free heads that already went through their sigmoids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from dla_ros.decoders.base import Candidates, DecoderError, Head
from dla_ros.tensor import TensorSpec


class YoloxConfig(BaseModel):
    """The decoder section of model.yaml for YOLOX; all its numbers come from the tensors."""

    model_config = ConfigDict(extra='forbid', frozen=True)

    type: Literal['yolox']


class YoloxDecoder:
    """Decodes outputs [1, 5 + classes, h, w], one for each stride.

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
        width, height = network_size
        for output in outputs:
            if output.shape[1] != 5 + len(labels):
                raise DecoderError(
                    f'output {output.name!r} has {output.shape[1]} channels, that is '
                    f'{output.shape[1] - 5} classes, but there are {len(labels)} labels'
                )
        self.heads = tuple(
            Head(o.name, 1, len(labels), (width / o.shape[3], height / o.shape[2]), sigmoid=False)
            for o in outputs
        )

    def boxes(self, candidates: Candidates) -> npt.NDArray[np.float32]:
        """Return xyxy float32 [N, 4] in network pixels."""
        strides = np.array([head.stride for head in self.heads], np.float32)[candidates.head]
        cells = np.stack([candidates.column, candidates.row], 1).astype(np.float32)
        with np.errstate(over='ignore', invalid='ignore'):
            center = (candidates.box[:, :2] + cells) * strides
            half = np.exp(candidates.box[:, 2:]) * strides / 2
            return np.concatenate([center - half, center + half], 1)
