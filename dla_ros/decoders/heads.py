"""Where scores and boxes sit in a network's outputs, and the search for candidates there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Activation = Literal['none', 'sigmoid', 'softmax']


@dataclass(frozen=True)
class Span:
    """Values of each box that lie one after the other in one output.

    Attributes
    ----------
    tensor:
        The output's name.
    count:
        Values per box.
    first:
        Where the first value of the first anchor is.
    step:
        From the first value of one anchor to that of the next.
    axis:
        Along which axis of the output [n, c, h, w] the values lie: 1, 2 or 3. The other two are
        the rows and columns of cells.
    bins:
        Each value is the mean of a distribution over so many logits: sum of j * softmax(logits)_j
        (Li et al., Generalized Focal Loss, 2020, equation 3). 1 for a value as it is.

    """

    tensor: str
    count: int
    first: int = 0
    step: int = 0
    axis: int = 1
    bins: int = 1

    def cells(self, shape: tuple[int, int, int, int]) -> tuple[int, int]:
        """Return rows and columns of cells in an output [n, c, h, w]."""
        rows, columns = (size for axis, size in enumerate(shape) if axis not in (0, self.axis))
        return rows, columns

    def view(
        self, tensors: Mapping[str, npt.NDArray[Any]], anchors: int
    ) -> npt.NDArray[Any]:
        """Return the values [anchors, count * bins, rows, columns] without a copy."""
        tensor = tensors[self.tensor][0]
        values = np.moveaxis(tensor, self.axis - 1, 0)[self.first :]
        return np.lib.stride_tricks.as_strided(
            values, (anchors, self.count * self.bins, *values.shape[1:]),
            (self.step * values.strides[0], *values.strides), writeable=False,
        )


@dataclass(frozen=True)
class Head:
    """One grid of boxes: what a score is made of, and which values make a box.

    score = activation(class score) ** powers[0] * activation(objectness) ** powers[1]. A softmax
    is over the class scores; the objectness then goes through a sigmoid.

    Attributes
    ----------
    scores:
        The class scores.
    values:
        What else comes with a candidate, in this order. All heads of a network have the same
        number of values.
    stride:
        Network pixels per cell, across and down.
    activation:
        What scores have yet to go through.
    objectness:
        One value per box, if there is one.
    anchors:
        Boxes per cell.
    background:
        Whether the first score of a softmax stands for no object.
    powers:
        Exponents of class score and objectness, above 0.
    peak:
        Whether a candidate is only what no neighbor of its class (3 x 3 cells) exceeds.
    multi_label:
        Whether every class whose score passes is a candidate, and not the best one alone.

    """

    scores: Span
    values: tuple[Span, ...]
    stride: tuple[float, float]
    activation: Activation = 'none'
    objectness: Span | None = None
    anchors: int = 1
    background: bool = False
    powers: tuple[float, float] = (1.0, 1.0)
    peak: bool = False
    multi_label: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for a background that needs no reading."""
        if self.background and self.activation != 'softmax':
            raise ValueError('a background takes part in a softmax only; leave it out of `scores`')

    @classmethod
    def packed(
        cls,
        tensor: str,
        classes: int,
        stride: tuple[float, float],
        activation: Activation = 'none',
        *,
        anchors: int = 1,
        objectness: bool = True,
        axis: int = 1,
        multi_label: bool = False,
    ) -> Head:
        """Return a head in one output: anchors times (4 values, objectness, class scores)."""
        first = 4 + objectness
        step = first + classes
        return cls(
            Span(tensor, classes, first, step, axis),
            (Span(tensor, 4, 0, step, axis),),
            stride,
            activation,
            Span(tensor, 1, 4, step, axis) if objectness else None,
            anchors,
            multi_label=multi_label,
        )

    @property
    def width(self) -> int:
        """Values of a candidate."""
        return sum(span.count for span in self.values)

    @property
    def tensors(self) -> set[str]:
        """The names of the outputs that the head reads."""
        spans = (self.scores, *self.values, *([self.objectness] if self.objectness else []))
        return {span.tensor for span in spans}

    def least(self, confidence: float) -> tuple[float, float]:
        """Return what a class score and an objectness must have at least, as in the output.

        No factor of a score is above 1, so each alone has to reach the threshold. A softmax needs
        all scores, so one alone says nothing.
        """
        score, objectness = (confidence ** (1 / power) for power in self.powers)
        return (
            {'none': score, 'sigmoid': logit(score), 'softmax': -np.inf}[self.activation],
            objectness if self.activation == 'none' else logit(objectness),
        )


@dataclass(frozen=True, eq=False)
class Candidates:
    """Boxes whose score passes the confidence threshold, as the network wrote them.

    Attributes
    ----------
    head, anchor, row, column:
        int32 [N]: which box this is; `head` indexes the decoder's heads.
    class_id:
        int32 [N], without the background.
    score:
        float32 [N].
    values:
        float32 [N, width of the heads], as the heads' spans say.
    not_finite:
        Boxes that were left out because their score is NaN or infinite.

    """

    head: npt.NDArray[np.int32]
    anchor: npt.NDArray[np.int32]
    row: npt.NDArray[np.int32]
    column: npt.NDArray[np.int32]
    class_id: npt.NDArray[np.int32]
    score: npt.NDArray[np.float32]
    values: npt.NDArray[np.float32]
    not_finite: int = 0

    @classmethod
    def none(cls) -> Candidates:
        """Return no candidates."""
        i, f = np.empty(0, np.int32), np.empty(0, np.float32)
        return cls(i, i, i, i, i, f, f.reshape(0, 0))

    @property
    def cell(self) -> npt.NDArray[np.float32]:
        """float32 [N, 2]: column and row."""
        return np.stack([self.column, self.row], 1).astype(np.float32)


