"""A network's graph as the DLA's compiler sees it: shapes known, constants folded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import onnx

Shape = tuple[int | None, ...]
_MOST_FOLDED = 1 << 20  # Elements; what is larger is no shape arithmetic.


class GraphError(ValueError):
    """A file that is no ONNX network, or one that cannot be changed as asked."""


@dataclass(frozen=True)
class Node:
    """One operation that is left at run time.

    Attributes
    ----------
    name:
        Its name in the file, or `OPERATOR at OUTPUT` where it has none.
    operator:
        The ONNX operator.
    inputs, outputs:
        Tensor names; an optional input that is left out is ''.
    attributes:
        As in the file: numbers, strings, lists or arrays.

    """

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]

    def ints(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """Return an attribute that is a list of integers."""
        return tuple(int(n) for n in self.attributes.get(name, default))


class Graph:
    """A network, read.

    Attributes
    ----------
    opset:
        Version of the default operator set.
    inputs, outputs:
        Tensor names, constants left out.
    nodes:
        What is not constant, in topological order.
    constants:
        Values of the constant tensors, by name.

    """

    def __init__(self, model: onnx.ModelProto) -> None:
        """Infer shapes and fold constants; the model is left as it is.

        Raises
        ------
        GraphError
            If the network contradicts itself.

        """
        self.opset = max(
            (o.version for o in model.opset_import if o.domain in ('', 'ai.onnx')), default=0
        )
        # What is folded lets more shapes be known, and those more be folded.
        rest = self._infer(model)
        while rest is not None:
            rest = self._infer(rest)

    def _infer(self, model: onnx.ModelProto) -> onnx.ModelProto | None:
        """Read the network; return it with what could be folded as initializers, None if none."""
        import onnx

        try:
            onnx.checker.check_model(model)
            inferred = onnx.shape_inference.infer_shapes(model, data_prop=True, strict_mode=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
            raise GraphError(f'the network contradicts itself: {error}') from error
        graph = inferred.graph
        self.constants: dict[str, npt.NDArray[Any]] = {
            t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer
        }
        self._types = {
            info.name: _type_of(info)
            for info in (*graph.input, *graph.value_info, *graph.output)
        }
        self.inputs = tuple(i.name for i in graph.input if i.name not in self.constants)
        self.outputs = tuple(o.name for o in graph.output)
        self.nodes: list[Node] = []
        left = [proto for proto in graph.node if not self._fold(proto)]
        folded = len(graph.node) - len(left)
        del graph.node[:], graph.initializer[:]
        graph.node.extend(left)
        graph.initializer.extend(
            onnx.numpy_helper.from_array(value, name) for name, value in self.constants.items()
        )
        return inferred if folded else None

    @classmethod
    def read(cls, path: Path) -> Graph:
        """Read an ONNX file; raise GraphError if it is none."""
        return cls(read_onnx(path))

    def _fold(self, proto: onnx.NodeProto) -> bool:
        """Add a node to the constants and return True, or to the nodes and return False."""
        node = Node(
            proto.name or f'{proto.op_type} at {proto.output[0]}',
            proto.op_type, tuple(proto.input), tuple(proto.output), _attributes(proto),
        )
        known = self._folded(proto, node)
        if known is None:
            self.nodes.append(node)
            return False
        self.constants.update(zip(node.outputs, known, strict=True))
        return True

    def _folded(self, proto: onnx.NodeProto, node: Node) -> list[npt.NDArray[Any]] | None:
        """Return the values of a node that depends on no input, None if it does."""
        import onnx
        from onnx.reference import ReferenceEvaluator

        if node.operator in ('Shape', 'Size'):
            shape = self.shape(node.inputs[0])
            if shape is None or None in shape:
                return None
            dims = np.array(shape, np.int64)
            if node.operator == 'Size':
                return [np.array(dims.prod())]
            start, end = node.attributes.get('start', 0), node.attributes.get('end', len(dims))
            return [dims[start:end]]
        feeds = {name: self.constants[name] for name in node.inputs if name in self.constants}
        if set(node.inputs) - {''} - feeds.keys():
            return None
        if sum(value.size for value in feeds.values()) > _MOST_FOLDED:
            return None
        try:
            infos = [onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
            ) for name, value in feeds.items()]
            outputs = [onnx.ValueInfoProto(name=name) for name in node.outputs]
            graph = onnx.helper.make_graph([proto], 'constant', infos, outputs)
            return list(ReferenceEvaluator(
                graph, opsets={'': self.opset}
            ).run(None, feeds))
        except (NotImplementedError, RuntimeError, TypeError, ValueError):
            return None

    def shape(self, name: str) -> Shape | None:
        """Return a tensor's shape, None where unknown; of a dimension too."""
        if name in self.constants:
            return self.constants[name].shape
        found = self._types.get(name)
        return found[1] if found else None

    def element(self, name: str) -> str:
        """Return a tensor's element type as numpy calls it; '' if unknown."""
        if name in self.constants:
            return self.constants[name].dtype.name
        found = self._types.get(name)
        return found[0] if found else ''

    def is_constant(self, name: str) -> bool:
        """Whether a tensor's value is known before any input."""
        return name in self.constants

    @cached_property
    def producers(self) -> Mapping[str, Node]:
        """The node that makes each tensor."""
        return {name: node for node in self.nodes for name in node.outputs}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[Node, ...]]:
        """The nodes that take each tensor."""
        found: dict[str, tuple[Node, ...]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                found[name] = (*found.get(name, ()), node)
        return found

    def arguments(self, node: Node) -> tuple[str, ...]:
        """Return a node's inputs that are not constant."""
        return tuple(
            name for name in dict.fromkeys(node.inputs) if name and name not in self.constants
        )


def read_onnx(path: Path) -> onnx.ModelProto:
    """Read an ONNX file; raise GraphError if it is none."""
    import onnx

    try:
        model = onnx.load(path)
    except Exception as error:
        # protobuf's exceptions have no common base but Exception.
        raise GraphError(f'{path} is no ONNX network: {error}') from error
    if not model.graph.node:
        raise GraphError(f'{path} is no ONNX network: it has no nodes')
    return model


def show_shape(shape: Shape | None) -> str:
    """Return a shape as 1x3x416x416, with ? for what is unknown."""
    if shape is None:
        return '?'
    return 'x'.join('?' if n is None else str(n) for n in shape) or 'scalar'


def _type_of(info: onnx.ValueInfoProto) -> tuple[str, Shape | None]:
    import onnx

    tensor = info.type.tensor_type
    kind = tensor.elem_type
    name = onnx.helper.tensor_dtype_to_np_dtype(kind).name if kind else ''
    if not tensor.HasField('shape'):
        return name, None
    return name, tuple(
        dim.dim_value if dim.HasField('dim_value') else None for dim in tensor.shape.dim
    )


def _attributes(proto: onnx.NodeProto) -> dict[str, Any]:
    import onnx

    found = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute}
    return {k: v.decode() if isinstance(v, bytes) else v for k, v in found.items()}


def fix_shapes(
    model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]
) -> onnx.ModelProto:
    """Return a network with the shapes of some inputs fixed, the model itself if there are none.

    Raises
    ------
    GraphError
        If there is no such input, or it has another number of dimensions.

    """
    import onnx

    if not shapes:
        return model
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    inputs = {info.name: info for info in fixed.graph.input}
    for name, shape in shapes.items():
        if name not in inputs:
            raise GraphError(f'no input {name!r}; there are {", ".join(inputs)}')
        dims = inputs[name].type.tensor_type.shape.dim
        if len(dims) != len(shape):
            raise GraphError(f'input {name!r} has {len(dims)} dimensions, not {len(shape)}')
        for dim, side in zip(dims, shape, strict=True):
            if dim.HasField('dim_value') and dim.dim_value != side:
                raise GraphError(
                    f'input {name!r} is {show_shape(_type_of(inputs[name])[1])} already'
                )
            dim.dim_value = side
    # What was inferred for other shapes does not hold any more.
    del fixed.graph.value_info[:]
    for output in fixed.graph.output:
        output.type.tensor_type.ClearField('shape')
    return onnx.shape_inference.infer_shapes(fixed, data_prop=True)
