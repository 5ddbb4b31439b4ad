"""Play a bag into the detector: ros2 launch dla_ros replay.launch.py source:=BAG model:=..."""

from launch import LaunchContext, LaunchDescription
from launch.actions import OpaqueFunction, Shutdown
from launch_ros.actions import Node

from dla_ros.launch_actions import declared, default_params_file, given, lifecycle_node
from dla_ros.launching import replay, REPLAY_ARGUMENTS


def start(context: LaunchContext) -> list[Node]:
    """Return the node, the player and the listener for the arguments given."""
    description = replay(given(context, REPLAY_ARGUMENTS), default_params_file())
    tools = {'listen': description.listen, 'play': description.play}
    return [
        lifecycle_node(description.node),
        *(
            Node(
                package=description.node.package,
                executable=executable,
                namespace=description.node.namespace,
                remappings=description.remappings,
                arguments=words,
                output='both',
                # When all is played, all ends.
                on_exit=[Shutdown()] if executable == 'play' else None,
            )
            for executable, words in tools.items() if words
        ),
    ]


def generate_launch_description() -> LaunchDescription:
    """Return the arguments and the nodes."""
    return LaunchDescription([*declared(REPLAY_ARGUMENTS), OpaqueFunction(function=start)])
