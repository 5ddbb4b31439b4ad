from __future__ import annotations

import hashlib

import numpy as np
import pytest
import yaml

from dla_ros.model import find_model, Model, ModelError, shipped_models
from test.conftest import MODELS, ROOT

GOOD = {
    'name': 'net',
    'onnx': 'net.onnx',
    'labels': ['a', 'b'],
    'input': {'color_order': 'rgb', 'resize': 'letterbox'},
    'decoder': {'type': 'yolox'},
}


@pytest.fixture
def write(tmp_path):
    (tmp_path / 'net.onnx').write_bytes(b'onnx')

    def write_model(**changes):
        path = tmp_path / 'model.yaml'
        path.write_text(yaml.safe_dump({**GOOD, **changes}))
        return path

    return write_model


def faults(path):
    with pytest.raises(ModelError) as caught:
        Model.load(path)
    return str(caught.value)


@pytest.mark.parametrize('name', MODELS)
def test_shipped_models_load_by_name_folder_and_file(name):
    folder = ROOT / 'models' / name
    for source in (name, folder, str(folder / 'model.yaml')):
        model = Model.load(source)
        assert model.name == name and len(model.labels) == 80 and model.labels[0] == 'person'
        assert model.onnx.is_file() and model.onnx_sha256


def test_every_shipped_model_is_tested():
    assert set(shipped_models()) == set(MODELS)


def test_defaults(write):
    model = Model.load(write())
    assert model.input.padding == 'center' and model.input.border_value == 114
    np.testing.assert_array_equal(
        model.input.normalized(), np.repeat(np.arange(256.0)[:, None], 3, 1)
    )


def test_normalization_and_fractions(write):
    settings = {**GOOD['input'], 'scale': '1/255', 'mean': [0.5, 0.25, 0], 'stddev': [0.5]}
    table = Model.load(write(input=settings)).input.normalized()
    np.testing.assert_allclose(table[255], [1, 1.5, 2])
    np.testing.assert_allclose(table[0], [-1, -0.5, 0])
    assert table.dtype == np.float32


def test_five_faults_in_one_message(write):
    path = write(
        onnx='missing.onnx', nmae='typo', labels=[],
        input={'color_order': 'gbr', 'resize': 'letterbox', 'stddev': [0]},
        decoder={'type': 'yolov9'},
    )
    text = faults(path)
    assert str(path) in text and '6 fault(s)' in text
    for words in (
        f'onnx: no file {path.parent / "missing.onnx"}', 'nmae: ', 'labels: ',
        "input.color_order: Input should be 'rgb', 'bgr' or 'mono', got 'gbr'",
        'input.stddev.0: Input should be greater than 0, got 0', "'yolov9'",
    ):
        assert words in text, words
    assert "'yolox'" in text and "'yolov3'" in text


@pytest.mark.parametrize(
    ('changes', 'words'),
    [
        ({'onnx': 5}, 'onnx: must be a file name, got 5'),
        ({'name': ''}, 'name: '),
        ({'onnx_sha256': 'abc'}, 'onnx_sha256: '),
        ({'onnx_sha256': '0' * 64}, 'is another file than model.yaml means'),
        ({'labels': 'missing.names'}, 'labels: no file'),
        ({'labels': ['a', '']}, 'labels: empty name for class 1'),
        ({'labels': [1, 2]}, 'labels.0: '),
        ({'decoder': {}}, 'decoder: '),
        ({'decoder': {'type': 'yolov3'}}, 'decoder.anchors: Field required'),
        ({'decoder': {'type': 'yolox', 'strides': [0]}}, 'decoder.strides.0: '),
        ({'decoder': {'type': 'yolox', 'anchors': {}}}, 'decoder.anchors: Extra inputs'),
        ({'labels': []}, 'labels: the decoder needs a name for each class'),
        ({'input': {}}, 'input.color_order: Field required'),
        ({'input': {**GOOD['input'], 'scale': '1/0'}}, "input.scale: '1/0' is neither"),
        ({'input': {**GOOD['input'], 'mean': [1, 2]}}, 'input.mean: needs 1 or 3 numbers, got 2'),
        ({'input': {**GOOD['input'], 'mean': [float('nan')]}}, 'input.mean.0: '),
        ({'input': {**GOOD['input'], 'border_value': 256}}, 'input.border_value: '),
        ({'input': {**GOOD['input'], 'interpolation': 'cubic'}}, 'input.interpolation: '),
    ],
)
def test_a_fault_names_its_key(write, changes, words):
    assert words in faults(write(**changes))


def test_a_digest_that_fits(write):
    digest = hashlib.sha256(b'onnx').hexdigest()
    assert Model.load(write(onnx_sha256=digest)).onnx_sha256 == digest


def test_labels_from_a_file(write, tmp_path):
    (tmp_path / 'names.txt').write_text('dog\ncat \n\n')
    assert Model.load(write(labels='names.txt')).labels == ('dog', 'cat')


@pytest.mark.parametrize('content', ['', '- a', 'name: [', '\x00', 'a: b: c'])
def test_what_is_no_mapping_is_refused(tmp_path, content):
    path = tmp_path / 'model.yaml'
    path.write_text(content)
    assert str(path) in faults(path)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / 'model.yaml'
    path.write_bytes(b'\xff\xfe\x00\xd8')
    assert str(path) in faults(path)


@pytest.mark.parametrize('source', ['', 'home/me/model.yaml', 'yolox-nano', '~/none.yaml'])
def test_no_such_model_gives_the_resolved_path_and_the_names(source, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('HOME', str(tmp_path))
    with pytest.raises(ModelError) as caught:
        find_model(source)
    assert str(tmp_path) in str(caught.value) and 'yolox_nano' in str(caught.value)
