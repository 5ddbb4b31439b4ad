"""How often, and how soon, a backend that broke is opened anew."""

from __future__ import annotations

from collections.abc import Callable
import time

_HEALTHY = 60.0  # Seconds without error after which the count starts anew.


class RecoveryPolicy:
    """Counts errors; each attempt waits twice as long as the one before."""

    def __init__(
        self, most: int, delay: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Allow `most` attempts in a row, the first one after `delay` seconds."""
        self.most = most
        self._delay = delay
        self._clock = clock
        self.attempts = 0
        self._last = clock()

    def next_delay(self) -> float | None:
        """Return the seconds to wait before the next attempt; None if there is to be none."""
        now = self._clock()
        if now - self._last > _HEALTHY:
            self.attempts = 0
        if self.attempts >= self.most:
            return None
        delay = self._delay * 2.0**self.attempts
        self.attempts += 1
        self._last = now + delay
        return delay
