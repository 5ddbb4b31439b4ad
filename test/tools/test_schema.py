from __future__ import annotations

import pytest

from dla_ros.decoders import DECODERS
from dla_ros.model import Built, InputConfig, Model
from dla_ros.tools.schema import main


def test_every_key_of_every_part_is_there(capsys):
    assert main([]) == 0
    text = capsys.readouterr().out
    sections = [Model, InputConfig, Built, *(decoder.Config for decoder in DECODERS.values())]
    for section in sections:
        for name in section.model_fields:
            assert f'\n  {name}: ' in text
    assert all(f'\n  type: {name}\n' in text for name in DECODERS)


def test_one_part_has_its_defaults_and_choices(capsys):
    assert main(['ssd']) == 0
    text = capsys.readouterr().out
    assert text.startswith('decoder:\n')
    for line in ('scores: (required)', 'activation: "softmax"  # none | sigmoid | softmax',
                 'priors: {}', 'variances: [0.1, 0.2]'):
        assert f'\n  {line}\n' in text
    assert 'yolov3' not in text


def test_an_unknown_part_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        main(['yolov99'])
    assert ended.value.code == 2 and 'yolov99' in capsys.readouterr().err
