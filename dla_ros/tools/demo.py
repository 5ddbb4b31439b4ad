"""Find objects in real pictures and a real clip: a player, the node and a listener over DDS."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
import shutil
import signal
import sys
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from dla_ros import launching
from dla_ros.replay.records import FrameRecord, read_records
from dla_ros.resources import share_directory
from dla_ros.tools.processes import PATIENCE, ProcessError, Processes

_CLIP_TOPIC = '/camera/image_raw/compressed'
_SETTLE = 10.0  # Seconds without news after which frames are missing.
_SHEET = 12  # Pictures on the overview.


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='demo', description=__doc__)
    parser.add_argument(
        'source', nargs='*', help='pictures, folders, rosbag2 folders; default: those of the demo'
    )
    parser.add_argument('--topic', default=_CLIP_TOPIC, help='image topic of a bag (%(default)s)')
    parser.add_argument('--model', default='yolox_nano', help='%(default)s')
    parser.add_argument('--backend', default='onnxruntime', help='%(default)s')
    parser.add_argument('--rate', type=float, default=5.0, help='images per second (%(default)s)')
    parser.add_argument('--out', type=Path, default=Path('out/demo'), help='%(default)s')
    parser.add_argument('--force', action='store_true', help='overwrite what is in --out')
    return parser


class Account:
    """What became of each frame."""

    def __init__(self) -> None:
        self.sent: dict[int, dict[str, Any]] = {}
        self.received: dict[int, dict[str, Any]] = {}
        self.values: dict[str, str] = {}
        self.player_code: int | None = None

    def take(self, event: dict[str, Any]) -> None:
        """Add an event of one of the processes."""
        if event['event'] == 'sent':
            self.sent[event['stamp']] = event
        elif event['event'] == 'received':
            self.received[event['stamp']] = event
        elif event['event'] == 'status':
            self.values = event['values']

    @property
    def dropped(self) -> dict[str, int]:
        """Frames that the node says it dropped, by reason."""
        prefix = 'dropped '
        return {
            key.removeprefix(prefix): int(value)
            for key, value in self.values.items()
            if key.startswith(prefix)
        }

    @property
    def counted(self) -> int:
        """Frames that the node says it received."""
        return int(self.values.get('received', 0))

    @property
    def missing(self) -> int:
        """Frames that were sent and that nobody can tell anything about."""
        return len(self.sent) - len(self.received) - sum(self.dropped.values())

    def latencies(self) -> list[float]:
        """Return milliseconds from publishing the image to receiving its detections."""
        return [
            (event['received'] - self.sent[stamp]['sent']) / 1e6
            for stamp, event in self.received.items()
            if stamp in self.sent
        ]


def main(words: list[str] | None = None) -> int:
    """Run the demo; return 0 if every frame is accounted for, 1 if not, 2 if it cannot start."""
    options = _parser().parse_args(words)
    # As an exception, so that the three processes are ended too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    if options.out.exists() and any(options.out.iterdir()):
        if not options.force:
            print(f'demo: {options.out} is not empty; use --force to overwrite', file=sys.stderr)
            return 2
        shutil.rmtree(options.out)
    options.out.mkdir(parents=True, exist_ok=True)
    demo = share_directory() / 'demo'
    sources = options.source or [str(demo / 'pictures'), str(demo / 'clip')]
    from dla_ros.model import Model, ModelError
    from dla_ros.sources import read_images, SourceError

    try:
        Model.load(options.model)
        total = sum(1 for _ in read_images(sources, options.topic))
        account = _run(options, sources, total)
        _draw(options, sources, account)
    except (ModelError, SourceError, ProcessError) as error:
        print(f'demo: {error}', file=sys.stderr)
        return 1
    _print_table(options, account)
    if account.missing or len(account.sent) != total:
        print(
            f'demo: {account.missing} frames are missing, {len(account.sent)} of {total} sent',
            file=sys.stderr,
        )
        return 1
    return 0


def _run(options: argparse.Namespace, sources: list[str], total: int) -> Account:
    account, processes = Account(), Processes(options.out)
    node = launching.detector({'model': options.model, 'backend': options.backend})
    # The way in is reliable here: the demo is to show every picture.
    node.parameters.update(input_qos='DEFAULT', input_queue_size=20)
    try:
        processes.start('node', 'dla_ros.main', *node.ros_arguments())
        processes.start(
            'listener', 'dla_ros', 'listen', '--json', '--force',
            '--out', str(options.out / 'detections.jsonl'),
        )
        processes.await_ready()
        processes.start(
            'player', 'dla_ros', 'play', *sources, '--topic', options.topic, '--json',
            '--rate', str(options.rate), '--wait', str(PATIENCE),
        )
        _follow(processes, account, total)
    finally:
        codes = processes.end()
    processes.check(codes)
    return account


def _follow(processes: Processes, account: Account, total: int) -> None:
    from rich import progress as bars

    columns = (
        bars.TextColumn('{task.description}'), bars.BarColumn(), bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(), bars.TextColumn('{task.fields[found]} objects'),
    )
    news, player_ended = time.monotonic(), False
    with bars.Progress(*columns) as progress:
        task = progress.add_task('frames', total=total, found=0)
        # The node reports its counts once a second: wait for the report that has all frames.
        while not player_ended or account.missing > 0 or account.counted < len(account.sent):
            waited = time.monotonic() - news
            if player_ended and waited > _SETTLE:
                return
            event = processes.next_event(PATIENCE, 'frame')
            account.take(event)
            player_ended |= event['event'] == 'ended'
            if event['event'] in ('sent', 'received'):
                news = time.monotonic()
            done = len(account.received) + sum(account.dropped.values())
            found = sum(event['found'] for event in account.received.values())
            progress.update(task, completed=done, found=found)


def _draw(options: argparse.Namespace, sources: list[str], account: Account) -> None:
    """Write an overlay of every frame, and a sheet of photos and moments of the clip."""
    import cv2

    from dla_ros.overlay import contact_sheet
    from dla_ros.sources import read_images

    found = {record.stamp: record.detections for record in _records(options)}
    stamps = {event['name']: stamp for stamp, event in account.sent.items()}
    photos: list[npt.NDArray[np.uint8]] = []
    clip: list[npt.NDArray[np.uint8]] = []
    for image in read_images(sources, options.topic):
        detections = found.get(stamps.get(image.name, -1))
        if detections is None:
            continue
        rows = [record.row for record in detections]
        overlay = image.overlay(rows)
        name = image.name.replace('[', '_').replace(']', '')
        cv2.imwrite(str(options.out / f'{Path(name).stem}.jpg'), overlay)
        if rows:
            (photos if image.stamp is None else clip).append(overlay)
    room = _SHEET - min(len(photos), _SHEET)
    spaced = clip[:: max(1, -(-len(clip) // room))] if room else []
    if photos or spaced:
        sheet = contact_sheet([*photos[:_SHEET], *spaced])
        cv2.imwrite(str(options.out / 'overview.jpg'), sheet)


def _records(options: argparse.Namespace) -> list[FrameRecord]:
    return read_records(options.out / 'detections.jsonl')


def _print_table(options: argparse.Namespace, account: Account) -> None:
    from rich.console import Console
    from rich.table import Table

    classes = Counter(
        found.class_id for record in _records(options) for found in record.detections
    )
    dropped = account.dropped
    table = Table(title=f'{options.model} on {options.backend}', show_header=False)
    table.add_row('frames sent', str(len(account.sent)))
    table.add_row('frames received by the node', str(account.counted))
    table.add_row('frames with a result', str(len(account.received)))
    table.add_row(
        'frames dropped',
        ', '.join(f'{count} {reason}' for reason, count in dropped.items()) or '0',
    )
    table.add_row('frames missing', str(account.missing))
    seen = ', '.join(f'{count} {label}' for label, count in classes.most_common())
    table.add_row('classes seen', seen or 'none')
    latencies = account.latencies()
    if latencies:
        p50, p99 = np.percentile(latencies, (50, 99))
        table.add_row('latency, publish to detections', f'p50 {p50:.1f} ms, p99 {p99:.1f} ms')
    for stage in ('preprocess', 'inference', 'total'):
        value = account.values.get(f'{stage} ms p50/p99')
        if value:
            table.add_row(f'  in the node: {stage}', f'p50 / p99: {value} ms')
    console = Console()
    console.print(table)
    console.print(f'detections: {options.out / "detections.jsonl"}')
    console.print(f'pictures:   {options.out}/*.jpg, some of them in overview.jpg')


if __name__ == '__main__':
    sys.exit(main())
