"""The select kernel: candidates straight from output tensors on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import ctypes
from typing import Any

import numpy as np

from dla_ros.cuda.compile import compile_kernel
from dla_ros.cuda.owners import DeviceBuffer, Kernel, Module, Owners, PinnedBuffer, Stream
from dla_ros.decoders.base import Candidates, Head, logit
from dla_ros.tensor import ELEMENT_CODES, TensorSpec

# The structures of select.cu.
_CANDIDATE = np.dtype([
    ('head', '<i4'), ('index', '<i4'), ('class_id', '<i4'), ('score', '<f4'), ('box', '<f4', 4),
])
_START = 32
_USUAL = 1024  # Candidates that are copied to the host with each frame; more are fetched.
_INT, _FLOAT, _POINTER = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
_TYPES = (_POINTER, _POINTER, *[_INT] * 7, *[_FLOAT] * 3)


class Selector:
    """The kernels for a network's heads; it owns their modules."""

    def __init__(
        self, heads: Sequence[Head], outputs: Sequence[TensorSpec], architecture: str
    ) -> None:
        """Compile and load; raise BackendError if that fails."""
        self.heads = tuple(heads)
        specs = {spec.name: spec for spec in outputs}
        self._specs = [specs[head.tensor] for head in heads]
        self.capacity = sum(_cells(h, s) for h, s in zip(self.heads, self._specs, strict=True))
        self._modules = Owners()
        kernels: dict[tuple[str, ...], Kernel] = {}
        self._kernels = []
        try:
            for head, spec in zip(self.heads, self._specs, strict=True):
                macros = definitions(head, spec)
                if macros not in kernels:
                    image = compile_kernel('select', architecture, macros)
                    module = self._modules.hold(Module(image))
                    kernels[macros] = module.kernel('select_candidates', _TYPES)
                self._kernels.append(kernels[macros])
        except BaseException:
            self._modules.close()
            raise

    def buffers(self, owners: Owners) -> tuple[DeviceBuffer, PinnedBuffer]:
        """Return what the kernel writes to, with room for all cells, and the host's copy."""
        on_device = owners.hold(DeviceBuffer(_size(self.capacity)))
        return on_device, owners.hold(PinnedBuffer(_size(min(self.capacity, _USUAL))))

    def queue(
        self,
        tensors: Mapping[str, DeviceBuffer],
        found: DeviceBuffer,
        host: PinnedBuffer,
        confidence: float,
        stream: Stream,
    ) -> None:
        """Queue the selection from `tensors` and the copy of what it finds to the host."""
        found.fill(0, stream, _START)
        for i, (head, spec) in enumerate(zip(self.heads, self._specs, strict=True)):
            h, w = spec.shape[2:]
            group, line, pixel = (stride // spec.dtype.itemsize for stride in spec.strides[1:4])
            self._kernels[i].launch(
                (_cells(head, spec), 1), stream,
                tensors[head.tensor].address, found.address, i, head.anchors, h, w,
                group, line, pixel, spec.scale,
                logit(confidence) if head.sigmoid else confidence, confidence,
            )
        found.download(host, stream, host.size)

    def candidates(self, found: DeviceBuffer, host: PinnedBuffer) -> Candidates:
        """Read what was found, all of it, in the order of select_candidates.

        The copy to the host must be done.
        """
        count = int(host.array[:4].view('<i4')[0])
        data = host.array if _size(count) <= host.size else found.read(_size(count))
        rows: Any = data[_START:_size(count)].view(_CANDIDATE)
        rows = rows[np.lexsort((rows['index'], rows['head']))]
        cells = np.array([spec.shape[2:] for spec in self._specs], np.int32)[rows['head']]
        rest, column = np.divmod(rows['index'], cells[:, 1])
        anchor, row = np.divmod(rest, cells[:, 0])
        return Candidates(
            rows['head'].copy(), anchor, row, column, rows['class_id'].copy(),
            rows['score'].copy(), rows['box'].copy(),
        )

    def close(self) -> None:
        """Unload the kernels; safe to call twice."""
        self._modules.close()


def _size(candidates: int) -> int:
    return _START + candidates * _CANDIDATE.itemsize


def definitions(head: Head, spec: TensorSpec) -> tuple[str, ...]:
    """Return the macros that make the kernel for a head."""
    return (
        f'ELEMENT={ELEMENT_CODES[spec.dtype.name]}', f'LANES={spec.lanes}',
        f'CLASSES={head.classes}', f'OBJECTNESS={int(head.objectness)}',
        f'LOGITS={int(head.sigmoid)}',
    )


def _cells(head: Head, spec: TensorSpec) -> int:
    return head.anchors * spec.shape[2] * spec.shape[3]
