"""python -m dla_ros build: from an ONNX to a DLA loadable with its model.yaml, in one folder."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
import shlex
import sys
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from dla_ros.cache import write_atomically
from dla_ros.convert import precision, surgery, trtexec
from dla_ros.convert.check import check_graph
from dla_ros.convert.folder import edges, Target, write_model, write_networks
from dla_ros.convert.graph import fix_shapes, Graph, GraphError, read_onnx
from dla_ros.convert.ranges import Feed, largest_values
from dla_ros.decoders.base import DecoderError
from dla_ros.detector import Detector
from dla_ros.emulator.loadable import build_loadable
from dla_ros.errors import BackendError
from dla_ros.image import ImageError
from dla_ros.model import Model, ModelError
from dla_ros.sources import SourceError
from dla_ros.tensor import TensorFormat
from dla_ros.tools import check
from dla_ros.tools.network import (
    add_network_arguments,
    find_network,
    inputs_of,
    known_shape,
    takes_pictures,
)

if TYPE_CHECKING:
    import onnx

_FORMATS = {'fp16': TensorFormat('float16', 'chw16'), 'int8': TensorFormat('int8', 'chw32')}
_SAME, _CLOSE = 1e-3, 0.05  # Parts of a tensor's root mean square.
_RANDOM_INPUTS = 4
_LINE = 90

Feeds = Callable[[str], Iterator[Feed]]


class BuildError(ValueError):
    """Something that keeps a loadable from being built; the text says what to do."""


def _format(text: str) -> TensorFormat:
    try:
        return TensorFormat.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _version(text: str) -> trtexec.Version:
    try:
        version = tuple(int(part) for part in text.split('.'))
    except ValueError:
        version = ()
    if not 2 <= len(version) <= 4:
        raise argparse.ArgumentTypeError(f'{text!r} is no version, as 11.4.1 or 10.3')
    return version


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(
        prog='python -m dla_ros build',
        description='Make a network fit for a DLA, check it, convert it to float16 or int8, and '
        'build a standalone loadable of it with trtexec. Without trtexec, all but the last step '
        'is done and the command for the Jetson is printed.',
        epilog='The folder then has model.onnx (float32, for the onnxruntime backend), what '
        'trtexec is given, model.bin, trtexec.log and model.yaml. Returns 0 if all went well.',
    )
    add_network_arguments(made)
    made.add_argument('--out', type=Path, metavar='DIR', help='default: NAME-PRECISION')
    made.add_argument('--force', action='store_true', help='replace what is in the folder')
    change = made.add_argument_group('what is changed')
    change.add_argument(
        '--cut-outputs', metavar='TENSOR,...', type=lambda text: text.split(','), default=[],
        help='the tensors to end at; `check` suggests some',
    )
    change.add_argument(
        '--fold-focus', action='store_true', help='make one convolution of a Focus stem (strided '
        'slices, a concatenation and a convolution)',
    )
    change.add_argument(
        '--chain-pools', action='store_true', help='make several poolings of one that is too '
        'large for a DLA, global ones too',
    )
    change.add_argument(
        '--precision', choices=list(_FORMATS), default='fp16', help='default: fp16'
    )
    change.add_argument(
        '--calibration', type=Path, metavar='SOURCE', help='pictures (a folder, a bag, a video) '
        'whose largest activations give the scales; required for int8',
    )
    change.add_argument(
        '--pictures', type=Path, metavar='SOURCE', help='pictures on which the results are '
        'compared with those before; default: those of the demo, or random numbers without a '
        'model.yaml',
    )
    change.add_argument(
        '--unchecked', action='store_true', help='go on although `check` finds the DLA to refuse '
        'the network',
    )
    made_by = made.add_argument_group('the loadable')
    for option, what in (('--inputIOFormats', 'the input'), ('--outputIOFormats', 'the outputs')):
        made_by.add_argument(
            option, type=_format, metavar='TYPE:LAYOUT', help=f'of {what}, as trtexec takes it: '
            'fp16 or int8; chw16, chw32, dla_linear, or for images dla_hwc4. Default: fp16:chw16, '
            'with int8 int8:chw32',
        )
    made_by.add_argument(
        '--tensorrt', type=_version, metavar='VERSION', help='the TensorRT of the Jetson, where '
        'no trtexec is here; default: ' + trtexec.text_of(trtexec.NEWEST),
    )
    made_by.add_argument(
        '--emulated', action='store_true', help='make a loadable for the emulator (emulate:=true) '
        'instead; no DLA runs it',
    )
    return made


def main(arguments: list[str] | None = None) -> int:
    """Build; return 0, or 1 with a sentence about what is wrong."""
    options = parser().parse_args(arguments)
    try:
        build(options, Console())
    except (
        BuildError, GraphError, ModelError, BackendError, ImageError, SourceError,
        trtexec.TrtexecError, OSError,
    ) as error:
        print(f'build: {error}', file=sys.stderr)
        return 1
    return 0


def build(options: argparse.Namespace, console: Console) -> None:
    """Do what the command line asks for."""
    path, template = find_network(options)
    program = None if options.emulated else trtexec.find_trtexec()
    target = _target(options, path, template, program)
    exact = _read(path, options)
    network = _operated(exact, options, console)
    edges(target, Graph(network))
    feeds = _feeds(Graph(network), template, options.pictures, console)
    if feeds is not None:
        _ensure_same(exact, network, feeds('comparing'))
    _ensure_fit(network, path, None if template is None else feeds, options.unchecked, console)
    typed, scales = _typed(network, target, options.calibration)
    if feeds is not None and typed is not network:
        _show_differences(network, typed, feeds('comparing'), console)
    write_networks(target, network, typed, scales)
    write_model(target, network, scales, loadable=False)
    if options.emulated:
        model = Model.load(target.folder)
        loadable = build_loadable(model, target.inputs, target.outputs)
        write_atomically(target.folder / trtexec.LOADABLE, loadable)
    elif program is not None:
        _run(program, target, console)
    if options.emulated or program is not None:
        write_model(target, network, scales, loadable=True)
    _show_made(target, console)


def _target(
    options: argparse.Namespace, path: Path, template: Path | None, program: Path | None
) -> Target:
    """Return what is to be built; raise BuildError if it cannot be, before any work is done."""
    name = path.stem if template is None else Model.load(template).name
    folder = options.out or Path(f'{name}-{options.precision}')
    if folder.resolve() in {place.parent.resolve() for place in (path, template) if place}:
        raise BuildError(f'{folder} has the network itself; --out must be another folder')
    if folder.is_dir() and any(folder.iterdir()) and not options.force:
        raise BuildError(f'{folder} is not empty; --force replaces what is there')
    default = _FORMATS[options.precision]
    inputs, outputs = options.inputIOFormats or default, options.outputIOFormats or default
    version = None if options.emulated else _builder(options, program)
    target = Target(folder, name, template, options.precision, inputs, outputs, version)
    if target.precision == 'int8':
        if options.calibration is None:
            raise BuildError('int8 needs --calibration: pictures such as the robot will see')
        if template is None:
            raise BuildError('int8 needs a model.yaml, which says how to preprocess the pictures')
    elif not options.emulated and 'int8' in (target.inputs.dtype, target.outputs.dtype):
        raise BuildError('int8 tensors need --precision int8')
    return target


def _builder(options: argparse.Namespace, program: Path | None) -> trtexec.Version:
    """Return the TensorRT that builds."""
    version: trtexec.Version = options.tensorrt or trtexec.NEWEST
    if program is not None:
        version = trtexec.read_version(program)
    if not trtexec.has_dla(version):
        raise BuildError(
            f'TensorRT {trtexec.text_of(version)} does not build for DLAs (11.0 to 11.3 do not): '
            'use 11.4 or newer, or 10.3 of JetPack 6'
        )
    return version


def _read(path: Path, options: argparse.Namespace) -> onnx.ModelProto:
    """Return the network as it is to be kept, before surgery."""
    network = fix_shapes(read_onnx(path), dict(options.shape))
    if options.precision == 'int8' and precision.is_half(network):
        network = precision.to_single(network)
    return surgery.cut_outputs(network, options.cut_outputs) if options.cut_outputs else network


def _operated(
    exact: onnx.ModelProto, options: argparse.Namespace, console: Console
) -> onnx.ModelProto:
    """Return the network with the surgery that is asked for."""
    network = surgery.simplify(exact)
    surgery.scales_from_sizes(network)
    said = []
    if options.fold_focus:
        said.append(f'{surgery.fold_focus(network)} Focus stem(s) folded')
    if options.chain_pools:
        said.append(f'{surgery.chain_pools(network)} pooling(s) chained')
    surgery.name_nodes(network)
    before, after = len(exact.graph.node), len(network.graph.node)
    console.print(', '.join([f'{before} nodes became {after}', *said]))
    return network


def _feeds(
    graph: Graph, template: Path | None, pictures: Path | None, console: Console
) -> Feeds | None:
    """Return what yields the network's inputs anew each time; None if it has several."""
    if not takes_pictures(graph):
        console.print('[yellow]results are not compared: that needs one input of known shape')
        return None
    if template is not None:
        model = Model.load(template)
        return lambda what: inputs_of(graph, model, pictures, what, Console(stderr=True))
    if pictures is not None:
        raise ModelError('--pictures needs a model.yaml, which says how to preprocess them')
    shape = known_shape(graph)

    def random(what: str) -> Iterator[Feed]:
        generator = np.random.default_rng(0)
        return (generator.random(shape, np.float32) for _ in range(_RANDOM_INPUTS))

    return random


