"""Networks in float16 and int8, as a DLA computes, made by onnxruntime's tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
import struct
import tempfile
from typing import Any, TYPE_CHECKING

import numpy as np

from dla_ros.convert.graph import Graph, GraphError
from dla_ros.convert.ranges import Feed, runner
from dla_ros.convert.surgery import name_nodes

if TYPE_CHECKING:
    import onnx

_QUANTIZED = 19  # The operator set from which scales may be float16.


def is_half(model: onnx.ModelProto) -> bool:
    """Whether a network takes float16."""
    import onnx

    kinds = {info.type.tensor_type.elem_type for info in model.graph.input}
    return onnx.TensorProto.FLOAT16 in kinds


def to_single(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a float16 network in float32; its results may only become more exact."""
    import onnx

    half, single = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.tensor_type.elem_type == half:
            info.type.tensor_type.elem_type = single
    tensors = [a.t for node in graph.node for a in node.attribute if a.HasField('t')]
    for tensor in (*graph.initializer, *tensors):
        if tensor.data_type == half:
            values = onnx.numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == 'Cast' and attribute.i == half:
                attribute.i = single
    return made


def to_half(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the network with float16 throughout, edges included, and without any Cast.

    Raises
    ------
    GraphError
        If some operator cannot do with float16.

    """
    from onnxruntime.transformers.float16 import convert_float_to_float16

    prepared = _with_resize(model)
    name_nodes(prepared)
    half: onnx.ModelProto = convert_float_to_float16(
        prepared, keep_io_types=False, op_block_list=[]
    )
    casts = [node.name for node in half.graph.node if node.op_type == 'Cast']
    if casts:
        raise GraphError(f'float16 needs Cast nodes, which no DLA runs: {", ".join(casts)}')
    return half


def _with_resize(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy whose resizing has its scales where the converter knows to leave them."""
    opset = Graph(model).opset
    old = opset < 11 and any(n.op_type in ('Resize', 'Upsample') for n in model.graph.node)
    return _converted(model, 13 if old else opset)


def _converted(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Return a copy of the network in an operator set."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    if opset == Graph(model).opset:
        return copy
    converted: onnx.ModelProto = onnx.version_converter.convert_version(copy, opset)
    return converted


def to_int8(
    model: onnx.ModelProto, feeds: Iterable[Feed]
) -> tuple[onnx.ModelProto, dict[str, float]]:
    """Return the float32 network with Q/DQ around its layers, and the scales of its activations.

    Symmetric, one scale per activation and one per output channel of weights, from the largest
    values on the calibration inputs (MinMax). What is not quantized stays float32, so that
    onnxruntime can run it; `to_half` makes what trtexec needs of it.

    Parameters
    ----------
    model:
        In float32.
    feeds:
        Calibration inputs, float32 [1, c, h, w].

    """
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    (name,) = Graph(model).inputs

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left = iter(feeds)

        def get_next(self) -> dict[str, Feed] | None:
            feed = next(self._left, None)
            return None if feed is None else {name: feed.copy()}

    prepared = _converted(model, max(Graph(model).opset, _QUANTIZED))
    name_nodes(prepared)
    # It is simplified already; without this mark onnxruntime logs that it should be.
    onnx.helper.set_model_props(prepared, {'onnx.quant.pre_process': 'onnxruntime.quant'})
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / 'int8.onnx'
        quantize_static(
            prepared, target, Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
            extra_options={
                'ActivationSymmetric': True, 'WeightSymmetric': True,
                'QuantizeBias': False, 'AddQDQPairToWeight': True,
            },
        )
        quantized = onnx.load(target)
    return quantized, activation_scales(quantized)


def activation_scales(model: onnx.ModelProto) -> dict[str, float]:
    """Return the scale of each activation that is quantized, by tensor; of the edges, too."""
    graph = Graph(model)
    found = {}
    for node in graph.nodes:
        # An output of the network is what a DequantizeLinear makes.
        name = node.outputs[0] if node.outputs[0] in graph.outputs else node.inputs[0]
        pair = 'DequantizeLinear' if name in graph.outputs else 'QuantizeLinear'
        if node.operator == pair and not graph.is_constant(node.inputs[0]):
            found[name] = float(graph.constants[node.inputs[1]].ravel()[0])
    return found


def calibration_cache(scales: Mapping[str, float], number: int) -> str:
    """Return scales as the calibration cache that a TensorRT up to 10 reads.

    A line of its version's number and the algorithm, then `tensor: scale`, float32 in big-endian
    hex.
    """
    lines = [f'TRT-{number}-EntropyCalibration2']
    lines += [f'{name}: {struct.pack(">f", scale).hex()}' for name, scale in scales.items()]
    return '\n'.join(lines) + '\n'


def int8_edges(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """Return a network with Q/DQ whose given inputs and outputs are int8 themselves.

    Raises
    ------
    GraphError
        If there is no Q or DQ at one of them.

    """
    import onnx

    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    for name in names:
        ends = [info for info in (*graph.input, *graph.output) if info.name == name]
        is_input = any(info.name == name for info in graph.input)
        wanted = 'QuantizeLinear' if is_input else 'DequantizeLinear'
        at = [
            node for node in graph.node
            if node.op_type == wanted and name in (node.input[:1] if is_input else node.output)
        ]
        if not ends or not at:
            raise GraphError(f'{name!r} has no {wanted}, so it cannot be int8')
        for node in at:
            inner = node.output[0] if is_input else node.input[0]
            for other in graph.node:
                for names_of in (other.input, other.output):
                    for i, end in enumerate(names_of):
                        if end == inner:
                            names_of[i] = name
            graph.node.remove(node)
        ends[0].type.tensor_type.elem_type = onnx.TensorProto.INT8
    return made


def differences(
    exact: onnx.ModelProto, other: onnx.ModelProto, feeds: Iterable[Feed]
) -> Iterator[dict[str, float]]:
    """Yield, for each input, how far each output of `other` is from that of `exact`.

    The root of the mean squared difference, as a part of the root mean square of `exact`.
    """
    run_exact, run_other = runner(exact), runner(other)
    for feed in feeds:
        expected, found = run_exact(feed), run_other(feed)
        yield {
            name: _relative(expected[name].astype(np.float64), found[name].astype(np.float64))
            for name in expected
        }


def _relative(expected: Any, found: Any) -> float:
    return float(
        np.sqrt(np.mean((found - expected) ** 2)) / max(np.sqrt(np.mean(expected**2)), 1e-12)
    )
