"""The picture of it all: what was found, drawn into the image, while someone looks at it."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
from rclpy.lifecycle import LifecycleNode
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import Header

from dla_ros.color import convert_reference
from dla_ros.image import ImageView
from dla_ros.messages import image_message, jpeg_message
from dla_ros.overlay import draw_prediction
from dla_ros.predictions import Prediction

TOPIC = 'debug_image'


class _Found(NamedTuple):
    view: ImageView
    prediction: Prediction
    header: Header
    labels: tuple[str, ...]


class DebugImage:
    """Publishes overlays on `debug_image` and `debug_image/compressed`.

    They are drawn on a thread of their own, only while someone subscribes; when they come faster
    than that, only the newest is drawn.
    """

    def __init__(self, node: LifecycleNode) -> None:
        """Create the publishers and start the thread."""
        self._node = node
        name = node.resolve_topic_name(TOPIC)
        self._raw = node.create_publisher(Image, name, 1)
        self._compressed = node.create_publisher(CompressedImage, f'{name}/compressed', 1)
        self._changed = threading.Condition()
        self._newest: _Found | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name='dla_ros-debug', daemon=True)
        self._thread.start()

    @property
    def wanted(self) -> bool:
        """Whether someone subscribes."""
        return any(p.get_subscription_count() for p in (self._raw, self._compressed))

    def offer(
        self, view: ImageView, prediction: Prediction, header: Header, labels: tuple[str, ...]
    ) -> None:
        """Take a result to be drawn; return at once."""
        if self.wanted:
            with self._changed:
                self._newest = _Found(view, prediction, header, labels)
                self._changed.notify()

    def close(self) -> None:
        """End the thread and destroy the publishers; safe to call twice."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
        for publisher in (self._raw, self._compressed):
            self._node.destroy_publisher(publisher)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._newest or self._closing)
                found, self._newest = self._newest, None
                if self._closing or found is None:
                    return
            try:
                self._publish(found)
            except Exception as error:
                # A picture less; nothing else may end with it.
                self._node.get_logger().error(
                    f'{TOPIC}: {type(error).__name__}: {error}', throttle_duration_sec=5.0
                )

    def _publish(self, found: _Found) -> None:
        pixels: Any = np.ascontiguousarray(convert_reference(found.view, 'bgr'))
        drawn = draw_prediction(pixels, found.prediction, found.labels)
        if self._raw.get_subscription_count():
            self._raw.publish(image_message(drawn, found.header))
        if self._compressed.get_subscription_count():
            self._compressed.publish(jpeg_message(drawn, found.header))
