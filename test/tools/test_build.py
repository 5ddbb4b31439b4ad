from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml

from dla_ros import Detector, Model
from dla_ros.convert import trtexec
from dla_ros.convert.check import check_graph
from dla_ros.convert.graph import Graph
from dla_ros.emulator.loadable import is_emulated
from dla_ros.tools.build import main
from test.conftest import picture, ROOT
from test.emulation import clean, opened
from test.networks import copied_model, save_model, save_network
from test.trtexec import install

MODELS = ROOT / 'test/models'
MOBILENET = str(MODELS / 'mobilenet_v2')
YOLOX = [
    str(MODELS / 'yolox_nano_export'), '--fold-focus', '--chain-pools',
    '--cut-outputs', '1066,1108,1150',
]


@pytest.fixture(autouse=True)
def no_trtexec(monkeypatch):
    """A TensorRT that is really here would be used."""
    monkeypatch.setattr(trtexec, 'BESIDE_PATH', Path('/nowhere/trtexec'))
    where = [
        p for p in os.environ['PATH'].split(os.pathsep) if not Path(p, 'trtexec').exists()
    ]
    monkeypatch.setenv('PATH', os.pathsep.join(where))


def built(out, *arguments):
    """Build, and return what model.yaml then says."""
    assert main([*map(str, arguments), '--out', str(out)]) == 0
    return yaml.safe_load((out / 'model.yaml').read_text())


def test_an_export_becomes_a_network_that_finds_the_same(tmp_path, capsys):
    out = tmp_path / 'built'
    content = built(out, *YOLOX)
    said = capsys.readouterr().out
    assert 'trtexec --onnx=model.fp16.onnx' in said and '1 Focus stem(s) folded' in said
    assert 'No trtexec is here' in said and 'does not fit' not in said
    assert check_graph(Graph.read(out / 'model.fp16.onnx')).passed
    with Detector.open(YOLOX[0]) as before, Detector.open(out) as after:
        expected, found = before(picture('coral_cat.bmp')), after(picture('coral_cat.bmp'))
    assert len(found.score) == len(expected.score) > 0
    np.testing.assert_allclose(found.score, expected.score, atol=1e-3)
    assert content['built']['inputs'] == {'images': '1x3x416x416 fp16:chw16'}
    assert content['built']['outputs']['1066'] == '1x85x52x52 fp16:chw16'
    assert content['built']['command'] in said and 'loadable' not in content
    assert {'dla_ros', 'onnx', 'tensorrt'} <= content['built']['versions'].keys()


def test_comments_of_the_model_yaml_remain(tmp_path):
    out = tmp_path / 'built'
    built(out, MOBILENET, '--chain-pools')
    before = (MODELS / 'mobilenet_v2/model.yaml').read_text().splitlines()
    after = (out / 'model.yaml').read_text().splitlines()
    changed = [line for line in before if line not in after]
    assert all(line.startswith(('onnx', '  made')) for line in changed), changed
    assert '# loadable: model.bin  # once trtexec has built it' in after


@pytest.mark.parametrize('number', [110401, 100300])
@pytest.mark.parametrize('precision', ['fp16', 'int8'])
def test_trtexec_builds_the_loadable(tmp_path, monkeypatch, capsys, number, precision):
    install(tmp_path, monkeypatch, number)
    arguments = [MOBILENET, '--chain-pools', '--precision', precision]
    if precision == 'int8':
        arguments += ['--calibration', ROOT / 'demo/pictures']
    out = tmp_path / 'built'
    content = built(out, *arguments)
    assert (out / 'model.bin').read_bytes()[4:8] == b'NVDA'
    digest = hashlib.sha256((out / 'model.bin').read_bytes()).hexdigest()
    assert content['loadable'] == 'model.bin' and content['loadable_sha256'] == digest
    assert content['built']['versions']['tensorrt'] == ('11.4.1' if number > 110000 else '10.3.0')
    assert '&&&& PASSED' in (out / 'trtexec.log').read_text()
    assert Model.load(out).loadable == out / 'model.bin'
    assert ('scales' in content) == (precision == 'int8')
    assert 'No trtexec is here' not in capsys.readouterr().out


def test_int8_is_calibrated_and_still_sees_the_same(tmp_path, capsys):
    out = tmp_path / 'built'
    content = built(
        out, MOBILENET, '--chain-pools', '--precision', 'int8', '--emulated',
        '--calibration', ROOT / 'demo/pictures',
    )
    # The input is (pixel - 128) / 128.
    assert content['scales']['input'] == pytest.approx(1 / 127, rel=0.01)
    assert content['scales'].keys() == {'input', 'logits'}
    quantized = onnx.load(out / 'model.int8.onnx')
    assert 'QuantizeLinear' in {node.op_type for node in quantized.graph.node}
    for info in (*quantized.graph.input, *quantized.graph.output):
        assert info.type.tensor_type.elem_type == onnx.TensorProto.INT8
    assert 'logits' in capsys.readouterr().out
    with clean(), opened(out / 'model.yaml') as detector, Detector.open(MOBILENET) as exact:
        assert detector.backend.inputs[0].layout.name == 'chw32'
        views = [picture('coral_cat.bmp'), picture('coral_sunflower.bmp')]
        for view in views:
            assert detector(view).class_id[0] == exact(view).class_id[0]


