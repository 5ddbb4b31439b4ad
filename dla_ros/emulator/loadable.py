"""Emulated loadables: an ONNX with the tensors of a DLA, for the emulator only.

The file: a header (magic, number of inputs and outputs, size of the payload), cuDLA's descriptors
of 168 bytes each, and the payload: a line of JSON about the tensors, then the ONNX. The stand-in
libcudla reads all but the payload.
"""

from __future__ import annotations

from dataclasses import dataclass
import itertools
import json
from typing import Any

import numpy as np

from dla_ros.cuda.dla import Descriptor
from dla_ros.errors import BackendError
from dla_ros.model import Model
from dla_ros.tensor import FP16_CHW16, TensorFormat, TensorSpec

MAGIC = b'DLAEMUL1'
_HEADER = np.dtype([('magic', 'S8'), ('inputs', '<u4'), ('outputs', '<u4'), ('payload', '<u8')])
_DESCRIPTOR = np.dtype({
    'names': [
        'name', 'size', 'shape', 'data_format', 'data_type', 'data_category', 'pixel_format',
        'pixel_mapping', 'strides',
    ],
    'formats': ['S81', '<u8', ('<u8', 4), 'u1', 'u1', 'u1', 'u1', 'u1', ('<u4', 8)],
    'offsets': [0, 88, 96, 128, 129, 130, 131, 132, 136],
    'itemsize': 168,
})


@dataclass(frozen=True)
class EmulatedNetwork:
    """What an emulated loadable's payload holds."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    onnx: bytes


def is_emulated(loadable: bytes) -> bool:
    """Whether a loadable is one for the emulator."""
    return loadable.startswith(MAGIC)


def build_loadable(
    model: Model, inputs: TensorFormat = FP16_CHW16, outputs: TensorFormat = FP16_CHW16
) -> bytes:
    """Make an emulated loadable from a model's ONNX.

    Parameters
    ----------
    model:
        With an ONNX, and with scales for its int8 tensors.
    inputs, outputs:
        Formats of the tensors.

    Raises
    ------
    BackendError
        If the ONNX cannot be used, or a scale is missing.

    """
    from dla_ros.backends.onnxruntime import onnx_tensors

    if model.onnx is None:
        raise BackendError(f'model {model.name!r} names no ONNX file (key onnx) to emulate')
    specs = [
        [_formatted(spec, form, model) for spec in tensors]
        for tensors, form in zip(onnx_tensors(model), (inputs, outputs), strict=True)
    ]
    about = json.dumps({
        key: [{**_about(spec), 'name': spec.name} for spec in tensors]
        for key, tensors in zip(('inputs', 'outputs'), specs, strict=True)
    })
    payload = about.encode() + b'\n' + model.onnx.read_bytes()
    header = np.zeros((), _HEADER)
    header['magic'] = MAGIC
    header['inputs'], header['outputs'] = map(len, specs)
    header['payload'] = len(payload)
    descriptors = map(_descriptor, itertools.chain(*specs))
    return header.tobytes() + b''.join(descriptors) + payload


def read_payload(payload: bytes) -> EmulatedNetwork:
    """Read what `build_loadable` wrote behind the descriptors."""
    line, _, onnx = payload.partition(b'\n')
    about = json.loads(line)
    inputs, outputs = (
        tuple(
            TensorSpec.of(
                t['name'], tuple(t['shape']), t['dtype'], t['layout'], scale=t['scale']
            )
            for t in about[key]
        )
        for key in ('inputs', 'outputs')
    )
    return EmulatedNetwork(inputs, outputs, onnx)


def _formatted(spec: TensorSpec, form: TensorFormat, model: Model) -> TensorSpec:
    scale = model.scales.get(spec.name) if form.dtype == 'int8' else 1.0
    if scale is None:
        largest = float(np.abs(model.input.normalized()).max())
        raise BackendError(
            f'tensor {spec.name!r} as int8 needs a scale in model.yaml, '
            f'scales: {{{spec.name}: LARGEST / 127}}; preprocessing gives values up to {largest:g}'
        )
    try:
        return TensorSpec.of(
            spec.name, spec.shape, form.dtype, form.layout, scale=scale  # type: ignore[arg-type]
        )
    except ValueError as error:
        raise BackendError(str(error)) from error


def _about(spec: TensorSpec) -> dict[str, Any]:
    return {
        'shape': spec.shape, 'dtype': spec.dtype.name, 'layout': spec.layout.name,
        'scale': spec.scale,
    }


def _descriptor(spec: TensorSpec) -> bytes:
    expected = Descriptor.expected(spec)
    native = np.zeros((), _DESCRIPTOR)
    native['name'] = f"{spec.name}'".encode()  # As TensorRT does.
    for field in ('size', 'shape', 'data_format', 'data_type', 'data_category', 'pixel_format'):
        native[field] = getattr(expected, field)
    native['strides'] = expected.strides
    return native.tobytes()
