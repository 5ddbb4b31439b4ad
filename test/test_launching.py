from __future__ import annotations

import ast

import pytest

from dla_ros.launching import (
    detector,
    LaunchError,
    replay,
    REPLAY_ARGUMENTS,
)
from test.conftest import ROOT


def test_defaults():
    node = detector({}, '/share/detector.yaml')
    assert node.executable == 'dla_node' and node.package == 'dla_ros'
    assert node.parameters == {'autostart': True}
    assert node.params_file == '/share/detector.yaml'
    assert node.remappings == [] and not node.respawn


def test_every_argument_reaches_the_node():
    node = detector({
        'model': 'yolox_nano', 'image_topic': '/camera/image_raw', 'namespace': 'front',
        'name': 'eye', 'backend': 'onnxruntime', 'core': '1', 'params_file': '/p.yaml',
        'autostart': 'false', 'log_level': 'debug', 'respawn': 'true',
    }, '/share/detector.yaml')
    assert node.parameters == {
        'autostart': False, 'model': 'yolox_nano', 'backend': 'onnxruntime', 'dla_core': 1
    }
    assert node.remappings == [('image', '/camera/image_raw')]
    assert (node.namespace, node.name, node.params_file) == ('front', 'eye', '/p.yaml')
    assert node.respawn
    assert node.ros_arguments() == [
        '--ros-args', '-r', '__node:=eye', '-r', '__ns:=/front', '-r', 'image:=/camera/image_raw',
        '--params-file', '/p.yaml', '-p', 'autostart:=false', '-p', "model:='yolox_nano'",
        '-p', "backend:='onnxruntime'", '-p', 'dla_core:=1', '--log-level', 'front.eye:=debug',
    ]


@pytest.mark.parametrize('model', ['123E5', '007', 'true', "it's", '~', '', '[a]'])
def test_a_model_stays_a_string(model):
    node = detector({'model': model})
    if model:
        assert node.parameters['model'] == model
        (argument,) = [a for a in node.ros_arguments() if a.startswith('model:=')]
        import yaml

        assert yaml.safe_load(argument.removeprefix('model:=')) == model
    else:
        assert 'model' not in node.parameters


@pytest.mark.parametrize(
    ('arguments', 'words'),
    [
        ({'core': '2'}, "core must be 0 or 1, got '2'"),
        ({'core': 'a'}, "core must be 0 or 1, got 'a'"),
        ({'backend': 'cuda'}, "backend must be one of .*onnxruntime.*got 'cuda'"),
        ({'autostart': 'yes'}, "autostart must be one of .*got 'yes'"),
        ({'respawn': '1'}, 'respawn must be one of'),
        ({'log_level': 'loud'}, 'log_level must be one of'),
        ({'modle': 'x'}, 'unknown argument modle'),
    ],
)
def test_a_wrong_argument_is_named(arguments, words):
    with pytest.raises(LaunchError, match=words):
        detector(arguments)


def test_replay_has_simulated_time_and_the_words_of_its_tools():
    made = replay({
        'source': 'bag', 'topic': '/t', 'rate': '9', 'loop': '2', 'out': 'd.jsonl',
        'model': 'yolox_nano', 'image_topic': '/t', 'namespace': 'front',
    })
    assert made.node.parameters == {
        'autostart': True, 'model': 'yolox_nano', 'use_sim_time': True, 'input_qos': 'DEFAULT',
        'input_queue_size': 20,
    }
    assert made.play == ['bag', '--topic=/t', '--rate=9', '--loop=2', '--clock']
    assert made.listen == ['--out=d.jsonl', '--force']
    assert made.remappings == made.node.remappings == [('image', '/t')]
    assert replay({'source': 'bag'}).listen == []
    with pytest.raises(LaunchError, match='source must name what to play'):
        replay({})
    with pytest.raises(LaunchError, match='unknown argument sauce'):
        replay({'source': 'bag', 'sauce': 'x'})


@pytest.mark.parametrize('name', ['detector', 'replay'])
def test_the_launch_files_decide_nothing_themselves(name):
    """They are only read here; with launch installed, test/launch runs them."""
    tree = ast.parse((ROOT / 'launch' / f'{name}.launch.py').read_text())
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert {f'{name.upper()}_ARGUMENTS', name} <= names
    strings = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
    assert not strings & {argument.name for argument in REPLAY_ARGUMENTS}
