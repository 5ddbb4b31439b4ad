from __future__ import annotations

from dataclasses import replace
import json

import cv2
import numpy as np
import pytest
from rosbags.highlevel import AnyReader

from dla_ros import Detector
from dla_ros.errors import BackendError
from dla_ros.replay.bag import _typestore
from dla_ros.replay.outcome import examine
from dla_ros.replay.records import read_records
from dla_ros.replay.run import attempt, Job, run_job, Summary
from dla_ros.sources.selection import Selection
from test.conftest import assert_same, picture, PICTURES, ROOT

CLIP, TOPIC = ROOT / 'demo/clip', '/camera/image_raw/compressed'


def job(tmp_path, source=CLIP, **changes):
    fields = {'topics': (TOPIC,) if source == CLIP else (), **changes}
    return Job(str(source), tmp_path / 'out', 'yolo_fastest', **fields)


def test_the_pictures_have_the_golden_detections(tmp_path, golden):
    summary = run_job(job(tmp_path, ROOT / 'demo/pictures'))
    records = read_records(tmp_path / 'out/detections.jsonl')
    assert [r.name for r in records] == PICTURES
    for record in records:
        found = [(d.class_id, d.score, list(d.xyxy)) for d in record.detections]
        assert_same(found, golden['yolo_fastest'][record.name])
        assert (record.height, record.width) == picture(record.name).shape[:2]
        assert record.stamp is None
    assert summary.frames == len(PICTURES) and not summary.failure
    assert summary.detections == sum(len(r.detections) for r in records)
    assert list(summary.stages) == ['read', 'preprocess', 'inference', 'select', 'decode']


def test_a_run_gives_the_same_bytes_every_time(tmp_path):
    first = job(tmp_path / 'a', selection=Selection(limit=5))
    second = job(tmp_path / 'b', selection=Selection(limit=5))
    run_job(first)
    run_job(second)
    files = [(j.out / 'detections.jsonl').read_bytes() for j in (first, second)]
    assert files[0] == files[1] and files[0].count(b'\n') == 5


def test_the_bag_has_the_detections_with_the_images_stamps(tmp_path):
    run_job(job(tmp_path, selection=Selection(limit=3)))
    records = read_records(tmp_path / 'out/detections.jsonl')
    with AnyReader([tmp_path / 'out/detections'], default_typestore=_typestore()) as reader:
        messages = [
            (c.topic, time, reader.deserialize(raw, c.msgtype))
            for c, time, raw in reader.messages()
        ]
    assert {topic for topic, _, _ in messages} == {f'{TOPIC}/detections_output'}
    for record, (_, time, message) in zip(records, messages, strict=True):
        stamp = message.header.stamp
        assert time == record.stamp == stamp.sec * 10**9 + stamp.nanosec
        assert message.header.frame_id == record.frame_id != ''
        assert len(message.detections) == len(record.detections) > 0
        for got, expected in zip(message.detections, record.detections, strict=True):
            box, center = got.bbox, got.bbox.center.position
            corners = (
                center.x - box.size_x / 2, center.y - box.size_y / 2,
                center.x + box.size_x / 2, center.y + box.size_y / 2,
            )
            np.testing.assert_allclose(corners, expected.xyxy, atol=1e-6)
            assert got.results[0].hypothesis.class_id == expected.class_id


def test_what_cannot_be_read_is_named_and_the_rest_goes_on(tmp_path):
    folder = tmp_path / 'pictures'
    folder.mkdir()
    cv2.imwrite(str(folder / 'a.png'), picture('coral_cat.bmp'))
    (folder / 'b.png').write_bytes(b'no picture')
    cv2.imwrite(str(folder / 'c.png'), picture('coral_cat.bmp'))
    summary = run_job(job(tmp_path, folder))
    assert [name for name, _ in summary.unreadable] == ['b.png'] and summary.frames == 2
    assert [r.index for r in read_records(tmp_path / 'out/detections.jsonl')] == [0, 2]
    saved = Summary.model_validate_json((tmp_path / 'out/summary.json').read_text())
    assert saved.unreadable == summary.unreadable


def test_an_interrupted_run_keeps_what_it_had(tmp_path):
    seen = []
    summary = run_job(
        job(tmp_path), stop=lambda: len(seen) == 4,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert summary.failure == 'interrupted after 4 of 30 images'
    assert seen == [(n, 30) for n in range(1, 5)]
    assert len(read_records(tmp_path / 'out/detections.jsonl')) == 4
    with AnyReader([tmp_path / 'out/detections'], default_typestore=_typestore()) as reader:
        assert reader.message_count == 4


def test_a_backend_that_fails_ends_the_run_and_keeps_what_it_had(tmp_path, monkeypatch):
    collect, calls = Detector.collect, []

    def failing(self, slot, timeout):
        calls.append(slot)
        if len(calls) == 3:
            raise BackendError('the DLA is gone')
        return collect(self, slot, timeout)

    monkeypatch.setattr(Detector, 'collect', failing)
    summary = run_job(job(tmp_path))
    assert (summary.failure, summary.frames) == ('the DLA is gone', 2)


@pytest.mark.parametrize(('drawing', 'made'), [('pictures', 'overlays'), ('video', 'overlay.mp4')])
def test_what_was_found_is_drawn(tmp_path, drawing, made):
    run_job(job(tmp_path, drawing=drawing, selection=Selection(limit=3)))
    place = tmp_path / 'out' / made
    if drawing == 'pictures':
        assert [p.name for p in sorted(place.iterdir())] == [f'00000{i}.jpg' for i in range(3)]
        assert cv2.imread(str(place / '000000.jpg')).shape == (576, 768, 3)
    else:
        capture = cv2.VideoCapture(str(place))
        assert capture.get(cv2.CAP_PROP_FRAME_COUNT) == 3


def test_a_second_run_removes_only_what_the_first_wrote(tmp_path):
    run_job(job(tmp_path, selection=Selection(limit=3), drawing='pictures'))
    (tmp_path / 'out/mine.txt').touch()
    run_job(job(tmp_path, selection=Selection(limit=1)))
    assert sorted(p.name for p in (tmp_path / 'out').iterdir()) == [
        'detections', 'detections.jsonl', 'mine.txt', 'summary.json'
    ]
    assert json.loads((tmp_path / 'out/summary.json').read_text())['frames'] == 1


def test_a_model_that_makes_no_detections_is_refused_by_name(tmp_path):
    model = str(ROOT / 'test/models/mobilenet_v2/model.yaml')
    summary = attempt(replace(job(tmp_path), model=model))
    assert "'mobilenet_v2'" in summary.failure and 'no detections' in summary.failure
    assert not (tmp_path / 'out').exists()


def test_a_run_that_cannot_begin_is_a_failure_and_touches_nothing(tmp_path):
    (tmp_path / 'out').mkdir()
    (tmp_path / 'out/detections.jsonl').write_text('mine')
    summary = attempt(job(tmp_path, tmp_path / 'none.mcap'))
    assert 'none.mcap does not exist' in summary.failure
    assert (tmp_path / 'out/detections.jsonl').read_text() == 'mine'
    assert examine(job(tmp_path), summary).records == []
