"""The processes of a run over DDS: the node, a player, a listener, and their events."""

from __future__ import annotations

import json
import os
from pathlib import Path
import queue
import signal
import subprocess
import sys
import threading
import time
from typing import Any

PATIENCE = 60.0  # Seconds for the processes to find each other.


class ProcessError(Exception):
    """The processes did not do what they should; the text says what was seen."""


class Processes:
    """The processes, their events in one queue, and their clean ending."""

    def __init__(self, out: Path) -> None:
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._out = out
        self._running: dict[str, subprocess.Popen[str]] = {}
        # Its own domain, on this machine only: they must not meet a robot on the network.
        self._environment = {
            **os.environ,
            'ROS_DOMAIN_ID': os.environ.get('ROS_DOMAIN_ID', str(1 + os.getpid() % 100)),
            'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
            'PYTHONUNBUFFERED': '1',
        }

    def start(self, name: str, module: str, *arguments: str) -> None:
        """Start `python -m module`; its lines of JSON become events, the rest goes to a log."""
        log = (self._out / f'{name}.log').open('w')
        process = subprocess.Popen(
            [sys.executable, '-m', module, *arguments],
            stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment,
        )
        log.close()
        self._running[name] = process
        threading.Thread(target=self._read, args=(name, process), daemon=True).start()

    def _read(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith('{'):
                self.events.put(json.loads(line))
        self.events.put({'event': 'ended', 'name': name, 'code': process.wait()})

    def log(self, name: str) -> str:
        """Return the end of a process's log."""
        return '\n'.join((self._out / f'{name}.log').read_text().splitlines()[-15:])

    def end(self) -> dict[str, int]:
        """Ask all to end and wait; return the exit codes by name."""
        for process in self._running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        codes = {}
        for name, process in self._running.items():
            try:
                codes[name] = process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()
                codes[name] = process.wait()
        return codes

    def check(self, codes: dict[str, int]) -> None:
        """Raise ProcessError if one ended with an error."""
        failed = {name: code for name, code in codes.items() if code}
        if failed:
            raise ProcessError(
                f'ended with an error: {failed}\n' + '\n'.join(map(self.log, failed))
            )

    def next_event(self, timeout: float, waiting_for: str) -> dict[str, Any]:
        """Return the next event; raise ProcessError if none comes or a process has ended."""
        try:
            event = self.events.get(timeout=timeout)
        except queue.Empty:
            raise ProcessError(
                f'no {waiting_for} after {PATIENCE:g} s; the node says:\n{self.log("node")}'
            ) from None
        if event['event'] == 'ended' and (event['code'] or event['name'] != 'player'):
            raise ProcessError(
                f'{event["name"]} ended with exit code {event["code"]}:\n'
                f'{self.log(event["name"])}'
            )
        return event

    def await_ready(self) -> None:
        """Wait for the listener to find the node's detections."""
        deadline = time.monotonic() + PATIENCE
        event = {'event': ''}
        while event['event'] != 'ready':
            event = self.next_event(max(deadline - time.monotonic(), 0.0), 'detector')
