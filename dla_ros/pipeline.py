"""From images pushed at any rate to results in order: slots, threads, what is dropped, counts."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
import threading
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from dla_ros.decoders.base import Thresholds
from dla_ros.detector import Detector, Result
from dla_ros.errors import BackendError, DeadlineError, Remedy
from dla_ros.geometry import Rect
from dla_ros.image import ImageError, ImageView

_WINDOW = 512  # Frames that the latency percentiles look back on.
_POLL = 0.05  # Seconds between looks at a slot that missed its deadline,
_WATCH = 0.25  # and at a submission that may hang.


@dataclass(frozen=True)
class Frame:
    """An image on its way.

    Attributes
    ----------
    data:
        The image, or the network's input as float32 [n, c, h, w]; its buffer must stay as it is
        until the result is there.
    tag:
        Whatever the caller wants back with the result: the message's header, say.
    thresholds, roi:
        See Detector.submit.
    arrived:
        time.monotonic() of the push, seconds.

    """

    data: ImageView | npt.NDArray[np.float32]
    tag: Any
    thresholds: Thresholds
    roi: Rect | None
    arrived: float


class Statistics:
    """Counts and latencies of a pipeline; any thread may add and read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.received = 0
        self.processed = 0
        self.not_finite = 0
        self.dropped: Counter[str] = Counter()
        self._latencies: dict[str, deque[float]] = {}

    def receive(self) -> None:
        """Count an image that came in."""
        with self._lock:
            self.received += 1

    def drop(self, reason: str) -> int:
        """Count an image that gets no result; return how many there were for this reason."""
        with self._lock:
            self.dropped[reason] += 1
            return self.dropped[reason]

    def process(self, stages: dict[str, float], not_finite: int = 0) -> None:
        """Count a result, with its milliseconds by stage and its scores that are no numbers."""
        with self._lock:
            self.processed += 1
            self.not_finite += not_finite
            for stage, milliseconds in stages.items():
                self._latencies.setdefault(stage, deque(maxlen=_WINDOW)).append(milliseconds)

    def snapshot(self) -> dict[str, Any]:
        """Return the counts, and (p50, p99) in ms by stage over the last frames."""
        with self._lock:
            latencies = {stage: list(values) for stage, values in self._latencies.items()}
            counts = {
                'received': self.received,
                'processed': self.processed,
                'not_finite': self.not_finite,
                'dropped': dict(self.dropped),
            }
        percentiles = {
            stage: tuple(float(p) for p in np.percentile(values, (50, 99)))
            for stage, values in latencies.items()
        }
        return {**counts, 'latency': percentiles}


