from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest

ROOT = Path(__file__).resolve().parent.parent
PICTURES = sorted(p.name for p in (ROOT / 'demo' / 'pictures').iterdir())
# The model's name here, and its name in golden.json.
MODELS = {
    'yolox_nano': 'yolox_nano_416_dla_fp16.onnx',
    'yolo_fastest': 'yolo_fastest_1.1_xl_320_fp16.onnx',
}

Row = tuple[str, float, list[float]]


@pytest.fixture(scope='session')
def golden() -> dict[str, dict[str, list[Row]]]:
    """Model -> picture -> [(label, score, [left, top, right, bottom])], clipped to the picture."""
    content: dict[str, Any] = json.loads((ROOT / 'test/data/golden.json').read_text())
    return {
        model: {
            name: [
                (row[0], row[1], clipped(row[2:], picture(name))) for row in content[key][name]
            ]
            for name in PICTURES
        }
        for model, key in MODELS.items()
    }


def clipped(box: list[float], image: npt.NDArray[np.uint8]) -> list[float]:
    height, width = image.shape[:2]
    return [
        float(np.clip(value, 0, most))
        for value, most in zip(box, (width, height) * 2, strict=True)
    ]


_loaded: dict[str, npt.NDArray[np.uint8]] = {}


def picture(name: str) -> npt.NDArray[np.uint8]:
    """Return a picture of the demo, BGR."""
    if name not in _loaded:
        _loaded[name] = np.asarray(cv2.imread(str(ROOT / 'demo/pictures' / name)), np.uint8)
    return _loaded[name]


def rows(detections: Any, labels: tuple[str, ...]) -> list[Row]:
    """Return detections as golden rows."""
    return [
        (labels[c], float(s), [float(v) for v in box])
        for c, s, box in zip(
            detections.class_id, detections.score, detections.xyxy, strict=True
        )
    ]


def iou(a: list[float], b: list[float]) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    shared = max(width, 0.0) * max(height, 0.0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return shared / (sum(areas) - shared)


def assert_same(
    found: list[Row], expected: list[Row], *, overlap: float = 0.9, tolerance: float = 0.02
) -> None:
    """Fail unless each expected row has its own found row: label, score, box; and none is left."""
    left = list(found)
    for label, score, box in expected:
        match = [
            row for row in left
            if row[0] == label and abs(row[1] - score) <= tolerance and iou(row[2], box) >= overlap
        ]
        assert match, f'nothing like {label} {score} {box} in {found}'
        left.remove(match[0])
    assert not left, f'not expected: {left}'


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the quick tests before those that start processes."""
    slow = (
        'test_bindings', 'test_campaign', 'test_node_cudla', 'test_node_detections', 'test_node',
        'test_main', 'test_demo', 'test_packaging', 'test_bootstrap',
    )
    items.sort(key=lambda item: item.path.stem in slow)
