"""What makes a network fit for a DLA without changing what it computes.

Every function changes the network in place, or returns a new one, and leaves tensor names at the
edges as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import difflib
import itertools
from typing import Any, TYPE_CHECKING

import numpy as np

from dla_ros.convert.graph import Graph, GraphError, Node
from dla_ros.convert.rules import pads

if TYPE_CHECKING:
    import onnx

_WINDOW = 8  # Largest side of a pooling on a DLA.


def simplify(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the network with constants folded and what does nothing taken out, by onnxslim."""
    import onnxslim

    slim: onnx.ModelProto = onnxslim.slim(model)
    return slim


def cut_outputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """Return the part of the network that makes some of its tensors.

    Raises
    ------
    GraphError
        If there is no such tensor; the text has the most similar names.

    """
    import onnx.utils

    graph = Graph(model)
    known = {name for node in graph.nodes for name in node.outputs}
    for name in names:
        if name not in known:
            similar = difflib.get_close_matches(name, known, cutoff=0.3) or sorted(known)[:3]
            raise GraphError(f'no tensor {name!r} to cut at; similar: {", ".join(similar)}')
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    extractor = onnx.utils.Extractor(inferred)
    needed = _inputs_of(graph, names)
    return extractor.extract_model(list(needed), list(names))


def _inputs_of(graph: Graph, names: Iterable[str]) -> list[str]:
    todo, seen = list(names), set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        node = graph.producers.get(name)
        todo.extend(graph.arguments(node) if node else ())
    return [name for name in graph.inputs if name in seen]


def name_nodes(model: onnx.ModelProto) -> None:
    """Give every node a name of its own, in place."""
    taken: set[str] = set()
    for i, node in enumerate(model.graph.node):
        if not node.name or node.name in taken:
            node.name = f'{node.op_type}_{i}'
        while node.name in taken:
            node.name += '_'
        taken.add(node.name)


def scales_from_sizes(model: onnx.ModelProto) -> int:
    """Let each Resize with fixed sizes have scales instead, in place; return how many there were.

    Only where the scales are exact: the result stays the same.
    """
    import onnx

    graph, changed = Graph(model), 0
    for proto in model.graph.node:
        if proto.op_type != 'Resize' or len(proto.input) < 4 or not proto.input[3]:
            continue
        before, after = graph.shape(proto.input[0]), graph.shape(proto.output[0])
        if before is None or after is None or None in before or None in after:
            continue
        sides = zip(map(_known, before), map(_known, after), strict=True)
        scales = np.array([to / start for start, to in sides], np.float32)
        if np.any(scales != np.rint(scales)):
            continue
        name = f'{proto.output[0]}_scales'
        model.graph.initializer.append(onnx.numpy_helper.from_array(scales, name))
        del proto.input[2:]
        proto.input.append(name)
        changed += 1
    return changed


def fold_focus(model: onnx.ModelProto) -> int:
    """Make one convolution of a Focus stem and the Conv behind it, in place.

    Four Slices with step 2, a Concat and a kxk Conv with stride s become a 2k x 2k Conv with
    stride 2s: weight [o, c, 2i + row, 2j + column] is that of branch (row, column) at [i, j].

    Returns
    -------
    How many there were.

    """
    graph, folded = Graph(model), 0
    for node in graph.nodes:
        if node.operator != 'Conv' or node.attributes.get('group', 1) != 1:
            continue
        concat = graph.producers.get(node.inputs[0])
        if concat is None or concat.operator != 'Concat' or concat.attributes['axis'] != 1:
            continue
        branches = [_branch(name, graph) for name in concat.inputs]
        sources = {branch[0] for branch in branches if branch}
        phases = [branch[1] for branch in branches if branch]
        if len(branches) == 4 and len(sources) == 1 and sorted(phases) == list(
            itertools.product((0, 1), (0, 1))
        ):
            _become_focus(model, node, graph, sources.pop(), phases)
            folded += 1
    if folded:
        _drop_unused(model)
    return folded


