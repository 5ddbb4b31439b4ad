"""What tools that work on a network share: which one, its shapes, inputs made of pictures."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track

from dla_ros.convert.graph import Graph
from dla_ros.convert.ranges import Feed, sample_inputs
from dla_ros.model import find_model, Model, ModelError
from dla_ros.resources import share_directory
from dla_ros.sources import open_source


def add_network_arguments(parser: argparse.ArgumentParser) -> None:
    """Let a command line name a network."""
    parser.add_argument(
        'network', metavar='MODEL', help='an ONNX file; or a model.yaml, its folder, or a '
        'shipped name, whose ONNX is taken',
    )
    parser.add_argument(
        'model', nargs='?', metavar='YAML', help='the model.yaml of an ONNX file, for its '
        'preprocessing; default: the model.yaml beside it that names it',
    )
    parser.add_argument(
        '--shape', type=shape_of, action='append', default=[], metavar='NAME:SHAPE',
        help='fix the shape of an input that the ONNX leaves open, as images:1x3x416x416',
    )


def shape_of(text: str) -> tuple[str, tuple[int, ...]]:
    """Read NAME:1x3x416x416."""
    name, _, sides = text.rpartition(':')
    try:
        shape = tuple(int(side) for side in sides.split('x'))
    except ValueError:
        shape = ()
    if not name or not shape or min(shape) < 1:
        raise argparse.ArgumentTypeError(f'{text!r} is no NAME:SHAPE, as images:1x3x416x416')
    return name, shape


def find_network(options: argparse.Namespace) -> tuple[Path, Path | None]:
    """Return the ONNX that is meant, and its model.yaml if there is one.

    Raises
    ------
    ModelError
        If model.yaml has faults or names no ONNX.

    """
    path = Path(options.network)
    if path.suffix.lower() != '.onnx':
        yaml = find_model(options.network)
        model = Model.load(yaml)
        if model.onnx is None:
            raise ModelError(f'model {model.name!r} names no ONNX file (key onnx)')
        return model.onnx, yaml
    if options.model:
        return path, find_model(options.model)
    beside = path.parent / 'model.yaml'
    if beside.is_file():
        model = Model.load(beside)
        if model.onnx is not None and path.exists() and model.onnx.samefile(path):
            return path, beside
    return path, None


def takes_pictures(graph: Graph) -> bool:
    """Whether a network has one input of known shape."""
    return len(graph.inputs) == 1 and None not in (graph.shape(graph.inputs[0]) or (None,))


def inputs_of(
    graph: Graph, model: Model, pictures: Path | None, what: str, console: Console
) -> Iterator[Feed]:
    """Yield pictures as a network's input while a bar shows how far it is; valid until the next.

    Parameters
    ----------
    graph:
        A network that `takes_pictures`.
    model:
        How they become its input.
    pictures:
        See open_source; None for those of the demo.
    what:
        What is done with them, beside the bar.
    console:
        Where the bar is shown.

    Raises
    ------
    GraphError, ImageError, SourceError

    """
    source = open_source(pictures or share_directory() / 'demo/pictures')
    views = (entry.load().view for entry in track(source, what, console=console, transient=True))
    yield from sample_inputs(views, model.input, known_shape(graph))


def known_shape(graph: Graph) -> Sequence[int]:
    """Return the shape of the input of a network that `takes_pictures`."""
    return [int(side or 0) for side in graph.shape(graph.inputs[0]) or ()]