@pytest.mark.parametrize('form', ['fp16:dla_hwc4', 'fp16:dla_linear'])
def test_what_is_emulated_runs(tmp_path, form):
    out = tmp_path / 'built'
    content = built(out, 'yolo_fastest', '--emulated', '--inputIOFormats', form)
    assert is_emulated((out / 'model.bin').read_bytes())
    assert content['built']['inputs']['images'] == f'1x3x320x320 {form}'
    with clean(), opened(out / 'model.yaml') as detector:
        assert detector.backend.inputs[0].layout.name == form.partition(':')[2]
        assert len(detector(picture('coral_cat.bmp')).score)


def test_a_network_without_a_model_yaml_gets_one_to_fill_in(tmp_path):
    save_network(tmp_path / 'net.onnx', shape=('n', 1, 4, 4))
    out = tmp_path / 'built'
    content = built(out, tmp_path / 'net.onnx', '--shape', 'x0:1x1x4x4')
    assert content['name'] == 'net' and content['decoder'] == {'type': 'none'}
    assert content['input']['color_order'] == 'mono'
    Detector.open(out).close()


def test_a_decoder_that_no_longer_fits_is_reported(tmp_path, capsys):
    built(tmp_path / 'built', *YOLOX[:-1], '1186')
    assert 'does not fit' in capsys.readouterr().out.replace('\n', ' ')


def test_the_default_folder_is_named_by_the_model(tmp_path, monkeypatch):
    save_model(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(['model.yaml', '--emulated']) == 0
    assert (tmp_path / 'small-fp16/model.bin').is_file()


def test_nothing_is_replaced_without_force(tmp_path, capsys):
    model, out = save_model(tmp_path), tmp_path / 'built'
    out.mkdir()
    (out / 'model.bin').write_bytes(b'precious')
    arguments = [str(model), '--emulated', '--out', str(out)]
    assert main(arguments) == 1
    assert '--force replaces' in capsys.readouterr().err
    assert [p.read_bytes() for p in out.iterdir()] == [b'precious']
    assert main([*arguments, '--force']) == 0
    assert is_emulated((out / 'model.bin').read_bytes())
    kept = model.read_bytes()
    assert main([str(model), '--emulated', '--out', str(tmp_path), '--force']) == 1
    assert 'another folder' in capsys.readouterr().err and model.read_bytes() == kept


def test_a_refused_network_is_not_built(tmp_path, capsys):
    out = tmp_path / 'built'
    assert main([*YOLOX[:3], '--out', str(out)]) == 1
    captured = capsys.readouterr()
    assert 'Reshape_405' in captured.out and '--unchecked' in captured.err and not out.exists()
    built(out, *YOLOX[:3], '--unchecked')


def test_a_failure_of_trtexec_leaves_no_loadable_but_its_log(tmp_path, monkeypatch, capsys):
    install(tmp_path, monkeypatch, failure='1 Cannot create DLA engine, 0 not available')
    out = tmp_path / 'built'
    assert main([str(save_model(tmp_path)), '--out', str(out)]) == 1
    assert 'no DLA' in capsys.readouterr().err
    assert {path.name for path in out.iterdir()} == {
        'model.onnx', 'model.fp16.onnx', 'model.yaml', 'trtexec.log'
    }
    assert Model.load(out).loadable is None


ERRORS = [
    (['--inputIOFormats', 'int8:chw32'], 1, '--precision int8'),
    (['--inputIOFormats', 'int8:chw32', '--emulated'], 1, 'needs a scale in model.yaml'),
    (['--inputIOFormats', 'fp16:chw8'], 2, "Invalid layout 'chw8'"),
    (['--outputIOFormats', 'fp16:dla_hwc4'], 1, 'not for float16 with 6 channels'),
    (['--precision', 'int8'], 1, '--calibration'),
    (['--precision', 'int8', '--calibration', '/nowhere'], 1, '/nowhere does not exist'),
    (['--tensorrt', '11.2'], 1, 'TensorRT 11.2 does not build for DLAs'),
    (['--tensorrt', 'new'], 2, "'new' is no version"),
    (['--cut-outputs', 'nothing'], 1, "no tensor 'nothing'"),
    (['--shape', 'x0'], 2, 'NAME:SHAPE'),
    (['--out', '/proc/nowhere'], 1, '/proc/nowhere'),
]


@pytest.mark.parametrize(('extra', 'code', 'words'), ERRORS)
def test_errors_say_what_is_wrong(tmp_path, capsys, monkeypatch, extra, code, words):
    monkeypatch.chdir(tmp_path)
    try:
        returned = main([str(save_model(tmp_path)), *extra])
    except SystemExit as error:
        returned = error.code
    assert returned == code and words in capsys.readouterr().err
    assert not (tmp_path / 'small-fp16/model.bin').exists()


def test_int8_needs_a_model_yaml(tmp_path, capsys):
    save_network(tmp_path / 'net.onnx')
    arguments = [str(tmp_path / 'net.onnx'), '--precision', 'int8', '--calibration', '/nowhere']
    assert main([*arguments, '--out', str(tmp_path / 'out')]) == 1
    assert 'needs a model.yaml' in capsys.readouterr().err


def test_a_model_that_is_none(capsys):
    assert main(['nowhere', '--emulated']) == 1
    assert 'yolox_nano' in capsys.readouterr().err


def test_a_label_file_travels(tmp_path):
    path = copied_model('yolo_fastest', tmp_path)
    built(tmp_path / 'built', path, '--emulated')
    assert Model.load(tmp_path / 'built').labels == Model.load(path).labels
