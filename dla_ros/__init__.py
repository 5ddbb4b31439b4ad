"""Neural networks on the NVIDIA DLA from ROS 2, in Python."""

from importlib import import_module
from typing import Any, TYPE_CHECKING

if TYPE_CHECKING:
    from dla_ros.backends.base import BackendOptions as BackendOptions
    from dla_ros.decoders.base import Thresholds as Thresholds
    from dla_ros.detector import Detector as Detector
    from dla_ros.errors import (
        BackendError as BackendError,
        DeadlineError as DeadlineError,
        DlaError as DlaError,
        Remedy as Remedy,
    )
    from dla_ros.geometry import (
        Geometry as Geometry,
        Rect as Rect,
    )
    from dla_ros.image import (
        ENCODINGS as ENCODINGS,
        ImageError as ImageError,
        ImageView as ImageView,
    )
    from dla_ros.model import (
        Model as Model,
        ModelError as ModelError,
    )
    from dla_ros.predictions import (
        Classification as Classification,
        Detections as Detections,
        Segmentation as Segmentation,
    )
    from dla_ros.tensor import TensorSpec as TensorSpec

# Imported on first use: the node's entry point must answer signals before numpy is loaded.
_HOMES = {
    'BackendError': 'errors',
    'BackendOptions': 'backends.base',
    'Classification': 'predictions',
    'DeadlineError': 'errors',
    'Detections': 'predictions',
    'Detector': 'detector',
    'DlaError': 'errors',
    'ENCODINGS': 'image',
    'Geometry': 'geometry',
    'ImageError': 'image',
    'ImageView': 'image',
    'Model': 'model',
    'ModelError': 'model',
    'Rect': 'geometry',
    'Remedy': 'errors',
    'Segmentation': 'predictions',
    'TensorSpec': 'tensor',
    'Thresholds': 'decoders.base',
}


def __getattr__(name: str) -> Any:
    """Import a public name from its module."""
    if name not in _HOMES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(import_module(f'{__name__}.{_HOMES[name]}'), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(_HOMES)