def logit(probability: float) -> float:
    """Return the x whose sigmoid is `probability`: ln(p / (1 - p)), infinite at 0 and 1."""
    with np.errstate(divide='ignore'):
        return float(np.log(np.float64(probability)) - np.log1p(-np.float64(probability)))


def sigmoid(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return 1 / (1 + exp(-x)) without overflow."""
    y: npt.NDArray[np.float32] = np.tanh(np.float32(0.5) * x)
    return np.float32(0.5) * (np.float32(1.0) + y)


def softmax(x: npt.NDArray[np.float32], axis: int = -1) -> npt.NDArray[np.float32]:
    """Return exp(x) / sum of exp(x) along an axis, without overflow."""
    with np.errstate(invalid='ignore', under='ignore'):
        powers: npt.NDArray[np.float32] = np.exp(x - x.max(axis, keepdims=True))
        return np.asarray(powers / powers.sum(axis, keepdims=True), x.dtype)


def select_candidates(
    heads: Sequence[Head], tensors: Mapping[str, npt.NDArray[Any]], confidence: float
) -> Candidates:
    """Select the boxes of all heads whose score is at least `confidence`: the numpy reference.

    Boxes whose objectness or best class score is NaN or infinite are left out and counted.

    Parameters
    ----------
    heads:
        The decoder's heads.
    tensors:
        The outputs by name, [1, c, h, w], any float type.
    confidence:
        0 to 1.

    """
    if not heads:
        return Candidates.none()
    found = [_select_head(i, head, tensors, confidence) for i, head in enumerate(heads)]
    fields = (np.concatenate([parts[k] for parts, _ in found]) for k in range(7))
    head, anchor, row, column, class_id, score, values = fields
    return Candidates(
        head, anchor, row, column, class_id, score, values, sum(bad for _, bad in found)
    )


def _select_head(
    index: int, head: Head, tensors: Mapping[str, npt.NDArray[Any]], confidence: float
) -> tuple[tuple[npt.NDArray[Any], ...], int]:
    scores = head.scores.view(tensors, head.anchors)
    objectness: npt.NDArray[Any] | None = None
    if head.objectness is not None:
        objectness = head.objectness.view(tensors, head.anchors)[:, 0]
    least, least_objectness = head.least(confidence)
    # With an objectness, most boxes need not be looked at any further. NaN passes, to be counted.
    foremost = scores.max(1) if objectness is None else objectness
    bound = least if objectness is None else least_objectness
    places = np.nonzero(~(foremost.astype(np.float32) < bound))
    touched = scores[places[0], :, places[1], places[2]].astype(np.float32)
    best = touched.max(1, initial=-np.inf)
    factor = None if objectness is None else objectness[places].astype(np.float32)
    passed = ~(best < least)
    bad = passed & ~np.isfinite(best if factor is None else best + factor)
    keep = passed & ~bad
    touched = touched[keep]
    score = _scores(head, touched, None if factor is None else factor[keep])
    places = tuple(place[keep] for place in places)
    if head.multi_label:
        raw = touched[:, int(head.background) :]
        box, class_id = np.nonzero((score >= confidence) & (raw >= least))
    else:
        class_id = touched[:, int(head.background) :].argmax(1)
        box = np.flatnonzero(score[np.arange(len(score)), class_id] >= confidence)
        class_id = class_id[box]
    chosen = score[box, class_id]
    places = tuple(place[box] for place in places)
    if head.peak:
        peak = _peaks(scores, places, class_id + head.background)
        places = tuple(place[peak] for place in places)
        class_id, chosen = class_id[peak], chosen[peak]
    integers = (np.full(len(chosen), index), *places, class_id)
    values = _values(head, tensors, places)
    return (*(part.astype(np.int32) for part in integers), chosen, values), int(bad.sum())


def _scores(
    head: Head, scores: npt.NDArray[np.float32], objectness: npt.NDArray[np.float32] | None
) -> npt.NDArray[np.float32]:
    """Return the scores [N, classes without the background]."""
    activations = {'none': lambda x: x, 'sigmoid': sigmoid, 'softmax': softmax}
    result = activations[head.activation](scores)[:, int(head.background) :]
    if head.powers[0] != 1.0:
        with np.errstate(invalid='ignore'):  # A negative score, which is below every threshold.
            result = result ** np.float32(head.powers[0])
    if objectness is not None:
        factor = objectness if head.activation == 'none' else sigmoid(objectness)
        if head.powers[1] != 1.0:
            factor = factor ** np.float32(head.powers[1])
        result = result * factor[:, None]
    return np.asarray(result, np.float32)


def _peaks(
    scores: npt.NDArray[Any], places: tuple[npt.NDArray[Any], ...], channel: npt.NDArray[np.intp]
) -> npt.NDArray[np.bool_]:
    anchor, row, column = places
    framed = np.pad(
        scores, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf
    )
    around = np.stack([
        framed[anchor, channel, row + down, column + across]
        for down in range(3) for across in range(3)
    ])
    exceeded: npt.NDArray[np.bool_] = (around > scores[anchor, channel, row, column]).any(0)
    return ~exceeded


def _values(
    head: Head, tensors: Mapping[str, npt.NDArray[Any]], places: tuple[npt.NDArray[Any], ...]
) -> npt.NDArray[np.float32]:
    anchor, row, column = places
    parts = []
    for span in head.values:
        values = span.view(tensors, head.anchors)[anchor, :, row, column].astype(np.float32)
        if span.bins > 1:
            distribution = softmax(values.reshape(-1, span.count, span.bins))
            values = distribution @ np.arange(span.bins, dtype=np.float32)
        parts.append(values)
    return np.concatenate(parts, 1)
