"""YOLOv5 and YOLOv7: anchor heads that are raw convolution outputs."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from dla_ros.decoders.base import corners
from dla_ros.decoders.heads import Candidates, sigmoid
from dla_ros.decoders.yolov3 import AnchorConfig, AnchorDecoder


class Yolov5Config(AnchorConfig):
    """The decoder section of model.yaml for YOLOv5 and YOLOv7, cut at the last convolutions."""

    type: Literal['yolov5']


class Yolov5Decoder(AnchorDecoder):
    """Decodes outputs [1, anchors * (5 + classes), h, w] of logits, one for each stride.

    center = (2 * sigmoid(value) - 0.5 + cell) * stride, size = (2 * sigmoid(value)) ** 2 * anchor
    (Ultralytics, YOLOv5 architecture description, section 4.3).
    """

    Config: ClassVar[type[BaseModel]] = Yolov5Config

    def boxes(self, candidates: Candidates) -> npt.NDArray[np.float32]:
        """Return xyxy float32 [N, 4] in network pixels."""
        twice = 2 * sigmoid(candidates.values)
        center = (twice[:, :2] - np.float32(0.5) + candidates.cell) * self.strides(candidates)
        return corners(center, twice[:, 2:] ** 2 * self.anchor_sizes(candidates))