def _branch(name: str, graph: Graph) -> tuple[str, tuple[int, int]] | None:
    """Return where every second row and column of a tensor are taken from, and which."""
    phase = {}
    while (node := graph.producers.get(name)) is not None and node.operator == 'Slice':
        values = [graph.constants.get(key) for key in node.inputs[1:]]
        if len(values) < 4 or any(value is None for value in values):
            return None
        starts, _, axes, steps = ([int(n) for n in np.ravel(np.asarray(v))] for v in values[:4])
        for start, axis, step in zip(starts, axes, steps, strict=True):
            if step != 2 or start not in (0, 1) or axis not in (2, 3) or axis in phase:
                return None
            phase[axis] = start
        name = node.inputs[0]
    return (name, (phase[2], phase[3])) if len(phase) == 2 else None


def _become_focus(
    model: onnx.ModelProto, node: Node, graph: Graph, source: str, phases: list[tuple[int, int]]
) -> None:
    import onnx

    weights = graph.constants[node.inputs[1]]
    outer, inner, rows, columns = weights.shape
    channels = inner // 4
    folded = np.zeros((outer, channels, 2 * rows, 2 * columns), weights.dtype)
    for i, (row, column) in enumerate(phases):
        folded[:, :, row::2, column::2] = weights[:, i * channels : (i + 1) * channels]
    name = f'{node.outputs[0]}_focus'
    model.graph.initializer.append(onnx.numpy_helper.from_array(folded, name))
    proto = _proto(model, node)
    proto.input[0], proto.input[1] = source, name
    _set(proto, 'kernel_shape', [2 * rows, 2 * columns])
    _set(proto, 'strides', [2 * n for n in node.ints('strides', (1, 1))])
    _set(proto, 'pads', [2 * n for n in pads(node, graph)])
    _set(proto, 'auto_pad', None)


def chain_pools(model: onnx.ModelProto) -> int:
    """Make several small poolings of one that is too large for a DLA, in place.

    - MaxPool with stride 1 that keeps the size: one after the other, each adds its side less 1;
      from another MaxPool of the same tensor where there is one (as in SPP).
    - GlobalAveragePool, GlobalMaxPool: windows side by side, that multiply to the picture's size.

    Returns
    -------
    How many there were; one that cannot be divided is left.

    """
    graph = Graph(model)
    changed = _chain_max(model, graph) + _chain_global(model, graph)
    if changed:
        _sort(model)
    return changed


