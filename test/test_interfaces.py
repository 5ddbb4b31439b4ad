"""The message definitions are those of the real packages: their type hashes say so."""

from __future__ import annotations

import importlib

import pytest

from test.ros import Client

HASHES = {
    'vision_msgs/Detection2DArray':
        'RIHS01_214274120007f4a683866481336b70310268cfa107aebe9d594a6acf75bda968',
    'isaac_ros_tensor_list_interfaces/TensorList':
        'RIHS01_498b4418eed651d1eb843a154ac3dd6b7612b3fa851e1bd930f9f0c2e862cf6c',
    'sensor_msgs/Image':
        'RIHS01_d31d41a9a4c4bc8eae9be757b0beed306564f7526c88ea6a4588fb9582527d47',
}


@pytest.fixture(scope='module')
def client():
    made = Client()
    yield made
    made.close()


@pytest.mark.parametrize('name', HASHES)
def test_the_type_hash_on_the_wire(client, name):
    package, kind = name.split('/')
    message = getattr(pytest.importorskip(f'{package}.msg'), kind)
    publisher = client.node.create_publisher(message, f'hash_{package}', 1)
    (info,) = client.node.get_publishers_info_by_topic(publisher.topic_name)
    assert str(info.topic_type_hash) == HASHES[name]


def test_messages_import_without_environment_variables():
    for name in HASHES:
        importlib.import_module(f'{name.split("/")[0]}.msg')
