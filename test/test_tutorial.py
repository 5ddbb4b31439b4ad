"""What docs/tutorial.md tells to write works."""

from __future__ import annotations

import re
import shutil

import pytest
import yaml

from dla_ros import Detector
from dla_ros.decoders import find_decoder
from dla_ros.launching import DETECTOR_ARGUMENTS, REPLAY_ARGUMENTS
from dla_ros.tools.replay import main as replay
from test.conftest import assert_same, picture, ROOT, rows

TEXT = (ROOT / 'docs/tutorial.md').read_text()
BLOCKS = [yaml.safe_load(block) for block in re.findall(r'```yaml\n(.*?)```', TEXT, re.DOTALL)]


@pytest.fixture
def folder(tmp_path):
    """Return a folder with the model.yaml of step 2, the network and the labels."""
    made = tmp_path / 'my_yolox'
    made.mkdir()
    (made / 'model.yaml').write_text(yaml.safe_dump(BLOCKS[0]))
    shutil.copy(ROOT / 'test/models/yolox_nano_export/yolox_nano_416.onnx', made)
    shutil.copy(ROOT / 'models/yolox_nano/coco.names', made)
    return made


def test_the_network_and_its_model_yaml(folder):
    with Detector.open(folder) as ours, Detector.open(
        ROOT / 'test/models/yolox_nano_export'
    ) as expected:
        image = picture('skimage_coffee.png')
        found = rows(ours(image), ours.model.labels)
        assert_same(found, rows(expected(image), expected.model.labels))
        assert len(found) == 2
        (output,) = ours.backend.outputs
        assert output.shape[2:] == (3549, 85)


def test_the_replay_of_step_3(folder, tmp_path):
    (line,) = re.findall(r'python -m dla_ros (replay .*)', TEXT)
    _, source, *options = line.split()
    options = [{'my_yolox': str(folder), 'out/tutorial': str(tmp_path / 'out')}.get(o, o)
               for o in options]
    assert replay([str(ROOT / source), *options]) == 0
    assert (tmp_path / 'out/report.html').is_file()


@pytest.mark.parametrize('block', BLOCKS[1:])
def test_every_other_section_is_valid(block):
    config = block['decoder']
    find_decoder(config['type']).Config(**config)


def test_the_launch_arguments_exist():
    names = {argument.name for argument in (*DETECTOR_ARGUMENTS, *REPLAY_ARGUMENTS)}
    assert set(re.findall(r'(\w+):=', TEXT)) <= names
