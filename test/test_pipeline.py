"""The pipeline against a detector whose frames take as long as a test says."""

from __future__ import annotations

from collections.abc import Callable
import threading
import time

from hypothesis import given, settings, strategies as st
import numpy as np
import pytest

from dla_ros.decoders.base import Thresholds
from dla_ros.detector import Detector, Result
from dla_ros.errors import BackendError, DeadlineError, Remedy
from dla_ros.image import ImageError, ImageView
from dla_ros.pipeline import Pipeline, Statistics
from dla_ros.predictions import Detections
from test.conftest import picture

VIEW = ImageView.from_array(np.zeros((2, 2, 3), np.uint8))


class ScriptedDetector:
    """Finishes a frame when `release` says so, in order; keeps track of its slots."""

    def __init__(self, depth: int) -> None:
        self.permits = threading.Semaphore(0)
        self.busy: set[int] = set()
        self.depth = depth
        self.threads: set[str] = set()
        self.submit_error: Exception | None = None
        self.collect_error: Exception | None = None
        self.accepting = threading.Event()
        self.accepting.set()

    def release(self, frames: int) -> None:
        for _ in range(frames):
            self.permits.release()

    def submit(self, slot, view, thresholds, roi=None):
        self.threads.add(threading.current_thread().name)
        assert slot not in self.busy and slot < self.depth
        self.accepting.wait()
        if self.submit_error is not None:
            raise self.submit_error
        self.busy.add(slot)

    def collect(self, slot, timeout):
        assert slot in self.busy
        if not self.permits.acquire(timeout=timeout or 1e-9):
            raise DeadlineError(f'slot {slot} is late')
        self.busy.discard(slot)
        if self.collect_error is not None:
            raise self.collect_error
        return Result(Detections.empty(), {'inference': 1.0})


class Harness:
    def __init__(self, depth: int = 2, frame_timeout: float = 10.0) -> None:
        self.detector = ScriptedDetector(depth)
        self.statistics = Statistics()
        self.results: list[object] = []
        self.failures: list[tuple[str, str]] = []
        self.remedies: list[Remedy] = []
        self.pipeline = Pipeline(
            self.detector,  # type: ignore[arg-type]
            depth=depth,
            statistics=self.statistics,
            on_result=lambda result, tag: self.results.append(tag),
            on_failure=self._fail,
            frame_timeout=frame_timeout,
        )

    def _fail(self, reason: str, text: str, remedy: Remedy) -> None:
        self.failures.append((reason, text))
        self.remedies.append(remedy)

    def push(self, *tags: object) -> None:
        for tag in tags:
            self.statistics.receive()
            assert self.pipeline.push(VIEW, tag, Thresholds())

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline, (self.results, self.failures)
            time.sleep(0.002)


@pytest.fixture
def harness():
    made: list[Harness] = []

    def make(**settings: float) -> Harness:
        made.append(Harness(**settings))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.detector.release(1000)
        one.detector.accepting.set()
        one.pipeline.close(2.0)


def test_results_come_in_order_of_arrival(harness):
    h = harness(depth=3)
    h.push(*range(3))
    h.detector.release(3)
    h.until(lambda: len(h.results) == 3)
    assert h.results == [0, 1, 2]
    assert h.statistics.snapshot()['processed'] == 3


def test_only_the_newest_waits_when_all_slots_are_busy(harness):
    h = harness(depth=2)
    h.push(0, 1)
    h.until(lambda: len(h.detector.busy) == 2)
    h.push(2, 3, 4)
    h.detector.release(10)
    h.until(lambda: len(h.results) == 3)
    assert h.results == [0, 1, 4]
    assert h.statistics.snapshot()['dropped'] == {'superseded': 2}


def test_a_burst_that_fits_is_not_dropped(harness):
    for _ in range(20):
        h = harness(depth=4)
        h.push(*range(5))
        h.detector.release(5)
        h.until(lambda h=h: len(h.results) == 5)
        assert h.results == list(range(5)) and not h.statistics.snapshot()['dropped']


def test_push_does_not_block(harness):
    h = harness(depth=1)
    start = time.monotonic()
    h.push(*range(1000))
    assert time.monotonic() - start < 2.0


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4), st.lists(st.integers(0, 3), min_size=1, max_size=40))
def test_every_frame_is_accounted_for(depth, releases):
    h = Harness(depth=depth)
    for i, permits in enumerate(releases):
        h.push(i)
        h.detector.release(permits)
    h.detector.release(len(releases))
    assert h.pipeline.close(5.0)
    counts = h.statistics.snapshot()
    assert counts['received'] == counts['processed'] + sum(counts['dropped'].values())
    assert h.results == sorted(h.results) and h.results[-1] == len(releases) - 1


def test_one_thread_submits(harness):
    h = harness(depth=2)
    h.detector.release(50)
    for i in range(50):
        h.push(i)
        h.until(lambda i=i: len(h.results) > i)
    assert h.detector.threads == {'dla_ros-submit'}


def test_close_finishes_what_is_in_hand(harness):
    h = harness(depth=2)
    h.push(0, 1)
    h.until(lambda: len(h.detector.busy) == 2)
    h.push(2)
    threading.Timer(0.2, h.detector.release, (3,)).start()
    assert h.pipeline.close(5.0)
    assert h.results == [0, 1, 2]
    assert not h.pipeline.push(VIEW, 3, Thresholds())


