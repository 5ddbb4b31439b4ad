"""Compile the kernels for one architecture with the real NVRTC; print how many.

A program of its own, since the emulator's stand-in takes NVRTC's place in the tests' process.
"""

from __future__ import annotations

from itertools import cycle, product
import sys
from typing import get_args

from dla_ros.cuda import preprocess, select
from dla_ros.cuda.compile import compile_kernel
from dla_ros.decoders.heads import Activation, Head, Span
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
    activations = get_args(Activation)
    switches = product((False, True), repeat=4)
    heads = product(activations, switches, (1, 2, 3))
    for (activation, (objectness, powers, peak, multi_label), axis), (
        layout, dtype
    ) in zip(heads, cycle(formats), strict=False):
        spec = TensorSpec.of('t', (1, 3, 64, 64), dtype, layout.name)
        head = Head(
            Span('t', 3, axis=axis), (Span('t', 2, bins=16),), (8, 8), activation,
            Span('t', 1) if objectness else None, background=activation == 'softmax',
            powers=(0.4, 0.6) if powers else (1.0, 1.0), peak=peak, multi_label=multi_label,
        )
        yield 'select', select.definitions(head, spec)
    for code in ELEMENT_CODES.values():
        yield 'unpack', (f'ELEMENT={code}',)


if __name__ == '__main__':
    wanted = set(kernels())
    for name, macros in wanted:
        image = compile_kernel(name, sys.argv[1], macros)
        assert image[:4] == b'\x7fELF', (name, macros)
    print(len(wanted))
