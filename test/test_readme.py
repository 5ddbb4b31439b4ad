from __future__ import annotations

import re
import runpy

from dla_ros.__main__ import TOOLS
from dla_ros.launching import DETECTOR_ARGUMENTS
from test.conftest import ROOT

README = (ROOT / 'README.md').read_text()


def test_the_table_of_parameters_is_that_of_the_code():
    updated = runpy.run_path(str(ROOT / 'scripts' / 'update_readme.py'))['updated']
    assert updated(README) == README, 'run: make docs'


def test_what_the_readme_names_exists():
    for name in re.findall(r'`((?:config|docs|models|dla_ros|demo)/[\w./]+)`', README):
        assert list(ROOT.glob(name)), name
    for picture in re.findall(r'!\[[^]]*\]\(([^)]+)\)', README):
        assert (ROOT / picture).is_file()
    assert all(f'`{argument.name}`' in README for argument in DETECTOR_ARGUMENTS)
    assert all(f'| `{tool}` |' in README for tool in TOOLS)


def test_the_table_of_versions_is_that_of_the_lock():
    lock = (ROOT / 'requirements.lock').read_text()
    for version in re.findall(r'^numpy==(\S+)', lock, re.MULTILINE):
        assert f'| {version} |' in README
    for version in re.findall(r'^opencv-python-headless==(\d+\.\d+\.\d+)', lock, re.MULTILINE):
        assert f'| {version} |' in README
