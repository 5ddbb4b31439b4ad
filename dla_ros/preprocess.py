"""Preprocessing on the CPU: an image becomes the network's input, in the tensor's layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dla_ros.color import color_channels, convert_reference
from dla_ros.geometry import Geometry
from dla_ros.image import ImageView
from dla_ros.model import InputConfig
from dla_ros.tensor import TensorSpec


class Preprocessor:
    """Writes images into one input tensor.

    Pixels are resized as bytes; a table of 256 entries per channel then normalizes, converts and
    quantizes them at once, and one pass puts them into the layout's lanes. The border and the
    padding channels are written only when the geometry changes.
    """

    def __init__(self, config: InputConfig, spec: TensorSpec, buffer: Any) -> None:
        """Bind to a writable buffer of `spec.size` bytes; raise ValueError if it does not fit."""
        if spec.shape[0] != 1 or spec.shape[1] != config.channels:
            raise ValueError(
                f'input {spec.name!r} is {spec.shape}, but color_order {config.color_order} needs '
                f'a batch of 1 and {config.channels} channel(s)'
            )
        self._config = config
        self._table = _table(config, spec)
        elements = spec.view(buffer)[0]
        # cv2 moves elements by width only, so every 16 bit type is uint16 to it.
        self._groups = [group.view(self._table.dtype) for group in elements]
        self._lanes = spec.lanes
        self._geometry: Geometry | None = None

    def __call__(self, view: ImageView, geometry: Geometry) -> None:
        """Write an image; raise ImageError if its encoding says nothing about color."""
        import cv2

        if geometry != self._geometry:
            self._paint_border()
            self._geometry = geometry
        channels, letters = self._channels(view)
        source, target = geometry.source, geometry.target
        region = channels[
            source.y : source.y + source.height, source.x : source.x + source.width
        ]
        area = self._config.interpolation == 'area'
        resized = cv2.resize(
            region, (target.width, target.height),
            interpolation=cv2.INTER_AREA if area else cv2.INTER_LINEAR,
        )
        wanted = 'y' if self._config.color_order == 'mono' else self._config.color_order
        if letters == 'y':
            resized, letters = cv2.merge([resized] * len(wanted)), wanted
        table = np.zeros((1, 256, len(letters)), self._table.dtype)
        moves: list[int] = []
        for output, letter in enumerate(wanted):
            channel = letters.index(letter)
            table[0, :, channel] = self._table[:, output]
            moves += [channel, output]
        inside = [
            group[target.y : target.y + target.height, target.x : target.x + target.width]
            for group in self._groups
        ]
        cv2.mixChannels([cv2.LUT(resized, table)], inside, moves)

    def _channels(self, view: ImageView) -> tuple[npt.NDArray[np.uint8], str]:
        if self._config.color_order == 'mono':
            return convert_reference(view, 'mono'), 'y'
        return color_channels(view)

    def _paint_border(self) -> None:
        border = self._table[self._config.border_value]
        for group in self._groups:
            group[...] = 0
        for output in range(self._config.channels):
            self._groups[output // self._lanes][..., output % self._lanes] = border[output]


def _table(config: InputConfig, spec: TensorSpec) -> npt.NDArray[Any]:
    """Return [256, channels] of the element that each pixel value becomes, as raw numbers."""
    values = config.normalized()
    converted: npt.NDArray[Any]
    if spec.dtype == np.int8:
        converted = np.clip(np.rint(values / spec.scale), -128, 127).astype(np.int8)
    elif spec.dtype == np.float16:
        converted = values.astype(np.float16).view(np.uint16)
    else:
        converted = values.astype(spec.dtype)
    return converted