def _chain_max(model: onnx.ModelProto, graph: Graph) -> int:
    import onnx

    made: dict[str, list[tuple[int, str]]] = {}
    changed = 0
    same = [
        node for node in graph.nodes
        if node.operator == 'MaxPool' and len(node.outputs) == 1 and _keeps_size(node, graph)
    ]
    for node in sorted(same, key=lambda node: node.ints('kernel_shape', ())[0]):
        side, source = node.ints('kernel_shape', ())[0], node.inputs[0]
        known = made.setdefault(source, [(1, source)])
        if side > _WINDOW:
            proto = _proto(model, node)
            reached, name = max(known)
            while reached + _WINDOW - 2 < side:  # The largest odd window adds 6.
                reached += _WINDOW - 2
                longer = f'{node.outputs[0]}_{reached}'
                model.graph.node.append(onnx.helper.make_node(
                    'MaxPool', [name], [longer], f'{node.name}_{reached}',
                    kernel_shape=[7, 7], strides=[1, 1], pads=[3] * 4,
                ))
                name = longer
            last = side - reached + 1
            proto.input[0] = name
            _set(proto, 'kernel_shape', [last, last])
            _set(proto, 'pads', [last // 2] * 4)
            _set(proto, 'auto_pad', None)
            changed += 1
        known.append((side, node.outputs[0]))
    return changed


def _keeps_size(node: Node, graph: Graph) -> bool:
    window = node.ints('kernel_shape', ())
    return (
        len(window) == 2 and window[0] == window[1] and window[0] % 2 == 1
        and node.ints('strides', (1, 1)) == (1, 1) and node.ints('dilations', (1, 1)) == (1, 1)
        and pads(node, graph) == (window[0] // 2,) * 4
    )


def tiling(sides: Sequence[int]) -> list[tuple[int, int]] | None:
    """Return windows, up to 8x8, that cover a picture of some height and width; None if none do.

    >>> tiling((7, 20))
    [(7, 5), (1, 4)]
    """
    columns = [_factors(side) for side in sides]
    if None in columns:
        return None
    pairs = itertools.zip_longest(*(c or [] for c in columns), fillvalue=1)
    return [(high, wide) for high, wide in pairs] or [(1, 1)]


def _factors(side: int) -> list[int] | None:
    found = []
    while side > 1:
        factor = next((n for n in range(_WINDOW, 1, -1) if side % n == 0), None)
        if factor is None:
            return None
        found.append(factor)
        side //= factor
    return sorted(found, reverse=True)


def _chain_global(model: onnx.ModelProto, graph: Graph) -> int:
    import onnx

    changed = 0
    for node in graph.nodes:
        if node.operator not in ('GlobalAveragePool', 'GlobalMaxPool'):
            continue
        shape = graph.shape(node.inputs[0])
        if shape is None or len(shape) != 4 or None in shape:
            continue
        windows = tiling([_known(side) for side in shape[2:]])
        if windows is None:
            continue
        operator = node.operator.removeprefix('Global')
        proto, name = _proto(model, node), node.inputs[0]
        for i, window in enumerate(windows):
            last = i == len(windows) - 1
            out = node.outputs[0] if last else f'{node.outputs[0]}_{i}'
            model.graph.node.append(onnx.helper.make_node(
                operator, [name], [out], node.name if last else f'{node.name}_{i}',
                kernel_shape=window, strides=window,
            ))
            name = out
        model.graph.node.remove(proto)
        changed += 1
    return changed


def _known(side: int | None) -> int:
    assert side is not None
    return side


def _proto(model: onnx.ModelProto, node: Node) -> onnx.NodeProto:
    protos: dict[tuple[str, ...], onnx.NodeProto] = {
        tuple(proto.output): proto for proto in model.graph.node
    }
    return protos[node.outputs]


def _set(proto: onnx.NodeProto, name: str, value: Any) -> None:
    """Set an attribute, or remove it if the value is None."""
    import onnx

    for attribute in [a for a in proto.attribute if a.name == name]:
        proto.attribute.remove(attribute)
    if value is not None:
        proto.attribute.append(onnx.helper.make_attribute(name, value))


def _drop_unused(model: onnx.ModelProto) -> None:
    """Remove the nodes and constants that nothing uses any more."""
    needed = {info.name for info in model.graph.output}
    kept = []
    for proto in reversed(model.graph.node):
        if needed & set(proto.output):
            needed |= set(proto.input)
            kept.append(proto)
    constants = [tensor for tensor in model.graph.initializer if tensor.name in needed]
    made = {name for proto in kept for name in proto.output}
    known = [info for info in model.graph.value_info if info.name in made]
    del model.graph.node[:], model.graph.initializer[:], model.graph.value_info[:]
    model.graph.node.extend(reversed(kept))
    model.graph.initializer.extend(constants)
    model.graph.value_info.extend(known)


def _sort(model: onnx.ModelProto) -> None:
    """Bring the nodes into an order in which each comes after those it needs."""
    waiting = list(model.graph.node)
    known = {info.name for info in model.graph.input} | {''}
    known |= {tensor.name for tensor in model.graph.initializer}
    del model.graph.node[:]
    while waiting:
        ready = [proto for proto in waiting if known.issuperset(proto.input)]
        if not ready:
            raise GraphError('the network has a loop')
        for proto in ready:
            known.update(proto.output)
        model.graph.node.extend(ready)
        waiting = [proto for proto in waiting if not known.issuperset(proto.output)]
