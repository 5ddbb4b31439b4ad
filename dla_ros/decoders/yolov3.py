"""YOLOv3, YOLOv4, YOLO-Fastest: anchor heads that are raw convolution outputs."""

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
from dla_ros.decoders.heads import Candidates, Head, sigmoid
from dla_ros.tensor import TensorSpec

Pixels = Annotated[float, Field(gt=0)]


class AnchorConfig(DetectionConfig):
    """What decoders of anchor heads take.

    `anchors` maps each stride to the widths and heights of its anchor boxes, in network pixels.
    """

    anchors: dict[Annotated[int, Field(gt=0)], list[tuple[Pixels, Pixels]]] = Field(min_length=1)


class Yolov3Config(AnchorConfig):
    """The decoder section of model.yaml for the YOLOv3 and YOLOv4 families.

    `scale_x_y` is what Darknet calls so: above 1, centers reach over the edges of their cells.
    """

    type: Literal['yolov3']
    scale_x_y: Annotated[float, Field(ge=1, le=2)] = 1.0


class AnchorDecoder(DetectionDecoder):
    """Has outputs [1, anchors * (5 + classes), h, w] of logits, one for each stride."""

    def __init__(
        self,
        config: AnchorConfig,
        outputs: Sequence[TensorSpec],
        network_size: tuple[int, int],
        labels: Sequence[str],
    ) -> None:
        heads: list[Head] = []
        self._anchors: list[npt.NDArray[np.float32]] = []
        for output in outputs:
            stride = stride_of(output, network_size)
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
            heads.append(Head.packed(
                output.name, len(labels), stride, 'sigmoid', anchors=len(anchors),
                multi_label=config.multi_label,
            ))
            self._anchors.append(np.array(anchors, np.float32))
        self.heads = tuple(heads)

    def anchor_sizes(self, candidates: Candidates) -> npt.NDArray[np.float32]:
        """Return the sizes of the candidates' anchors, float32 [N, 2], network pixels."""
        sizes = np.empty((len(candidates.head), 2), np.float32)
        for head, anchors in enumerate(self._anchors):
            mine = candidates.head == head
            sizes[mine] = anchors[candidates.anchor[mine]]
        return sizes


class Yolov3Decoder(AnchorDecoder):
    """Decodes the heads of YOLOv3 and YOLOv4.

    center = (s * sigmoid(value) - (s - 1) / 2 + cell) * stride with s = scale_x_y, size =
    exp(value) * anchor, score = sigmoid(objectness) * sigmoid(class) (Redmon and Farhadi, YOLOv3,
    section 2; Bochkovskiy et al., YOLOv4, section 3.4).
    """

    Config: ClassVar[type[BaseModel]] = Yolov3Config

    def __init__(
        self,
        config: Yolov3Config,
        outputs: Sequence[TensorSpec],
        network_size: tuple[int, int],
        labels: Sequence[str],
    ) -> None:
        super().__init__(config, outputs, network_size, labels)
        self._scale = np.float32(config.scale_x_y)

    def boxes(self, candidates: Candidates) -> npt.NDArray[np.float32]:
        """Return xyxy float32 [N, 4] in network pixels."""
        raw = candidates.values
        offset = self._scale * sigmoid(raw[:, :2]) - (self._scale - 1) / 2
        center = (offset + candidates.cell) * self.strides(candidates)
        with np.errstate(over='ignore', invalid='ignore'):
            return corners(center, np.exp(raw[:, 2:]) * self.anchor_sizes(candidates))
