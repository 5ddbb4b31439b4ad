"""The DLA emulator: stand-in libraries that the unmodified cuda.bindings load.

With it the robot's path (pinned memory, streams, cuDLA tasks, kernels) runs on a workstation, with
or without a GPU. What it says of time is nothing about a DLA.
"""

from dla_ros.emulator.control import Emulator, emulator, load

__all__ = ['Emulator', 'emulator', 'load']
