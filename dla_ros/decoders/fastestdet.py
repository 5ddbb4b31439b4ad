"""FastestDet: one grid whose score weighs objectness against class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from dla_ros.decoders.base import (
    corners,
    DecoderError,
    DetectionConfig,
    DetectionDecoder,
    stride_of,
)
from dla_ros.decoders.heads import Candidates, Head, sigmoid, Span
from dla_ros.tensor import TensorSpec


class FastestdetConfig(DetectionConfig):
    """The decoder section of model.yaml for FastestDet.

    `logits` is for a network that was cut before its sigmoid and softmax.
    """

    type: Literal['fastestdet']
    logits: bool = False


class FastestdetDecoder(DetectionDecoder):
    """Decodes one output [1, 5 + classes, h, w]: objectness, box, class scores.

    score = objectness ** 0.6 * class ** 0.4, center = (tanh(value) + cell) * stride, size =
    sigmoid(value) * network size (dog-qiuqiu/FastestDet, utils/tool.py handle_preds).
    """

    Config: ClassVar[type[BaseModel]] = FastestdetConfig

    def __init__(
        self,
        config: FastestdetConfig,
        outputs: Sequence[TensorSpec],
        network_size: tuple[int, int],
        labels: Sequence[str],
    ) -> None:
        self._network_size = np.array(network_size, np.float32)
        for output in outputs:
            if output.shape[1] != 5 + len(labels):
                raise DecoderError(
                    f'output {output.name!r} has {output.shape[1]} channels, that is '
                    f'{output.shape[1] - 5} classes, but there are {len(labels)} labels'
                )
        self.heads = tuple(
            Head(
                Span(output.name, len(labels), 5), (Span(output.name, 4, 1),),
                stride_of(output, network_size), 'softmax' if config.logits else 'none',
                Span(output.name, 1), powers=(0.4, 0.6), multi_label=config.multi_label,
            )
            for output in outputs
        )

    def boxes(self, candidates: Candidates) -> npt.NDArray[np.float32]:
        """Return xyxy float32 [N, 4] in network pixels."""
        raw = candidates.values
        center = (np.tanh(raw[:, :2]) + candidates.cell) * self.strides(candidates)
        return corners(center, sigmoid(raw[:, 2:]) * self._network_size)
