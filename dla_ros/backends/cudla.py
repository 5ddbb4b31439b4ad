"""A loadable on the DLA, in cuDLA's hybrid mode: everything queued in order on one CUDA stream."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
import itertools
import threading
import time
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dla_ros.backends.base import BackendOptions, Completion
from dla_ros.cuda.calls import cuda
from dla_ros.cuda.dla import (
    core_count,
    cudla_version,
    Descriptor,
    DlaDevice,
    DlaModule,
    Registration,
    Task,
)
from dla_ros.cuda.owners import DeviceBuffer, Event, Owners, PinnedBuffer, PrimaryContext, Stream
from dla_ros.cuda.preprocess import ImagePreprocessor
from dla_ros.cuda.select import Found, Selector
from dla_ros.cuda.unpack import Unpacked, Unpacker
from dla_ros.decoders.heads import Head
from dla_ros.errors import BackendError, DeadlineError, DlaError, Remedy
from dla_ros.geometry import Geometry
from dla_ros.image import ImageView
from dla_ros.model import Model
from dla_ros.tensor import TensorSpec

_DRAIN = 0.5  # Seconds for the stream to become empty when the backend closes.
_POLL = 0.0002  # Seconds between looks at a frame: far below its time, and the core stays free.
_WARM_UP = 10.0  # Seconds for a frame of the warm-up, whose first one may be slow.
_POISONS = (0xFF, 0x55)  # Of every type; no network writes both in the same place.
_STAGES = ('upload', 'preprocess', 'inference', 'select')
_USUAL_IMAGE = 1920 * 1080 * 3  # Bytes that a slot has room for; a larger image makes it grow.
_BLACK = ImageView.from_array(np.zeros((1, 1, 3), np.uint8))


class _Staging:
    """An image's way to the GPU: pinned memory, and a copy of it if the GPU reads its own."""

    def __init__(self, *, mapped: bool) -> None:
        self._mapped = mapped
        self._buffers = Owners()
        try:
            self._allocate(_USUAL_IMAGE)
        except BaseException:
            self._buffers.close()
            raise

    def _allocate(self, size: int) -> None:
        self.size = size
        self._host = self._buffers.hold(PinnedBuffer(size))
        self._device = None if self._mapped else self._buffers.hold(DeviceBuffer(size))
        self._address = self._device.address if self._device else self._host.device_address

    def pinned(self, size: int) -> PinnedBuffer:
        """Return the pinned memory, with room for at least so many bytes."""
        if size > self.size:
            self._buffers.close()
            self._allocate(size)
        return self._host

    def put(self, data: npt.NDArray[np.uint8], stream: Stream) -> int:
        """Take an image's bytes and return where the GPU finds them; queue the copy, if any."""
        self.pinned(data.size).array[: data.size] = data
        if self._device is not None:
            self._device.upload(self._host, stream, data.size)
        return self._address

    def close(self) -> None:
        self._buffers.close()


class _Slot:
    """The buffers of one frame, its task and its events; owned by the backend's owners."""

    def __init__(
        self, owners: Owners, device: DlaDevice, module: DlaModule, spec: TensorSpec,
        outputs: Sequence[TensorSpec], *, mapped: bool,
    ) -> None:
        self.staging = owners.hold(_Staging(mapped=mapped))
        self.input = owners.hold(DeviceBuffer(spec.size))
        self.outputs = {o.name: owners.hold(DeviceBuffer(o.size)) for o in outputs}
        self.task = Task(
            module,
            [owners.hold(Registration(device, self.input))],
            [owners.hold(Registration(device, buffer)) for buffer in self.outputs.values()],
        )
        # One before and one after each stage.
        self.events = [owners.hold(Event()) for _ in range(len(_STAGES) + 1)]
        self.found: Found | None = None
        self.unpacked: Unpacked | None = None
        self.occupied = False


