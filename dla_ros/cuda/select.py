"""The select kernel: candidates straight from output tensors on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import ctypes
from types import MappingProxyType
from typing import Any

import numpy as np

from dla_ros.cuda.compile import compile_kernel
from dla_ros.cuda.owners import DeviceBuffer, Kernel, Module, Owners, PinnedBuffer, Stream
from dla_ros.decoders.heads import Candidates, Head, Span
from dla_ros.tensor import ELEMENT_CODES, TensorSpec

# The structures of select.cu.
_SOURCE = np.dtype([
    ('data', '<u8'), ('element', '<i4'), ('lanes', '<i4'), ('axis', '<i4'),
    ('strides', '<i4', 3), ('first', '<i4'), ('step', '<i4'), ('count', '<i4'), ('bins', '<i4'),
    ('scale', '<f4'), ('unused', '<i4'),
])
_START = 32
_USUAL = 1024  # Candidates that are copied to the host with each frame; more are fetched.
_INT, _FLOAT, _POINTER = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
_TYPES = (_POINTER, _POINTER, _POINTER, *[_INT] * 10, *[_FLOAT] * 6)
_ACTIVATIONS = MappingProxyType({'none': 0, 'sigmoid': 1, 'softmax': 2})


class Found:
    """Where one frame's candidates go, and where the kernel reads them from."""

    def __init__(
        self, owners: Owners, size: int, usual: int, sources: Sequence[DeviceBuffer]
    ) -> None:
        self.device = owners.hold(DeviceBuffer(size))
        self.host = owners.hold(PinnedBuffer(usual))
        self.sources = tuple(sources)


class Selector:
    """The kernels for a network's heads; it owns their modules."""

    def __init__(
        self, heads: Sequence[Head], outputs: Sequence[TensorSpec], architecture: str
    ) -> None:
        """Compile and load.

        Raises
        ------
        ValueError
            If the heads do not have the same number of values.
        BackendError
            If the kernels cannot be compiled or loaded.

        """
        self.heads = tuple(heads)
        self._specs = {spec.name: spec for spec in outputs}
        self._grids = [head.scores.cells(self._specs[head.scores.tensor].shape) for head in heads]
        widths = {head.width for head in heads} or {0}
        if len(widths) > 1:
            raise ValueError(f'the heads have different numbers of values: {sorted(widths)}')
        (self._width,) = widths
        self._candidate = np.dtype([
            ('head', '<i4'), ('index', '<i4'), ('class_id', '<i4'), ('score', '<f4'),
            ('values', '<f4', (self._width,)),
        ])
        self.capacity = sum(
            self._threads(i) * (head.scores.count if head.multi_label else 1)
            for i, head in enumerate(heads)
        )
        self._modules = Owners()
        kernels: dict[tuple[str, ...], Kernel] = {}
        self._kernels = []
        try:
            for head in self.heads:
                macros = definitions(head, self._specs[head.scores.tensor])
                if macros not in kernels:
                    image = compile_kernel('select', architecture, macros)
                    module = self._modules.hold(Module(image))
                    kernels[macros] = module.kernel('select_candidates', _TYPES)
                self._kernels.append(kernels[macros])
        except BaseException:
            self._modules.close()
            raise

    def buffers(
        self, owners: Owners, tensors: Mapping[str, DeviceBuffer], stream: Stream
    ) -> Found:
        """Return what the kernels write to, with room for all, and read `tensors` through."""
        sources = [self._upload_sources(owners, head, tensors, stream) for head in self.heads]
        usual = min(self.capacity, _USUAL)
        return Found(owners, self._size(self.capacity), self._size(usual), sources)

    def _upload_sources(
        self, owners: Owners, head: Head, tensors: Mapping[str, DeviceBuffer], stream: Stream
    ) -> DeviceBuffer:
        spans = _spans(head)
        rows = np.array(
            [self._source(span, tensors[span.tensor].address) for span in spans], _SOURCE
        )
        device = owners.hold(DeviceBuffer(rows.nbytes))
        host = owners.hold(PinnedBuffer(rows.nbytes))
        host.array[:] = rows.view(np.uint8)
        device.upload(host, stream)
        return device

    def _source(self, span: Span, address: int) -> tuple[Any, ...]:
        spec = self._specs[span.tensor]
        return (
            address, ELEMENT_CODES[spec.dtype.name], spec.lanes, span.axis, _strides(spec),
            span.first, span.step, span.count, span.bins, spec.scale, 0,
        )

    def queue(
        self, tensors: Mapping[str, DeviceBuffer], found: Found, confidence: float, stream: Stream
    ) -> None:
        """Queue the selection from `tensors` and the copy of what it finds to the host."""
        found.device.fill(0, stream, _START)
        for i, head in enumerate(self.heads):
            scores, spec = head.scores, self._specs[head.scores.tensor]
            self._kernels[i].launch(
                (self._threads(i), 1), stream,
                tensors[scores.tensor].address, found.device.address, found.sources[i].address,
                len(_spans(head)), i, head.anchors, *self._grids[i], scores.first, scores.step,
                *_strides(spec), spec.scale, *head.least(confidence), confidence, *head.powers,
            )
        found.device.download(found.host, stream, found.host.size)

    def candidates(self, found: Found) -> Candidates:
        """Read what was found, all of it, in the order of select_candidates.

        The copy to the host must be done.
        """
        count, not_finite = map(int, found.host.array[:8].view('<i4'))
        size = self._size(count)
        data = found.host.array if size <= found.host.size else found.device.read(size)
        rows: Any = data[_START:size].view(self._candidate)
        rows = rows[np.lexsort((rows['class_id'], rows['index'], rows['head']))]
        grids = np.array(self._grids or [(1, 1)], np.int32)[rows['head']]
        rest, column = np.divmod(rows['index'], grids[:, 1])
        anchor, row = np.divmod(rest, grids[:, 0])
        return Candidates(
            rows['head'].copy(), anchor, row, column, rows['class_id'].copy(),
            rows['score'].copy(), rows['values'].copy(), not_finite,
        )

    def close(self) -> None:
        """Unload the kernels; safe to call twice."""
        self._modules.close()

    def _size(self, candidates: int) -> int:
        return _START + candidates * self._candidate.itemsize

    def _threads(self, head: int) -> int:
        rows, columns = self._grids[head]
        return self.heads[head].anchors * rows * columns


def definitions(head: Head, spec: TensorSpec) -> tuple[str, ...]:
    """Return the macros that make the kernel for a head whose scores are in a tensor."""
    return (
        f'ELEMENT={ELEMENT_CODES[spec.dtype.name]}', f'LANES={spec.lanes}',
        f'AXIS={head.scores.axis}', f'CLASSES={head.scores.count}',
        f'BACKGROUND={int(head.background)}', f'ACTIVATION={_ACTIVATIONS[head.activation]}',
        f'OBJECTNESS={int(head.objectness is not None)}',
        f'POWERS={int(head.powers != (1.0, 1.0))}', f'PEAK={int(head.peak)}',
        f'MULTI_LABEL={int(head.multi_label)}', f'VALUES={head.width}',
    )


def _spans(head: Head) -> tuple[Span, ...]:
    """Return what the kernel reads beside class scores, the objectness first."""
    return (*([head.objectness] if head.objectness else []), *head.values)


def _strides(spec: TensorSpec) -> tuple[int, int, int]:
    """Return the elements from one channel group, row and pixel to the next."""
    group, line, pixel = (stride // spec.dtype.itemsize for stride in spec.strides[1:4])
    return group, line, pixel
