"""The preprocess kernel: an image of any encoding becomes the input tensor on the device."""

from __future__ import annotations

import ctypes
from typing import Any

from dla_ros.color import ColorOrder
from dla_ros.cuda.compile import compile_kernel
from dla_ros.cuda.owners import Kernel, Module, Owners, Stream
from dla_ros.geometry import Geometry
from dla_ros.image import Encoding, find_encoding, ImageView
from dla_ros.model import InputConfig
from dla_ros.preprocess import check_input, gain_and_bias, ratio, takes_area
from dla_ros.tensor import ELEMENT_CODES, TensorSpec

_FAMILIES = {'color': 0, 'mono': 1, 'bayer': 2, 'yuv422': 3, 'semiplanar': 4}
_OUTPUTS = {'rgb': 0, 'bgr': 1, 'mono': 2}
_INT, _FLOAT, _DOUBLE, _POINTER = (
    ctypes.c_int, ctypes.c_float, ctypes.c_double, ctypes.c_void_p
)
_TYPES = (_POINTER, _POINTER, *[_INT] * 16, *[_DOUBLE] * 2, *[_FLOAT] * 7)
_BLOCK = (32, 8)
_USUAL = ('bgr8', 'rgb8')  # Compiled before the first image comes.


class ImagePreprocessor:
    """The kernels for one input tensor, one for each kind of image; it owns their modules."""

    def __init__(self, config: InputConfig, spec: TensorSpec, architecture: str) -> None:
        """Bind to a tensor; raise ValueError if it does not fit the model's color order."""
        check_input(config, spec)
        self._config = config
        self._spec = spec
        self._architecture = architecture
        self._modules = Owners()
        self._kernels: dict[tuple[str, bool, bool], Kernel] = {}
        gain, bias = (list(map(float, values)) for values in gain_and_bias(config))
        self._constants = (*(gain * 3)[:3], *(bias * 3)[:3], float(spec.scale))

    def prepare(self) -> None:
        """Compile and load the kernels for the usual encodings."""
        for name in _USUAL:
            self._kernel(find_encoding(name), swapped=False, area=False)

    def queue(
        self, view: ImageView, address: int, geometry: Geometry, tensor: int, stream: Stream
    ) -> None:
        """Queue the preprocessing of an image.

        Parameters
        ----------
        view:
            What the image is; its bytes are read from the device.
        address:
            Where the image begins on the device.
        geometry:
            How it is fitted into the network's input.
        tensor:
            Where the tensor begins on the device; all but the bytes between rows is written.
        stream:
            Where it is queued.

        """
        area = takes_area(self._config, geometry)
        kernel = self._kernel(view.encoding, swapped=view.big_endian, area=area)
        source, target = geometry.source, geometry.target
        _, _, height, width = self._spec.shape
        item = self._spec.dtype.itemsize
        kernel.launch(
            (width, height), stream,
            address, tensor, view.width, view.height, view.step,
            source.x, source.y, source.width, source.height,
            target.x, target.y, target.width, target.height, width, height,
            self._spec.strides[1] // item, self._spec.strides[2] // item,
            self._config.border_value, ratio(source.width, target.width),
            ratio(source.height, target.height), *self._constants,
            block=_BLOCK,
        )

    def _kernel(self, encoding: Encoding, *, swapped: bool, area: bool) -> Kernel:
        key = encoding.name, swapped, area
        if key not in self._kernels:
            macros = definitions(
                encoding, self._config.color_order, self._spec, swapped=swapped, area=area
            )
            image = compile_kernel('preprocess', self._architecture, macros)
            module = self._modules.hold(Module(image))
            self._kernels[key] = module.kernel('preprocess', _TYPES)
        return self._kernels[key]

    def close(self) -> None:
        """Unload the kernels; safe to call twice."""
        self._kernels.clear()
        self._modules.close()


def definitions(
    encoding: Encoding, color_order: ColorOrder, spec: TensorSpec, *, swapped: bool, area: bool
) -> tuple[str, ...]:
    """Return the macros that make the kernel for one kind of image and one kind of tensor."""
    return (
        *encoding_definitions(encoding, swapped=swapped),
        f'OUTPUT={_OUTPUTS[color_order]}',
        f'AREA={int(area)}',
        f'ELEMENT={ELEMENT_CODES[spec.dtype.name]}',
        f'LANES={spec.lanes}',
    )


def encoding_definitions(encoding: Encoding, *, swapped: bool) -> tuple[str, ...]:
    """Return the macros that tell of an encoding; equal for those that are stored alike."""
    order = encoding.order
    positions, pattern = [0, 0, 0], 0
    if encoding.family == 'color':
        positions = [order.index(letter) for letter in 'rgb']
    elif encoding.family == 'yuv422':
        positions = [order.index(letter) for letter in 'yuv']
    elif encoding.family == 'semiplanar':
        positions = [order.index('u'), order.index('v'), 0]
    elif encoding.family == 'bayer':
        pattern = sum('rgb'.index(site) << 2 * i for i, site in enumerate(order))
    numbers: dict[str, Any] = {
        'FAMILY': _FAMILIES[encoding.family],
        'SAMPLE': encoding.dtype.itemsize,
        'SWAP': int(swapped and encoding.dtype.itemsize > 1),
        'CHANNELS': encoding.channels,
        'FIRST': positions[0],
        'SECOND': positions[1],
        'THIRD': positions[2],
        'PATTERN': pattern,
        'HALVED': int(encoding.multiple == (2, 2)),
    }
    return tuple(f'{name}={number}' for name, number in numbers.items())