class CudlaBackend:
    """Runs frames on one DLA core; see Backend for the contract.

    The thread that submits writes the image into pinned memory; all that follows is queued on the
    stream: the preprocess kernel, the task, the select kernel, the copy back.
    """

    name: ClassVar[str] = 'cudla'

    def __init__(self, model: Model, loadable: bytes, options: BackendOptions) -> None:
        """Acquire everything; `open` is the usual way."""
        self._owners = Owners()
        self._submitting = threading.Lock()
        self._state = threading.Lock()
        self._closed = False
        self._config = model.input
        self._selector: Selector | None = None
        self._unpacker: Unpacker | None = None
        self.inputs: tuple[TensorSpec, ...] = ()
        self.outputs: tuple[TensorSpec, ...] = ()
        self.about: Mapping[str, str] = {}
        self._context: PrimaryContext | None = None
        self._stream: Stream | None = None
        with self._released_on_failure():
            self._acquire(model, loadable, options)

    def _acquire(self, model: Model, loadable: bytes, options: BackendOptions) -> None:
        hold = self._owners.hold
        self._context = hold(PrimaryContext())
        self._stream = hold(Stream())
        self._device = hold(DlaDevice(options.dla_core))
        self._device.set_task_timeout(options.task_timeout)
        module = hold(DlaModule(self._device, loadable))
        self.inputs = _specs(module.inputs, model)
        self.outputs = _specs(module.outputs, model)
        if len(self.inputs) != 1:
            names = ', '.join(spec.name for spec in self.inputs)
            raise BackendError(f'the loadable has {len(self.inputs)} inputs ({names}), not one')
        (spec,) = self.inputs
        try:
            self._preprocessor = hold(
                ImagePreprocessor(model.input, spec, self._context.architecture)
            )
        except ValueError as error:
            raise BackendError(f'{model.loadable or model.name}: {error}') from error
        self._preprocessor.prepare()
        mapped = self._context.integrated
        if options.staging != 'auto':
            mapped = options.staging == 'mapped'
        self._slots = [
            _Slot(self._owners, self._device, module, spec, self.outputs, mapped=mapped)
            for _ in range(options.depth)
        ]
        for slot in self._slots:
            slot.input.fill(0, self._stream)  # The bytes between rows, once.
        self._staging = 'mapped' if mapped else 'copied'
        self.about = self._versions(options)

    def _versions(self, options: BackendOptions) -> dict[str, str]:
        from cuda.bindings import __version__ as bindings

        from dla_ros.emulator import emulator

        context = self._current_context()
        driver = int(cuda('cuDriverGetVersion'))
        return {
            'emulation': str(emulator() or 'none'),
            'DLA core': f'{options.dla_core} of {core_count()}',
            'DLA version': str(self._device.version),
            'cuDLA': cudla_version(),
            'CUDA driver': f'{driver // 1000}.{driver % 1000 // 10}',
            'GPU': f'{context.name} ({context.architecture})',
            'cuda-bindings': bindings,
            'staging': self._staging,
        }

    @classmethod
    def open(cls, model: Model, options: BackendOptions) -> CudlaBackend:
        """Load the model's loadable onto a DLA core; see Backend.open."""
        return cls(model, _loadable(model, emulate=options.emulate), options)

    def read_from(self, heads: Sequence[Head], tensors: Collection[str]) -> None:
        """See Backend.read_from; ends with a warm-up on poisoned outputs."""
        with self._released_on_failure():
            context = self._current_context()
            assert self._stream is not None
            selector = Selector(heads, self.outputs, context.architecture)
            self._selector = self._owners.hold(selector)
            for slot in self._slots:
                slot.found = selector.buffers(self._owners, slot.outputs, self._stream)
            whole = [spec for spec in self.outputs if spec.name in tensors]
            if whole:
                self._unpacker = self._owners.hold(Unpacker(whole, context.architecture))
                for slot in self._slots:
                    slot.unpacked = Unpacked(self._owners, whole)
            self._warm_up(set(tensors).union(*(head.tensors for head in heads)))

    def _current_context(self) -> PrimaryContext:
        """Make the context current in the calling thread."""
        assert self._context is not None
        self._context.make_current()
        return self._context

    def _warm_up(self, finite: set[str]) -> None:
        """Run every slot twice and check that each element of each output is written."""
        for slot in self._slots:
            results = [self._run_poisoned(slot, poison) for poison in _POISONS]
            for spec in self.outputs:
                first, second = (result[spec.name] for result in results)
                _check_written(spec, first, second)
                if spec.name in finite:
                    _check_finite(spec, second)

    def _run_poisoned(self, slot: _Slot, poison: int) -> dict[str, npt.NDArray[np.uint8]]:
        assert self._stream is not None
        for buffer in slot.outputs.values():
            buffer.fill(poison, self._stream)
        geometry = self._config.fit((1, 1), self._network_size)
        self._queue(slot, lambda: self._queue_image(slot, _BLACK, geometry), confidence=1.0)
        if not self._stream.drain(_WARM_UP):
            raise BackendError(
                f'the warm-up did not come back within {_WARM_UP:g} s', Remedy.RESTART
            )
        self._device.check()
        return {name: buffer.read() for name, buffer in slot.outputs.items()}

    def submit(
        self, slot: int, view: ImageView, geometry: Geometry, confidence: float
    ) -> None:
        """See Backend.submit."""
        place = self._slots[slot]
        self._submit(place, lambda: self._queue_image(place, view, geometry), confidence)

    def submit_tensor(
        self, slot: int, tensor: npt.NDArray[np.float32], confidence: float
    ) -> None:
        """See Backend.submit_tensor."""
        place = self._slots[slot]
        self._submit(place, lambda: self._queue_tensor(place, tensor), confidence)

    def _submit(self, slot: _Slot, fill: Callable[[], None], confidence: float) -> None:
        with self._submitting:
            if self._closed:
                raise BackendError('the backend is closed')
            self._current_context()
            self._queue(slot, fill, confidence)
            slot.occupied = True

    @property
    def _network_size(self) -> tuple[int, int]:
        _, _, height, width = self.inputs[0].shape
        return width, height

    def _queue_image(self, slot: _Slot, view: ImageView, geometry: Geometry) -> None:
        """Queue an image's way into the network's input, with the events of its two stages."""
        assert self._stream is not None
        address = slot.staging.put(view.data, self._stream)
        slot.events[1].record(self._stream)
        self._preprocessor.queue(view, address, geometry, slot.input.address, self._stream)
        slot.events[2].record(self._stream)

    def _queue_tensor(self, slot: _Slot, tensor: npt.NDArray[np.float32]) -> None:
        """Queue a tensor's way into the network's input; it needs no preprocessing."""
        assert self._stream is not None
        (spec,) = self.inputs
        host = slot.staging.pinned(spec.size)
        spec.pack(spec.quantize(tensor), host.array[: spec.size])
        slot.input.upload(host, self._stream, spec.size)
        slot.events[1].record(self._stream)
        slot.events[2].record(self._stream)

    def _queue(self, slot: _Slot, fill: Callable[[], None], confidence: float) -> None:
        assert self._selector is not None
        assert slot.found is not None
        assert self._stream is not None
        stream = self._stream
        before, _, _, inferred, done = slot.events
        before.record(stream)
        fill()
        self._device.submit(slot.task, stream)
        inferred.record(stream)
        self._selector.queue(slot.outputs, slot.found, confidence, stream)
        if self._unpacker is not None and slot.unpacked is not None:
            self._unpacker.queue(slot.outputs, slot.unpacked, stream)
        done.record(stream)

    def collect(self, slot: int, timeout: float) -> Completion:
        """See Backend.collect."""
        deadline = time.monotonic() + timeout
        place = self._slots[slot]
        if not place.occupied:
            raise BackendError(f'slot {slot} holds no frame')
        while True:
            # Between looks the lock is free, so that `close` need not wait for a frame.
            with self._state:
                if self._closed:
                    raise BackendError('the backend is closed')
                self._current_context()
                if place.events[-1].done:
                    place.occupied = False
                    return self._completion(place)
            if time.monotonic() >= deadline:
                raise DeadlineError(
                    f'slot {slot} did not come back from the DLA within {timeout:g} s',
                    Remedy.REOPEN,
                )
            time.sleep(_POLL)

    def _completion(self, slot: _Slot) -> Completion:
        assert self._selector is not None
        assert slot.found is not None
        self._device.check()
        times = [end.since(start) for start, end in itertools.pairwise(slot.events)]
        tensors = {}
        if self._unpacker is not None and slot.unpacked is not None:
            tensors = self._unpacker.arrays(slot.unpacked)
        return Completion(
            self._selector.candidates(slot.found),
            dict(zip(_STAGES, times, strict=True)),
            tensors,
        )

    def close(self) -> None:
        """See Backend.close."""
        # A call that hangs in the driver holds this lock.
        if not self._submitting.acquire(timeout=_DRAIN):
            raise BackendError(
                f'a call of cuDLA has not come back for {_DRAIN:g} s', Remedy.RESTART
            )
        try:
            self._release()
        finally:
            self._submitting.release()

    def _release(self) -> None:
        with self._state:
            self._closed = True
        first: BackendError | None = None
        try:
            drained = self._drain()
        except DlaError as error:
            # The stream has ended with an error, so nothing is under way.
            drained, first = True, error
        if not drained:
            # To release what the DLA still works on can crash the process.
            raise BackendError(
                f'the DLA is still at work after {_DRAIN:g} s; nothing was released',
                Remedy.RESTART,
            )
        try:
            self._owners.close()
        except BackendError as error:
            first = first or error
        if first is not None:
            raise first

    def _drain(self) -> bool:
        if self._context is None or self._context.closed:
            return True
        self._context.make_current()
        return self._stream is None or self._stream.drain(_DRAIN)

    @contextmanager
    def _released_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            try:
                self._release()
            except BackendError as second:
                if second.remedy is Remedy.RESTART:
                    raise BackendError(f'{error}; then {second}', second.remedy) from error
            raise


