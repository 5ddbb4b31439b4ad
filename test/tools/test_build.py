from __future__ import annotations

import pytest

from dla_ros.emulator.loadable import is_emulated
from dla_ros.tools.build import main
from test.conftest import picture
from test.emulation import clean, opened
from test.networks import copied_model, save_model


def test_what_is_built_runs(tmp_path, capsys):
    out = tmp_path / 'net.bin'
    arguments = ['yolo_fastest', '--emulated', '--inputIOFormats', 'fp16:dla_hwc4']
    assert main([*arguments, '--out', str(out)]) == 0
    said = capsys.readouterr().out
    assert f'loadable: {out}' in said and is_emulated(out.read_bytes())
    path = copied_model('yolo_fastest', tmp_path, loadable=str(out))
    with clean(), opened(path) as detector:
        assert detector.backend.inputs[0].layout.name == 'dla_hwc4'
        assert len(detector(picture('coral_cat.bmp')).score)


def test_nothing_is_replaced_without_force(tmp_path, capsys):
    out = tmp_path / 'net.bin'
    out.write_bytes(b'precious')
    arguments = [str(save_model(tmp_path)), '--emulated', '--out', str(out)]
    assert main(arguments) == 1
    assert '--force replaces it' in capsys.readouterr().err and out.read_bytes() == b'precious'
    assert main([*arguments, '--force']) == 0
    assert is_emulated(out.read_bytes())


def test_the_default_name_is_the_models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([str(save_model(tmp_path)), '--emulated']) == 0
    assert (tmp_path / 'small.emulated.bin').is_file()


@pytest.mark.parametrize(
    ('extra', 'code', 'words'),
    [
        (['--inputIOFormats', 'int8:chw32'], 1, 'needs a scale in model.yaml'),
        (['--inputIOFormats', 'fp16:chw8'], 2, "Invalid layout 'chw8'"),
        (['--out', '/proc/nowhere/net.bin'], 1, '/proc/nowhere'),
    ],
)
def test_errors_say_what_is_wrong(tmp_path, capsys, monkeypatch, extra, code, words):
    monkeypatch.chdir(tmp_path)
    try:
        returned = main([str(save_model(tmp_path)), '--emulated', *extra])
    except SystemExit as error:
        returned = error.code
    assert returned == code and words in capsys.readouterr().err


def test_a_model_that_is_none(capsys):
    assert main(['nowhere', '--emulated']) == 1
    assert 'yolox_nano' in capsys.readouterr().err
