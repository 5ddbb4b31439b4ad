"""The node's parameters: one table drives declaration, validation and documentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dla_ros.backends import BACKENDS
from dla_ros.backends.base import STAGINGS
from dla_ros.image import ENCODINGS

Value = str | bool | int | float | list[str]

TRANSPORT_NAMES = ('raw', 'compressed')
INPUT_NAMES = ('image', 'tensors')
OUTPUT_NAMES = ('predictions', 'tensors', 'both')
QOS_NAMES = ('SENSOR_DATA', 'DEFAULT', 'SYSTEM_DEFAULT')


class ParameterError(ValueError):
    """Parameters that cannot be used; the text names each, its value and what is allowed."""


@dataclass(frozen=True)
class Parameter:
    """One row of the table.

    Attributes
    ----------
    name, default, description:
        What users see. The default's type is the parameter's type.
    unit:
        Of a number; empty for none.
    least, most:
        Inclusive bounds of a number; None for none.
    choices:
        The values that a string may have; empty for any.
    dynamic:
        Whether it may change while the node is configured.

    """

    name: str
    default: Value
    description: str
    unit: str = ''
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    dynamic: bool = False

    @property
    def type_name(self) -> str:
        """The type as ROS users write it."""
        names = {bool: 'bool', int: 'integer', float: 'double', str: 'string'}
        return names.get(type(self.default), 'string array')

    @property
    def constraints(self) -> str:
        """What is allowed, in words."""
        if self.choices:
            return ', '.join(repr(choice) for choice in self.choices)
        if self.least is not None and self.most is not None:
            return f'{self.least:g} to {self.most:g}'
        if self.least is not None:
            return f'{self.least:g} or more'
        return ''

    def check(self, value: Any) -> Value:
        """Return a value as the parameter's type.

        An integer is taken for a double, and no value or an empty list for an empty string array.

        Raises
        ------
        ParameterError
            In a sentence that names the parameter, the value and what is allowed.

        """
        checked = self._coerce(value)
        if checked is None:
            raise ParameterError(
                f'{self.name} must be of type {self.type_name}, '
                f'got {value!r} ({type(value).__name__})'
            )
        if isinstance(checked, (int, float)) and not isinstance(checked, bool):
            # Written so that NaN is refused too.
            low = self.least is None or checked >= self.least
            high = self.most is None or checked <= self.most
            if not (low and high):
                raise ParameterError(f'{self.name} must be {self.constraints}, got {checked!r}')
        if self.choices and checked not in self.choices:
            raise ParameterError(f'{self.name} must be one of {self.constraints}, got {checked!r}')
        return checked

    def _coerce(self, value: Any) -> Value | None:
        if isinstance(self.default, list):
            values = [] if value is None else value
            if isinstance(values, str) or not hasattr(values, '__iter__'):
                return None
            names = list(values)
            return names if all(isinstance(name, str) for name in names) else None
        if isinstance(self.default, float) and type(value) is int:
            return float(value)
        return value if type(value) is type(self.default) else None


PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        'model', '',
        'The network: a model.yaml, the folder of one, or the name of a model that comes with '
        'dla_ros (yolox_nano, yolo_fastest). Required.',
    ),
    Parameter('backend', 'onnxruntime', 'What runs the network.', choices=tuple(BACKENDS)),
    Parameter(
        'dla_core', 0, 'The DLA core, for backends that have cores; onnxruntime has none.',
        least=0, most=1,
    ),
    Parameter(
        'emulate', False,
        'Emulate the DLA, and the GPU where there is none: for workstations and CI. Only for '
        'backend cudla.',
    ),
    Parameter(
        'staging', 'auto',
        'How the GPU reads images: mapped straight from pinned host memory, copied from its own, '
        'auto as suits it.',
        choices=STAGINGS,
    ),
    Parameter(
        'task_timeout', 1.0, 'The DLA gives up a task that takes longer.', unit='s',
        least=0.001, most=1000.0,
    ),
    Parameter(
        'max_recoveries', 3,
        'How often the backend is opened anew after an error; then the process ends with exit '
        'code 75, to be started again. Counted anew after a minute without error.',
        least=0, most=1000,
    ),
    Parameter(
        'recovery_delay', 0.5, 'Before the backend is opened anew; doubled each time.', unit='s',
        least=0.0, most=60.0,
    ),
    Parameter(
        'depth', 2, 'Frames in flight on the backend; one more, the newest, may wait.',
        unit='frames', least=1, most=16,
    ),
    Parameter(
        'threads', 0, 'CPU threads of one inference with onnxruntime; 0 for one per core.',
        least=0, most=256,
    ),
    Parameter(
        'frame_timeout', 5.0, 'A frame that takes longer on the backend is given up.',
        unit='s', least=0.001, most=1000.0,
    ),
    Parameter(
        'confidence_threshold', 0.35, 'Least score of a detection.', least=0.0, most=1.0,
        dynamic=True,
    ),
    Parameter(
        'nms_threshold', 0.45, 'Boxes of one class that overlap more than this are one object.',
        unit='IoU', least=0.0, most=1.0, dynamic=True,
    ),
    Parameter(
        'class_agnostic_nms', False,
        'Whether boxes of different classes that overlap so are one object too.', dynamic=True,
    ),
    Parameter(
        'max_detections', 100, 'At most so many detections of an image, the best.',
        least=1, most=10000, dynamic=True,
    ),
    Parameter(
        'class_filter', [], 'Only these labels; empty for all.', dynamic=True,
    ),
    Parameter(
        'input', 'image',
        'What comes in: images, or the preprocessed network input as a TensorList on tensor_pub.',
        choices=INPUT_NAMES,
    ),
    Parameter(
        'output', 'predictions',
        'What is published: what the model\'s decoder makes, the network\'s outputs as a '
        'TensorList on tensor_sub, or both.',
        choices=OUTPUT_NAMES,
    ),
    Parameter(
        'image_transport', 'raw',
        'How images come in, in the words of image_transport: raw, or compressed (JPEG, PNG) on '
        'the topic image/compressed.',
        choices=TRANSPORT_NAMES,
    ),
    Parameter(
        'input_encoding', '',
        'Overrides the encoding in the image messages, for drivers that mislabel them; empty to '
        'believe the messages.',
        choices=('', *ENCODINGS),
    ),
    Parameter('roi_top_left_x', 0, 'Left edge of the region to look at.', 'px', least=0),
    Parameter('roi_top_left_y', 0, 'Top edge of the region to look at.', 'px', least=0),
    Parameter(
        'crop_width', 0, "Width of the region to look at; 0 to the image's right edge.", 'px',
        least=0,
    ),
    Parameter(
        'crop_height', 0, "Height of the region to look at; 0 to the image's bottom edge.", 'px',
        least=0,
    ),
    Parameter(
        'input_qos', 'SENSOR_DATA',
        'Quality of service of the image subscription. SENSOR_DATA is best effort and matches '
        'every publisher; DEFAULT is reliable.',
        choices=QOS_NAMES,
    ),
    Parameter(
        'input_queue_size', 1, 'Images that the middleware keeps for the node.', 'images',
        least=1, most=1000,
    ),
    Parameter(
        'output_qos', 'DEFAULT', 'Quality of service of the results.', choices=QOS_NAMES,
    ),
    Parameter(
        'output_queue_size', 10, 'Messages that the middleware keeps for slow subscribers.',
        'messages', least=1, most=1000,
    ),
    Parameter('autostart', False, 'Whether the node configures and activates itself.'),
)
"""Every parameter of the node."""


def check_all(values: Mapping[str, Any]) -> dict[str, Any]:
    """Check a value for each parameter.

    Raises
    ------
    ParameterError
        With one line for each fault.

    """
    checked, faults = {}, []
    for parameter in PARAMETERS:
        try:
            checked[parameter.name] = parameter.check(values[parameter.name])
        except ParameterError as error:
            faults.append(str(error))
    if faults:
        raise ParameterError('\n'.join(faults))
    return checked


def markdown_table() -> str:
    """Return the table of parameters for the README."""
    rows = [
        '| parameter | type | default | allowed | at run time | what it does |',
        '|---|---|---|---|---|---|',
    ]
    for row in PARAMETERS:
        allowed = row.constraints + f' {row.unit}' * bool(row.unit)
        if len(row.choices) > 6:
            allowed = 'an encoding'
        default = '`[]`' if row.default == [] else f'`{row.default!r}`'.replace("'", '"')
        rows.append(
            f'| `{row.name}` | {row.type_name} | {default} | {allowed.strip()} | '
            f'{"yes" if row.dynamic else ""} | {row.description} |'
        )
    return '\n'.join(rows)
