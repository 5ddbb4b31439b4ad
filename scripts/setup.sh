#!/bin/sh
# Picks a Python and hands over to bootstrap.py. It is sh because there may be no Python yet.
#   VENV=.venv      where the virtual environment goes
#   PYTHON=python3  use this interpreter and no other
set -eu
here=$(cd "$(dirname "$0")" && pwd)

suitable='import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))'
complete='import ensurepip, os, sysconfig, venv
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))'
# A sourced ROS 2 decides the interpreter: its rclpy is compiled for one version.
if [ -n "${ROS_DISTRO:-}" ] && [ -n "${AMENT_PREFIX_PATH:-}" ]; then
  complete='import ensurepip, rclpy, venv'
fi

chosen=
for python in ${PYTHON:-python3.12 python3.11 python3.10 python3.13 python3}; do
  "$python" -c "$suitable" >/dev/null 2>&1 || continue
  [ -n "$chosen" ] || chosen=$python
  if "$python" -c "$complete" >/dev/null 2>&1; then
    chosen=$python
    break
  fi
done

if [ -z "$chosen" ]; then
  echo "setup: no suitable Python found; dla_ros needs 3.10, 3.11, 3.12 or 3.13." >&2
  echo "  tried: ${PYTHON:-python3.12 python3.11 python3.10 python3.13 python3}" >&2
  echo "  install one:  sudo apt-get install python3 python3-venv python3-dev" >&2
  echo "  or name one:  make PYTHON=/path/to/python3.12 ..." >&2
  exit 1
fi
exec "$chosen" "$here/bootstrap.py" --venv "${VENV:-.venv}"
