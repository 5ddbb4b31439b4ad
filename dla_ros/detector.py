"""The public API that needs no ROS: open a model, give it an image, get a prediction."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
import time
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from dla_ros.backends import BACKENDS
from dla_ros.backends.base import Backend, BackendOptions
from dla_ros.decoders import find_decoder
from dla_ros.decoders.base import Decoder, DecoderError, Thresholds
from dla_ros.errors import BackendError
from dla_ros.geometry import Geometry, Rect
from dla_ros.image import ImageError, ImageView
from dla_ros.model import Model, ModelError
from dla_ros.predictions import Prediction
from dla_ros.tensor import four_dimensions


@dataclass(frozen=True)
class Result:
    """What one frame gives.

    Attributes
    ----------
    prediction:
        What the decoder makes of it; None if the model has no decoder.
    stages:
        Milliseconds by stage.
    tensors:
        All outputs by name, float32 [n, c, h, w]; empty unless the detector was opened for them.
    not_finite:
        Boxes that were left out because their score is NaN or infinite.

    """

    prediction: Prediction | None
    stages: dict[str, float]
    tensors: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    not_finite: int = 0


class Detector:
    """A model on a backend, with its decoder.

    >>> with Detector.open('yolox_nano') as detector:
    ...     detections = detector(cv2.imread('street.jpg'))

    `submit` and `collect` keep several frames in flight; calling the detector does both.
    """

    def __init__(self, model: Model, backend: Backend, *, tensors: bool = False) -> None:
        """Take over an open backend; `Detector.open` is the usual way."""
        self.model = model
        self.backend = backend
        self._tensors = tensors
        (spec,) = backend.inputs
        self.network_size = spec.shape[3], spec.shape[2]
        self.decoder: Decoder = find_decoder(model.decoder.type)(  # type: ignore[attr-defined]
            model.decoder, backend.outputs, self.network_size, model.labels
        )
        outputs = [spec.name for spec in backend.outputs]
        backend.read_from(self.decoder.heads, outputs if tensors else self.decoder.tensors)
        self._geometries: dict[int, Geometry] = {}
        self._thresholds: dict[int, Thresholds] = {}

    @classmethod
    def open(
        cls,
        model: str | Path | Model,
        *,
        backend: str = 'onnxruntime',
        options: BackendOptions | None = None,
        tensors: bool = False,
    ) -> Detector:
        """Open a model.

        Parameters
        ----------
        model:
            A Model, or what Model.load takes: a model.yaml, its folder, or a shipped model's name.
        backend:
            A name in BACKENDS.
        options:
            See BackendOptions.
        tensors:
            Whether results also have the network's outputs.

        Raises
        ------
        ModelError
            If model.yaml has faults or does not fit the network.
        BackendError
            If the backend cannot be opened.

        """
        if backend not in BACKENDS:
            raise BackendError(
                f'Invalid backend {backend!r}. Supported: {", ".join(BACKENDS)}'
            )
        loaded = model if isinstance(model, Model) else Model.load(model)
        opened = BACKENDS[backend].open(loaded, options or BackendOptions())
        try:
            return cls(loaded, opened, tensors=tensors)
        except DecoderError as error:
            opened.close()
            raise ModelError(f'model {loaded.name!r} does not fit its network: {error}') from error
        except BaseException:
            opened.close()
            raise

    def submit(
        self, slot: int, view: ImageView, thresholds: Thresholds, roi: Rect | None = None
    ) -> None:
        """Queue an image on a free slot and return at once; see Backend.submit.

        Raises
        ------
        ImageError
            If the region of interest is not inside the image, or the encoding has no color.

        """
        try:
            geometry = self.model.input.fit((view.width, view.height), self.network_size, roi)
        except ValueError as error:
            raise ImageError('roi', str(error)) from error
        self.backend.submit(slot, view.require_color(), geometry, thresholds.confidence)
        self._geometries[slot] = geometry
        self._thresholds[slot] = thresholds

    def submit_tensor(
        self,
        slot: int,
        tensor: npt.NDArray[np.float32],
        thresholds: Thresholds,
    ) -> None:
        """Queue the network's input on a free slot and return at once.

        The prediction is in pixels of the network's input, for nothing is known of the image.

        Parameters
        ----------
        slot:
            See Backend.submit.
        tensor:
            float32 of the input's shape [n, c, h, w], preprocessed.
        thresholds:
            See Thresholds.

        Raises
        ------
        ImageError
            If the tensor has another shape.

        """
        (spec,) = self.backend.inputs
        if four_dimensions(tensor.shape) != spec.shape:
            raise ImageError(
                'tensor', f'the tensor is {tensor.shape}, but the network takes {spec.shape}'
            )
        self.backend.submit_tensor(slot, tensor, thresholds.confidence)
        self._geometries[slot] = Geometry.fit(self.network_size, self.network_size, 'stretch')
        self._thresholds[slot] = thresholds

    def collect(self, slot: int, timeout: float) -> Result:
        """Wait for a slot's result, at most `timeout` seconds; see Backend.collect."""
        completion = self.backend.collect(slot, timeout)
        start = time.perf_counter()
        prediction = None
        if self.decoder.makes is not None:
            prediction = self.decoder.decode(
                completion.candidates, completion.tensors, self._geometries[slot],
                self._thresholds[slot],
            )
        stages = {**completion.stages, 'decode': 1e3 * (time.perf_counter() - start)}
        return Result(
            prediction, stages, completion.tensors if self._tensors else {},
            completion.candidates.not_finite,
        )

    def __call__(
        self,
        image: npt.NDArray[Any] | ImageView,
        encoding: str = 'bgr8',
        *,
        thresholds: Thresholds | None = None,
        roi: Rect | None = None,
        timeout: float = 60.0,
    ) -> Any:
        """Run the network on one image.

        Parameters
        ----------
        image:
            [H, W] or [H, W, C] of a packed `encoding`, or an ImageView.
        encoding:
            A name in ENCODINGS; ignored for an ImageView.
        thresholds:
            See Thresholds.
        roi:
            Look only here.
        timeout:
            Seconds.

        Returns
        -------
        Detections, Classification or Segmentation, as the model's decoder makes; None without
        decoder.

        Raises
        ------
        ImageError
            If the image cannot be used.
        BackendError
            If the inference failed or took too long.

        """
        view = image if isinstance(image, ImageView) else ImageView.from_array(image, encoding)
        self.submit(0, view, thresholds or Thresholds(), roi)
        return self.collect(0, timeout).prediction

    def close(self) -> None:
        """Release the backend; safe to call twice."""
        self.backend.close()

    def __enter__(self) -> Detector:
        """Return self."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()
