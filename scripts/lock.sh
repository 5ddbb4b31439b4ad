#!/bin/sh
# Resolves requirements.in for every supported Python; needs uv from PyPI, brought into .venv-lock.
set -eu
cd "$(dirname "$0")/.."
[ -x .venv-lock/bin/uv ] || { "$1" -m venv .venv-lock && .venv-lock/bin/pip install -q uv==0.13.9; }
{
  echo '# Every package that a set-up takes from the package index. Made from requirements.in: make lock'
  .venv-lock/bin/uv pip compile -q --universal --python-version 3.10 --no-header --no-annotate \
    requirements.in | grep -v "sys_platform == 'win32'" | sed "s/ ; sys_platform != 'win32'//"
} > requirements.lock.new
mv requirements.lock.new requirements.lock
