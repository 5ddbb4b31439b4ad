"""Start one detector node: ros2 launch dla_ros detector.launch.py model:=yolox_nano ..."""

from launch import LaunchContext, LaunchDescription
from launch.actions import OpaqueFunction
from launch_ros.actions import LifecycleNode

from dla_ros.launch_actions import declared, default_params_file, given, lifecycle_node
from dla_ros.launching import detector, DETECTOR_ARGUMENTS


def start(context: LaunchContext) -> list[LifecycleNode]:
    """Return the node for the arguments given."""
    values = given(context, DETECTOR_ARGUMENTS)
    return [lifecycle_node(detector(values, default_params_file()))]


def generate_launch_description() -> LaunchDescription:
    """Return the arguments and the node."""
    return LaunchDescription([*declared(DETECTOR_ARGUMENTS), OpaqueFunction(function=start)])
