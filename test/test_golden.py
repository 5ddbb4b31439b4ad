"""Every network of the tests gives the golden results, on onnxruntime and on the emulated DLA."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dla_ros import Detector, Thresholds
from dla_ros.predictions import Classification, Detections, Segmentation
from test.conftest import assert_same, clipped, picture, PICTURES, ROOT, rows
from test.emulation import clean, opened

MODELS = sorted(
    path.parent for folder in ('models', 'test/models')
    for path in (ROOT / folder).glob('*/model.yaml')
)
# What the goldens were made with, where it is not the default.
THRESHOLDS = {
    'fastestdet': Thresholds(confidence=0.65),
    'centerface': Thresholds(nms=0.3),
    'ultraface': Thresholds(nms=0.3),
}
GOLDEN = json.loads((ROOT / 'test/data/golden.json').read_text())


def check(prediction, expected, labels, image):
    """Compare a prediction with its golden."""
    if isinstance(prediction, Detections):
        boxes = [(label, score, clipped(box, image)) for label, score, *box in expected]
        assert_same(rows(prediction, labels), boxes)
    elif isinstance(prediction, Classification):
        best = [labels[i] for i in prediction.class_id[:3].tolist()]
        assert best == [label for label, _ in expected]
        np.testing.assert_allclose(
            prediction.score[:3], [score for _, score in expected], atol=0.02
        )
    else:
        assert isinstance(prediction, Segmentation)
        assert prediction.class_id.shape == image.shape[:2]
        counts = np.bincount(prediction.class_id.reshape(-1), minlength=256)
        shares = counts / counts.sum()
        if not isinstance(expected, dict):  # The share of the one class that is no background.
            expected = {labels[0]: 1 - expected, labels[1]: expected}
        total = sum(expected.values())
        for i, label in enumerate(labels):
            assert shares[i] == pytest.approx(expected.get(label, 0) / total, abs=0.02), label
        assert shares[len(labels) :].sum() == 0


@pytest.mark.parametrize('backend', ['onnxruntime', 'emulated DLA'])
@pytest.mark.parametrize('folder', MODELS, ids=lambda folder: folder.name)
def test_golden(folder, backend):
    with clean(), (
        Detector.open(folder) if backend == 'onnxruntime' else opened(folder, task_timeout=10.0)
    ) as detector:
        golden = GOLDEN[detector.model.onnx.name]
        for name in PICTURES:
            found = detector(
                picture(name), thresholds=THRESHOLDS.get(folder.name, Thresholds())
            )
            check(found, golden[name], detector.model.labels, picture(name))


def test_there_is_a_network_for_every_golden():
    assert {path.name for folder in MODELS for path in folder.glob('*.onnx')} == set(GOLDEN)
