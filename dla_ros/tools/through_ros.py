"""A source played over DDS into the real node, for comparison with the run without ROS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import time

from dla_ros import launching
from dla_ros.replay.records import FrameRecord, read_records
from dla_ros.replay.run import Job, THROUGH_ROS
from dla_ros.tools.processes import PATIENCE, Processes

_SETTLE = 5.0  # Seconds without news after which images are missing.


def play_through_ros(
    job: Job,
    *,
    rate: float,
    loops: int,
    total: int,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[list[FrameRecord]]:
    """Play a job's images into a node under simulated time, `loops` times.

    Parameters
    ----------
    job:
        What to play; logs and what was received go into its folder.
    rate:
        Images per second, no more than the backend can hold.
    loops:
        How often; at the beginning of each but the first, the stamps jump back.
    total:
        Images of one loop.
    stop, progress:
        See run_job.

    Returns
    -------
    What was received in each loop; images that were lost are missing.

    Raises
    ------
    ProcessError
        If a process fails.

    """
    processes, out = Processes(job.out), job.out / THROUGH_ROS
    try:
        processes.start('node', 'dla_ros.main', *_node(job).ros_arguments())
        processes.start(
            'listener', 'dla_ros', 'listen', '--json', '--force', '--out', str(out)
        )
        processes.await_ready()
        processes.start(
            'player', 'dla_ros', 'play', job.source, *(f'--topic={t}' for t in job.topics),
            '--json', '--clock', f'--rate={rate}', f'--loop={loops}', f'--wait={PATIENCE}',
            *job.selection.words(),
        )
        _follow(processes, total * loops, stop, progress)
    finally:
        codes = processes.end()
    processes.check(codes)
    return _by_loop(read_records(out), loops)


def _node(job: Job) -> launching.NodeDescription:
    node = launching.detector({
        'model': job.model, 'backend': job.backend, 'emulate': str(job.options.emulate).lower(),
    })
    node.parameters.update(
        use_sim_time=True,
        # Nothing is to be lost on the way in.
        input_qos='DEFAULT', input_queue_size=20,
        threads=job.options.threads,
        confidence_threshold=job.thresholds.confidence,
        nms_threshold=job.thresholds.nms,
        max_detections=job.thresholds.max_detections,
    )
    return node


def _follow(
    processes: Processes, total: int, stop: Callable[[], bool],
    progress: Callable[[int, int], None],
) -> None:
    received, player_ended, news = 0, False, time.monotonic()
    while received < total and not stop():
        if player_ended and time.monotonic() - news > _SETTLE:
            return
        event = processes.next_event(PATIENCE, 'image')
        player_ended |= event['event'] == 'ended'
        if event['event'] == 'received':
            received, news = received + 1, time.monotonic()
            progress(received, total)


def _by_loop(records: Sequence[FrameRecord], loops: int) -> list[list[FrameRecord]]:
    """Tell the loops apart: within one, the stamps rise."""
    parts: list[list[FrameRecord]] = [[] for _ in range(loops)]
    loop, before = 0, -1
    for record in records:
        stamp = record.stamp or 0
        loop += stamp <= before
        before = stamp
        parts[min(loop, loops - 1)].append(record)
    return parts
