"""The network on the CPU, by onnxruntime: for development, and wherever there is no DLA."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import (
    Future,
    ThreadPoolExecutor,
    TimeoutError as FutureTimeout,
)
from pathlib import Path
import time
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dla_ros.backends.base import BackendOptions, Completion
from dla_ros.decoders.heads import Head, select_candidates
from dla_ros.errors import BackendError, DeadlineError
from dla_ros.geometry import Geometry
from dla_ros.image import ImageView
from dla_ros.model import Model
from dla_ros.preprocess import Preprocessor
from dla_ros.tensor import four_dimensions, TensorSpec

ELEMENT_TYPES = {'tensor(float16)': np.float16, 'tensor(float)': np.float32}
"""The element types that a network's edges may have, by onnxruntime's names."""
_ERRORS_ONLY = 3


class _Slot:
    """The buffers of one frame, bound to the session once."""

    def __init__(self, session: Any, model: Model, backend: OnnxruntimeBackend) -> None:
        import onnxruntime

        (spec,) = backend.inputs
        self.input = np.zeros(spec.shape, spec.dtype)
        self.preprocess = Preprocessor(model.input, spec, self.input)
        self.outputs = {o.name: np.zeros(o.shape, o.dtype) for o in backend.outputs}
        self.binding = session.io_binding()
        self._values = {spec.name: onnxruntime.OrtValue.ortvalue_from_numpy(self.input)}
        for arg in session.get_outputs():
            name, array = arg.name, self.outputs[arg.name].reshape(arg.shape)
            self._values[name] = onnxruntime.OrtValue.ortvalue_from_numpy(array)
            self.binding.bind_ortvalue_output(name, self._values[name])
        self.binding.bind_ortvalue_input(spec.name, self._values[spec.name])
        self.future: Future[Completion] | None = None


class OnnxruntimeBackend:
    """Runs frames one after the other on a thread of its own; see Backend for the contract."""

    name: ClassVar[str] = 'onnxruntime'

    def __init__(self, session: Any, model: Model, options: BackendOptions) -> None:
        import onnxruntime

        self.inputs, self.outputs = _specs(session, model)
        if len(self.inputs) != 1:
            names = ', '.join(spec.name for spec in self.inputs)
            raise BackendError(f'{model.onnx} has {len(self.inputs)} inputs ({names}), not one')
        self._session = session
        self._heads: tuple[Head, ...] = ()
        self._tensors: tuple[str, ...] = ()
        self._slots = [_Slot(session, model, self) for _ in range(options.depth)]
        self._run_options = onnxruntime.RunOptions()
        self.about: Mapping[str, str] = {'onnxruntime': str(onnxruntime.__version__)}
        self._worker = ThreadPoolExecutor(1, thread_name_prefix='dla_ros-onnxruntime')
        self._closed = False

    @classmethod
    def open(cls, model: Model, options: BackendOptions) -> OnnxruntimeBackend:
        """Load the model's ONNX; see Backend.open."""
        if model.onnx is None:
            raise BackendError(
                f'model {model.name!r} names no ONNX file (key onnx); the onnxruntime backend '
                'needs one'
            )
        session = open_session(model.onnx, options.threads)
        try:
            return cls(session, model, options)
        except ValueError as error:
            raise BackendError(f'{model.onnx}: {error}') from error

    def read_from(self, heads: Sequence[Head], tensors: Collection[str]) -> None:
        """See Backend.read_from."""
        self._heads, self._tensors = tuple(heads), tuple(tensors)

    def submit(
        self, slot: int, view: ImageView, geometry: Geometry, confidence: float
    ) -> None:
        """See Backend.submit."""
        place = self._slots[slot]
        place.future = self._worker.submit(
            self._infer, place, lambda: place.preprocess(view, geometry), confidence
        )

    def submit_tensor(
        self, slot: int, tensor: npt.NDArray[np.float32], confidence: float
    ) -> None:
        """See Backend.submit_tensor."""
        place = self._slots[slot]
        place.future = self._worker.submit(
            self._infer, place, lambda: np.copyto(place.input, tensor, 'same_kind'), confidence
        )

    def _infer(
        self, slot: _Slot, fill: Callable[[], None], confidence: float
    ) -> Completion:
        start = time.perf_counter()
        fill()
        ready = time.perf_counter()
        self._session.run_with_iobinding(slot.binding, self._run_options)
        inferred = time.perf_counter()
        candidates = select_candidates(self._heads, slot.outputs, confidence)
        selected = time.perf_counter()
        tensors = {
            name: slot.outputs[name].astype(np.float32) for name in self._tensors
        }
        return Completion(
            candidates,
            {
                'preprocess': 1e3 * (ready - start),
                'inference': 1e3 * (inferred - ready),
                'select': 1e3 * (selected - inferred),
            },
            tensors,
        )

    def collect(self, slot: int, timeout: float) -> Completion:
        """See Backend.collect."""
        future = self._slots[slot].future
        if future is None:
            raise BackendError(f'slot {slot} holds no frame')
        try:
            completion = future.result(timeout)
        except FutureTimeout:
            raise DeadlineError(
                f'slot {slot} did not come back within {timeout:g} s'
            ) from None
        except Exception as error:
            self._slots[slot].future = None
            raise BackendError(f'inference failed: {error}') from error
        self._slots[slot].future = None
        return completion

    def close(self) -> None:
        """See Backend.close; an inference under way is aborted."""
        if not self._closed:
            self._closed = True
            self._run_options.terminate = True
            self._worker.shutdown(cancel_futures=True)
            self._slots.clear()
            self._session = None


