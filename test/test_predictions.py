from __future__ import annotations

import numpy as np
import pytest

from dla_ros.predictions import Detections


def three():
    return Detections(
        np.arange(12, dtype=np.float32).reshape(3, 4),
        np.array([0.9, 0.8, 0.7], np.float32),
        np.array([2, 0, 1], np.int32),
    )


def test_rows_and_selection():
    detections = three()
    assert len(detections) == 3 and len(Detections.empty()) == 0
    chosen = detections[np.array([True, False, True])]
    assert list(chosen.rows()) == [
        ((0.0, 1.0, 2.0, 3.0), pytest.approx(0.9), 2),
        ((8.0, 9.0, 10.0, 11.0), pytest.approx(0.7), 1),
    ]


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        ({'xyxy': np.zeros((2, 4), np.float32)}, r'xyxy must be float32 \(3, 4\), but got.*2, 4'),
        ({'xyxy': np.zeros((3, 4))}, 'xyxy must be float32.*float64'),
        ({'class_id': np.zeros(3, np.int64)}, 'class_id must be int32.*int64'),
        ({'score': np.zeros((3, 1), np.float32)}, r'score must be float32 \(3,\)'),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, words):
    parts = three()
    arrays = {'xyxy': parts.xyxy, 'score': parts.score, 'class_id': parts.class_id, **change}
    with pytest.raises(ValueError, match=words):
        Detections(**arrays)
