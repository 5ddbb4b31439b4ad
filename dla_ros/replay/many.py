"""Many sources at once: in processes of this machine, or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
import multiprocessing
from typing import Any

from dla_ros.replay.run import attempt, Job, Summary

_LOOK = 0.2  # Seconds between looks at whether to stop.
_PATIENCE = 20.0  # Seconds for the scheduler to answer.


class ClusterError(RuntimeError):
    """A Dask cluster that cannot be used; the text says why."""


class _Here:
    """What a worker process knows: whether to stop."""

    event: Any = None

    @classmethod
    def begin(cls, event: Any) -> None:
        cls.event = event


def _attempt_here(job: Job) -> Summary:
    return attempt(job, _Here.event.is_set)


def run_in_processes(
    jobs: Sequence[Job],
    workers: int,
    *,
    stop: Callable[[], bool] = lambda: False,
    done: Callable[[Summary], None] = lambda summary: None,
) -> list[Summary]:
    """Run jobs in `workers` processes; return the summaries in the order of the jobs.

    `done` is told of each; once `stop` says so, those under way end after their image.
    """
    context = multiprocessing.get_context('spawn')
    event = context.Event()
    pool = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_Here.begin, initargs=(event,)
    )
    with pool:
        return _run(pool, _attempt_here, jobs, stop, event.set, done)


def run_on_dask(
    jobs: Sequence[Job],
    address: str,
    *,
    stop: Callable[[], bool] = lambda: False,
    done: Callable[[Summary], None] = lambda summary: None,
) -> list[Summary]:
    """Run jobs on the cluster of a Dask scheduler; see run_in_processes.

    The workers need this package, and the sources, the models and the output folder under the
    same paths.

    Raises
    ------
    ClusterError
        If distributed is not installed or the scheduler does not answer.

    """
    try:
        from distributed import Client
    except ImportError as error:
        raise ClusterError(f'--dask needs the package distributed: {error}') from error
    try:
        client = Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ClusterError(f'no Dask scheduler answers at {address}: {error}') from error
    with client:
        return _run(client.get_executor(pure=False), attempt, jobs, stop, lambda: None, done)


def _run(
    executor: Executor,
    function: Callable[[Job], Summary],
    jobs: Sequence[Job],
    stop: Callable[[], bool],
    stopping: Callable[[], None],
    done: Callable[[Summary], None],
) -> list[Summary]:
    futures = {executor.submit(function, job): job for job in jobs}
    waiting = set(futures)
    while waiting:
        finished, waiting = wait(waiting, _LOOK, FIRST_COMPLETED)
        for future in finished:
            done(_summary(future, futures[future]))
        if waiting and stop():
            stopping()
            for future in waiting:
                future.cancel()
    return [_summary(future, job) for future, job in futures.items()]


def _summary(future: Future[Summary], job: Job) -> Summary:
    if future.cancelled():
        failure = 'interrupted before it began'
    elif future.exception() is not None:
        # A worker that died, say.
        failure = repr(future.exception())
    else:
        return future.result()
    return Summary(source=job.source, model=job.model, backend=job.backend, failure=failure)