def _worst(
    exact: onnx.ModelProto, other: onnx.ModelProto, feeds: Iterator[Feed]
) -> dict[str, float]:
    """Return how far each output is from that of the exact network at most."""
    worst: dict[str, float] = {}
    for found in precision.differences(exact, other, feeds):
        for name, value in found.items():
            worst[name] = max(worst.get(name, 0.0), value if np.isfinite(value) else np.inf)
    return worst


def _ensure_same(exact: onnx.ModelProto, other: onnx.ModelProto, feeds: Iterator[Feed]) -> None:
    most = max(_worst(exact, other, feeds).values())
    if most > _SAME:
        raise BuildError(
            f'surgery changed the results by {most:.2%} of their root mean square: build without '
            '--fold-focus and --chain-pools'
        )


def _show_differences(
    exact: onnx.ModelProto, other: onnx.ModelProto, feeds: Iterator[Feed], console: Console
) -> None:
    worst = _worst(exact, other, feeds)
    table = Table('output', 'difference from float32, root mean square')
    for name, value in worst.items():
        table.add_row(escape(name), f'{value:.2%}' if value <= _CLOSE else f'[yellow]{value:.2%}')
    console.print(table)
    if max(worst.values()) > _CLOSE:
        console.print(
            f'[yellow]More than {_CLOSE:.0%}: look at its predictions (`replay`) before a robot '
            'relies on it.'
        )