def test_close_gives_up_after_its_timeout_and_counts(harness):
    h = harness(depth=2)
    h.push(0, 1)
    h.until(lambda: len(h.detector.busy) == 2)
    h.push(2)
    start = time.monotonic()
    assert not h.pipeline.close(0.2)
    assert time.monotonic() - start < 1.0
    assert h.statistics.snapshot()['dropped'] == {'closed': 3}
    h.detector.release(3)
    time.sleep(0.1)
    assert h.results == [] and h.failures == []
    h.pipeline.close(0.1)


def test_threads_end_with_close(harness):
    before = threading.active_count()
    h = harness()
    assert threading.active_count() == before + 2
    h.pipeline.close(1.0)
    assert threading.active_count() == before


def test_a_late_frame_is_reported_and_its_slot_comes_back(harness):
    h = harness(depth=1, frame_timeout=0.05)
    h.push(0)
    h.until(lambda: bool(h.failures))
    assert h.failures[0][0] == 'deadline'
    h.push(1)
    time.sleep(0.1)
    assert h.results == []
    h.detector.release(2)
    h.until(lambda: h.results == [1])
    assert h.statistics.snapshot()['dropped'] == {'deadline': 1}


@pytest.mark.parametrize(
    ('where', 'error', 'reason'),
    [
        ('submit_error', BackendError('gone'), 'backend'),
        ('submit_error', ImageError('roi', 'outside'), 'roi'),
        ('submit_error', ZeroDivisionError('bug'), 'internal'),
        ('collect_error', BackendError('gone'), 'backend'),
        ('collect_error', ZeroDivisionError('bug'), 'internal'),
    ],
)
def test_a_failed_frame_is_counted_and_the_next_one_goes_on(harness, where, error, reason):
    h = harness(depth=1)
    setattr(h.detector, where, error)
    h.detector.release(1 if where == 'collect_error' else 0)
    h.push(0)
    h.until(lambda: bool(h.failures))
    assert h.failures[0][0] == reason and str(error) in h.failures[0][1]
    setattr(h.detector, where, None)
    h.detector.release(1)
    h.push(1)
    h.until(lambda: h.results == [1])
    assert h.statistics.snapshot()['dropped'] == {reason: 1}


def test_a_result_that_cannot_be_handed_out_is_counted_and_the_next_one_goes_on(harness):
    h = harness(depth=2)
    take = h.pipeline._on_result

    def refuse_first(detections, tag):
        if tag == 0:
            raise RuntimeError('no publisher')
        take(detections, tag)

    h.pipeline._on_result = refuse_first
    h.detector.release(2)
    h.push(0, 1)
    h.until(lambda: h.results == [1])
    assert h.failures == [('publish', 'RuntimeError: no publisher')]
    assert h.statistics.snapshot()['dropped'] == {'publish': 1}


def test_under_load_the_age_of_results_stays_bounded():
    period, ages, statistics = 0.03, [], Statistics()
    h = ScriptedDetector(2)
    pipeline = Pipeline(
        h, depth=2, statistics=statistics,  # type: ignore[arg-type]
        on_result=lambda result, tag: ages.append(time.monotonic() - tag),
        on_failure=lambda *failure: None,
    )
    ending = threading.Event()

    def work() -> None:
        while not ending.wait(period):
            h.release(1)

    worker = threading.Thread(target=work)
    worker.start()
    for _ in range(150):  # Three times as fast as the backend.
        statistics.receive()
        pipeline.push(VIEW, time.monotonic(), Thresholds())
        time.sleep(period / 3)
    h.release(10)
    assert pipeline.close(2.0)
    ending.set()
    worker.join()
    # Two in flight and one waiting make three periods; a queue would have grown to thirty.
    assert np.median(ages[-20:]) < 10 * period
    assert statistics.snapshot()['dropped']['superseded'] > 60


def test_with_a_real_detector():
    results = []
    with Detector.open('yolo_fastest') as detector:
        pipeline = Pipeline(
            detector, depth=2, statistics=Statistics(),
            on_result=lambda result, tag: results.append((tag, len(result.prediction))),
            on_failure=lambda reason, text, remedy: results.append((reason, text)),
        )
        for name in ('coral_cat.bmp', 'coral_sunflower.bmp', 'skimage_coffee.png'):
            pipeline.push(ImageView.from_array(picture(name)), name, Thresholds())
        assert pipeline.close(30.0)
    assert results == [('coral_cat.bmp', 1), ('coral_sunflower.bmp', 0), ('skimage_coffee.png', 2)]


def test_what_helps_is_passed_on(harness):
    h = harness(depth=1)
    h.detector.release(3)
    errors = (
        BackendError('b', Remedy.REOPEN), ValueError('v'), DeadlineError('d', Remedy.RESTART)
    )
    for number, error in enumerate(errors, 1):
        h.detector.submit_error = error
        h.push('frame')
        h.until(lambda number=number: len(h.failures) == number)
    assert h.remedies == [Remedy.REOPEN, Remedy.NEXT_FRAME, Remedy.RESTART]
    assert [reason for reason, _ in h.failures] == ['backend', 'internal', 'deadline']


def test_a_submission_that_hangs_is_reported_once_and_close_does_not_wait_for_it(harness):
    h = harness(depth=1, frame_timeout=0.1)
    h.detector.accepting.clear()
    h.push('frame')
    h.until(lambda: h.failures)
    time.sleep(0.6)
    assert h.failures == [('deadline', 'the backend has not taken a frame for 0.1 s')]
    assert h.remedies == [Remedy.REOPEN]
    start = time.monotonic()
    assert not h.pipeline.close(0.1)
    assert time.monotonic() - start < 0.5
