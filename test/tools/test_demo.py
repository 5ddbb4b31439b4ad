from __future__ import annotations

import json

import cv2

from dla_ros.tools.demo import Account
from test.conftest import assert_same, PICTURES
from test.tools.test_play_and_listen import tool


def test_the_demo_accounts_for_every_frame_and_shows_them(tmp_path, golden):
    out = tmp_path / 'demo'
    done = tool('demo', '--out', str(out), timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    table = {
        cells[0].strip(): cells[1].strip()
        for line in done.stdout.splitlines()
        if len(cells := line.strip('│ ').split('│')) == 2
    }
    total = len(PICTURES) + 30
    for row in ('frames sent', 'frames received by the node', 'frames with a result'):
        assert table[row] == str(total), done.stdout
    assert table['frames dropped'] == table['frames missing'] == '0'
    lines = [json.loads(line) for line in (out / 'detections.jsonl').read_text().splitlines()]
    assert len(lines) == total
    for line, name in zip(lines, PICTURES, strict=False):
        found = [(d['class_id'], d['score'], d['xyxy']) for d in line['detections']]
        assert_same(found, golden['yolox_nano'][name])
    assert all(
        any(d['class_id'] == 'person' for d in line['detections'])
        for line in lines[len(PICTURES) :]
    )
    assert len(list(out.glob('*.jpg'))) == total + 1
    assert cv2.imread(str(out / 'overview.jpg')).shape[0] > 400


def test_the_demo_keeps_what_is_there(tmp_path):
    (tmp_path / 'mine').touch()
    done = tool('demo', '--out', str(tmp_path))
    assert done.returncode == 2 and 'not empty; use --force' in done.stderr
    assert (tmp_path / 'mine').exists()


def test_a_demo_that_cannot_work_says_why(tmp_path):
    out = tmp_path / 'out'
    done = tool('demo', str(tmp_path / 'none.png'), '--out', str(out))
    assert done.returncode == 1 and 'none.png does not exist' in done.stderr
    done = tool('demo', '--model', 'yolox_mega', '--out', str(out), '--force', timeout=120)
    assert done.returncode == 1 and "no model 'yolox_mega'" in done.stderr, done
    assert 'Traceback' not in done.stderr


def test_the_account_knows_what_is_missing():
    account = Account()
    for stamp in (1, 2, 3, 4):
        account.take({'event': 'sent', 'name': f'{stamp}', 'stamp': stamp, 'sent': 10**9})
    assert account.missing == 4
    for stamp in (1, 3):
        account.take({'event': 'received', 'stamp': stamp, 'received': 1005 * 10**6, 'found': 1})
    account.take({'event': 'status', 'values': {'received': '3', 'dropped step': '1'}})
    assert account.missing == 1 and account.counted == 3 and account.dropped == {'step': 1}
    assert account.latencies() == [5.0, 5.0]
