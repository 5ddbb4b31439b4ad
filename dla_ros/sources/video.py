"""Video files, as far as OpenCV can read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dla_ros.sources.base import bgr8, SourceEntry, SourceError, SourceImage

VIDEOS = ('.avi', '.m4v', '.mkv', '.mov', '.mp4', '.mpeg', '.mpg', '.ogv', '.webm')


class VideoSource:
    """The frames of a video; their stamps count from its beginning."""

    def __init__(self, path: Path) -> None:
        """Look at the video; raise SourceError if OpenCV cannot read it."""
        import cv2

        self.path = path
        capture = self._capture()
        self._count = max(int(capture.get(cv2.CAP_PROP_FRAME_COUNT)), 0)
        self._rate = capture.get(cv2.CAP_PROP_FPS) or 30.0
        capture.release()

    @classmethod
    def open(cls, path: Path, topics: Sequence[str]) -> VideoSource | None:
        """Return the source, if a path is one; topics are for sources that have some."""
        return cls(path) if path.is_file() and path.suffix.lower() in VIDEOS else None

    def _capture(self) -> Any:
        import cv2

        capture = cv2.VideoCapture(str(self.path))
        if not capture.isOpened():
            raise SourceError(f'{self.path} is no video that OpenCV can read')
        return capture

    def __len__(self) -> int:
        """Return the number of frames that the file says it has."""
        return self._count

    def __iter__(self) -> Iterator[SourceEntry]:
        """Yield the frames."""
        capture, index = self._capture(), 0
        try:
            while capture.grab():
                name, seconds = f'{self.path.name}[{index}]', index / self._rate
                yield SourceEntry(
                    name, index, '', seconds, partial(_load, capture, name, seconds)
                )
                index += 1
        finally:
            capture.release()


def _load(capture: Any, name: str, seconds: float) -> SourceImage:
    whole, image = capture.retrieve()
    if not whole:
        raise SourceError(f'{name} cannot be decoded')
    return bgr8(np.asarray(image, np.uint8), name, stamp=round(1e9 * seconds))
