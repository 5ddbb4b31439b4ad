"""YOLOv8, YOLOv9, YOLO11: box distributions and class logits, cut at the last convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from dla_ros.decoders.base import DecoderError, DetectionConfig, DetectionDecoder, stride_of
from dla_ros.decoders.heads import Candidates, Head, sigmoid, Span
from dla_ros.tensor import TensorSpec


class Yolov8Config(DetectionConfig):
    """The decoder section of model.yaml for YOLOv8 and its successors.

    `bins` is reg_max, the logits of one side's distribution; `keypoints` how many a pose network
    has.
    """

    type: Literal['yolov8']
    bins: Annotated[int, Field(ge=2)] = 16
    keypoints: Annotated[int, Field(ge=0)] = 0


class Yolov8Decoder(DetectionDecoder):
    """Decodes, for each stride, [1, 4 * bins, h, w] and [1, classes, h, w], or both as one output.

    Each side of a box is the mean of its distribution, in cells, from the center of the cell
    (Li et al., Generalized Focal Loss, 2020); scores are sigmoid(class). Keypoints, [1, 3 *
    keypoints, h, w], are (2 * value + cell) * stride with score sigmoid(value).
    """

    Config: ClassVar[type[BaseModel]] = Yolov8Config

    def __init__(
        self,
        config: Yolov8Config,
        outputs: Sequence[TensorSpec],
        network_size: tuple[int, int],
        labels: Sequence[str],
    ) -> None:
        self._keypoints = config.keypoints
        by_size = sorted(outputs, key=lambda output: output.shape[2:], reverse=True)
        self.heads = tuple(
            _head(config, list(level), network_size, len(labels))
            for _, level in groupby(by_size, lambda output: output.shape[2:])
        )

    def boxes(self, candidates: Candidates) -> npt.NDArray[np.float32]:
        """Return xyxy float32 [N, 4] in network pixels."""
        center, sides = candidates.cell + np.float32(0.5), candidates.values[:, :4]
        cells = np.concatenate([center - sides[:, :2], center + sides[:, 2:]], 1)
        return np.asarray(cells * np.tile(self.strides(candidates), 2), np.float32)

    def keypoints(self, candidates: Candidates) -> npt.NDArray[np.float32] | None:
        """See DetectionDecoder.keypoints."""
        if not self._keypoints:
            return None
        raw = candidates.values[:, 4:].reshape(-1, self._keypoints, 3)
        xy = (2 * raw[..., :2] + candidates.cell[:, None]) * self.strides(candidates)[:, None]
        return np.asarray(np.concatenate([xy, sigmoid(raw[..., 2:])], 2), np.float32)


def _head(
    config: Yolov8Config, level: list[TensorSpec], network_size: tuple[int, int], classes: int
) -> Head:
    sides = 4 * config.bins
    parts = {'boxes': sides, 'classes': classes, 'keypoints': 3 * config.keypoints}
    joined = [output for output in level if output.shape[1] == sides + classes]
    stride = stride_of(level[0], network_size)
    found: dict[str, Span] = {}
    if joined:
        name = joined[0].name
        found = {
            'boxes': Span(name, 4, bins=config.bins), 'classes': Span(name, classes, sides)
        }
    rest = [output for output in level if output not in joined]
    for part, channels in parts.items():
        if channels == 0 or part in found:
            continue
        fitting = [output for output in rest if output.shape[1] == channels]
        if not fitting:
            have = ', '.join(f'{output.name!r} with {output.shape[1]}' for output in level)
            raise DecoderError(
                f'at stride {stride[0]:g} there is no output of {channels} channels for '
                f'{part} ({classes} labels, {config.bins} bins), only {have}'
            )
        # Where two have as many channels, the export's order decides: boxes come first.
        rest.remove(fitting[0])
        count, bins = (4, config.bins) if part == 'boxes' else (channels, 1)
        found[part] = Span(fitting[0].name, count, bins=bins)
    values = (found['boxes'], *([found['keypoints']] if config.keypoints else []))
    return Head(
        found['classes'], values, stride, 'sigmoid', multi_label=config.multi_label
    )
