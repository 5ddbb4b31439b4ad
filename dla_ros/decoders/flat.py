"""Exports that join all grids in one output, [n, boxes, values]: which box is which cell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dla_ros.decoders.base import DecoderError
from dla_ros.tensor import TensorSpec


def values_axis(output: TensorSpec, values: int) -> int | None:
    """Return along which axis of a flat output [1, 1, h, w] the values of a box lie, if any.

    Exports write [1, boxes, values] or [1, values, boxes].
    """
    _, c, h, w = output.shape
    axes = [axis for axis, size in ((3, w), (2, h)) if c == 1 and size == values]
    return axes[0] if axes else None


def grid_cells(
    boxes: int, strides: Sequence[int], network_size: tuple[int, int], anchors: int = 1
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return column and row, float32 [boxes, 2], and stride, float32 [boxes, 1], of all boxes.

    The grids of `strides` follow each other, in each the rows, the columns and the anchors of a
    cell.

    Raises
    ------
    DecoderError
        If the grids have another number of boxes.

    """
    cells, steps = [], []
    for stride in strides:
        width, height = (-(-size // stride) for size in network_size)
        rows, columns = np.divmod(np.repeat(np.arange(width * height), anchors), width)
        cells.append(np.stack([columns, rows], 1))
        steps.append(np.full((len(rows), 1), stride))
    found = np.concatenate(cells).astype(np.float32)
    if len(found) != boxes:
        raise DecoderError(
            f'the output has {boxes} boxes, but strides {", ".join(map(str, strides))} make '
            f'{len(found)} in {network_size[0]}x{network_size[1]} pixels'
        )
    return found, np.concatenate(steps).astype(np.float32)
