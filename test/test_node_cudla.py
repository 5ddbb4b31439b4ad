"""The node with backend cudla on the emulator: answers, recovery, exit codes, endings."""

from __future__ import annotations

import signal
import sys
import time

from diagnostic_msgs.msg import DiagnosticArray
import numpy as np
from onnx import TensorProto
import pytest
import rclpy
from rclpy.parameter import Parameter

from dla_ros import Detector
from dla_ros.messages import detection_rows
from dla_ros.node import DlaNode
from test.conftest import assert_same, MODELS, picture, PICTURES, rows
from test.emulation import assert_flat
from test.networks import save_model
from test.ros import Client, description, message, Process, running, start_node, until

IMAGE = message(np.full((4, 4, 3), 7, np.uint8), 'rgb8')
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize('model', MODELS)
def test_the_node_gives_the_answers_of_onnxruntime(tmp_path, model):
    node = description(model=model, backend='cudla', emulate=True)
    with Detector.open(model) as cpu, running(tmp_path / 'log', node) as (process, client):
        heard: list[DiagnosticArray] = []
        client.node.create_subscription(DiagnosticArray, '/diagnostics', heard.append, 10)
        client.wait_for_node()
        for name in PICTURES:
            expected = rows(cpu(picture(name)), cpu.model.labels)
            found = detection_rows(client.detect(message(picture(name))))
            assert_same(found, expected, overlap=0.98, tolerance=0.01)
        log = process.wait_for_log('emulated DLA')
        assert 'cuDLA 1.5.0' in log and 'cuda-bindings' in log and 'float16 chw16 (strides' in log
        until(lambda: heard and 'emulated DLA' in heard[-1].status[0].message)
        values = {pair.key: pair.value for pair in heard[-1].status[0].values}
        assert 'emulated DLA' in values['emulation'] and values['cuDLA'] == '1.5.0'


@pytest.fixture
def small(tmp_path):
    return str(save_model(tmp_path, kind=TensorProto.FLOAT16))


def settings(model, **changes):
    defaults = {'recovery_delay': 0.1, 'task_timeout': 0.3, 'frame_timeout': 0.5}
    return description(model=model, backend='cudla', emulate=True, **{**defaults, **changes})


def start_with_fault(log, node, fault) -> Process:
    """Start a node whose emulator is told of a fault before anything else."""
    code = (
        'import sys\nfrom dla_ros.ending import Ending\nEnding()\n'
        'from dla_ros import emulator as emulation\nemulator = emulation.load()\n'
        f'emulator.{fault}\nfrom dla_ros.main import main\nsys.exit(main(sys.argv[1:]))'
    )
    return Process([sys.executable, '-c', code, *node.ros_arguments()], log)


@pytest.fixture
def node_with_fault(tmp_path, small):
    started: list[Process] = []
    client = Client()

    def start(fault, **changes):
        process = start_with_fault(tmp_path / 'log', settings(small, **changes), fault)
        started.append(process)
        client.process = process
        return process, client

    yield start
    for process in started:
        process.kill()
    client.close()


def test_a_failed_call_is_recovered_from(node_with_fault):
    # The warm-up submits four times.
    process, client = node_with_fault('fail("cudlaSubmitTask", 7, skip=5)')
    heard: list[DiagnosticArray] = []
    client.node.create_subscription(DiagnosticArray, '/diagnostics', heard.append, 10)
    client.wait_for_node()
    client.detect(IMAGE)
    client.images.publish(IMAGE)
    process.wait_for_log('opened anew in 0.1 s (1 of 3): cudlaSubmitTask failed with status 7')
    process.wait_for_log('the backend is back')
    client.detect(IMAGE)
    until(lambda: any(array.status[0].level == b'\x02' for array in heard))
    assert client.state() == 'active'
    assert process.end() == 0


def test_what_does_not_recover_ends_with_exit_code_75(node_with_fault):
    process, client = node_with_fault(
        '_cudla.emulator_fail(b"cudlaSubmitTask", 4, 7, 0, 1)', max_recoveries=1
    )
    client.wait_for_node()
    client.images.publish(IMAGE)
    assert process.popen.wait(10) == 75, process.log
    assert 'after 1 recoveries' in process.log and 'has to be replaced' in process.log


