"""The replay tool: its command line, and what it prints."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
import glob
import os
from pathlib import Path
import shutil
import sys
from typing import Any

from dla_ros.backends import BACKENDS
from dla_ros.backends.base import BackendOptions
from dla_ros.decoders.base import Thresholds
from dla_ros.parameters import Parameter, PARAMETERS
from dla_ros.replay.accuracy import GroundTruthError
from dla_ros.replay.compare import by_stamp, compare, KINDS
from dla_ros.replay.many import ClusterError, run_in_processes, run_on_dask
from dla_ros.replay.outcome import examine, Outcome, tolerance_of
from dla_ros.replay.records import RecordError
from dla_ros.replay.report import report
from dla_ros.replay.run import Job, RECORDS, REPORT, RUN_ERRORS, run_job, Summary
from dla_ros.sources.selection import Selection, whole_number
from dla_ros.tools.processes import ProcessError
from dla_ros.tools.through_ros import play_through_ros

EQUAL, DIFFERENT, FAILED = 0, 1, 2
_THE_SAME = 0.95, 0.01  # IoU and score: what the way through messages may change.


class ReplayError(Exception):
    """A replay that cannot be done as it was asked for; the text says why."""


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(
        prog='python -m dla_ros replay',
        description='Run recorded images through a model, the same every time, and say what has '
        'changed.',
        epilog='Exit code: 0 nothing has changed, 1 something has, 2 it could not be run, or not '
        'to its end.',
    )
    made.add_argument(
        'source', nargs='+', help='rosbag2 folder, mcap or db3 file, video, picture, folder of '
        'pictures; several of them, or a quoted glob, run in parallel',
    )
    made.add_argument('--model', required=True, help='a model.yaml, its folder, or a shipped name')
    made.add_argument(
        '--topic', action='append', default=[], metavar='T',
        help='an image topic of a bag; may be given several times; default: its only one',
    )
    made.add_argument('--out', type=Path, default=Path('out/replay'), help='%(default)s')
    made.add_argument('--force', action='store_true', help='overwrite what is in --out')
    backend = made.add_argument_group('what runs the network')
    backend.add_argument(
        '--backend', choices=tuple(BACKENDS), default='onnxruntime', help='%(default)s'
    )
    backend.add_argument('--emulate', action='store_true', help='emulate the DLA')
    backend.add_argument('--threads', type=int, default=0, help='of the CPU; 0: one per core')
    for parameter in PARAMETERS:
        if parameter.name in ('confidence_threshold', 'nms_threshold', 'max_detections'):
            backend.add_argument(
                f'--{parameter.name.replace("_", "-")}', type=_checked(parameter),
                default=parameter.default, help=f'{parameter.description} (%(default)s)',
            )
    Selection.add_arguments(made.add_argument_group('which images'))
    made.add_argument(
        '--draw', choices=('none', 'pictures', 'video'), default='none',
        help='draw what was found on every image',
    )
    golden = made.add_argument_group('what is expected')
    golden.add_argument(
        '--expect', type=Path, metavar='GOLDEN.jsonl',
        help='compare with this; for several sources a folder, with NAME.jsonl for each',
    )
    golden.add_argument('--iou', type=float, default=0.5, help='least overlap (%(default)s)')
    golden.add_argument(
        '--score-tolerance', type=float, default=0.05,
        help='largest difference of scores; an object so close to the confidence threshold may '
        'also come or go (%(default)s)',
    )
    golden.add_argument('--accept', action='store_true', help='write --expect anew')
    golden.add_argument(
        '--ground-truth', type=Path, metavar='COCO.json', help='labels: gives mAP'
    )
    ros = made.add_argument_group('the same through ROS')
    ros.add_argument(
        '--through-ros', action='store_true', help='then play the source over DDS into the real '
        'node, under simulated time, and compare what comes out with the run without ROS',
    )
    ros.add_argument('--rate', type=float, default=5.0, help='images per second (%(default)s)')
    ros.add_argument('--loop', type=whole_number, default=1, metavar='N', help='play N times')
    many = made.add_argument_group('several sources')
    many.add_argument(
        '--jobs', type=whole_number, default=os.cpu_count() or 1, help='processes (%(default)s)'
    )
    many.add_argument('--dask', metavar='ADDRESS', help='run on the cluster of this scheduler')
    return made


def _checked(parameter: Parameter) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            return parameter.check(type(parameter.default)(text))
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return convert


def run(words: Sequence[str] | None, stop: Callable[[], bool]) -> int:
    """Replay; return 0 if all is as expected, 1 if not, 2 if it could not be run.

    `stop` is asked now and then whether to end early.
    """
    options = parser().parse_args(words)
    try:
        jobs = _jobs(options)
        _make_room(options, jobs)
        summaries = _run(options, jobs, stop)
        outcomes = [
            _examine(options, job, summary, len(jobs))
            for job, summary in zip(jobs, summaries, strict=True)
        ]
        if options.through_ros and outcomes[0].good:
            outcomes = [_through_ros(options, outcomes[0], stop)]
    except (
        *RUN_ERRORS, ReplayError, ClusterError, RecordError, GroundTruthError, ProcessError
    ) as error:
        print(f'replay: {error}', file=sys.stderr)
        return FAILED
    path = options.out / REPORT
    path.write_text(report(f'{options.model} on {options.backend}', outcomes), 'utf-8')
    _print(outcomes, path)
    if any(outcome.summary.failure for outcome in outcomes):
        return FAILED
    if options.accept:
        for outcome in outcomes:
            golden = _golden(options, outcome.job, len(outcomes))
            golden.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(outcome.job.out / RECORDS, golden)
        return EQUAL
    return DIFFERENT if any(outcome.different for outcome in outcomes) else EQUAL


def _jobs(options: argparse.Namespace) -> list[Job]:
    if options.accept and options.expect is None:
        raise ReplayError('--accept needs --expect, the file to write')
    sources = [
        path for text in options.source
        for path in sorted(glob.glob(text)) or [text]  # noqa: PTH207 - any text, not a folder's
    ]
    model = str(Path(options.model).absolute()) if Path(options.model).exists() else options.model
    # Side by side, each with its share of the machine.
    together = 1 if options.dask else min(options.jobs, len(sources))
    threads = options.threads or max(1, (os.cpu_count() or 1) // together)
    names = _names(sources)
    if options.through_ros and (len(sources) > 1 or len(options.topic) > 1 or options.rate <= 0):
        raise ReplayError('--through-ros takes one source, one topic, and a --rate above 0')
    return [
        Job(
            source=str(Path(source).absolute()),
            out=(options.out / name if len(sources) > 1 else options.out).absolute(),
            model=model, backend=options.backend, topics=tuple(options.topic),
            options=BackendOptions(emulate=options.emulate, threads=threads),
            thresholds=Thresholds(
                options.confidence_threshold, options.nms_threshold, options.max_detections
            ),
            selection=Selection.of(options),
            drawing=options.draw,
        )
        for source, name in zip(sources, names, strict=True)
    ]


def _names(sources: Sequence[str]) -> list[str]:
    """Return a name for each source's folder, none twice."""
    names: list[str] = []
    for source in sources:
        stem = Path(source).absolute().stem
        name, number = stem, 2
        while name in names:
            name, number = f'{stem}_{number}', number + 1
        names.append(name)
    return names


