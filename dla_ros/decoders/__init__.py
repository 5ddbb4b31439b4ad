"""Decoders, one file for each family of heads; a new one is a file and a row here."""

from importlib import import_module
from types import MappingProxyType

from dla_ros.decoders.base import Decoder
from dla_ros.decoders.centernet import CenterfaceDecoder, CenternetDecoder
from dla_ros.decoders.classification import ClassificationDecoder
from dla_ros.decoders.decoded import DecodedDecoder
from dla_ros.decoders.fastestdet import FastestdetDecoder
from dla_ros.decoders.none import NoDecoder
from dla_ros.decoders.segmentation import SegmentationDecoder
from dla_ros.decoders.ssd import SsdDecoder
from dla_ros.decoders.yolov3 import Yolov3Decoder
from dla_ros.decoders.yolov5 import Yolov5Decoder
from dla_ros.decoders.yolov8 import Yolov8Decoder
from dla_ros.decoders.yolox import YoloxDecoder

DECODERS: MappingProxyType[str, type[Decoder]] = MappingProxyType({
    'yolox': YoloxDecoder,
    'yolov3': Yolov3Decoder,
    'yolov5': Yolov5Decoder,
    'yolov8': Yolov8Decoder,
    'decoded': DecodedDecoder,
    'ssd': SsdDecoder,
    'centernet': CenternetDecoder,
    'centerface': CenterfaceDecoder,
    'fastestdet': FastestdetDecoder,
    'classification': ClassificationDecoder,
    'segmentation': SegmentationDecoder,
    'none': NoDecoder,
})
"""Every decoder, by the `type` in model.yaml."""


def find_decoder(name: str) -> type[Decoder]:
    """Return a decoder by its `type` in model.yaml: a key of DECODERS, or package.module:Class.

    Raises
    ------
    ValueError
        If there is none, or the class is no decoder.

    """
    if name in DECODERS:
        return DECODERS[name]
    module, colon, attribute = name.partition(':')
    if not colon:
        shipped = ', '.join(map(repr, DECODERS))
        raise ValueError(
            f'no decoder {name!r}; there are {shipped}, or name your own as package.module:Class'
        )
    try:
        decoder: type[Decoder] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f'decoder {name!r} cannot be imported: {error}') from error
    missing = [part for part in ('Config', 'makes', 'decode') if not hasattr(decoder, part)]
    if missing:
        raise ValueError(f'{name!r} is no decoder: it has no {" and no ".join(missing)}')
    return decoder
