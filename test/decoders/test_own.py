"""A user's own decoder: the example of docs/decoders.md, in a package of its own."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
import yaml

from dla_ros import Detector, Model, ModelError
from test.conftest import picture, ROOT
from test.emulation import clean, opened
from test.networks import copied_model


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Return model.yaml of yolox_nano with the example's decoder."""
    text = (ROOT / 'docs/decoders.md').read_text()
    (module,) = re.findall(r'```python\n# my_robot/decoders\.py\n(.*?)```', text, re.DOTALL)
    (section,) = re.findall(r'```yaml\n(.*?)```', text, re.DOTALL)
    package = tmp_path / 'my_robot'
    package.mkdir()
    (package / '__init__.py').touch()
    (package / 'decoders.py').write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ('my_robot', 'my_robot.decoders'):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return copied_model('yolox_nano', tmp_path, **yaml.safe_load(section))


def test_it_finds_what_the_shipped_decoder_finds(path):
    image = picture('skimage_astronaut.png')
    with Detector.open(path) as own, Detector.open('yolox_nano') as shipped, clean():
        expected = shipped(image)
        found = own(image)
        with opened(path) as emulated:
            on_dla = emulated(image)
    assert len(found) > 0
    for detections in (found, on_dla):
        np.testing.assert_array_equal(detections.class_id, expected.class_id)
        np.testing.assert_allclose(detections.xyxy, expected.xyxy, atol=2)


@pytest.mark.parametrize(
    ('changes', 'text'),
    [
        ({'logits': 'perhaps'}, 'decoder: logits: .*valid boolean'),
        ({'strides': [8]}, 'decoder: strides: Extra inputs'),
        ({'type': 'my_robot.decoders:NoDecoder'}, "cannot be imported: .*'NoDecoder'"),
        ({'type': 'my_robot.none:GridDecoder'}, 'cannot be imported: No module named'),
        ({'type': 'my_robot.decoders:Head'}, 'it has no Config and no makes and no decode'),
    ],
)
def test_its_faults_are_told_like_those_of_the_shipped_ones(path, changes, text):
    content = yaml.safe_load(path.read_text())
    content['decoder'].update(changes)
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ModelError, match=text):
        Model.load(path)


def test_outputs_that_do_not_fit_fail_when_it_is_opened(path):
    content = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**content, 'labels': ['only', 'two']}))
    with pytest.raises(ModelError, match='head8: 85 channels do not fit 2 labels'):
        Detector.open(path)
