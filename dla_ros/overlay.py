"""Pictures of detections, to look at."""

from __future__ import annotations

from collections.abc import Sequence
import colorsys
from typing import Any

import numpy as np
import numpy.typing as npt

from dla_ros.predictions import Classification, Detections, Prediction, Segmentation, VOID

Row = tuple[str, float, Sequence[float]]
"""Label, score, and left, top, right, bottom in pixels."""

_GOLDEN = 0.618033988749895
_KEYPOINT = 0.5  # Keypoints of a lower score are not drawn.


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


def draw_prediction(
    image: npt.NDArray[np.uint8], prediction: Prediction, labels: Sequence[str]
) -> npt.NDArray[np.uint8]:
    """Return a copy of a BGR image [H, W, 3] with boxes and keypoints, a mask, or classes."""
    if isinstance(prediction, Detections):
        rows = [(labels[i], score, box) for box, score, i in prediction.rows()]
        return _draw_keypoints(draw(image, rows), prediction, labels)
    if isinstance(prediction, Segmentation):
        return draw_mask(image, prediction.class_id, labels)
    return _draw_classes(image, prediction, labels)


def _draw_keypoints(
    canvas: npt.NDArray[np.uint8], detections: Detections, labels: Sequence[str]
) -> npt.NDArray[np.uint8]:
    import cv2

    if detections.keypoints is None:
        return canvas
    radius = max(2, round(max(canvas.shape[:2]) / 200))
    for points, class_id in zip(detections.keypoints, detections.class_id, strict=True):
        for x, y, score in points.tolist():
            if score >= _KEYPOINT and np.isfinite([x, y]).all():
                place = round(x), round(y)
                cv2.circle(canvas, place, radius + 1, (255, 255, 255), cv2.FILLED, cv2.LINE_AA)
                cv2.circle(
                    canvas, place, radius, label_color(labels[class_id]), cv2.FILLED, cv2.LINE_AA
                )
    return canvas


def draw_mask(
    image: npt.NDArray[np.uint8], class_id: npt.NDArray[np.uint8], labels: Sequence[str]
) -> npt.NDArray[np.uint8]:
    """Return a BGR image [H, W, 3] tinted by a label image of any size, with a legend.

    The first label, the background, is left as it is; what was not looked at is darkened.
    """
    import cv2

    height, width = image.shape[:2]
    if class_id.shape != (height, width):
        class_id = np.asarray(
            cv2.resize(class_id, (width, height), interpolation=cv2.INTER_NEAREST), np.uint8
        )
    tints = np.zeros((256, 3), np.float32)
    shares = np.zeros((256, 1), np.float32)
    present = [i for i in np.unique(class_id).tolist() if 0 < i < len(labels)]
    for i in present:
        tints[i], shares[i] = label_color(labels[i]), 0.55
    shares[VOID] = 0.55
    share = shares[class_id]
    canvas = (image * (1 - share) + tints[class_id] * share).astype(np.uint8)
    _legend(canvas, [(labels[i], label_color(labels[i])) for i in present])
    return canvas


def _draw_classes(
    image: npt.NDArray[np.uint8], classification: Classification, labels: Sequence[str]
) -> npt.NDArray[np.uint8]:
    canvas = image.copy()
    rows = zip(classification.class_id.tolist(), classification.score.tolist(), strict=True)
    _legend(canvas, [(f'{labels[i]} {score:.2f}', label_color(labels[i])) for i, score in rows])
    return canvas


def _legend(canvas: Any, lines: Sequence[tuple[str, tuple[int, int, int]]]) -> None:
    scale = max(0.35, max(canvas.shape[:2]) / 1500)
    top = 0
    for text, color in lines:
        # Inside the picture, each line below the one before.
        top += _tag(canvas, text, (0, top), color, scale, above=False)


def _tag(
    canvas: Any,
    text: str,
    corner: tuple[int, int],
    color: tuple[int, int, int],
    scale: float,
    *,
    above: bool = True,
) -> int:
    """Write a line on a ground of its own, above a corner or below; return its height."""
    import cv2

    font, margin = cv2.FONT_HERSHEY_SIMPLEX, max(2, round(6 * scale))
    weight = max(1, round(2 * scale))
    (wide, high), baseline = cv2.getTextSize(text, font, scale, weight)
    tall = high + baseline + margin
    x = min(max(corner[0], 0), max(canvas.shape[1] - wide - 2 * margin, 0))
    # Above the box where there is room, else inside it.
    y = corner[1] - tall if above and corner[1] >= tall else max(corner[1], 0)
    cv2.rectangle(canvas, (x, y), (x + wide + 2 * margin, y + tall), color, cv2.FILLED)
    dark = 0.114 * color[0] + 0.587 * color[1] + 0.299 * color[2] < 140
    ink = (255, 255, 255) if dark else (0, 0, 0)
    cv2.putText(
        canvas, text, (x + margin, y + high + margin // 2), font, scale, ink, weight, cv2.LINE_AA
    )
    return int(tall)


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
