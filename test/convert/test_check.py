from __future__ import annotations

import json

import numpy as np
import onnx
from onnx import helper, TensorProto
import pytest

from dla_ros.tools.check import main
from test.conftest import ROOT
from test.convert.test_rules import conv
from test.networks import save_model, save_network

MODELS = ROOT / 'test/models'


def checked(capsys, *arguments):
    """Return the exit code and the report of a check."""
    code = main([*map(str, arguments), '--json', '-'])
    return code, json.loads(capsys.readouterr().out)


def refused(report):
    return {(row['operator'], row['rule']) for row in report['refusals']}


@pytest.mark.parametrize('name', ['yolox_nano', 'yolo_fastest', MODELS / 'centerface'])
def test_networks_made_for_a_dla_pass(capsys, name):
    code, report = checked(capsys, name)
    assert code == 0 and report['passed'] and not report['refusals'] and report['part'] == 1
    names = [sorted(place['name'] for place in report[key]) for key in ('cut_outputs', 'outputs')]
    assert names[0] == names[1]
    assert 0 < max(report['ranges'].values()) < 65504 and not report['overflows']


@pytest.mark.parametrize(
    ('name', 'expected'),
    [
        ('yolox_nano_export', {
            ('Slice', 'slice.steps'), ('MaxPool', 'pooling.window'), ('Reshape', 'any.rank'),
            ('Reshape', 'shuffle.neighbors'), ('Concat', 'concatenation.axis'),
            ('Concat', 'any.rank'), ('Transpose', 'any.rank'),
        }),
        ('fastestdet', {
            ('Reshape', 'any.rank'), ('Reshape', 'shuffle.batch'), ('Transpose', 'any.rank'),
            ('Transpose', 'shuffle.batch'), ('Gather', 'any.operator'), ('Pad', 'any.operator'),
            ('Reshape', 'shuffle.neighbors'),
        }),
        ('deeplab_v3', {
            ('GlobalAveragePool', 'any.operator'), ('Resize', 'resize.scales'),
            ('Resize', 'resize.mode'),
        }),
        ('mobilenet_v2', {('GlobalAveragePool', 'any.operator')}),
        ('selfie_segmentation', {('GlobalAveragePool', 'any.operator')}),
    ],
)
def test_other_networks_are_refused_for_the_right_nodes(capsys, name, expected):
    code, report = checked(capsys, MODELS / name)
    assert code == 1 and refused(report) == expected


def test_ultraface_is_refused_from_its_reshaping_on(capsys):
    code, report = checked(capsys, MODELS / 'ultraface')
    operators = {row['operator'] for row in report['refusals']}
    assert code == 1 and {'Reshape', 'Exp', 'Softmax', 'Concat'} <= operators
    assert not operators & {'Conv', 'Relu', 'BatchNormalization', 'Transpose'}
    # It may be cut before the tensors are turned around for reshaping: sizes of the feature maps.
    assert {tuple(place['shape'][2:]) for place in report['cut_outputs']} == {
        (30, 40), (15, 20), (8, 10), (4, 5)
    }


def test_what_build_may_be_asked_for(capsys):
    _, report = checked(capsys, MODELS / 'yolox_nano_export')
    assert report['surgery'] == [
        '--chain-pools', '--fold-focus', '--cut-outputs=1066,1108,1150'
    ]
    assert main([str(MODELS / 'mobilenet_v2')]) == 1
    assert 'mobilenet_v2_224_fp16.onnx --chain-pools\n' in capsys.readouterr().out


def test_where_deeplab_may_be_cut(capsys):
    _, report = checked(capsys, MODELS / 'deeplab_v3')
    assert [place['shape'] for place in report['cut_inputs']] == [[1, 3, 513, 513]]
    assert [place['shape'] for place in report['cut_outputs']] == [
        [1, 160, 33, 33], [1, 256, 33, 33]
    ]
    assert 0.8 < report['part'] < 0.9


