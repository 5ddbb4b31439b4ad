"""Tensors as accelerators store them: shape, element type, layout, strides; pack and unpack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, get_args, Literal

import numpy as np
import numpy.typing as npt

LayoutName = Literal['nchw', 'chw16', 'chw32', 'dla_linear', 'dla_hwc4']
LAYOUT_NAMES: tuple[str, ...] = get_args(LayoutName)

_LINE = 64  # Rows of the DLA's linear formats begin at multiples of 64 bytes.
ELEMENT_CODES = MappingProxyType({'float16': 0, 'float32': 1, 'int8': 2, 'uint8': 3})
"""What the kernels call the element types."""
DLA_TYPES = MappingProxyType({'fp16': 'float16', 'int8': 'int8'})
"""The element types of a DLA's tensors, by trtexec's names."""
# Numbers of cudla.h.
_NCHW, _NHWC, _NCXHWX = 1, 2, 3
_IMAGE, _FEATURE, _PLANAR = 0, 2, 3


def four_dimensions(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape (n, c, h, w) of a tensor with fewer dimensions, others as they are.

    [n, c] becomes (n, c, 1, 1), and [n, rows, columns] becomes (n, 1, rows, columns).
    """
    if len(shape) == 2:
        return (*shape, 1, 1)
    return (shape[0], 1, *shape[1:]) if len(shape) == 3 else shape


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


@dataclass(frozen=True)
class Layout:
    """One row of the table of layouts.

    Channels are stored in groups of `lanes` that lie next to each other; each group has its rows,
    each row its pixels. All five layouts differ in three numbers only.

    Attributes
    ----------
    name:
        The name that trtexec uses; `nchw` is the plain array.
    lanes:
        Channels that are stored together, given the channel count.
    line:
        Bytes from one row to the next, given the bytes that a row of pixels takes.
    dtypes:
        The element types that the layout exists for.
    channels:
        The channel counts that it exists for; empty for all.
    data_format, data_category:
        What cuDLA's descriptors call it; 0 where the DLA does not know it.
    pixel_format:
        Likewise, by the name of the element type.

    """

    name: LayoutName
    lanes: Callable[[int], int]
    line: Callable[[int], int]
    dtypes: tuple[str, ...]
    channels: tuple[int, ...] = ()
    data_format: int = 0
    data_category: int = 0
    pixel_format: Mapping[str, int] = field(default_factory=dict, hash=False)


LAYOUTS = MappingProxyType({
    layout.name: layout
    for layout in (
        Layout('nchw', lambda c: 1, lambda b: b, ('float32', 'float16', 'int8', 'uint8')),
        Layout(
            'chw16', lambda c: 16, lambda b: b, ('float16',),
            data_format=_NCXHWX, data_category=_FEATURE, pixel_format={'float16': 36},
        ),
        Layout(
            'chw32', lambda c: 32, lambda b: b, ('int8',),
            data_format=_NCXHWX, data_category=_FEATURE, pixel_format={'int8': 36},
        ),
        Layout(
            'dla_linear', lambda c: 1, lambda b: _round_up(b, _LINE), ('float16', 'int8', 'uint8'),
            data_format=_NCHW, data_category=_PLANAR, pixel_format={'float16': 5},
        ),
        Layout(
            'dla_hwc4', lambda c: 1 if c == 1 else 4, lambda b: _round_up(b, _LINE),
            ('float16', 'int8', 'uint8'), (1, 3, 4),
            data_format=_NHWC, data_category=_IMAGE, pixel_format={'float16': 8, 'int8': 12},
        ),
    )
})
"""Every layout, by name."""


