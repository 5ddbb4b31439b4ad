"""Decoders, one file for each family of heads; a new one is a file and a row here."""

from types import MappingProxyType

from dla_ros.decoders.base import Decoder
from dla_ros.decoders.yolov3 import Yolov3Decoder
from dla_ros.decoders.yolox import YoloxDecoder

DECODERS: MappingProxyType[str, type[Decoder]] = MappingProxyType({
    'yolox': YoloxDecoder,
    'yolov3': Yolov3Decoder,
})
"""Every decoder, by the `type` in model.yaml."""
