"""Compile the kernels for one architecture with the real NVRTC; print how many.

A program of its own, since the emulator's stand-in takes NVRTC's place in the tests' process.
"""

from __future__ import annotations

from itertools import cycle, product
import sys

from dla_ros.cuda import preprocess, select
from dla_ros.cuda.compile import compile_kernel
from dla_ros.decoders.base import Head
from dla_ros.image import ENCODINGS
from dla_ros.tensor import ELEMENT_CODES, LAYOUTS, TensorSpec


def kernels():
    """Yield (name, macros): every encoding, color order, layout, element type, kind of head."""
    formats = [(layout, dtype) for layout in LAYOUTS.values() for dtype in layout.dtypes]
    others = zip(cycle(formats), cycle(('rgb', 'bgr', 'mono')), cycle((False, True)), strict=False)
    colors = [encoding for encoding in ENCODINGS.values() if encoding.has_color]
    for encoding, swapped in product(colors, (False, True)):
        (layout, dtype), order, area = next(others)
        spec = TensorSpec.of('t', (1, 3, 64, 64), dtype, layout.name)
        yield 'preprocess', preprocess.definitions(
            encoding, order, spec, swapped=swapped, area=area
        )
    for (layout, dtype), objectness, sigmoid in product(formats, (False, True), (False, True)):
        channels = 3 if layout.channels else 85
        head = Head('t', 1, channels - 4 - objectness, (8, 8), sigmoid, objectness)
        spec = TensorSpec.of('t', (1, channels, 64, 64), dtype, layout.name)
        yield 'select', select.definitions(head, spec)
    for code in ELEMENT_CODES.values():
        yield 'unpack', (f'ELEMENT={code}',)


if __name__ == '__main__':
    wanted = set(kernels())
    for name, macros in wanted:
        image = compile_kernel(name, sys.argv[1], macros)
        assert image[:4] == b'\x7fELF', (name, macros)
    print(len(wanted))
