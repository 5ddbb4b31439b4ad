"""detections.jsonl: what was found, one line of JSON for each image."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from dla_ros.overlay import Row


class RecordError(ValueError):
    """A file of detections that cannot be read; the text names the line."""


class DetectionRecord(BaseModel):
    """One object: the class's label, a score, left, top, right, bottom in source pixels."""

    model_config = ConfigDict(frozen=True)

    class_id: str
    score: float
    xyxy: tuple[float, float, float, float]

    @classmethod
    def of(cls, row: Row) -> DetectionRecord:
        """Round, so that a difference in the last bits is none in the file."""
        label, score, (left, top, right, bottom) = row
        box = round(left, 2), round(top, 2), round(right, 2), round(bottom, 2)
        return cls(class_id=label, score=round(score, 4), xyxy=box)

    @property
    def row(self) -> Row:
        """As the overlay takes it."""
        return self.class_id, self.score, self.xyxy


class FrameRecord(BaseModel):
    """One image and what was found in it, the best first.

    Attributes
    ----------
    index:
        Its place in the source.
    name:
        A picture's file name; bag or video and index.
    topic, frame_id:
        '' where the source has none.
    stamp:
        Nanoseconds, or None where the source has none.
    width, height:
        Pixels; 0 where only the detections are known.

    """

    model_config = ConfigDict(frozen=True)

    index: int
    name: str = ''
    topic: str = ''
    stamp: int | None = None
    frame_id: str = ''
    width: int = 0
    height: int = 0
    detections: tuple[DetectionRecord, ...]


def write_records(path: Path, records: Iterable[FrameRecord]) -> None:
    """Write a whole file."""
    path.write_text(''.join(record.model_dump_json() + '\n' for record in records))


def read_records(path: Path) -> list[FrameRecord]:
    """Read a whole file; raise RecordError if it is none or has a bad line."""
    try:
        lines = path.read_text('utf-8').splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f'{path}: {error}') from error
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(FrameRecord.model_validate_json(line))
        except ValidationError as error:
            fault = error.errors()[0]
            place = '.'.join(map(str, fault['loc']))
            raise RecordError(f'{path}, line {number}: {place} {fault["msg"]}') from error
    return records
