"""Images as ROS describes them: a buffer, a size, a step, an encoding. Nothing is copied here."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Family = Literal['color', 'mono', 'bayer', 'yuv422', 'semiplanar', 'raw']


class ImageError(ValueError):
    """An image that cannot be used.

    `kind` is a short word to count such images by: `size`, `empty`, `step`, `data`, `encoding` or
    `color` (an encoding that says nothing about color).
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True)
class Encoding:
    """One row of the table of encodings.

    Attributes
    ----------
    name:
        The name in sensor_msgs/Image.encoding.
    family:
        How the samples are arranged; each family has one conversion in `color.py`.
    dtype:
        The type of one sample, in native byte order.
    channels:
        Samples per pixel along a row of the first plane.
    order:
        What the samples are: color letters (`bgra`), the Bayer pattern of the top left 2x2 pixels
        in row order (`rggb`), the packing of a pair of pixels (`uyvy`), or the order of the two
        chroma samples (`uv`); empty for `raw`.
    rows:
        Rows of `step` bytes per image row, the chroma plane included.
    multiple:
        Width and height must be multiples of these.

    """

    name: str
    family: Family
    dtype: np.dtype[Any]
    channels: int
    order: str = ''
    rows: Fraction = Fraction(1)
    multiple: tuple[int, int] = (1, 1)

    @property
    def has_color(self) -> bool:
        """Whether the encoding says what color a pixel has."""
        return self.family != 'raw'

    def row_bytes(self, width: int) -> int:
        """Return the bytes that `width` pixels of one row take, without padding."""
        return width * self.channels * self.dtype.itemsize


def _table() -> dict[str, Encoding]:
    rows: list[Encoding] = []

    def add(*args: Any, **kwargs: Any) -> None:
        rows.append(Encoding(*args, **kwargs))

    for bits, dtype in ((8, np.dtype(np.uint8)), (16, np.dtype(np.uint16))):
        for order in ('rgb', 'bgr', 'rgba', 'bgra'):
            add(f'{order}{bits}', 'color', dtype, len(order), order)
        add(f'mono{bits}', 'mono', dtype, 1, 'y')
        for pattern in ('rggb', 'bggr', 'gbrg', 'grbg'):
            add(f'bayer_{pattern}{bits}', 'bayer', dtype, 1, pattern)
        # OpenCV's names, with the channel order that OpenCV gives them.
        add(f'{bits}UC1', 'mono', dtype, 1, 'y')
        add(f'{bits}UC3', 'color', dtype, 3, 'bgr')
        add(f'{bits}UC4', 'color', dtype, 4, 'bgra')
        add(f'{bits}UC2', 'raw', dtype, 2)
    # Signed and floating point images are depth, disparity or flow, not color (REP 118).
    for depth, name in (('8S', 'i1'), ('16S', 'i2'), ('32S', 'i4'), ('32F', 'f4'), ('64F', 'f8')):
        for channels in (1, 2, 3, 4):
            add(f'{depth}C{channels}', 'raw', np.dtype(name), channels)
    uint8 = np.dtype(np.uint8)
    for name, order in (
        ('uyvy', 'uyvy'), ('yuv422', 'uyvy'), ('yuyv', 'yuyv'), ('yuv422_yuy2', 'yuyv'),
    ):
        add(name, 'yuv422', uint8, 2, order, multiple=(2, 1))
    for name, order in (('nv12', 'uv'), ('nv21', 'vu')):
        add(name, 'semiplanar', uint8, 1, order, rows=Fraction(3, 2), multiple=(2, 2))
    add('nv24', 'semiplanar', uint8, 1, 'uv', rows=Fraction(3))
    return {row.name: row for row in rows}


ENCODINGS = MappingProxyType(_table())
"""Every encoding that is understood, by name."""


def find_encoding(name: str) -> Encoding:
    """Return the encoding called `name`; raise ImageError (`encoding`) if there is none."""
    try:
        return ENCODINGS[name]
    except KeyError:
        raise ImageError(
            'encoding', f'unknown encoding {name!r}; supported: {", ".join(ENCODINGS)}'
        ) from None


