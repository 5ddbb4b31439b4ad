"""A network on sample pictures: how large its activations become."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dla_ros.convert.graph import GraphError
from dla_ros.image import ImageView
from dla_ros.model import InputConfig
from dla_ros.preprocess import Preprocessor
from dla_ros.tensor import TensorSpec

if TYPE_CHECKING:
    import onnx

Feed = npt.NDArray[np.float32]


def sample_inputs(
    views: Iterable[ImageView], config: InputConfig, shape: Sequence[int]
) -> Iterator[Feed]:
    """Yield images as a network's input, float32 [1, c, h, w]; valid until the next one.

    Raises
    ------
    GraphError
        If the input does not have the channels of model.yaml.

    """
    try:
        spec = TensorSpec.of('input', tuple(shape), 'float32')
        buffer = np.zeros(spec.shape, np.float32)
        preprocess = Preprocessor(config, spec, buffer)
    except ValueError as error:
        raise GraphError(str(error)) from error
    for view in views:
        preprocess(view, config.fit((view.width, view.height), (spec.shape[3], spec.shape[2])))
        yield buffer


def runner(model: onnx.ModelProto) -> Callable[[Feed], dict[str, npt.NDArray[Any]]]:
    """Return what runs a network with one input on onnxruntime, as it is: its outputs by name.

    In float16, what overflows is infinite.

    Raises
    ------
    BackendError
        If onnxruntime cannot open it.

    """
    from dla_ros.backends.onnxruntime import ELEMENT_TYPES, open_session

    session = open_session(model.SerializeToString(), 0)
    (arg,) = session.get_inputs()
    names = [output.name for output in session.get_outputs()]

    def run(feed: Feed) -> dict[str, npt.NDArray[Any]]:
        values = session.run(names, {arg.name: feed.astype(ELEMENT_TYPES[arg.type])})
        return dict(zip(names, values, strict=True))

    return run


def largest_values(model: onnx.ModelProto, feeds: Iterable[Feed]) -> dict[str, float]:
    """Return the largest absolute value of each tensor over some inputs; NaN counts as infinite.

    The network has one input; see `runner`, also for what is raised.
    """
    import onnx

    watched = onnx.shape_inference.infer_shapes(model)
    floats = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
    outputs = {info.name for info in watched.graph.output}
    watched.graph.output.extend(
        info for info in watched.graph.value_info
        if info.type.tensor_type.elem_type in floats and info.name not in outputs
    )
    run = runner(watched)
    found: dict[str, float] = {}
    for feed in feeds:
        for name, value in run(feed).items():
            if value.dtype.kind == 'f' and value.size:
                largest = float(np.abs(value.astype(np.float32)).max())
                found[name] = max(found.get(name, 0.0), np.inf if np.isnan(largest) else largest)
    return found
