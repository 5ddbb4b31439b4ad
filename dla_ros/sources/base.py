"""What a source of images is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dla_ros.color import convert_reference
from dla_ros.image import ImageError, ImageView
from dla_ros.overlay import draw, Row


class SourceError(ValueError):
    """A source of images, or one of its images, that cannot be read; the text says which."""


@dataclass(frozen=True)
class SourceImage:
    """One image of a source.

    Attributes
    ----------
    name:
        Where it is from: a file name, or bag or video and index.
    data:
        The bytes of the rows.
    width, height, encoding, step, big_endian:
        As in sensor_msgs/Image.
    frame_id:
        '' where the source has none.
    stamp:
        Nanoseconds, or None where the source has none.

    """

    name: str
    data: npt.NDArray[np.uint8]
    width: int
    height: int
    encoding: str
    step: int
    big_endian: bool = False
    frame_id: str = ''
    stamp: int | None = None

    @property
    def view(self) -> ImageView:
        """The image as the detector takes it; raises ImageError if it cannot be used."""
        return ImageView.of(
            self.data, width=self.width, height=self.height, encoding=self.encoding,
            step=self.step, big_endian=self.big_endian,
        )

    def overlay(self, rows: Sequence[Row]) -> npt.NDArray[np.uint8]:
        """Return the image as BGR [h, w, 3] with boxes, labels and scores; see overlay.draw."""
        return draw(np.ascontiguousarray(convert_reference(self.view, 'bgr')), rows)


@dataclass(frozen=True)
class SourceEntry:
    """An image that has not been read yet.

    Attributes
    ----------
    name:
        As in SourceImage.
    index:
        Its place among the source's images of all chosen topics.
    topic:
        '' where the source has none.
    seconds:
        Since the source's beginning, or None where the source has no times.
    load:
        Reads the image, or raises SourceError; only until the next entry is asked for.

    """

    name: str
    index: int
    topic: str
    seconds: float | None
    load: Callable[[], SourceImage]


class Source(Protocol):
    """A folder of pictures, a bag, a video."""

    path: Path

    def __len__(self) -> int:
        """Return the number of entries."""

    def __iter__(self) -> Iterator[SourceEntry]:
        """Yield the entries in order; raise SourceError if the source itself is broken."""


def decoded(encoded: npt.NDArray[np.uint8], name: str, **stamped: Any) -> SourceImage:
    """Return an encoded picture (JPEG, PNG, ...) as bgr8; raise SourceError if it is none."""
    try:
        view = ImageView.from_encoded(encoded)
    except ImageError as error:
        raise SourceError(f'{name}: {error}') from error
    return bgr8(view.pixels, name, **stamped)


def bgr8(image: npt.NDArray[np.uint8], name: str, **stamped: Any) -> SourceImage:
    """Return pixels [h, w, 3] as an image."""
    height, width = image.shape[:2]
    return SourceImage(name, image.reshape(-1), width, height, 'bgr8', 3 * width, **stamped)
