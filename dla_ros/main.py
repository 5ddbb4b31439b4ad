"""The process of the node: signals, executor, exit codes.

Only light modules are imported at the top: signals must be heeded from the first moment.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
from typing import Any, TYPE_CHECKING

from dla_ros.ending import Ending, REPLACE_PROCESS

if TYPE_CHECKING:
    from dla_ros.node import DlaNode

_GRACE = 1.0  # Seconds for a callback under way when the process is told to end.


def _parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog='dla_node',
        description='Runs a neural network on images: takes sensor_msgs/Image on `image` and '
        'publishes vision_msgs/Detection2DArray on `detections_output`, or what else the model '
        'makes.',
        epilog='Parameters and remappings go after --ros-args, for example: '
        'dla_node --ros-args -p model:=yolox_nano -p autostart:=true -r image:=/camera/image_raw. '
        'List the parameters of a running node: ros2 param describe /dla_node model.',
    )


def main(args: list[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM.

    Returns
    -------
    0 after a clean end, 1 if the node could not start or broke, 2 for wrong arguments, 75 if a
    new process is needed: the backend is lost and this one cannot bring it back.

    """
    ending = Ending()
    arguments = sys.argv[1:] if args is None else args
    parser = _parser()
    parser.parse_known_args(arguments)

    import rclpy
    from rclpy.signals import SignalHandlerOptions
    from rclpy.utilities import remove_ros_args

    try:
        parser.parse_args(remove_ros_args(args=['dla_node', *arguments])[1:])
        if ending.wait(0.0):
            return 0
        # With rclpy's own handlers the context is gone before the last frames are published.
        rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
        code = _run(ending)
    except Exception as error:
        print(f'dla_node: {error}', file=sys.stderr)
        return 1
    finally:
        rclpy.try_shutdown()
    if code == REPLACE_PROCESS:
        # Threads may be stuck in the driver for ever.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _run(ending: Ending) -> int:
    from dla_ros.node import DlaNode

    node = DlaNode()
    node.on_give_up = ending.tell
    logging.getLogger('dla_ros').addHandler(_ToRos(node.get_logger()))
    try:
        code = _serve(node, ending)
    finally:
        node.close()
        node.destroy_node()
    return code or node.exit_code


def _serve(node: DlaNode, ending: Ending) -> int:
    from rclpy.executors import SingleThreadedExecutor

    executor = SingleThreadedExecutor()
    executor.add_node(node)
    stop, broken = threading.Event(), list[BaseException]()
    spinner = threading.Thread(
        target=_spin, args=(executor, stop, broken, ending), name='dla_ros-executor', daemon=True
    )
    spinner.start()
    if node.autostart:
        executor.create_task(node.start)
    else:
        name = node.get_fully_qualified_name()
        node.get_logger().info(f'waiting for: ros2 lifecycle set {name} configure')
    ending.wait()
    stop.set()
    executor.shutdown(0.0)  # Ends its wait; it does not wait for a callback under way.
    spinner.join(_GRACE)
    if spinner.is_alive():
        node.close()  # Aborts the inference that a transition waits for.
        spinner.join(_GRACE / 2)
    if spinner.is_alive():
        # Stuck in a call that nothing interrupts, with node and executor in use.
        os._exit(node.exit_code)
    for error in broken:
        node.get_logger().fatal(f'{type(error).__name__}: {error}')
    return 1 if broken else 0


class _ToRos(logging.Handler):
    """Hands the records of the parts that know no ROS to a ROS logger."""

    def __init__(self, logger: Any) -> None:
        super().__init__(logging.INFO)
        self._logger = logger
        logging.getLogger('dla_ros').setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if record.levelno >= logging.ERROR:
            self._logger.error(text)
        elif record.levelno >= logging.WARNING:
            self._logger.warning(text)
        else:
            self._logger.info(text)


def _spin(
    executor: Any, stop: threading.Event, broken: list[BaseException], ending: Ending
) -> None:
    try:
        while not stop.is_set():
            executor.spin_once()
    except BaseException as error:
        broken.append(error)
        ending.tell()


if __name__ == '__main__':
    sys.exit(main())
