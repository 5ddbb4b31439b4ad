"""Endings: signals at every stage, exit codes, what is left behind."""

from __future__ import annotations

from pathlib import Path
import signal
import subprocess
import sys
import time

import pytest

from test.conftest import picture, ROOT
from test.ros import Client, description, ENVIRONMENT, message, Process, running, start_node, until

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def shared_memory() -> set[str]:
    return {path.name for path in Path('/dev/shm').iterdir() if 'fastrtps' in path.name}


@pytest.fixture(autouse=True)
def nothing_left_in_shared_memory():
    before = shared_memory()
    yield
    # Other processes of this test run have their own segments; a dead process has none.
    until(lambda: not shared_memory() - before, 5.0, lambda: shared_memory() - before)


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
def test_frames_in_hand_are_published(tmp_path, number):
    client = Client()
    process = start_node(tmp_path / 'node.log', description(depth=4))
    try:
        client.wait_for_node()
        image = message(picture('coral_cat.bmp'))
        client.detect(image)
        for i in range(5):
            image.header.stamp.sec = i
            client.images.publish(image)
        until(lambda: len(client.received) > 1)
        assert_clean(process, number)
        time.sleep(0.3)
        # All that had arrived; the signal came while most were still waiting or running.
        assert [m.header.stamp.sec for m in client.received[1:]] == list(range(5))
    finally:
        process.kill()
        client.close()


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
    before = shared_memory()
    victim = start_node(tmp_path / 'victim.log', description())
    victim.wait_for_log('->')
    victim.kill()
    with running(tmp_path / 'node.log', description()) as (_, client):
        client.wait_for_node()
        assert client.detect(message(picture('coral_cat.bmp'))).detections
    for name in shared_memory() - before:  # What SIGKILL leaves, nobody but us can remove.
        (Path('/dev/shm') / name).unlink()


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
