"""Which images of a source are used."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
import itertools

from dla_ros.sources.base import Source, SourceEntry, SourceError


@dataclass(frozen=True)
class Selection:
    """Which images of a source are used.

    Attributes
    ----------
    start, end:
        Seconds from the source's beginning; sources without times know only None.
    every:
        Only every so manieth of those.
    limit:
        At most so many; 0 for all.

    """

    start: float | None = None
    end: float | None = None
    every: int = 1
    limit: int = 0

    def entries(self, source: Source) -> Iterator[SourceEntry]:
        """Yield the entries; raise SourceError if times are asked of a source without."""
        inside = (entry for entry in source if self._holds(entry))
        return itertools.islice(inside, 0, self.every * self.limit or None, self.every)

    def most(self, source: Source) -> int:
        """Return how many entries there are at most."""
        count = -(-len(source) // self.every)
        return min(count, self.limit) if self.limit else count

    def _holds(self, entry: SourceEntry) -> bool:
        if self.start is None and self.end is None:
            return True
        if entry.seconds is None:
            raise SourceError(f'{entry.name} has no time; --start and --end are for bags, videos')
        after = self.start is None or entry.seconds >= self.start
        return after and (self.end is None or entry.seconds <= self.end)

    @staticmethod
    def add_arguments(parser: argparse._ActionsContainer) -> None:
        """Add the options of a command line."""
        parser.add_argument('--start', type=float, metavar='S', help='seconds from the beginning')
        parser.add_argument('--end', type=float, metavar='S', help='seconds from the beginning')
        parser.add_argument(
            '--every', type=whole_number, default=1, metavar='N', help='only every Nth image'
        )
        parser.add_argument(
            '--limit', type=whole_number, default=0, metavar='N', help='at most N images'
        )

    @classmethod
    def of(cls, options: argparse.Namespace) -> Selection:
        """Return what the options say."""
        return cls(options.start, options.end, options.every, options.limit)

    def words(self) -> list[str]:
        """Return the options that say this."""
        values = {
            '--start': self.start, '--end': self.end, '--every': self.every,
            '--limit': self.limit or None,
        }
        return [
            word for name, value in values.items() if value is not None
            for word in (name, str(value))
        ]


def whole_number(text: str) -> int:
    """Return the whole number above 0 of an option's text."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f'must be a whole number above 0, got {text!r}')
    return int(text)
