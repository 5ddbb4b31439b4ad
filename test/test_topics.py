from __future__ import annotations

import re

from hypothesis import given, strategies as st
import numpy as np
import pytest

from dla_ros import topics
from dla_ros.detector import Result
from dla_ros.model import find_model, Model
from dla_ros.parameters import INPUT_NAMES, OUTPUT_NAMES, TRANSPORT_NAMES
from dla_ros.predictions import Detections, Segmentation
from dla_ros.tensor import TensorSpec
from dla_ros.topics import PREDICTIONS, result_topics, SOURCES, topic_token
from test.conftest import ROOT
from test.ros import message

OUTPUTS = [
    TensorSpec.of('head8', (1, 2, 3, 4), 'float16'), TensorSpec.of('537', (1, 1, 2, 2), 'float16'),
]
MODEL = Model.load(find_model('yolox_nano'))
HEADER = message(np.zeros((1, 1, 3), np.uint8)).header


def names(model=MODEL, makes=Detections, wanted='predictions'):
    return [topic.name for topic in result_topics(model, makes, OUTPUTS, wanted)]


def test_every_way_in_is_a_choice_of_a_parameter():
    assert tuple(SOURCES) == (*TRANSPORT_NAMES, 'tensors')
    assert INPUT_NAMES == ('image', 'tensors')


def test_the_topics_follow_the_parameter():
    assert OUTPUT_NAMES == ('predictions', 'tensors', 'both')
    assert names() == ['detections_output']
    assert names(wanted='tensors') == ['tensor_sub']
    assert names(wanted='both') == ['detections_output', 'tensor_sub']
    assert names(makes=None, wanted='both') == ['tensor_sub']
    deeplab = Model.load(ROOT / 'test/models/deeplab_v3')
    assert names(deeplab, Segmentation) == ['segmentation_output']


def test_without_isaacs_interfaces_each_tensor_has_its_topic(monkeypatch):
    monkeypatch.setattr(topics, 'TensorList', None)
    made = result_topics(MODEL, Detections, OUTPUTS, 'tensors')
    assert [topic.name for topic in made] == ['tensor_sub/head8', 'tensor_sub/tensor_537']
    values = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    array = made[0].message(Result(None, {}, {'head8': values}), HEADER, ())
    layout = [(dim.label, dim.size, dim.stride) for dim in array.layout.dim]
    assert layout == [('batch', 1, 24), ('channel', 2, 24), ('row', 3, 12), ('column', 4, 4)]
    assert array.data.tolist() == values.reshape(-1).tolist()


@given(st.text(min_size=1, max_size=20))
def test_every_tensor_name_makes_a_topic_name(name):
    assert re.fullmatch(r'[A-Za-z][A-Za-z0-9_]*', topic_token(name))


def test_each_kind_of_prediction_has_its_topics():
    for makes, rows in PREDICTIONS.items():
        assert rows and len({row.name for row in rows}) == len(rows), makes


@pytest.mark.parametrize('makes', PREDICTIONS)
def test_topic_names_are_relative(makes):
    assert not any(row.name.startswith('/') for row in PREDICTIONS[makes])
