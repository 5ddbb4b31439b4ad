from __future__ import annotations

from pathlib import Path
import subprocess
import sys
import time

import pytest

from dla_ros import emulator as emulation
from dla_ros.cuda.calls import cuda, cudla
from dla_ros.emulator import libraries
from dla_ros.errors import BackendError, DlaError
from test.conftest import ROOT
from test.emulation import clean, emulator, stand_in_gpu


def test_it_is_loaded_once():
    assert emulation.load() is emulator and emulation.emulator() is emulator
    assert str(emulator).startswith('emulated DLA')


def test_calls_are_counted_and_fail_when_told():
    with clean():
        for _ in range(3):
            cudla('get_version')
        assert emulator.calls()['cudlaGetVersion'] == 3
        emulator.fail('cudlaGetVersion', 7, skip=1)
        cudla('get_version')
        assert emulator.pending() == 1
        with pytest.raises(DlaError):
            cudla('get_version')
        assert emulator.pending() == 0
        cudla('get_version')


@stand_in_gpu
def test_a_sticky_error_stays():
    with clean():
        emulator.fail('cuDriverGetVersion', 911, sticky=True)
        for call, *arguments in (('cuDriverGetVersion',), ('cuDeviceGet', 0), ('cuInit', 0)):
            with pytest.raises(DlaError, match='911'):
                cuda(call, *arguments)
        emulator.reset()
        cuda('cuInit', 0)


def test_delays_and_hangs():
    with clean():
        emulator.fail('cudlaGetVersion', 0, delay=0.1)
        start = time.monotonic()
        cudla('get_version')
        assert time.monotonic() - start >= 0.1


def test_a_call_of_a_library_that_is_not_emulated():
    with pytest.raises(BackendError, match='printf is no function of CUDA'):
        emulator.fail('printf', 1)


@stand_in_gpu
def test_real_libraries_are_not_replaced_behind_ones_back(tmp_path):
    """Another libcudla.so.1 that is there already is not ours to replace."""
    source = tmp_path / 'other.c'
    source.write_text('int other;')
    library = tmp_path / 'libcudla.so.1'
    subprocess.run(
        ['cc', '-shared', '-Wl,-soname,libcudla.so.1', str(source), '-o', str(library)], check=True
    )
    code = (
        f'import ctypes; ctypes.CDLL({str(library)!r}, ctypes.RTLD_GLOBAL)\n'
        'from dla_ros import emulator\nemulator.load()'
    )
    done = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert 'has loaded the real libcudla.so.1 already' in done.stderr


def test_without_a_compiler_the_error_says_so(monkeypatch):
    monkeypatch.setenv('PATH', '/nowhere')
    monkeypatch.delenv('CXX', raising=False)
    with pytest.raises(BackendError, match=r'apt-get install g\+\+'):
        libraries.compiler()


def test_a_source_that_does_not_compile_shows_the_compilers_words(monkeypatch, tmp_path):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
    monkeypatch.setattr(libraries, 'NATIVE', tmp_path)
    (tmp_path / 'wrong.cpp').write_text('int f() { return nonsense; }')
    with pytest.raises(BackendError, match='wrong.cpp does not compile:(.|\n)*nonsense'):
        libraries.build(libraries.Library('libwrong.so.1', 'wrong.cpp'))
    assert not list(Path(tmp_path).glob('cache/**/*.so*'))
