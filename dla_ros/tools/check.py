"""python -m dla_ros check: whether an ONNX can become a DLA loadable, told on any computer."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import json
from pathlib import Path
import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from dla_ros.convert.check import as_json, check_graph, LARGEST_HALF, Place, Report
from dla_ros.convert.graph import fix_shapes, Graph, GraphError, read_onnx, show_shape
from dla_ros.convert.ranges import largest_values, sample_inputs
from dla_ros.errors import BackendError
from dla_ros.image import ImageError
from dla_ros.model import Model, ModelError
from dla_ros.resources import share_directory
from dla_ros.sources import open_source, SourceError

if TYPE_CHECKING:
    import onnx

_MEGA, _GIGA = 1e6, 1e9
_MOST_ROWS = 40


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


def find_network(options: argparse.Namespace) -> tuple[Path, Model | None]:
    """Return the ONNX that is meant, and its model if there is one.

    Raises
    ------
    ModelError
        If model.yaml has faults or names no ONNX.

    """
    path = Path(options.network)
    if path.suffix.lower() != '.onnx':
        model = Model.load(options.network)
        if model.onnx is None:
            raise ModelError(f'model {model.name!r} names no ONNX file (key onnx)')
        return model.onnx, model
    if options.model:
        return path, Model.load(options.model)
    beside = path.parent / 'model.yaml'
    if beside.is_file():
        model = Model.load(beside)
        if model.onnx is not None and path.exists() and model.onnx.samefile(path):
            return path, model
    return path, None


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(
        prog='python -m dla_ros check',
        description='Say whether a network can become a standalone DLA loadable: which nodes the '
        'DLA refuses and why, where to cut, which layouts fit, and whether float16 holds its '
        'activations. It needs neither TensorRT nor a Jetson, and follows the limits that '
        'TensorRT publishes; the last word has trtexec.',
        epilog='Returns 0 if nothing speaks against it, 1 if something does, 2 if there is '
        'nothing to check.',
    )
    made.add_argument(
        'network', metavar='MODEL', help='an ONNX file; or a model.yaml, its folder, or a '
        'shipped name, whose ONNX is taken',
    )
    made.add_argument(
        'model', nargs='?', metavar='YAML', help='the model.yaml of an ONNX file, for its '
        'preprocessing; default: the model.yaml beside it that names it',
    )
    made.add_argument(
        '--shape', type=shape_of, action='append', default=[], metavar='NAME:SHAPE',
        help='fix the shape of an input that the ONNX leaves open, as images:1x3x416x416',
    )
    made.add_argument(
        '--pictures', type=Path, metavar='SOURCE',
        help='run the network on these (a folder, a bag, a video) and look for values beyond '
        'float16; default: the pictures of the demo, if there is a model.yaml',
    )
    made.add_argument('--json', metavar='FILE', help='write all as JSON; - for standard output')
    return made


def main(arguments: list[str] | None = None) -> int:
    """Check the network; see the epilog for what is returned."""
    options = parser().parse_args(arguments)
    try:
        path, model = find_network(options)
        network = fix_shapes(read_onnx(path), dict(options.shape))
        graph = Graph(network)
        if model is None and options.pictures:
            raise ModelError('--pictures needs a model.yaml, which says how to preprocess them')
        ranges = None if model is None else _ranges(network, graph, model, options.pictures)
        report = check_graph(graph, ranges)
    except (GraphError, ModelError, BackendError, ImageError, SourceError, OSError) as error:
        print(f'check: {error}', file=sys.stderr)
        return 2
    if options.json == '-':
        print(json.dumps(as_json(report), indent=1))
    else:
        show(report, path, Console())
        if options.json:
            Path(options.json).write_text(json.dumps(as_json(report), indent=1))
    return 0 if report.passed else 1


def _ranges(
    network: onnx.ModelProto, graph: Graph, model: Model, pictures: Path | None
) -> dict[str, float] | None:
    """Return the largest values on the pictures; None for a network that takes no picture."""
    shape = graph.shape(graph.inputs[0]) or ()
    if len(graph.inputs) != 1 or None in shape:
        return None
    source = open_source(pictures or share_directory() / 'demo/pictures')
    entries = track(source, 'pictures', console=Console(stderr=True), transient=True)
    views = (entry.load().view for entry in entries)
    return largest_values(
        network, sample_inputs(views, model.input, [int(n or 0) for n in shape])
    )


def show(report: Report, path: Path, console: Console) -> None:
    """Print a report."""
    if report.refusals:
        console.print(_refusals(report))
        left_out = len(report.refusals) - _MOST_ROWS
        if left_out > 0:
            console.print(f'... and {left_out} more; --json FILE has them all')
    for name, largest in report.overflows.items():
        console.print(
            f'[red]{escape(name)} reaches {largest:g}; float16 ends at {LARGEST_HALF:g}. Scale '
            'the weights before it down, or keep its values small in training.'
        )
    console.print(_tensors(report))
    if report.refusals:
        console.print(f'The largest part that a DLA can run has {report.part:.0%} of the work:')
        console.print(f'  from {_listed(report.cut_inputs)}')
        console.print(f'  to   {_listed(report.cut_outputs)}')
    console.print(
        f'{report.operations / _GIGA:.2f} G operations; float16 weights '
        f'{report.weights / _MEGA:.1f} MB, activations alive at once up to '
        f'{report.activations / _MEGA:.1f} MB'
    )
    if report.ranges:
        name, largest = max(report.ranges.items(), key=lambda item: item[1])
        console.print(f'Largest activation on the pictures: {largest:g} ({escape(name)})')
    else:
        console.print('Activations were not looked at: that needs a model.yaml')
    nodes = len({refusal.node for refusal in report.refusals})
    console.print(
        f'[green]{path.name}: nothing speaks against a standalone loadable' if report.passed
        else f'[red]{path.name}: no standalone loadable: {nodes} node(s) refused, '
        f'{len(report.overflows)} tensor(s) beyond float16'
    )


def _listed(places: Sequence[Place]) -> str:
    return ', '.join(map(str, places)) or 'nothing'


def _refusals(report: Report) -> Table:
    table = Table('node', 'operator', 'limit', 'is', 'what to do', show_lines=True)
    for row in report.refusals[:_MOST_ROWS]:
        table.add_row(
            escape(row.node), row.operator, f'{row.limit} [dim]({row.source})', escape(row.value),
            row.remedy,
        )
    return table


def _tensors(report: Report) -> Table:
    table = Table('tensor', 'shape', 'layouts that fit, and their bytes')
    for kind, places in (('input', report.inputs), ('output', report.outputs)):
        for place in places:
            layouts = ', '.join(f'{name} {size}' for name, size in place.layouts.items())
            table.add_row(f'{kind} {escape(place.name)}', show_shape(place.shape), layouts or '-')
    return table


if __name__ == '__main__':
    sys.exit(main())
