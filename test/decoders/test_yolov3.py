from __future__ import annotations

import math

import numpy as np
import pytest

from dla_ros.decoders.base import DecoderError
from dla_ros.decoders.heads import select_candidates
from dla_ros.decoders.yolov3 import Yolov3Config, Yolov3Decoder
from dla_ros.tensor import TensorSpec

LABELS = ('a', 'b', 'c')
ANCHORS = {16: [(10, 20), (30, 40)], 32: [(50, 60)]}


def decoder(*shapes, anchors=ANCHORS):
    outputs = [TensorSpec.of(f'head{i}', shape, 'float32') for i, shape in enumerate(shapes)]
    config = Yolov3Config(type='yolov3', anchors=anchors)
    return Yolov3Decoder(config, outputs, (64, 64), LABELS)


def test_anchors_are_found_by_stride_whatever_the_order_of_outputs():
    subject = decoder((1, 8, 2, 2), (1, 16, 4, 4))
    assert [(h.anchors, h.stride, h.activation) for h in subject.heads] == [
        (1, (32.0, 32.0), 'sigmoid'), (2, (16.0, 16.0), 'sigmoid')
    ]
    tensors = {'head0': np.full((1, 8, 2, 2), -9, np.float32),
               'head1': np.full((1, 16, 4, 4), -9, np.float32)}
    # The second anchor of the second output, row 2, column 1.
    tensors['head1'][0, 8:, 2, 1] = [0, math.log(3), math.log(2), 0, 4, -9, 5, -9]
    found = select_candidates(subject.heads, tensors, 0.5)
    assert found.anchor.tolist() == [1] and found.class_id.tolist() == [1]
    expected = 1 / (1 + math.exp(-4)) / (1 + math.exp(-5))
    assert found.score[0] == pytest.approx(expected)
    # Center ((1 + 1/2) * 16, (2 + 3/4) * 16), size (30 * 2, 40).
    np.testing.assert_allclose(subject.boxes(found), [[-6, 24, 54, 64]], rtol=1e-5)


def test_what_does_not_fit_is_refused_with_both_numbers():
    with pytest.raises(DecoderError, match=r"'head0' has stride 8.*16, 32"):
        decoder((1, 16, 8, 8))
    with pytest.raises(DecoderError, match=r"'head0' has 255 channels.*2 anchors.*3 labels.*16"):
        decoder((1, 255, 4, 4))


@pytest.mark.parametrize('anchors', [{}, {16: [(0, 5)]}, {0: [(1, 1)]}, {16: [(1, 2, 3)]}])
def test_impossible_anchors_are_refused(anchors):
    with pytest.raises(ValueError, match='anchors'):
        Yolov3Config(type='yolov3', anchors=anchors)
