"""What launching.py decides, as actions of launch; imported by the launch files only."""

from __future__ import annotations

from collections.abc import Sequence

from launch import LaunchContext
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode

from dla_ros.launching import LaunchArgument, NodeDescription
from dla_ros.resources import share_directory


def default_params_file() -> str:
    """Return the parameter file for an empty `params_file`."""
    return str(share_directory() / 'config' / 'detector.yaml')


def declared(arguments: Sequence[LaunchArgument]) -> list[DeclareLaunchArgument]:
    """Return the declarations of arguments."""
    return [
        DeclareLaunchArgument(
            argument.name,
            default_value=argument.default,
            description=argument.description,
            choices=list(argument.choices) or None,
        )
        for argument in arguments
    ]


def given(context: LaunchContext, arguments: Sequence[LaunchArgument]) -> dict[str, str]:
    """Return the arguments' values."""
    return {
        argument.name: LaunchConfiguration(argument.name).perform(context)
        for argument in arguments
    }


def lifecycle_node(node: NodeDescription) -> LifecycleNode:
    """Return the action that starts a node."""
    return LifecycleNode(
        package=node.package,
        executable=node.executable,
        name=node.name,
        namespace=node.namespace,
        remappings=node.remappings,
        arguments=node.setting_arguments(),
        respawn=node.respawn,
        respawn_delay=2.0,
        output='both',
        emulate_tty=True,
    )
