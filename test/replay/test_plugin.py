"""The plugin's fixture: on the recordings, with goldens, and as a user's package has it."""

from __future__ import annotations

from pathlib import Path
import re
import subprocess
import sys

import pytest

from dla_ros.backends.base import BackendOptions
from dla_ros.decoders.base import Thresholds
from dla_ros.sources.selection import Selection
from test.conftest import ROOT
from test.emulation import clean
from test.ros import ENVIRONMENT

CLIP, DATA = ROOT / 'demo/clip', ROOT / 'test/data'
TOPICS = ('/camera/image_raw/compressed',)


CASES = {
    'clip': (CLIP, {'topics': TOPICS}),
    'vtest': (DATA / 'vtest.avi', {'selection': Selection(every=40)}),
    # Nothing in it is of a class that the network knows, so what it dimly sees has to do.
    'soccer_goal_12': (
        DATA / 'soccer_goal_12.mcap', {'thresholds': Thresholds(confidence=0.05)}
    ),
}


@pytest.mark.parametrize('name', CASES)
def test_the_recordings(replay_bag, name):
    source, fields = CASES[name]
    replay_bag(source, model='yolox_nano', expect=DATA / f'replay/{name}.jsonl', **fields)


@pytest.mark.parametrize('name', CASES)
def test_the_recordings_on_the_emulated_dla(replay_bag, name):
    source, fields = CASES[name]
    with clean():
        replay_bag(
            source, model='yolox_nano', expect=DATA / f'replay/{name}.jsonl', backend='cudla',
            options=BackendOptions(emulate=True), **fields,
        )


def test_the_example_of_the_documentation(tmp_path):
    """The code blocks of docs/replay.md make a package's test that passes, then fails."""
    text = (ROOT / 'docs/replay.md').read_text()
    (example,) = re.findall(r'```python\n# test_kitchen\.py\n(.*?)```', text, re.DOTALL)
    example = example.replace('bags/kitchen', str(CLIP))
    (tmp_path / 'test_kitchen.py').write_text(example)

    def run(*words):
        return subprocess.run(
            [sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', *words],
            cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=100,
        )

    first = run()
    assert first.returncode == 1 and 'does not exist; --accept-detections' in first.stdout
    assert run('--accept-detections').returncode == 0
    golden = tmp_path / 'golden/kitchen.jsonl'
    assert len(golden.read_text().splitlines()) == 10
    again = run()
    assert again.returncode == 0, again.stdout
    golden.write_text(golden.read_text().replace('"person"', '"cat"', 1))
    changed = run()
    assert changed.returncode == 1 and '1 differences; look at' in changed.stdout
    page = Path(changed.stdout.split('look at ')[1].split()[0])
    assert 'class changed' in page.read_text()


def test_a_run_that_fails_fails_the_test(replay_bag, tmp_path):
    (tmp_path / 'empty.jsonl').touch()
    (tmp_path / 'broken.png').write_bytes(b'no picture')
    with pytest.raises(pytest.fail.Exception, match=r'no image was processed, 1 were unreadable'):
        replay_bag(tmp_path / 'broken.png', model='yolo_fastest', expect=tmp_path / 'empty.jsonl')
