"""The replay tool as its user has it: exit codes, files, signals, ROS."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time

import pytest
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import Writer
from rosbags.typesys import get_typestore, Stores

from dla_ros.replay.records import read_records, write_records
from test.conftest import ROOT
from test.ros import ENVIRONMENT
from test.tools.test_play_and_listen import tool

CLIP = ('demo/clip', '--topic', '/camera/image_raw/compressed', '--model', 'yolo_fastest')


def replay(*words, timeout=100):
    return tool('replay', *words, timeout=timeout)


def test_accepted_equal_different(tmp_path):
    golden, out = tmp_path / 'golden.jsonl', tmp_path / 'out'
    words = (*CLIP, '--limit', '6', '--out', str(out), '--expect', str(golden))
    missing = replay(*words)
    assert missing.returncode == 2 and 'golden.jsonl does not exist' in missing.stderr
    assert replay(*words, '--accept').returncode == 0
    assert len(read_records(golden)) == 6
    again = replay(*words)
    assert again.returncode == 2 and 'not empty; use --force' in again.stderr
    equal = replay(*words, '--force')
    assert equal.returncode == 0 and 'as expected' in equal.stdout
    records = read_records(golden)
    lost = records[2].model_copy(update={'detections': records[2].detections[1:]})
    write_records(golden, [*records[:2], lost, *records[3:]])
    changed = replay(*words, '--force')
    assert changed.returncode == 1 and '1 differences' in changed.stdout
    page = (out / 'report.html').read_text()
    assert 'image 2 clip[2]: 1 differences' in page and '<li>extra:' in page
    # A contact sheet, two charts, the worst image; nothing from elsewhere.
    assert page.count('data:image/jpeg;base64,') == 2 and page.count('<svg') == 2
    outside = re.sub(r'<svg.*?</svg>', '', page, flags=re.DOTALL)
    assert not re.findall(r'(?:src|href)="(?!data:|#)', outside)


def test_several_sources_have_one_report_and_a_failure_is_told(tmp_path):
    out = tmp_path / 'out'
    done = replay(
        'demo/pictures/coral_*.bmp', 'demo/none.mcap', '--model', 'yolo_fastest',
        '--out', str(out), '--jobs', '2',
    )
    assert done.returncode == 2
    assert 'none.mcap does not exist' in done.stdout
    folders = sorted(p.name for p in out.iterdir() if p.is_dir())
    assert 'coral_cat' in folders and len(folders) == 4
    (record,) = read_records(out / 'coral_cat/detections.jsonl')
    assert record.detections[0].class_id == 'cat'
    page = (out / 'report.html').read_text()
    assert page.count('<section') == 5 and 'none.mcap does not exist' in page


def test_ground_truth_gives_the_mean_average_precision(tmp_path):
    (tmp_path / 'coco.json').write_text(
        '{"images": [{"id": 1, "file_name": "coral_cat.bmp"}], "annotations": [{"id": 1, '
        '"image_id": 1, "category_id": 1, "bbox": [0, 0, 9, 9], "area": 81, "iscrowd": 0}], '
        '"categories": [{"id": 1, "name": "cat"}]}'
    )
    done = replay(
        'demo/pictures', '--model', 'yolo_fastest', '--out', str(tmp_path / 'out'),
        '--ground-truth', str(tmp_path / 'coco.json'),
    )
    assert done.returncode == 0 and 'on 1 labeled images' in done.stdout, done
    assert 'mAP 0.000' in (tmp_path / 'out/report.html').read_text()


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_what_it_had_and_says_so(tmp_path, number):
    out = tmp_path / 'out'
    process = subprocess.Popen(
        [sys.executable, '-m', 'dla_ros', 'replay', 'test/data/vtest.avi',
         '--model', 'yolox_nano', '--out', str(out)],
        cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    records, deadline = out / 'detections.jsonl', time.monotonic() + 60
    while not (records.is_file() and records.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 2, text
    assert 'interrupted after' in text and 'Traceback' not in text
    assert 0 < len(read_records(records)) < 795
    assert 'interrupted after' in (out / 'report.html').read_text()


def test_through_ros_gives_the_same_each_time_round(tmp_path):
    done = replay(
        *CLIP, '--out', str(tmp_path / 'out'), '--through-ros', '--loop', '2', '--rate', '8',
        '--every', '2',
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for i in (1, 2):
        assert re.search(rf'through ROS, time {i} │ 15 images, 0 differences', done.stdout)
    assert len(read_records(tmp_path / 'out/through_ros.jsonl')) == 30


def test_through_ros_leaves_out_what_cannot_be_read(tmp_path):
    store, bag = get_typestore(Stores.ROS2_JAZZY), tmp_path / 'bag'
    with AnyReader([ROOT / 'demo/clip'], default_typestore=store) as reader:
        (connection,) = (c for c in reader.connections if c.topic.endswith('/compressed'))
        messages = [(at, bytes(raw)) for _, at, raw in reader.messages([connection])][:4]
    # A JPEG that is none: its first bytes are zero.
    start = messages[1][1].index(b'\xff\xd8')
    messages[1] = messages[1][0], messages[1][1][:start] + bytes(9) + messages[1][1][start + 9 :]
    with Writer(bag, version=9) as writer:
        added = writer.add_connection('/cam', connection.msgtype, typestore=store)
        for at, raw in messages:
            writer.write(added, at, raw)
    done = replay(
        str(bag), '--model', 'yolo_fastest', '--out', str(tmp_path / 'out'), '--through-ros'
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'bag[1]' in done.stdout and '3 images, 0 differences' in done.stdout
    assert 'left out: bag[1]' in (tmp_path / 'out/player.log').read_text()


@pytest.mark.parametrize(
    ('words', 'text'),
    [
        (('demo/none', '--model', 'yolo_fastest'), 'none does not exist'),
        (('demo/clip', '--model', 'yolo_fastest'), 'name one image topic'),
        (('demo/pictures', '--model', 'yolo_mega'), "no model 'yolo_mega'"),
        (('demo/pictures', '--model', 'yolo_fastest', '--start', '1'), 'has no time'),
        (('demo/pictures', '--model', 'yolo_fastest', '--accept'), '--accept needs --expect'),
        (('demo/pictures', '--model', 'yolo_fastest', '--every', '0'), 'whole number above 0'),
        (('demo/pictures', '--model', 'yolo_fastest', '--through-ros'), 'pictures have no stamps'),
        (('demo/pictures', '--model', 'yolo_fastest', '--confidence-threshold', '2'), '0 to 1'),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path, words, text):
    done = replay(*words, '--out', str(tmp_path / 'out'))
    assert done.returncode == 2
    assert text in done.stdout + done.stderr
    assert 'Traceback' not in done.stderr
