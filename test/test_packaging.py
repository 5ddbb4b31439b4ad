"""colcon builds the package, and it works from the install space."""

from __future__ import annotations

import ast
import os
from pathlib import Path
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from dla_ros.messages import detection_rows as rows
from test.conftest import picture, ROOT
from test.ros import Client, ENVIRONMENT, message, until


@pytest.fixture(scope='module')
def install_space(tmp_path_factory):
    """Build a copy of the tracked files with colcon, as in a workspace."""
    scripts = f'{Path(sys.prefix) / "bin"}{os.pathsep}{os.environ["PATH"]}'
    if shutil.which('colcon', path=scripts) is None:
        pytest.skip('colcon is not installed')
    workspace = tmp_path_factory.mktemp('workspace')
    # In a real workspace it is one package among others; what git ignores is not there.
    ignored = shutil.ignore_patterns('.*', 'build', 'install', 'log', 'out', '*.egg-info')
    shutil.copytree(ROOT, workspace / 'src' / 'dla_ros', ignore=ignored)
    built = subprocess.run(
        ['colcon', 'build'], cwd=workspace, env={**ENVIRONMENT, 'PATH': scripts},
        capture_output=True, text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert [p.name for p in (workspace / 'build').iterdir() if p.is_dir()] == ['dla_ros']
    return workspace / 'install'


def in_shell(install_space: Path, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ['bash', '-c', f'. {install_space}/setup.bash; {command}'], cwd=install_space.parent,
        env=ENVIRONMENT, capture_output=True, text=True, timeout=60,
    )


def test_everything_is_installed(install_space):
    package = install_space / 'dla_ros'
    assert (package / 'share/ament_index/resource_index/packages/dla_ros').is_file()
    share = package / 'share' / 'dla_ros'
    for pattern in ('launch/*.launch.py', 'config/*.yaml', 'models/*/*', 'demo/*/*'):
        expected = {p.relative_to(ROOT) for p in ROOT.glob(pattern)}
        assert expected and {p.relative_to(share) for p in share.glob(pattern)} == expected
    patterns = ('*.py', '*.cu', '*.cuh', '*.cpp', '*.hpp')
    sources = {
        p.relative_to(ROOT / 'dla_ros') for g in patterns for p in (ROOT / 'dla_ros').rglob(g)
    }
    (home,) = package.glob('lib/python*/site-packages/dla_ros')
    assert {p.relative_to(home) for g in patterns for p in home.rglob(g)} == sources
    assert (home / 'py.typed').is_file()


def test_the_share_directory_is_that_of_the_install_space(install_space):
    code = 'from dla_ros.model import shipped_models; print(*shipped_models().values())'
    shown = in_shell(install_space, f'cd /; {sys.executable} -c "{code}"')
    assert shown.returncode == 0, shown.stderr
    assert all(str(install_space) in path for path in shown.stdout.split())


@pytest.mark.parametrize('executable', ['dla_node', 'play', 'listen', 'demo', 'build'])
def test_executables_run(install_space, executable):
    shown = in_shell(install_space, f'{install_space}/dla_ros/lib/dla_ros/{executable} --help')
    assert shown.returncode == 0 and 'usage' in shown.stdout, shown.stderr


def test_the_installed_node_detects(install_space):
    client = Client()
    node = f'{install_space}/dla_ros/lib/dla_ros/dla_node'
    arguments = '--ros-args -p model:=yolo_fastest -p autostart:=true -p input_qos:=DEFAULT'
    process = subprocess.Popen(
        ['bash', '-c', f'. {install_space}/setup.bash; exec {node} {arguments}'],
        env=ENVIRONMENT, cwd=install_space,
    )
    try:
        client.wait_for_node()
        assert rows(client.detect(message(picture('coral_cat.bmp'))))[0][0] == 'cat'
        process.terminate()
        assert process.wait(5) == 0
    finally:
        process.kill()
        client.close()
        until(lambda: process.poll() is not None)


def setup_arguments() -> dict[str, object]:
    tree = ast.parse((ROOT / 'setup.py').read_text())
    (call,) = (n for n in ast.walk(tree) if isinstance(n, ast.Call)
               and isinstance(n.func, ast.Name) and n.func.id == 'setup')
    return {
        str(k.arg): k.value.value for k in call.keywords if isinstance(k.value, ast.Constant)
    }


def test_package_xml_setup_py_and_changelog_agree():
    manifest = ET.parse(ROOT / 'package.xml').getroot()
    setup = setup_arguments()
    for tag in ('version', 'license'):
        assert manifest.findtext(tag) == setup[tag]
    assert manifest.find('maintainer').get('email') == setup['maintainer_email']
    assert manifest.get('format') == '3'
    assert manifest.findtext('export/build_type') == 'ament_python'
    headings = re.findall(r'^(\d+\.\d+\.\d+|Forthcoming)\b', (ROOT / 'CHANGELOG.rst').read_text(),
                          re.MULTILINE)
    assert headings[0] == 'Forthcoming' or headings[0] == setup['version']


def test_package_xml_names_every_package_that_is_imported():
    manifest = ET.parse(ROOT / 'package.xml').getroot()
    declared = {e.text for e in manifest if e.tag in ('depend', 'exec_depend')}
    keys = {'cv2': 'python3-opencv', 'numpy': 'python3-numpy', 'yaml': 'python3-yaml',
            'pydantic': 'python3-pydantic', 'rich': 'python3-rich',
            'jinja2': 'python3-jinja2', 'matplotlib': 'python3-matplotlib',
            'ruamel': 'python3-ruamel.yaml'}
    # No rosdep key: they come from PyPI (README, "On a robot").
    from_pypi = {'cuda', 'onnx', 'onnxruntime', 'onnxslim', 'rosbags'}
    # What rosbags brings, what one option of a tool wants, and what loads the plugin.
    from_pypi |= {'backports', 'distributed', 'pycocotools', 'pydantic_core', 'pytest'}
    # Where it is installed; else tensors go as Float32MultiArray.
    from_pypi |= {'isaac_ros_tensor_list_interfaces'}
    sources = [*ROOT.glob('dla_ros/**/*.py'), *ROOT.glob('launch/*.py')]
    imported = set()
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split('.')[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add(str(node.module).split('.')[0])
    foreign = imported - set(sys.stdlib_module_names) - from_pypi - {'dla_ros'}
    missing = {keys.get(name, name) for name in foreign} - declared
    assert not missing
