"""Small networks for the tests."""

from __future__ import annotations

import functools
from pathlib import Path
import tempfile

import numpy as np
import onnx
from onnx import helper, TensorProto
import yaml

from dla_ros.emulator.loadable import build_loadable
from dla_ros.model import find_model, Model


def save_network(path, *, shape=(1, 3, 4, 4), kind=TensorProto.FLOAT, inputs=1, loops=0):
    """Write a network that gives its input plus 1, twice over, after `loops` rounds of work."""
    infos = [helper.make_tensor_value_info(f'x{i}', kind, shape) for i in range(inputs)]
    dtype = {TensorProto.FLOAT: np.float32, TensorProto.FLOAT16: np.float16}.get(kind, np.int64)
    constants = [onnx.numpy_helper.from_array(np.ones(1, dtype), 'one')]
    nodes = [helper.make_node('Add', ['x0', 'x1' if inputs > 1 else 'one'], ['sum'])]
    last = 'sum'
    if loops:
        # Large products that depend on the input, else they would be folded when it is loaded.
        large = np.full((1500, 1500), 1 / 1500, np.float32)
        constants.append(onnx.numpy_helper.from_array(large, 'large'))
        nodes += [
            helper.make_node('ReduceMax', ['x0'], ['most'], keepdims=0),
            helper.make_node('Mul', ['large', 'most'], ['w0']),
            *(
                helper.make_node('MatMul', [f'w{i}', 'large'], [f'w{i + 1}'])
                for i in range(loops)
            ),
            helper.make_node('ReduceMax', [f'w{loops}'], ['slow'], keepdims=0),
            helper.make_node('Mul', ['sum', 'slow'], ['product']),
        ]
        last = 'product'
    nodes.append(helper.make_node('Concat', [last, last], ['y'], axis=1 if len(shape) > 3 else 0))
    twice = (shape[0], 2 * shape[1], *shape[2:]) if len(shape) > 3 else (2 * shape[0], *shape[1:])
    output = helper.make_tensor_value_info('y', kind, twice)
    graph = helper.make_graph(nodes, 'net', infos, [output], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=9)
    onnx.save(model, path)


def save_model(folder, *, loops=0, extra='', **network):
    """Write a network and its model.yaml (one class, decoder yolox); return the latter's path."""
    save_network(folder / 'network.onnx', loops=loops, **network)
    path = folder / 'model.yaml'
    path.write_text(
        'name: small\nonnx: network.onnx\nlabels: [thing]\n'
        'input: {color_order: rgb, resize: stretch}\ndecoder: {type: yolox}\n' + extra
    )
    return path


def copied_model(name: str | Path, folder: Path, **changes: object) -> Path:
    """Copy a model's yaml, with absolute paths and changes."""
    source = find_model(name)
    content = yaml.safe_load(source.read_text())
    for key in ('onnx', 'labels'):
        if isinstance(content[key], str):
            content[key] = str(source.parent / content[key])
    content.update(changes)
    path = folder / 'model.yaml'
    path.write_text(yaml.safe_dump(content))
    return path


@functools.cache
def emulated_loadable():
    """Return an emulated loadable of the small network."""
    with tempfile.TemporaryDirectory() as folder:
        return build_loadable(Model.load(save_model(Path(folder), kind=TensorProto.FLOAT16)))


def quantize_edges(source, target, scales):
    """Write a network with QuantizeLinear and DequantizeLinear at the tensors of `scales`."""
    model = onnx.load(source)
    graph = model.graph
    inputs = {info.name for info in graph.input}
    for name, scale in scales.items():
        constants = {'scale': np.array(scale, np.float32), 'zero': np.array(0, np.int8)}
        graph.initializer.extend(
            onnx.numpy_helper.from_array(value, f'{name}_{end}')
            for end, value in constants.items()
        )
        outside, inside = (name, f'{name}_in') if name in inputs else (f'{name}_raw', name)
        for node in graph.node:
            ends = node.input if name in inputs else node.output
            for i, end in enumerate(ends):
                if end == name:
                    ends[i] = inside if name in inputs else outside
        steps = [
            helper.make_node('Cast', [outside], [f'{name}_f'], to=TensorProto.FLOAT),
            helper.make_node(
                'QuantizeLinear', [f'{name}_f', f'{name}_scale', f'{name}_zero'], [f'{name}_q']
            ),
            helper.make_node(
                'DequantizeLinear', [f'{name}_q', f'{name}_scale', f'{name}_zero'], [f'{name}_d']
            ),
            helper.make_node('Cast', [f'{name}_d'], [inside], to=TensorProto.FLOAT16),
        ]
        nodes = list(graph.node)
        del graph.node[:]
        graph.node.extend([*steps, *nodes] if name in inputs else [*nodes, *steps])
    onnx.save(model, target)
