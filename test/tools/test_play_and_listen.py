from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest
from rclpy.qos import QoSProfile
from sensor_msgs.msg import Image

from test.conftest import picture, ROOT
from test.ros import Client, description, ENVIRONMENT, message, Process, running, until


@pytest.fixture
def client():
    made = Client()
    yield made
    made.close()


def tool(*words: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, '-m', 'dla_ros', *words], capture_output=True, text=True,
        env=ENVIRONMENT, cwd=ROOT, timeout=timeout,
    )


def test_play_publishes_a_bag_with_its_stamps_at_the_rate(client):
    received: list[tuple[float, Image]] = []
    client.node.create_subscription(
        Image, 'image', lambda m: received.append((time.monotonic(), m)), QoSProfile(depth=40)
    )
    done = tool(
        'play', 'demo/clip', '--topic', '/camera/image_raw/compressed', '--rate', '20', '--json'
    )
    assert done.returncode == 0, done.stderr
    sent = [json.loads(line) for line in done.stdout.splitlines()]
    until(lambda: len(received) == 30)
    stamps = [m.header.stamp.sec * 10**9 + m.header.stamp.nanosec for _, m in received]
    assert stamps == [event['stamp'] for event in sent]
    assert stamps[0] == 1_700_000_000 * 10**9
    assert 1.2 < received[-1][0] - received[0][0] < 4
    assert received[0][1].encoding == 'bgr8' and received[0][1].width == 768


def test_play_says_that_nobody_listens():
    done = tool('play', 'demo/pictures', '--wait', '0.3')
    assert done.returncode == 1 and 'nobody subscribes to /image' in done.stderr


@pytest.mark.parametrize(
    ('words', 'said'),
    [(['none.png', '--wait', '5'], 'none.png does not exist'), (['x', '--rate', '0'], '--rate')],
)
def test_play_refuses_what_it_cannot_play(client, words, said):
    client.node.create_subscription(Image, 'image', lambda m: None, 1)
    done = tool('play', *words)
    assert done.returncode == 2 and said in done.stderr and 'Traceback' not in done.stderr


def test_listen_writes_a_line_for_each_image(tmp_path):
    out = tmp_path / 'found' / 'detections.jsonl'
    with running(tmp_path / 'node.log', description(model='yolo_fastest')) as (_, client):
        client.wait_for_node()
        listener = Process(
            [sys.executable, '-m', 'dla_ros', 'listen', '--out', str(out), '--count', '2'],
            tmp_path / 'listen.log',
        )
        stamps = {'coral_cat.bmp': (7, 8), 'coral_sunflower.bmp': (0, 9)}
        # Until it has heard two: how soon it is matched with the node, nobody can tell.
        while listener.popen.poll() is None:
            for name, stamp in stamps.items():
                client.detect(message(picture(name), stamp=stamp))
        assert listener.popen.returncode == 0 and '2 images' in listener.log
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line['index'] for line in lines] == [0, 1]
    found = {line['stamp']: [d['class_id'] for d in line['detections']] for line in lines}
    assert found == {7 * 10**9 + 8: ['cat'], 9: []}
    assert lines[1]['frame_id'] == 'camera'
    again = tool('listen', '--out', str(out))
    assert again.returncode == 2 and 'exists; use --force' in again.stderr


def test_listen_ends_cleanly_with_a_signal(tmp_path, client):
    listener = Process(
        [sys.executable, '-m', 'dla_ros', 'listen', '--out', str(tmp_path / 'd.jsonl')],
        tmp_path / 'listen.log',
    )
    until(lambda: client.node.count_subscribers('detections_output') == 2)
    assert listener.end(signal.SIGTERM, within=3.0) == 0
    assert '0 images' in listener.log


def test_tools_are_listed():
    shown = tool('--help')
    assert shown.returncode == 0
    for name in ('demo', 'play', 'listen'):
        assert name in shown.stdout
        assert 'usage' in tool(name, '--help').stdout
    wrong = tool('paly')
    assert wrong.returncode == 2 and "unknown tool 'paly'" in wrong.stderr
    assert tool().returncode == 2
