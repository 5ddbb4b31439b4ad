"""model.yaml: what belongs to a network and not to a robot, read and validated."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
import hashlib
from pathlib import Path
from typing import Annotated, Any, TYPE_CHECKING, Union

import numpy as np
import numpy.typing as npt
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    field_validator,
    Tag,
    ValidationError,
    ValidationInfo,
)
import yaml

from dla_ros.color import ColorOrder
from dla_ros.decoders import DECODERS, find_decoder
from dla_ros.decoders.none import NoneConfig
from dla_ros.geometry import Geometry, Padding, Rect, ResizeMode
from dla_ros.resources import share_directory


class ModelError(ValueError):
    """A model that cannot be used; the text names the file and every fault in it."""


def _fraction(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return float(Fraction(value))
        except (ValueError, ZeroDivisionError):
            text = f'{value!r} is neither a number nor a fraction such as 1/255'
            raise ValueError(text) from None
    return value


Number = Annotated[float, BeforeValidator(_fraction), Field(allow_inf_nan=False)]
Positive = Annotated[Number, Field(gt=0)]
Sha256 = Annotated[str, Field(pattern='^[0-9a-f]{64}$')]

_OWN = 'package.module:Class'


def _decoder_tag(value: Any) -> Any:
    name = value.get('type') if isinstance(value, dict) else getattr(value, 'type', None)
    return _OWN if isinstance(name, str) and ':' in name else name


def _known_decoder(value: Any) -> Any:
    if isinstance(value, dict) and isinstance(value.get('type'), str):
        find_decoder(value['type'])
    return value


def _own_decoder(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    try:
        return find_decoder(value['type']).Config.model_validate(value)
    except ValidationError as error:
        raise ValueError('; '.join(_faults(error))) from error


if TYPE_CHECKING:
    DecoderConfig = BaseModel
else:
    DecoderConfig = Annotated[
        Union[
            (
                *(Annotated[decoder.Config, Tag(name)] for name, decoder in DECODERS.items()),
                Annotated[BaseModel, BeforeValidator(_own_decoder), Tag(_OWN)],
            )
        ],
        Discriminator(_decoder_tag),
        BeforeValidator(_known_decoder),
    ]


class Section(BaseModel):
    """A part of model.yaml; a key that it does not know is a fault."""

    model_config = ConfigDict(extra='forbid', frozen=True)


class InputConfig(Section):
    """How camera pixels become the network's input: (pixel * scale - mean) / stddev.

    `border_value` is a pixel value (0 to 255), before scale and mean.
    """

    color_order: ColorOrder
    resize: ResizeMode
    padding: Padding = 'center'
    border_value: Annotated[int, Field(ge=0, le=255)] = 114
    interpolation: Annotated[str, Field(pattern='^(linear|area)$')] = 'linear'
    scale: Positive = 1.0
    mean: list[Number] = [0.0]
    stddev: list[Positive] = [1.0]

    @field_validator('mean', 'stddev')
    @classmethod
    def _one_per_channel(cls, values: list[float], info: ValidationInfo) -> list[float]:
        channels = 1 if info.data.get('color_order') == 'mono' else 3
        if len(values) not in (1, channels):
            raise ValueError(f'needs 1 or {channels} numbers, got {len(values)}')
        return values

    @property
    def channels(self) -> int:
        """Channels of the network's input."""
        return 1 if self.color_order == 'mono' else 3

    def fit(
        self, image_size: tuple[int, int], network_size: tuple[int, int], roi: Rect | None = None
    ) -> Geometry:
        """Fit an image into the network's input as this model wants it; see Geometry.fit."""
        return Geometry.fit(image_size, network_size, self.resize, padding=self.padding, roi=roi)

    def normalized(self) -> npt.NDArray[np.float32]:
        """Return float32 [256, channels]: the input value of each pixel value."""
        pixel = np.arange(256, dtype=np.float64)[:, None] * self.scale
        values = (pixel - np.array(self.mean)) / np.array(self.stddev)
        return np.broadcast_to(values, (256, self.channels)).astype(np.float32)


def _existing_file(value: Any, info: ValidationInfo) -> Any:
    if not isinstance(value, str):
        raise ValueError(f'must be a file name, got {value!r}')
    path: Path = (info.context or {}).get('folder', Path()) / Path(value).expanduser()
    if not path.is_file():
        raise ValueError(f'no file {path}')
    return path


ModelFile = Annotated[Path, BeforeValidator(_existing_file)]


def _labels(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, str):
        path: Path = _existing_file(value, info)
        value = [line.strip() for line in path.read_text('utf-8').splitlines()]
        while value and not value[-1]:
            value.pop()
    return tuple(value) if isinstance(value, list) else value


