"""Whether a network can become a standalone DLA loadable, and if not, where and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
import math
from typing import Any

from dla_ros.convert.graph import Graph, Node, Shape, show_shape
from dla_ros.convert.rules import INSTEAD, LAYERS, RULES
from dla_ros.tensor import DLA_TYPES, four_dimensions, Layout, LAYOUTS, TensorSpec

LARGEST_HALF = 65504.0
"""What float16 holds at most; larger activations become infinite."""
_SHOWN = 2  # Values named for one broken rule; nodes with many tensors break it many times.
_SURGERY = {
    'slice.steps': '--fold-focus', 'pooling.window': '--chain-pools',
    'GlobalAveragePool': '--chain-pools', 'GlobalMaxPool': '--chain-pools',
}
_RESHAPING = 'Transpose', 'Reshape', 'Flatten', 'Squeeze', 'Unsqueeze', 'Identity'


@dataclass(frozen=True)
class Refusal:
    """One node that a DLA cannot run, for one reason.

    Attributes
    ----------
    node, operator:
        Which one.
    rule, limit, source:
        What it breaks; see Rule.
    value:
        What is there instead.
    remedy:
        What to do.

    """

    node: str
    operator: str
    rule: str
    limit: str
    value: str
    remedy: str
    source: str


@dataclass(frozen=True)
class Place:
    """A tensor at the edge of a network or of a part of it.

    Attributes
    ----------
    name, shape:
        `shape` has None where a dimension is not known.
    layouts:
        What trtexec may be asked for, such as fp16:chw16, with the bytes that the tensor takes.

    """

    name: str
    shape: Shape | None
    layouts: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return name and shape."""
        return f'{self.name} ({show_shape(self.shape)})'


@dataclass(frozen=True)
class Report:
    """What there is to say of a network.

    Attributes
    ----------
    refusals:
        Everything that keeps it from being a standalone loadable.
    inputs, outputs:
        Its own.
    cut_inputs, cut_outputs:
        The edges of the largest part that a DLA can run; those of the whole if nothing is refused.
    part:
        Which share of the operations that part has, 0 to 1.
    operations:
        Multiplications and additions of one inference.
    weights, activations:
        Bytes in float16: of the constants, and of what is alive at once at most, chw16.
    ranges:
        The largest absolute value of each tensor on sample pictures; empty if none were run.

    """

    refusals: list[Refusal]
    inputs: list[Place]
    outputs: list[Place]
    cut_inputs: list[Place]
    cut_outputs: list[Place]
    part: float
    operations: int
    weights: int
    activations: int
    ranges: dict[str, float] = field(default_factory=dict)

    @property
    def overflows(self) -> dict[str, float]:
        """The tensors that float16 cannot hold."""
        return {
            name: largest for name, largest in self.ranges.items()
            if not largest <= LARGEST_HALF
        }

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against a standalone loadable."""
        return not self.refusals and not self.overflows

    @property
    def surgery(self) -> list[str]:
        """The options of `build` that may help."""
        found = {_SURGERY.get(r.rule) or _SURGERY.get(r.operator) for r in self.refusals}
        options = sorted(option for option in found if option)
        if None in found:
            options.append(f'--cut-outputs={",".join(place.name for place in self.cut_outputs)}')
        return options


def check_graph(graph: Graph, ranges: dict[str, float] | None = None) -> Report:
    """Return what there is to say of a network.

    Parameters
    ----------
    graph:
        The network.
    ranges:
        See Report.

    """
    refusals = [refusal for node in graph.nodes for refusal in refuse(node, graph)]
    refused = {refusal.node for refusal in refusals}
    work = {node.outputs: operations(node, graph) for node in graph.nodes}
    part = _largest_part(graph, refused, work)
    total = sum(work.values())
    return Report(
        refusals,
        _places(graph, graph.inputs),
        _places(graph, graph.outputs),
        _places(graph, _entering(graph, part)),
        _places(graph, _leaving(graph, part)),
        sum(work[node.outputs] for node in part) / total if total else 1.0,
        total,
        2 * sum(
            graph.constants[name].size
            for name in {n for node in graph.nodes for n in node.inputs}
            if graph.is_constant(name)
        ),
        _most_alive(graph),
        ranges or {},
    )


def refuse(node: Node, graph: Graph) -> Iterator[Refusal]:
    """Yield the reasons why a DLA cannot run a node."""
    if node.operator not in LAYERS:
        yield Refusal(
            node.name, node.operator, 'any.operator', 'an operator that the DLA knows',
            node.operator, INSTEAD.get(node.operator, 'cut the network before this'), 'matrix',
        )
        return
    for rule in RULES:
        if rule.operators and node.operator not in rule.operators:
            continue
        values = list(dict.fromkeys(rule.broken(node, graph)))
        if values:
            more = f' and {len(values) - _SHOWN} more' if len(values) > _SHOWN else ''
            yield Refusal(
                node.name, node.operator, rule.name, rule.limit,
                ', '.join(values[:_SHOWN]) + more, rule.remedy, rule.source,
            )


def operations(node: Node, graph: Graph) -> int:
    """Return a node's multiplications and additions; 0 for all that has no weights."""
    weighted = 'Conv', 'ConvTranspose', 'Gemm', 'MatMul'
    shapes = [graph.shape(name) for name in (*node.inputs[:2], node.outputs[0])]
    if node.operator not in weighted or any(s is None or None in s for s in shapes):
        return 0
    first, second, out = ([int(n or 0) for n in shape or ()] for shape in shapes)
    if node.operator == 'Conv':
        return 2 * math.prod(out) * math.prod(second[1:])
    if node.operator == 'ConvTranspose':
        return 2 * math.prod(first) * math.prod(second[1:])
    deep = first[0] if node.attributes.get('transA') else first[-1]
    return 2 * math.prod(out) * deep


