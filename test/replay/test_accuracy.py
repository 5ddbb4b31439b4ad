"""Average precision, on labels made from detections, so that the result is known."""

from __future__ import annotations

import json

import pytest

from dla_ros.replay.accuracy import accuracy, GroundTruthError
from dla_ros.replay.records import DetectionRecord, FrameRecord

BOXES = {'a.png': ('cat', (10.0, 20.0, 110.0, 90.0)), 'b.png': ('dog', (0.0, 0.0, 64.0, 64.0))}


@pytest.fixture
def labels(tmp_path):
    truth = {
        'images': [{'id': i, 'file_name': name} for i, name in enumerate(BOXES, 1)],
        'categories': [{'id': 17, 'name': 'Cat'}, {'id': 18, 'name': 'dog'}],
        'annotations': [
            {
                'id': i, 'image_id': i, 'category_id': 17 if label == 'cat' else 18,
                'bbox': [left, top, right - left, bottom - top], 'iscrowd': 0,
                'area': (right - left) * (bottom - top),
            }
            for i, (label, (left, top, right, bottom)) in enumerate(BOXES.values(), 1)
        ],
    }
    path = tmp_path / 'coco.json'
    path.write_text(json.dumps(truth))
    return path


def records(**boxes):
    return [
        FrameRecord(index=i, name=f'{name}.png', detections=tuple(
            DetectionRecord(class_id=label, score=0.9, xyxy=box) for label, box in found
        ))
        for i, (name, found) in enumerate(boxes.items())
    ]


def test_perfect_detections_have_a_precision_of_one(labels, capsys):
    found = accuracy(labels, records(a=[BOXES['a.png']], b=[BOXES['b.png']], c=[BOXES['a.png']]))
    assert found == (pytest.approx(1), pytest.approx(1), pytest.approx(1), 2)
    assert capsys.readouterr().out == ''


def test_a_box_of_iou_0_6_counts_at_0_5_only(labels):
    narrow = 'cat', (10.0, 20.0, 70.0, 90.0)
    found = accuracy(labels, records(a=[narrow], b=[BOXES['b.png']]))
    assert (found.map50, found.map75) == (pytest.approx(1), pytest.approx(0.5))
    assert 0.5 < found.map < 1


def test_nothing_found_is_a_precision_of_zero(labels):
    assert accuracy(labels, records(a=[], b=[('chair', (0.0, 0.0, 9.0, 9.0))])) == (0, 0, 0, 2)


def test_labels_that_cannot_be_used_are_refused(labels, tmp_path):
    with pytest.raises(GroundTruthError, match='none of its 2 file names is among the 1 images'):
        accuracy(labels, records(z=[]))
    for content in ('', '[]', '{}', '{"images": 3}'):
        (tmp_path / 'bad.json').write_text(content)
        with pytest.raises(GroundTruthError, match=r'bad\.json is no COCO file'):
            accuracy(tmp_path / 'bad.json', records(a=[]))
    with pytest.raises(GroundTruthError, match='no COCO file'):
        accuracy(tmp_path / 'none.json', records(a=[]))