class Pipeline:
    """Feeds a detector from one thread and hands out its results on another.

    `push` never blocks. When all slots are busy only the newest image waits; the one it replaces
    is dropped and counted (`superseded`). Results leave in the order of arrival. One thread
    submits, one collects; both end with `close`.
    """

    def __init__(
        self,
        detector: Detector,
        *,
        depth: int,
        statistics: Statistics,
        on_result: Callable[[Result, Any], None],
        on_failure: Callable[[str, str, Remedy], None],
        frame_timeout: float = 5.0,
    ) -> None:
        """Start both threads.

        Parameters
        ----------
        detector:
            Open, with at least `depth` slots; the pipeline does not close it.
        depth:
            Frames in flight.
        statistics:
            Where results and drops are counted; `receive` is the caller's.
        on_result:
            Called with the result and the frame's tag, on the collecting thread.
        on_failure:
            Called with the reason, a sentence and the remedy for each frame that gets no result
            though it was started, on either thread.
        frame_timeout:
            Seconds that one frame may take on the backend.

        """
        self._statistics = statistics
        self._detector = detector
        self._on_result = on_result
        self._on_failure = on_failure
        self._frame_timeout = frame_timeout
        self._changed = threading.Condition()
        self._waiting: deque[Frame] = deque()
        self._free = deque(range(depth))
        self._running: deque[tuple[int, Frame]] = deque()
        self._late: list[int] = []
        self._submitting_since: float | None = None
        self._unfinished = 0
        self._closing = False
        self._abandoned = False
        self._threads = [
            threading.Thread(target=self._submit_loop, name='dla_ros-submit', daemon=True),
            threading.Thread(target=self._collect_loop, name='dla_ros-collect', daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def push(
        self,
        data: ImageView | npt.NDArray[np.float32],
        tag: Any,
        thresholds: Thresholds,
        roi: Rect | None = None,
    ) -> bool:
        """Take a frame; return False if the pipeline is closing and it was not taken."""
        frame = Frame(data, tag, thresholds, roi, time.monotonic())
        with self._changed:
            if self._closing:
                return False
            self._waiting.append(frame)
            # Those that find a free slot are about to leave; of the rest only the newest stays.
            superseded = len(self._waiting) > len(self._free) + 1
            if superseded:
                del self._waiting[len(self._free)]
            else:
                self._unfinished += 1
            self._changed.notify_all()
        if superseded:
            self._statistics.drop('superseded')
        return True

    def drain(self, timeout: float) -> bool:
        """Wait until nothing is waiting or in flight; return False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(self._idle, timeout)

    def close(self, timeout: float = 1.0) -> bool:
        """Take no more images, finish those in hand, end the threads.

        What is not finished after `timeout` seconds is dropped and counted (`closed`); then the
        detector's slots may still be busy, and False is returned. Safe to call twice.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        drained = self.drain(timeout)
        if not drained:
            with self._changed:
                abandoned, self._unfinished = self._unfinished, 0
                self._waiting.clear()
                self._running.clear()
                self._abandoned = True
                self._changed.notify_all()
            for _ in range(abandoned):
                self._statistics.drop('closed')
        for thread in self._threads:
            # A thread that waits for an abandoned frame ends when the detector is closed.
            thread.join(None if drained else 0)
        return drained

    def _idle(self) -> bool:
        return self._unfinished == 0

    def _ending(self) -> bool:
        return self._closing and self._idle()

    def _submit_loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: (self._waiting and self._free) or self._ending()
                )
                if self._ending():
                    return
                frame, slot = self._waiting.popleft(), self._free.popleft()
                self._submitting_since = time.monotonic()
            try:
                self._submit(slot, frame)
            except Exception as error:
                # Whatever it is: it must not end this thread, and with it all that follows.
                self._free_slot(slot)
                self._fail(error)
                self._finish()
            else:
                with self._changed:
                    self._running.append((slot, frame))
                    self._changed.notify_all()
            finally:
                self._submitting_since = None

    def _submit(self, slot: int, frame: Frame) -> None:
        if isinstance(frame.data, ImageView):
            self._detector.submit(slot, frame.data, frame.thresholds, frame.roi)
        else:
            self._detector.submit_tensor(slot, frame.data, frame.thresholds)

    def _collect_loop(self) -> None:
        while True:
            with self._changed:
                # Neither a late slot that comes back nor a call that hangs gives a signal.
                self._changed.wait_for(
                    lambda: self._running or self._ending(), _POLL if self._late else _WATCH
                )
                if self._ending():
                    return
                slot, frame = self._running.popleft() if self._running else (None, None)
            self._recover_late()
            self._watch_submit()
            if slot is not None and frame is not None:
                self._collect(slot, frame)

    def _collect(self, slot: int, frame: Frame) -> None:
        try:
            result = self._detector.collect(slot, self._frame_timeout)
        except DeadlineError as error:
            self._late.append(slot)
            self._fail(error)
        except Exception as error:
            self._free_slot(slot)
            self._fail(error)
        else:
            self._free_slot(slot)
            self._hand_out(result, frame)
        self._finish()

    def _hand_out(self, result: Result, frame: Frame) -> None:
        if self._abandoned:
            return
        ready = time.monotonic()
        try:
            self._on_result(result, frame.tag)
        except Exception as error:
            self._fail(error, 'publish')
            return
        done = time.monotonic()
        stages = {
            **result.stages, 'publish': 1e3 * (done - ready), 'total': 1e3 * (done - frame.arrived)
        }
        self._statistics.process(stages, result.not_finite)

    def _recover_late(self) -> None:
        for slot in list(self._late):
            try:
                self._detector.collect(slot, 0.0)
            except DeadlineError:
                continue
            except Exception:
                pass  # It failed in the end; its frame was reported when it was late.
            self._late.remove(slot)
            self._free_slot(slot)

    def _watch_submit(self) -> None:
        since = self._submitting_since
        if since is not None and time.monotonic() - since > self._frame_timeout:
            self._submitting_since = None
            # Its thread is lost, and with it this pipeline.
            self._fail(DeadlineError(
                f'the backend has not taken a frame for {self._frame_timeout:g} s', Remedy.REOPEN
            ))

    def _fail(self, error: Exception, reason: str = '') -> None:
        if not self._abandoned:
            name = reason or _reason(error)
            self._statistics.drop(name)
            remedy = error.remedy if isinstance(error, BackendError) else Remedy.NEXT_FRAME
            self._on_failure(name, _text(error), remedy)

    def _free_slot(self, slot: int) -> None:
        with self._changed:
            self._free.append(slot)
            self._changed.notify_all()

    def _finish(self) -> None:
        with self._changed:
            self._unfinished -= 0 if self._abandoned else 1
            self._changed.notify_all()


def _reason(error: Exception) -> str:
    if isinstance(error, ImageError):
        return error.kind
    if isinstance(error, DeadlineError):
        return 'deadline'
    return 'backend' if isinstance(error, BackendError) else 'internal'


def _text(error: Exception) -> str:
    expected = isinstance(error, (ImageError, BackendError))
    return str(error) if expected else f'{type(error).__name__}: {error}'
