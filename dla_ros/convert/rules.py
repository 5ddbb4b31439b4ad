"""What a DLA can run: the operators, and one row for each limit of theirs.

The limits are those of TensorRT for the DLA of an Orin. Each row names its source:

- `docs`: "DLA Supported Layers and Restrictions" of TensorRT 11.4.1,
  docs.nvidia.com/deeplearning/tensorrt/11.4.1/inference-library/dla-layer-restrictions.html
- `NvInfer.h`: what the public header (github.com/NVIDIA/TensorRT, 11.1) says of that layer on DLA
- `matrix`: ONNX operators on Orin's DLA,
  github.com/NVIDIA/Deep-Learning-Accelerator-SW/blob/main/operators/README.md
- `log`: a message of TensorRT's builder, seen in a public report
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
import math
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from dla_ros.convert.graph import Graph, Node, Shape, show_shape

_CONV, _DECONV = ('Conv',), ('ConvTranspose',)
_POOL = 'MaxPool', 'AveragePool'
_SHUFFLE = 'Reshape', 'Transpose', 'Flatten', 'Squeeze', 'Unsqueeze'
_SLICE = 'Slice', 'Split'
_ELEMENTWISE = 'Add', 'Sub', 'Mul', 'Div', 'Max', 'Min', 'Pow', 'Sum'
_COMPARISON = 'Equal', 'Greater', 'Less'
_RESIZE = 'Resize', 'Upsample'
_LONG_SIDES = 64, 96, 128

LAYERS = MappingProxyType({
    **dict.fromkeys(_CONV, 'Convolution'),
    **dict.fromkeys(_DECONV, 'Deconvolution'),
    **dict.fromkeys(('Gemm', 'MatMul'), 'Fully connected'),
    **dict.fromkeys(('Relu', 'Sigmoid', 'Tanh', 'Clip', 'LeakyRelu'), 'Activation'),
    'PRelu': 'Parametric ReLU',
    **dict.fromkeys(_POOL, 'Pooling'),
    **dict.fromkeys(_ELEMENTWISE, 'ElementWise'),
    **dict.fromkeys(_COMPARISON, 'Comparison'),
    'BatchNormalization': 'Scale',
    'LRN': 'LRN',
    'Concat': 'Concatenation',
    **dict.fromkeys(_RESIZE, 'Resize'),
    **dict.fromkeys(_SHUFFLE, 'Shuffle'),
    **dict.fromkeys(_SLICE, 'Slice'),
    'Softmax': 'SoftMax',
    'Abs': 'Unary',
    'ReduceMax': 'Reduce',
    **dict.fromkeys(('QuantizeLinear', 'DequantizeLinear'), 'Quantize'),
    **dict.fromkeys(('Identity', 'Dropout'), 'nothing'),
})
"""The layer of TensorRT that an operator becomes, for those that the DLA may run."""

_DECODE = 'cut the outputs before it; a decoder or the user of the tensors does it'
INSTEAD = MappingProxyType({
    'GlobalAveragePool': 'AveragePools whose windows cover the picture (build --chain-pools)',
    'GlobalMaxPool': 'MaxPools whose windows cover the picture (build --chain-pools)',
    'ReduceMean': 'over rows and columns: AveragePools whose windows cover the picture',
    'HardSigmoid': 'Sigmoid, or Clip(x / 6 + 0.5) as Mul, Add and Clip; train again',
    'HardSwish': 'x * Sigmoid(x), or Relu; train again',
    'Gelu': 'Relu; train again',
    'Erf': 'Relu instead of GELU; train again',
    'Elu': 'LeakyRelu; train again',
    'Selu': 'LeakyRelu; train again',
    'Softplus': 'Relu; train again',
    'Mish': 'Relu or LeakyRelu; train again',
    'InstanceNormalization': 'BatchNormalization; train again',
    'LayerNormalization': 'BatchNormalization; train again',
    'Gather': 'a 1x1 Conv with zeros and ones, if it picks channels',
    'SpaceToDepth': 'a Conv with stride and zeros and ones',
    'DepthToSpace': 'a ConvTranspose with zeros and ones',
    'Pad': 'the padding of the Conv or pooling behind it',
    'Exp': _DECODE,
    'Log': _DECODE,
    'ArgMax': _DECODE,
    'TopK': _DECODE,
    'NonMaxSuppression': _DECODE,
    'Cast': 'one element type throughout',
    'Neg': 'Mul by -1',
    'Reciprocal': _DECODE,
    'Sqrt': _DECODE,
})
"""What helps where the DLA does not know an operator at all."""


@dataclass(frozen=True)
class Rule:
    """One limit.

    Attributes
    ----------
    name:
        LAYER.WHAT, unique.
    operators:
        ONNX operators that it holds for; empty for all.
    limit:
        In words.
    remedy:
        What to do.
    source:
        Where it is written; see the module.
    broken:
        Yields what breaks it in a node, in words with the value.

    """

    name: str
    operators: tuple[str, ...]
    limit: str
    remedy: str
    source: str
    broken: Callable[[Node, Graph], Iterator[str]]


def _tensors(node: Node, graph: Graph) -> tuple[str, ...]:
    """Return the names of what flows through a node, constants left out."""
    return (*graph.arguments(node), *filter(None, node.outputs))


def _shapes(node: Node, graph: Graph) -> Iterator[tuple[str, Shape]]:
    """Yield name and shape of what flows through a node, where it is known."""
    for name in _tensors(node, graph):
        shape = graph.shape(name)
        if shape is not None:
            yield name, shape


def _dynamic(node: Node, graph: Graph) -> Iterator[str]:
    for name in _tensors(node, graph):
        shape = graph.shape(name)
        if shape is None or None in shape:
            yield f'{name} is {show_shape(shape)}'


def _rank(node: Node, graph: Graph) -> Iterator[str]:
    for name, shape in _shapes(node, graph):
        if len(shape) != 4 and node.operator not in ('Gemm', 'MatMul'):
            yield f'{name} is {show_shape(shape)}'


def _batch(node: Node, graph: Graph) -> Iterator[str]:
    for name, shape in _shapes(node, graph):
        if shape and (shape[0] or 1) > 4096:
            yield f'{name} is {show_shape(shape)}'


def _sides(node: Node, graph: Graph) -> Iterator[str]:
    for name, shape in _shapes(node, graph):
        if any((side or 1) > 8192 for side in shape[1:]):
            yield f'{name} is {show_shape(shape)}'


def _types(node: Node, graph: Graph) -> Iterator[str]:
    fit = 'float32', 'float16', 'int8', ''
    for name in _tensors(node, graph):
        element = graph.element(name)
        if element not in fit and not (node.operator in _COMPARISON and element == 'bool'):
            yield f'{name} is {element}'


def _weights(node: Node, graph: Graph) -> Iterator[str]:
    """Yield what is not constant among the inputs behind the first."""
    for name in node.inputs[1:]:
        if name and not graph.is_constant(name) and not _dequantized(name, graph):
            yield f'{name} is computed'


def _dequantized(name: str, graph: Graph) -> bool:
    node = graph.producers.get(name)
    return node is not None and node.operator == 'DequantizeLinear'


def _constant(node: Node, graph: Graph, index: int) -> npt.NDArray[Any] | None:
    if index >= len(node.inputs):
        return None
    return graph.constants.get(node.inputs[index])


def _window(node: Node, graph: Graph) -> tuple[int, ...]:
    shape = graph.shape(node.inputs[1]) if len(node.inputs) > 1 else None
    default = tuple(int(n or 1) for n in shape[2:]) if shape else ()
    return node.ints('kernel_shape', default)


def _in_range(
    what: str, low: int, high: int, values: Callable[[Node, Graph], tuple[int, ...]]
) -> Callable[[Node, Graph], Iterator[str]]:
    def broken(node: Node, graph: Graph) -> Iterator[str]:
        found = values(node, graph)
        if any(not low <= value <= high for value in found):
            yield f'{what} {show_shape(found)}'

    return broken


def _strides(node: Node, _: Graph) -> tuple[int, ...]:
    return node.ints('strides', (1, 1))


def _dilations(node: Node, _: Graph) -> tuple[int, ...]:
    return node.ints('dilations', (1, 1))


def _groups(node: Node, _: Graph) -> tuple[int, ...]:
    return (int(node.attributes.get('group', 1)),)


def pads(node: Node, graph: Graph) -> tuple[int, ...]:
    """Return a window's padding, (top, left, bottom, right), also where it is said as SAME."""
    mode = node.attributes.get('auto_pad', 'NOTSET')
    if mode in ('NOTSET', ''):
        return node.ints('pads', (0, 0, 0, 0))
    before, after = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
    if mode == 'VALID' or before is None or after is None:
        return 0, 0, 0, 0
    total = [
        max((int(out or 1) - 1) * step + (side - 1) * spread + 1 - int(size or 1), 0)
        for out, size, step, side, spread in zip(
            after[2:], before[2:], _strides(node, graph), _window(node, graph),
            _dilations(node, graph), strict=True,
        )
    ]
    less, more = [n // 2 for n in total], [n - n // 2 for n in total]
    return (*less, *more) if mode == 'SAME_UPPER' else (*more, *less)


def _padding_below_kernel(node: Node, graph: Graph) -> Iterator[str]:
    window, spread = _window(node, graph), _dilations(node, graph)
    reach = [(side - 1) * wide + 1 for side, wide in zip(window, spread, strict=False)]
    padding = pads(node, graph)
    if len(reach) == 2 and any(
        padding[i] >= reach[i % 2] for i in range(len(padding))
    ):
        yield f'padding {show_shape(padding)} of a kernel of {show_shape(tuple(reach))}'


def _conv_channels(node: Node, graph: Graph) -> tuple[int, ...]:
    shape = graph.shape(node.inputs[1]) or (1, 1)
    outer, inner = (int(n or 1) for n in shape[:2])
    groups = _groups(node, graph)[0]
    # The first number of a ConvTranspose's weights is its input channels.
    return (outer, inner * groups)


def _long_side(what: str, values: Callable[[Node, Graph], tuple[int, ...]]) -> Callable[
    [Node, Graph], Iterator[str]
]:
    def broken(node: Node, graph: Graph) -> Iterator[str]:
        found = values(node, graph)
        small = all(1 <= side <= 32 for side in found)
        long = sorted(found)[0] == 1 and sorted(found)[-1] in _LONG_SIDES if found else True
        if not small and not long:
            yield f'{what} {show_shape(found)}'

    return broken


def _slow_square(node: Node, graph: Graph) -> Iterator[str]:
    window = _window(node, graph)
    square = len(set(window)) == 1 and set(window) == set(_strides(node, graph))
    if square and 23 <= window[0] <= 32:
        yield f'kernel and stride {show_shape(window)}'


def _deconv_padding(node: Node, graph: Graph) -> Iterator[str]:
    padding, extra = pads(node, graph), node.ints('output_padding', (0, 0))
    mode = node.attributes.get('auto_pad', 'NOTSET')
    if any(padding) or any(extra) or mode.startswith('SAME'):
        yield f'padding {show_shape(padding)}, output_padding {show_shape(extra)}'


def _pool_extras(node: Node, graph: Graph) -> Iterator[str]:
    if set(_dilations(node, graph)) != {1}:
        yield f'dilation {show_shape(_dilations(node, graph))}'
    if len(node.outputs) > 1:
        yield f'the indices {node.outputs[1]} are wanted'


def _clip(node: Node, graph: Graph) -> Iterator[str]:
    ends = []
    for index, key in enumerate(('min', 'max'), 1):
        value = _constant(node, graph, index)
        ends.append(float(value) if value is not None else node.attributes.get(key, math.nan))
    low, high = ends
    if low != 0 or not 1 <= high <= 127:
        yield f'clips to {low:g} ... {high:g}'.replace('nan', 'nothing')


def _broadcast(node: Node, graph: Graph) -> Iterator[str]:
    shapes = [graph.shape(name) for name in node.inputs]
    out = graph.shape(node.outputs[0])
    if out is None or len(out) != 4 or any(shape is None for shape in shapes):
        return
    for name, shape in zip(node.inputs, shapes, strict=True):
        assert shape is not None
        full = (1,) * (4 - len(shape)) + shape
        batch = out[0] if full[0] != 1 or not graph.is_constant(name) else 1
        if full not in ((batch, *out[1:]), (batch, out[1], 1, 1), (batch, 1, 1, 1)):
            yield f'{name} of {show_shape(shape)} for {show_shape(out)}'


def _division(node: Node, graph: Graph) -> Iterator[str]:
    divisor = _constant(node, graph, 1)
    if divisor is None:
        if not _dequantized(node.inputs[1], graph):
            yield f'the divisor {node.inputs[1]} is computed'
    elif divisor.size and np.any(divisor != divisor.flat[0]):
        yield f'the divisor {node.inputs[1]} has different values'


def _power(node: Node, graph: Graph) -> Iterator[str]:
    exponent = _constant(node, graph, 1)
    if exponent is None or exponent.size != 1 or not _dequantized(node.inputs[0], graph):
        yield 'of float numbers' if exponent is not None else f'{node.inputs[1]} is computed'


def _comparison(node: Node, graph: Graph) -> Iterator[str]:
    for name in graph.arguments(node):
        if not _dequantized(name, graph):
            yield f'{name} is {graph.element(name) or "of an unknown type"}'


def _channel_axis(node: Node, graph: Graph) -> Iterator[str]:
    shape = graph.shape(node.outputs[0])
    axis = int(node.attributes.get('axis', 1))
    if shape is not None and axis % len(shape) != len(shape) - 3:
        yield f'axis {axis} of {show_shape(shape)}'


def _one_input(node: Node, _: Graph) -> Iterator[str]:
    if len(node.inputs) < 2:
        yield 'one input'


def _scales(node: Node, graph: Graph) -> list[float] | None:
    index = 1 if node.operator == 'Upsample' or graph.opset < 11 else 2
    found = _constant(node, graph, index)
    if found is None or not found.size:
        return None
    return [float(scale) for scale in found]


def _resize_sizes(node: Node, graph: Graph) -> Iterator[str]:
    if 'scales' not in node.attributes and _scales(node, graph) is None:
        given = node.inputs[-1] if len(node.inputs) > 1 else 'nothing'
        yield f'{given} says sizes or is computed'


def _resize_scales(node: Node, graph: Graph) -> Iterator[str]:
    scales = node.attributes.get('scales') or _scales(node, graph)
    if scales is None:
        return
    most = 4 if node.attributes.get('mode', 'nearest') == 'linear' else 32
    whole = all(scale == int(scale) and 1 <= scale <= most for scale in scales[2:])
    if len(scales) != 4 or list(scales[:2]) != [1.0, 1.0] or not whole:
        yield 'scales ' + ', '.join(f'{scale:g}' for scale in scales)


def _resize_mode(node: Node, graph: Graph) -> Iterator[str]:
    mode = node.attributes.get('mode', 'nearest')
    old = node.operator == 'Upsample' or graph.opset < 11
    where = 'asymmetric' if old else node.attributes.get(
        'coordinate_transformation_mode', 'half_pixel'
    )
    rounding = 'floor' if old else node.attributes.get('nearest_mode', 'round_prefer_floor')
    if mode == 'nearest':
        if (where, rounding) not in (
            ('asymmetric', 'floor'),
            ('half_pixel', 'round_prefer_floor'), ('half_pixel', 'round_prefer_ceil'),
        ):
            yield f'nearest, {where}, {rounding}'
    elif mode != 'linear' or where not in ('half_pixel', 'pytorch_half_pixel'):
        yield f'{mode}, {where}'


def _shuffled_batch(node: Node, graph: Graph) -> Iterator[str]:
    before, after = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
    if node.operator == 'Transpose' and before is not None:
        order = node.ints('perm', tuple(range(len(before)))[::-1])
        if order[0] != 0:
            yield f'order {", ".join(map(str, order))}'
    elif before and after and before[0] != after[0]:
        yield f'{show_shape(before)} becomes {show_shape(after)}'


def _reshape_neighbors(node: Node, graph: Graph) -> Iterator[str]:
    around = [graph.producers.get(node.inputs[0]), *graph.consumers.get(node.outputs[0], ())]
    for other in around:
        if other is not None and other.operator in (*_SLICE, 'Concat'):
            yield f'next to {other.operator} {other.name}'


def _slice_steps(node: Node, graph: Graph) -> Iterator[str]:
    steps = _constant(node, graph, 4)
    if steps is not None and np.any(steps != 1):
        yield 'steps ' + ', '.join(str(int(step)) for step in steps)


def _slice_axis(node: Node, graph: Graph) -> Iterator[str]:
    shape = graph.shape(node.inputs[0])
    if shape is None:
        return
    if node.operator == 'Split':
        axes = [int(node.attributes.get('axis', 0))]
    elif 'starts' in node.attributes:
        axes = list(node.ints('axes', tuple(range(len(node.attributes['starts'])))))
    else:
        found, starts = _constant(node, graph, 3), _constant(node, graph, 1)
        count = starts.size if starts is not None else len(shape)
        axes = list(range(count)) if found is None else [int(axis) for axis in found]
    after = graph.shape(node.outputs[0])
    cut = after is None or after[0] != shape[0]
    if cut and any(axis % len(shape) == 0 for axis in axes):
        yield f'{show_shape(shape)} along its batch'


def _softmax(node: Node, graph: Graph) -> Iterator[str]:
    shape = graph.shape(node.inputs[0])
    if shape is None or len(shape) != 4 or None in shape:
        return
    sides = [int(side or 1) for side in shape]
    axis = int(node.attributes.get('axis', -1 if graph.opset >= 13 else 1)) % 4
    # Before operator set 13, everything from the axis on is one axis.
    length = sides[axis] if graph.opset >= 13 else math.prod(sides[axis:])
    others = math.prod(sides[1:]) // length if axis else 1
    if axis == 0:
        yield f'axis 0 of {show_shape(shape)}'
    elif length > (1024 if others > 1 else 8192):
        yield f'{length} values along axis {axis} of {show_shape(shape)}'


def _lrn(node: Node, _: Graph) -> Iterator[str]:
    if node.attributes['size'] not in (3, 5, 7, 9):
        yield f'window {node.attributes["size"]}'


def _reduce_axes(node: Node, graph: Graph) -> Iterator[str]:
    axes = _constant(node, graph, 1)
    found = node.attributes.get('axes') if axes is None else axes.tolist()
    rank = len(graph.shape(node.inputs[0]) or (1, 1, 1, 1))
    if found is None or any(int(axis) % rank == 0 for axis in found):
        yield 'over the batch'


_VALUE = 'change the network, or cut it before this'
RULES: tuple[Rule, ...] = (
    Rule('any.static', (), 'every dimension is known when the loadable is built',
         'export with a fixed batch and size, or give --shape', 'docs', _dynamic),
    Rule('any.rank', (), 'tensors have four dimensions: batch, channels, rows, columns',
         'cut the network before this; reshaping is for the decoder', 'docs', _rank),
    Rule('any.batch', (), 'the batch is at most 4096', 'export a smaller batch', 'docs', _batch),
    Rule('any.sides', (), 'channels, rows and columns are at most 8192',
         'export a smaller size', 'docs', _sides),
    Rule('any.type', (), 'elements are float16 or int8 (float32 is converted)',
         'keep to one float type; whole numbers belong before or behind the network',
         'docs', _types),
    Rule('convolution.kernel', _CONV, 'kernel sides are 1 to 32',
         'several smaller convolutions', 'NvInfer.h', _in_range('kernel', 1, 32, _window)),
    Rule('convolution.stride', _CONV, 'strides are 1 to 8',
         'a smaller stride and a pooling', 'NvInfer.h', _in_range('stride', 1, 8, _strides)),
    Rule('convolution.padding', _CONV, 'padding is 0 to 31 on each side', _VALUE, 'NvInfer.h',
         _in_range('padding', 0, 31, pads)),
    Rule('convolution.padding_below_kernel', _CONV, 'padding is less than the kernel', _VALUE,
         'NvInfer.h', _padding_below_kernel),
    Rule('convolution.dilation', _CONV, 'dilation is 1 to 32', _VALUE, 'NvInfer.h',
         _in_range('dilation', 1, 32, _dilations)),
    Rule('convolution.channels', _CONV, 'input and output channels are 1 to 8192', _VALUE,
         'NvInfer.h', _in_range('output and input channels', 1, 8192, _conv_channels)),
    Rule('convolution.groups', _CONV, 'groups are 1 to 8192', _VALUE, 'NvInfer.h',
         _in_range('groups', 1, 8192, _groups)),
    Rule('convolution.weights', _CONV, 'weights are constant', _VALUE, 'docs', _weights),
    Rule('deconvolution.kernel', _DECONV,
         'kernel sides are 1 to 32, or one is 64, 96 or 128 and the other 1', _VALUE, 'NvInfer.h',
         _long_side('kernel', _window)),
    Rule('deconvolution.stride', _DECONV,
         'strides are 1 to 32, or one is 64, 96 or 128 and the other 1', _VALUE, 'NvInfer.h',
         _long_side('stride', _strides)),
    Rule('deconvolution.square', _DECONV, 'no square kernel with its own stride of 23 to 32',
         'two deconvolutions', 'docs', _slow_square),
    Rule('deconvolution.padding', _DECONV, 'padding is 0',
         'no padding, and a Slice behind it', 'NvInfer.h', _deconv_padding),
    Rule('deconvolution.groups', _DECONV, 'one group', 'a Resize and a Conv', 'NvInfer.h',
         _in_range('groups', 1, 1, _groups)),
    Rule('deconvolution.dilation', _DECONV, 'no dilation', 'a Resize and a Conv', 'docs',
         _in_range('dilation', 1, 1, _dilations)),
    Rule('deconvolution.channels', _DECONV, 'input and output channels are 1 to 8192', _VALUE,
         'NvInfer.h', _in_range('input and output channels', 1, 8192, _conv_channels)),
    Rule('deconvolution.weights', _DECONV, 'weights are constant', _VALUE, 'docs', _weights),
    Rule('fully_connected.weights', ('Gemm', 'MatMul'), 'the second input is constant',
         'attention and the like cannot run on a DLA; cut the network before this', 'matrix',
         _weights),
    Rule('pooling.window', _POOL, 'window sides are 1 to 8',
         'smaller ones one after the other, as two of 5x5 for 9x9 (build --chain-pools)',
         'NvInfer.h',
         _in_range('window', 1, 8, _window)),
    Rule('pooling.stride', _POOL, 'strides are 1 to 16', _VALUE, 'NvInfer.h',
         _in_range('stride', 1, 16, _strides)),
    Rule('pooling.padding', _POOL, 'padding is 0 to 7 on each side', _VALUE, 'NvInfer.h',
         _in_range('padding', 0, 7, pads)),
    Rule('pooling.plain', _POOL, 'no dilation, no indices', _VALUE, 'docs', _pool_extras),
    Rule('activation.clip', ('Clip',), 'a clipped ReLU: from 0 to 1 ... 127',
         'Relu, Max and Min, or another bound', 'docs', _clip),
    Rule('parametric_relu.slope', ('PRelu',), 'the slope is constant', _VALUE, 'NvInfer.h',
         _weights),
    Rule('elementwise.broadcast', _ELEMENTWISE,
         'shapes are equal, or one has one value per channel, or one in all',
         'repeat the smaller one beforehand, or change the network', 'docs', _broadcast),
    Rule('elementwise.division', ('Div',), 'the divisor is one constant, or int8',
         'Mul with the reciprocal', 'docs', _division),
    Rule('elementwise.power', ('Pow',), 'an int8 base and a constant exponent',
         'Mul of x and x for a square', 'docs', _power),
    Rule('comparison.type', _COMPARISON, 'int8 only', _DECODE, 'docs', _comparison),
    Rule('scale.weights', ('BatchNormalization',), 'its parameters are constant', _VALUE, 'docs',
         _weights),
    Rule('lrn.window', ('LRN',), 'the window is 3, 5, 7 or 9', _VALUE, 'NvInfer.h', _lrn),
    Rule('concatenation.axis', ('Concat',), 'along the channels', _DECODE, 'NvInfer.h',
         _channel_axis),
    Rule('concatenation.inputs', ('Concat',), 'at least two inputs', 'leave it out', 'docs',
         _one_input),
    Rule('resize.sizes', _RESIZE, 'the scales are given as constants, not the sizes',
         'export with scale_factor, or write the scales in', 'NvInfer.h', _resize_sizes),
    Rule('resize.scales', _RESIZE,
         '1 for batch and channels; whole numbers to 32 (nearest) or 4 (linear) for the sides',
         'a scale that fits, or resize outside', 'NvInfer.h', _resize_scales),
    Rule('resize.mode', _RESIZE,
         'nearest: asymmetric with floor, or half_pixel with round_prefer_*; linear: half_pixel',
         'export with align_corners=False, or with nearest', 'NvInfer.h', _resize_mode),
    Rule('shuffle.batch', _SHUFFLE, 'the batch stays as it is', _DECODE, 'docs',
         _shuffled_batch),
    Rule('shuffle.neighbors', ('Reshape', 'Flatten', 'Squeeze', 'Unsqueeze'),
         'no reshape directly before or behind Slice or Concat', _DECODE, 'log',
         _reshape_neighbors),
    Rule('slice.steps', ('Slice',), 'every step is 1',
         'one Conv of twice the side and stride for a Focus stem (build --fold-focus)',
         'NvInfer.h',
         _slice_steps),
    Rule('slice.axis', _SLICE, 'not along the batch', _DECODE, 'NvInfer.h', _slice_axis),
    Rule('slice.constant', ('Slice',), 'starts, ends and axes are constant', _VALUE, 'NvInfer.h',
         _weights),
    Rule('softmax.axis', ('Softmax',),
         'not over the batch; at most 1024 values, 8192 if all other sides are 1', _DECODE,
         'NvInfer.h', _softmax),
    Rule('reduce.axes', ('ReduceMax',), 'not over the batch', _DECODE, 'docs', _reduce_axes),
)
"""Every limit."""
