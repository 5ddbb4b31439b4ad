"""What an emulated task computes: the ONNX of an emulated loadable, run by onnxruntime."""

from __future__ import annotations

import ctypes
import logging
from typing import Any

from dla_ros.emulator.loadable import EmulatedNetwork, read_payload
from dla_ros.tensor import TensorSpec

_log = logging.getLogger(__name__)
_FAILED = 7  # cudlaErrorUmd
_LOAD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64)
_UNLOAD = ctypes.CFUNCTYPE(None, ctypes.c_int)
_INFER = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_void_p)
)


class Runner:
    """Loads and runs networks for the stand-in libcudla, on whatever thread it calls from."""

    def __init__(self) -> None:
        self._networks: dict[int, tuple[EmulatedNetwork, Any, dict[str, Any]]] = {}
        # Kept here: ctypes does not keep the functions alive.
        self.callbacks = _LOAD(self._load), _UNLOAD(self._unload), _INFER(self._infer)

    def _load(self, module: int, payload: int, size: int) -> int:
        from dla_ros.backends.onnxruntime import ELEMENT_TYPES, open_session

        try:
            network = read_payload(ctypes.string_at(payload, size))
            session = open_session(network.onnx, 0)
            types = {arg.name: ELEMENT_TYPES[arg.type] for arg in session.get_inputs()}
            self._networks[module] = network, session, types
        except Exception:
            _log.exception('the emulated loadable cannot be loaded')
            return _FAILED
        return 0

    def _unload(self, module: int) -> None:
        self._networks.pop(module, None)

    def _infer(self, module: int, inputs: Any, outputs: Any) -> int:
        try:
            network, session, types = self._networks[module]
            feeds = {
                spec.name: spec.dequantize(spec.unpack(_memory(inputs[i], spec))).astype(
                    types[spec.name]
                )
                for i, spec in enumerate(network.inputs)
            }
            results = session.run([spec.name for spec in network.outputs], feeds)
            for i, (spec, result) in enumerate(zip(network.outputs, results, strict=True)):
                spec.pack(spec.quantize(result.reshape(spec.shape)), _memory(outputs[i], spec))
        except Exception:
            _log.exception('the emulated task failed')
            return _FAILED
        return 0


def _memory(address: int, spec: TensorSpec) -> Any:
    return (ctypes.c_uint8 * spec.size).from_address(address)