@pytest.mark.parametrize(
    ('fault', 'words'),
    [
        ('fail_task(0, skip=4, hang=True)', 'still at work'),
        ('fail("cudlaSubmitTask", 0, skip=4, hang=True)', 'has not taken a frame'),
    ],
)
def test_what_hangs_ends_with_exit_code_75_in_time(node_with_fault, fault, words):
    process, client = node_with_fault(fault)
    client.wait_for_node()
    start = time.monotonic()
    client.images.publish(IMAGE)
    assert process.popen.wait(10) == 75, process.log
    assert time.monotonic() - start < 4.0
    assert words in process.log and 'FATAL' in process.log and 'Traceback' not in process.log


@pytest.mark.parametrize('number', SIGNALS)
def test_a_signal_while_the_dla_works(node_with_fault, number):
    process, client = node_with_fault('fail_task(0, skip=4, until_timeout=True)')
    client.wait_for_node()
    client.images.publish(IMAGE)
    time.sleep(0.15)  # The task takes 0.3 s.
    assert process.end(number) == 0, process.log
    assert 'leaked' not in process.log


@pytest.mark.parametrize('number', SIGNALS)
def test_a_signal_while_the_dla_hangs(node_with_fault, number):
    process, client = node_with_fault('fail_task(0, skip=4, hang=True)', frame_timeout=60.0)
    client.wait_for_node()
    client.images.publish(IMAGE)
    time.sleep(0.15)
    assert process.end(number) == 75, process.log


@pytest.mark.parametrize('number', SIGNALS)
@pytest.mark.parametrize(
    'fault',
    [
        'fail("cudlaModuleLoadFromMemory", 0, delay=0.5)',
        'fail("cudlaMemRegister", 0, skip=1, delay=0.5)',
        'fail_task(0, skip=1, until_timeout=True)',
    ],
)
def test_a_signal_while_configuring(node_with_fault, number, fault):
    process, _ = node_with_fault(fault)
    process.wait_for_log('emulated DLA')
    time.sleep(0.5)
    assert process.end(number) == 0, process.log
    assert 'leaked' not in process.log and 'Traceback' not in process.log


def test_after_sigkill_the_next_node_starts(tmp_path, small):
    with running(tmp_path / 'first', settings(small)) as (process, client):
        client.wait_for_node()
        client.detect(IMAGE)
        process.kill()
    with running(tmp_path / 'second', settings(small)) as (process, client):
        client.wait_for_node()
        client.detect(IMAGE)


@pytest.mark.parametrize('cores', [(0, 1), (0, 0)])
def test_two_nodes(tmp_path, small, cores):
    nodes = []
    try:
        for i, core in enumerate(cores):
            node = settings(small, dla_core=core)
            nodes.append((
                start_node(tmp_path / f'log{i}', node, '-r', f'__ns:=/robot{i}'),
                Client(f'/robot{i}'),
            ))
        for process, client in nodes:
            client.process = process
            client.wait_for_node()
        for _ in range(3):
            for _, client in nodes:
                client.detect(IMAGE)
        for process, _ in nodes:
            assert process.end() == 0, process.log
    finally:
        for process, client in nodes:
            process.kill()
            client.close()


def test_a_hundred_rounds_leave_nothing_behind(small):
    context = rclpy.Context()
    context.init()
    values = {'model': small, 'backend': 'cudla', 'emulate': True}
    node = DlaNode(
        context=context,
        parameter_overrides=[Parameter(name, value=value) for name, value in values.items()],
    )

    def live() -> None:
        node.trigger_configure()
        node.trigger_activate()
        processed = node._statistics.processed
        node._take(IMAGE)
        until(lambda: node._statistics.processed > processed)
        node.trigger_deactivate()
        node.trigger_cleanup()

    try:
        assert_flat(live)
    finally:
        node.destroy_node()
        context.try_shutdown()
