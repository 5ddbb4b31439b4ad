"""From any encoding to 8 bit color: the numpy reference, and OpenCV where it does the same faster.

The reference defines the result; the CUDA kernels and the OpenCV path are held against it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args, Literal

import numpy as np
import numpy.typing as npt

from dla_ros.image import Family, ImageView

ColorOrder = Literal['rgb', 'bgr', 'mono']
COLOR_ORDERS: tuple[str, ...] = get_args(ColorOrder)
UInt8Array = npt.NDArray[np.uint8]

# BT.601, limited range, in 1/2^20: 255/219, and the chroma factors times 255/224.
_SHIFT = 20
_Y = 1220542
_UB, _UG, _VG, _VR = 2116026, -409993, -852492, 1673527

# BT.601 luma in 1/2^15.
_LUMA = np.array([9798, 19235, 3735], np.int32)


def to_eight_bits(samples: npt.NDArray[Any]) -> UInt8Array:
    """Scale unsigned samples to 0..255, rounding to nearest: x * 255 / 65535 for 16 bits."""
    if samples.dtype.itemsize == 1:
        return samples.astype(np.uint8, copy=False)
    return ((samples.astype(np.uint32) + 128) // 257).astype(np.uint8)


def demosaic(mosaic: npt.NDArray[Any], pattern: str) -> npt.NDArray[Any]:
    """Interpolate a Bayer mosaic bilinearly.

    Parameters
    ----------
    mosaic:
        [H, W] uint8 or uint16.
    pattern:
        The colors of the top left 2x2 pixels in row order, such as `rggb`.

    Returns
    -------
    [H, W, 3] RGB of the same dtype. Missing colors are the rounded mean of the two or four
    neighbours that have them; the outermost rows and columns repeat the ones next to them, as in
    OpenCV. Images less than three pixels high or wide mirror their neighbours instead.

    """
    height, width = mosaic.shape
    # Mirroring keeps the color of each site; a single row or column can only repeat itself.
    padded = mosaic.astype(np.uint32)
    padded = np.pad(padded, ((1, 1), (0, 0)), 'reflect' if height > 1 else 'edge')
    padded = np.pad(padded, ((0, 0), (1, 1)), 'reflect' if width > 1 else 'edge')

    def shifted(dy: int, dx: int) -> npt.NDArray[Any]:
        return padded[1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]

    horizontal = shifted(0, -1) + shifted(0, 1)
    vertical = shifted(-1, 0) + shifted(1, 0)
    diagonal = shifted(-1, -1) + shifted(-1, 1) + shifted(1, -1) + shifted(1, 1)
    means = {
        'same': shifted(0, 0),
        'horizontal': (horizontal + 1) >> 1,
        'vertical': (vertical + 1) >> 1,
        'cross': (horizontal + vertical + 2) >> 2,
        'diagonal': (diagonal + 2) >> 2,
    }
    rgb: npt.NDArray[Any] = np.empty((height, width, 3), mosaic.dtype)
    for y in (0, 1):
        for x in (0, 1):
            site = pattern[2 * y + x]
            beside = pattern[2 * y + 1 - x]
            for channel, letter in enumerate('rgb'):
                if letter == site:
                    source = 'same'
                elif site != 'g':
                    source = 'cross' if letter == 'g' else 'diagonal'
                else:
                    source = 'horizontal' if letter == beside else 'vertical'
                rgb[y::2, x::2, channel] = means[source][y::2, x::2]
    if height >= 3:
        rgb[0], rgb[-1] = rgb[1], rgb[-2]
    if width >= 3:
        rgb[:, 0], rgb[:, -1] = rgb[:, 1], rgb[:, -2]
    return rgb


def yuv_to_rgb(y: UInt8Array, u: UInt8Array, v: UInt8Array) -> UInt8Array:
    """Convert BT.601 limited range YUV planes [H, W] to RGB [H, W, 3], as OpenCV does."""
    luma = np.maximum(y.astype(np.int32) - 16, 0) * _Y + (1 << (_SHIFT - 1))
    cu, cv = u.astype(np.int32) - 128, v.astype(np.int32) - 128
    planes = (luma + _VR * cv, luma + _VG * cv + _UG * cu, luma + _UB * cu)
    rgb: npt.NDArray[np.int32] = np.stack([plane >> _SHIFT for plane in planes], -1)
    return np.clip(rgb, 0, 255).astype(np.uint8)


def _color_rgb(view: ImageView) -> UInt8Array:
    return to_eight_bits(view.pixels[..., [view.encoding.order.index(c) for c in 'rgb']])


def _mono_rgb(view: ImageView) -> UInt8Array:
    return np.repeat(to_eight_bits(view.pixels), 3, axis=2)


def _bayer_rgb(view: ImageView) -> UInt8Array:
    native = view.pixels[..., 0].astype(view.encoding.dtype, copy=False)
    return to_eight_bits(demosaic(native, view.encoding.order))


def _yuv422_rgb(view: ImageView) -> UInt8Array:
    pairs = view.plane(rows=view.height, columns=view.width // 2, channels=4)
    at = view.encoding.order
    first = at.index('y')
    y = pairs[..., [first, first + 2]].reshape(view.height, view.width)
    u, v = (np.repeat(pairs[..., at.index(c)], 2, axis=1) for c in 'uv')
    return yuv_to_rgb(y, u, v)


def _semiplanar_rgb(view: ImageView) -> UInt8Array:
    luma = view.pixels[..., 0]
    offset = view.step * view.height
    if view.encoding.multiple == (2, 2):
        chroma = view.plane(
            rows=view.height // 2, columns=view.width // 2, channels=2, offset=offset
        ).repeat(2, axis=0).repeat(2, axis=1)
    else:
        chroma = view.plane(
            rows=view.height, columns=view.width, channels=2, offset=offset, step=2 * view.step
        )
    u, v = (chroma[..., view.encoding.order.index(c)] for c in 'uv')
    return yuv_to_rgb(luma, u, v)


_REFERENCE: dict[Family, Callable[[ImageView], UInt8Array]] = {
    'color': _color_rgb,
    'mono': _mono_rgb,
    'bayer': _bayer_rgb,
    'yuv422': _yuv422_rgb,
    'semiplanar': _semiplanar_rgb,
}


def reorder(rgb: UInt8Array, order: ColorOrder) -> UInt8Array:
    """Return RGB [H, W, 3] as `rgb`, `bgr` [H, W, 3] or `mono` [H, W, 1] (BT.601 luma)."""
    if order == 'rgb':
        return rgb
    if order == 'bgr':
        return rgb[..., ::-1]
    luma: npt.NDArray[np.int32] = (rgb.astype(np.int32) @ _LUMA + (1 << 14)) >> 15
    return luma.astype(np.uint8)[..., None]


def convert_reference(view: ImageView, order: ColorOrder) -> UInt8Array:
    """Convert an image to 8 bit color: the definition, in plain numpy.

    Parameters
    ----------
    view:
        An image of any encoding that has a color.
    order:
        The channels wanted.

    Returns
    -------
    uint8 [H, W, 3] for `rgb` and `bgr`, [H, W, 1] for `mono`.

    Raises
    ------
    ImageError
        If the encoding says nothing about color.

    """
    encoding = view.require_color().encoding
    if order == 'mono' and encoding.family == 'mono':
        return to_eight_bits(view.pixels)
    return reorder(_REFERENCE[encoding.family](view), order)


def color_channels(view: ImageView) -> tuple[UInt8Array, str]:
    """Return 8 bit channels as cheaply as possible, and which they are.

    Returns
    -------
    uint8 [H, W, C] and a string of C letters such as `bgra`, or `y` for a gray image. Nothing is
    copied where the image is 8 bit color or gray already.

    """
    encoding = view.require_color().encoding
    if encoding.family in ('color', 'mono'):
        samples = view.pixels
        if encoding.dtype.itemsize > 1:
            samples = _narrow(samples)
        return samples, encoding.order
    fast = _fast_rgb(view)
    return (fast if fast is not None else _REFERENCE[encoding.family](view)), 'rgb'


def _narrow(samples: npt.NDArray[Any]) -> UInt8Array:
    """Do what to_eight_bits does, with OpenCV."""
    import cv2

    native = np.ascontiguousarray(samples, dtype=samples.dtype.newbyteorder('='))
    narrow = cv2.convertScaleAbs(native, alpha=1 / 257)
    return np.asarray(narrow, np.uint8).reshape(samples.shape)


def _fast_rgb(view: ImageView) -> UInt8Array | None:
    """Return RGB by OpenCV, or None where OpenCV has no such conversion."""
    import cv2

    encoding = view.encoding
    if encoding.family == 'bayer' and min(view.width, view.height) >= 3:
        code = getattr(cv2, f'COLOR_Bayer{encoding.order.upper()}2RGB')
        mosaic = view.pixels
        native = np.ascontiguousarray(mosaic, dtype=mosaic.dtype.newbyteorder('='))
        rgb = cv2.cvtColor(native, code)
        return np.asarray(rgb) if encoding.dtype.itemsize == 1 else _narrow(np.asarray(rgb))
    if encoding.family == 'yuv422':
        code = {'uyvy': cv2.COLOR_YUV2RGB_UYVY, 'yuyv': cv2.COLOR_YUV2RGB_YUY2}[encoding.order]
        return np.asarray(cv2.cvtColor(view.pixels, code), np.uint8)
    if encoding.name in ('nv12', 'nv21'):
        planes = view.plane(rows=view.height * 3 // 2, columns=view.width, channels=1)
        code = getattr(cv2, f'COLOR_YUV2RGB_{encoding.name.upper()}')
        return np.asarray(cv2.cvtColor(np.ascontiguousarray(planes), code), np.uint8)
    return None
