"""Images from files: pictures, folders of them, rosbag2 bags, videos; without ROS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from dla_ros.sources.bag import BagSource
from dla_ros.sources.base import Source, SourceEntry, SourceError, SourceImage
from dla_ros.sources.pictures import PictureSource
from dla_ros.sources.video import VideoSource

SOURCES = (BagSource, VideoSource, PictureSource)
"""Every kind of source; the first that knows a path opens it, and pictures know all."""

__all__ = [
    'open_source', 'read_images', 'Source', 'SourceEntry', 'SourceError', 'SourceImage', 'SOURCES',
]


def open_source(path: str | Path, topics: Sequence[str] = ()) -> Source:
    """Open a source of images.

    Parameters
    ----------
    path:
        A picture, a folder of pictures, a rosbag2 folder, an mcap or db3 file, a video.
    topics:
        The topics to read from a bag; empty for its only image topic.

    Raises
    ------
    SourceError
        If it cannot be read, or a bag has several image topics and none is named.

    """
    place = Path(path)
    if not place.exists():
        raise SourceError(f'{place.absolute()} does not exist')
    opened = (kind.open(place, topics) for kind in SOURCES)
    return next(source for source in opened if source is not None)


def read_images(sources: Sequence[str | Path], topic: str = '') -> Iterator[SourceImage]:
    """Yield the images of all sources, in order; raise SourceError at the first bad one.

    Parameters
    ----------
    sources:
        See open_source.
    topic:
        The topic to read from bags; '' for their only image topic.

    """
    for path in sources:
        for entry in open_source(path, [topic] if topic else []):
            yield entry.load()
