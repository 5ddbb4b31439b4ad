"""Owners of cuDLA resources: device, loadable, registrations; and what descriptors say.

Every constructor and method may raise DlaError. They need a current context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dla_ros.cuda.calls import cudla, cudla_error
from dla_ros.cuda.owners import DeviceBuffer, Owner, Stream
from dla_ros.errors import BackendError
from dla_ros.tensor import LAYOUTS, TensorSpec

_HYBRID = 0
_DEVICE_VERSION = 1
_INPUTS, _OUTPUTS = 2, 3
_DATA_TYPES = {'float32': 1, 'float16': 2, 'int8': 4, 'uint8': 5}


@dataclass(frozen=True)
class Descriptor:
    """What cuDLA says of a tensor, as plain numbers; sizes and strides in bytes.

    The numbers mean what cudla.h says: data_format 1 NCHW, 2 NHWC, 3 NCxHWx; data_type 1 float,
    2 half, 4 int8, 5 uint8.
    """

    name: str
    shape: tuple[int, int, int, int]
    size: int
    data_format: int
    data_type: int
    data_category: int
    pixel_format: int
    strides: tuple[int, ...]

    @classmethod
    def of(cls, native: Any) -> Descriptor:
        """Copy a descriptor of the binding, whose strides die with it."""
        return cls(
            name=native.name if isinstance(native.name, str) else native.name.decode(),
            shape=(int(native.n), int(native.c), int(native.h), int(native.w)),
            size=int(native.size_),
            data_format=int(native.data_format),
            data_type=int(native.data_type),
            data_category=int(native.data_category),
            pixel_format=int(native.pixel_format),
            strides=tuple(int(stride) for stride in native.stride),
        )

    @classmethod
    def expected(cls, spec: TensorSpec) -> Descriptor:
        """Return what cuDLA says of a tensor by the table of layouts."""
        return cls(
            name=spec.name,
            shape=spec.shape,
            size=spec.size,
            data_format=spec.layout.data_format,
            data_type=_DATA_TYPES[spec.dtype.name],
            data_category=spec.layout.data_category,
            pixel_format=spec.layout.pixel_format.get(spec.dtype.name, 0),
            strides=(*spec.descriptor_strides, 0, 0, 0, 0, 0),
        )

    def spec(self, scales: Mapping[str, float]) -> TensorSpec:
        """Return the tensor's spec; TensorRT's apostrophe is taken off its name.

        Parameters
        ----------
        scales:
            Of the int8 tensors by name; loadables do not have them.

        Raises
        ------
        BackendError
            If no layout is like this, or its strides or size are not the layout's; in words that
            give both.

        """
        name = self.name.rstrip("'")
        types = {number: dtype for dtype, number in _DATA_TYPES.items()}
        dtype = types.get(self.data_type, f'type {self.data_type}')
        rows = [
            row for row in LAYOUTS.values()
            if row.data_format == self.data_format and dtype in row.dtypes
        ]
        if not rows or not self.data_format:
            raise BackendError(
                f'tensor {name!r}: the loadable says format {self.data_format} with {dtype}; '
                f'no layout is like that ({", ".join(LAYOUTS)})'
            )
        scale = scales.get(name) if dtype == 'int8' else 1.0
        if scale is None:
            raise BackendError(
                f'tensor {name!r} is int8, and loadables do not hold scales: add its scale to '
                f'model.yaml (scales: {{{name}: ...}})'
            )
        try:
            spec = TensorSpec.of(name, self.shape, dtype, rows[0].name, scale=scale)
        except ValueError as error:
            raise BackendError(str(error)) from error
        strides = self.strides[:3]
        if strides != spec.descriptor_strides or self.size != spec.size:
            raise BackendError(
                f'tensor {name!r}: the loadable says strides {strides} and {self.size} bytes, but '
                f'{spec.layout.name} has strides {spec.descriptor_strides} and {spec.size} bytes'
            )
        return spec


class DlaDevice(Owner):
    """A handle of one DLA core, in hybrid mode."""

    def __init__(self, core: int) -> None:
        super().__init__(int(cudla('create_device', core, _HYBRID)))

    def set_task_timeout(self, seconds: float) -> None:
        """Set how long one task may take on the DLA, 0.001 to 1000 s."""
        cudla('set_task_timeout_in_ms', self.handle, max(round(1e3 * seconds), 1))

    @property
    def version(self) -> int:
        """The DLA's hardware version."""
        found = cudla('device_get_attribute', self.handle, _DEVICE_VERSION)
        return int(getattr(found, 'device_version', found))

    def check(self) -> None:
        """Raise what the most recent tasks left behind, if they failed."""
        status = int(cudla('get_last_error', self.handle))
        if status:
            raise cudla_error('cudlaGetLastError', status)

    def submit(self, task: Task, stream: Stream) -> None:
        """Queue a task in the stream."""
        cudla('submit_task', self.handle, task.address, 1, int(stream.handle), 0)

    def _release(self, handle: Any) -> None:
        cudla('destroy_device', handle)


class DlaModule(Owner):
    """A loadable on a device; a device takes one."""

    def __init__(self, device: DlaDevice, loadable: bytes) -> None:
        handle = cudla('module_load_from_memory', device.handle, loadable, len(loadable), 0)
        super().__init__(int(handle))

    @property
    def inputs(self) -> tuple[Descriptor, ...]:
        """The input tensors, in the order that tasks want."""
        return self._descriptors(_INPUTS)

    @property
    def outputs(self) -> tuple[Descriptor, ...]:
        """The output tensors, in the order that tasks want."""
        return self._descriptors(_OUTPUTS)

    def _descriptors(self, kind: int) -> tuple[Descriptor, ...]:
        found = cudla('module_get_attributes', self.handle, kind)
        return tuple(Descriptor.of(native) for native in found)

    def _release(self, handle: Any) -> None:
        cudla('module_unload', handle, 0)


class Registration(Owner):
    """Device memory that the DLA may use; `handle` is the pointer that tasks want."""

    def __init__(self, device: DlaDevice, buffer: DeviceBuffer) -> None:
        self._device = device
        pointer = cudla('mem_register', device.handle, buffer.address, buffer.size, 0)
        super().__init__(int(pointer))

    def _release(self, handle: Any) -> None:
        cudla('mem_unregister', self._device.handle, handle)


class Task:
    """One inference, built once and submitted many times; it keeps its pointer arrays alive."""

    def __init__(
        self,
        module: DlaModule,
        inputs: Sequence[Registration],
        outputs: Sequence[Registration],
    ) -> None:
        from cuda.bindings import cudla as binding

        self._native = binding.Task()
        self._native.module_handle = module.handle
        self._native.input_tensor = [registration.handle for registration in inputs]
        self._native.output_tensor = [registration.handle for registration in outputs]

    @property
    def address(self) -> int:
        """Where the task's structure is."""
        return int(self._native.ptr)


def cudla_version() -> str:
    """Return the version of libcudla, such as 1.5.0."""
    number = int(cudla('get_version'))
    return f'{number // 1000000}.{number // 1000 % 1000}.{number % 1000}'


def core_count() -> int:
    """Return how many DLA cores there are."""
    return int(cudla('device_get_count'))