def _ensure_fit(
    network: onnx.ModelProto, path: Path, feeds: Feeds | None, unchecked: bool, console: Console
) -> None:
    ranges = None if feeds is None else largest_values(network, feeds('ranges'))
    report = check_graph(Graph(network), ranges)
    if report.passed:
        return
    check.show(report, path, console)
    if not unchecked:
        raise BuildError(
            'the DLA refuses this network: see "what to do" above; --unchecked goes on'
        )


def _typed(
    network: onnx.ModelProto, target: Target, calibration: Path | None
) -> tuple[onnx.ModelProto, dict[str, float]]:
    """Return the network in its precision, and the scales of its activations."""
    if target.precision == 'fp16':
        return network if precision.is_half(network) else precision.to_half(network), {}
    graph = Graph(network)
    if not takes_pictures(graph):
        raise BuildError('int8 needs a network with one input of known shape')
    assert target.template is not None
    model, console = Model.load(target.template), Console(stderr=True)
    return precision.to_int8(
        network, inputs_of(graph, model, calibration, 'calibrating', console)
    )


def _run(program: Path, target: Target, console: Console) -> None:
    """Run trtexec, while its last line is shown."""
    console.print(shlex.join(target.command), soft_wrap=True, markup=False, highlight=False)
    columns = SpinnerColumn(), TimeElapsedColumn(), TextColumn('{task.description}', markup=False)
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task('trtexec')
        trtexec.run(
            program, target.command, target.folder,
            lambda line: progress.update(task, description=line[:_LINE]),
        )


def _show_made(target: Target, console: Console) -> None:
    """Say what there is, and what is left to do."""
    try:
        Detector.open(target.folder).close()
    except (ModelError, BackendError, DecoderError) as error:
        console.print(
            f'[yellow]The decoder in model.yaml does not fit this network, edit it: '
            f'{escape(str(error))}'
        )
    console.print(f'[green]{target.folder}[/]: ' + ', '.join(
        sorted(path.name for path in target.folder.iterdir())
    ))
    if not (target.folder / trtexec.LOADABLE).exists():
        assert target.version is not None
        console.print(
            f'No trtexec is here. On the Jetson, with TensorRT {trtexec.text_of(target.version)} '
            '(another: --tensorrt), run in a copy of that folder'
        )
        console.print(shlex.join(target.command), soft_wrap=True, markup=False, highlight=False)
        console.print(f'and add `loadable: {trtexec.LOADABLE}` to its model.yaml.')


if __name__ == '__main__':
    sys.exit(main())
