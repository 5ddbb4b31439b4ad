from __future__ import annotations

import onnx
import pytest

from dla_ros.convert.surgery import name_nodes
from dla_ros.convert.trtexec import (
    command,
    explain,
    find_trtexec,
    has_dla,
    number_of,
    read_version,
    run,
    TrtexecError,
    version_of,
)
from dla_ros.tensor import TensorFormat
from test.networks import save_network
from test.trtexec import install

HALF, INT8 = TensorFormat.parse('fp16:chw16'), TensorFormat.parse('int8:chw32')


@pytest.mark.parametrize(
    ('number', 'version'),
    [(8502, (8, 5, 2)), (8401, (8, 4, 1)), (100300, (10, 3, 0)), (110401, (11, 4, 1))],
)
def test_versions_are_numbers_of_two_kinds(number, version):
    assert version_of(number) == version and number_of(version) == number


def test_a_version_is_read_from_the_program(tmp_path, monkeypatch):
    program = install(tmp_path, monkeypatch, 100300)
    assert find_trtexec() == program and read_version(program) == (10, 3, 0)


def test_a_program_that_is_no_trtexec(tmp_path):
    other = tmp_path / 'trtexec'
    with pytest.raises(TrtexecError, match='does not run'):
        read_version(other)
    other.write_text('#!/bin/sh\necho hello\n')
    other.chmod(0o755)
    with pytest.raises(TrtexecError, match='does not say which TensorRT it is of: hello'):
        read_version(other)


def test_where_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv('PATH', str(tmp_path))
    assert find_trtexec() is None


def test_which_versions_have_dla():
    assert all(map(has_dla, ((8, 5), (10, 13, 2), (11, 4), (12, 0))))
    assert not any(map(has_dla, ((11, 0, 0), (11, 3, 9))))


def test_the_command_of_the_readme():
    # The mission's own, for TensorRT 11.
    assert ' '.join(command((11, 4, 1), 'fp16', HALF, HALF)) == (
        'trtexec --onnx=model.fp16.onnx --useDLACore=0 --buildDLAStandalone '
        '--saveEngine=model.bin --inputIOFormats=chw16 --outputIOFormats=chw16 '
        '--memPoolSize=dlaSRAM:1'
    )


def test_older_versions_are_told_the_types():
    words = command((10, 3), 'int8', INT8, HALF)
    for word in ('--onnx=model.onnx', '--fp16', '--int8', '--calib=calibration.cache',
                 '--inputIOFormats=int8:chw32', '--outputIOFormats=fp16:chw16'):
        assert word in words
    assert '--int8' not in command((8, 6, 1), 'fp16', HALF, HALF)


FAILURES = [
    ('Cannot create DLA engine, 0 not available', 'no DLA'),
    ("Layer 'Resize_5' (RESIZE): Unsupported on DLA. Switching this layer", "'Resize_5' (RESIZE)"),
    ('Validation failed for DLA layer: MaxPool_3. Switching to GPU fallback.', "'MaxPool_3'"),
    ('DLA only supports concatenation on the C dimension.', '--cut-outputs'),
    ('Error Code 9: Safe DLA is enabled but not all layers are running on DLA', '--cut-outputs'),
    ('builder.cpp: Assertion std::all_of(begin, end, [](n) { return isDLA(n); }) failed', 'GPU'),
    ('I/O formats for safe DLA capability are restricted to dla_linear', '--inputIOFormats'),
    ('kPREFER_PRECISION_CONSTRAINTS cannot be set', '--tensorrt'),
    ('Cannot deserialize serialized engine built with EngineCapability::kDLA_STANDALONE', 'built'),
    ('No importer registered for op: GridSample', 'GridSample'),
    ('Unknown option: --fp16', '--fp16'),
    ('something that nobody has seen', 'trtexec ended with 1: something that nobody has seen'),
]


def save_named(folder):
    """Write a float16 network whose nodes have names, as build does."""
    network = folder / 'model.fp16.onnx'
    save_network(network, kind=onnx.TensorProto.FLOAT16)
    model = onnx.load(network)
    name_nodes(model)
    onnx.save(model, network)


@pytest.mark.parametrize(('line', 'words'), FAILURES)
def test_failures_become_sentences(tmp_path, monkeypatch, line, words):
    save_named(tmp_path)
    program = install(tmp_path, monkeypatch, failure=f'1 {line}')
    lines: list[str] = []
    with pytest.raises(TrtexecError) as raised:
        run(program, command((11, 4, 1), 'fp16', HALF, HALF), tmp_path, lines.append)
    assert words in str(raised.value) and 'trtexec.log' in str(raised.value)
    assert not (tmp_path / 'model.bin').exists()
    assert lines == (tmp_path / 'trtexec.log').read_text().splitlines() and line in lines[-1]


def test_a_killed_one_was_out_of_memory():
    assert 'memory' in explain('', -9) and 'ended with -11' in explain('', -11)


def test_a_plan_is_no_loadable(tmp_path, monkeypatch):
    save_named(tmp_path)
    words = command((11, 4, 1), 'fp16', HALF, HALF)
    program = install(tmp_path, monkeypatch)
    run(program, words, tmp_path, lambda line: None)
    assert (tmp_path / 'model.bin').read_bytes()[4:8] == b'NVDA'
    with pytest.raises(TrtexecError, match='plan, not a standalone'):
        run(program, [w for w in words if 'Standalone' not in w], tmp_path, lambda line: None)
    assert not (tmp_path / 'model.bin').exists()
