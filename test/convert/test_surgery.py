from __future__ import annotations

import math

from hypothesis import given, settings, strategies as st
import numpy as np
import onnx
from onnx import helper, TensorProto
import pytest

from dla_ros.convert.check import check_graph
from dla_ros.convert.graph import Graph, GraphError
from dla_ros.convert.ranges import runner
from dla_ros.convert.surgery import (
    chain_pools,
    cut_outputs,
    fold_focus,
    name_nodes,
    scales_from_sizes,
    simplify,
    tiling,
)
from test.conftest import ROOT

YOLOX = ROOT / 'test/models/yolox_nano_export/yolox_nano_416.onnx'


def network(nodes, shape, constants=None, opset=13):
    """Return a network of nodes, `x` in, `y` out."""
    tensors = [onnx.numpy_helper.from_array(v, k) for k, v in (constants or {}).items()]
    graph = helper.make_graph(
        nodes, 'net', [helper.make_tensor_value_info('x', TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info('y')], tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', opset)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def copied(model):
    made = onnx.ModelProto()
    made.CopyFrom(model)
    return made


def assert_same_results(before, after, shape, tolerance=1e-5):
    feed = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    expected, found = runner(before)(feed), runner(after)(feed)
    assert expected.keys() == found.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, atol=tolerance, rtol=tolerance)


def focus(side=3, stride=1, phases=((0, 0), (1, 0), (0, 1), (1, 1))):
    """Return a Focus stem as YOLOX and YOLOv5 export it: rows first, then columns."""
    constants, nodes = {}, []
    for name, values in (('to', [2**31]), ('two', [2]), ('rows', [2]), ('columns', [3])):
        constants[name] = np.array(values, np.int64)
    for i, phase in enumerate(phases):
        for axis, start in zip(('rows', 'columns'), phase, strict=True):
            constants[f's{i}{axis}'] = np.array([start], np.int64)
        nodes += [
            helper.make_node('Slice', [source, f's{i}{axis}', 'to', axis, 'two'], [target])
            for source, axis, target in (('x', 'rows', f'r{i}'), (f'r{i}', 'columns', f'b{i}'))
        ]
    generator = np.random.default_rng(0)
    constants['w'] = generator.normal(size=(5, 12, side, side)).astype(np.float32)
    constants['b'] = generator.normal(size=5).astype(np.float32)
    nodes += [
        helper.make_node('Concat', [f'b{i}' for i in range(4)], ['joined'], axis=1),
        helper.make_node(
            'Conv', ['joined', 'w', 'b'], ['y'], kernel_shape=[side] * 2, strides=[stride] * 2,
            pads=[side // 2] * 4,
        ),
    ]
    return network(nodes, (1, 3, 16, 24), constants)


@pytest.mark.parametrize(('side', 'stride'), [(1, 1), (3, 1), (3, 2), (5, 2)])
def test_a_focus_stem_becomes_one_convolution(side, stride):
    before = focus(side, stride)
    after = copied(before)
    assert fold_focus(after) == 1
    assert [node.op_type for node in after.graph.node] == ['Conv']
    assert len(after.graph.initializer) == 2
    assert check_graph(Graph(after)).passed
    assert_same_results(before, after, (1, 3, 16, 24))


def test_what_is_no_focus_stays():
    before = focus(phases=((0, 0), (1, 0), (0, 1), (0, 1)))
    after = copied(before)
    assert fold_focus(after) == 0 and after == before


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from((3, 5, 9, 13, 15, 21)), min_size=1, max_size=4), st.booleans())
def test_large_max_pools_become_chains(sides, upper):
    nodes = [
        helper.make_node(
            'MaxPool', ['x'], [f'p{i}'], f'pool{i}', kernel_shape=[side] * 2,
            **({'auto_pad': 'SAME_UPPER'} if upper else {'pads': [side // 2] * 4}),
        )
        for i, side in enumerate(sides)
    ]
    nodes.append(helper.make_node('Concat', [f'p{i}' for i in range(len(sides))], ['y'], axis=1))
    before = network(nodes, (1, 2, 20, 31))
    after = copied(before)
    assert chain_pools(after) == sum(side > 8 for side in sides)
    windows = [n.ints('kernel_shape', ()) for n in Graph(after).nodes if n.operator == 'MaxPool']
    assert max(max(w) for w in windows) <= 8
    assert_same_results(before, after, (1, 2, 20, 31), 0)


@pytest.mark.parametrize('operator', ['GlobalAveragePool', 'GlobalMaxPool'])
@pytest.mark.parametrize('sides', [(7, 7), (14, 20), (1, 8), (64, 49)])
def test_global_pools_become_windows(operator, sides):
    before = network([helper.make_node(operator, ['x'], ['y'], 'pool')], (1, 3, *sides))
    after = copied(before)
    assert chain_pools(after) == 1 and check_graph(Graph(after)).passed
    assert_same_results(before, after, (1, 3, *sides))


def test_a_global_pool_that_cannot_be_divided_stays():
    before = network([helper.make_node('GlobalMaxPool', ['x'], ['y'])], (1, 3, 11, 8))
    after = copied(before)
    assert chain_pools(after) == 0 and after == before


@given(st.integers(1, 600), st.integers(1, 600))
def test_windows_multiply_to_the_picture(height, width):
    windows = tiling((height, width))
    if windows is None:
        assert any(side % p == 0 for side in (height, width) for p in primes_from(11, side))
        return
    assert math.prod(high for high, _ in windows) == height
    assert math.prod(wide for _, wide in windows) == width
    assert max(map(max, windows)) <= 8


def primes_from(first, last):
    return [n for n in range(first, last + 1) if all(n % k for k in range(2, int(n**0.5) + 1))]


@pytest.mark.parametrize(('to', 'changed'), [((16, 24), 1), ((8, 12), 0), ((12, 24), 0)])
def test_sizes_become_scales_where_these_are_exact(to, changed):
    constants = {
        'roi': np.zeros(0, np.float32), 'none': np.zeros(0, np.float32),
        'sizes': np.array((1, 3, *to), np.int64),
    }
    inputs = ['x', 'roi', 'none', 'sizes']
    before = network([helper.make_node('Resize', inputs, ['y'])], (1, 3, 8, 12), constants)
    after = copied(before)
    # 8x12 to itself has the exact scale 1, too.
    assert scales_from_sizes(after) == changed + (to == (8, 12))
    assert_same_results(before, after, (1, 3, 8, 12), 0)


def test_names_are_given_once_each():
    nodes = [
        helper.make_node('Relu', ['x'], ['a']), helper.make_node('Relu', ['a'], ['b'], 'Relu_0'),
        helper.make_node('Relu', ['b'], ['c'], 'Relu_0'), helper.make_node('Relu', ['c'], ['y']),
    ]
    model = network(nodes, (1, 3, 4, 4))
    name_nodes(model)
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == 4 and all(names)


def test_yolox_is_cut_folded_and_chained_to_what_a_dla_runs():
    whole = onnx.load(YOLOX)
    cut = cut_outputs(whole, ['1066', '1108', '1150'])
    after = simplify(cut)
    assert fold_focus(after) == 1 and chain_pools(after) == 2
    report = check_graph(Graph(after))
    assert report.passed and [p.name for p in report.outputs] == ['1066', '1108', '1150']
    assert_same_results(cut, after, (1, 3, 416, 416), 1e-3)


def test_a_cut_where_nothing_is_names_what_is_similar():
    with pytest.raises(GraphError, match="no tensor 'outputs' to cut at; similar: output"):
        cut_outputs(onnx.load(YOLOX), ['outputs'])
