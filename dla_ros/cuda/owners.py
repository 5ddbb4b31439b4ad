"""Owners of CUDA resources: each holds one handle and releases it once, by the matching call.

Every constructor and method may raise DlaError. All but PrimaryContext need a current context.
"""

from __future__ import annotations

from collections.abc import Sequence
import ctypes
import time
from types import TracebackType
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from dla_ros.cuda.calls import cuda, cuda_ready

_NON_BLOCKING = 1
_PORTABLE, _MAPPED = 1, 2
_INTEGRATED, _MAJOR, _MINOR = 18, 75, 76
_POLL = 0.0002  # Seconds between looks at a stream.


class Closable(Protocol):
    """What has a `close`."""

    def close(self) -> None:
        """Release what is held; safe to call twice."""


Held = TypeVar('Held', bound=Closable)


class Owners:
    """Owners in order of acquisition, released in reverse."""

    def __init__(self) -> None:
        self._held: list[Closable] = []

    def hold(self, owner: Held) -> Held:
        """Take over an owner and return it."""
        self._held.append(owner)
        return owner

    def close(self) -> None:
        """Release everything, whatever fails; then raise the first error."""
        first: Exception | None = None
        while self._held:
            try:
                self._held.pop().close()
            except Exception as error:
                first = first or error
        if first is not None:
            raise first


class Owner:
    """One handle; `close` and the end of a `with` release it."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    @property
    def handle(self) -> Any:
        """The handle; raise ValueError after `close`."""
        if self._handle is None:
            raise ValueError(f'{type(self).__name__} is closed')
        return self._handle

    @property
    def closed(self) -> bool:
        """Whether the handle has been released."""
        return self._handle is None

    def close(self) -> None:
        """Release the handle; safe to call twice."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._release(handle)

    def _release(self, handle: Any) -> None:
        raise NotImplementedError

    def __enter__(self: Held) -> Held:
        """Return self."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()


class PrimaryContext(Owner):
    """The primary context of GPU 0, retained and current in the thread that makes it."""

    def __init__(self) -> None:
        cuda('cuInit', 0)
        self._device = cuda('cuDeviceGet', 0)
        super().__init__(cuda('cuDevicePrimaryCtxRetain', self._device))
        try:
            self.make_current()
        except BaseException:
            self.close()
            raise

    def make_current(self) -> None:
        """Make the context current in the calling thread."""
        cuda('cuCtxSetCurrent', self.handle)

    @property
    def integrated(self) -> bool:
        """Whether the GPU shares the host's memory."""
        return bool(cuda('cuDeviceGetAttribute', _attribute(_INTEGRATED), self._device))

    @property
    def architecture(self) -> str:
        """The GPU's architecture as compilers name it, such as sm_87."""
        major, minor = (
            cuda('cuDeviceGetAttribute', _attribute(number), self._device)
            for number in (_MAJOR, _MINOR)
        )
        return f'sm_{major}{minor}'

    @property
    def name(self) -> str:
        """The GPU's name."""
        return str(cuda('cuDeviceGetName', 128, self._device).split(b'\0')[0].decode())

    def _release(self, handle: Any) -> None:
        cuda('cuDevicePrimaryCtxRelease', self._device)


def _attribute(number: int) -> Any:
    from cuda.bindings import driver

    return driver.CUdevice_attribute(number)


class Stream(Owner):
    """A stream that does not wait for the default stream."""

    def __init__(self) -> None:
        super().__init__(cuda('cuStreamCreate', _NON_BLOCKING))

    def drain(self, timeout: float) -> bool:
        """Wait until nothing is queued, at most `timeout` seconds; return whether it is so."""
        # cuStreamSynchronize has no deadline, and the DLA's firmware can hang.
        deadline = time.monotonic() + timeout
        while not cuda_ready('cuStreamQuery', self.handle):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL)
        return True

    def _release(self, handle: Any) -> None:
        cuda('cuStreamDestroy', handle)


