from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dla_ros.cuda import compile as compiling
from dla_ros.cuda.compile import compile_kernel
from dla_ros.cuda.owners import PrimaryContext
from dla_ros.errors import BackendError
from test.emulation import clean, emulator, stand_in_gpu


@pytest.fixture
def architecture(tmp_path, monkeypatch):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    with clean(), PrimaryContext() as context:
        yield context.architecture


@stand_in_gpu
def test_a_kernel_is_compiled_once_for_its_definitions(architecture):
    first = compile_kernel('unpack', architecture, ['ELEMENT=0'])
    assert compile_kernel('unpack', architecture, ['ELEMENT=0']) == first
    assert emulator.calls()['nvrtcCompileProgram'] == 1
    assert compile_kernel('unpack', architecture, ['ELEMENT=1']) != first
    assert emulator.calls()['nvrtcCompileProgram'] == 2


def test_a_source_with_an_error_shows_the_compilers_words(architecture, tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, 'KERNELS', tmp_path)
    (tmp_path / 'wrong.cu').write_text('extern "C" __global__ void wrong() { int i = nonsense; }')
    with pytest.raises(BackendError, match='nonsense'):
        compile_kernel('wrong', architecture)


@pytest.mark.parametrize('architecture', ['sm_72', 'sm_87', 'sm_90'])
def test_the_real_compiler_takes_every_kernel(architecture, tmp_path):
    done = subprocess.run(
        [sys.executable, '-m', 'test.cuda.compile_all', architecture],
        capture_output=True, text=True, env={**os.environ, 'XDG_CACHE_HOME': str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    made = list(tmp_path.glob('**/kernels/*'))
    assert len(made) == int(done.stdout) > 80
