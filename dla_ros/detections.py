"""What a detector finds in an image, as plain arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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

    """

    xyxy: npt.NDArray[np.float32]
    score: npt.NDArray[np.float32]
    class_id: npt.NDArray[np.int32]

    def __post_init__(self) -> None:
        """Raise ValueError if the arrays do not fit together."""
        n = len(self.score)
        for name, shape, dtype in (
            ('xyxy', (n, 4), np.float32), ('score', (n,), np.float32), ('class_id', (n,), np.int32)
        ):
            array = getattr(self, name)
            if array.shape != shape or array.dtype != dtype:
                raise ValueError(
                    f'{name} must be {np.dtype(dtype).name} {shape}, '
                    f'but got {array.dtype} {array.shape}'
                )

    @classmethod
    def empty(cls) -> Detections:
        """Return no detections."""
        return cls(np.empty((0, 4), np.float32), np.empty(0, np.float32), np.empty(0, np.int32))

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self.score)

    def __getitem__(self, index: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Detections:
        """Return the objects that a numpy index array or mask selects."""
        return Detections(self.xyxy[index], self.score[index], self.class_id[index])

    def rows(self) -> Iterator[tuple[tuple[float, float, float, float], float, int]]:
        """Yield (left, top, right, bottom), score, class_id for each object."""
        for box, score, class_id in zip(
            self.xyxy.tolist(), self.score.tolist(), self.class_id.tolist(), strict=True
        ):
            yield (box[0], box[1], box[2], box[3]), score, class_id