def _largest_part(
    graph: Graph, refused: set[str], work: Mapping[tuple[str, ...], int]
) -> list[Node]:
    """Return the connected layers with the most work between refused ones."""
    levels: dict[str, int] = {}
    parts: dict[int, list[Node]] = {}
    for node in graph.nodes:
        level = max((levels.get(name, 0) for name in graph.arguments(node)), default=0)
        if node.name in refused:
            level += 1
        else:
            parts.setdefault(level, []).append(node)
        levels.update(dict.fromkeys(node.outputs, level))
    return max(
        parts.values(), key=lambda nodes: sum(work[node.outputs] for node in nodes), default=[]
    )


def _entering(graph: Graph, part: Iterable[Node]) -> list[str]:
    made = {name for node in part for name in node.outputs}
    names = (name for node in part for name in graph.arguments(node) if name not in made)
    return list(dict.fromkeys(names))


def _leaving(graph: Graph, part: Sequence[Node]) -> list[str]:
    inside = {node.name for node in part}
    found = []
    for node in part:
        for name in node.outputs:
            users = graph.consumers.get(name, ())
            if name in graph.outputs or any(user.name not in inside for user in users):
                found.append(_before_reshaping(name, graph, inside))
    return list(dict.fromkeys(found))


def _before_reshaping(name: str, graph: Graph, inside: set[str]) -> str:
    """Return where a tensor comes from before it is only moved about, which is for a decoder."""
    node = graph.producers[name]
    while name not in graph.outputs and node.operator in _RESHAPING:
        before = graph.producers.get(node.inputs[0])
        if before is None or before.name not in inside:
            break
        name, node = node.inputs[0], before
    return name


def _places(graph: Graph, names: Iterable[str]) -> list[Place]:
    return [Place(name, graph.shape(name), _layouts(graph, name)) for name in names]


def _layouts(graph: Graph, name: str) -> dict[str, int]:
    found = {}
    for row in LAYOUTS.values():
        # hwc4 is for images, so for inputs.
        if row.data_format and (row.name != 'dla_hwc4' or name in graph.inputs):
            for short, dtype in DLA_TYPES.items():
                size = _size(graph, name, dtype, row)
                if size:
                    found[f'{short}:{row.name}'] = size
    return found


def _size(graph: Graph, name: str, dtype: str, layout: Layout) -> int:
    """Return the bytes of a tensor in a layout; 0 if its shape is unknown or does not fit."""
    shape = graph.shape(name)
    if shape is None or None in shape or dtype not in layout.dtypes:
        return 0
    full = four_dimensions(tuple(int(n or 0) for n in shape))
    try:
        return TensorSpec.of(name, full, dtype, layout.name).size if len(full) == 4 else 0
    except ValueError:
        return 0


def _most_alive(graph: Graph) -> int:
    """Return the bytes of the tensors that are alive together at most, in order of the file."""
    last = {name: i for i, node in enumerate(graph.nodes) for name in graph.arguments(node)}
    alive = {name: _half_size(graph, name) for name in graph.inputs}
    most = 0
    for i, node in enumerate(graph.nodes):
        alive.update((name, _half_size(graph, name)) for name in node.outputs if name)
        most = max(most, sum(alive.values()))
        for name in graph.arguments(node):
            if last[name] == i and name not in graph.outputs:
                alive.pop(name, None)
    return most


def _half_size(graph: Graph, name: str) -> int:
    return _size(graph, name, 'float16', LAYOUTS['chw16'])


def as_json(report: Report) -> dict[str, Any]:
    """Return a report as plain lists and dictionaries."""
    return {
        'passed': report.passed, **asdict(report), 'overflows': report.overflows,
        'surgery': report.surgery,
    }
