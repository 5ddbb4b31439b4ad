"""Preprocessing: the numpy reference, and the CPU's way to the network's input.

The reference is what the CUDA kernel does. Resizing is that of OpenCV for 8 bit images, since that
is what networks are trained with.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dla_ros.color import color_channels, convert_reference
from dla_ros.geometry import Geometry
from dla_ros.image import ImageView
from dla_ros.model import InputConfig
from dla_ros.tensor import TensorSpec


def check_input(config: InputConfig, spec: TensorSpec) -> None:
    """Raise ValueError if a tensor is not one image with the model's channels."""
    if spec.shape[0] != 1 or spec.shape[1] != config.channels:
        raise ValueError(
            f'input {spec.name!r} is {spec.shape}, but color_order {config.color_order} needs '
            f'a batch of 1 and {config.channels} channel(s)'
        )


def takes_area(config: InputConfig, geometry: Geometry) -> bool:
    """Whether an image is resized by area: if the model wants it and neither side grows."""
    source, target = geometry.source, geometry.target
    shrinks = source.width >= target.width and source.height >= target.height
    return config.interpolation == 'area' and shrinks


def gain_and_bias(config: InputConfig) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return float32 [channels] each: (pixel * scale - mean) / stddev as pixel * gain + bias."""
    mean, stddev = np.array(config.mean), np.array(config.stddev)
    gain = np.broadcast_to(config.scale / stddev, config.channels)
    bias = np.broadcast_to(-mean / stddev, config.channels)
    return gain.astype(np.float32), bias.astype(np.float32)


def preprocess_reference(
    view: ImageView, geometry: Geometry, config: InputConfig, spec: TensorSpec
) -> npt.NDArray[Any]:
    """Return an image as the network's input, elements [1, c, h, w] of the spec's dtype.

    The kernel does the same operations in the same order, so that both agree to the bit.
    """
    source, target = geometry.source, geometry.target
    colors = convert_reference(view, config.color_order).astype(np.int64)
    region = colors[source.y : source.y + source.height, source.x : source.x + source.width]
    resize = _resize_area if takes_area(config, geometry) else _resize_linear
    _, _, height, width = spec.shape
    pixels = np.full((height, width, config.channels), config.border_value, np.int64)
    inside = slice(target.y, target.y + target.height), slice(target.x, target.x + target.width)
    pixels[inside] = resize(region, target.width, target.height)
    gain, bias = gain_and_bias(config)
    return spec.quantize(pixels.astype(np.float32) * gain + bias).transpose(2, 0, 1)[None]


def ratio(source: int, target: int) -> float:
    """Return source pixels per target pixel, rounded as OpenCV rounds it."""
    return 1.0 / (target / source)


def _between(n: int, target: int, *, one_at_edges: bool) -> tuple[npt.NDArray[Any], ...]:
    """Return low, high and their weights in 1/2048, int [target] each: centers are aligned."""
    center = ((np.arange(target) + 0.5) * ratio(n, target) - 0.5).astype(np.float32)
    below = np.floor(center).astype(np.int64)
    weight = center - below.astype(np.float32)
    if one_at_edges:
        weight[(below < 0) | (below >= n - 1)] = 0.0
    weights = (np.rint(w * np.float32(2048)).astype(np.int64) for w in (1 - weight, weight))
    return below.clip(0, n - 1), (below + 1).clip(0, n - 1), *weights


def _resize_linear(
    image: npt.NDArray[np.int64], width: int, height: int
) -> npt.NDArray[np.int64]:
    """Do what OpenCV's INTER_LINEAR does with 8 bit images [h, w, c], to the bit."""
    left, right, left_weight, right_weight = _between(image.shape[1], width, one_at_edges=True)
    above, below, *weights = _between(image.shape[0], height, one_at_edges=False)
    rows = (
        image[:, left] * left_weight[:, None] + image[:, right] * right_weight[:, None]
    ) >> 4
    top, bottom = (
        (rows[index] * weight[:, None, None]) >> 16
        for index, weight in zip((above, below), weights, strict=True)
    )
    resized: npt.NDArray[np.int64] = (top + bottom + 2) >> 2
    return resized


def _shares(n: int, target: int) -> list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    """Return (source index, overlap in 1/target) [target] for the first, second, ... pixel."""
    start = np.arange(target, dtype=np.int64) * n
    first = start // target
    shares = []
    for i in range(-(-n // target) + 1):
        index = first + i
        overlap = np.minimum(start + n, (index + 1) * target) - np.maximum(start, index * target)
        shares.append((index.clip(0, n - 1), overlap.clip(0)))
    return shares


def _resize_area(
    image: npt.NDArray[np.int64], width: int, height: int
) -> npt.NDArray[np.int64]:
    """Return the mean of an 8 bit image [h, w, c] over the area that each target pixel covers."""
    sums = np.zeros((height, width, image.shape[2]), np.float32)
    for row, high in _shares(image.shape[0], height):
        for column, wide in _shares(image.shape[1], width):
            weight = (high[:, None] * wide).astype(np.float32)
            sums += weight[..., None] * image[row[:, None], column].astype(np.float32)
    whole = np.float32(image.shape[1]) * np.float32(image.shape[0])
    mean: npt.NDArray[np.int64] = np.floor(sums / whole + np.float32(0.5)).astype(np.int64)
    return mean


class Preprocessor:
    """Writes images into one input tensor.

    Pixels are resized as bytes; a table of 256 entries per channel then normalizes, converts and
    quantizes them at once, and one pass puts them into the layout's lanes. The border and the
    padding channels are written only when the geometry changes.
    """

    def __init__(self, config: InputConfig, spec: TensorSpec, buffer: Any) -> None:
        """Bind to a writable buffer of `spec.size` bytes; raise ValueError if it does not fit."""
        check_input(config, spec)
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
        area = takes_area(self._config, geometry)
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
    converted = spec.quantize(config.normalized())
    return converted.view(np.uint16) if spec.dtype == np.float16 else converted
