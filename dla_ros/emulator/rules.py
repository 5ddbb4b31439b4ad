"""What the sanitizer enforces: each rule's name, what it says, and where it is said."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """A rule of cuDLA or CUDA.

    Attributes
    ----------
    name:
        What a reported violation begins with; '' for rules that only have a status.
    text:
        What must (not) be done.
    status:
        What the call returns when it is broken; 0 if it goes on.
    source:
        Where it is documented.

    """

    name: str
    text: str
    status: int
    source: str


_CUDLA_H = 'cudla.h 1.5'
_TEGRA = 'CUDA for Tegra, cuDLA'
_CUDA_H = 'cuda.h 13'

RULES = (
    Rule('alignment', 'memory to register is aligned to 32 bytes', 4, _TEGRA),
    Rule('registered-twice', 'memory is registered once with a handle', 11, _CUDLA_H),
    Rule('device-memory', 'only plain device memory is registered', 4, _CUDLA_H),
    Rule('whole-allocation', 'a registration is a whole allocation', 4, _TEGRA),
    Rule(
        'registered-pointer', 'tasks and unregistering take pointers that registering returned on '
        'the same handle', 4, _CUDLA_H,
    ),
    Rule('tensor-size', 'a registration is as large as its tensor', 4, _CUDLA_H),
    Rule('tensor-count', 'a task has as many tensors as its module', 1, _CUDLA_H),
    Rule('null-tensors', 'a task has input and output tensors', 13, _CUDLA_H),
    Rule('events', 'a task has no wait or signal events in hybrid mode', 13, _CUDLA_H),
    Rule('one-module', 'a handle takes one loadable, once', 7, _TEGRA),
    Rule('handles-per-core', 'a core has at most 16 handles', 2, _CUDLA_H),
    Rule('capture', 'a task is not submitted to a capturing stream', 13, _CUDLA_H),
    Rule('own-stream', 'a task is not submitted to a default stream', 13, _TEGRA),
    Rule('handle', 'handles are used between creation and release', 8, _CUDLA_H),
    Rule('task-timeout', 'a task timeout is 1 to 1000000 ms', 1, _CUDLA_H),
    Rule('in-flight', 'nothing is released while work on it is in flight', 8, _CUDLA_H),
    Rule(
        'release-order', 'registrations and module are released before their device', 0, _CUDLA_H
    ),
    Rule('context-last', 'the primary context is released last', 0, _TEGRA),
    Rule('current-context', 'calls are made with a current context', 201, _CUDA_H),
    Rule('bounds', 'copies stay within one allocation', 1, _CUDA_H),
    Rule('use-after-free', 'freed memory is not used', 1, _CUDA_H),
    Rule('pageable-copy', 'asynchronous copies use pinned memory', 0, _CUDA_H),
    Rule(
        'pinned-before-event', 'the host touches pinned memory only after it has synchronized '
        'with the copies on it', 0, _CUDA_H,
    ),
)
"""Every rule that has a name of its own; deferred task errors and leaks at exit are no rules of
use but are reported too."""
