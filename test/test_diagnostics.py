from __future__ import annotations

import pytest

from dla_ros.diagnostics import status

OK, WARN, ERROR = b'\x00', b'\x01', b'\x02'


def snapshot(received=0, processed=0, not_finite=0, **dropped):
    return {
        'received': received, 'processed': processed, 'not_finite': not_finite,
        'dropped': dropped, 'latency': {},
    }


@pytest.mark.parametrize(
    ('state', 'now', 'level', 'words'),
    [
        ('active', snapshot(5, 5), OK, 'active'),
        ('active', snapshot(5, 3, superseded=2), OK, 'active'),
        ('active', snapshot(1, 1, step=1), WARN, 'no images arrive'),
        ('active', snapshot(5, 3, step=2), WARN, 'images rejected: step'),
        ('active', snapshot(5, 3, step=2, deadline=1), ERROR, 'frames failed: deadline, step'),
        ('active', snapshot(5, 5, not_finite=3), WARN, 'scores are NaN or infinite'),
        ('active', snapshot(5, 3, backend=1), ERROR, 'frames failed: backend'),
        ('inactive', snapshot(1, 1, step=1), WARN, 'inactive: no images'),
        ('unconfigured', snapshot(1, 1, step=1), WARN, 'unconfigured'),
    ],
)
def test_the_level_is_about_what_came_since_the_last_report(state, now, level, words):
    found = status('/dla_node', state, now, snapshot(1, 1, step=1))
    assert found.level == level and words in found.message
    values = {pair.key: pair.value for pair in found.values}
    assert values['received'] == str(now['received'])
    assert all(values[f'dropped {r}'] == str(n) for r, n in now['dropped'].items())


def test_latencies_have_their_percentiles():
    now = {**snapshot(1, 1), 'latency': {'inference': (1.234, 5.678)}}
    found = status('/dla_node', 'active', now, snapshot())
    assert {p.key: p.value for p in found.values}['inference ms p50/p99'] == '1.23 / 5.68'


def test_a_backend_that_is_not_there_is_an_error_whatever_the_counts():
    found = status('/dla_node', 'active', snapshot(5, 5), snapshot(1, 1), trouble='it broke')
    assert found.level == ERROR and found.message == 'it broke'


def test_facts_of_the_backend_are_told_and_emulation_in_words():
    about = {'cuDLA': '1.5.0', 'emulation': 'emulated DLA and GPU'}
    found = status('/dla_node', 'active', snapshot(5, 5), snapshot(1, 1), about=about)
    assert found.message == 'active (emulated DLA and GPU)'
    assert about.items() <= {pair.key: pair.value for pair in found.values}.items()
    plain = status(
        '/dla_node', 'active', snapshot(5, 5), snapshot(1, 1), about={'emulation': 'none'}
    )
    assert plain.message == 'active'
