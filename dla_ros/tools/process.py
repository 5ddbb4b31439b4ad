"""What the tools that are ROS processes share: a node, lines of JSON."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
import json
import sys
from typing import Any


def emit(event: str, **fields: Any) -> None:
    """Write one event as a line of JSON to standard output."""
    print(json.dumps({'event': event, **fields}), flush=True)


@contextmanager
def ros_node(name: str, ros_arguments: list[str]) -> Iterator[Any]:
    """Yield a plain node, which leaves signals alone; see Ending."""
    import rclpy
    from rclpy.signals import SignalHandlerOptions

    rclpy.init(args=ros_arguments, signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = rclpy.create_node(name)
        try:
            yield node
        finally:
            node.destroy_node()
    finally:
        rclpy.try_shutdown()


def split_ros_arguments(words: list[str] | None) -> tuple[list[str], list[str]]:
    """Return (the tool's own words, those from --ros-args on)."""
    given = sys.argv[1:] if words is None else words
    if '--ros-args' not in given:
        return given, []
    start = given.index('--ros-args')
    return given[:start], given[start:]
