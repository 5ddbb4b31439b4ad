from __future__ import annotations

import struct

import numpy as np
import onnx
from onnx import helper, TensorProto
import pytest

from dla_ros.backends.onnxruntime import open_session
from dla_ros.convert.graph import GraphError
from dla_ros.convert.precision import (
    activation_scales,
    calibration_cache,
    differences,
    int8_edges,
    is_half,
    to_half,
    to_int8,
    to_single,
)
from dla_ros.convert.ranges import runner
from test.conftest import ROOT
from test.convert.test_surgery import network

SHAPE = (1, 3, 8, 8)


def small(opset=13):
    """Return a float32 network with a convolution, a ReLU and a Resize, nodes without names."""
    generator = np.random.default_rng(0)
    constants = {
        'w': generator.normal(size=(4, 3, 3, 3)).astype(np.float32),
        'roi': np.zeros(0, np.float32), 'scales': np.array((1, 1, 2, 2), np.float32),
    }
    nodes = [
        helper.make_node('Conv', ['x', 'w'], ['c'], kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node('Relu', ['c'], ['r']),
        helper.make_node('Resize', ['r', 'roi', 'scales'], ['y']),
    ]
    return network(nodes, SHAPE, constants, opset)


def feeds(count=4):
    generator = np.random.default_rng(1)
    return [generator.normal(size=SHAPE).astype(np.float32) for _ in range(count)]


def test_float16_has_no_casts_and_keeps_scales_of_resizing_in_float32():
    before = small()
    half = to_half(before)
    assert is_half(half) and not is_half(before)
    assert {node.op_type for node in half.graph.node} == {'Conv', 'Relu', 'Resize'}
    assert all(node.name for node in half.graph.node)
    kinds = {tensor.name: tensor.data_type for tensor in half.graph.initializer}
    assert kinds['w'] == TensorProto.FLOAT16 and kinds['scales'] == TensorProto.FLOAT
    assert half.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT16
    for found in differences(before, half, feeds()):
        assert 0 < found['y'] < 1e-3


def test_float16_of_networks_of_the_old_resizing():
    # Up to operator set 9 it is Upsample, whose scales the converter would make float16.
    before = onnx.load(ROOT / 'test/models/ultraface/ultraface_rfb_320.onnx')
    assert is_half(to_half(before))


def test_what_needs_float32_is_refused():
    nodes = [helper.make_node('Cast', ['x'], ['i'], to=TensorProto.INT32),
             helper.make_node('Cast', ['i'], ['y'], to=TensorProto.FLOAT)]
    with pytest.raises(GraphError, match='Cast nodes, which no DLA runs'):
        to_half(network(nodes, SHAPE))


def test_float32_again():
    before = to_half(small())
    single = to_single(before)
    assert not is_half(single) and is_half(before)
    for found in differences(single, before, feeds()):
        assert found['y'] < 1e-3


def test_int8_has_scales_of_the_largest_values():
    before = small()
    kept = before.SerializeToString()
    quantized, scales = to_int8(before, feeds())
    assert before.SerializeToString() == kept
    largest = max(np.abs(feed).max() for feed in feeds())
    assert scales['x'] == pytest.approx(largest / 127, rel=1e-5)
    results = [runner(before)(feed)['y'] for feed in feeds()]
    assert scales['y'] == pytest.approx(max(np.abs(r).max() for r in results) / 127, rel=1e-3)
    assert scales == activation_scales(quantized)
    for found in differences(before, quantized, feeds()):
        assert 0 < found['y'] < 0.03


def test_int8_edges_carry_int8():
    quantized, scales = to_int8(small(), feeds())
    half = to_half(quantized)
    edged = int8_edges(half, ['x', 'y'])
    graph = edged.graph
    for info in (*graph.input, *graph.output):
        assert info.type.tensor_type.elem_type == TensorProto.INT8
    onnx.checker.check_model(edged, full_check=True)
    assert len(graph.node) == len(half.graph.node) - 2
    feed = feeds()[0]
    levels = np.clip(np.rint(feed / scales['x']), -127, 127).astype(np.int8)
    session = open_session(int8_edges(quantized, ['x', 'y']).SerializeToString(), 1)
    (found,) = session.run(['y'], {'x': levels})
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found, np.rint(runner(quantized)(feed)['y'] / scales['y']))


def test_an_edge_that_is_not_quantized():
    with pytest.raises(GraphError, match="'x' has no QuantizeLinear"):
        int8_edges(small(), ['x'])


def test_the_calibration_cache_is_big_endian_hex():
    text = calibration_cache({'images': 0.5, 'a:b': 2.0}, 8502)
    assert text == 'TRT-8502-EntropyCalibration2\nimages: 3f000000\na:b: 40000000\n'
    assert struct.unpack('>f', bytes.fromhex('3f000000')) == (0.5,)


def test_differences_are_parts_of_the_root_mean_square():
    scaled = network(
        [helper.make_node('Mul', ['x', 'k'], ['y'])], SHAPE, {'k': np.array(1.1, np.float32)}
    )
    same = network([helper.make_node('Identity', ['x'], ['y'])], SHAPE)
    (found,) = differences(same, scaled, feeds(1))
    assert found['y'] == pytest.approx(0.1, rel=1e-3)
