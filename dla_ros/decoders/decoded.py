"""Exports whose graph has decoded the boxes: all of them in one output, in network pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from dla_ros.decoders.base import corners, DecoderError, DetectionConfig, DetectionDecoder
from dla_ros.decoders.flat import values_axis
from dla_ros.decoders.heads import Candidates, Head
from dla_ros.tensor import TensorSpec


class DecodedConfig(DetectionConfig):
    """The decoder section of model.yaml for exports with decoded boxes.

    `objectness` is for YOLOv5 and YOLOv7, which have one; YOLOv8 and later have none.
    """

    type: Literal['decoded']
    objectness: bool = False


class DecodedDecoder(DetectionDecoder):
    """Decodes one output [1, 4 + classes, boxes], or its transpose, of Ultralytics' exports.

    The values are center and size in network pixels, the objectness if there is one, and class
    scores from 0 to 1.
    """

    Config: ClassVar[type[BaseModel]] = DecodedConfig

    def __init__(
        self,
        config: DecodedConfig,
        outputs: Sequence[TensorSpec],
        network_size: tuple[int, int],
        labels: Sequence[str],
    ) -> None:
        if len(outputs) != 1:
            raise DecoderError(f'needs one output of decoded boxes, not {len(outputs)}')
        (output,) = outputs
        values = 4 + config.objectness + len(labels)
        axis = 1 if output.shape[1] == values else values_axis(output, values)
        if axis is None:
            shape = 'x'.join(map(str, output.shape))
            raise DecoderError(
                f'output {output.name!r} is {shape}, but {len(labels)} labels need {values} '
                'values for each box'
            )
        self.heads = (
            Head.packed(
                output.name, len(labels), (1.0, 1.0), objectness=config.objectness, axis=axis,
                multi_label=config.multi_label,
            ),
        )

    def boxes(self, candidates: Candidates) -> npt.NDArray[np.float32]:
        """Return xyxy float32 [N, 4] in network pixels."""
        return corners(candidates.values[:, :2], candidates.values[:, 2:])