def test_layouts_memory_and_operations_of_a_known_network(capsys):
    _, report = checked(capsys, 'yolox_nano')
    (image,) = report['inputs']
    assert image['layouts']['fp16:chw16'] == 416 * 416 * 32
    assert image['layouts']['fp16:dla_hwc4'] == 416 * 416 * 8
    head = next(place for place in report['outputs'] if place['name'] == 'head8')
    assert head['layouts']['int8:chw32'] == 3 * 52 * 52 * 32 and 'fp16:dla_hwc4' not in (
        head['layouts']
    )
    # YOLOX-nano has 1.08 G operations at 416 (its README), 0.91 M parameters.
    assert report['operations'] == pytest.approx(1.08e9, rel=0.1)
    assert report['weights'] == pytest.approx(2 * 0.91e6, rel=0.05)


def test_operations_of_one_convolution():
    from dla_ros.convert.check import operations

    graph = conv(outer=2)
    assert operations(graph.nodes[0], graph) == 2 * (2 * 8 * 8) * (4 * 3 * 3)


def test_a_value_beyond_float16_is_named(tmp_path, capsys):
    path = save_model(tmp_path)
    loud = onnx.load(tmp_path / 'network.onnx')
    loud.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(np.array([70000.0], np.float32), 'one')
    )
    onnx.save(loud, tmp_path / 'network.onnx')
    code, report = checked(capsys, path)
    assert code == 1 and not report['refusals'] and set(report['overflows']) == {'sum', 'y'}
    assert main([str(path)]) == 1 and '65504' in capsys.readouterr().out


def test_an_open_shape_can_be_fixed(tmp_path, capsys):
    path = tmp_path / 'open.onnx'
    save_network(path, shape=('n', 3, 4, 4))
    code, report = checked(capsys, path)
    assert code == 1 and 'any.static' in {rule for _, rule in refused(report)}
    code, report = checked(capsys, path, '--shape', 'x0:1x3x4x4')
    assert code == 0 and report['inputs'][0]['shape'] == [1, 3, 4, 4]
    assert main([str(path), '--shape', 'z:1x3x4x4']) == 2
    assert "no input 'z'; there are x0" in capsys.readouterr().err


def test_constants_are_folded_before_anything_is_said(tmp_path, capsys):
    # What exporters write for x.view(x.shape[0], -1, 8, 8).
    nodes = [
        helper.make_node('Shape', ['x'], ['s']),
        helper.make_node('Gather', ['s', 'zero'], ['n'], axis=0),
        helper.make_node('Unsqueeze', ['n', 'first'], ['n1']),
        helper.make_node('Concat', ['n1', 'rest'], ['to'], axis=0),
        helper.make_node('Reshape', ['x', 'to'], ['y']),
    ]
    constants = {'zero': np.array(0), 'first': np.array([0]), 'rest': np.array([-1, 4, 4])}
    graph = helper.make_graph(
        nodes, 'net', [helper.make_tensor_value_info('x', TensorProto.FLOAT, (1, 4, 8, 8))],
        [helper.make_empty_tensor_value_info('y')],
        [onnx.numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=9)
    onnx.save(onnx.shape_inference.infer_shapes(model, data_prop=True), tmp_path / 'net.onnx')
    code, report = checked(capsys, tmp_path / 'net.onnx')
    assert code == 0 and report['outputs'][0]['shape'] == [1, 16, 4, 4]


@pytest.mark.parametrize(
    ('content', 'words'), [(b'', 'no ONNX network'), (b'ftrt' * 9, 'no ONNX network'),
                           (None, 'no ONNX network')],
)
def test_what_is_no_network_is_no_traceback(tmp_path, capsys, content, words):
    path = tmp_path / 'net.onnx'
    if content is not None:
        path.write_bytes(content)
    assert main([str(path)]) == 2
    err = capsys.readouterr().err
    assert words in err and str(path) in err


def test_the_table_has_node_limit_value_and_remedy(capsys, monkeypatch):
    monkeypatch.setenv('COLUMNS', '200')
    assert main([str(MODELS / 'deeplab_v3')]) == 1
    out = capsys.readouterr().out
    for words in ('Resize_100', 'scales 1, 1, 33, 33', 'align_corners=False', 'NvInfer.h',
                  '2 node(s) refused', 'largest part that a DLA can run'):
        assert words in out


def test_the_json_goes_to_a_file_too(tmp_path, capsys):
    target = tmp_path / 'report.json'
    assert main(['yolo_fastest', '--json', str(target)]) == 0
    assert json.loads(target.read_text())['passed'] is True
    assert 'nothing speaks against' in capsys.readouterr().out
