"""Where the files that come with dla_ros are: models, pictures, launch files, configuration."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

PACKAGE = 'dla_ros'


def share_directory() -> Path:
    """Return the package's share folder, or the source tree when it runs from there."""
    source_tree = Path(__file__).resolve().parent.parent
    if (source_tree / 'package.xml').is_file():
        return source_tree
    from ament_index_python.packages import get_package_share_directory

    return Path(get_package_share_directory(PACKAGE))


def package_version() -> str:
    """Return the version of dla_ros, from its package.xml."""
    return ElementTree.parse(share_directory() / 'package.xml').findtext('version', 'unknown')