def _loadable(model: Model, *, emulate: bool) -> bytes:
    """Return the model's loadable; with `emulate`, load the emulator and return one for it."""
    from dla_ros.emulator import emulator, load
    from dla_ros.emulator.loadable import build_loadable, is_emulated

    data = model.loadable.read_bytes() if model.loadable else b''
    if emulate:
        load()
        return data if is_emulated(data) else build_loadable(model)
    if emulator() is not None:
        raise BackendError(
            'the DLA emulator is loaded in this process, so a real DLA cannot be used; set '
            'emulate:=true or use another process'
        )
    if model.loadable is None:
        raise BackendError(
            f'model {model.name!r} names no DLA loadable (key loadable): build one with trtexec '
            '--buildDLAStandalone, or set emulate:=true to emulate the DLA with its ONNX'
        )
    if is_emulated(data):
        raise BackendError(
            f'{model.loadable} is an emulated loadable, which no DLA can run: set emulate:=true, '
            'or build a real one with trtexec --buildDLAStandalone'
        )
    return data


def _specs(descriptors: Sequence[Descriptor], model: Model) -> tuple[TensorSpec, ...]:
    return tuple(descriptor.spec(model.scales) for descriptor in descriptors)


def _check_written(
    spec: TensorSpec, first: npt.NDArray[np.uint8], second: npt.NDArray[np.uint8]
) -> None:
    left = np.ones(spec.shape, bool)
    for result, poison in zip((first, second), _POISONS, strict=True):
        # As bytes: the poison is no number of every type.
        elements = np.ascontiguousarray(spec.unpack(result))
        octets = elements.view(np.uint8).reshape(*spec.shape, spec.dtype.itemsize)
        left &= (octets == poison).all(-1)
    if left.any():
        place = tuple(int(i) for i in np.argwhere(left)[0])
        raise BackendError(
            f'output {spec.name!r}: the DLA left {int(left.sum())} of {left.size} elements '
            f'unwritten, the first at {place}; the loadable does not fit its descriptors'
        )


def _check_finite(spec: TensorSpec, result: npt.NDArray[np.uint8]) -> None:
    values = spec.unpack(result)
    bad = ~np.isfinite(values)
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        raise BackendError(
            f'output {spec.name!r}: {int(bad.sum())} of {bad.size} elements are not finite for a '
            f'black image, the first, {values[place]}, at {place}; float16 overflow in the '
            'network?'
        )
