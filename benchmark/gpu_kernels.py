"""Measure the kernels against torch, CuPy, OpenCV and the floor, as ratios within this one run.

python benchmark/gpu_kernels.py [--repeat N] needs an NVIDIA GPU, torch and CuPy, which the package
does not. Device times are medians between two events around work that waits, all queued, behind a
spinning kernel, with a cold L2 cache. The floor is an empty kernel plus the bytes that have to
move over the bandwidth of a large copy.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
import time
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt
from rich.box import MARKDOWN
from rich.console import Console
from rich.progress import track
from rich.table import Table
import torch
import torch.nn.functional as functional

from dla_ros.cuda.owners import DeviceBuffer, Owners, PinnedBuffer, PrimaryContext, Stream
from dla_ros.cuda.preprocess import ImagePreprocessor
from dla_ros.cuda.select import Selector
from dla_ros.decoders.heads import Head
from dla_ros.geometry import Geometry
from dla_ros.image import find_encoding, ImageView
from dla_ros.model import InputConfig
from dla_ros.preprocess import Preprocessor
from dla_ros.tensor import TensorSpec

NETWORK = 640
SIZES = ((640, 480), (1920, 1080), (3840, 2160))
ENCODINGS = ('bgr8', 'yuyv', 'nv12', 'bayer_rggb8')
CONFIG = InputConfig(
    color_order='rgb', resize='letterbox', scale='1/255',
    mean=[0.485, 0.456, 0.406], stddev=[0.229, 0.224, 0.225],
)
SPEC = TensorSpec.of('input', (1, 3, NETWORK, NETWORK), 'float16', 'chw16')
BOXES, CLASSES, PASSING = 8400, 80, 40
CONFIDENCE = 0.5
_SPIN = 4_000_000  # Clock cycles, about 2 ms: longer than the host needs to queue any work here.
_L2 = 256 << 20  # Bytes that push everything else out of the cache.


@dataclass(frozen=True)
class Case:
    """One image on the device, and how it is fitted into the network."""

    view: ImageView
    geometry: Geometry
    pixels: torch.Tensor  # uint8 [rows, step] on the device.

    @classmethod
    def of(cls, encoding: str, size: tuple[int, int]) -> Case:
        """Make a random but smooth image, so that methods that differ in rounding agree."""
        row = find_encoding(encoding)
        width, height = size
        lines = int(height * row.rows)
        x, y = np.arange(row.row_bytes(width)), np.arange(lines)[:, None]
        wave = 128 + 60 * np.sin(x / 600) * np.cos(y / 300) + 50 * np.sin(y / 211)
        data = wave.astype(np.uint8)
        view = ImageView.of(
            data.reshape(-1), width=width, height=height, encoding=row, step=data.shape[1],
            big_endian=False,
        )
        return cls(view, CONFIG.fit(size, (NETWORK, NETWORK)), torch.from_numpy(data).cuda())

    @property
    def bytes_moved(self) -> int:
        """Bytes of the source rows that a linear resize touches, and of the tensor."""
        source, target = self.geometry.source, self.geometry.target
        rows = min(2 * target.height, source.height) / source.height
        return int(rows * self.view.data.size) + SPEC.size


class Clock:
    """Device times on one stream."""

    def __init__(self, stream: Stream, repeat: int) -> None:
        self._stream = torch.cuda.ExternalStream(int(stream.handle))
        self._repeat = repeat
        self._flush = torch.ones(_L2 // 4, dtype=torch.int32, device='cuda')

    def device_us(self, work: Callable[[], Any]) -> float:
        """Return the median of what `work` takes on the device."""
        with self.current():
            self._warm_up(work)
            return float(np.median([self._sample(work) for _ in range(self._repeat)]))

    def called_us(self, work: Callable[[], Any]) -> float:
        """Return the median from the call until the host knows that the work is done."""
        with self.current():
            self._warm_up(work)
            times = []
            for _ in range(self._repeat):
                start = time.perf_counter()
                work()
                self._stream.synchronize()
                times.append(1e6 * (time.perf_counter() - start))
            return float(np.median(times))

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the stream that of torch and of CuPy."""
        cupy_stream = cupy.cuda.ExternalStream(self._stream.cuda_stream)
        with torch.cuda.stream(self._stream), cupy_stream:
            yield

    def _warm_up(self, work: Callable[[], Any]) -> None:
        for _ in range(10):
            work()
        self._stream.synchronize()

    def _sample(self, work: Callable[[], Any]) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._flush.sum()
        torch.cuda._sleep(_SPIN)
        start.record(self._stream)
        work()
        end.record(self._stream)
        assert not start.query(), 'the host was slower than the spinning kernel'
        end.synchronize()
        return 1e3 * start.elapsed_time(end)


