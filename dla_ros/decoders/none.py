"""No decoder: the network's tensors are all that is wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from dla_ros.decoders.base import DecoderConfig, DecoderError, Thresholds
from dla_ros.decoders.heads import Candidates, Head
from dla_ros.geometry import Geometry
from dla_ros.predictions import Prediction
from dla_ros.tensor import TensorSpec


class NoneConfig(DecoderConfig):
    """The decoder section of model.yaml for networks whose tensors are decoded elsewhere."""

    type: Literal['none'] = 'none'


class NoDecoder:
    """Reads nothing and makes nothing."""

    Config: ClassVar[type[BaseModel]] = NoneConfig
    makes: ClassVar[type[Prediction] | None] = None
    heads: tuple[Head, ...] = ()
    tensors: tuple[str, ...] = ()

    def __init__(
        self,
        config: NoneConfig,
        outputs: Sequence[TensorSpec],
        network_size: tuple[int, int],
        labels: Sequence[str],
    ) -> None:
        """Take any outputs."""

    def decode(
        self,
        candidates: Candidates,
        tensors: Mapping[str, npt.NDArray[np.float32]],
        geometry: Geometry,
        thresholds: Thresholds,
    ) -> Prediction:
        """Raise DecoderError; whoever asks for a prediction has to name a decoder."""
        raise DecoderError('the model has no decoder, only tensors')
