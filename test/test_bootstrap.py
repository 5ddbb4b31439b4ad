"""The set-up that make demo and make test share."""

from __future__ import annotations

import os
from pathlib import Path
import subprocess
import sys
import sysconfig
import time

import pytest

from test.conftest import ROOT

SETUP = ROOT / 'scripts' / 'setup.sh'
BASE_PYTHON = os.path.realpath(sys._base_executable)  # type: ignore[attr-defined]
CLEAN = {
    name: value for name, value in os.environ.items()
    if name not in ('_ROS_WHEELS_BOOTSTRAP_COMPLETE', 'PYTHONPATH', 'ROS_DISTRO', 'CXX')
    and not name.endswith('_PREFIX_PATH')
}


def set_up(venv: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ['/bin/sh', str(SETUP)], capture_output=True, text=True,
        env={**CLEAN, 'PYTHON': BASE_PYTHON, 'VENV': str(venv), **environment}, timeout=170,
    )


def test_no_suitable_python_is_said_with_the_remedy(tmp_path):
    for python in ('/bin/false', str(tmp_path / 'none')):
        done = set_up(tmp_path / 'venv', PYTHON=python)
        assert done.returncode == 1
        for words in ('3.10, 3.11, 3.12 or 3.13', python, 'apt-get install python3', 'PYTHON='):
            assert words in done.stderr


def test_a_missing_compiler_is_said_before_anything_is_done(tmp_path):
    tools = tmp_path / 'bin'
    tools.mkdir()
    (tools / 'dirname').symlink_to('/usr/bin/dirname')
    done = set_up(tmp_path / 'venv', PATH=str(tools))
    assert done.returncode == 1
    assert 'a C/C++ compiler: sudo apt-get install g++' in done.stderr
    assert not (tmp_path / 'venv').exists()


def test_a_failing_step_shows_the_end_of_its_log(tmp_path):
    done = set_up(
        tmp_path / 'venv', PIP_NO_INDEX='1', PIP_FIND_LINKS='', PIP_CONFIG_FILE='/dev/null'
    )
    assert done.returncode == 1 and 'pip failed with exit code 1' in done.stderr
    assert 'No matching distribution' in done.stderr and 'pip.log' in done.stderr
    assert not (tmp_path / 'venv' / 'setup' / 'complete').exists()


def ros_environment() -> dict[str, str]:
    """What a sourced ROS looks like, with the packages of this interpreter as the ROS."""
    packages = sysconfig.get_path('purelib')
    libraries = [str(Path(sys.prefix) / 'lib'), *map(str, Path(packages).glob('ros_*.libs'))]
    return {
        'ROS_DISTRO': 'jazzy', 'AMENT_PREFIX_PATH': sys.prefix, 'PYTHONPATH': packages,
        'LD_LIBRARY_PATH': os.pathsep.join(libraries),
    }


@pytest.mark.skipif('ROS_DISTRO' in os.environ, reason='a ROS is sourced already')
def test_a_sourced_ros_is_used_and_no_interfaces_are_built(tmp_path):
    venv = tmp_path / 'venv'
    done = set_up(venv, **ros_environment())
    assert done.returncode == 0, done.stderr
    assert 'ROS 2 jazzy is sourced' in done.stdout
    assert not (venv / 'share' / 'vision_msgs').exists()
    assert not list(venv.glob('lib/*/site-packages/rclpy'))
    code = 'import rclpy, vision_msgs.msg, dla_ros.main; print(rclpy.__file__)'
    shown = subprocess.run(
        [str(venv / 'bin' / 'python'), '-c', code], capture_output=True, text=True,
        env={**CLEAN, **ros_environment()}, cwd=tmp_path,
    )
    assert shown.stdout.startswith(sysconfig.get_path('purelib')), shown.stderr
    start = time.monotonic()
    again = set_up(venv, **ros_environment())
    assert again.returncode == 0 and again.stdout + again.stderr == ''
    assert time.monotonic() - start < 3, 'a second run must do nothing'


@pytest.mark.skipif('ROS_DISTRO' in os.environ, reason='a ROS is sourced already')
def test_a_sourced_ros_without_vision_msgs_says_which_package(tmp_path):
    (tmp_path / 'rclpy').mkdir()
    (tmp_path / 'rclpy' / '__init__.py').touch()
    done = set_up(
        tmp_path / 'venv', ROS_DISTRO='jazzy', AMENT_PREFIX_PATH='/opt/ros/jazzy',
        PYTHONPATH=str(tmp_path),
    )
    assert done.returncode == 1 and 'ros-jazzy-vision-msgs' in done.stderr
    done = set_up(tmp_path / 'venv', ROS_DISTRO='jazzy', AMENT_PREFIX_PATH='/opt/ros/jazzy')
    assert done.returncode == 1 and 'rclpy of the sourced ROS 2 jazzy' in done.stderr
