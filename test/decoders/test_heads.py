"""The search for candidates, against a loop over all boxes that reads like the definition."""

from __future__ import annotations

from hypothesis import given, HealthCheck, settings, strategies as st
import numpy as np
import pytest

from dla_ros.decoders.heads import Head, logit, select_candidates, sigmoid, softmax, Span


@st.composite
def heads(draw, name='h'):
    """Return a head of any kind and the shapes of the outputs that it reads."""
    activation = draw(st.sampled_from(['none', 'sigmoid', 'softmax']))
    axis = draw(st.sampled_from([1, 1, 2, 3]))
    objectness, background = draw(st.booleans()), activation == 'softmax' and draw(st.booleans())
    anchors = draw(st.integers(1, 3)) if axis == 1 else 1
    classes = draw(st.integers(1, 20)) + background
    grid = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    powers = draw(st.sampled_from([(1.0, 1.0), (0.4, 0.6)]))
    apart, bins = draw(st.booleans()), draw(st.sampled_from([1, 4, 16]))
    peak, multi_label = draw(st.booleans()), draw(st.booleans())
    step = 4 + objectness + classes
    shapes = {name: _shape(anchors * step, grid, axis)}
    values = (Span(name, 4, 0, step, axis),)
    if apart:
        shapes[f'{name}_box'] = _shape(anchors * 4 * bins, grid, axis)
        shapes[f'{name}_more'] = _shape(anchors * 2, grid, 1 if axis == 1 else axis)
        values = (
            Span(f'{name}_more', 2, 0, 2, axis),
            Span(f'{name}_box', 2, 0, 4 * bins, axis, bins),
        )
    return Head(
        Span(name, classes, 4 + objectness, step, axis), values, (8.0, 8.0), activation,
        Span(name, 1, 4, step, axis) if objectness else None, anchors, background, powers,
        peak, multi_label,
    ), shapes


def _shape(values, grid, axis):
    shape = [1, *grid]
    shape.insert(axis, values)
    return tuple(shape)


def random_outputs(head, shapes, random, *, bad=True):
    """Return outputs by name with scores that make sense for the head, some of them no numbers."""
    arrays = {}
    for name, shape in shapes.items():
        logits = head.activation != 'none' or name.endswith('_box')
        values = random.normal(0, 3, shape) if logits else random.random(shape)
        if bad and name == head.scores.tensor:
            values[random.random(shape) < 0.01] = random.choice([np.nan, np.inf, -np.inf])
        arrays[name] = values.astype(np.float32)
    return arrays


def naive_select(head, tensors, confidence):
    """Every box of one head, one at a time, in float64: {place and class: (score, values)}."""
    found, bad = {}, 0

    def read(span, anchor, row, column):
        cells = np.moveaxis(tensors[span.tensor][0], span.axis - 1, 0)[:, row, column]
        first = span.first + anchor * span.step
        values = cells[first : first + span.count * span.bins].astype(np.float64)
        if span.bins > 1:
            powers = np.exp(values.reshape(span.count, span.bins))
            values = (powers / powers.sum(1, keepdims=True)) @ np.arange(span.bins)
        return values

    def scores_at(anchor, row, column):
        return read(head.scores, anchor, row, column)

    rows, columns = head.scores.cells(tensors[head.scores.tensor].shape)
    for anchor in range(head.anchors):
        for row in range(rows):
            for column in range(columns):
                raw = scores_at(anchor, row, column)
                objectness = (
                    read(head.objectness, anchor, row, column)[0] if head.objectness else 1.0
                )
                best = raw.max()
                with np.errstate(all='ignore'):
                    factor = objectness
                    if head.objectness and head.activation != 'none':
                        factor = 1 / (1 + np.exp(-objectness))
                    score = {
                        'none': raw,
                        'sigmoid': 1 / (1 + np.exp(-raw)),
                        'softmax': np.exp(raw) / np.exp(raw).sum(),
                    }[head.activation]
                    factor = factor ** (head.powers[1] if head.objectness else 1)
                    score = score ** head.powers[0] * factor
                if not np.isfinite(best) or not np.isfinite(objectness):
                    bad += 1
                    continue
                classes = range(head.background, len(raw))
                if not head.multi_label:
                    classes = [max(classes, key=lambda k, raw=raw: raw[k])]
                for k in classes:
                    around = [
                        scores_at(anchor, y, x)[k]
                        for y in range(max(row - 1, 0), min(row + 2, rows))
                        for x in range(max(column - 1, 0), min(column + 2, columns))
                    ]
                    if head.peak and any(other > raw[k] for other in around):
                        continue
                    if np.isfinite(raw[k]) and score[k] >= confidence:
                        values = [read(span, anchor, row, column) for span in head.values]
                        place = (anchor, row, column, k - head.background)
                        found[place] = score[k], np.concatenate(values)
    return found, bad


def by_place(candidates):
    names = ('anchor', 'row', 'column', 'class_id')
    places = zip(*(getattr(candidates, name).tolist() for name in names), strict=True)
    results = zip(candidates.score, candidates.values, strict=True)
    return dict(zip(places, results, strict=True))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(heads(), st.floats(0.05, 0.95), st.integers(0, 2**32 - 1))
def test_select_finds_what_a_loop_over_all_boxes_finds(drawn, confidence, seed):
    head, shapes = drawn
    tensors = random_outputs(head, shapes, np.random.default_rng(seed))
    candidates = select_candidates([head], tensors, confidence)
    found = by_place(candidates)
    certain, _ = naive_select(head, tensors, confidence + 1e-4)
    possible, bad = naive_select(head, tensors, confidence - 1e-4)
    assert set(certain) <= set(found) <= set(possible)
    for place, (score, values) in found.items():
        assert score == pytest.approx(possible[place][0], abs=1e-4)
        np.testing.assert_allclose(values, possible[place][1], rtol=1e-4, atol=1e-4)
    # What fails by a factor that is a number is not looked at any further.
    assert candidates.not_finite <= bad


@pytest.mark.parametrize('bad', [np.nan, np.inf])
@pytest.mark.parametrize('channel', [4, 5])
@pytest.mark.parametrize('activation', ['none', 'sigmoid', 'softmax'])
def test_scores_that_are_not_finite_are_no_candidates_and_counted(bad, channel, activation):
    tensor = np.full((1, 7, 2, 2), 0.9, np.float32)
    tensor[0, 6] = 0.1
    tensor[0, channel, 1, 0] = bad
    head = Head.packed('h', 2, (8.0, 8.0), activation)
    found = select_candidates([head], {'h': tensor}, 0.3)
    cells = set(zip(found.row.tolist(), found.column.tolist(), strict=True))
    assert cells == {(0, 0), (0, 1), (1, 1)} and found.not_finite == 1


def test_no_heads_give_no_candidates():
    assert len(select_candidates([], {}, 0.5).score) == 0


@given(st.floats(0, 1))
def test_logit_is_the_inverse_of_sigmoid(probability):
    x = np.array([logit(probability)], np.float32)
    assert sigmoid(x)[0] == pytest.approx(probability, abs=1e-6)


def test_sigmoid_and_softmax_do_not_overflow():
    with np.errstate(over='raise', invalid='raise', divide='raise'):
        extremes = sigmoid(np.array([-1e30, -100, 0, 100, 1e30], np.float32))
        shares = softmax(np.array([[-1e30, 1e30], [1e30, 1e30]], np.float32))
    np.testing.assert_array_equal(extremes, [0, 0, 0.5, 1, 1])
    np.testing.assert_array_equal(shares, [[0, 1], [0.5, 0.5]])
