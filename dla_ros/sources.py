"""Images from files: pictures, folders of them, and rosbag2 bags; without ROS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

PICTURES = ('.bmp', '.jpeg', '.jpg', '.png', '.ppm', '.tif', '.tiff', '.webp')
_IMAGE = 'sensor_msgs/msg/Image'
_COMPRESSED = 'sensor_msgs/msg/CompressedImage'


class SourceError(ValueError):
    """A source of images that cannot be read; the text says which and why."""


@dataclass(frozen=True)
class SourceImage:
    """One image of a source.

    Attributes
    ----------
    name:
        Where it is from: a file name, or bag and index.
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


def read_images(sources: Sequence[str | Path], topic: str = '') -> Iterator[SourceImage]:
    """Yield the images of all sources, in order.

    Parameters
    ----------
    sources:
        Picture files, folders of pictures (by name), rosbag2 folders.
    topic:
        The topic to read from bags; '' for their only image topic.

    Raises
    ------
    SourceError
        If a source cannot be read, or a bag has several image topics and none is named.

    """
    for source in map(Path, sources):
        if (source / 'metadata.yaml').is_file():
            yield from _bag_images(source, topic)
        elif source.is_dir():
            pictures = sorted(p for p in source.iterdir() if p.suffix.lower() in PICTURES)
            if not pictures:
                raise SourceError(f'{source} holds neither pictures nor a rosbag2 bag')
            yield from map(_picture, pictures)
        elif source.is_file():
            yield _picture(source)
        else:
            raise SourceError(f'{source.absolute()} does not exist')


def _picture(path: Path) -> SourceImage:
    return _decoded(np.fromfile(path, np.uint8), path.name)


def _decoded(encoded: npt.NDArray[np.uint8], name: str, **stamped: Any) -> SourceImage:
    import cv2

    image = cv2.imdecode(encoded, cv2.IMREAD_COLOR) if encoded.size else None
    if image is None:
        raise SourceError(f'{name} is no picture that OpenCV can read')
    height, width = image.shape[:2]
    pixels = np.asarray(image, np.uint8).reshape(-1)
    return SourceImage(name, pixels, width, height, 'bgr8', 3 * width, **stamped)


def _bag_images(path: Path, topic: str) -> Iterator[SourceImage]:
    from rosbags.highlevel import AnyReader, AnyReaderError
    from rosbags.typesys import get_typestore, Stores

    try:
        with AnyReader([path], default_typestore=get_typestore(Stores.ROS2_JAZZY)) as reader:
            found = [c for c in reader.connections if c.msgtype in (_IMAGE, _COMPRESSED)]
            chosen = [c for c in found if c.topic == topic] if topic else found
            if len({c.topic for c in chosen}) != 1:
                topics = ', '.join(sorted({f'{c.topic} ({c.msgtype})' for c in found}))
                raise SourceError(f'{path}: name one image topic with --topic; it has {topics}')
            for i, (connection, _, raw) in enumerate(reader.messages(chosen)):
                message: Any = reader.deserialize(raw, connection.msgtype)
                name, header = f'{path.name}[{i}]', message.header
                stamped = {
                    'frame_id': header.frame_id,
                    'stamp': header.stamp.sec * 10**9 + header.stamp.nanosec,
                }
                if connection.msgtype == _COMPRESSED:
                    yield _decoded(message.data, name, **stamped)
                else:
                    yield SourceImage(
                        name, message.data, message.width, message.height, message.encoding,
                        message.step, bool(message.is_bigendian), **stamped,
                    )
    except AnyReaderError as error:
        raise SourceError(f'{path}: {error}') from error
