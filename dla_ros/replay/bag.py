"""A rosbag2 bag of what was found, for Foxglove and ros2 bag play, written without ROS."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dla_ros.replay.records import DetectionRecord, FrameRecord

_ARRAY = 'vision_msgs/msg/Detection2DArray'
_NEEDED = (
    'Point2D', 'Pose2D', 'BoundingBox2D', 'ObjectHypothesis', 'ObjectHypothesisWithPose',
    'Detection2D', 'Detection2DArray',
)
_PICTURES_APART = 10**9  # Nanoseconds between images that have no stamp.


class DetectionBag:
    """A bag of Detection2DArray with the stamps of the images; the folder must not exist."""

    def __init__(self, folder: Path) -> None:
        """Open it for writing."""
        from rosbags.rosbag2 import StoragePlugin, Writer

        self._store = _typestore()
        self._writer = Writer(folder, version=9, storage_plugin=StoragePlugin.MCAP)
        self._writer.open()
        self._topics: dict[str, Any] = {}

    def write(self, record: FrameRecord) -> None:
        """Add an image's detections to the topic of its own topic's name, /detections_output."""
        topic = f'{record.topic}/detections_output'
        if topic not in self._topics:
            self._topics[topic] = self._writer.add_connection(
                topic, _ARRAY, typestore=self._store
            )
        stamp = record.index * _PICTURES_APART if record.stamp is None else record.stamp
        message = self._message(record, stamp)
        data = self._store.serialize_cdr(message, _ARRAY)
        self._writer.write(self._topics[topic], stamp, data)

    def close(self) -> None:
        """Complete the bag."""
        self._writer.close()

    def _message(self, record: FrameRecord, stamp: int) -> Any:
        seconds, nanoseconds = divmod(stamp, 10**9)
        time = self._type('builtin_interfaces/msg/Time')(sec=seconds, nanosec=nanoseconds)
        header = self._type('std_msgs/msg/Header')(stamp=time, frame_id=record.frame_id)
        detections = [self._detection(found, header) for found in record.detections]
        return self._type(_ARRAY)(header=header, detections=detections)

    def _detection(self, found: DetectionRecord, header: Any) -> Any:
        left, top, right, bottom = found.xyxy
        vision = 'vision_msgs/msg/'
        center = self._type(vision + 'Pose2D')(
            position=self._type(vision + 'Point2D')(x=(left + right) / 2, y=(top + bottom) / 2),
            theta=0.0,
        )
        box = self._type(vision + 'BoundingBox2D')(
            center=center, size_x=right - left, size_y=bottom - top
        )
        hypothesis = self._type(vision + 'ObjectHypothesis')(
            class_id=found.class_id, score=found.score
        )
        result = self._type(vision + 'ObjectHypothesisWithPose')(
            hypothesis=hypothesis, pose=self._no_pose()
        )
        return self._type(vision + 'Detection2D')(
            header=header, results=[result], bbox=box, id=''
        )

    def _no_pose(self) -> Any:
        import numpy as np

        geometry = 'geometry_msgs/msg/'
        pose = self._type(geometry + 'Pose')(
            position=self._type(geometry + 'Point')(x=0.0, y=0.0, z=0.0),
            orientation=self._type(geometry + 'Quaternion')(x=0.0, y=0.0, z=0.0, w=1.0),
        )
        return self._type(geometry + 'PoseWithCovariance')(pose=pose, covariance=np.zeros(36))

    def _type(self, name: str) -> Any:
        return self._store.types[name]


def _typestore() -> Any:
    from rosbags.typesys import get_types_from_msg, get_typestore, Stores

    store = get_typestore(Stores.ROS2_JAZZY)
    spec = find_spec('vision_msgs')
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError('vision_msgs is not installed')
    # PREFIX/lib/python3.X/site-packages/vision_msgs/__init__.py
    folder = Path(spec.origin).parents[4] / 'share/vision_msgs/msg'
    for name in _NEEDED:
        text = (folder / f'{name}.msg').read_text('utf-8')
        store.register(get_types_from_msg(text, f'vision_msgs/msg/{name}'))
    return store
