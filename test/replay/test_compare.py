from __future__ import annotations

from hypothesis import given, strategies as st
import pytest

from dla_ros.replay.compare import by_stamp, compare, Tolerance
from dla_ros.replay.records import DetectionRecord, FrameRecord

TOLERANCE = Tolerance(iou=0.5, score=0.05, confidence=0.35)


def frame(*detections, index=0, stamp=None):
    return FrameRecord(
        index=index, stamp=stamp, detections=tuple(
            DetectionRecord(class_id=label, score=score, xyxy=box)
            for label, score, box in detections
        ),
    )


CAT = 'cat', 0.9, (10, 10, 50, 50)


@pytest.mark.parametrize(
    ('found', 'kinds'),
    [
        ([CAT], ['matched']),
        ([('cat', 0.86, (11, 10, 50, 51))], ['matched']),
        ([('cat', 0.84, (10, 10, 50, 50))], ['score changed']),
        ([('dog', 0.9, (10, 10, 50, 50))], ['class changed']),
        ([('cat', 0.9, (35, 10, 75, 50))], ['moved']),
        ([('cat', 0.9, (50, 50, 90, 90))], ['missing', 'extra']),
        ([('dog', 0.9, (35, 10, 75, 50))], ['missing', 'extra']),
        ([], ['missing']),
        ([CAT, CAT], ['matched', 'extra']),
        ([CAT, ('dog', 0.39, (0, 0, 5, 5))], ['matched', 'borderline']),
        ([CAT, ('dog', 0.41, (0, 0, 5, 5))], ['matched', 'extra']),
    ],
)
def test_what_became_of_a_cat(found, kinds):
    result = compare([frame(CAT)], [frame(*found)], TOLERANCE)
    (only,) = result.frames
    assert [difference.kind for difference in only.objects] == kinds
    expected = sum(kind not in ('matched', 'borderline') for kind in kinds)
    assert result.differences == expected
    assert result.equal == (expected == 0)
    assert sum(result.counts()['cat'].values()) + sum(
        result.counts().get('dog', {}).values()
    ) == len(kinds)


def test_the_nearest_is_the_same_one():
    left, right = ('cat', 0.9, (0, 0, 40, 40)), ('cat', 0.7, (10, 0, 50, 40))
    result = compare([frame(left, right)], [frame(right, left)], TOLERANCE)
    assert [d.kind for d in result.frames[0].objects] == ['matched', 'matched']


def test_images_that_only_one_side_has_are_different_even_if_empty():
    result = compare([frame(index=0), frame(index=1)], [frame(index=1), frame(index=2)], TOLERANCE)
    assert [f.differences for f in result.frames] == [1, 0, 1]
    assert [(f.expected is None, f.found is None) for f in result.frames] == [
        (False, True), (False, False), (True, False)
    ]
    assert [f.frame.index for f in result.worst(5)] == [0, 2]


def test_images_may_belong_together_by_stamp():
    result = compare(
        [frame(CAT, index=0, stamp=7)], [frame(CAT, index=3, stamp=7)], TOLERANCE, by_stamp
    )
    assert result.equal and len(result.frames) == 1


boxes = st.tuples(*[st.integers(0, 30)] * 2, *[st.integers(31, 60)] * 2)
detections = st.lists(st.tuples(st.sampled_from('ab'), st.floats(0, 1), boxes), max_size=6)


@given(detections, detections)
def test_every_object_is_counted_once_whatever_there_is(before, after):
    (result,) = compare([frame(*before)], [frame(*after)], TOLERANCE).frames
    assert sorted(d.expected.score for d in result.objects if d.expected) == sorted(
        score for _, score, _ in before
    )
    assert sorted(d.found.score for d in result.objects if d.found) == sorted(
        score for _, score, _ in after
    )


@given(detections)
def test_nothing_differs_from_itself(there):
    assert compare([frame(*there)], [frame(*there)], TOLERANCE).equal
