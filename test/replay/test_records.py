from __future__ import annotations

import json

import pytest

from dla_ros.replay.records import (
    DetectionRecord,
    FrameRecord,
    read_records,
    RecordError,
    write_records,
)


def test_a_line_has_its_keys_in_order_and_rounded_numbers(tmp_path):
    row = 'cat', 0.123456, (1.23456, 2.0, 30.005, 4.999)
    record = FrameRecord(
        index=3, name='a[3]', topic='/t', stamp=17, frame_id='c', width=64, height=48,
        detections=(DetectionRecord.of(row),),
    )
    path = tmp_path / 'd.jsonl'
    write_records(path, [record, record])
    first, second = path.read_text().splitlines()
    assert first == second == (
        '{"index":3,"name":"a[3]","topic":"/t","stamp":17,"frame_id":"c","width":64,"height":48,'
        '"detections":[{"class_id":"cat","score":0.1235,"xyxy":[1.23,2.0,30.0,5.0]}]}'
    )
    assert read_records(path) == [record, record]
    assert json.loads(first)['detections'][0]['class_id'] == 'cat'


@pytest.mark.parametrize(
    ('line', 'words'),
    [
        ('{', 'line 2: .*Invalid JSON'),
        ('{"detections": []}', 'line 2: index Field required'),
        ('{"index": 1, "detections": [{"class_id": "a", "score": "x", "xyxy": [1, 2, 3, 4]}]}',
         r'line 2: detections\.0\.score'),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, words):
    path = tmp_path / 'd.jsonl'
    path.write_text('{"index": 0, "detections": []}\n' + line + '\n')
    with pytest.raises(RecordError, match=words):
        read_records(path)
    with pytest.raises(RecordError, match='none.jsonl'):
        read_records(tmp_path / 'none.jsonl')
