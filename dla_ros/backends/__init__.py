"""Backends, one file each; a new one is a file and a row here."""

from types import MappingProxyType

from dla_ros.backends.base import Backend
from dla_ros.backends.cudla import CudlaBackend
from dla_ros.backends.onnxruntime import OnnxruntimeBackend

BACKENDS: MappingProxyType[str, type[Backend]] = MappingProxyType({
    backend.name: backend for backend in (OnnxruntimeBackend, CudlaBackend)
})
"""Every backend, by name."""
