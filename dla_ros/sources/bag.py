"""rosbag2 bags: folders with metadata.yaml, and single mcap and sqlite3 files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from dla_ros.sources.base import decoded, SourceEntry, SourceError, SourceImage

IMAGE = 'sensor_msgs/msg/Image'
COMPRESSED = 'sensor_msgs/msg/CompressedImage'
_FILES = ('.mcap', '.db3')
_ZSTD = b'\x28\xb5\x2f\xfd'


class BagSource:
    """The images of a bag, by the time at which they were recorded."""

    def __init__(self, path: Path, topics: Sequence[str]) -> None:
        """Choose the topics; raise SourceError if none is named and there are several."""
        self.path = path
        with _reader(path) as reader:
            kinds = {c.topic: _kind(c.msgtype) for c in reader.connections}
            found = {topic: kind for topic, kind in kinds.items() if kind in (IMAGE, COMPRESSED)}
            listing = ', '.join(f'{topic} ({kind})' for topic, kind in found.items()) or 'none'
            self.topics = tuple(topics) or tuple(found)
            if set(topics) - set(found) or (not topics and len(found) != 1):
                raise SourceError(f'{path}: name one image topic with --topic; it has {listing}')
            self._count: int = sum(
                c.msgcount for c in reader.connections if c.topic in self.topics
            )

    @classmethod
    def open(cls, path: Path, topics: Sequence[str]) -> BagSource | None:
        """Return the source, if a path is one."""
        is_bag = (path / 'metadata.yaml').is_file() or path.suffix in _FILES
        return cls(path, topics) if is_bag else None

    def __len__(self) -> int:
        """Return the number of messages."""
        return self._count

    def __iter__(self) -> Iterator[SourceEntry]:
        """Yield the images."""
        with _reader(self.path) as reader:
            chosen = [c for c in reader.connections if c.topic in self.topics]
            for i, (connection, time, raw) in enumerate(reader.messages(chosen)):
                name = f'{self.path.name}[{i}]'
                yield SourceEntry(
                    name, i, connection.topic, (time - reader.start_time) / 1e9,
                    partial(_load, raw, _kind(connection.msgtype), name),
                )


@cache
def _typestore() -> Any:
    from rosbags.typesys import get_typestore, Stores

    return get_typestore(Stores.ROS2_JAZZY)


def _decompressed(raw: bytes) -> bytes:
    from backports import zstd  # As rosbags does.

    return zstd.decompress(raw)


@contextmanager
def _reader(path: Path) -> Iterator[Any]:
    from rosbags.highlevel import AnyReader, AnyReaderError
    from rosbags.rosbag2 import ReaderError

    try:
        with AnyReader([path], default_typestore=_typestore()) as reader:
            yield reader
    except (AnyReaderError, ReaderError) as error:
        raise SourceError(f'{path}: {error}') from error


def _kind(name: str) -> str:
    """Return a type's ROS 2 name; some recorders leave out the part in the middle."""
    package, _, rest = name.partition('/')
    return f'{package}/msg/{rest.rpartition("/")[2]}'


def _load(raw: bytes, kind: str, name: str) -> SourceImage:
    try:
        # A lone file does not say that its messages are compressed; none begins like this.
        message = _typestore().deserialize_cdr(
            _decompressed(raw) if bytes(raw[:4]) == _ZSTD else raw, kind
        )
    except Exception as error:
        # Whatever a message that was cut off makes the deserializer stumble over.
        raise SourceError(f'{name}: not a whole {kind}: {error}') from error
    stamp = message.header.stamp
    stamped = {
        'frame_id': message.header.frame_id, 'stamp': stamp.sec * 10**9 + stamp.nanosec,
    }
    if kind == COMPRESSED:
        return decoded(message.data, name, **stamped)
    return SourceImage(
        name, np.asarray(message.data, np.uint8), message.width, message.height,
        message.encoding, message.step, bool(message.is_bigendian), **stamped,
    )
