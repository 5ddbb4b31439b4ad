"""One source through one model: every image, in order, as fast as it goes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
import shutil
import time
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from dla_ros.backends.base import BackendOptions
from dla_ros.decoders.base import Thresholds
from dla_ros.detector import Detector
from dla_ros.errors import BackendError
from dla_ros.image import ImageError
from dla_ros.model import ModelError
from dla_ros.predictions import Detections
from dla_ros.replay.bag import DetectionBag
from dla_ros.replay.records import DetectionRecord, FrameRecord
from dla_ros.sources import open_source, SourceEntry, SourceError, SourceImage
from dla_ros.sources.selection import Selection

RECORDS, SUMMARY, BAG, REPORT = 'detections.jsonl', 'summary.json', 'detections', 'report.html'
OVERLAYS, VIDEO = 'overlays', 'overlay.mp4'
THROUGH_ROS, LOGS = 'through_ros.jsonl', ('node.log', 'listener.log', 'player.log')
PERCENTILES = 50, 90, 99
Drawing = Literal['none', 'pictures', 'video']
RUN_ERRORS = SourceError, ModelError, BackendError, OSError
"""Why a run cannot begin."""
_TIMEOUT = 60.0  # Seconds for one image.
_VIDEO_RATE = 10.0  # Images per second.


@dataclass(frozen=True)
class Job:
    """All that one run needs; it can be sent to another process.

    Attributes
    ----------
    source:
        See open_source.
    out:
        The folder that everything is written to.
    model, backend, options:
        See Detector.open.
    topics:
        See open_source.
    drawing:
        Whether to draw what was found: `pictures` or a `video`.

    """

    source: str
    out: Path
    model: str
    backend: str = 'onnxruntime'
    options: BackendOptions = field(default_factory=BackendOptions)
    topics: tuple[str, ...] = ()
    thresholds: Thresholds = field(default_factory=Thresholds)
    selection: Selection = field(default_factory=Selection)
    drawing: Drawing = 'none'


class Summary(BaseModel):
    """How a run went; summary.json.

    Attributes
    ----------
    frames, detections:
        How many images have a line in detections.jsonl, and the objects in them.
    unreadable:
        (name, why) of the images that were left out.
    failure:
        Why the run ended early; '' if it did not.
    seconds:
        What it took.
    stages:
        Milliseconds by stage: PERCENTILES of them.
    about:
        The backend's versions.

    """

    source: str
    model: str
    backend: str
    frames: int = 0
    detections: int = 0
    unreadable: list[tuple[str, str]] = []
    failure: str = ''
    seconds: float = 0.0
    stages: dict[str, list[float]] = {}
    about: dict[str, str] = {}


def clear(out: Path) -> None:
    """Remove what a run and what follows it write, and nothing else."""
    for name in (RECORDS, SUMMARY, REPORT, VIDEO, THROUGH_ROS, *LOGS):
        (out / name).unlink(missing_ok=True)
    for name in (BAG, OVERLAYS):
        shutil.rmtree(out / name, ignore_errors=True)


def attempt(job: Job, stop: Callable[[], bool] = lambda: False) -> Summary:
    """Run a job; one that cannot begin has a summary that says why."""
    try:
        return run_job(job, stop=stop)
    except RUN_ERRORS as error:
        return Summary(
            source=job.source, model=job.model, backend=job.backend, failure=str(error)
        )


def run_job(
    job: Job,
    *,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Summary:
    """Run a source through a model and write detections.jsonl, summary.json and a bag.

    What was found is on disk after each image, whatever happens next.

    Parameters
    ----------
    job:
        See there; what an earlier run wrote to its folder is removed.
    stop:
        Asked before each image whether to end early.
    progress:
        Told after each image how many of at most how many are done.

    Raises
    ------
    SourceError, ModelError, BackendError
        If the run cannot begin; what goes wrong later is in the summary.

    """
    began = time.monotonic()
    summary = Summary(source=job.source, model=job.model, backend=job.backend)
    source = open_source(job.source, job.topics)
    with ExitStack() as stack:
        detector = stack.enter_context(
            Detector.open(job.model, backend=job.backend, options=job.options)
        )
        if detector.decoder.makes is not Detections:
            raise ModelError(
                f'model {detector.model.name!r} has a decoder that makes no '
                'detections, and replay is about them'
            )
        summary.about = dict(detector.backend.about)
        job.out.mkdir(parents=True, exist_ok=True)
        clear(job.out)
        run = _Run(job, detector, stack)
        total = job.selection.most(source)
        try:
            for done, entry in enumerate(job.selection.entries(source)):
                if stop():
                    summary.failure = f'interrupted after {done} of {total} images'
                    break
                try:
                    run.process(entry)
                except (SourceError, ImageError) as error:
                    summary.unreadable.append((entry.name, str(error)))
                progress(done + 1, total)
        except (SourceError, BackendError) as error:
            summary.failure = str(error)
        except KeyboardInterrupt:
            summary.failure = 'interrupted'
        summary.frames, summary.detections = run.frames, run.detections
        summary.stages = run.percentiles()
    if not summary.frames and not summary.failure:
        summary.failure = f'no image was processed, {len(summary.unreadable)} were unreadable'
    summary.seconds = time.monotonic() - began
    (job.out / SUMMARY).write_text(summary.model_dump_json(indent=2) + '\n')
    return summary


class _Run:
    """The files of one run, and its counts."""

    def __init__(self, job: Job, detector: Detector, stack: ExitStack) -> None:
        self._job = job
        self._detector = detector
        self._file = stack.enter_context((job.out / RECORDS).open('w'))
        self._bag = DetectionBag(job.out / BAG)
        stack.callback(self._bag.close)
        self._film = _Film(job.out / VIDEO)
        stack.callback(self._film.close)
        self._samples: dict[str, list[float]] = {}
        self.frames = self.detections = 0

    def process(self, entry: SourceEntry) -> None:
        start = time.perf_counter()
        image = entry.load()
        read = 1e3 * (time.perf_counter() - start)
        self._detector.submit(0, image.view, self._job.thresholds)
        result = self._detector.collect(0, _TIMEOUT)
        labels = self._detector.model.labels
        assert isinstance(result.prediction, Detections)
        rows = [(labels[i], score, box) for box, score, i in result.prediction.rows()]
        record = FrameRecord(
            index=entry.index, name=entry.name, topic=entry.topic, stamp=image.stamp,
            frame_id=image.frame_id, width=image.width, height=image.height,
            detections=tuple(map(DetectionRecord.of, rows)),
        )
        self._file.write(record.model_dump_json() + '\n')
        self._file.flush()
        self._bag.write(record)
        self._draw(image, record)
        for stage, milliseconds in {'read': read, **result.stages}.items():
            self._samples.setdefault(stage, []).append(milliseconds)
        self.frames += 1
        self.detections += len(rows)

    def _draw(self, image: SourceImage, record: FrameRecord) -> None:
        if self._job.drawing == 'none':
            return
        overlay = image.overlay([found.row for found in record.detections])
        if self._job.drawing == 'video':
            self._film.add(overlay)
            return
        import cv2

        folder = self._job.out / OVERLAYS
        folder.mkdir(exist_ok=True)
        cv2.imwrite(str(folder / f'{record.index:06d}.jpg'), overlay)

    def percentiles(self) -> dict[str, list[float]]:
        return {
            stage: [round(float(p), 3) for p in np.percentile(times, PERCENTILES)]
            for stage, times in self._samples.items()
        }


class _Film:
    """A video file that begins with its first image; all have the size of that one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None
        self._size = (0, 0)

    def add(self, image: npt.NDArray[np.uint8]) -> None:
        import cv2

        if self._writer is None:
            self._size = image.shape[1], image.shape[0]
            code = cv2.VideoWriter.fourcc(*'mp4v')
            self._writer = cv2.VideoWriter(str(self._path), code, _VIDEO_RATE, self._size)
        self._writer.write(cv2.resize(image, self._size))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.release()