@dataclass(frozen=True)
class ImageView:
    """An image inside somebody else's buffer, checked, not copied.

    Attributes
    ----------
    data:
        The bytes, uint8 [N], N >= `step` times the rows that the encoding needs.
    width, height:
        Pixels.
    encoding:
        A row of ENCODINGS.
    step:
        Bytes from one row to the next.
    big_endian:
        Byte order of samples wider than a byte.

    """

    data: npt.NDArray[np.uint8]
    width: int
    height: int
    encoding: Encoding
    step: int
    big_endian: bool = False

    @classmethod
    def of(
        cls,
        data: Any,
        *,
        width: int,
        height: int,
        encoding: str | Encoding,
        step: int,
        big_endian: bool = False,
    ) -> ImageView:
        """Check a buffer against what is said of it and return a view of it.

        Parameters
        ----------
        data:
            Anything with the buffer protocol, contiguous.
        width, height, encoding, step, big_endian:
            As in sensor_msgs/Image.

        Raises
        ------
        ImageError
            If the numbers contradict each other; the text gives them.

        """
        row = encoding if isinstance(encoding, Encoding) else find_encoding(encoding)
        if width <= 0 or height <= 0:
            raise ImageError('size', f'image of {width}x{height} pixels; both must be positive')
        buffer = np.frombuffer(data, np.uint8) if len(data) else np.empty(0, np.uint8)
        if buffer.size == 0:
            raise ImageError('empty', f'image of {width}x{height} {row.name} without data')
        if width % row.multiple[0] or height % row.multiple[1]:
            raise ImageError(
                'size',
                f'{row.name} image of {width}x{height} pixels; width must be a multiple of '
                f'{row.multiple[0]} and height of {row.multiple[1]}',
            )
        if step < row.row_bytes(width):
            raise ImageError(
                'step',
                f'step is {step} bytes, but a row of {width} {row.name} pixels takes '
                f'{row.row_bytes(width)}',
            )
        # The last row may end with its last pixel: some drivers leave out the final padding.
        needed = int(step * height * row.rows) - (step - row.row_bytes(width))
        if buffer.size < needed:
            raise ImageError(
                'data',
                f'{buffer.size} bytes of data, but {height} rows of {step} bytes ({row.name}, '
                f'{width}x{height}) take {int(step * height * row.rows)}',
            )
        return cls(buffer, width, height, row, step, bool(big_endian))

    @classmethod
    def from_array(cls, array: npt.NDArray[Any], encoding: str = 'bgr8') -> ImageView:
        """Return a view of a numpy image, [H, W] or [H, W, C], of a packed encoding.

        Rows may be padded (a slice of a wider image); otherwise the array is made contiguous.
        Semi-planar encodings take the array of all rows, luma and chroma: [1.5 H, W] for nv12.
        """
        row = find_encoding(encoding)
        channels = array.shape[2] if array.ndim == 3 else 1
        if array.ndim not in (2, 3) or channels != row.channels or array.dtype != row.dtype:
            raise ImageError(
                'data',
                f'{encoding} needs {row.dtype} with {row.channels} channels, but the array is '
                f'{array.dtype} of shape {array.shape}',
            )
        pixel = row.channels * row.dtype.itemsize
        packed = array.size and array.strides[-1] == row.dtype.itemsize
        if not packed or array.strides[1] != pixel or array.strides[0] < pixel * array.shape[1]:
            array = np.ascontiguousarray(array)
        height, width = int(array.shape[0] / row.rows), array.shape[1]
        step = array.strides[0] if array.size else 0
        size = step * (array.shape[0] - 1) + pixel * width
        data = np.lib.stride_tricks.as_strided(
            array.view(np.uint8), (max(size, 0),), (1,), writeable=False
        )
        return cls.of(data, width=width, height=height, encoding=row, step=step)

    @classmethod
    def from_encoded(cls, data: Any) -> ImageView:
        """Return a view of an encoded picture (JPEG, PNG, ...), decoded to bgr8.

        Pixels stay where the camera had them: EXIF orientation is not applied.

        Raises
        ------
        ImageError
            If `data`, bytes or uint8 [n], is no picture that OpenCV can read.

        """
        import cv2

        octets = np.frombuffer(data, np.uint8)
        flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
        image = cv2.imdecode(octets, flags) if octets.size else None
        if image is None:
            raise ImageError('data', f'{octets.size} bytes are no picture that OpenCV can read')
        return cls.from_array(np.asarray(image, np.uint8))

    def require_color(self) -> ImageView:
        """Return self; raise ImageError (`color`) if the encoding says nothing about color."""
        if not self.encoding.has_color:
            raise ImageError(
                'color',
                f'encoding {self.encoding.name} has no defined color; publish a color, mono, '
                'bayer or yuv encoding, or set input_encoding',
            )
        return self

    def plane(
        self, *, rows: int, columns: int, channels: int, offset: int = 0, step: int = 0
    ) -> npt.NDArray[Any]:
        """Return [rows, columns, channels] samples that begin `offset` bytes into the data.

        `step` overrides the bytes from row to row. Nothing is copied; the byte order is that of
        the data.
        """
        dtype = self.encoding.dtype.newbyteorder('>' if self.big_endian else '<')
        item = dtype.itemsize
        return np.ndarray(
            (rows, columns, channels), dtype, self.data, offset,
            (step or self.step, channels * item, item),
        )

    @property
    def pixels(self) -> npt.NDArray[Any]:
        """The samples as [H, W, C]; for semi-planar encodings the luma plane, [H, W, 1]."""
        return self.plane(rows=self.height, columns=self.width, channels=self.encoding.channels)
