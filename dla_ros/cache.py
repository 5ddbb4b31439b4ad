"""Files that are made once on each machine: compiled kernels, the emulator's libraries."""

from __future__ import annotations

from collections.abc import Callable
import hashlib
import logging
import os
from pathlib import Path
import uuid

_log = logging.getLogger(__name__)


def cache_directory() -> Path:
    """Return where this user's cached files go: $XDG_CACHE_HOME/dla_ros or ~/.cache/dla_ros."""
    home = os.environ.get('XDG_CACHE_HOME')
    return (Path(home) if home else Path.home() / '.cache') / 'dla_ros'


def digest(*parts: str | bytes) -> str:
    """Return a key for what is made from `parts`."""
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        sha.update(len(data).to_bytes(8, 'little') + data)
    return sha.hexdigest()[:32]


def cached(name: str, make: Callable[[], bytes]) -> bytes:
    """Return the bytes of a cached file, made and kept if it is not there.

    A cache that cannot be read or written, or a file that was cut off, only costs time.
    """
    path = cache_directory() / name
    try:
        data = path.read_bytes()
        if data[:32].decode('ascii', 'replace') == digest(data[32:]):
            return data[32:]
        _log.warning('%s is damaged; made anew', path)
    except FileNotFoundError:
        pass
    except OSError as error:
        _log.warning('%s cannot be read (%s); made anew', path, error)
    made = make()
    try:
        write_atomically(path, digest(made).encode() + made)
    except OSError as error:
        _log.warning('%s cannot be written (%s); it will be made again next time', path, error)
    return made


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that nobody sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Unlike tempfile's, its permissions are those of any new file.
    temporary = path.with_name(f'.{path.name}.{uuid.uuid4().hex}')
    try:
        with temporary.open('xb') as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
