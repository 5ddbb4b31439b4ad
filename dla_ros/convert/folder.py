"""The folder that build makes: networks, loadable and model.yaml side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import hashlib
from importlib.metadata import version as version_of
import io
from pathlib import Path
import shlex
import shutil
from typing import Any, TYPE_CHECKING

from dla_ros.cache import write_atomically
from dla_ros.convert import precision, trtexec
from dla_ros.convert.graph import Graph, GraphError
from dla_ros.resources import package_version
from dla_ros.tensor import four_dimensions, TensorFormat, TensorSpec

if TYPE_CHECKING:
    import onnx

MODEL = 'model.yaml'
_SKELETON = """\
name: {name}
onnx:
# How pixels become the network's input, as in its training: (pixel * scale - mean) / stddev.
# `python -m dla_ros schema input` lists what there is.
input:
  color_order: {color_order}
  resize: letterbox
# Which decoder reads the outputs: `python -m dla_ros schema`. It may need `labels`.
decoder:
  type: none
"""
_FILES = 'onnx', 'onnx_sha256', 'loadable', 'loadable_sha256'


@dataclass(frozen=True)
class Target:
    """What is to be built.

    Attributes
    ----------
    folder:
        Where it goes.
    name:
        Of the model.
    template:
        The model.yaml that it comes from; None for one to fill in.
    precision:
        fp16 or int8.
    inputs, outputs:
        Formats of the loadable's tensors.
    version:
        Of the TensorRT that builds; None for an emulated loadable.

    """

    folder: Path
    name: str
    template: Path | None
    precision: str
    inputs: TensorFormat
    outputs: TensorFormat
    version: trtexec.Version | None

    @property
    def command(self) -> list[str]:
        """What makes the loadable."""
        if self.version is None:
            return [
                'python', '-m', 'dla_ros', 'build', '--emulated',
                f'--inputIOFormats={self.inputs}', f'--outputIOFormats={self.outputs}',
            ]
        return trtexec.command(self.version, self.precision, self.inputs, self.outputs)


def edges(target: Target, graph: Graph) -> dict[str, TensorFormat]:
    """Return the formats of a network's inputs and outputs.

    Raises
    ------
    GraphError
        If one does not exist in its format.

    """
    forms = {
        **dict.fromkeys(graph.inputs, target.inputs),
        **dict.fromkeys(graph.outputs, target.outputs),
    }
    for name, form in forms.items():
        try:
            TensorSpec.of(name, _shape(graph, name), form.dtype, form.layout)  # type: ignore[arg-type]
        except ValueError as error:
            raise GraphError(str(error)) from error
    return forms


def _shape(graph: Graph, name: str) -> tuple[int, ...]:
    return four_dimensions(tuple(int(side or 0) for side in graph.shape(name) or ()))


def write_networks(
    target: Target, network: onnx.ModelProto, typed: onnx.ModelProto, scales: Mapping[str, float]
) -> None:
    """Write what trtexec and onnxruntime are given.

    Parameters
    ----------
    target:
        See Target.
    network:
        In float32.
    typed:
        In float16, or in float32 with Q/DQ.
    scales:
        Of the activations, for int8.

    """
    given = typed
    if target.precision == 'int8':
        forms = edges(target, Graph(network))
        quantized = [name for name, form in forms.items() if form.dtype == 'int8']
        given = precision.int8_edges(precision.to_half(typed), quantized)
        if target.version is not None and not trtexec.is_strongly_typed(target.version):
            cache = precision.calibration_cache(scales, trtexec.number_of(target.version))
            write_atomically(target.folder / trtexec.CACHE, cache.encode())
    for name, made in ((trtexec.ONNX, network), (trtexec.typed_name(target.precision), given)):
        write_atomically(target.folder / name, made.SerializeToString())


def write_model(
    target: Target, network: onnx.ModelProto, scales: Mapping[str, float], *, loadable: bool
) -> Path:
    """Write the folder's model.yaml, with the comments of the one that it comes from.

    Parameters
    ----------
    target, network, scales:
        See write_networks.
    loadable:
        Whether the folder has one.

    """
    graph = Graph(network)
    forms = edges(target, graph)
    changes: dict[str, Any] = _named(target.folder, 'onnx', trtexec.ONNX)
    if loadable:
        changes |= _named(target.folder, 'loadable', trtexec.LOADABLE)
    if scales:
        changes['scales'] = {
            name: scales[name] for name, form in forms.items() if form.dtype == 'int8'
        }
    described = {
        name: f'{"x".join(map(str, _shape(graph, name)))} {form}' for name, form in forms.items()
    }
    changes['built'] = {
        'precision': target.precision,
        'command': shlex.join(target.command),
        'versions': _versions(target),
        'inputs': {name: described[name] for name in graph.inputs},
        'outputs': {name: described[name] for name in graph.outputs},
    }
    remark = '' if loadable else f'loadable: {trtexec.LOADABLE}  # once trtexec has built it'
    channels = _shape(graph, graph.inputs[0])[1]
    return _write_yaml(target, changes, channels, remark)


def _named(folder: Path, key: str, name: str) -> dict[str, str]:
    digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    return {key: name, f'{key}_sha256': digest}


def _versions(target: Target) -> dict[str, str]:
    found = {name: version_of(name) for name in ('onnx', 'onnxruntime', 'onnxslim')}
    if target.version is not None:
        found['tensorrt'] = trtexec.text_of(target.version)
    return {'dla_ros': package_version(), **found}


def _write_yaml(target: Target, changes: Mapping[str, Any], channels: int, remark: str) -> Path:
    """Write the template with new values; what says which files there were does not remain."""
    from ruamel.yaml import YAML

    yaml = YAML(typ='rt')
    yaml.width = 99
    yaml.preserve_quotes = True
    yaml.indent(mapping=2, sequence=4, offset=2)
    template = target.template
    content = yaml.load(
        _SKELETON.format(name=target.name, color_order='mono' if channels == 1 else 'rgb')
        if template is None else template.read_text('utf-8')
    )
    for key in set(_FILES) - changes.keys():
        content.pop(key, None)
    place = list(content).index('onnx') if 'onnx' in content else len(content)
    for key, value in changes.items():
        if key in content or key not in _FILES:
            content[key] = value
        else:
            content.insert(place, key, value)
        place += key in _FILES
    if template is not None and isinstance(content.get('labels'), str):
        shutil.copy(template.parent / content['labels'], target.folder)
        content['labels'] = Path(content['labels']).name
    content.yaml_set_comment_before_after_key('built', before=f'\n{remark}'.rstrip(' '))
    written = io.StringIO()
    yaml.dump(content, written)
    path = target.folder / MODEL
    write_atomically(path, written.getvalue().encode())
    return path
