"""The YOLOv3 family (YOLOv3, YOLO-Fastest): anchor heads that are raw convolution outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from dla_ros.decoders.base import Candidates, DecoderError, Head, sigmoid
from dla_ros.tensor import TensorSpec

Pixels = Annotated[float, Field(gt=0)]


class Yolov3Config(BaseModel):
    """The decoder section of model.yaml for the YOLOv3 family.

    `anchors` maps each stride to the widths and heights of its anchor boxes, in network pixels.
    """

    model_config = ConfigDict(extra='forbid', frozen=True)

    type: Literal['yolov3']
    anchors: dict[Annotated[int, Field(gt=0)], list[tuple[Pixels, Pixels]]] = Field(min_length=1)


class Yolov3Decoder:
    """Decodes outputs [1, anchors * (5 + classes), h, w], one for each stride.

    center = (sigmoid(value) + cell) * stride, size = exp(value) * anchor, score =
    sigmoid(objectness) * sigmoid(class) (Redmon and Farhadi, YOLOv3, section 2).
    """

    Config: ClassVar[type[BaseModel]] = Yolov3Config

    def __init__(
        self,
        config: Yolov3Config,
        outputs: Sequence[TensorSpec],
        network_size: tuple[int, int],
        labels: Sequence[str],
    ) -> None:
        width, height = network_size
        heads: list[Head] = []
        self._anchors: list[npt.NDArray[np.float32]] = []
        for output in outputs:
            stride = width / output.shape[3], height / output.shape[2]
            anchors = config.anchors.get(round(stride[0]))
            if anchors is None:
                raise DecoderError(
                    f'output {output.name!r} has stride {stride[0]:g}, but decoder.anchors has '
                    f'only {", ".join(map(str, config.anchors))}'
                )
            if output.shape[1] != len(anchors) * (5 + len(labels)):
                raise DecoderError(
                    f'output {output.name!r} has {output.shape[1]} channels, but '
                    f'{len(anchors)} anchors and {len(labels)} labels need '
                    f'{len(anchors) * (5 + len(labels))}'
                )
            heads.append(Head(output.name, len(anchors), len(labels), stride, sigmoid=True))
            self._anchors.append(np.array(anchors, np.float32))
        self.heads = tuple(heads)

    def boxes(self, candidates: Candidates) -> npt.NDArray[np.float32]:
        """Return xyxy float32 [N, 4] in network pixels."""
        strides = np.array([head.stride for head in self.heads], np.float32)[candidates.head]
        cells = np.stack([candidates.column, candidates.row], 1).astype(np.float32)
        center = (sigmoid(candidates.box[:, :2]) + cells) * strides
        half = np.empty_like(center)
        for head, anchors in enumerate(self._anchors):
            mine = candidates.head == head
            half[mine] = anchors[candidates.anchor[mine]] / 2
        with np.errstate(over='ignore', invalid='ignore'):
            half *= np.exp(candidates.box[:, 2:])
            return np.concatenate([center - half, center + half], 1)
