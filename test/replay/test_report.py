from __future__ import annotations

import cv2

from dla_ros.replay.outcome import examine
from dla_ros.replay.records import read_records, write_records
from dla_ros.replay.report import report
from dla_ros.replay.run import attempt, Job, RECORDS, run_job
from test.conftest import picture


def test_an_image_that_is_broken_is_told_and_does_not_hide_the_others(tmp_path):
    folder, golden = tmp_path / 'p', tmp_path / 'golden.jsonl'
    folder.mkdir()
    for name in ('a', 'b', 'c'):
        cv2.imwrite(str(folder / f'{name}.png'), picture('coral_cat.bmp'))
    job = Job(str(folder), tmp_path / 'out', 'yolo_fastest')
    run_job(job)
    first, *rest = read_records(job.out / RECORDS)
    write_records(golden, [first, *(r.model_copy(update={'detections': ()}) for r in rest)])
    (folder / 'a.png').write_bytes(b'<no picture>')
    summary = run_job(job)
    page = report('<title>', [examine(job, summary, golden=golden)])
    assert '&lt;title&gt;' in page and 'a.png: 12 bytes are no picture' in page
    # The contact sheet, and b and c side by side with what was expected of them.
    assert page.count('data:image/jpeg;base64,') == 3
    assert 'the image was not processed' in page


def test_a_source_without_results_has_a_page_too(tmp_path):
    job = Job(str(tmp_path / 'none'), tmp_path / 'out', 'yolo_fastest')
    page = report('t', [examine(job, attempt(job))])
    assert 'none does not exist' in page and 'data:image' not in page and '<svg' not in page
