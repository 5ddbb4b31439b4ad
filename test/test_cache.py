from __future__ import annotations

import logging

import pytest

from dla_ros.cache import cache_directory, cached, digest, write_atomically


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    return tmp_path / 'dla_ros'


def test_the_folder_is_the_users(folder, monkeypatch):
    assert cache_directory() == folder
    monkeypatch.delenv('XDG_CACHE_HOME')
    monkeypatch.setenv('HOME', '/home/somebody')
    assert str(cache_directory()) == '/home/somebody/.cache/dla_ros'


def test_a_file_is_made_once(folder):
    made = []
    for _ in range(3):
        assert cached('a/b', lambda: made.append(1) or b'content') == b'content'
    assert len(made) == 1
    assert [p.name for p in (folder / 'a').iterdir()] == ['b']


@pytest.mark.parametrize('damage', [b'', b'short', b'x' * 100])
def test_a_damaged_file_is_made_anew(folder, caplog, damage):
    cached('file', lambda: b'content')
    (folder / 'file').write_bytes(damage)
    assert cached('file', lambda: b'content') == b'content'
    assert 'damaged' in caplog.text
    assert cached('file', lambda: b'other') == b'content'


def test_a_folder_that_cannot_be_written_only_costs_time(folder, caplog):
    folder.parent.joinpath('dla_ros').write_text('a file where the folder should be')
    with caplog.at_level(logging.WARNING):
        assert cached('file', lambda: b'content') == b'content'
    assert 'made again next time' in caplog.text


def test_what_fails_leaves_nothing(folder, monkeypatch):
    monkeypatch.setattr('pathlib.Path.replace', lambda *_: (_ for _ in ()).throw(OSError('full')))
    with pytest.raises(OSError, match='full'):
        write_atomically(folder / 'file', b'content')
    assert not list(folder.iterdir())


def test_keys_tell_parts_apart():
    assert digest('ab', 'c') != digest('a', 'bc') != digest('abc')
    assert digest('a') == digest(b'a')
