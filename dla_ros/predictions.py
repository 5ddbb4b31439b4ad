"""What a network says about an image, as plain arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Detections:
    """Objects found in one image, the best first.

    Attributes
    ----------
    xyxy:
        float32 [N, 4]: left, top, right, bottom in pixels of the source image.
    score:
        float32 [N], 0 to 1.
    class_id:
        int32 [N], index into the model's labels.
    keypoints:
        float32 [N, K, 3]: x and y in pixels of the source image, score; None if the network has
        none.

    """

    xyxy: npt.NDArray[np.float32]
    score: npt.NDArray[np.float32]
    class_id: npt.NDArray[np.int32]
    keypoints: npt.NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        """Raise ValueError if the arrays do not fit together."""
        n = len(self.score)
        for name, shape, dtype in (
            ('xyxy', (n, 4), np.float32), ('score', (n,), np.float32), ('class_id', (n,), np.int32)
        ):
            _check(name, getattr(self, name), shape, dtype)
        if self.keypoints is not None:
            _check('keypoints', self.keypoints, (n, *self.keypoints.shape[1:2], 3), np.float32)

    @classmethod
    def empty(cls) -> Detections:
        """Return no detections."""
        return cls(np.empty((0, 4), np.float32), np.empty(0, np.float32), np.empty(0, np.int32))

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self.score)

    def __getitem__(self, index: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Detections:
        """Return the objects that a numpy index array or mask selects."""
        keypoints = None if self.keypoints is None else self.keypoints[index]
        return Detections(
            self.xyxy[index], self.score[index], self.class_id[index], keypoints
        )

    def rows(self) -> Iterator[tuple[tuple[float, float, float, float], float, int]]:
        """Yield (left, top, right, bottom), score, class_id for each object."""
        for box, score, class_id in zip(
            self.xyxy.tolist(), self.score.tolist(), self.class_id.tolist(), strict=True
        ):
            yield (box[0], box[1], box[2], box[3]), score, class_id


@dataclass(frozen=True, eq=False)
class Classification:
    """What one image shows, the likeliest first.

    Attributes
    ----------
    score:
        float32 [N], 0 to 1.
    class_id:
        int32 [N], index into the model's labels.

    """

    score: npt.NDArray[np.float32]
    class_id: npt.NDArray[np.int32]

    def __post_init__(self) -> None:
        """Raise ValueError if the arrays do not fit together."""
        _check('score', self.score, (len(self.score),), np.float32)
        _check('class_id', self.class_id, (len(self.score),), np.int32)

    def __len__(self) -> int:
        """Return the number of classes."""
        return len(self.score)


VOID = 255
"""The label of pixels that the network has not seen: outside of its region of interest."""


@dataclass(frozen=True, eq=False)
class Segmentation:
    """What each pixel shows.

    Attributes
    ----------
    class_id:
        uint8 [h, w], index into the model's labels, or VOID. It covers the source image, in its
        size or, scaled, in another.
    confidence:
        float32 [h, w], 0 to 1; None unless the model asks for it.

    """

    class_id: npt.NDArray[np.uint8]
    confidence: npt.NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        """Raise ValueError if the arrays do not fit together."""
        shape = self.class_id.shape[:2]
        _check('class_id', self.class_id, shape, np.uint8)
        if self.confidence is not None:
            _check('confidence', self.confidence, shape, np.float32)


Prediction = Detections | Classification | Segmentation
"""Whatever a decoder makes of a frame."""


def _check(name: str, array: npt.NDArray[Any], shape: tuple[int, ...], dtype: Any) -> None:
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(
            f'{name} must be {np.dtype(dtype).name} {shape}, but got {array.dtype} {array.shape}'
        )
