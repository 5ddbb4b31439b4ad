"""Each limit of the DLA: a network that keeps it, and one that breaks it and nothing else."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, TensorProto
import pytest

from dla_ros.convert.check import check_graph
from dla_ros.convert.graph import Graph
from dla_ros.convert.rules import INSTEAD, LAYERS, RULES

IMAGE = (1, 4, 8, 8)


def network(*nodes, shape=IMAGE, constants=(), opset=17, others=(), kind=TensorProto.FLOAT):
    """Return the graph of nodes (operator, inputs, outputs, attributes); `x` in, `y` out."""
    protos = [
        helper.make_node(operator, inputs, outputs, f'n{i}', **attributes)
        for i, (operator, inputs, outputs, attributes) in enumerate(nodes)
    ]
    inputs = [helper.make_tensor_value_info('x', kind, shape)]
    inputs += [helper.make_tensor_value_info(name, kind, sides) for name, sides in others]
    tensors = [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in dict(constants).items()]
    output = helper.make_empty_tensor_value_info('y')
    graph = helper.make_graph(protos, 'net', inputs, [output], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', opset)], ir_version=9)
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    return Graph(inferred)


def one(operator, inputs='x', constants=None, **options):
    """Return a network of one node; attributes and `network` options by keyword."""
    keys = 'shape', 'opset', 'others', 'kind'
    kept = {key: options.pop(key) for key in keys if key in options}
    names = inputs.split() + list(constants or {})
    return network((operator, names, ['y'], options), constants=constants or {}, **kept)


def conv(outer=4, inner=4, side=3, **attributes):
    weights = np.zeros((outer, inner, side, side), np.float32)
    attributes.setdefault('pads', [side // 2] * 4)
    return one('Conv', constants={'w': weights}, **attributes)


def deconv(side=2, outer=4, inner=4, rows=None, **attributes):
    weights = np.zeros((inner, outer, rows or side, side), np.float32)
    return one('ConvTranspose', constants={'w': weights}, **attributes)


def pool(side, **attributes):
    return one('MaxPool', kernel_shape=[side, side], **attributes)


def resize(scales=(1, 1, 2, 2), shape=IMAGE, **attributes):
    constants = {'roi': np.zeros(0, np.float32), 'scales': np.array(scales, np.float32)}
    return one('Resize', constants=constants, shape=shape, **attributes)


def sliced(axis, step=1, end=4, shape=IMAGE):
    constants = {
        key: np.array([value]) for key, value in
        {'starts': 0, 'ends': end, 'axes': axis, 'steps': step}.items()
    }
    return one('Slice', constants=constants, shape=shape)


def clipped(low, high):
    return one('Clip', constants={'low': np.float32(low), 'high': np.float32(high)})


def reshaped(*to, shape=IMAGE):
    return one('Reshape', constants={'to': np.array(to)}, shape=shape)


ASYMMETRIC = {'mode': 'nearest', 'coordinate_transformation_mode': 'asymmetric'}
FLOOR = {**ASYMMETRIC, 'nearest_mode': 'floor'}
LINEAR = {'mode': 'linear', 'coordinate_transformation_mode': 'half_pixel'}
CHANNELS = np.ones((1, 4, 1, 1), np.float32)
NORM = {key: np.ones(4, np.float32) for key in ('scale', 'bias', 'mean', 'var')}
BROKEN = {
    'any.static': lambda: one('Relu', shape=('n', 4, 8, 8)),
    'any.rank': lambda: one('Relu', shape=(1, 4, 8)),
    'any.batch': lambda: one('Relu', shape=(4097, 1, 1, 1)),
    'any.sides': lambda: one('Relu', shape=(1, 1, 1, 8193)),
    'any.type': lambda: one('Abs', kind=TensorProto.DOUBLE),
    'convolution.kernel': lambda: conv(side=33),
    'convolution.stride': lambda: conv(strides=[9, 9]),
    'convolution.padding': lambda: conv(side=32, dilations=[2, 2], pads=[32] * 4),
    'convolution.padding_below_kernel': lambda: conv(pads=[3] * 4),
    'convolution.dilation': lambda: conv(dilations=[33, 33], pads=[31] * 4, shape=(1, 4, 32, 32)),
    'convolution.channels': lambda: network(
        ('Conv', ['x', 'w'], ['wide'], {}), ('MaxPool', ['wide'], ['y'], {'kernel_shape': [1, 1]}),
        constants={'w': np.zeros((8193, 1, 1, 1), np.float32)}, shape=(1, 1, 1, 1),
    ),
    'convolution.groups': lambda: one(
        'Conv', constants={'w': np.zeros((8193, 1, 1, 1), np.float32)}, group=8193,
        shape=(1, 8193, 1, 1),
    ),
    'convolution.weights': lambda: one('Conv', 'x w', others=[('w', (4, 4, 1, 1))]),
    'deconvolution.kernel': lambda: deconv(33),
    'deconvolution.stride': lambda: deconv(strides=[33, 1]),
    'deconvolution.square': lambda: deconv(24, strides=[24, 24]),
    'deconvolution.padding': lambda: deconv(4, strides=[2, 2], pads=[1] * 4),
    'deconvolution.groups': lambda: deconv(2, outer=2, group=2),
    'deconvolution.dilation': lambda: deconv(2, dilations=[2, 2]),
    'deconvolution.channels': lambda: one(
        'ConvTranspose', constants={'w': np.zeros((1, 8193, 1, 1), np.float32)}, shape=(1, 1, 1, 1)
    ),
    'deconvolution.weights': lambda: one('ConvTranspose', 'x w', others=[('w', (4, 4, 2, 2))]),
    'fully_connected.weights': lambda: one('MatMul', 'x z', others=[('z', IMAGE)]),
    'pooling.window': lambda: pool(9, pads=[4] * 4),
    'pooling.stride': lambda: pool(2, strides=[17, 17], shape=(1, 4, 40, 40)),
    'pooling.padding': lambda: pool(8, pads=[8, 8, 0, 0], shape=(1, 4, 40, 40)),
    'pooling.plain': lambda: pool(2, dilations=[2, 2]),
    'activation.clip': lambda: clipped(-1, 6),
    'parametric_relu.slope': lambda: one('PRelu', 'x s', others=[('s', CHANNELS.shape)]),
    'elementwise.broadcast': lambda: one('Add', constants={'c': np.ones(8, np.float32)}),
    'elementwise.division': lambda: one('Div', 'x z', others=[('z', IMAGE)]),
    'elementwise.power': lambda: one('Pow', constants={'two': np.float32(2)}),
    'comparison.type': lambda: one('Greater', 'x z', others=[('z', IMAGE)]),
    'scale.weights': lambda: network(
        ('BatchNormalization', ['x', *NORM], ['y'], {}),
        constants={k: v for k, v in NORM.items() if k != 'scale'}, others=[('scale', (4,))],
    ),
    'lrn.window': lambda: one('LRN', size=11),
    'concatenation.axis': lambda: network(('Concat', ['x', 'x'], ['y'], {'axis': 2})),
    'concatenation.inputs': lambda: one('Concat', axis=1),
    'resize.sizes': lambda: network(
        ('Resize', ['x', '', '', 'sizes'], ['y'], FLOOR),
        constants={'sizes': np.array([1, 4, 16, 16])},
    ),
    'resize.scales': lambda: resize((1, 1, 1.5, 1.5), **FLOOR),
    'resize.mode': lambda: resize(mode='linear', coordinate_transformation_mode='align_corners'),
    'shuffle.batch': lambda: one('Transpose', perm=[1, 0, 2, 3]),
    'shuffle.neighbors': lambda: network(
        ('Concat', ['x', 'x'], ['both'], {'axis': 1}),
        ('Reshape', ['both', 'to'], ['y'], {}), constants={'to': np.array([1, 2, 16, 16])},
    ),
    'slice.steps': lambda: sliced(2, 2),
    'slice.axis': lambda: sliced(0, end=1, shape=(2, 4, 8, 8)),
    'slice.constant': lambda: network(
        ('Slice', ['x', 'starts', 'ends', 'axes'], ['y'], {}),
        constants={'ends': np.array([2]), 'axes': np.array([2])}, others=[('starts', (1,))],
    ),
    'softmax.axis': lambda: one('Softmax', axis=1, shape=(1, 1025, 2, 1)),
    'reduce.axes': lambda: one('ReduceMax', axes=[0], shape=(2, 4, 8, 8)),
}
KEPT = {
    'any.batch': lambda: one('Relu', shape=(4096, 1, 1, 1)),
    'any.sides': lambda: one('Relu', shape=(1, 1, 1, 8192)),
    'convolution.kernel': lambda: conv(side=32, pads=[15, 15, 16, 16]),
    'convolution.stride': lambda: conv(strides=[8, 8]),
    'convolution.padding': lambda: conv(side=32, pads=[31] * 4),
    'convolution.padding_below_kernel': lambda: conv(pads=[6] * 4, dilations=[6, 6]),
    'convolution.dilation': lambda: conv(dilations=[32, 32], pads=[31] * 4, shape=(1, 4, 8, 8)),
    'deconvolution.kernel': lambda: deconv(64, rows=1),
    'deconvolution.square': lambda: deconv(22, strides=[22, 22]),
    'deconvolution.padding': lambda: deconv(2, strides=[2, 2]),
    'fully_connected.weights': lambda: one(
        'Gemm', constants={'w': np.zeros((8, 2), np.float32)}, shape=(1, 8)
    ),
    'pooling.window': lambda: pool(8),
    'pooling.stride': lambda: pool(2, strides=[16, 16], shape=(1, 4, 40, 40)),
    'pooling.padding': lambda: pool(8, pads=[7] * 4),
    'activation.clip': lambda: clipped(0, 6),
    'parametric_relu.slope': lambda: one('PRelu', constants={'s': CHANNELS[0]}),
    'elementwise.broadcast': lambda: one('Mul', constants={'c': CHANNELS}),
    'elementwise.division': lambda: one('Div', constants={'two': np.float32(2)}),
    'scale.weights': lambda: one('BatchNormalization', constants=NORM),
    'lrn.window': lambda: one('LRN', size=9),
    'concatenation.axis': lambda: network(('Concat', ['x', 'x'], ['y'], {'axis': -3})),
    'resize.scales': lambda: resize((1, 1, 32, 32), **FLOOR),
    'resize.mode': lambda: resize((1, 1, 4, 4), **LINEAR),
    'shuffle.batch': lambda: one('Transpose', perm=[0, 2, 3, 1]),
    'shuffle.neighbors': lambda: reshaped(1, 2, 8, 16),
    'slice.steps': lambda: sliced(2),
    'slice.axis': lambda: sliced(1, end=2, shape=(2, 4, 8, 8)),
    'softmax.axis': lambda: one('Softmax', axis=1, shape=(1, 8192, 1, 1)),
    'reduce.axes': lambda: one('ReduceMax', axes=[1]),
}
# What cannot be broken alone. A tensor with so many channels is too wide, too.
ALSO = {
    'convolution.channels': {'any.sides'}, 'deconvolution.channels': {'any.sides'},
    'convolution.groups': {'convolution.channels', 'any.sides'},
    # What is computed flows through the node, and it is no image.
    'slice.constant': {'any.static', 'any.rank'}, 'scale.weights': {'any.rank'},
}


def broken(graph):
    return {refusal.rule for refusal in check_graph(graph).refusals}


def test_every_limit_has_its_network():
    assert BROKEN.keys() == {rule.name for rule in RULES}
    assert len(RULES) == len({rule.name for rule in RULES})


@pytest.mark.parametrize('name', BROKEN)
def test_a_network_beyond_a_limit_breaks_exactly_it(name):
    assert broken(BROKEN[name]()) - ALSO.get(name, set()) == {name}


@pytest.mark.parametrize('name', KEPT)
def test_a_network_at_a_limit_breaks_nothing(name):
    assert broken(KEPT[name]()) == set()


@pytest.mark.parametrize('rule', RULES, ids=lambda rule: rule.name)
def test_every_limit_says_where_it_is_from_and_what_helps(rule):
    assert rule.source in ('docs', 'NvInfer.h', 'matrix', 'log')
    assert rule.limit and rule.remedy
    assert all(operator in LAYERS for operator in rule.operators)


@pytest.mark.parametrize('operator', ['GlobalAveragePool', 'Elu', 'HardSwish'])
def test_an_operator_that_the_dla_does_not_know(operator):
    (refusal,) = check_graph(one(operator)).refusals
    assert refusal.rule == 'any.operator' and refusal.value == operator
    assert refusal.remedy == INSTEAD[operator]
