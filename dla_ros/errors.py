"""What goes wrong on a backend, and what can be done about it."""

from __future__ import annotations

from enum import Enum


class Remedy(Enum):
    """What it takes to go on after an error."""

    NEXT_FRAME = 'the next frame may do better'
    REOPEN = 'the backend has to be opened anew'
    RESTART = 'the process has to be replaced'


class BackendError(RuntimeError):
    """The backend cannot be opened, or it failed on a frame."""

    def __init__(self, text: str, remedy: Remedy = Remedy.NEXT_FRAME) -> None:
        super().__init__(text)
        self.remedy = remedy


class DeadlineError(BackendError):
    """A frame did not come back in time."""


class DlaError(BackendError):
    """A call of CUDA or cuDLA failed.

    Attributes
    ----------
    call:
        The function's name in C.
    status:
        What it returned.
    name:
        The status's name.
    hint:
        The usual cause and what to do; '' where none is known.

    """

    def __init__(
        self, call: str, status: int, name: str, hint: str = '', remedy: Remedy = Remedy.REOPEN
    ) -> None:
        text = f'{call} failed with status {status} ({name})'
        super().__init__(f'{text}: {hint}' if hint else text, remedy)
        self.call = call
        self.status = status
        self.name = name
        self.hint = hint
