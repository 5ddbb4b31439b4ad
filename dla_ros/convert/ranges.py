"""Networks on sample pictures: how large their activations become, how far two of them differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
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
    pictures: Iterable[Path], config: InputConfig, shape: Sequence[int]
) -> Iterator[Feed]:
    """Yield pictures as a network's input, float32 [1, c, h, w].

    Raises
    ------
    ImageError
        If a file is no picture.
    GraphError
        If the input does not have the channels of model.yaml.

    """
    try:
        spec = TensorSpec.of('input', tuple(shape), 'float32')
        buffer = np.zeros(spec.shape, np.float32)
        preprocess = Preprocessor(config, spec, buffer)
    except ValueError as error:
        raise GraphError(str(error)) from error
    for path in pictures:
        view = ImageView.from_encoded(path.read_bytes())
        geometry = config.fit((view.width, view.height), (spec.shape[3], spec.shape[2]))
        preprocess(view, geometry)
        yield buffer.copy()


def find_pictures(folder: Path) -> list[Path]:
    """Return the pictures of a folder, by name; raise GraphError if there are none."""
    kinds = {'.jpg', '.jpeg', '.png', '.bmp'}
    found = sorted(path for path in folder.glob('*') if path.suffix.lower() in kinds)
    if not found:
        raise GraphError(f'{folder} has no pictures ({", ".join(sorted(kinds))})')
    return found


def largest_values(model: onnx.ModelProto, feeds: Iterable[Feed]) -> dict[str, float]:
    """Return the largest absolute value of each tensor over some inputs; NaN counts as infinite.

    The network runs as it is: in a float16 network what overflows is infinite.
    """
    import onnx

    inferred = onnx.shape_inference.infer_shapes(model)
    watched = onnx.ModelProto()
    watched.CopyFrom(inferred)
    floats = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
    outputs = {info.name for info in watched.graph.output}
    watched.graph.output.extend(
        info for info in inferred.graph.value_info
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


def runner(model: onnx.ModelProto) -> Callable[[Feed], dict[str, npt.NDArray[Any]]]:
    """Return what runs a network with one input on the CPU, output by name.

    Raises
    ------
    GraphError
        If it has several inputs.
    BackendError
        If onnxruntime cannot open it.

    """
    from dla_ros.backends.onnxruntime import open_session

    session = open_session(model.SerializeToString(), 0)
    inputs = session.get_inputs()
    if len(inputs) != 1:
        listed = ', '.join(arg.name for arg in inputs)
        raise GraphError(f'the network has {len(inputs)} inputs ({listed}), not one')
    dtype = np.float16 if inputs[0].type == 'tensor(float16)' else np.float32
    names = [arg.name for arg in session.get_outputs()]

    def run(feed: Feed) -> dict[str, npt.NDArray[Any]]:
        values = session.run(names, {inputs[0].name: feed.astype(dtype)})
        return dict(zip(names, values, strict=True))

    return run
