"""Draw the timeline of a frame on the robot's path from its measured events.

python benchmark/timeline.py [--out timeline.svg] [--frames N]: medians of a 1080p picture through
yolox_nano. The DLA is emulated, so the time of its stage says nothing about a DLA; its bar is cut.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from rich.progress import track

from dla_ros import Detector
from dla_ros.backends.base import BackendOptions
from dla_ros.decoders.base import Thresholds
from dla_ros.image import ImageView

STAGES = {
    'upload': ('CPU and copy engine', 'pinned staging, copy', '#7a9cc6'),
    'preprocess': ('GPU', 'preprocess kernel', '#76b900'),
    'inference': ('DLA', 'inference (emulated)', '#c9a227'),
    'select': ('GPU', 'select kernel, copy back', '#76b900'),
    'decode': ('CPU', 'boxes, NMS', '#7a9cc6'),
}
_LEFT, _WIDTH, _ROW, _BAR = 170, 660, 44, 24
_LEAST = 4.0  # Pixels of the shortest bar.


def measure(frames: int) -> tuple[dict[str, float], str]:
    """Return the median microseconds of each stage, and where they were measured."""
    image = np.random.default_rng(0).integers(0, 256, (1080, 1920, 3), np.uint8)
    samples: dict[str, list[float]] = {stage: [] for stage in STAGES}
    options = BackendOptions(emulate=True)
    with Detector.open('models/yolox_nano/model.yaml', backend='cudla', options=options) as it:
        for i in track(range(frames + 10), 'frames'):
            it.submit(0, ImageView.from_array(image), Thresholds())
            stages = it.collect(0, 30.0).stages
            if i >= 10:
                for stage in STAGES:
                    samples[stage].append(1e3 * stages[stage])
        about = it.backend.about
    medians = {stage: float(np.median(values)) for stage, values in samples.items()}
    return medians, f'{about["GPU"]}, staging {about["staging"]}'


def draw(stages: dict[str, float], where: str) -> str:
    """Return the timeline as SVG; the time axis leaves out most of the inference."""
    shown = dict(stages)
    others = sum(time for stage, time in stages.items() if stage != 'inference')
    shown['inference'] = min(stages['inference'], 0.4 * others)
    per_us = _WIDTH / sum(shown.values())
    lanes = list(dict.fromkeys(lane for lane, _, _ in STAGES.values()))
    size = f'0 0 {_LEFT + _WIDTH + 210} {(len(lanes) + 2) * _ROW}'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" font-size="13">',
        '<style>text { font-family: sans-serif }</style>',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="20">One 1080p frame on one stream; medians on {where}</text>',
    ]
    for i, lane in enumerate(lanes):
        y = (i + 1) * _ROW + _BAR / 2 + 5
        parts.append(f'<text x="10" y="{y}">{lane}</text>')
    x = float(_LEFT)
    for stage, time in stages.items():
        lane, text, color = STAGES[stage]
        y, wide = (lanes.index(lane) + 1) * _ROW, max(shown[stage] * per_us, _LEAST)
        cut = shown[stage] < time
        dash = ' stroke="black" stroke-dasharray="4 3"' if cut else ''
        parts.append(
            f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{_BAR}" fill="{color}"{dash}/>'
        )
        length = 'cut' if cut else f'{time:.0f} us'
        parts.append(f'<text x="{x:.1f}" y="{y + _BAR + 14}">{text}: {length}</text>')
        x += wide
    return '\n'.join([*parts, '</svg>', ''])


def main() -> None:
    """Measure and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--out', type=Path, default=Path('timeline.svg'), help='%(default)s')
    parser.add_argument('--frames', type=int, default=100, help='%(default)s')
    arguments = parser.parse_args()
    stages, where = measure(arguments.frames)
    arguments.out.write_text(draw(stages, where))
    print(f'{arguments.out}:', {stage: round(time, 1) for stage, time in stages.items()})


if __name__ == '__main__':
    main()
