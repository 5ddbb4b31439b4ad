"""python -m dla_ros build: make a loadable for the emulator."""

from __future__ import annotations

import argparse
from pathlib import Path
import sys

from dla_ros.cache import write_atomically
from dla_ros.emulator.loadable import build_loadable, FP16_CHW16, TensorFormat
from dla_ros.errors import BackendError
from dla_ros.model import Model, ModelError


def _format(text: str) -> TensorFormat:
    try:
        return TensorFormat.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(
        prog='python -m dla_ros build',
        description='Make an emulated loadable from a model\'s ONNX, with the tensors that a real '
        'one would have. The emulator runs it (emulate:=true); no DLA does.',
        epilog='A real loadable is built on the Jetson, or for it, by trtexec: see "On a robot" '
        'in the README.',
    )
    made.add_argument('model', help='a model.yaml, its folder, or a shipped name')
    made.add_argument(
        '--emulated', action='store_true', required=True, help='the kind of loadable to make'
    )
    made.add_argument(
        '--inputIOFormats', type=_format, default=FP16_CHW16, metavar='TYPE:LAYOUT',
        help='of the input, as trtexec takes it: fp16:chw16 (default), int8:chw32, '
        'fp16:dla_linear, int8:dla_linear, fp16:dla_hwc4, int8:dla_hwc4',
    )
    made.add_argument(
        '--outputIOFormats', type=_format, default=FP16_CHW16, metavar='TYPE:LAYOUT',
        help='of the outputs; int8 needs `scales` in model.yaml',
    )
    made.add_argument(
        '--out', type=Path, metavar='FILE', help='default: NAME.emulated.bin'
    )
    made.add_argument('--force', action='store_true', help='replace a file that is there')
    return made


def main(arguments: list[str] | None = None) -> int:
    """Make the loadable; return 0, or 1 with a sentence about what is wrong."""
    options = parser().parse_args(arguments)
    try:
        model = Model.load(options.model)
        out = options.out or Path(f'{model.name}.emulated.bin')
        if out.exists() and not options.force:
            raise ModelError(f'{out} is there already; --force replaces it')
        loadable = build_loadable(model, options.inputIOFormats, options.outputIOFormats)
        write_atomically(out, loadable)
    except (ModelError, BackendError, OSError) as error:
        print(f'build: {error}', file=sys.stderr)
        return 1
    print(f'{out}: an emulated loadable of {len(loadable)} bytes; name it in model.yaml:')
    print(f'loadable: {out.absolute()}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
