"""Measure the CPU techniques against the naive chains, as ratios within this one run.

python benchmark/cpu_backend.py [--repeat N]: medians in milliseconds, and naive / ours.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
import platform
import time
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from dla_ros.decoders.heads import Head, select_candidates
from dla_ros.image import ImageView
from dla_ros.model import InputConfig
from dla_ros.preprocess import Preprocessor
from dla_ros.tensor import TensorSpec


def median_ms(work: Callable[[], Any], repeat: int) -> float:
    """Return the median time of `work`, after a warm-up."""
    for _ in range(5):
        work()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - start))
    return float(np.median(times))


def preprocess_case(layout: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """1080p bgr8 to 640x640 letterbox RGB 0..1 float16: ours, and the usual numpy chain."""
    image = np.random.default_rng(0).integers(0, 256, (1080, 1920, 3), dtype=np.uint8)
    config = InputConfig(color_order='rgb', resize='letterbox', scale='1/255')
    spec = TensorSpec.of('input', (1, 3, 640, 640), 'float16', layout)
    geometry = config.fit((1920, 1080), (640, 640))
    buffer = np.zeros(spec.size, np.uint8)
    preprocess, view = Preprocessor(config, spec, buffer), ImageView.from_array(image)
    target, expected = geometry.target, np.zeros(spec.size, np.uint8)

    def naive() -> None:
        resized = cv2.resize(image, (target.width, target.height))
        padded = np.full((640, 640, 3), config.border_value, np.uint8)
        padded[target.y : target.y + target.height] = resized
        rgb = cv2.cvtColor(padded, cv2.COLOR_BGR2RGB)
        values = (rgb.astype(np.float32) / 255).transpose(2, 0, 1)[None]
        spec.pack(values.astype(np.float16), expected)

    preprocess(view, geometry)
    naive()
    np.testing.assert_array_equal(spec.unpack(buffer), spec.unpack(expected))
    return lambda: preprocess(view, geometry), naive


def select_case(passing: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Candidates of YOLOX heads of a 640x640 network, float16: ours, and all boxes first."""
    random = np.random.default_rng(0)
    sizes = (80, 40, 20)
    tensors: dict[str, npt.NDArray[np.float16]] = {}
    for size in sizes:
        head = random.random((1, 85, size, size)).astype(np.float16)
        head[0, 4] *= np.float16(0.2)
        tensors[f'head{size}'] = head
    cells = random.choice(80 * 80, passing, replace=False)
    tensors['head80'][0, 4].reshape(-1)[cells] = 0.9
    heads = [Head.packed(f'head{s}', 80, (640 / s, 640 / s)) for s in sizes]

    def naive() -> npt.NDArray[Any]:
        flat = np.concatenate(
            [t.astype(np.float32).reshape(85, -1).T for t in tensors.values()]
        )
        scores = flat[:, 4:5] * flat[:, 5:]
        best = scores.argmax(1)
        score = scores[np.arange(len(best)), best]
        return score[score >= 0.5]

    found = np.sort(select_candidates(heads, tensors, 0.5).score)
    np.testing.assert_allclose(found, np.sort(naive()), rtol=1e-6)
    return lambda: select_candidates(heads, tensors, 0.5), naive


def main() -> None:
    """Run all cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--repeat', type=int, default=100, help='%(default)s')
    repeat = parser.parse_args().repeat
    cases = {
        'preprocess 1080p -> 640x640 float16 nchw': preprocess_case('nchw'),
        'preprocess 1080p -> 640x640 float16 chw16': preprocess_case('chw16'),
        'select, 8400 boxes x 80 classes, none passes': select_case(0),
        'select, 8400 boxes x 80 classes, 240 pass': select_case(240),
    }
    table = Table('case', 'ours, ms', 'naive, ms', 'naive / ours', title=platform.processor())
    for name, (ours, naive) in cases.items():
        mine, theirs = median_ms(ours, repeat), median_ms(naive, repeat)
        table.add_row(name, f'{mine:.2f}', f'{theirs:.2f}', f'{theirs / mine:.1f}')
    Console().print(table)


if __name__ == '__main__':
    main()
