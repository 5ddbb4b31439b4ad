"""Find objects in real pictures and a real clip: a player, the node and a listener over DDS."""

from __future__ import annotations

import argparse
from collections import Counter
import json
import os
from pathlib import Path
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from dla_ros import launching
from dla_ros.resources import share_directory

_CLIP_TOPIC = '/camera/image_raw/compressed'
_SETTLE = 10.0  # Seconds without news after which frames are missing.
_SHEET = 12  # Pictures on the overview.
_PATIENCE = 60.0  # Seconds for the processes to find each other.


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


class DemoError(Exception):
    """The demo did not do what it should; the text says what was seen."""


class Processes:
    """The three processes, their events in one queue, and their clean ending."""

    def __init__(self, out: Path) -> None:
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._out = out
        self._running: dict[str, subprocess.Popen[str]] = {}
        # Its own domain, on this machine only: the demo must not meet a robot on the network.
        self._environment = {
            **os.environ,
            'ROS_DOMAIN_ID': os.environ.get('ROS_DOMAIN_ID', str(1 + os.getpid() % 100)),
            'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
            'PYTHONUNBUFFERED': '1',
        }

    def start(self, name: str, module: str, *arguments: str) -> None:
        """Start `python -m module`; its lines of JSON become events, the rest goes to a log."""
        log = (self._out / f'{name}.log').open('w')
        process = subprocess.Popen(
            [sys.executable, '-m', module, *arguments],
            stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment,
        )
        log.close()
        self._running[name] = process
        threading.Thread(target=self._read, args=(name, process), daemon=True).start()

    def _read(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith('{'):
                self.events.put(json.loads(line))
        self.events.put({'event': 'ended', 'name': name, 'code': process.wait()})

    def log(self, name: str) -> str:
        """Return the end of a process's log."""
        return '\n'.join((self._out / f'{name}.log').read_text().splitlines()[-15:])

    def end(self) -> dict[str, int]:
        """Ask all to end and wait; return the exit codes by name."""
        for process in self._running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        codes = {}
        for name, process in self._running.items():
            try:
                codes[name] = process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()
                codes[name] = process.wait()
        return codes


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
    except (ModelError, SourceError, DemoError) as error:
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
        _await_ready(processes)
        processes.start(
            'player', 'dla_ros', 'play', *sources, '--topic', options.topic, '--json',
            '--rate', str(options.rate), '--wait', str(_PATIENCE),
        )
        _follow(processes, account, total)
    finally:
        codes = processes.end()
    failed = [f'{name} ({code})' for name, code in codes.items() if code]
    if failed:
        raise DemoError(
            f'ended with an error: {", ".join(failed)}\n'
            + '\n'.join(processes.log(name) for name, code in codes.items() if code)
        )
    return account


def _next_event(processes: Processes, timeout: float, waiting_for: str) -> dict[str, Any]:
    try:
        event = processes.events.get(timeout=timeout)
    except queue.Empty:
        raise DemoError(
            f'no {waiting_for} after {_PATIENCE:g} s; the node says:\n{processes.log("node")}'
        ) from None
    if event['event'] == 'ended' and (event['code'] or event['name'] != 'player'):
        raise DemoError(
            f'{event["name"]} ended with exit code {event["code"]}:\n'
            f'{processes.log(event["name"])}'
        )
    return event


def _await_ready(processes: Processes) -> None:
    deadline = time.monotonic() + _PATIENCE
    event = {'event': ''}
    while event['event'] != 'ready':
        event = _next_event(processes, max(deadline - time.monotonic(), 0.0), 'detector')


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
            event = _next_event(processes, _PATIENCE, 'frame')
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

    from dla_ros.color import convert_reference
    from dla_ros.image import ImageView
    from dla_ros.overlay import contact_sheet, draw
    from dla_ros.sources import read_images

    lines = _read_lines(options.out)
    found = {line['stamp']: line['detections'] for line in lines}
    stamps = {event['name']: stamp for stamp, event in account.sent.items()}
    photos: list[npt.NDArray[np.uint8]] = []
    clip: list[npt.NDArray[np.uint8]] = []
    for image in read_images(sources, options.topic):
        detections = found.get(stamps.get(image.name, -1))
        if detections is None:
            continue
        view = ImageView.of(
            image.data, width=image.width, height=image.height, encoding=image.encoding,
            step=image.step, big_endian=image.big_endian,
        )
        rows = [(d['class_id'], d['score'], d['xyxy']) for d in detections]
        overlay = draw(np.ascontiguousarray(convert_reference(view, 'bgr')), rows)
        name = image.name.replace('[', '_').replace(']', '')
        cv2.imwrite(str(options.out / f'{Path(name).stem}.jpg'), overlay)
        if rows:
            (photos if image.stamp is None else clip).append(overlay)
    room = _SHEET - min(len(photos), _SHEET)
    spaced = clip[:: max(1, -(-len(clip) // room))] if room else []
    if photos or spaced:
        sheet = contact_sheet([*photos[:_SHEET], *spaced])
        cv2.imwrite(str(options.out / 'overview.jpg'), sheet)


def _read_lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / 'detections.jsonl').read_text().splitlines()]


def _print_table(options: argparse.Namespace, account: Account) -> None:
    from rich.console import Console
    from rich.table import Table

    lines = _read_lines(options.out)
    classes = Counter(d['class_id'] for line in lines for d in line['detections'])
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