def onnx_tensors(model: Model) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Return the inputs and outputs of a model's ONNX; raise BackendError if it is of no use."""
    assert model.onnx is not None
    session = open_session(model.onnx, 1)
    try:
        return _specs(session, model)
    except ValueError as error:
        raise BackendError(f'{model.onnx}: {error}') from error


def open_session(network: Path | bytes, threads: int) -> Any:
    """Return an onnxruntime session for an ONNX file or its bytes, on the CPU.

    Parameters
    ----------
    network:
        The ONNX.
    threads:
        Of one inference; 0 for one per core.

    Raises
    ------
    BackendError
        If onnxruntime cannot open it.

    """
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    settings.log_severity_level = _ERRORS_ONLY
    # Idle threads that spin would take the cores away from the rest of the robot.
    settings.add_session_config_entry('session.intra_op.allow_spinning', '0')
    try:
        return onnxruntime.InferenceSession(
            network if isinstance(network, bytes) else str(network), settings,
            providers=['CPUExecutionProvider'],
        )
    except Exception as error:
        # onnxruntime's exceptions have no common base but Exception.
        name = 'it' if isinstance(network, bytes) else network
        raise BackendError(f'{name} is no network that onnxruntime can open: {error}') from error


def _specs(
    session: Any, model: Model
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    inputs = tuple(_spec(arg, model, tuple(arg.shape)) for arg in session.get_inputs())
    outputs = tuple(
        _spec(arg, model, four_dimensions(tuple(arg.shape))) for arg in session.get_outputs()
    )
    return inputs, outputs


def _spec(arg: Any, model: Model, shape: tuple[int, ...]) -> TensorSpec:
    if arg.type not in ELEMENT_TYPES:
        raise BackendError(
            f'{model.onnx}: {arg.name!r} is {arg.type}; supported: {", ".join(ELEMENT_TYPES)}'
        )
    if not all(isinstance(n, int) for n in arg.shape):
        raise BackendError(
            f'{model.onnx}: {arg.name!r} has the dynamic shape {arg.shape}; a DLA needs fixed '
            'shapes, so export the network with a fixed batch and size'
        )
    return TensorSpec.of(arg.name, shape, ELEMENT_TYPES[arg.type])
