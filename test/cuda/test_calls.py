from __future__ import annotations

import pytest

from dla_ros.cuda.calls import c_name, cuda, cuda_ready, cudla, cudla_error, CudlaStatus, nvrtc
from dla_ros.errors import BackendError, DlaError, Remedy
from test.emulation import clean, emulator, stand_in_gpu


@stand_in_gpu
@pytest.mark.parametrize(
    ('status', 'name', 'remedy'),
    [
        (2, 'CUDA_ERROR_OUT_OF_MEMORY', Remedy.REOPEN),
        (719, 'CUDA_ERROR_LAUNCH_FAILED', Remedy.RESTART),
        (911, 'CUDA_ERROR_EXTERNAL_DEVICE', Remedy.RESTART),
    ],
)
def test_a_status_of_the_driver_becomes_an_exception(status, name, remedy):
    with clean():
        emulator.fail('cuDeviceGet', status)
        with pytest.raises(DlaError) as caught:
            cuda('cuDeviceGet', 0)
    error = caught.value
    assert isinstance(error, BackendError)
    assert (error.call, error.status, error.name) == ('cuDeviceGet', status, name)
    assert error.remedy is remedy
    assert f'cuDeviceGet failed with status {status} ({name})' in str(error)


@stand_in_gpu
def test_a_status_of_the_driver_that_nobody_knows():
    with clean():
        emulator.fail('cuDeviceGet', 12345)
        with pytest.raises(DlaError, match=r'status 12345 \(unknown\)'):
            cuda('cuDeviceGet', 0)


def test_values_come_back_bare():
    assert cuda('cuInit', 0) == ()
    assert isinstance(cuda('cuDriverGetVersion'), int)
    major, _ = nvrtc('nvrtcVersion')
    assert major >= 12


@stand_in_gpu
def test_not_ready_is_no_error_but_all_else_is():
    with clean():
        cuda('cuInit', 0)
        emulator.fail('cuStreamQuery', 600)
        assert cuda_ready('cuStreamQuery', 0) is False
        emulator.fail('cuStreamQuery', 4)
        with pytest.raises(DlaError, match='DEINITIALIZED'):
            cuda_ready('cuStreamQuery', 0)


@pytest.mark.parametrize('status', [int(status) for status in CudlaStatus])
def test_every_status_of_cudla_has_its_name(status):
    with clean():
        emulator.fail('cudlaGetVersion', status)
        with pytest.raises(DlaError) as caught:
            cudla('get_version')
    assert caught.value.status == status
    assert caught.value.name == f'cudlaError{CudlaStatus(status).name}'
    assert caught.value.remedy is Remedy.REOPEN


def test_the_statuses_are_those_of_the_binding():
    from cuda.bindings.cudla import Status

    assert {int(status) for status in Status} == {0, *map(int, CudlaStatus)}


def test_a_status_that_the_enumeration_lacks():
    with clean():
        emulator.fail('cudlaGetVersion', 77)
        with pytest.raises(DlaError) as caught:
            cudla('get_version')
    assert (caught.value.status, caught.value.name) == (77, 'unknown')


def test_a_wrong_argument_is_no_status():
    with pytest.raises(TypeError):
        cudla('create_device', 'zero', 0)


@pytest.mark.parametrize(
    ('call', 'name'),
    [
        ('create_device', 'cudlaCreateDevice'), ('get_last_error', 'cudlaGetLastError'),
        ('set_task_timeout_in_ms', 'cudlaSetTaskTimeoutInMs'),
    ],
)
def test_names_in_c(call, name):
    assert c_name(call) == name


def test_hints_are_for_the_call_first():
    assert 'dla_core' in cudla_error('cudlaCreateDevice', 1).hint
    assert 'task_timeout' in cudla_error('cudlaSetTaskTimeoutInMs', 1).hint
    assert cudla_error('cudlaGetVersion', 1).hint == ''
    assert 'libnvcudla' in cudla_error('cudlaGetVersion', 15).hint
