"""The pytest plugin: a package's bag tests in one line each, by the fixture `replay_bag`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --accept-detections."""
    parser.getgroup('dla_ros').addoption(
        '--accept-detections', action='store_true',
        help='replay_bag writes what it finds as what is expected from now on',
    )


@pytest.fixture
def replay_bag(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    """Return a function that fails the test if detections are not the expected ones.

    replay_bag(source, model=..., expect=..., iou=0.5, score_tolerance=0.05, **job)

    Relative paths start at the test's file; `job` are further fields of replay.run.Job, such as
    topics, backend, options, thresholds, selection.
    """
    import shutil

    from dla_ros.replay.outcome import examine, tolerance_of
    from dla_ros.replay.report import report
    from dla_ros.replay.run import Job, RECORDS, REPORT, run_job

    def check(
        source: str | Path, *, model: str | Path, expect: str | Path, iou: float = 0.5,
        score_tolerance: float = 0.05, **job: Any,
    ) -> None:
        here = request.path.parent
        golden = here / expect
        network = here / model if (here / model).exists() else model
        made = Job(str(here / source), tmp_path / 'replay', str(network), **job)
        accept = request.config.getoption('--accept-detections')
        if not accept and not golden.is_file():
            pytest.fail(f'{golden} does not exist; --accept-detections writes it', pytrace=False)
        summary = run_job(made)
        if accept and not summary.failure:
            golden.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(made.out / RECORDS, golden)
        outcome = examine(
            made, summary, golden=golden, tolerance=tolerance_of(made, iou, score_tolerance)
        )
        if not outcome.good:
            page = made.out / REPORT
            page.write_text(report(request.node.name, [outcome]), 'utf-8')
            pytest.fail(f'{source}: {outcome.verdict}; look at {page}', pytrace=False)

    return check
