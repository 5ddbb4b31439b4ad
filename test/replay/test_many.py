"""Many sources at once: the same results as one by one, whatever runs them."""

from __future__ import annotations

import shutil

import pytest

from dla_ros.replay.many import ClusterError, run_in_processes, run_on_dask
from dla_ros.replay.run import Job, run_job
from dla_ros.sources.selection import Selection
from test.conftest import ROOT

SOURCES = {
    'clip': (str(ROOT / 'demo/clip'), ('/camera/image_raw',)),
    'pictures': (str(ROOT / 'demo/pictures'), ()),
    'none': (str(ROOT / 'demo/none'), ()),
}


def jobs(folder):
    return [
        Job(
            source, folder / name, 'yolo_fastest', topics=topics, selection=Selection(limit=3)
        )
        for name, (source, topics) in SOURCES.items()
    ]


@pytest.fixture(scope='module')
def expected(tmp_path_factory):
    """What each source gives when it runs alone."""
    folder = tmp_path_factory.mktemp('alone')
    for job in jobs(folder)[:2]:
        run_job(job)
    return {name: (folder / name / 'detections.jsonl').read_bytes() for name in list(SOURCES)[:2]}


def check(folder, summaries, told, expected):
    assert [summary.frames for summary in summaries] == [2, 3, 0]
    assert [bool(summary.failure) for summary in summaries] == [False, False, True]
    assert 'none does not exist' in summaries[2].failure
    assert sorted(s.source for s in told) == sorted(s.source for s in summaries)
    for name, content in expected.items():
        assert (folder / name / 'detections.jsonl').read_bytes() == content


def test_two_processes_and_a_source_that_fails(tmp_path, expected):
    told = []
    summaries = run_in_processes(jobs(tmp_path), 2, done=told.append)
    check(tmp_path, summaries, told, expected)


def test_a_dask_cluster_of_two_processes(tmp_path, expected):
    from distributed import LocalCluster

    told = []
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
        local_directory=str(tmp_path / 'dask'),
    ) as cluster:
        summaries = run_on_dask(jobs(tmp_path), cluster.scheduler_address, done=told.append)
    check(tmp_path, summaries, told, expected)


def test_what_has_not_begun_when_told_to_stop_is_said_to_be_so(tmp_path):
    shutil.copytree(ROOT / 'demo/pictures', tmp_path / 'many')
    many = [Job(str(tmp_path / 'many'), tmp_path / str(i), 'yolo_fastest') for i in range(8)]
    summaries = run_in_processes(many, 1, stop=lambda: True)
    assert all('interrupted' in s.failure for s in summaries)
    assert 'before it began' in summaries[-1].failure


def test_a_scheduler_that_does_not_answer(tmp_path, monkeypatch):
    monkeypatch.setattr('dla_ros.replay.many._PATIENCE', 1.0)
    with pytest.raises(ClusterError, match='no Dask scheduler answers at tcp://127'):
        run_on_dask(jobs(tmp_path), 'tcp://127.0.0.1:1')
