"""Endings: signals at every stage, exit codes, what is left behind."""

from __future__ import annotations

import contextlib
import fcntl
from pathlib import Path
import signal
import subprocess
import sys
import time

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
import numpy as np
import pytest

from test.conftest import picture, ROOT
from test.networks import save_network
from test.ros import Client, description, ENVIRONMENT, message, Process, running, start_node, until

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def orphans() -> set[str]:
    """Segments of Fast DDS in shared memory that no living process holds the lock of."""
    found = set()
    for path in Path('/dev/shm').glob('fastrtps_*_el'):
        with contextlib.suppress(OSError), path.open('rb') as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found.add(path.name.removesuffix('_el'))
    return found


@pytest.fixture(autouse=True)
def nothing_left_in_shared_memory():
    before = orphans()
    yield
    until(lambda: not orphans() - before, 5.0, lambda: orphans() - before)


@pytest.fixture
def started(tmp_path):
    processes: list[Process] = []

    def start(**parameters):
        processes.append(start_node(tmp_path / 'node.log', description(**parameters)))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()


def assert_clean(process: Process, number: int) -> None:
    assert process.end(number) == 0, process.log
    assert 'Traceback' not in process.log and 'rror' not in process.log, process.log


@pytest.mark.parametrize('number', SIGNALS)
@pytest.mark.parametrize('delay', [0.4, 0.7, 1.0, 1.3, 1.6])
def test_a_signal_while_starting(started, number, delay):
    process = started()
    # The interpreter itself takes some time to start; then signals are held back.
    until(lambda: holds_back(process))
    time.sleep(delay - 0.4)
    assert_clean(process, number)


def holds_back(process: Process) -> bool:
    """Whether the process blocks SIGTERM (and so SIGINT)."""
    status = Path(f'/proc/{process.popen.pid}/status').read_text()
    (blocked,) = (line for line in status.splitlines() if line.startswith('SigBlk'))
    return bool(int(blocked.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize('number', SIGNALS)
@pytest.mark.parametrize('autostart', [False, True])
def test_a_signal_when_idle(started, number, autostart):
    process = started(autostart=autostart)
    process.wait_for_log('->' if autostart else 'waiting for')
    assert_clean(process, number)


@pytest.mark.parametrize('number', SIGNALS)
def test_frames_in_hand_are_published(tmp_path, slow_model, number):
    client = Client()
    process = start_node(tmp_path / 'node.log', description(model=slow_model(loops=1), depth=2))
    try:
        client.wait_for_node()
        for i in range(2):  # A tenth of a second each, or a few.
            client.images.publish(message(np.ones((4, 4, 3), np.uint8), 'rgb8', stamp=(i, 0)))
        time.sleep(0.05)
        assert_clean(process, number)
        until(lambda: len(client.received) == 2, 2.0)
        assert [m.header.stamp.sec for m in client.received] == [0, 1]
    finally:
        process.kill()
        client.close()


@pytest.fixture
def slow_model(tmp_path):
    """A model whose inference takes a tenth of a second or more for each of its loops."""

    def save(loops):
        save_network(tmp_path / 'slow.onnx', loops=loops)
        (tmp_path / 'model.yaml').write_text(
            'name: slow\nonnx: slow.onnx\nlabels: [thing]\n'
            'input: {color_order: rgb, resize: stretch}\ndecoder: {type: yolox}\n'
        )
        return str(tmp_path / 'model.yaml')

    return save


@pytest.mark.parametrize('number', SIGNALS)
@pytest.mark.parametrize('deactivating', [False, True])
def test_an_inference_under_way_is_aborted(tmp_path, slow_model, number, deactivating):
    client = Client()
    process = start_node(tmp_path / 'node.log', description(model=slow_model(loops=200), depth=2))
    try:
        client.wait_for_node()
        for _ in range(3):
            client.images.publish(message(np.zeros((4, 4, 3), np.uint8), 'rgb8'))
        time.sleep(0.5)
        if deactivating:
            transition = ChangeState.Request(transition=Transition(label='deactivate'))
            caller = client.node.create_client(ChangeState, 'dla_node/change_state')
            assert caller.wait_for_service(5.0)
            caller.call_async(transition)
            time.sleep(0.5)
        assert process.end(number) == 0, process.log
        assert 'Traceback' not in process.log
    finally:
        process.kill()
        client.close()


def test_deactivate_does_not_wait_for_ever(tmp_path, slow_model):
    node = description(model=slow_model(loops=200), frame_timeout=0.3)
    with running(tmp_path / 'node.log', node) as (process, client):
        client.wait_for_node()
        client.images.publish(message(np.zeros((4, 4, 3), np.uint8), 'rgb8'))
        process.wait_for_log('deadline: slot 0 did not come back within 0.3 s')
        client.images.publish(message(np.zeros((4, 4, 3), np.uint8), 'rgb8'))
        client.transition('deactivate')
        assert client.state() in ('inactive', 'unconfigured')


@pytest.mark.parametrize('pause', [0.0, 0.002, 0.02])
def test_signals_until_the_very_end_are_one(started, pause):
    process = started()
    process.wait_for_log('->')
    start, number = time.monotonic(), signal.SIGINT
    while process.popen.poll() is None and time.monotonic() - start < 5:
        process.popen.send_signal(number)
        number = signal.SIGTERM if number == signal.SIGINT else signal.SIGINT
        time.sleep(pause)
    assert process.popen.wait(5) == 0 and time.monotonic() - start < 2, process.log
    assert 'Traceback' not in process.log


def test_a_signal_after_shutdown_and_in_unconfigured(tmp_path):
    for label in ('shutdown', 'cleanup'):
        with running(tmp_path / f'{label}.log', description()) as (process, client):
            client.wait_for_node()
            if label == 'cleanup':
                assert client.transition('deactivate')
            assert client.transition(label)
            assert_clean(process, signal.SIGTERM)


def test_a_node_killed_hard_does_not_keep_the_next_from_starting(tmp_path):
    before = orphans()
    victim = start_node(tmp_path / 'victim.log', description())
    victim.wait_for_log('->')
    victim.kill()
    with running(tmp_path / 'node.log', description()) as (_, client):
        client.wait_for_node()
        assert client.detect(message(picture('coral_cat.bmp'))).detections
    for name in orphans() - before:  # What SIGKILL leaves, nobody but us can remove.
        for path in Path('/dev/shm').glob(f'*{name}*'):
            path.unlink()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, '-m', 'dla_ros.main', *arguments],
        capture_output=True, text=True, env=ENVIRONMENT, cwd=ROOT, timeout=60,
    )


def test_help_needs_neither_ros_nor_numpy():
    code = (
        'import sys; sys.argv = ["dla_node", "--help"]\n'
        'for name in ("rclpy", "numpy", "cv2", "onnxruntime"): sys.modules[name] = None\n'
        'from dla_ros.main import main; main()'
    )
    shown = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, cwd=ROOT)
    assert shown.returncode == 0 and '--ros-args' in shown.stdout, shown.stderr


@pytest.mark.parametrize(
    ('arguments', 'code', 'words'),
    [
        (['--modle', 'x'], 2, 'unrecognized arguments: --modle x'),
        (['--ros-args', '-p', 'model'], 1, 'model'),
        (['--ros-args', '--params-file', '/no/such.yaml'], 1, '/no/such.yaml'),
        (['--ros-args', '-r', '__ns:=a b'], 1, 'a b'),
    ],
)
def test_wrong_arguments_end_in_a_sentence(arguments, code, words):
    done = run(*arguments)
    assert done.returncode == code and words in done.stderr, done
    assert 'Traceback' not in done.stderr
