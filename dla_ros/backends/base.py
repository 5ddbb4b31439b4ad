"""What a backend is: slots of one network's inputs and outputs, filled and emptied in order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, get_args, Literal, Protocol

import numpy as np
import numpy.typing as npt

from dla_ros.decoders.heads import Candidates, Head
from dla_ros.geometry import Geometry
from dla_ros.image import ImageView
from dla_ros.model import Model
from dla_ros.tensor import TensorSpec

Staging = Literal['auto', 'mapped', 'copied']
STAGINGS: tuple[str, ...] = get_args(Staging)


@dataclass(frozen=True)
class BackendOptions:
    """What a robot chooses, not the network.

    Attributes
    ----------
    depth:
        Slots, that is frames in flight.
    threads:
        CPU threads of one inference on the CPU; 0 for one per core.
    dla_core:
        The DLA core, for the backends that have cores.
    task_timeout:
        Seconds after which the DLA gives up a task, 0.001 to 1000.
    emulate:
        Whether to emulate the DLA, for the backends that need one.
    staging:
        How a GPU reads images: `mapped` straight from pinned host memory, `copied` from its own
        memory, `auto` as suits it.

    """

    depth: int = 2
    threads: int = 0
    dla_core: int = 0
    task_timeout: float = 1.0
    emulate: bool = False
    staging: Staging = 'auto'


@dataclass(frozen=True)
class Completion:
    """What comes back from a slot.

    Attributes
    ----------
    candidates:
        What the heads have above the threshold.
    stages:
        Milliseconds by stage.
    tensors:
        The outputs by name, float32 [n, c, h, w], dequantized; empty unless asked for.

    """

    candidates: Candidates
    stages: dict[str, float]
    tensors: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)


class Backend(Protocol):
    """One network, opened. Everything but `close` is called from one thread at a time per slot."""

    name: ClassVar[str]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    about: Mapping[str, str]
    """Facts for the log and the diagnostics: versions, device, whether it is emulated."""

    @classmethod
    def open(cls, model: Model, options: BackendOptions) -> Backend:
        """Acquire all that the network needs; raise BackendError and hold nothing if it fails."""

    def read_from(self, heads: Sequence[Head], tensors: Collection[str]) -> None:
        """Say what frames give, once, before the first `submit`, and get ready for it.

        Parameters
        ----------
        heads:
            Where candidates are searched for.
        tensors:
            The names of the outputs that come back whole.

        Raises
        ------
        BackendError
            If the network does not run as it should.

        """

    def submit(
        self, slot: int, view: ImageView, geometry: Geometry, confidence: float
    ) -> None:
        """Queue an image on a free slot and return at once.

        The image's buffer must stay as it is until the slot is collected.
        """

    def submit_tensor(
        self, slot: int, tensor: npt.NDArray[np.float32], confidence: float
    ) -> None:
        """Queue a network input, [n, c, h, w], on a free slot and return at once."""

    def collect(self, slot: int, timeout: float) -> Completion:
        """Wait for a slot, at most `timeout` seconds, and free it.

        Raises
        ------
        DeadlineError
            If it takes longer; the slot stays occupied and can be collected again.
        BackendError
            If the inference failed.

        """

    def close(self) -> None:
        """Release everything; safe to call twice, from any state, and with frames in flight.

        Raises
        ------
        BackendError
            If something could not be released. With Remedy.RESTART only the end of the process
            does that, and what is left is not touched.

        """
