"""python -m dla_ros check: whether an ONNX can become a DLA loadable, told on any computer."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import json
from pathlib import Path
import shlex
import sys

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dla_ros.convert.check import as_json, check_graph, LARGEST_HALF, Place, Report
from dla_ros.convert.graph import fix_shapes, Graph, GraphError, read_onnx, show_shape
from dla_ros.convert.ranges import largest_values
from dla_ros.errors import BackendError
from dla_ros.image import ImageError
from dla_ros.model import Model, ModelError
from dla_ros.sources import SourceError
from dla_ros.tools.network import (
    add_network_arguments,
    find_network,
    inputs_of,
    takes_pictures,
)

_MEGA, _GIGA = 1e6, 1e9
_MOST_ROWS = 40


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
    add_network_arguments(made)
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
        path, yaml = find_network(options)
        model = None if yaml is None else Model.load(yaml)
        network = fix_shapes(read_onnx(path), dict(options.shape))
        graph = Graph(network)
        if model is None and options.pictures:
            raise ModelError('--pictures needs a model.yaml, which says how to preprocess them')
        ranges = None
        if model is not None and takes_pictures(graph):
            console = Console(stderr=True)
            ranges = largest_values(
                network, inputs_of(graph, model, options.pictures, 'pictures', console)
            )
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
            f'Try: python -m dla_ros build {path} {shlex.join(report.surgery)}',
            soft_wrap=True, markup=False, highlight=False,
        )
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
