"""Classification: one score for each class, for the image as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from dla_ros.decoders.base import DecoderConfig, DecoderError, Thresholds
from dla_ros.decoders.heads import Activation, Candidates, Head, sigmoid, softmax
from dla_ros.geometry import Geometry
from dla_ros.predictions import Classification, Prediction
from dla_ros.tensor import TensorSpec


class ClassificationConfig(DecoderConfig):
    """The decoder section of model.yaml for classification.

    activation:
        What the scores have yet to go through: softmax for logits, none for probabilities,
        sigmoid for labels that do not exclude each other.
    top_k:
        At most so many classes, the likeliest.
    """

    type: Literal['classification']
    activation: Activation = 'softmax'
    top_k: Annotated[int, Field(ge=1)] = 5


class ClassificationDecoder:
    """Decodes one output of as many elements as there are labels."""

    Config: ClassVar[type[BaseModel]] = ClassificationConfig
    makes: ClassVar[type[Prediction] | None] = Classification
    heads: tuple[Head, ...] = ()
    tensors: tuple[str, ...]

    def __init__(
        self,
        config: ClassificationConfig,
        outputs: Sequence[TensorSpec],
        network_size: tuple[int, int],
        labels: Sequence[str],
    ) -> None:
        if len(outputs) != 1:
            raise DecoderError(f'classification needs one output, not {len(outputs)}')
        (output,) = outputs
        elements = int(np.prod(output.shape))
        if elements != len(labels):
            raise DecoderError(
                f'output {output.name!r} has {elements} scores, but there are {len(labels)} labels'
            )
        self.tensors = (output.name,)
        self._config = config

    def decode(
        self,
        candidates: Candidates,
        tensors: Mapping[str, npt.NDArray[np.float32]],
        geometry: Geometry,
        thresholds: Thresholds,
    ) -> Classification:
        """Return the likeliest classes, whatever the thresholds; NaN is never among them."""
        scores = tensors[self.tensors[0]].reshape(-1)
        if self._config.activation == 'softmax':
            scores = softmax(scores)
        elif self._config.activation == 'sigmoid':
            scores = sigmoid(scores)
        if thresholds.class_ids is not None:
            wanted = np.isin(np.arange(len(scores)), list(thresholds.class_ids))
            scores = np.where(wanted, scores, np.float32(np.nan))
        best = np.argsort(-scores, kind='stable')[: self._config.top_k]
        best = best[np.isfinite(scores[best])]
        return Classification(scores[best].astype(np.float32), best.astype(np.int32))
