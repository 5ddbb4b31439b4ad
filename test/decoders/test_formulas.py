"""Each decoder's boxes, on heads that are computed here from known boxes, as the papers say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dla_ros.decoders import find_decoder
from dla_ros.decoders.base import DecoderError, Thresholds
from dla_ros.decoders.heads import Candidates, select_candidates
from dla_ros.geometry import Geometry, Rect
from dla_ros.predictions import VOID
from dla_ros.tensor import four_dimensions, TensorSpec

SIZE = 64, 32
WHOLE = Geometry.fit(SIZE, SIZE, 'stretch')


def logit(p):
    return math.log(p / (1 - p))


def decoder(tensors, labels, **config):
    kind = find_decoder(config['type'])
    outputs = [
        TensorSpec.of(name, four_dimensions(values.shape), 'float32')
        for name, values in tensors.items()
    ]
    return kind(kind.Config(**config), outputs, SIZE, labels)


def decode(tensors, labels, geometry=WHOLE, thresholds=None, **config):
    """Return what a decoder makes of outputs, by the numpy reference."""
    made = decoder(tensors, labels, **config)
    four = {
        name: values.reshape(four_dimensions(values.shape)).astype(np.float32)
        for name, values in tensors.items()
    }
    thresholds = thresholds or Thresholds()
    candidates = select_candidates(made.heads, four, thresholds.confidence)
    return made.decode(candidates, four, geometry, thresholds)


def check(found, xyxy, class_id, score):
    assert found.class_id.tolist() == [class_id]
    np.testing.assert_allclose(found.xyxy, [xyxy], atol=1e-4)
    assert found.score[0] == pytest.approx(score, abs=1e-5)


def test_yolov3_and_v4():
    head = np.full((1, 2 * 7, 4, 8), -9.0)
    # The second anchor (8 x 4) of cell (3, 1), stride 8: center (28, 14) is 0.5 and 0.75 in.
    head[0, 7:, 1, 3] = [0, logit(0.75), math.log(2), 0, logit(0.9), logit(0.8), -9]
    anchors = {8: [(1, 1), (8, 4)]}
    found = decode({'h': head}, 'ab', type='yolov3', anchors=anchors)
    check(found, [20, 12, 36, 16], 0, 0.72)
    # With scale 1.2 the offsets are 1.2 * sigmoid - 0.1.
    found = decode({'h': head}, 'ab', type='yolov3', anchors=anchors, scale_x_y=1.2)
    check(found, [20, 12.4, 36, 16.4], 0, 0.72)


def test_yolov5_and_v7():
    head = np.full((1, 7, 4, 8), -9.0)
    # offset 2 * 0.75 - 0.5 = 1, size (2 * 0.75) ** 2 * 8 = 18 and (2 * 0.5) ** 2 * 4.
    head[0, :, 1, 3] = [logit(0.75), 0, logit(0.75), 0, logit(0.9), -9, logit(0.8)]
    found = decode({'h': head}, 'ab', type='yolov5', anchors={8: [(8, 4)]})
    check(found, [32 - 9, 12 - 2, 32 + 9, 12 + 2], 1, 0.72)


def distribution(value, bins):
    """Return logits whose softmax has this mean: two neighbors share it."""
    low = int(value)
    logits = np.full(bins, -50.0)
    logits[low], logits[low + 1] = math.log(1 - value + low + 1e-30), math.log(value - low + 1e-30)
    return logits


@pytest.mark.parametrize('joined', [False, True])
@pytest.mark.parametrize('keypoints', [0, 2])
def test_yolov8(joined, keypoints):
    bins, sides = 8, [1.5, 0.25, 2.0, 1.0]
    boxes, classes = np.zeros((1, 4 * bins, 4, 8)), np.full((1, 3, 4, 8), -9.0)
    boxes[0, :, 2, 5] = np.concatenate([distribution(side, bins) for side in sides])
    classes[0, 1, 2, 5] = logit(0.9)
    tensors = {'c': classes, 'b': boxes}
    if joined:
        tensors = {'j': np.concatenate([boxes, classes], 1)}
    if keypoints:
        points = np.zeros((1, 6, 4, 8))
        points[0, :, 2, 5] = [0.5, 0.25, logit(0.75), -1, 0, 0]
        tensors['k'] = points
    found = decode(tensors, 'abc', type='yolov8', bins=bins, keypoints=keypoints)
    check(found, [(5.5 - 1.5) * 8, (2.5 - 0.25) * 8, (5.5 + 2) * 8, (2.5 + 1) * 8], 1, 0.9)
    if keypoints:
        expected = [[[(2 * 0.5 + 5) * 8, (2 * 0.25 + 2) * 8, 0.75], [(5 - 2) * 8, 2 * 8, 0.5]]]
        np.testing.assert_allclose(found.keypoints, expected, rtol=1e-5)
    else:
        assert found.keypoints is None


@pytest.mark.parametrize('shape', ['vb', 'bv', 'vb11'])
@pytest.mark.parametrize('objectness', [False, True])
def test_decoded_exports(shape, objectness):
    values = np.zeros((1, 6 + objectness, 50))
    box = [30, 16, 10, 8, *([0.9] if objectness else []), 0.1, 0.8]
    values[0, :, 7] = box
    tensor = {
        'vb': values, 'bv': values.transpose(0, 2, 1), 'vb11': values[:, :, None],
    }[shape]
    found = decode({'o': tensor}, 'ab', type='decoded', objectness=objectness)
    check(found, [25, 12, 35, 20], 1, 0.72 if objectness else 0.8)


def test_yolox_as_exported():
    # Strides 8 and 16: 32 cells, then 8; the last cell of all is (3, 1).
    values = np.zeros((1, 40, 7))
    values[0, 39] = [0.5, 0.25, math.log(0.5), math.log(0.25), 0.9, 0.8, 0]
    found = decode({'o': values}, 'ab', type='yolox', strides=[8, 16])
    check(found, [56 - 4, 20 - 2, 56 + 4, 20 + 2], 0, 0.72)
    with pytest.raises(DecoderError, match='40 boxes, but strides 8 make 32 in 64x32'):
        decoder({'o': values}, 'ab', type='yolox', strides=[8])


PRIORS = {8: [(10, 6), (20, 4)], 16: [(16, 16)]}


@pytest.mark.parametrize('order', ['xy', 'yx'])
@pytest.mark.parametrize('flat', [False, True])
def test_ssd_with_priors(flat, order):
    scores8, boxes8 = np.zeros((1, 6, 4, 8)), np.zeros((1, 8, 4, 8))
    scores16, boxes16 = np.zeros((1, 3, 2, 4)), np.zeros((1, 4, 2, 4))
    for scores in (scores8, scores16):
        scores[0, ::3] = 9.0  # The background.
    scores8[0, 3:, 1, 3] = [0, math.log(2), math.log(7)]
    # Prior 20 x 4 at (28, 12): center +2 and +1, size doubled and halved.
    offsets = [2 / 20 / 0.1, 1 / 4 / 0.1, math.log(2) / 0.2, math.log(0.5) / 0.2]
    if order == 'yx':
        offsets = [offsets[1], offsets[0], offsets[3], offsets[2]]
    boxes8[0, 4:, 1, 3] = offsets
    tensors = {'s8': scores8, 'b8': boxes8, 's16': scores16, 'b16': boxes16}
    names = {'scores': ['s8', 's16'], 'boxes': ['b8', 'b16']}
    if flat:
        def rows(tensor, values):
            return tensor.transpose(0, 2, 3, 1).reshape(1, -1, values)

        tensors = {
            's': np.concatenate([rows(scores8, 3), rows(scores16, 3)], 1),
            'b': np.concatenate([rows(boxes8, 4), rows(boxes16, 4)], 1),
        }
        names = {'scores': ['s'], 'boxes': ['b']}
    found = decode(tensors, 'ab', type='ssd', order=order, priors=PRIORS, **names)
    check(found, [30 - 20, 13 - 1, 30 + 20, 13 + 1], 1, 0.7)


def test_centernet_takes_peaks_only():
    heat, size, offset = (np.zeros((1, c, 4, 8)) for c in (2, 2, 2))
    heat[0, 1, 1, 3], heat[0, 1, 1, 4], heat[0, 0, 2, 4] = 0.9, 0.8, 0.7
    size[0, :, 1, 3], offset[0, :, 1, 3] = [2, 1], [0.5, 0.25]
    size[0, :] += 1e-3
    found = decode(
        {'heat': heat, 'size': size, 'offset': offset}, 'ab', type='centernet', heatmap='heat',
        size='size', offset='offset', thresholds=Thresholds(confidence=0.75),
    )
    check(found, [28 - 8.004, 10 - 4.004, 28 + 8.004, 10 + 4.004], 1, 0.9)


def test_centerface_has_y_before_x():
    heat, size, offset, marks = (np.zeros((1, c, 4, 8)) for c in (1, 2, 2, 4))
    heat[0, 0, 1, 3] = 0.9
    size[0, :, 1, 3] = [math.log(0.5), math.log(2)]  # height 4, width 16
    offset[0, :, 1, 3] = [0.25, 0.0]
    marks[0, :, 1, 3] = [0.5, 0.25, 1.0, 1.0]
    found = decode(
        {'1': heat, '2': size, '3': offset, '4': marks}, ['face'], type='centerface',
        heatmap='1', size='2', offset='3', landmarks='4',
    )
    check(found, [28 - 8, 14 - 2, 28 + 8, 14 + 2], 0, 0.9)
    np.testing.assert_allclose(found.keypoints, [[[24, 14, 0.9], [36, 16, 0.9]]], rtol=1e-5)


@pytest.mark.parametrize('logits', [False, True])
def test_fastestdet(logits):
    head = np.zeros((1, 7, 4, 8))
    head[0, 5:] = [[[0.5]], [[0.5]]]
    scores = [0.8, 0.9, 0.1] if not logits else [logit(0.8), math.log(9), 0]
    head[0, :, 1, 3] = [scores[0], math.atanh(0.5), 0, logit(0.25), logit(0.5), *scores[1:]]
    if logits:
        head[0, 0][head[0, 0] == 0] = -9
    found = decode({'h': head}, 'ab', type='fastestdet', logits=logits)
    check(found, [28 - 8, 8 - 8, 28 + 8, 8 + 8], 0, 0.8**0.6 * 0.9**0.4)


@pytest.mark.parametrize('activation', ['softmax', 'none', 'sigmoid'])
def test_classification(activation):
    raw = np.array([[0.1, 2.0, np.nan, -1.0, 1.0]])
    clean = raw.copy()
    clean[0, 2] = -50
    values = raw if activation != 'softmax' else clean
    found = decode({'o': values}, 'abcde', type='classification', activation=activation, top_k=3)
    assert found.class_id.tolist() == [1, 4, 0]
    expected = {
        'softmax': np.exp(clean[0]) / np.exp(clean[0]).sum(), 'none': raw[0],
        'sigmoid': 1 / (1 + np.exp(-raw[0])),
    }[activation]
    np.testing.assert_allclose(found.score, expected[[1, 4, 0]], rtol=1e-5)
    wanted = Thresholds(class_ids=frozenset({0, 3}))
    found = decode({'o': values}, 'abcde', type='classification', activation=activation,
                   thresholds=wanted)
    assert found.class_id.tolist() == [0, 3]


def test_segmentation_goes_back_to_the_source():
    scores = np.zeros((1, 2, 32, 64))
    scores[0, 1, :, 40:] = 3.0
    geometry = Geometry.fit((200, 100), SIZE, 'stretch', roi=Rect(50, 20, 100, 60))
    found = decode({'o': scores}, 'ab', geometry, type='segmentation', confidence=True)
    assert found.class_id.shape == found.confidence.shape == (100, 200)
    expected = np.full((100, 200), VOID)
    expected[20:80, 50:150] = 0
    expected[20:80, 50 + round(40 / 64 * 100) : 150] = 1
    assert (found.class_id != expected).mean() < 0.01
    assert found.confidence[50, 149] == pytest.approx(1 / (1 + math.exp(-3)))
    assert found.confidence[0, 0] == 0
    network = decode({'o': scores}, 'ab', geometry, type='segmentation', size='network')
    assert network.class_id.shape == (32, 64) and network.confidence is None


def test_a_letterboxed_segmentation_leaves_the_border_out():
    scores = np.zeros((1, 2, 32, 64))
    scores[0, 1, :, 16:48] = 1.0  # A square image fills the middle.
    geometry = Geometry.fit((90, 90), SIZE, 'letterbox')
    found = decode({'o': scores}, 'ab', geometry, type='segmentation')
    assert found.class_id.shape == (90, 90) and (found.class_id == 1).all()


def test_a_mask_of_one_channel():
    share = np.full((1, 1, 32, 64), 0.4)
    share[..., 20:] = 0.6
    found = decode({'o': share}, 'ab', type='segmentation', activation='none', confidence=True)
    assert (found.class_id == (np.arange(64) >= 20)).all()
    np.testing.assert_allclose(found.confidence, 0.6, rtol=1e-6)
    found = decode({'o': share}, 'ab', type='segmentation', activation='none', threshold=0.7)
    assert not found.class_id.any()


def zeros(*shape):
    return np.zeros((1, *shape))


@pytest.mark.parametrize(
    ('tensors', 'labels', 'config', 'words'),
    [
        ({'b': zeros(64, 4, 8), 'c': zeros(80, 4, 8)}, 'ab', {'type': 'yolov8'},
         "no output of 2 channels for classes .*'c' with 80"),
        ({'o': zeros(84, 50)}, 'ab', {'type': 'decoded'}, '1x1x84x50, but 2 labels need 6'),
        ({'o': zeros(6, 50), 'p': zeros(3, 3)}, 'ab', {'type': 'decoded'}, 'one output.*not 2'),
        ({'h': zeros(85, 4, 8)}, 'ab', {'type': 'fastestdet'}, '80 classes, but there are 2'),
        ({'h': zeros(255, 4, 8)}, 'ab', {'type': 'yolov5', 'anchors': {8: [(1, 2)]}},
         '255 channels, but 1 anchors and 2 labels need 7'),
        ({'o': zeros(1000)}, 'ab', {'type': 'classification'}, '1000 scores, .* 2 labels'),
        ({'o': zeros(21, 4, 8)}, 'ab', {'type': 'segmentation'}, '21 channels, .* 2 labels'),
        ({'o': zeros(1, 4, 8)}, 'abc', {'type': 'segmentation'}, '1 channels.* 3 labels, not 2'),
        ({'h': zeros(80, 4, 8)}, 'ab',
         {'type': 'centernet', 'heatmap': 'h', 'size': 's', 'offset': 'o'},
         "'h' has 80 channels, but the 2 labels need 2"),
        ({'h': zeros(2, 4, 8)}, 'ab',
         {'type': 'centernet', 'heatmap': 'h', 'size': 's', 'offset': 'o'},
         "no output 's' for width and height; the network has 'h'"),
        ({'s': zeros(50, 3), 'b': zeros(50, 4)}, 'abc', {'type': 'ssd', 'scores': ['s'],
         'boxes': ['b']}, "'s' is 50x3, but the labels need 4 scores"),
        ({'s': zeros(50, 3), 'b': zeros(50, 4)}, 'ab', {'type': 'ssd', 'scores': ['s'],
         'boxes': ['b'], 'priors': PRIORS}, '72 priors for 50 boxes'),
        ({'s': zeros(50, 3)}, 'ab', {'type': 'ssd', 'scores': ['s'], 'boxes': ['x']},
         "no output 'x'"),
        ({'s': zeros(6, 4, 8), 'b': zeros(8, 4, 8)}, 'ab', {'type': 'ssd', 'scores': ['s'],
         'boxes': ['b'], 'priors': {16: [(1, 1)]}}, 'stride 8, but decoder.priors has 16'),
    ],
)
def test_what_does_not_fit_is_refused_with_both_numbers(tensors, labels, config, words):
    with pytest.raises(DecoderError, match=words):
        decoder(tensors, labels, **config)


def test_multi_label_and_class_agnostic_nms():
    head = np.zeros((1, 7, 4, 8))
    head[0, :, 1, 3] = [0, 0, 0, 0, 1, 0.6, 0.9]
    both = decode({'h': head}, 'ab', type='yolox', multi_label=True)
    assert both.class_id.tolist() == [1, 0]
    assert decode({'h': head}, 'ab', type='yolox').class_id.tolist() == [1]
    thresholds = Thresholds(class_agnostic=True)
    one = decode({'h': head}, 'ab', thresholds=thresholds, type='yolox', multi_label=True)
    assert one.class_id.tolist() == [1]


def test_no_candidates_make_no_boxes():
    for name, config in {
        'yolov8': {'keypoints': 1}, 'centernet': {}, 'fastestdet': {}, 'decoded': {},
    }.items():
        kind = find_decoder(name)
        tensors = {
            'yolov8': {'b': zeros(64, 4, 8), 'c': zeros(2, 4, 8), 'k': zeros(3, 4, 8)},
            'centernet': {'h': zeros(2, 4, 8), 's': zeros(2, 4, 8), 'o': zeros(2, 4, 8)},
            'fastestdet': {'h': zeros(7, 4, 8)}, 'decoded': {'o': zeros(6, 9)},
        }[name]
        names = {'heatmap': 'h', 'size': 's', 'offset': 'o'} if name == 'centernet' else {}
        found = decode(
            tensors, 'ab', type=name, **config, **names, thresholds=Thresholds(confidence=0.6)
        )
        assert len(found) == 0 and kind.makes is type(found)
    assert len(Candidates.none().score) == 0
