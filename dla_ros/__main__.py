"""The tools: python -m dla_ros TOOL."""

from __future__ import annotations

import importlib
import sys

TOOLS = {
    'demo': 'find objects in real pictures and a real clip, over DDS, and show them',
    'play': 'publish pictures and bags as sensor_msgs/Image',
    'listen': 'collect detections into a file',
    'replay': 'run recorded images through a model and say what has changed',
    'schema': 'describe every key of model.yaml',
    'check': 'say whether an ONNX can become a DLA loadable, and what the DLA refuses',
    'build': 'from an ONNX to a DLA loadable with its model.yaml',
}
"""Every tool, a module of its name in dla_ros.tools, with what it does."""


def main(arguments: list[str] | None = None) -> int:
    """Run the tool that the first argument names; return its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] in TOOLS:
        tool = importlib.import_module(f'dla_ros.tools.{words[0]}')
        return int(tool.main(words[1:]))
    listing = '\n'.join(f'  {name:<8} {text}' for name, text in TOOLS.items())
    usage = f'usage: python -m dla_ros TOOL ...\n\ntools (each has its own --help):\n{listing}'
    if words and words[0] in ('-h', '--help'):
        print(usage)
        return 0
    if words:
        print(f'dla_ros: unknown tool {words[0]!r}', file=sys.stderr)
    print(usage, file=sys.stderr)
    return 2


if __name__ == '__main__':
    sys.exit(main())
