"""Calls of the driver, NVRTC and cuDLA by name: a status that is not 0 becomes a DlaError."""

from __future__ import annotations

from enum import IntEnum
import re
from types import MappingProxyType
from typing import Any

from dla_ros.errors import DlaError, Remedy

CUDA_NOT_READY = 600


class CudlaStatus(IntEnum):
    """Statuses of cuDLA that this package acts on or explains; the header has more."""

    INVALID_PARAM = 1
    OUT_OF_RESOURCES = 2
    CREATION_FAILED = 3
    INVALID_ADDRESS = 4
    OS = 5
    CUDA = 6
    UMD = 7
    INVALID_DEVICE = 8
    INVALID_ATTRIBUTE = 9
    INCOMPATIBLE_DLA_SW_VERSION = 10
    MEMORY_REGISTERED = 11
    INVALID_MODULE = 12
    UNSUPPORTED_OPERATION = 13
    NV_SCI = 14
    DRIVER_NOT_FOUND = 15
    DLA_ERR_INVALID_INPUT = 0x40000001
    DLA_ERR_INVALID_PRE_ACTION = 0x40000002
    DLA_ERR_NO_MEM = 0x40000003
    DLA_ERR_PROCESSOR_BUSY = 0x40000004
    DLA_ERR_TASK_STATUS_MISMATCH = 0x40000005
    DLA_ERR_ENGINE_TIMEOUT = 0x40000006
    DLA_ERR_DATA_MISMATCH = 0x40000007
    UNKNOWN = 0x7FFFFFFF


# Statuses of the driver after which, by its documentation, the context or the process is lost.
LOST = frozenset({
    4, 214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 720, 911, 999,
})

_HINTS = MappingProxyType({
    ('cuInit', 100): 'this machine has no NVIDIA GPU that CUDA can use; try emulate:=true',
    ('cuInit', 803): 'the driver library and the kernel module are of different versions; '
    'reboot, or mount the host\'s driver into the container',
    ('cuMemAlloc', 2): 'the memory is used up; close other CUDA programs or lower depth',
    ('cuMemHostAlloc', 2): 'the memory is used up; close other CUDA programs or lower depth',
    ('cudlaCreateDevice', CudlaStatus.INVALID_PARAM):
        'there is no such DLA core; AGX Orin has cores 0 and 1 (parameter dla_core)',
    ('cudlaCreateDevice', CudlaStatus.OUT_OF_RESOURCES):
        'all 16 handles of this DLA core are taken; close other programs or use the other core '
        '(parameter dla_core)',
    ('cudlaCreateDevice', CudlaStatus.CREATION_FAILED):
        'the DLA is not to be had; look at the kernel log (dmesg)',
    ('cudlaCreateDevice', CudlaStatus.UNSUPPORTED_OPERATION):
        'the current GPU is a discrete one, or this Jetson has no DLA (Orin Nano and Thor have '
        'none); try emulate:=true',
    ('cudlaModuleLoadFromMemory', CudlaStatus.UMD):
        'the file is no loadable for this DLA: a TensorRT plan? Build it with trtexec '
        '--buildDLAStandalone, with the TensorRT of this JetPack',
    ('cudlaModuleLoadFromMemory', CudlaStatus.OUT_OF_RESOURCES):
        'the DLA has no memory left for this loadable; 16 fit on one core',
    ('cudlaMemRegister', CudlaStatus.MEMORY_REGISTERED):
        'this memory is registered already',
    ('cudlaMemRegister', CudlaStatus.INVALID_ADDRESS):
        'only whole plain device allocations, aligned to 32 bytes, can be registered',
    ('cudlaSubmitTask', CudlaStatus.INVALID_ADDRESS):
        'a tensor\'s memory is not registered with this DLA handle',
    ('cudlaSubmitTask', CudlaStatus.UNSUPPORTED_OPERATION):
        'cuDLA takes no capturing or default streams in hybrid mode',
    ('cudlaSetTaskTimeoutInMs', CudlaStatus.INVALID_PARAM):
        'the task timeout must be 1 to 1000000 ms (parameter task_timeout)',
})
# Whatever the call.
_CUDLA_HINTS = MappingProxyType({
    CudlaStatus.INCOMPATIBLE_DLA_SW_VERSION:
        'libcudla and the DLA driver are of different JetPack versions',
    CudlaStatus.DRIVER_NOT_FOUND:
        'the DLA driver (libnvcudla.so) is missing: not a Jetson, or the container lacks the '
        'driver mount (--runtime nvidia)',
    CudlaStatus.DLA_ERR_ENGINE_TIMEOUT:
        'the DLA did not finish a task within task_timeout',
})
_NO_LIBRARY = MappingProxyType({
    'cudla': 'libcudla.so.1 cannot be loaded: not a Jetson, or the container lacks the driver '
    'mount; try emulate:=true',
    'driver': 'libcuda.so.1 cannot be loaded: no NVIDIA driver, or the container lacks the driver '
    'mount (--runtime nvidia); try emulate:=true',
    'nvrtc': 'libnvrtc cannot be loaded: pip install nvidia-cuda-nvrtc, or install the CUDA '
    'toolkit',
})
_NOT_FOUND = -1  # The status of a library that is not there: no function was called.