@dataclass(frozen=True)
class TensorSpec:
    """What a tensor looks like in memory.

    Attributes
    ----------
    name:
        The tensor's name in the network.
    shape:
        (n, c, h, w), elements.
    dtype:
        float16, float32, int8 or uint8.
    layout:
        A row of LAYOUTS.
    strides:
        Bytes from one batch item, channel group, row, pixel, lane to the next.
    size:
        Bytes of the whole tensor.
    scale:
        What an int8 element of 1 stands for; 1 for the other types.

    """

    name: str
    shape: tuple[int, int, int, int]
    dtype: np.dtype[Any]
    layout: Layout
    strides: tuple[int, int, int, int, int]
    size: int
    scale: float = 1.0

    @classmethod
    def of(
        cls,
        name: str,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
        layout: LayoutName = 'nchw',
        *,
        scale: float = 1.0,
    ) -> TensorSpec:
        """Return the spec that the layout's formulas give.

        Raises
        ------
        ValueError
            If the shape is not four positive numbers, or the layout does not exist for it or the
            type.

        """
        if len(shape) != 4 or not all(isinstance(n, int) and n > 0 for n in shape):
            raise ValueError(
                f'tensor {name!r}: shape must be four positive numbers (n, c, h, w), got {shape}'
            )
        if layout not in LAYOUTS:
            raise ValueError(
                f'Invalid layout {layout!r}. Supported: {", ".join(LAYOUT_NAMES)}'
            )
        row, element = LAYOUTS[layout], np.dtype(dtype)
        n, c, h, w = shape
        if element.name not in row.dtypes or (row.channels and c not in row.channels):
            channels = f' with {" or ".join(map(str, row.channels))} channels' * bool(row.channels)
            raise ValueError(
                f'tensor {name!r}: layout {layout} exists for {", ".join(row.dtypes)}{channels}, '
                f'not for {element.name} with {c} channels'
            )
        lanes = row.lanes(c)
        pixel = lanes * element.itemsize
        line = row.line(w * pixel)
        group = h * line
        batch = -(-c // lanes) * group
        strides = (batch, group, line, pixel, element.itemsize)
        return cls(name, (n, c, h, w), element, row, strides, n * batch, scale)

    @property
    def lanes(self) -> int:
        """Channels that are stored next to each other."""
        return self.layout.lanes(self.shape[1])

    @property
    def groups(self) -> int:
        """Groups of `lanes` channels, the last one padded."""
        return -(-self.shape[1] // self.lanes)

    @property
    def descriptor_strides(self) -> tuple[int, int, int]:
        """The first three strides of a cuDLA descriptor: element, line, surface (or plane).

        The surface stride of dla_hwc4 is 0: it has one surface.
        """
        _, group, line, _, element = self.strides
        return element, line, 0 if self.layout.name == 'dla_hwc4' else group

    def offset(self, n: int, c: int, h: int, w: int) -> int:
        """Return the byte offset of element (n, c, h, w)."""
        index = (n, c // self.lanes, h, w, c % self.lanes)
        return sum(i * stride for i, stride in zip(index, self.strides, strict=True))

    def view(self, buffer: Any) -> npt.NDArray[Any]:
        """Return a buffer of `size` bytes as elements [n, groups, h, w, lanes], without a copy.

        Raises
        ------
        ValueError
            If the buffer has another size.

        """
        data = np.frombuffer(buffer, np.uint8)
        if data.size != self.size:
            raise ValueError(
                f'tensor {self.name!r} takes {self.size} bytes, but the buffer has {data.size}'
            )
        n, _, h, w = self.shape
        return np.ndarray((n, self.groups, h, w, self.lanes), self.dtype, data, 0, self.strides)

    def pack(self, array: npt.NDArray[Any], buffer: Any) -> None:
        """Write elements [n, c, h, w] of the spec's dtype into a buffer; padding channels are 0.

        The bytes between the rows are left as they are.
        """
        n, c, h, w = self.shape
        if array.shape != self.shape or array.dtype != self.dtype:
            raise ValueError(
                f'tensor {self.name!r} must be {self.dtype} {self.shape}, '
                f'but got {array.dtype} {array.shape}'
            )
        padded = np.zeros((n, self.groups * self.lanes, h, w), self.dtype)
        padded[:, :c] = array
        self.view(buffer)[...] = padded.reshape(
            n, self.groups, self.lanes, h, w
        ).transpose(0, 1, 3, 4, 2)

    def unpack(self, buffer: Any) -> npt.NDArray[Any]:
        """Return the elements of a buffer as [n, c, h, w]; a copy, except for nchw."""
        n, c, h, w = self.shape
        grouped = self.view(buffer).transpose(0, 1, 4, 2, 3)
        return grouped.reshape(n, self.groups * self.lanes, h, w)[:, :c]

    def quantize(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return float values of any shape as elements: integers are rounded and saturated."""
        if self.dtype.kind == 'f':
            with np.errstate(over='ignore'):
                return np.asarray(values.astype(self.dtype))
        limits = np.iinfo(self.dtype)
        levels = np.rint(values.astype(np.float32) / np.float32(self.scale))
        return np.asarray(np.clip(levels, limits.min, limits.max).astype(self.dtype))

    def dequantize(self, elements: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return elements of any shape as what they stand for; integers become float32."""
        if self.dtype.kind == 'f':
            return elements
        return np.asarray(elements.astype(np.float32) * np.float32(self.scale))

    def __str__(self) -> str:
        """Describe the tensor in a line."""
        shape = 'x'.join(map(str, self.shape))
        strides = '/'.join(map(str, self.strides))
        return (
            f'{self.name} {shape} {self.dtype.name} {self.layout.name} '
            f'(strides {strides}, {self.size} bytes)'
        )


@dataclass(frozen=True)
class TensorFormat:
    """Element type and layout of a tensor on the DLA."""

    dtype: str
    layout: str

    @classmethod
    def parse(cls, text: str) -> TensorFormat:
        """Read what trtexec takes, such as fp16:chw16 or int8:dla_hwc4; or the layout alone.

        Raises
        ------
        ValueError
            If there is no such type or layout, or not together.

        """
        rows = {str(name): row for name, row in LAYOUTS.items() if row.data_format}
        kind, _, layout = text.rpartition(':')
        if layout not in rows:
            supported = ', '.join(rows)
            raise ValueError(f'Invalid layout {layout!r} in {text!r}. Supported: {supported}')
        dtype = DLA_TYPES.get(kind or ('int8' if layout == 'chw32' else 'fp16'))
        if dtype is None:
            supported = ', '.join(DLA_TYPES)
            raise ValueError(f'Invalid type {kind!r} in {text!r}. Supported: {supported}')
        if dtype not in rows[layout].dtypes:
            raise ValueError(
                f'Invalid format {text!r}. {layout} exists for {", ".join(rows[layout].dtypes)}'
            )
        return cls(dtype, layout)

    def __str__(self) -> str:
        """Return what `parse` reads, with the type."""
        return f'{next(k for k, v in DLA_TYPES.items() if v == self.dtype)}:{self.layout}'


FP16_CHW16 = TensorFormat('float16', 'chw16')
