"""The node's counts and latencies as /diagnostics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

# Reasons to drop an image that are no fault: it is too late, or the node is ending.
EXPECTED_DROPS = frozenset({'superseded', 'closed', 'recovery'})
FAILURES = frozenset({'backend', 'deadline', 'internal', 'publish'})


def status(
    name: str,
    state: str,
    snapshot: Mapping[str, Any],
    previous: Mapping[str, Any],
    *,
    trouble: str = '',
    about: Mapping[str, str] | None = None,
) -> DiagnosticStatus:
    """Describe the node in one DiagnosticStatus.

    Parameters
    ----------
    name:
        The node's full name.
    state:
        Its lifecycle state.
    snapshot, previous:
        Statistics.snapshot() now and at the last report: the level is about what came between.
    trouble:
        Why the backend is not there though the node is active; '' if it is.
    about:
        Facts about the backend; see Backend.

    """
    dropped = snapshot['dropped']
    new = {r for r, n in dropped.items() if n > previous['dropped'].get(r, 0)} - EXPECTED_DROPS
    if trouble:
        level, message = DiagnosticStatus.ERROR, trouble
    elif new & FAILURES:
        level, message = DiagnosticStatus.ERROR, f'frames failed: {", ".join(sorted(new))}'
    elif new:
        level, message = DiagnosticStatus.WARN, f'images rejected: {", ".join(sorted(new))}'
    elif snapshot['not_finite'] > previous['not_finite']:
        level, message = DiagnosticStatus.WARN, 'scores are NaN or infinite: overflow?'
    elif state != 'active':
        level, message = DiagnosticStatus.WARN, f'{state}: no images are taken'
    elif snapshot['received'] == previous['received']:
        level, message = DiagnosticStatus.WARN, 'active, but no images arrive'
    else:
        level, message = DiagnosticStatus.OK, 'active'
    facts = dict(about or {})
    emulation = facts.get('emulation', 'none')
    if emulation != 'none':
        message = f'{message} ({emulation})'
    values = {
        'state': state,
        **facts,
        'received': snapshot['received'],
        'processed': snapshot['processed'],
        'scores not finite': snapshot['not_finite'],
        **{f'dropped {reason}': count for reason, count in sorted(dropped.items())},
        **{
            f'{stage} ms p50/p99': f'{p50:.2f} / {p99:.2f}'
            for stage, (p50, p99) in snapshot['latency'].items()
        },
    }
    return DiagnosticStatus(
        level=level, name=name, message=message, hardware_id='dla_ros',
        values=[KeyValue(key=key, value=str(value)) for key, value in values.items()],
    )


def array(stamp: Time, *statuses: DiagnosticStatus) -> DiagnosticArray:
    """Return the message for /diagnostics."""
    message = DiagnosticArray(status=list(statuses))
    message.header.stamp = stamp
    return message
