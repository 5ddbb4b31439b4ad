"""Average precision against labels in COCO's format, by pycocotools."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import redirect_stdout
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

from dla_ros.replay.records import FrameRecord


class Accuracy(NamedTuple):
    """Average precision over IoU 0.5 to 0.95, at 0.5, at 0.75, over so many labeled images."""

    map: float
    map50: float
    map75: float
    images: int


class GroundTruthError(ValueError):
    """Labels that cannot be used; the text says why."""


def accuracy(ground_truth: Path, records: Sequence[FrameRecord]) -> Accuracy:
    """Compare detections with labels.

    Images belong together by file name, classes by name, in whatever case.

    Raises
    ------
    GroundTruthError
        If the file is no COCO file, or none of its images is among the records.

    """
    try:
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval
    except ImportError as error:
        raise GroundTruthError(f'--ground-truth needs pycocotools: {error}') from error

    with redirect_stdout(io.StringIO()):
        try:
            truth = COCO(str(ground_truth))
            results, images = _results(truth.dataset, records)
        except (OSError, KeyError, TypeError, AssertionError, json.JSONDecodeError) as error:
            raise GroundTruthError(f'{ground_truth} is no COCO file: {error!r}') from error
        if not images:
            raise GroundTruthError(
                f'{ground_truth}: none of its {len(truth.dataset["images"])} file names is among '
                f'the {len(records)} images'
            )
        if not results:
            return Accuracy(0.0, 0.0, 0.0, len(images))
        evaluation = COCOeval(truth, truth.loadRes(results), 'bbox')
        evaluation.params.imgIds = images
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    average, average50, average75 = (float(value) for value in evaluation.stats[:3])
    return Accuracy(average, average50, average75, len(images))


def _results(
    truth: dict[str, Any], records: Sequence[FrameRecord]
) -> tuple[list[dict[str, Any]], list[int]]:
    ids = {image['file_name']: image['id'] for image in truth['images']}
    categories = {c['name'].lower(): c['id'] for c in truth['categories']}
    labeled = [record for record in records if record.name in ids]
    results = []
    for record in labeled:
        for found in record.detections:
            left, top, right, bottom = found.xyxy
            # A class that is not labeled is neither right nor wrong.
            if found.class_id.lower() in categories:
                results.append({
                    'image_id': ids[record.name],
                    'category_id': categories[found.class_id.lower()],
                    'bbox': [left, top, right - left, bottom - top], 'score': found.score,
                })
    return results, [ids[record.name] for record in labeled]
