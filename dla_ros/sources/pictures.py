"""Pictures: files, and folders of them in the order of their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from dla_ros.sources.base import decoded, SourceEntry, SourceError, SourceImage

PICTURES = ('.bmp', '.jpeg', '.jpg', '.png', '.ppm', '.tif', '.tiff', '.webp')


class PictureSource:
    """A picture, which any file might be, or a folder of pictures."""

    def __init__(self, path: Path) -> None:
        """Find the pictures; raise SourceError if there are none."""
        self.path = path
        self._pictures = [path] if path.is_file() else sorted(
            p for p in path.iterdir() if p.suffix.lower() in PICTURES
        )
        if not self._pictures:
            raise SourceError(f'{path} holds neither pictures nor a rosbag2 bag')

    @classmethod
    def open(cls, path: Path, topics: Sequence[str]) -> PictureSource:
        """Return the source; topics are for sources that have some."""
        return cls(path)

    def __len__(self) -> int:
        """Return the number of pictures."""
        return len(self._pictures)

    def __iter__(self) -> Iterator[SourceEntry]:
        """Yield the pictures."""
        for i, path in enumerate(self._pictures):
            yield SourceEntry(path.name, i, '', None, partial(_load, path))


def _load(path: Path) -> SourceImage:
    try:
        return decoded(np.fromfile(path, np.uint8), path.name)
    except OSError as error:
        raise SourceError(f'{path}: {error}') from error
