"""What came of a run, compared with what was expected of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dla_ros.replay.accuracy import Accuracy, accuracy
from dla_ros.replay.compare import compare, Comparison, Tolerance
from dla_ros.replay.records import FrameRecord, read_records
from dla_ros.replay.run import Job, RECORDS, Summary


@dataclass(frozen=True)
class Outcome:
    """What came of one source.

    Attributes
    ----------
    records:
        What was found.
    expected:
        The name of what it is compared with, in `comparison`.
    through_ros:
        What came through ROS compared with `records`, for each time the source was played.

    """

    job: Job
    summary: Summary
    records: list[FrameRecord]
    expected: str = ''
    comparison: Comparison | None = None
    accuracy: Accuracy | None = None
    through_ros: tuple[Comparison, ...] = ()

    @property
    def different(self) -> bool:
        """Whether something was expected and it is not what was found."""
        return any(not comparison.equal for comparison in self._comparisons)

    @property
    def _comparisons(self) -> tuple[Comparison, ...]:
        return (*self.through_ros, *([self.comparison] if self.comparison else []))

    @property
    def good(self) -> bool:
        """Whether there is nothing to worry about."""
        return not self.summary.failure and not self.different

    @property
    def verdict(self) -> str:
        """Return all of it in a few words."""
        if self.summary.failure:
            return self.summary.failure
        if not self._comparisons:
            return 'done'
        count = sum(comparison.differences for comparison in self._comparisons)
        return f'{count} differences' if count else 'as expected'


def examine(
    job: Job,
    summary: Summary,
    *,
    golden: Path | None = None,
    tolerance: Tolerance | None = None,
    ground_truth: Path | None = None,
) -> Outcome:
    """Compare what a run has written with what is expected.

    Parameters
    ----------
    job, summary:
        The run.
    golden:
        A detections.jsonl.
    tolerance:
        By default that of tolerance_of.
    ground_truth:
        Labels in COCO's format.

    Raises
    ------
    RecordError, GroundTruthError
        If what is expected cannot be read.

    """
    # A run that did not begin has left what an earlier one wrote.
    records = read_records(job.out / RECORDS) if summary.frames else []
    comparison = None
    if golden is not None:
        comparison = compare(read_records(golden), records, tolerance or tolerance_of(job))
    return Outcome(
        job, summary, records, golden.name if golden else '', comparison,
        accuracy(ground_truth, records) if ground_truth and records else None,
    )


def tolerance_of(job: Job, iou: float = 0.5, score: float = 0.05) -> Tolerance:
    """Return the tolerance for a job, whose confidence threshold counts."""
    return Tolerance(iou, score, job.thresholds.confidence)
