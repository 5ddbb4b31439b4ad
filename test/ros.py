"""Real processes and a real ROS client for the tests; each test process has its own domain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
import os
from pathlib import Path
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
import numpy as np
import numpy.typing as npt
from rcl_interfaces.msg import Parameter as ParameterMessage
from rcl_interfaces.srv import DescribeParameters, GetParameters, ListParameters, SetParameters
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile
from sensor_msgs.msg import Image
from std_msgs.msg import Header
from vision_msgs.msg import Detection2DArray

from dla_ros.launching import NodeDescription
from test.conftest import ROOT

DOMAIN = 1 + os.getpid() % 100
ENVIRONMENT = {
    **os.environ,
    'ROS_DOMAIN_ID': str(DOMAIN),
    'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
    'PYTHONUNBUFFERED': '1',
}
WAIT = 30.0


class Process:
    """A process of ours with its output."""

    def __init__(self, command: list[str], log: Path, **options: Any) -> None:
        self.log_path = log
        with log.open('w') as file:
            self.popen = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, env=ENVIRONMENT, cwd=ROOT,
                **options,
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def wait_for_log(self, text: str, timeout: float = WAIT) -> str:
        until(lambda: text in self.log or self.popen.poll() is not None, timeout, lambda: self.log)
        assert text in self.log, self.log
        return self.log

    def end(self, number: int = signal.SIGINT, within: float = 2.0) -> int:
        """Signal, and return the exit code; fail if it takes too long."""
        start = time.monotonic()
        self.popen.send_signal(number)
        try:
            code = self.popen.wait(within + 10)
        finally:
            self.kill()
        assert time.monotonic() - start < within, f'ended after {time.monotonic() - start:.1f} s'
        return code

    def kill(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()


def until(
    condition: Callable[[], Any], timeout: float = WAIT, explain: Callable[[], Any] = str
) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f'not within {timeout} s: {explain()}'
        time.sleep(0.01)


def description(**parameters: Any) -> NodeDescription:
    # Best effort loses large images over the default transports.
    settings = {
        'model': 'yolox_nano', 'autostart': True, 'threads': 1, 'input_qos': 'DEFAULT',
        'input_queue_size': 20, **parameters,
    }
    return NodeDescription('dla_node', 'dla_node', '', '', settings)


def start_node(log: Path, node: NodeDescription, *extra: str) -> Process:
    command = [sys.executable, '-m', 'dla_ros.main', *node.ros_arguments(), *extra]
    return Process(command, log)


class Client:
    """A ROS node in the test process, spinning in a thread."""

    def __init__(self, namespace: str = '') -> None:
        self.process: Process | None = None
        self._context = rclpy.Context()
        self._context.init(domain_id=DOMAIN)
        self.node = rclpy.create_node(
            'client', context=self._context, namespace=namespace, start_parameter_services=False
        )
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._spin)
        self._thread.start()
        self.received: list[Detection2DArray] = []
        self.node.create_subscription(
            Detection2DArray, 'detections_output', self.received.append, QoSProfile(depth=100)
        )
        self.images = self.node.create_publisher(Image, 'image', QoSProfile(depth=10))

    def _spin(self) -> None:
        while not self._ending.is_set():
            self._executor.spin_once(0.05)

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        self._executor.shutdown()
        self.node.destroy_node()
        self._context.try_shutdown()

    def wait_for_node(self) -> None:
        """Wait until the node takes images and its detections reach us."""
        until(lambda: self.images.get_subscription_count() == 1, explain=self._log)
        until(lambda: self.node.count_publishers('detections_output') == 1, explain=self._log)
        self.wait_until_known('dla_node')

    def wait_until_known(self, node: str) -> None:
        """Wait until `node` has seen all our endpoints, or a first answer or image can be lost.

        Endpoints are announced in the order of their making, so an answer to the newest one
        says that the older ones are known. That first answer may be lost too: ask again.
        """
        probe = self.node.create_client(ListParameters, f'{node}/list_parameters')
        try:
            assert probe.wait_for_service(WAIT), f'no {node}/list_parameters: {self._log()}'
            answers: list[Any] = []

            def answered() -> bool:
                if time.monotonic() - start > len(answers):  # Once a second.
                    answers.append(probe.call_async(ListParameters.Request()))
                return any(answer.done() for answer in answers)

            start = time.monotonic()
            until(answered, explain=self._log)
        finally:
            self.node.destroy_client(probe)

    def _log(self) -> str:
        return self.process.log if self.process else ''

    def detect(self, message: Image, timeout: float = WAIT) -> Detection2DArray:
        """Publish an image and return what comes back for it."""
        count = len(self.received)
        self.images.publish(message)
        until(lambda: len(self.received) > count, timeout, self._log)
        assert len(self.received) == count + 1
        return self.received[-1]

    def call(self, kind: Any, name: str, request: Any, timeout: float = WAIT) -> Any:
        client = self.node.create_client(kind, name)
        try:
            assert client.wait_for_service(timeout), f'no service {name}: {self._log()}'
            self.wait_until_known(name.rpartition('/')[0])
            future = client.call_async(request)
            until(future.done, timeout, self._log)
            return future.result()
        finally:
            self.node.destroy_client(client)

    def state(self, node: str = 'dla_node') -> str:
        return self.call(GetState, f'{node}/get_state', GetState.Request()).current_state.label

    def transition(self, label: str = '', number: int = 0) -> bool:
        """Ask for a transition by its label, or else by its id."""
        request = ChangeState.Request(transition=Transition(label=label, id=number))
        return self.call(ChangeState, 'dla_node/change_state', request).success

    def set(self, node: str = 'dla_node', **values: Any) -> list[Any]:
        messages: list[ParameterMessage] = [
            Parameter(name, value=value).to_parameter_msg() for name, value in values.items()
        ]
        request = SetParameters.Request(parameters=messages)
        return list(self.call(SetParameters, f'{node}/set_parameters', request).results)

    def get(self, *names: str, node: str = 'dla_node') -> list[Any]:
        request = GetParameters.Request(names=list(names))
        return list(self.call(GetParameters, f'{node}/get_parameters', request).values)

    def describe(self, *names: str, node: str = 'dla_node') -> list[Any]:
        request = DescribeParameters.Request(names=list(names))
        return list(
            self.call(DescribeParameters, f'{node}/describe_parameters', request).descriptors
        )


@contextmanager
def running(log: Path, node: NodeDescription, *extra: str) -> Iterator[tuple[Process, Client]]:
    """A node process and a client; the node is ended cleanly, and must end cleanly."""
    client = Client(node.namespace)
    process = client.process = start_node(log, node, *extra)
    try:
        yield process, client
        if process.popen.poll() is None:
            assert process.end() == 0, process.log
        assert 'Traceback' not in process.log, process.log
    finally:
        process.kill()
        client.close()


def message(
    image: npt.NDArray[Any], encoding: str = 'bgr8', *, stamp: tuple[int, int] = (12, 34),
    frame_id: str = 'camera', step: int = 0,
) -> Image:
    """Return an image message, padded with rubbish to `step`."""
    packed = np.ascontiguousarray(image)
    rows = packed.reshape(packed.shape[0], -1).view(np.uint8)
    step = step or rows.shape[1]
    padded = np.pad(rows, ((0, 0), (0, step - rows.shape[1])), constant_values=0xA5)
    made = Image(
        height=image.shape[0], width=image.shape[1], encoding=encoding, step=step,
        header=Header(frame_id=frame_id), data=padded.tobytes(),
    )
    made.header.stamp.sec, made.header.stamp.nanosec = stamp
    return made
