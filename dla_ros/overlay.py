"""Pictures of detections, to look at."""

from __future__ import annotations

from collections.abc import Sequence
import colorsys
from typing import Any

import numpy as np
import numpy.typing as npt

Row = tuple[str, float, Sequence[float]]
"""Label, score, and left, top, right, bottom in pixels."""

_GOLDEN = 0.618033988749895


def label_color(label: str) -> tuple[int, int, int]:
    """Return the BGR color of a label, always the same one and far from other labels'."""
    hue = (sum((i + 1) * ord(letter) for i, letter in enumerate(label)) * _GOLDEN) % 1.0
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.75, 0.95)
    return round(255 * blue), round(255 * green), round(255 * red)


def draw(image: npt.NDArray[np.uint8], rows: Sequence[Row]) -> npt.NDArray[np.uint8]:
    """Return a copy of a BGR image [H, W, 3] with a box, label and score for each detection."""
    import cv2

    canvas = image.copy()
    width, height = image.shape[1], image.shape[0]
    thickness = max(1, round(max(width, height) / 350))
    scale = max(0.35, max(width, height) / 1500)
    for label, score, box in sorted(rows, key=lambda row: row[1]):
        left, top, right, bottom = (round(value) for value in box)
        color = label_color(label)
        cv2.rectangle(canvas, (left, top), (right, bottom), color, thickness, cv2.LINE_AA)
        _tag(canvas, f'{label} {score:.2f}', (left, top), color, scale)
    return canvas


def _tag(
    canvas: Any, text: str, corner: tuple[int, int], color: tuple[int, int, int], scale: float
) -> None:
    import cv2

    font, margin = cv2.FONT_HERSHEY_SIMPLEX, max(2, round(6 * scale))
    weight = max(1, round(2 * scale))
    (wide, high), baseline = cv2.getTextSize(text, font, scale, weight)
    tall = high + baseline + margin
    x = min(max(corner[0], 0), max(canvas.shape[1] - wide - 2 * margin, 0))
    # Above the box where there is room, else inside it.
    y = corner[1] - tall if corner[1] >= tall else max(corner[1], 0)
    cv2.rectangle(canvas, (x, y), (x + wide + 2 * margin, y + tall), color, cv2.FILLED)
    dark = 0.114 * color[0] + 0.587 * color[1] + 0.299 * color[2] < 140
    ink = (255, 255, 255) if dark else (0, 0, 0)
    cv2.putText(
        canvas, text, (x + margin, y + high + margin // 2), font, scale, ink, weight, cv2.LINE_AA
    )


def contact_sheet(
    images: Sequence[npt.NDArray[np.uint8]], *, columns: int = 4, height: int = 240
) -> npt.NDArray[np.uint8]:
    """Return BGR images side by side in rows of `columns`, each `height` pixels high."""
    import cv2

    gap, paper = 6, 32
    rows = []
    for start in range(0, len(images), columns):
        strip: list[npt.NDArray[Any]] = []
        for image in images[start : start + columns]:
            width = max(1, round(image.shape[1] * height / image.shape[0]))
            small = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
            strip += [np.full((height, gap, 3), paper, np.uint8), np.asarray(small)]
        rows.append(np.concatenate(strip[1:], axis=1))
    most = max(row.shape[1] for row in rows)
    sheet = []
    for row in rows:
        sheet.append(np.full((gap, most, 3), paper, np.uint8))
        left = (most - row.shape[1]) // 2
        sheet.append(
            np.pad(
                row, ((0, 0), (left, most - row.shape[1] - left), (0, 0)), constant_values=paper
            )
        )
    return np.concatenate(sheet[1:], axis=0).astype(np.uint8)
