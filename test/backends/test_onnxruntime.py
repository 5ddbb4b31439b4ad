from __future__ import annotations

import time

import numpy as np
from onnx import TensorProto
import pytest

from dla_ros.backends.base import BackendOptions
from dla_ros.backends.onnxruntime import OnnxruntimeBackend
from dla_ros.decoders.heads import Head
from dla_ros.errors import BackendError, DeadlineError
from dla_ros.geometry import Geometry
from dla_ros.image import ImageView
from dla_ros.model import Model
from dla_ros.tensor import TensorSpec
from test.networks import save_network


def model_for(path):
    return Model.model_validate(
        {
            'name': 'net', 'onnx': path.name, 'labels': ['a'],
            'input': {'color_order': 'rgb', 'resize': 'stretch'}, 'decoder': {'type': 'yolox'},
        },
        context={'folder': path.parent},
    )


@pytest.fixture
def open_backend(tmp_path):
    opened = []

    def open_network(depth=2, **network):
        path = tmp_path / 'net.onnx'
        save_network(path, **network)
        opened.append(OnnxruntimeBackend.open(model_for(path), BackendOptions(depth, 1)))
        return opened[-1]

    yield open_network
    for backend in opened:
        backend.close()


IDENTITY = Geometry.fit((4, 4), (4, 4), 'stretch')
# One cell is one box: 4 box values, objectness, 1 class.
HEAD = Head.packed('y', 1, (1.0, 1.0))


def image(value):
    array = np.full((4, 4, 3), value, np.uint8)
    return ImageView.from_array(array, 'rgb8')


@pytest.mark.parametrize('kind', [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_specs_come_from_the_graph(open_backend, kind):
    backend = open_backend(kind=kind, shape=(1, 3, 5, 7))
    dtype = 'float32' if kind == TensorProto.FLOAT else 'float16'
    assert backend.inputs == (TensorSpec.of('x0', (1, 3, 5, 7), dtype),)
    assert backend.outputs == (TensorSpec.of('y', (1, 6, 5, 7), dtype),)


@pytest.mark.parametrize('kind', [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_each_slot_has_its_own_frame(open_backend, kind):
    backend = open_backend(depth=3, kind=kind)
    backend.read_from([HEAD], ())
    for _ in range(2):
        for slot in range(3):
            backend.submit(slot, image(slot + 1), IDENTITY, 0.5)
        for slot in range(3):
            done = backend.collect(slot, 10.0)
            assert len(done.candidates.score) == 16
            np.testing.assert_array_equal(done.candidates.score, (slot + 2.0) ** 2)
            assert set(done.stages) == {'preprocess', 'inference', 'select'}


def test_the_shape_must_be_fixed(open_backend):
    with pytest.raises(BackendError, match=r"'x0' has the dynamic shape \['batch', 3, 4, 4\]"):
        open_backend(shape=('batch', 3, 4, 4))


def test_three_dimensions_are_refused(open_backend):
    with pytest.raises(BackendError, match=r'net.onnx.*four positive numbers.*\(3, 4, 4\)'):
        open_backend(shape=(3, 4, 4))


def test_other_types_are_refused(open_backend):
    with pytest.raises(BackendError, match=r"'x0' is tensor\(int64\).*float16"):
        open_backend(kind=TensorProto.INT64)


def test_several_inputs_are_refused(open_backend):
    with pytest.raises(BackendError, match='has 2 inputs'):
        open_backend(inputs=2)


def test_other_channels_are_refused(open_backend):
    with pytest.raises(BackendError, match='rgb needs a batch of 1 and 3'):
        open_backend(shape=(1, 1, 4, 4))


def test_what_is_no_onnx_is_refused(tmp_path):
    path = tmp_path / 'net.onnx'
    path.write_bytes(b'ftrt' + bytes(100))
    with pytest.raises(BackendError, match=f'{path} is no network'):
        OnnxruntimeBackend.open(model_for(path), BackendOptions())


def test_a_model_without_onnx_is_refused(tmp_path):
    path = tmp_path / 'net.onnx'
    save_network(path)
    model = model_for(path).model_copy(update={'onnx': None})
    with pytest.raises(BackendError, match='key onnx'):
        OnnxruntimeBackend.open(model, BackendOptions())


def test_a_late_frame_is_reported_and_can_be_collected_later(open_backend):
    backend = open_backend(loops=6)
    backend.read_from([HEAD], ())
    backend.submit(0, image(1), IDENTITY, 0.5)
    with pytest.raises(DeadlineError, match='slot 0.*0 s'):
        backend.collect(0, 0.0)
    backend.collect(0, 60.0)
    with pytest.raises(BackendError, match='slot 0 holds no frame'):
        backend.collect(0, 0.0)


def test_close_aborts_what_is_running(open_backend):
    backend = open_backend(loops=200)  # Many seconds of work.
    backend.read_from([HEAD], ())
    backend.submit(0, image(1), IDENTITY, 0.5)
    with pytest.raises(DeadlineError):
        backend.collect(0, 0.2)
    start = time.monotonic()
    backend.close()
    backend.close()
    assert time.monotonic() - start < 3