def demosaic(xp: Any, raw: Any) -> Any:
    """Return rgb float [h, w, 3] of an rggb image, each color the mean of its neighbors."""
    if xp is torch:
        p = functional.pad(raw.float()[None, None], (1, 1, 1, 1), 'reflect')[0, 0]
    else:
        p = cupy.pad(raw.astype(cupy.float32), 1, 'reflect')
    h, w = raw.shape
    out = xp.empty((h, w, 3), dtype=xp.float32, **({'device': 'cuda'} if xp is torch else {}))
    center = p[1:-1, 1:-1]
    across = (p[1:-1, :-2] + p[1:-1, 2:]) / 2
    down = (p[:-2, 1:-1] + p[2:, 1:-1]) / 2
    corners = (p[:-2, :-2] + p[:-2, 2:] + p[2:, :-2] + p[2:, 2:]) / 4
    sides = (across + down) / 2
    for y, x, values in (
        (0, 0, (center, sides, corners)), (0, 1, (across, center, down)),
        (1, 0, (down, center, across)), (1, 1, (corners, sides, center)),
    ):
        for k, value in enumerate(values):
            out[y::2, x::2, k] = value[y::2, x::2]
    return out


def yuv_to_rgb(xp: Any, y: Any, u: Any, v: Any) -> Any:
    """Return rgb float [h, w, 3], BT.601, limited range."""
    luma, u, v = 1.164 * (y - 16.0), u - 128.0, v - 128.0
    rgb = (luma + 1.596 * v, luma - 0.813 * v - 0.391 * u, luma + 2.018 * u)
    return xp.stack(rgb, -1).clip(0.0, 255.0)


