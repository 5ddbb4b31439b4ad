"""The select kernel: candidates straight from output tensors on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from dla_ros.cuda.compile import compile_kernel
from dla_ros.cuda.owners import DeviceBuffer, Kernel, Module, Owners, PinnedBuffer, Stream
from dla_ros.decoders.base import Candidates, Head, logit
from dla_ros.tensor import ELEMENT_CODES, TensorSpec

# The structures of select.cu.
_CANDIDATE = np.dtype([
    ('head', '<i4'), ('index', '<i4'), ('class_id', '<i4'), ('score', '<f4'), ('box', '<f4', 4),
])
_START = 32
_INT, _FLOAT, _POINTER = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
_TYPES = (_POINTER, _POINTER, *[_INT] * 9, _FLOAT, _INT, _FLOAT, _FLOAT)


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
        self._kernels: dict[int, Kernel] = {}
        try:
            for element in sorted({ELEMENT_CODES[spec.dtype.name] for spec in self._specs}):
                image = compile_kernel('select', architecture, [f'ELEMENT={element}'])
                module = self._modules.hold(Module(image))
                self._kernels[element] = module.kernel('select_candidates', _TYPES)
        except BaseException:
            self._modules.close()
            raise

    def buffers(self, owners: Owners) -> tuple[DeviceBuffer, PinnedBuffer]:
        """Return what the kernel writes to and its copy on the host, room for all cells."""
        size = _START + self.capacity * _CANDIDATE.itemsize
        return owners.hold(DeviceBuffer(size)), owners.hold(PinnedBuffer(size))

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
            self._kernels[ELEMENT_CODES[spec.dtype.name]].launch(
                (_cells(head, spec), 1), stream,
                tensors[head.tensor].address, found.address, i, head.anchors, head.classes, h, w,
                spec.lanes, group, line, pixel, spec.scale, int(head.sigmoid),
                logit(confidence) if head.sigmoid else confidence, confidence,
            )
        found.download(host, stream)

    def candidates(self, found: npt.NDArray[np.uint8]) -> Candidates:
        """Read what was found, in the order of select_candidates."""
        count = int(found[:4].view('<i4')[0])
        rows: Any = found[_START:].view(_CANDIDATE)[:count]
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


def _cells(head: Head, spec: TensorSpec) -> int:
    return head.anchors * spec.shape[2] * spec.shape[3]
