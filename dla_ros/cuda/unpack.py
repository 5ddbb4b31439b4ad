"""The unpack kernel: output tensors as plain float32 arrays on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import ctypes

import numpy as np
import numpy.typing as npt

from dla_ros.cuda.compile import compile_kernel
from dla_ros.cuda.owners import DeviceBuffer, Kernel, Module, Owners, PinnedBuffer, Stream
from dla_ros.tensor import ELEMENT_CODES, TensorSpec

_INT, _POINTER = ctypes.c_int, ctypes.c_void_p
_TYPES = (_POINTER, _POINTER, *[_INT] * 9, ctypes.c_float)


class Unpacked:
    """Room for the float32 arrays of one frame: on the device and on the host."""

    def __init__(self, owners: Owners, specs: Sequence[TensorSpec]) -> None:
        self.device, self.host = {}, {}
        for spec in specs:
            size = 4 * int(np.prod(spec.shape))
            self.device[spec.name] = owners.hold(DeviceBuffer(size))
            self.host[spec.name] = owners.hold(PinnedBuffer(size))


class Unpacker:
    """The kernels for a network's outputs; it owns their modules."""

    def __init__(self, specs: Sequence[TensorSpec], architecture: str) -> None:
        """Compile and load; raise BackendError if that fails."""
        self.specs = tuple(specs)
        self._modules = Owners()
        self._kernels: dict[int, Kernel] = {}
        try:
            for element in sorted({ELEMENT_CODES[spec.dtype.name] for spec in specs}):
                image = compile_kernel('unpack', architecture, [f'ELEMENT={element}'])
                module = self._modules.hold(Module(image))
                self._kernels[element] = module.kernel('unpack', _TYPES)
        except BaseException:
            self._modules.close()
            raise

    def queue(
        self, tensors: Mapping[str, DeviceBuffer], unpacked: Unpacked, stream: Stream
    ) -> None:
        """Queue the unpacking of `tensors` and the copies to the host."""
        for spec in self.specs:
            batch, group, line, pixel, item = spec.strides
            target = unpacked.device[spec.name]
            self._kernels[ELEMENT_CODES[spec.dtype.name]].launch(
                (int(np.prod(spec.shape)), 1), stream,
                tensors[spec.name].address, target.address, *spec.shape, spec.lanes,
                batch // item, group // item, line // item, pixel // item, spec.scale,
            )
            target.download(unpacked.host[spec.name], stream)

    def arrays(self, unpacked: Unpacked) -> dict[str, npt.NDArray[np.float32]]:
        """Return copies by name, float32 [n, c, h, w]."""
        return {
            spec.name: unpacked.host[spec.name].array.view(np.float32).reshape(spec.shape).copy()
            for spec in self.specs
        }

    def close(self) -> None:
        """Unload the kernels; safe to call twice."""
        self._modules.close()
