from __future__ import annotations

import math

import numpy as np
import pytest

from dla_ros.decoders.base import DecoderError
from dla_ros.decoders.heads import select_candidates
from dla_ros.decoders.yolox import YoloxConfig, YoloxDecoder
from dla_ros.tensor import TensorSpec

LABELS = ('a', 'b')


def decoder(*sizes, channels=7, network=(64, 32)):
    outputs = [
        TensorSpec.of(f'head{i}', (1, channels, *size), 'float32') for i, size in enumerate(sizes)
    ]
    return YoloxDecoder(YoloxConfig(type='yolox'), outputs, network, LABELS)


def test_strides_come_from_the_sizes():
    heads = decoder((4, 8), (2, 4)).heads
    assert [head.stride for head in heads] == [(8.0, 8.0), (16.0, 16.0)]
    assert all(head.activation == 'none' and head.scores.count == 2 for head in heads)


def test_boxes_follow_the_formula():
    tensors = {'head0': np.zeros((1, 7, 4, 8), np.float32),
               'head1': np.zeros((1, 7, 2, 4), np.float32)}
    tensors['head1'][0, :, 1, 3] = [0.25, -0.5, math.log(2), math.log(0.5), 0.9, 0.1, 0.8]
    subject = decoder((4, 8), (2, 4))
    found = select_candidates(subject.heads, tensors, 0.5)
    assert found.class_id.tolist() == [1] and found.score[0] == pytest.approx(0.72)
    # Center ((3 + 0.25) * 16, (1 - 0.5) * 16), size (32, 8).
    np.testing.assert_allclose(subject.boxes(found), [[36, 4, 68, 12]], rtol=1e-6)


def test_labels_that_do_not_fit_are_refused_with_both_numbers():
    with pytest.raises(DecoderError, match=r"'head0' has 85 channels.*80 classes.*2 labels"):
        decoder((4, 8), channels=85)
