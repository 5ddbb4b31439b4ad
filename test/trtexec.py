"""A stand-in for trtexec: the options, checks and words of a version, and its failures on request.

`install` puts it on PATH. What it takes and refuses is that of the real one's public source
(samples/common/sampleOptions.cpp) and of the logs in public bug reports; it compiles nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
import sys

NUMBER, FAILURE = 'STAND_IN_NUMBER', 'STAND_IN_FAILURE'
LAYOUTS = 'chw16', 'chw32', 'dla_linear', 'dla_hwc4'
COMMON = (
    '--onnx', '--useDLACore', '--buildDLAStandalone', '--saveEngine', '--inputIOFormats',
    '--outputIOFormats', '--memPoolSize', '--help',
)
WEAKLY_TYPED = '--fp16', '--int8', '--calib'


def install(folder, monkeypatch, number=110401, failure=''):
    """Put the stand-in on PATH, as TensorRT `number`; `failure` is 'STATUS what it prints'."""
    program = folder / 'trtexec'
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).resolve()} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv('PATH', str(folder), prepend=os.pathsep)
    monkeypatch.setenv(NUMBER, str(number))
    monkeypatch.setenv(FAILURE, failure)
    return program


class RefusedError(Exception):
    """What ends it, as it says it."""


def main(arguments: list[str]) -> int:
    number = int(os.environ[NUMBER])
    line = f'TensorRT.trtexec [TensorRT v{number}] [b1] # trtexec {" ".join(arguments)}'
    print('&&&& RUNNING', line, flush=True)
    if '--help' in arguments:
        print('=== Model Options ===')
        return 0
    try:
        build(dict(a.partition('=')[::2] for a in arguments), typed=number >= 110000)
    except RefusedError as failure:
        print(f'[12/06/2026-10:00:00] [E] {failure}')
        print('&&&& FAILED', line)
        return 1
    status, _, text = os.environ[FAILURE].partition(' ')
    if status:
        print(f'[12/06/2026-10:00:00] [E] {text}', flush=True)
        if int(status) < 0:
            os.kill(os.getpid(), -int(status))
        return int(status)
    print('&&&& PASSED', line)
    return 0


def build(options: dict[str, str], *, typed: bool) -> None:
    for option in options:
        if option not in COMMON + (() if typed else WEAKLY_TYPED):
            raise RefusedError(f'Unknown option: {option}')
    network = read(options['--onnx'])
    for option, infos in (('--inputIOFormats', network.graph.input),
                          ('--outputIOFormats', network.graph.output)):
        kind, _, layout = options[option].rpartition(':')
        if bool(kind) == typed or layout not in LAYOUTS:
            raise RefusedError(f'Invalid value for {option}: {options[option]}')
        if typed and {info.type.tensor_type.elem_type for info in infos} != {
            3 if layout == 'chw32' else 10  # INT8, FLOAT16
        }:
            raise RefusedError('I/O formats for safe DLA capability are restricted to ...')
    if '--int8' in options:
        header = Path(options['--calib']).read_text().partition('\n')[0]
        if header != f'TRT-{os.environ[NUMBER]}-EntropyCalibration2':
            raise RefusedError(f'Calibration table does not match: {header}')
    elif not typed and '--fp16' not in options:
        raise RefusedError('DLA Layer conv_1 does not support FP32 precision type.')
    standalone = '--buildDLAStandalone' in options
    # A flatbuffer has its kind behind its first offset; a plan begins with it.
    Path(options['--saveEngine']).write_bytes(
        b'\x20\x00\x00\x00NVDA' + bytes(64) if standalone else b'ftrt' + bytes(64)
    )


def read(path: str):
    import onnx

    if not Path(path).is_file():
        raise RefusedError(f'Could not open file {path}')
    network = onnx.load(path)
    for node in network.graph.node:
        if not node.name:
            raise RefusedError(f'a node without a name: {node.op_type}')
    return network


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
