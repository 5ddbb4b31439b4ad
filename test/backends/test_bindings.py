"""The cudla backend with every version of cuda-bindings that it supports."""

from __future__ import annotations

from importlib.metadata import version
import os
import subprocess
import sys

import pytest

from test.conftest import ROOT
from test.emulation import emulator

VERSIONS = ('13.3.0', '13.3.1', '13.4.1', '13.5.0')
TESTS = ('test/cuda/test_calls.py', 'test/emulator/test_rules.py', 'test/backends/test_cudla.py')


@pytest.mark.skipif(emulator.real_gpu, reason='may have no package index')
@pytest.mark.parametrize('wanted', [v for v in VERSIONS if v != version('cuda-bindings')])
def test_another_version_of_the_binding(wanted, tmp_path):
    if wanted == '13.5.0' and sys.version_info < (3, 11):
        pytest.skip('cuda-bindings 13.5.0 needs Python 3.11')
    subprocess.run(
        [
            sys.executable, '-m', 'pip', 'install', '-q', '--no-deps',
            '--disable-pip-version-check', '--target', str(tmp_path), f'cuda-bindings=={wanted}',
        ],
        check=True,
    )
    environment = {**os.environ, 'PYTHONPATH': f'{tmp_path}{os.pathsep}{ROOT}'}
    shown = subprocess.run(
        [sys.executable, '-c', 'import cuda.bindings; print(cuda.bindings.__version__)'],
        env=environment, capture_output=True, text=True,
    )
    assert shown.stdout.strip() == wanted, shown.stderr
    done = subprocess.run(
        [
            sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', *TESTS,
            '-k', 'not int8_layouts and not hundred',
        ],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=150,
    )
    assert done.returncode == 0, done.stdout[-4000:]