def to_rgb(xp: Any, case: Case, pixels: Any) -> Any:
    """Return rgb [h, w, 3], with the operations that torch and CuPy share."""
    h, w = case.view.height, case.view.width

    def doubled(plane: Any, axis: int) -> Any:
        return plane.repeat_interleave(2, axis) if xp is torch else plane.repeat(2, axis)

    def real(plane: Any) -> Any:
        return plane.float() if xp is torch else plane.astype(cupy.float32)

    match case.view.encoding.family:
        case 'color':
            bgr = pixels.reshape(h, w, 3)
            return bgr.flip(-1) if xp is torch else bgr[..., ::-1]
        case 'bayer':
            return demosaic(xp, pixels)
        case 'yuv422':
            quads = real(pixels.reshape(h, w // 2, 4))
            y = quads[..., ::2].reshape(h, w)
            return yuv_to_rgb(xp, y, doubled(quads[..., 1], 1), doubled(quads[..., 3], 1))
        case _:
            chroma = real(pixels[h:].reshape(h // 2, w // 2, 2))
            u, v = (doubled(doubled(chroma[..., k], 0), 1) for k in range(2))
            return yuv_to_rgb(xp, real(pixels[:h]), u, v)


def torch_chain(case: Case) -> Callable[[], Any]:
    """Return the usual chain of torch operations, giving chw16."""
    mean, stddev = (
        torch.tensor(values, device='cuda').reshape(1, 3, 1, 1)
        for values in (CONFIG.mean, CONFIG.stddev)
    )
    target = case.geometry.target
    around = (
        target.x, NETWORK - target.x - target.width, target.y, NETWORK - target.y - target.height
    )

    def work() -> Any:
        x = to_rgb(torch, case, case.pixels).permute(2, 0, 1)[None].float()
        x = functional.interpolate(x, (target.height, target.width), mode='bilinear')
        x = functional.pad(x, around, value=CONFIG.border_value)
        x = ((x * CONFIG.scale - mean) / stddev).half()
        return functional.pad(x, (0, 0, 0, 0, 0, 13)).permute(0, 2, 3, 1).contiguous()

    return work


def cupy_chain(case: Case) -> Callable[[], Any]:
    """Return the chain of CuPy operations: only the pixels that the resize needs are gathered."""
    source, target = case.geometry.source, case.geometry.target
    pixels = cupy.asarray(case.pixels)

    def between(n: int, size: int) -> tuple[Any, ...]:
        center = cupy.clip((cupy.arange(size) + 0.5) * n / size - 0.5, 0, n - 1)
        low = cupy.floor(center).astype(cupy.int32)
        return low, cupy.minimum(low + 1, n - 1), (center - low).astype(cupy.float32)

    left, right, across = between(source.width, target.width)
    above, below, down = between(source.height, target.height)
    across, down = across[None, :, None], down[:, None, None]
    mean, stddev = (cupy.array(v, cupy.float32) for v in (CONFIG.mean, CONFIG.stddev))
    border = ((CONFIG.border_value * CONFIG.scale - mean) / stddev).astype(cupy.float16)
    out = cupy.zeros((NETWORK, NETWORK, 16), cupy.float16)
    inside = (
        slice(target.y, target.y + target.height), slice(target.x, target.x + target.width),
    )

    def work() -> Any:
        rgb = to_rgb(cupy, case, pixels)
        top, bottom = rgb[above], rgb[below]
        top = top[:, left] * (1 - across) + top[:, right] * across
        bottom = bottom[:, left] * (1 - across) + bottom[:, right] * across
        out[..., :3] = border
        x = top * (1 - down) + bottom * down
        out[(*inside, slice(3))] = (x * CONFIG.scale - mean) / stddev
        return out

    return work


def opencv_us(case: Case, repeat: int) -> float:
    """Return the median of this package's way on the CPU."""
    preprocess = Preprocessor(CONFIG, SPEC, np.zeros(SPEC.size, np.uint8))
    times = []
    for _ in range(repeat // 5 + 3):
        start = time.perf_counter()
        preprocess(case.view, case.geometry)
        times.append(1e6 * (time.perf_counter() - start))
    return float(np.median(times))


def check(name: str, expected: npt.NDArray[Any], found: Any) -> None:
    """Fail if two ways differ by more than three gray levels, in units of the normalized input."""
    host = found.float().cpu().numpy() if isinstance(found, torch.Tensor) else found.get()
    host = host.reshape(NETWORK, NETWORK, 16)[..., :3].transpose(2, 0, 1)[None]
    difference = np.abs(host.astype(np.float32) - expected.astype(np.float32)).max()
    assert difference < 3 / 255 / min(CONFIG.stddev), f'{name} differs by {difference}'


class Bench:
    """The context, the stream and the clock that all measurements share."""

    def __init__(self, owners: Owners, repeat: int) -> None:
        self.owners, self.repeat = owners, repeat
        self.context = owners.hold(PrimaryContext())
        torch.cuda.init()
        self.stream = owners.hold(Stream())
        self.clock = Clock(self.stream, repeat)
        empty = cupy.RawKernel('extern "C" __global__ void empty() {}', 'empty')
        self.empty: Callable[[], Any] = lambda: empty((1,), (32,), ())
        self.empty_us = self.clock.device_us(self.empty)
        source, target = (torch.zeros(1 << 30, dtype=torch.uint8, device='cuda') for _ in '12')
        copy_us = self.clock.device_us(lambda: target.copy_(source))
        self.bytes_per_us = 2 * (1 << 30) / copy_us
        self.preprocessor = owners.hold(
            ImagePreprocessor(CONFIG, SPEC, self.context.architecture)
        )
        self.tensor = owners.hold(DeviceBuffer(SPEC.size))

    def preprocess(self, case: Case, address: int) -> Callable[[], Any]:
        """Return our kernel's work on an image at an address."""
        return lambda: self.preprocessor.queue(
            case.view, address, case.geometry, self.tensor.address, self.stream
        )

    def preprocess_row(self, case: Case) -> list[str]:
        """Measure one encoding at one size; see `main` for the columns."""
        ours = self.preprocess(case, case.pixels.data_ptr())
        chains = {'torch': torch_chain(case), 'CuPy': cupy_chain(case)}
        with self.clock.current():
            ours()
            assert self.stream.drain(5.0)
            expected = SPEC.unpack(self.tensor.read())
            for name, chain in chains.items():
                check(name, expected, chain())
        kernel_us = self.clock.device_us(ours)
        torch_us, cupy_us = (self.clock.device_us(chain) for chain in chains.values())
        cpu_us = opencv_us(case, self.repeat)
        floor_us = self.empty_us + case.bytes_moved / self.bytes_per_us
        called = [self.clock.called_us(work) for work in (ours, chains['torch'])]
        times = (kernel_us, torch_us, cupy_us, cpu_us, floor_us)
        ratios = (torch_us / kernel_us, cupy_us / kernel_us, kernel_us / floor_us)
        return [
            f'{case.view.encoding.name} {case.view.width}x{case.view.height}',
            *(f'{value:.1f}' for value in times), *(f'{value:.2f}' for value in ratios),
            *(f'{value:.0f}' for value in called),
        ]

    def staging_row(self, case: Case) -> list[str]:
        """Measure the way from pinned memory: a copy and the kernel, or the kernel alone."""
        with_owners = Owners()
        try:
            size = case.view.data.size
            host = with_owners.hold(PinnedBuffer(size))
            host.array[:] = case.view.data
            device = with_owners.hold(DeviceBuffer(size))
            kernel = self.preprocess(case, device.address)

            def copied() -> None:
                device.upload(host, self.stream)
                kernel()

            copied_us = self.clock.device_us(copied)
            mapped_us = self.clock.device_us(self.preprocess(case, host.device_address))
        finally:
            with_owners.close()
        return [
            f'{case.view.encoding.name} {case.view.width}x{case.view.height}',
            f'{copied_us:.1f}', f'{mapped_us:.1f}', f'{mapped_us / copied_us:.2f}',
        ]

    def select_row(self) -> list[str]:
        """Measure the selection from an 84x8400 head, and its copy to the host."""
        spec = TensorSpec.of('head', (1, 4 + CLASSES, 1, BOXES), 'float16', 'chw16')
        random = np.random.default_rng(0)
        values = random.normal(-6, 0.5, spec.shape).astype(np.float16)
        cells = random.choice(BOXES, PASSING, replace=False)
        values[0, 4 + random.integers(0, CLASSES, PASSING), 0, cells] = 2
        head = Head.packed('head', CLASSES, (8.0, 8.0), 'sigmoid', objectness=False)
        selector = self.owners.hold(Selector([head], [spec], self.context.architecture))
        packed = np.zeros(spec.size, np.uint8)
        spec.pack(values, packed)
        tensor = torch.from_numpy(packed).cuda()
        device = self.owners.hold(DeviceBuffer(spec.size))
        staged = self.owners.hold(PinnedBuffer(spec.size))
        staged.array[:] = packed
        device.upload(staged, self.stream)
        found = selector.buffers(self.owners, {'head': device}, self.stream)

        def ours() -> None:
            selector.queue({'head': device}, found, CONFIDENCE, self.stream)

        def floor() -> None:
            self.empty()
            found.device.download(found.host, self.stream, found.host.size)

        def chain() -> Any:
            groups = tensor.view(torch.float16).reshape(-1, BOXES, 16).permute(0, 2, 1)
            x = groups.reshape(-1, BOXES)[: 4 + CLASSES].float()
            score, class_id = x[4:].sigmoid().max(0)
            keep = score >= CONFIDENCE
            return torch.cat([x[:4, keep], score[None, keep], class_id[None, keep]]).cpu()

        ours()
        assert self.stream.drain(5.0)
        assert len(selector.candidates(found).score) == PASSING == chain().shape[1]
        kernel_us, floor_us = self.clock.device_us(ours), self.clock.device_us(floor)
        called = [self.clock.called_us(work) for work in (ours, floor, chain)]
        return [
            f'{kernel_us:.1f}', f'{floor_us:.1f}', f'{kernel_us / floor_us:.2f}',
            *(f'{value:.0f}' for value in called), f'{called[2] / called[0]:.1f}',
        ]


def main() -> None:
    """Run all cases and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--repeat', type=int, default=100, help='%(default)s')
    owners = Owners()
    try:
        bench = Bench(owners, parser.parse_args().repeat)
        cases = [Case.of(encoding, size) for encoding in ENCODINGS for size in SIZES]
        preprocess = Table(
            f'to {NETWORK}x{NETWORK} float16 chw16', 'ours, us', 'torch, us', 'CuPy, us',
            'OpenCV on the CPU, us', 'floor, us', 'torch / ours', 'CuPy / ours', 'ours / floor',
            'ours called, us', 'torch called, us', box=MARKDOWN,
        )
        for case in track(cases, 'preprocess'):
            preprocess.add_row(*bench.preprocess_row(case))
        staging = Table(
            'from pinned memory', 'copy + kernel, us', 'mapped kernel, us', 'mapped / copied',
            box=MARKDOWN,
        )
        for case in track(cases, 'staging'):
            staging.add_row(*bench.staging_row(case))
        select = Table(
            'select, us', 'empty kernel + copy, us', 'ratio', 'select called, us',
            'empty + copy called, us', 'torch called, us', 'torch / ours', box=MARKDOWN,
        )
        select.add_row(*bench.select_row())
        console = Console(width=240)
        console.print(
            f'{bench.context.name}, torch {torch.__version__}, CuPy {cupy.__version__}; an empty '
            f'kernel {bench.empty_us:.1f} us, a copy {bench.bytes_per_us / 1e6:.2f} TB/s'
        )
        for table in (preprocess, staging, select):
            console.print(table)
    finally:
        owners.close()


if __name__ == '__main__':
    main()
