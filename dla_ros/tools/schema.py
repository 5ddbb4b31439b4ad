"""python -m dla_ros schema: every key of model.yaml, with what it means."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import inspect
import json

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from dla_ros.decoders import DECODERS
from dla_ros.decoders.base import DecoderConfig
from dla_ros.model import Built, InputConfig, Model, Section


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(
        prog='python -m dla_ros schema',
        description='Describe every key of model.yaml: the file itself, its sections `input` and '
        '`built`, and the section `decoder` of every type.',
    )
    made.add_argument(
        'part', nargs='?', choices=('model', 'input', *DECODERS, 'built'), metavar='PART',
        help=f'only one part: model, input, built, or a decoder ({", ".join(DECODERS)})',
    )
    return made


def parts() -> dict[str, tuple[str, type[BaseModel]]]:
    """Return what is described, by name: how it begins in the file, and its class."""
    decoders = {name: ('decoder:', decoder.Config) for name, decoder in DECODERS.items()}
    return {
        'model': ('model.yaml:', Model), 'input': ('input:', InputConfig), **decoders,
        'built': ('built:', Built),
    }


def describe(title: str, section: type[BaseModel]) -> Iterator[str]:
    """Yield the lines about a section: its documentation, and its keys with their defaults."""
    yield title
    yield from (f'  # {line}'.rstrip() for line in _documentation(section))
    schema = section.model_json_schema()['properties']
    # The type comes first, as in every file.
    for name, field in sorted(section.model_fields.items(), key=lambda item: item[0] != 'type'):
        default = field.get_default(call_default_factory=True)
        if 'const' in schema[name]:
            shown = schema[name]['const']
        elif field.is_required():
            shown = '(required)'
        else:
            shown = json.dumps(to_jsonable_python(default))
        choices = schema[name].get('enum')
        yield f'  {name}: {shown}' + (f'  # {" | ".join(choices)}' if choices else '')
    yield ''


def _documentation(section: type[BaseModel]) -> Iterator[str]:
    for base in reversed(section.__mro__):
        if not issubclass(base, BaseModel) or base in (BaseModel, Section, DecoderConfig):
            continue
        for line in inspect.cleandoc(base.__dict__['__doc__']).splitlines():
            if line and line != 'Attributes' and set(line) != {'-'}:
                yield line


def main(arguments: list[str] | None = None) -> int:
    """Print the description; return 0."""
    options = parser().parse_args(arguments)
    for name, (title, section) in parts().items():
        if options.part in (None, name):
            print('\n'.join(describe(title, section)))
    return 0