def cuda(call: str, *arguments: Any) -> Any:
    """Call a function of the driver, such as cuMemAlloc, and return what it gives."""
    status, values = _call('driver', call, arguments)
    if status:
        remedy = Remedy.RESTART if status in LOST else Remedy.REOPEN
        hint = _HINTS.get((call, status), '')
        if status == 911:
            hint = 'the DLA or another engine failed in hardware; CUDA wants a new process'
        raise DlaError(call, status, _driver_name(status), hint, remedy)
    return values


def cuda_ready(call: str, *arguments: Any) -> bool:
    """Call cuEventQuery or cuStreamQuery and return whether the work is done."""
    try:
        cuda(call, *arguments)
    except DlaError as error:
        if error.status != CUDA_NOT_READY:
            raise
        return False
    return True


def nvrtc(call: str, *arguments: Any) -> Any:
    """Call a function of NVRTC, such as nvrtcCompileProgram, and return what it gives."""
    status, values = _call('nvrtc', call, arguments)
    if status:
        from cuda.bindings import nvrtc as binding

        _, name = binding.nvrtcGetErrorString(binding.nvrtcResult(status))
        raise DlaError(call, status, name.decode())
    return values


def _call(library: str, call: str, arguments: tuple[Any, ...]) -> tuple[int, Any]:
    import importlib

    try:
        binding = importlib.import_module(f'cuda.bindings.{library}')
    except ImportError as error:
        raise _no_library(library, call, f'{error}; pip install "cuda-bindings>=13.3"') from error
    try:
        status, *values = getattr(binding, call)(*arguments)
    except RuntimeError as error:
        # Neither the library nor the function could be found.
        raise _no_library(library, call, _NO_LIBRARY[library]) from error
    except ValueError as error:
        return _foreign_status(error), None
    return int(status), values[0] if len(values) == 1 else tuple(values)


def cudla(call: str, *arguments: Any) -> Any:
    """Call a function of cuda.bindings.cudla, such as create_device, and return what it gives.

    All arguments must be plain integers or buffers.
    """
    name = c_name(call)
    try:
        from cuda.bindings import cudla as binding
    except ImportError as error:
        raise _no_library('cudla', name, f'{error}; pip install "cuda-bindings>=13.3"') from error
    try:
        return getattr(binding, call)(*arguments)
    except binding.CudlaError as error:
        raise cudla_error(name, int(error.status)) from error
    except ValueError as error:
        # The binding's way to report a status that its enumeration lacks.
        raise cudla_error(name, _foreign_status(error)) from error
    except RuntimeError as error:
        raise _no_library('cudla', name, _NO_LIBRARY['cudla']) from error


def cudla_error(call: str, status: int) -> DlaError:
    """Return the error for a status of a cuDLA function; `call` is its name in C."""
    known = status in CudlaStatus.__members__.values()
    name = f'cudlaError{CudlaStatus(status).name}' if known else 'unknown'
    hint = _HINTS.get((call, status)) or (
        _CUDLA_HINTS.get(CudlaStatus(status), '') if known else ''
    )
    return DlaError(call, status, name, hint)


def c_name(call: str) -> str:
    """Return the C name of a function of cuda.bindings.cudla: create_device, cudlaCreateDevice."""
    return 'cudla' + ''.join(word.capitalize() for word in call.split('_'))


def _foreign_status(error: ValueError) -> int:
    found = re.search(r'(-?\d+) is not a valid', str(error))
    if found is None:
        raise error
    return int(found.group(1))


def _driver_name(status: int) -> str:
    try:
        from cuda.bindings import driver

        return str(driver.CUresult(status).name)
    except ValueError:
        return 'unknown'


def _no_library(library: str, call: str, hint: str) -> DlaError:
    return DlaError(call, _NOT_FOUND, f'{library} library not found', hint)