def _golden(options: argparse.Namespace, job: Job, count: int) -> Path:
    path: Path = options.expect
    return path / f'{job.out.name}.jsonl' if count > 1 else path


def _make_room(options: argparse.Namespace, jobs: Sequence[Job]) -> None:
    if not options.force:
        for folder in {options.out.absolute(), *(job.out for job in jobs)}:
            if folder.exists() and any(folder.iterdir()):
                raise ReplayError(f'{folder} is not empty; use --force to overwrite')
    if options.expect and not options.accept:
        for job in jobs:
            path = _golden(options, job, len(jobs))
            if not path.is_file():
                raise ReplayError(f'{path} does not exist; --accept writes it')
    options.out.mkdir(parents=True, exist_ok=True)


def _run(
    options: argparse.Namespace, jobs: Sequence[Job], stop: Callable[[], bool]
) -> list[Summary]:
    single = len(jobs) == 1 and not options.dask
    progress, task = _bar('images' if single else 'sources')
    with progress:
        if single:
            def show(done: int, total: int) -> None:
                progress.update(task, completed=done, total=total)

            return [run_job(jobs[0], stop=stop, progress=show)]
        progress.update(task, total=len(jobs))

        def tell(summary: Summary) -> None:
            progress.print(f'{summary.source}: {summary.failure or f"{summary.frames} images"}')
            progress.advance(task)

        if options.dask:
            return run_on_dask(jobs, options.dask, stop=stop, done=tell)
        return run_in_processes(jobs, min(options.jobs, len(jobs)), stop=stop, done=tell)


