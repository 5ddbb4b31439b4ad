from __future__ import annotations

from dla_ros.recovery import RecoveryPolicy


class Time:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_delays_double_and_come_to_an_end():
    policy = RecoveryPolicy(3, 0.5, Time())
    assert [policy.next_delay() for _ in range(5)] == [0.5, 1.0, 2.0, None, None]


def test_no_recoveries_are_none():
    assert RecoveryPolicy(0, 0.5, Time()).next_delay() is None


def test_a_minute_without_error_starts_anew():
    clock = Time()
    policy = RecoveryPolicy(2, 0.5, clock)
    assert policy.next_delay() == 0.5
    clock.now += 59
    assert policy.next_delay() == 1.0
    clock.now += 30
    assert policy.next_delay() is None
    clock.now += 62
    assert policy.next_delay() == 0.5
