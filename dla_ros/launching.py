"""What the launch files decide, without launch: arguments, executable, parameters, remappings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dla_ros.backends import BACKENDS
from dla_ros.parameters import PARAMETERS, Value


@dataclass(frozen=True)
class LaunchArgument:
    """An argument of a launch file, with its default and what it is for."""

    name: str
    default: str
    description: str
    choices: tuple[str, ...] = ()


DETECTOR_ARGUMENTS = (
    LaunchArgument(
        'model', '', 'A model.yaml, its folder, or a shipped name such as yolox_nano; empty to '
        'leave it to the params file.',
    ),
    LaunchArgument('image_topic', 'image', 'The camera topic, sensor_msgs/Image.'),
    LaunchArgument('namespace', '', 'The namespace of the node and its topics.'),
    LaunchArgument('name', 'dla_node', "The node's name."),
    LaunchArgument(
        'backend', '', 'What runs the network; empty to leave it to the params file.',
        ('', *BACKENDS),
    ),
    LaunchArgument(
        'emulate', '', 'Emulate the DLA; empty to leave it to the params file.',
        ('', 'true', 'false'),
    ),
    LaunchArgument('core', '', 'The DLA core, 0 or 1; empty to leave it to the params file.'),
    LaunchArgument('params_file', '', 'A ROS parameter file; empty for config/detector.yaml.'),
    LaunchArgument('autostart', 'true', 'Configure and activate the node.', ('true', 'false')),
    LaunchArgument(
        'log_level', 'info', 'Least severity of what is logged.',
        ('debug', 'info', 'warn', 'error', 'fatal'),
    ),
    LaunchArgument(
        'respawn', 'false', 'Start the process again when it ends.', ('true', 'false')
    ),
)
"""The arguments of detector.launch.py."""

PLAYER_ARGUMENTS = (
    LaunchArgument('source', '', 'What to play: a rosbag2 folder, mcap file, video, pictures.'),
    LaunchArgument('topic', '', 'The image topic of a bag; empty for its only one.'),
    LaunchArgument('rate', '5.0', 'Images per second, no more than the backend can hold.'),
    LaunchArgument('loop', '1', 'How often to play it.'),
    LaunchArgument('out', '', 'A file for the detections, as JSON lines; empty for none.'),
)
REPLAY_ARGUMENTS = (*DETECTOR_ARGUMENTS, *PLAYER_ARGUMENTS)
"""The arguments of replay.launch.py."""


class LaunchError(ValueError):
    """A launch argument that cannot be used; the text names it."""


@dataclass(frozen=True)
class NodeDescription:
    """A node to start: what launch_ros's LifecycleNode takes.

    Attributes
    ----------
    params_file:
        Applied before `parameters`; '' for none.
    parameters:
        By name, of the parameters' types.
    remappings:
        (from, to) pairs.

    """

    executable: str
    name: str
    namespace: str
    params_file: str
    parameters: dict[str, Value]
    remappings: list[tuple[str, str]] = field(default_factory=list)
    log_level: str = 'info'
    respawn: bool = False
    package: str = 'dla_ros'

    def ros_arguments(self) -> list[str]:
        """Return all of it as command line arguments of the executable, for use without launch."""
        arguments = ['--ros-args', '-r', f'__node:={self.name}']
        if self.namespace:
            arguments += ['-r', f'__ns:=/{self.namespace.strip("/")}']
        for source, target in self.remappings:
            arguments += ['-r', f'{source}:={target}']
        return arguments + self.setting_arguments()[1:]

    def setting_arguments(self) -> list[str]:
        """Return the parameters and the log level as command line arguments.

        Launch is given these instead of parameters: it writes the string 123E5 into its
        temporary file without quotes, and rcl reads a number (launch_ros#384).
        """
        arguments = ['--ros-args']
        if self.params_file:
            arguments += ['--params-file', self.params_file]
        for name, value in self.parameters.items():
            arguments += ['-p', f'{name}:={_yaml(value)}']
        # The node's own logger, not all of rcl.
        logger = '.'.join([*self.namespace.strip('/').split('/'), self.name]).lstrip('.')
        return [*arguments, '--log-level', f'{logger}:={self.log_level}']


def _yaml(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, list):
        return '[' + ', '.join(map(_yaml, value)) + ']'
    return repr(value)


def detector(arguments: Mapping[str, str], default_params_file: str = '') -> NodeDescription:
    """Decide what detector.launch.py starts.

    Parameters
    ----------
    arguments:
        Values by name; those left out have their defaults.
    default_params_file:
        For an empty `params_file`.

    Raises
    ------
    LaunchError
        If an argument is unknown or has a value that it cannot have.

    """
    values = _values(arguments, DETECTOR_ARGUMENTS)
    parameters: dict[str, Value] = {'autostart': values['autostart'] == 'true'}
    if values['model']:
        parameters['model'] = values['model']
    if values['backend']:
        parameters['backend'] = values['backend']
    if values['emulate']:
        parameters['emulate'] = values['emulate'] == 'true'
    if values['core']:
        parameters['dla_core'] = _core(values['core'])
    return NodeDescription(
        executable='dla_node',
        name=values['name'],
        namespace=values['namespace'],
        params_file=values['params_file'] or default_params_file,
        parameters=parameters,
        remappings=[('image', values['image_topic'])] * (values['image_topic'] != 'image'),
        log_level=values['log_level'],
        respawn=values['respawn'] == 'true',
    )


def _values(
    arguments: Mapping[str, str], known: Sequence[LaunchArgument]
) -> dict[str, str]:
    unknown = set(arguments) - {argument.name for argument in known}
    if unknown:
        names = [argument.name for argument in known]
        raise LaunchError(f'unknown argument {", ".join(sorted(unknown))}; known: {names}')
    values = {a.name: arguments.get(a.name, a.default) for a in known}
    for argument in known:
        value = values[argument.name]
        if argument.choices and value not in argument.choices:
            raise LaunchError(f'{argument.name} must be one of {argument.choices}, got {value!r}')
    return values


@dataclass(frozen=True)
class ReplayDescription:
    """What replay.launch.py starts: the node, and the words of the tools `play` and `listen`.

    Without a file to write, `listen` is empty. `remappings` are for both tools.
    """

    node: NodeDescription
    play: list[str]
    listen: list[str]
    remappings: list[tuple[str, str]]


def replay(arguments: Mapping[str, str], default_params_file: str = '') -> ReplayDescription:
    """Decide what replay.launch.py starts; see `detector`."""
    values = _values(arguments, REPLAY_ARGUMENTS)
    if not values['source']:
        raise LaunchError('source must name what to play')
    own = {argument.name: values.pop(argument.name) for argument in PLAYER_ARGUMENTS}
    node = detector(values, default_params_file)
    # Nothing is to be lost on the way in, and time is that of the images.
    node.parameters.update(use_sim_time=True, input_qos='DEFAULT', input_queue_size=20)
    return ReplayDescription(
        node,
        [own['source'], f'--topic={own["topic"]}', f'--rate={own["rate"]}',
         f'--loop={own["loop"]}', '--clock'],
        [f'--out={own["out"]}', '--force'] if own['out'] else [],
        node.remappings,
    )


def _core(text: str) -> int:
    (parameter,) = (p for p in PARAMETERS if p.name == 'dla_core')
    try:
        value: Any = parameter.check(int(text))
    except ValueError as error:
        raise LaunchError(f'core must be 0 or 1, got {text!r}') from error
    return int(value)
