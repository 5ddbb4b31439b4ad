"""report.html: what was found, what has changed, how long it took, in one file to look at."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
import io
from typing import Any

import numpy as np
import numpy.typing as npt

from dla_ros.image import ImageError
from dla_ros.overlay import contact_sheet, label_color
from dla_ros.replay.compare import FrameComparison, KINDS
from dla_ros.replay.outcome import Outcome
from dla_ros.replay.records import FrameRecord
from dla_ros.replay.run import Job, PERCENTILES
from dla_ros.sources import open_source, SourceError, SourceImage

_SHEET, _WORST, _CLASSES = 12, 8, 8


def report(title: str, outcomes: Sequence[Outcome]) -> str:
    """Return the page, self-contained; the pictures are read from the sources again."""
    from jinja2 import Environment

    template = (files('dla_ros.replay') / 'report.html.j2').read_text('utf-8')
    return Environment(autoescape=True).from_string(template).render(
        title=title, parts=[(outcome, _illustrations(outcome)) for outcome in outcomes],
        kinds=KINDS, percentiles=PERCENTILES,
    )


def _illustrations(outcome: Outcome) -> dict[str, Any]:
    records = outcome.records
    chosen = records[:: max(1, -(-len(records) // _SHEET))]
    worst = outcome.comparison.worst(_WORST) if outcome.comparison else []
    wanted = {record.index for record in chosen} | {frame.frame.index for frame in worst}
    images = _images(outcome.job, wanted) if wanted else {}
    sheet = [
        images[record.index].overlay([found.row for found in record.detections])
        for record in chosen if record.index in images
    ]
    return {
        'sheet': _jpeg(contact_sheet(sheet)) if sheet else '',
        'worst': [(frame, _beside(frame, images.get(frame.frame.index))) for frame in worst],
        'charts': [_classes_over_time(records), _scores(records)] if records else [],
    }


def _images(job: Job, wanted: set[int]) -> dict[int, SourceImage]:
    images: dict[int, SourceImage] = {}
    left = set(wanted)
    # What is broken is in the summary already; the report shows what there is.
    with suppress(SourceError):
        for entry in open_source(job.source, job.topics):
            if entry.index in left:
                left.remove(entry.index)
                with suppress(SourceError, ImageError):
                    image = entry.load()
                    image.view.require_color()
                    images[entry.index] = image
            if not left:
                break
    return images


def _beside(frame: FrameComparison, image: SourceImage | None) -> str:
    if image is None:
        return ''
    sides = [
        image.overlay([found.row for found in side.detections] if side else [])
        for side in (frame.expected, frame.found)
    ]
    return _jpeg(contact_sheet(sides, columns=2, height=360))


def _jpeg(image: npt.NDArray[np.uint8]) -> str:
    import cv2

    _, data = cv2.imencode('.jpg', image)
    return base64.b64encode(data.tobytes()).decode()


def _figure(title: str, x: str, y: str) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3), layout='constrained')
    axes = figure.add_subplot()
    axes.set(title=title, xlabel=x, ylabel=y)
    return figure, axes


def _svg(figure: Any) -> str:
    import matplotlib

    text = io.StringIO()
    # The same run gives the same file.
    with matplotlib.rc_context({'svg.hashsalt': 'dla_ros'}):
        figure.savefig(text, format='svg', metadata={'Date': None})
    drawing = text.getvalue()
    return drawing[drawing.index('<svg'):]


def _classes_over_time(records: Sequence[FrameRecord]) -> str:
    counts = [Counter(found.class_id for found in record.detections) for record in records]
    total = sum(counts, Counter())
    figure, axes = _figure('Objects by class', 'image', 'objects')
    for label, _ in total.most_common(_CLASSES):
        blue, green, red = label_color(label)
        axes.plot(
            [record.index for record in records], [count[label] for count in counts],
            label=label, color=(red / 255, green / 255, blue / 255), marker='.', linewidth=1,
        )
    if total:
        axes.legend(loc='upper left', bbox_to_anchor=(1, 1))
    return _svg(figure)


def _scores(records: Sequence[FrameRecord]) -> str:
    scores = [found.score for record in records for found in record.detections]
    figure, axes = _figure('Scores', 'score', 'objects')
    axes.hist(scores, bins=40, range=(0, 1), color='#76b900')
    return _svg(figure)
