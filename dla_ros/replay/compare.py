"""What is different between two files of detections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import get_args, Literal

import numpy as np
import numpy.typing as npt

from dla_ros.replay.records import DetectionRecord, FrameRecord

Kind = Literal[
    'matched', 'missing', 'extra', 'moved', 'class changed', 'score changed', 'borderline'
]
KINDS: tuple[str, ...] = get_args(Kind)
"""What can become of an object; all but `matched` and `borderline` are differences."""
_SAME = ('matched', 'borderline')


@dataclass(frozen=True)
class Tolerance:
    """When two objects are the same.

    Attributes
    ----------
    iou:
        Least intersection over union of their boxes.
    score:
        Largest difference of their scores.
    confidence:
        The threshold that was in force: an object within `score` of it may be there or not.

    """

    iou: float = 0.5
    score: float = 0.05
    confidence: float = 0.0


@dataclass(frozen=True)
class Difference:
    """What became of one object."""

    kind: Kind
    expected: DetectionRecord | None
    found: DetectionRecord | None

    @property
    def class_id(self) -> str:
        """The class that it is counted under: the expected one, if there is one."""
        record = self.expected or self.found
        assert record is not None
        return record.class_id


@dataclass(frozen=True)
class FrameComparison:
    """What became of one image; a side is None if it does not have the image."""

    expected: FrameRecord | None
    found: FrameRecord | None
    objects: tuple[Difference, ...]

    @property
    def frame(self) -> FrameRecord:
        """Either side."""
        record = self.found or self.expected
        assert record is not None
        return record

    @property
    def differences(self) -> int:
        """How many objects differ; a missing image counts as one more."""
        alone = self.expected is None or self.found is None
        return alone + sum(difference.kind not in _SAME for difference in self.objects)


@dataclass(frozen=True)
class Comparison:
    """What became of all images, in order."""

    frames: tuple[FrameComparison, ...]

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return self.differences == 0

    @property
    def differences(self) -> int:
        """How many objects and images differ."""
        return sum(frame.differences for frame in self.frames)

    def counts(self) -> dict[str, Counter[str]]:
        """Return how many objects there are of each kind, by class."""
        counts: dict[str, Counter[str]] = {}
        for frame in self.frames:
            for difference in frame.objects:
                counts.setdefault(difference.class_id, Counter())[difference.kind] += 1
        return dict(sorted(counts.items()))

    def worst(self, most: int) -> list[FrameComparison]:
        """Return the images with the most differences."""
        different = [frame for frame in self.frames if frame.differences]
        return sorted(different, key=lambda frame: -frame.differences)[:most]


def by_index(record: FrameRecord) -> Hashable:
    """Return what tells an image from others of its source."""
    return record.index, record.topic


def by_stamp(record: FrameRecord) -> Hashable:
    """Return what tells an image from others on its way through ROS."""
    return record.stamp


def compare(
    expected: Sequence[FrameRecord],
    found: Sequence[FrameRecord],
    tolerance: Tolerance,
    key: Callable[[FrameRecord], Hashable] = by_index,
) -> Comparison:
    """Compare two runs image by image; `key` says which images belong together."""
    left = {key(record): record for record in expected}
    right = {key(record): record for record in found}
    return Comparison(tuple(
        _compare_frame(left.get(place), right.get(place), tolerance)
        for place in {**left, **right}
    ))


def _compare_frame(
    expected: FrameRecord | None, found: FrameRecord | None, tolerance: Tolerance
) -> FrameComparison:
    before = list(expected.detections if expected else ())
    after = list(found.detections if found else ())
    overlaps = _overlaps(before, after)
    alike = np.array([[a.class_id == b.class_id for b in after] for a in before], bool)
    alike = alike.reshape(overlaps.shape)
    near = overlaps >= tolerance.iou
    # The surest pairs first: the same class in the same place, then another class there, then
    # the same class close by.
    passes: tuple[tuple[Kind, npt.NDArray[np.bool_]], ...] = (
        ('matched', near & alike), ('class changed', near), ('moved', alike & (overlaps > 0)),
    )
    objects: list[Difference] = []
    lost, new = dict(enumerate(before)), dict(enumerate(after))
    for kind, allowed in passes:
        for i, j in _by_overlap(overlaps, allowed):
            if i in lost and j in new:
                objects.append(_pair(kind, lost.pop(i), new.pop(j), tolerance))
    objects += [Difference(_alone('missing', r, tolerance), r, None) for r in lost.values()]
    objects += [Difference(_alone('extra', r, tolerance), None, r) for r in new.values()]
    return FrameComparison(expected, found, tuple(objects))


def _pair(
    kind: Kind, expected: DetectionRecord, found: DetectionRecord, tolerance: Tolerance
) -> Difference:
    rescored = abs(expected.score - found.score) > tolerance.score
    return Difference(
        'score changed' if kind == 'matched' and rescored else kind, expected, found
    )


def _alone(kind: Kind, record: DetectionRecord, tolerance: Tolerance) -> Kind:
    return 'borderline' if record.score < tolerance.confidence + tolerance.score else kind


def _by_overlap(
    overlaps: npt.NDArray[np.float64], allowed: npt.NDArray[np.bool_]
) -> list[tuple[int, int]]:
    """Return the pairs of rows and columns that are allowed, the best first."""
    pairs = np.argwhere(allowed)
    order = np.argsort(-overlaps[allowed], kind='stable')
    return [(int(i), int(j)) for i, j in pairs[order]]


def _overlaps(
    left: Sequence[DetectionRecord], right: Sequence[DetectionRecord]
) -> npt.NDArray[np.float64]:
    """Return the intersections over unions, float64 [left, right]."""
    a = np.array([record.xyxy for record in left], np.float64).reshape(-1, 1, 4)
    b = np.array([record.xyxy for record in right], np.float64).reshape(1, -1, 4)
    sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    common = sides.clip(0).prod(-1)
    areas = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1)
    shares: npt.NDArray[np.float64] = common / np.maximum(areas - common, 1e-9)
    return shares
