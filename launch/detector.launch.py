"""Start one detector node: ros2 launch dla_ros detector.launch.py model:=yolox_nano ..."""

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode

from dla_ros.launching import detector, DETECTOR_ARGUMENTS
from dla_ros.resources import share_directory


def start(context: LaunchContext) -> list[LifecycleNode]:
    """Return the node for the arguments given."""
    values = {
        argument.name: LaunchConfiguration(argument.name).perform(context)
        for argument in DETECTOR_ARGUMENTS
    }
    node = detector(values, str(share_directory() / 'config' / 'detector.yaml'))
    return [
        LifecycleNode(
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
    ]


def generate_launch_description() -> LaunchDescription:
    """Return the arguments and the node."""
    arguments = [
        DeclareLaunchArgument(
            argument.name,
            default_value=argument.default,
            description=argument.description,
            choices=list(argument.choices) or None,
        )
        for argument in DETECTOR_ARGUMENTS
    ]
    return LaunchDescription([*arguments, OpaqueFunction(function=start)])