def _bar(description: str) -> Any:
    """Return a progress display with one bar, and the bar."""
    from rich import progress as bars

    class Speed(bars.ProgressColumn):
        def render(self, task: bars.Task) -> str:
            return f'{task.speed:.1f}/s' if task.speed else ''

    progress = bars.Progress(
        bars.TextColumn('{task.description}'), bars.BarColumn(), bars.MofNCompleteColumn(),
        Speed(), bars.TimeElapsedColumn(), bars.TimeRemainingColumn(),
    )
    return progress, progress.add_task(description, total=None)


def _through_ros(
    options: argparse.Namespace, outcome: Outcome, stop: Callable[[], bool]
) -> Outcome:
    if any(record.stamp is None for record in outcome.records):
        raise ReplayError('--through-ros is for bags and videos: pictures have no stamps')
    progress, task = _bar('through ROS')
    with progress:
        loops = play_through_ros(
            outcome.job, rate=options.rate, loops=options.loop, total=len(outcome.records),
            stop=stop, progress=lambda done, total: progress.update(
                task, completed=done, total=total
            ),
        )
    tolerance = tolerance_of(outcome.job, *_THE_SAME)
    return replace(outcome, through_ros=tuple(
        compare(outcome.records, records, tolerance, by_stamp) for records in loops
    ))


def _examine(options: argparse.Namespace, job: Job, summary: Summary, count: int) -> Outcome:
    return examine(
        job, summary,
        golden=_golden(options, job, count) if options.expect and not options.accept else None,
        tolerance=tolerance_of(job, options.iou, options.score_tolerance),
        ground_truth=options.ground_truth,
    )


def _print(outcomes: Sequence[Outcome], path: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for outcome in outcomes:
        summary = outcome.summary
        table = Table(show_header=False)
        table.add_row('source', summary.source)
        table.add_row('images', str(summary.frames))
        table.add_row('objects', str(summary.detections))
        for name, why in summary.unreadable:
            table.add_row('unreadable', f'{name}: {why}')
        table.add_row('rate', f'{summary.frames / max(summary.seconds, 1e-9):.1f} images/s')
        if outcome.accuracy:
            table.add_row(
                'mAP', f'{outcome.accuracy.map:.3f}, at IoU 0.5 {outcome.accuracy.map50:.3f}, on '
                f'{outcome.accuracy.images} labeled images',
            )
        for i, comparison in enumerate(outcome.through_ros, 1):
            table.add_row(
                f'through ROS, time {i}', f'{len(comparison.frames)} images, '
                f'{comparison.differences} differences',
            )
        table.add_row('result', outcome.verdict)
        console.print(table)
        if outcome.comparison:
            changes = Table('class', *KINDS, title=f'compared with {outcome.expected}')
            for label, counts in outcome.comparison.counts().items():
                changes.add_row(label, *(str(counts[kind]) for kind in KINDS))
            console.print(changes)
    console.print(f'report: {path}')
