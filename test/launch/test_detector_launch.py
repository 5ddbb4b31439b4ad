"""The launch file with the real launch and launch_ros, where they are installed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

pytest.importorskip('launch_ros', exc_type=ImportError)

from dla_ros.messages import detection_rows as rows
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


def test_the_launch_file_starts_an_active_node(tmp_path):
    client = Client('front')
    params = tmp_path / 'params.yaml'
    params.write_text("/**:\n  ros__parameters:\n    input_qos: DEFAULT\n")
    command = [
        sys.executable, '-c', RUN, str(ROOT / 'launch' / 'detector.launch.py'),
        'model:=yolo_fastest', 'namespace:=front', f'params_file:={params}',
    ]
    # launch ends with its whole group: it passes SIGINT on to its nodes.
    process = subprocess.Popen(command, env=ENVIRONMENT, cwd=ROOT, start_new_session=True)
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
