"""Run recorded images through a model, the same every time, and say what has changed."""

from __future__ import annotations

from collections.abc import Sequence
import sys

from dla_ros.ending import Ending


def main(words: Sequence[str] | None = None) -> int:
    """See replay/command.py."""
    # Before numpy starts threads, which would take the signals.
    ending = Ending()
    from dla_ros.replay.command import run

    return run(words, lambda: ending.wait(0.0))


if __name__ == '__main__':
    sys.exit(main())
