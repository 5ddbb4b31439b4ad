from __future__ import annotations

import array

from hypothesis import given, strategies as st
import pytest

from dla_ros.parameters import check_all, markdown_table, ParameterError, PARAMETERS

BY_NAME = {parameter.name: parameter for parameter in PARAMETERS}
NUMBERS = [p for p in PARAMETERS if type(p.default) in (int, float)]


@pytest.mark.parametrize('parameter', PARAMETERS, ids=lambda p: p.name)
def test_a_default_is_valid_and_described(parameter):
    assert parameter.check(parameter.default) == parameter.default
    assert parameter.description.endswith('.')
    assert parameter in NUMBERS or parameter.least is parameter.most is None


@pytest.mark.parametrize('parameter', NUMBERS, ids=lambda p: p.name)
@given(st.integers(-(10**6), 10**6))
def test_integers_are_taken_for_every_number_within_its_bounds(parameter, value):
    low = parameter.least if parameter.least is not None else value
    high = parameter.most if parameter.most is not None else value
    if low <= value <= high:
        checked = parameter.check(value)
        assert checked == value and type(checked) is type(parameter.default)
    else:
        with pytest.raises(ParameterError, match=f'{parameter.name} must be .*got {value}'):
            parameter.check(value)


@pytest.mark.parametrize(
    ('name', 'value', 'words'),
    [
        ('confidence_threshold', 1.5, 'confidence_threshold must be 0 to 1, got 1.5'),
        ('confidence_threshold', float('nan'), 'must be 0 to 1, got nan'),
        ('confidence_threshold', '0.5', r"must be of type double, got '0.5' \(str\)"),
        ('confidence_threshold', True, 'must be of type double, got True'),
        ('max_detections', 2.0, r'must be of type integer, got 2.0 \(float\)'),
        ('max_detections', True, 'must be of type integer'),
        ('depth', 0, 'depth must be 1 to 16, got 0'),
        ('roi_top_left_x', -1, 'must be 0 or more, got -1'),
        ('model', 123e5, 'model must be of type string, got 12300000.0'),
        ('model', None, 'model must be of type string, got None'),
        ('backend', 'tensorrt', "backend must be one of 'onnxruntime', 'cudla', got 'tensorrt'"),
        ('input_qos', 'RELIABLE', "'SENSOR_DATA', 'DEFAULT', 'SYSTEM_DEFAULT', got 'RELIABLE'"),
        ('input_encoding', 'rgb', "input_encoding must be one of .*got 'rgb'"),
        ('class_filter', 'person', "class_filter must be of type string array, got 'person'"),
        ('class_filter', [1], r'class_filter must be of type string array, got \[1\]'),
        ('autostart', 'yes', "autostart must be of type bool, got 'yes'"),
        ('autostart', 1, 'autostart must be of type bool, got 1'),
    ],
)
def test_a_wrong_value_is_refused_in_a_sentence(name, value, words):
    with pytest.raises(ParameterError, match=words):
        BY_NAME[name].check(value)


@pytest.mark.parametrize('value', [[], (), None, array.array('b'), array.array('d')])
def test_an_empty_list_of_any_type_is_an_empty_list_of_strings(value):
    assert BY_NAME['class_filter'].check(value) == []


def test_all_faults_at_once():
    values = {p.name: p.default for p in PARAMETERS}
    assert check_all(values) == values
    with pytest.raises(ParameterError) as caught:
        check_all({**values, 'depth': 0, 'backend': 'x', 'nms_threshold': 2})
    assert [line.split()[0] for line in str(caught.value).splitlines()] == [
        'backend', 'depth', 'nms_threshold'
    ]


def test_the_table_has_a_row_for_each_parameter():
    rows = markdown_table().splitlines()
    assert len(rows) == len(PARAMETERS) + 2
    assert len({row.count('|') for row in rows}) == 1
