"""Collect what is published on `detections_output` into a file of JSON lines."""

from __future__ import annotations

import argparse
from pathlib import Path
import sys
import time
from typing import Any, TextIO, TYPE_CHECKING

from dla_ros.ending import Ending
from dla_ros.tools.process import emit, ros_node, split_ros_arguments

if TYPE_CHECKING:
    # Only then: numpy starts threads, and signals must be held back before there are any.
    from dla_ros.replay.records import FrameRecord


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='listen', description=__doc__,
        epilog='After --ros-args: remappings, such as -r detections_output:=/front/detections.',
    )
    parser.add_argument('--out', type=Path, default=Path('detections.jsonl'), help='%(default)s')
    parser.add_argument('--force', action='store_true', help='overwrite the file')
    parser.add_argument('--count', type=int, default=0, help='end after so many images; 0: never')
    parser.add_argument('--json', action='store_true', help='write what happens as JSON, too')
    return parser


def frame_record(index: int, topic: str, message: Any) -> FrameRecord:
    """Return one Detection2DArray as a line of detections.jsonl."""
    from dla_ros.messages import detection_rows
    from dla_ros.replay.records import DetectionRecord, FrameRecord

    stamp = message.header.stamp
    return FrameRecord(
        index=index, topic=topic, stamp=stamp.sec * 10**9 + stamp.nanosec,
        frame_id=message.header.frame_id,
        detections=tuple(map(DetectionRecord.of, detection_rows(message))),
    )


def main(words: list[str] | None = None) -> int:
    """Listen until SIGINT, SIGTERM or --count; return 0, or 2 if the file is there already."""
    ending = Ending()
    own, ros_arguments = split_ros_arguments(words)
    options = _parser().parse_args(own)
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        file = options.out.open('w' if options.force else 'x')
    except FileExistsError:
        print(f'listen: {options.out} exists; use --force to overwrite it', file=sys.stderr)
        return 2
    with file, ros_node('listener', ros_arguments) as node:
        received = _listen(node, ending, options, file)
    if not options.json:
        print(f'{received} images with detections in {options.out}')
    return 0


def _listen(node: Any, ending: Ending, options: argparse.Namespace, file: TextIO) -> int:
    from diagnostic_msgs.msg import DiagnosticArray
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.qos import QoSProfile
    from vision_msgs.msg import Detection2DArray

    received = 0

    def take(message: Detection2DArray) -> None:
        nonlocal received
        now = time.monotonic_ns()
        record = frame_record(received, subscription.topic_name, message)
        file.write(record.model_dump_json() + '\n')
        file.flush()
        received += 1
        if options.json:
            emit('received', stamp=record.stamp, received=now, found=len(record.detections))

    def take_diagnostics(message: DiagnosticArray) -> None:
        for status in message.status:
            if status.hardware_id == 'dla_ros':
                emit('status', name=status.name, message=status.message,
                     values={pair.key: pair.value for pair in status.values})

    subscription = node.create_subscription(
        Detection2DArray, 'detections_output', take, QoSProfile(depth=100)
    )
    if options.json:
        node.create_subscription(DiagnosticArray, '/diagnostics', take_diagnostics, 10)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    ready = False
    while not ending.wait(0.0) and not 0 < options.count <= received:
        executor.spin_once(0.1)
        if options.json and not ready and subscription.get_publisher_count():
            ready = True
            emit('ready', topic=subscription.topic_name)
    executor.shutdown()
    return received


if __name__ == '__main__':
    sys.exit(main())
