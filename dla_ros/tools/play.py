"""Publish pictures and bags as sensor_msgs/Image on the topic `image`."""

from __future__ import annotations

import argparse
import array
from collections.abc import Iterator
import sys
import time
from typing import Any, TYPE_CHECKING

from dla_ros.ending import Ending
from dla_ros.tools.process import emit, ros_node, split_ros_arguments

if TYPE_CHECKING:
    # Only then: numpy starts threads, and signals must be held back before there are any.
    from dla_ros.sources import SourceImage


def _parser() -> argparse.ArgumentParser:
    from dla_ros.sources.selection import Selection, whole_number

    parser = argparse.ArgumentParser(
        prog='play', description=__doc__,
        epilog='After --ros-args: remappings, such as -r image:=/camera/image_raw.',
    )
    parser.add_argument(
        'source', nargs='+', help='picture, folder of pictures, rosbag2 folder, mcap file, video'
    )
    parser.add_argument('--topic', default='', help='which image topic of a bag to play')
    parser.add_argument('--rate', type=float, default=5.0, help='images per second (%(default)s)')
    parser.add_argument(
        '--wait', type=float, default=30.0,
        help='seconds to wait for a subscriber before the first image (%(default)s)',
    )
    parser.add_argument('--frame-id', default='camera', help='for pictures, which have none')
    parser.add_argument('--loop', type=whole_number, default=1, metavar='N', help='play N times')
    parser.add_argument(
        '--clock', action='store_true', help='publish the stamps on /clock, for use_sim_time'
    )
    Selection.add_arguments(parser)
    parser.add_argument('--json', action='store_true', help='write a line of JSON for each image')
    return parser


def image_message(image: SourceImage, stamp: int, frame_id: str) -> Any:
    """Return an image of a source as sensor_msgs/Image, with a stamp in nanoseconds."""
    from sensor_msgs.msg import Image

    message = Image(
        height=image.height, width=image.width, encoding=image.encoding,
        is_bigendian=int(image.big_endian), step=image.step,
    )
    # An array of bytes is taken over as it is; anything else is checked element by element.
    message.data = array.array('B', image.data.tobytes())
    message.header.frame_id = frame_id
    message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp, 10**9)
    return message


def main(words: list[str] | None = None) -> int:
    """Play; return 0 when all was sent, 1 if there is no subscriber, 2 for a bad source."""
    ending = Ending()
    own, ros_arguments = split_ros_arguments(words)
    from dla_ros.sources import SourceError

    parser = _parser()
    options = parser.parse_args(own)
    if options.rate <= 0:
        parser.error(f'--rate must be above 0, got {options.rate:g}')
    try:
        with ros_node('player', ros_arguments) as node:
            return _play(node, ending, options)
    except SourceError as error:
        print(f'play: {error}', file=sys.stderr)
        return 2


def _play(node: Any, ending: Ending, options: argparse.Namespace) -> int:
    from rclpy.qos import QoSProfile
    from sensor_msgs.msg import Image

    publisher = node.create_publisher(Image, 'image', QoSProfile(depth=20))
    deadline = time.monotonic() + options.wait
    while not publisher.get_subscription_count() and not ending.wait(0.05):
        if time.monotonic() > deadline:
            print(
                f'play: nobody subscribes to {publisher.topic_name} after {options.wait:g} s; '
                'is the node active? (ros2 lifecycle get /dla_node)', file=sys.stderr,
            )
            return 1
    clock = _Clock(node) if options.clock else None
    due = 0.0
    for image in _images(options):
        if ending.wait(due - time.monotonic()):
            break
        # From now, not from when it was due: a late image must not be followed by a burst.
        due = time.monotonic() + 1 / options.rate
        stamp = time.time_ns() if image.stamp is None else image.stamp
        message = image_message(image, stamp, image.frame_id or options.frame_id)
        if clock:
            clock.publish(message.header.stamp)
        sent = time.monotonic_ns()
        publisher.publish(message)
        if options.json:
            emit('sent', name=image.name, stamp=stamp, sent=sent)
    # Reliable, but only while this end exists: let the last image be taken.
    ending.wait(0.5)
    return 0


def _images(options: argparse.Namespace) -> Iterator[SourceImage]:
    from dla_ros.sources import open_source, SourceError
    from dla_ros.sources.selection import Selection

    selection = Selection.of(options)
    for _ in range(options.loop):
        for path in options.source:
            source = open_source(path, [options.topic] if options.topic else [])
            for entry in selection.entries(source):
                try:
                    image = entry.load()
                except SourceError as error:
                    print(f'play: left out: {error}', file=sys.stderr)
                else:
                    yield image


class _Clock:
    """Publishes /clock."""

    def __init__(self, node: Any) -> None:
        from rosgraph_msgs.msg import Clock

        self._message = Clock
        self._publisher = node.create_publisher(Clock, '/clock', 10)

    def publish(self, stamp: Any) -> None:
        self._publisher.publish(self._message(clock=stamp))


if __name__ == '__main__':
    sys.exit(main())