class Event(Owner):
    """A point in a stream, with its time."""

    def __init__(self) -> None:
        super().__init__(cuda('cuEventCreate', 0))

    def record(self, stream: Stream) -> None:
        """Mark the work that is queued in the stream by now."""
        cuda('cuEventRecord', self.handle, stream.handle)

    @property
    def done(self) -> bool:
        """Whether the marked work is done."""
        return cuda_ready('cuEventQuery', self.handle)

    def since(self, start: Event) -> float:
        """Return the milliseconds between two events that are done."""
        return float(cuda('cuEventElapsedTime', start.handle, self.handle))

    def _release(self, handle: Any) -> None:
        cuda('cuEventDestroy', handle)


class PinnedBuffer(Owner):
    """Page-locked host memory that the device can reach too.

    Attributes
    ----------
    array:
        uint8 [size], the memory; must not be used after `close`.

    """

    def __init__(self, size: int) -> None:
        super().__init__(int(cuda('cuMemHostAlloc', size, _PORTABLE | _MAPPED)))
        self.size = size
        memory = (ctypes.c_uint8 * size).from_address(self.handle)
        self.array: npt.NDArray[np.uint8] = np.frombuffer(memory, np.uint8)

    @property
    def device_address(self) -> int:
        """Where the device finds the memory, to read and write it without a copy."""
        return int(cuda('cuMemHostGetDevicePointer', self.handle, 0))

    def _release(self, handle: Any) -> None:
        self.array = np.empty(0, np.uint8)
        cuda('cuMemFreeHost', handle)


class DeviceBuffer(Owner):
    """Plain device memory, as the DLA wants it."""

    def __init__(self, size: int) -> None:
        super().__init__(cuda('cuMemAlloc', size))
        self.size = size

    @property
    def address(self) -> int:
        """The device address."""
        return int(self.handle)

    def upload(self, source: PinnedBuffer, stream: Stream, size: int | None = None) -> None:
        """Queue a copy of the first `size` bytes (all by default) from the host.

        `source` must not change until it is done.
        """
        count = self.size if size is None else size
        cuda('cuMemcpyHtoDAsync', self.handle, source.handle, count, stream.handle)

    def download(self, target: PinnedBuffer, stream: Stream, size: int | None = None) -> None:
        """Queue a copy of the first `size` bytes (all by default) to the host.

        `target` is valid when it is done.
        """
        count = self.size if size is None else size
        cuda('cuMemcpyDtoHAsync', target.handle, self.handle, count, stream.handle)

    def fill(self, value: int, stream: Stream, size: int | None = None) -> None:
        """Queue the filling of the first `size` bytes (all by default) with a byte."""
        count = self.size if size is None else size
        cuda('cuMemsetD8Async', self.handle, value, count, stream.handle)

    def read(self, size: int | None = None) -> npt.NDArray[np.uint8]:
        """Return a copy of the first `size` bytes (all by default), uint8 [size].

        The device's work must be done.
        """
        target = np.empty(self.size if size is None else size, np.uint8)
        cuda('cuMemcpyDtoH', target.ctypes.data, self.handle, target.size)
        return target

    def _release(self, handle: Any) -> None:
        cuda('cuMemFree', handle)


class Module(Owner):
    """Compiled kernels, loaded; see compile.py for the image."""

    def __init__(self, image: bytes) -> None:
        super().__init__(cuda('cuModuleLoadData', image))

    def kernel(self, name: str, types: Sequence[Any]) -> Kernel:
        """Return a kernel, with the ctypes of its parameters; it lives as long as the module."""
        return Kernel(cuda('cuModuleGetFunction', self.handle, name.encode()), tuple(types))

    def _release(self, handle: Any) -> None:
        cuda('cuModuleUnload', handle)


class Kernel:
    """A function of a module."""

    def __init__(self, function: Any, types: tuple[Any, ...]) -> None:
        self._function = function
        self._types = types

    def launch(
        self,
        threads: tuple[int, int],
        stream: Stream,
        *values: Any,
        block: tuple[int, int] = (128, 1),
    ) -> None:
        """Queue the kernel with at least so many threads across and down, in blocks."""
        grid = (-(-count // size) for count, size in zip(threads, block, strict=True))
        cuda(
            'cuLaunchKernel', self._function, *grid, 1, *block, 1, 0, stream.handle,
            (values, self._types), 0,
        )