class Built(Section):
    """How a loadable was made, and what it has; written by `build`, compared by `inspect`.

    Attributes
    ----------
    precision:
        fp16 or int8.
    command:
        What made the loadable, in the folder of model.yaml.
    versions:
        Of what took part, by name.
    inputs, outputs:
        The loadable's tensors by name: shape, type and layout, as `1x3x416x416 fp16:chw16`.

    """

    precision: Annotated[str, Field(pattern='^(fp16|int8)$')]
    command: str
    versions: dict[str, str]
    inputs: dict[str, str]
    outputs: dict[str, str]


class Model(Section):
    """A network with all that is needed to feed it and to read its outputs.

    Attributes
    ----------
    name:
        Short, for logs and diagnostics.
    description:
        Free text: origin, training data, licence.
    onnx, onnx_sha256:
        The network for the onnxruntime backend, relative to model.yaml, and its digest.
    loadable, loadable_sha256:
        The DLA loadable, likewise.
    scales:
        What an int8 element of 1 stands for, by tensor: for loadables with int8 tensors.
    labels:
        The class names by class id: a list, or a text file with one name a line.
    input:
        Preprocessing.
    decoder:
        Which decoder, with its constants; `type: none` for a network whose tensors are decoded
        elsewhere, which needs no labels.
    built:
        How the loadable was made; `build` writes it.

    """

    name: Annotated[str, Field(min_length=1)]
    description: str = ''
    onnx: ModelFile | None = None
    onnx_sha256: Sha256 | None = None
    loadable: ModelFile | None = None
    loadable_sha256: Sha256 | None = None
    scales: dict[str, Positive] = {}
    input: InputConfig
    decoder: DecoderConfig
    labels: Annotated[
        tuple[str, ...], BeforeValidator(_labels), Field(validate_default=True)
    ] = ()
    built: Built | None = None

    @field_validator('onnx_sha256', 'loadable_sha256')
    @classmethod
    def _digest_fits(cls, digest: str | None, info: ValidationInfo) -> str | None:
        path = info.data.get(str(info.field_name).removesuffix('_sha256'))
        if digest is not None and path is not None:
            found = hashlib.sha256(path.read_bytes()).hexdigest()
            if found != digest:
                raise ValueError(f'{path} has {found}; it is another file than model.yaml means')
        return digest

    @field_validator('labels')
    @classmethod
    def _labels_are_names(
        cls, labels: tuple[str, ...], info: ValidationInfo
    ) -> tuple[str, ...]:
        if not labels and not isinstance(info.data.get('decoder'), NoneConfig):
            raise ValueError('the decoder needs a name for each class')
        empty = [str(i) for i, label in enumerate(labels) if not label]
        if empty:
            raise ValueError(f'empty name for class {", ".join(empty)}')
        return labels

    @classmethod
    def load(cls, source: str | Path) -> Model:
        """Read a model.yaml.

        Parameters
        ----------
        source:
            The file, its folder, or the name of a model that comes with dla_ros.

        Raises
        ------
        ModelError
            With every fault of the file in one message.

        """
        path = find_model(source)
        try:
            content = yaml.safe_load(path.read_text('utf-8'))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ModelError(f'{path} cannot be read: {error}') from error
        if not isinstance(content, dict):
            raise ModelError(f'{path} must be a mapping of keys to values')
        try:
            return cls.model_validate(content, context={'folder': path.parent})
        except ValidationError as error:
            faults = '\n'.join(f'  - {fault}' for fault in _faults(error))
            raise ModelError(f'{path} has {error.error_count()} fault(s):\n{faults}') from error


def _faults(error: ValidationError) -> Iterator[str]:
    for fault in error.errors(include_url=False):
        # A discriminated union puts the chosen type into the location; it is no key of the file.
        where = '.'.join(
            str(part) for part in fault['loc'] if part not in (*DECODERS, _OWN)
        )
        text = fault['msg'].removeprefix('Value error, ')
        value = fault['input']
        shown = '' if isinstance(value, (dict, list)) or fault['type'] == 'value_error' else (
            f', got {value!r}'
        )
        yield f'{where}: {text}{shown}'


def shipped_models() -> dict[str, Path]:
    """Return the models that come with dla_ros: name -> model.yaml."""
    return {
        path.parent.name: path for path in sorted(share_directory().glob('models/*/model.yaml'))
    }


def find_model(source: str | Path) -> Path:
    """Return the model.yaml that a file, a folder or a shipped model's name stands for.

    Raises
    ------
    ModelError
        If there is none; the text gives the resolved path and the shipped names.

    """
    shipped = shipped_models()
    if str(source) in shipped:
        return shipped[str(source)]
    path = Path(source).expanduser()
    if path.is_dir():
        path = path / 'model.yaml'
    if not str(source) or not path.is_file():
        raise ModelError(
            f'no model {str(source)!r}: {path.absolute()} does not exist, and the models that '
            f'come with dla_ros are {", ".join(shipped)}'
        )
    return path
