"""The launch files with the real launch and launch_ros, where they are installed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

pytest.importorskip('launch_ros', exc_type=ImportError)

from dla_ros.messages import detection_rows as rows
from dla_ros.replay.records import read_records
from test.conftest import picture, ROOT
from test.ros import Client, ENVIRONMENT, message

RUN = """
import sys
from launch import LaunchDescription, LaunchService
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource

service = LaunchService()
service.include_launch_description(LaunchDescription([IncludeLaunchDescription(
    PythonLaunchDescriptionSource(sys.argv[1]),
    launch_arguments=[argument.split(':=') for argument in sys.argv[2:]],
)]))
sys.exit(service.run())
"""


def command(name, *arguments):
    return [sys.executable, '-c', RUN, str(ROOT / 'launch' / f'{name}.launch.py'), *arguments]


def test_a_replay_plays_everything_and_ends(tmp_path):
    out = tmp_path / 'detections.jsonl'
    done = subprocess.run(
        command(
            'replay', f'source:={ROOT}/demo/clip', 'topic:=/camera/image_raw/compressed',
            'model:=yolo_fastest', 'rate:=10', f'out:={out}', 'namespace:=front',
        ),
        env=ENVIRONMENT, cwd=ROOT, start_new_session=True, timeout=90, capture_output=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    records = read_records(out)
    assert len(records) == 30 and all(record.detections for record in records)


@pytest.mark.parametrize(
    ('backend', 'emulate'), [('onnxruntime', 'false'), ('cudla', 'true')]
)
def test_the_launch_file_starts_an_active_node(tmp_path, backend, emulate):
    client = Client('front')
    params = tmp_path / 'params.yaml'
    params.write_text("/**:\n  ros__parameters:\n    input_qos: DEFAULT\n")
    words = command(
        'detector', 'model:=yolo_fastest', 'namespace:=front', f'params_file:={params}',
        f'emulate:={emulate}', f'backend:={backend}',
    )
    # launch ends with its whole group: it passes SIGINT on to its nodes.
    process = subprocess.Popen(words, env=ENVIRONMENT, cwd=ROOT, start_new_session=True)
    try:
        client.wait_for_node()
        assert client.state() == 'active'
        assert rows(client.detect(message(picture('coral_cat.bmp'))))[0][0] == 'cat'
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(10) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        client.close()
