"""Where the picture goes in the network's input, and the way back, as one affine map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

ResizeMode = Literal['letterbox', 'stretch', 'crop']
Padding = Literal['center', 'top_left']
RESIZE_MODES: tuple[str, ...] = get_args(ResizeMode)


class Rect(NamedTuple):
    """A rectangle of whole pixels: left, top, width, height."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True)
class Geometry:
    """The rectangle `source` of the image fills the rectangle `target` of the network's input.

    Both are whole pixels, so the map between them is exact in both directions. Coordinates are
    continuous: pixel i spans [i, i + 1).

    Attributes
    ----------
    image_size:
        Width and height of the image, pixels.
    network_size:
        Width and height of the network's input, pixels.
    source, target:
        The rectangles. What of the input is outside `target` has the border value.

    """

    image_size: tuple[int, int]
    network_size: tuple[int, int]
    source: Rect
    target: Rect

    @classmethod
    def fit(
        cls,
        image_size: tuple[int, int],
        network_size: tuple[int, int],
        mode: ResizeMode,
        *,
        padding: Padding = 'center',
        roi: Rect | None = None,
    ) -> Geometry:
        """Fit an image, or a region of interest of it, into the network's input.

        Parameters
        ----------
        image_size, network_size:
            Width and height, pixels.
        mode:
            `letterbox` keeps the aspect ratio and pads, `crop` keeps it and cuts the overhang off
            evenly, `stretch` gives it up.
        padding:
            Where a letterboxed image sits: in the `center` or at the `top_left`.
        roi:
            The part of the image to look at; a width or height of 0 reaches to the image's edge.

        Raises
        ------
        ValueError
            If the region of interest is not inside the image.

        """
        source = _inside(roi or Rect(0, 0, 0, 0), image_size)
        width, height = network_size
        target = Rect(0, 0, width, height)
        if mode == 'letterbox':
            w, h = _largest(source.width, source.height, width, height)
            x, y = ((width - w) // 2, (height - h) // 2) if padding == 'center' else (0, 0)
            target = Rect(x, y, w, h)
        elif mode == 'crop':
            w, h = _largest(width, height, source.width, source.height)
            x, y = source.x + (source.width - w) // 2, source.y + (source.height - h) // 2
            source = Rect(x, y, w, h)
        elif mode != 'stretch':
            raise ValueError(f'Invalid resize mode {mode!r}. Supported: {", ".join(RESIZE_MODES)}')
        return cls(image_size, network_size, source, target)

    @property
    def scale(self) -> tuple[float, float]:
        """Network pixels per image pixel, across and down."""
        return self.target.width / self.source.width, self.target.height / self.source.height

    @property
    def offset(self) -> tuple[float, float]:
        """Where the image's origin lies in the network's input: network = image*scale + offset."""
        sx, sy = self.scale
        return self.target.x - self.source.x * sx, self.target.y - self.source.y * sy

    def to_network(self, points: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Map points [..., 2 k] of alternating x, y from image pixels to network pixels."""
        values = np.asarray(points, np.float64)
        pairs = values.reshape(*values.shape[:-1], values.shape[-1] // 2, 2)
        return (pairs * self.scale + self.offset).reshape(values.shape)

    def to_image(self, points: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Map points [..., 2 k] of alternating x, y from network pixels to image pixels."""
        values = np.asarray(points, np.float64)
        pairs = values.reshape(*values.shape[:-1], values.shape[-1] // 2, 2)
        return ((pairs - self.offset) / self.scale).reshape(values.shape)


def _largest(width: int, height: int, most_wide: int, most_high: int) -> tuple[int, int]:
    """Return the largest size of the ratio width:height in a frame, rounded down as in YOLOX."""
    if width * most_high >= height * most_wide:
        return most_wide, max(height * most_wide // width, 1)
    return max(width * most_high // height, 1), most_high


def _inside(roi: Rect, image_size: tuple[int, int]) -> Rect:
    width, height = image_size
    full = Rect(roi.x, roi.y, roi.width or width - roi.x, roi.height or height - roi.y)
    fits = full.x >= 0 and full.y >= 0 and full.width > 0 and full.height > 0
    if not fits or full.x + full.width > width or full.y + full.height > height:
        raise ValueError(
            f'region of interest {full.width}x{full.height} at ({full.x}, {full.y}) is not inside '
            f'the image of {width}x{height} pixels'
        )
    return full
