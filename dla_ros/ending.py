"""How the process ends: SIGINT and SIGTERM, held back until the main thread asks for them.

No handler runs at all: one could come in anywhere, even while another one holds a lock, and
Python takes handlers away before the process has ended. Blocked signals just wait.
"""

from __future__ import annotations

import signal
import threading

REPLACE_PROCESS = 75  # The exit code that asks for a new process; EX_TEMPFAIL of sysexits.h.
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Ending:
    """Whether this process has been told to end; made once, early, in the main thread.

    Threads that are started later inherit the blocked signals, and so do child processes.
    """

    def __init__(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        self._told = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait, at most `timeout` seconds, and return whether the process is to end.

        Called from the main thread only.
        """
        if not self._told:
            if timeout is None:
                signal.sigwait(SIGNALS)
                self._told = True
            else:
                self._told = signal.sigtimedwait(SIGNALS, max(timeout, 0.0)) is not None
        return self._told

    def tell(self) -> None:
        """End the process from within; from any thread."""
        # To the main thread, which holds it back; threads of a library might not.
        main_thread = threading.main_thread().ident
        assert main_thread is not None
        signal.pthread_kill(main_thread, signal.SIGTERM)
