"""What the node publishes beside detections, and tensors in, over real DDS."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from rclpy.qos import DurabilityPolicy, QoSProfile
from sensor_msgs.msg import CompressedImage, Image
from vision_msgs.msg import Classification, LabelInfo

from dla_ros import Detector, ImageView, Thresholds
from dla_ros.messages import detection_rows, tensor_list_message
from test.conftest import assert_same, picture, ROOT
from test.networks import copied_model
from test.ros import description, message, running, until

isaac = pytest.importorskip('isaac_ros_tensor_list_interfaces.msg')
LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)


class Output:
    """What comes in on one topic."""

    def __init__(self, client, kind, topic, qos=10):
        self.messages = []
        self._subscription = client.node.create_subscription(
            kind, topic, self.messages.append, qos
        )
        until(lambda: client.node.count_publishers(topic) == 1, explain=client._log)

    def first(self, client):
        until(lambda: self.messages, explain=client._log)
        return self.messages[0]


def started(tmp_path, **parameters):
    return running(tmp_path / 'node.log', description(**parameters))


def ready(client):
    until(lambda: client.images.get_subscription_count() == 1, explain=client._log)


def pixels(image):
    return np.frombuffer(image.data, np.uint8).reshape(image.height, -1)


def test_a_classification_has_the_likeliest_labels(tmp_path):
    with started(tmp_path, model=str(ROOT / 'test/models/mobilenet_v2')) as (_, client):
        ready(client)
        found = Output(client, Classification, 'classification_output')
        image = message(picture('coral_parrot.jpg'), stamp=(5, 6))
        client.images.publish(image)
        got = found.first(client)
        assert got.header == image.header
        assert [r.class_id for r in got.results[:3]] == ['macaw', 'lorikeet', 'bee eater']
        assert got.results[0].score > 0.99


def test_a_segmentation_is_a_label_image_of_the_sources_size(tmp_path):
    with started(tmp_path, model=str(ROOT / 'test/models/deeplab_v3')) as (_, client):
        ready(client)
        found = Output(client, Image, 'segmentation_output')
        drawn = Output(client, Image, 'debug_image')
        image = message(picture('coral_cat.bmp'), stamp=(5, 6))
        client.images.publish(image)
        got = found.first(client)
        assert got.header == image.header and got.encoding == 'mono8'
        assert (got.width, got.height) == (image.width, image.height)
        assert got.step * got.height == len(got.data)
        labels, counts = np.unique(pixels(got), return_counts=True)
        assert labels.tolist() == [0, 8]
        assert counts[1] / counts.sum() == pytest.approx(0.4, abs=0.02)
        overlay = drawn.first(client)
        assert overlay.header == image.header
        changed = (pixels(overlay) != pixels(image)).reshape(image.height, -1, 3).any(2)
        # The cat is tinted; above and left of it is a legend.
        assert changed[pixels(got) == 8].mean() > 0.95
        assert changed[pixels(got) == 0].mean() < 0.1
        assert 'segmentation_confidence' not in str(client.node.get_topic_names_and_types())


def test_the_confidence_comes_if_the_model_wants_it(tmp_path):
    path = copied_model(
        ROOT / 'test/models/selfie_segmentation', tmp_path, decoder={
            'type': 'segmentation', 'activation': 'none', 'confidence': True, 'size': 'network',
        },
    )
    with started(tmp_path, model=str(path)) as (_, client):
        ready(client)
        mask = Output(client, Image, 'segmentation_output')
        confidence = Output(client, Image, 'segmentation_confidence')
        client.images.publish(message(picture('skimage_astronaut.png')))
        got = confidence.first(client)
        assert (got.encoding, got.width, got.height, got.step) == ('32FC1', 256, 256, 1024)
        values = np.frombuffer(got.data, np.float32)
        assert values.min() >= 0.5 and values.max() <= 1 and values.max() > 0.9
        assert (mask.first(client).width, mask.first(client).height) == (256, 256)


def test_the_debug_image_is_drawn_while_someone_looks(tmp_path):
    with started(tmp_path, model=str(ROOT / 'test/models/centerface')) as (_, client):
        client.wait_for_node()
        image = message(picture('skimage_astronaut.png'), stamp=(7, 8))
        client.detect(image)
        raw = Output(client, Image, 'debug_image')
        jpeg = Output(client, CompressedImage, 'debug_image/compressed')
        (detection,) = client.detect(image).detections
        got, compressed = raw.first(client), jpeg.first(client)
        assert got.header == compressed.header == image.header
        assert (got.encoding, got.width, got.height) == ('bgr8', image.width, image.height)
        decoded = cv2.imdecode(np.frombuffer(compressed.data, np.uint8), cv2.IMREAD_COLOR)
        drawn = np.frombuffer(got.data, np.uint8).reshape(image.height, image.width, 3)
        assert np.abs(decoded.astype(int) - drawn).mean() < 4
        changed = (drawn != picture('skimage_astronaut.png')).any(2)
        left = round(detection.bbox.center.position.x - detection.bbox.size_x / 2)
        center = round(detection.bbox.center.position.y)
        assert changed[center - 5 : center + 5, left - 2 : left + 3].any()
        # Landmarks inside the box.
        half = round(detection.bbox.size_x / 4)
        middle = round(detection.bbox.center.position.x)
        assert changed[center - half : center + half, middle - half : middle + half].any()


def test_label_info_is_there_for_those_who_come_late(tmp_path):
    with started(tmp_path, confidence_threshold=0.25) as (_, client):
        client.wait_for_node()
        info = Output(client, LabelInfo, 'label_info', LATCHED).first(client)
        assert info.threshold == 0.25
        assert [(c.class_id, c.class_name) for c in info.class_map[:2]] == [
            (0, 'person'), (1, 'bicycle')
        ]
        assert len(info.class_map) == 80


def reference(model, image):
    """Return the outputs and detections of the onnxruntime backend."""
    with Detector.open(model, tensors=True) as detector:
        detector.submit(0, ImageView.from_array(image), Thresholds())
        return detector.collect(0, 10.0), detector.backend.inputs[0]


@pytest.mark.parametrize('emulate', [False, True])
def test_tensors_and_detections_at_once(tmp_path, emulate):
    backend = {'backend': 'cudla', 'emulate': True} if emulate else {}
    with started(tmp_path, output='both', **backend) as (_, client):
        client.wait_for_node()
        tensors = Output(client, isaac.TensorList, 'tensor_sub')
        image = picture('coral_cat.bmp')
        found = client.detect(message(image, stamp=(1, 2)))
        got = tensors.first(client)
    expected, _ = reference('yolox_nano', image)
    assert got.header == found.header and len(found.detections) == 1
    assert [tensor.name for tensor in got.tensors] == ['head8', 'head16', 'head32']
    for tensor in got.tensors:
        values = expected.tensors[tensor.name]
        assert (tensor.shape.rank, tuple(tensor.shape.dims)) == (4, values.shape)
        assert tensor.data_type == 9 and tuple(tensor.strides) == values.strides
        read = np.frombuffer(tensor.data, np.float32).reshape(values.shape)
        np.testing.assert_array_equal(read, values)


def preprocessed(image):
    """Return yolox_nano's input for a picture that fits without resizing."""
    padded = np.full((416, 416, 3), 114, np.uint8)
    part = image[:416, :416]
    padded[: part.shape[0], : part.shape[1]] = part
    return padded.transpose(2, 0, 1)[None].astype(np.float32)


@pytest.mark.parametrize('emulate', [False, True])
def test_tensors_come_in_instead_of_images(tmp_path, emulate):
    backend = {'backend': 'cudla', 'emulate': True} if emulate else {}
    image = picture('skimage_coffee.png')
    with started(tmp_path, input='tensors', **backend) as (_, client):
        until(lambda: client.node.count_subscribers('tensor_pub') == 1, explain=client._log)
        publisher = client.node.create_publisher(isaac.TensorList, 'tensor_pub', 10)
        until(lambda: publisher.get_subscription_count() == 1, explain=client._log)
        until(lambda: client.node.count_publishers('detections_output') == 1)
        header = message(image, stamp=(3, 4)).header
        wrong = tensor_list_message({'images': np.zeros((1, 3, 4, 4), np.float32)}, header)
        publisher.publish(wrong)
        right = tensor_list_message({'images': preprocessed(image)}, header)
        count = len(client.received)
        publisher.publish(right)
        until(lambda: len(client.received) > count, explain=client._log)
        found = client.received[-1]
        until(lambda: 'image skipped' in client.process.log, explain=client._log)
        assert "float32 (type 9) of (1, 3, 416, 416)" in client.process.log
    with Detector.open('yolox_nano') as detector:
        inside = image[:416, :416]
        expected = detector(inside)
        labels = detector.model.labels
        assert found.header == header and len(found.detections) == len(expected) > 0
        assert_same(
            detection_rows(found),
            [(labels[c], score, list(box)) for box, score, c in expected.rows()],
            tolerance=0.03,
        )


def test_a_network_without_decoder_gives_its_tensors(tmp_path):
    path = copied_model('yolo_fastest', tmp_path, decoder={'type': 'none'}, labels=[])
    with started(tmp_path, model=str(path), output='tensors') as (_, client):
        ready(client)
        tensors = Output(client, isaac.TensorList, 'tensor_sub')
        client.images.publish(message(picture('coral_cat.bmp')))
        assert [t.name for t in tensors.first(client).tensors] == ['head32', 'head16']
        topics = [name for name, _ in client.node.get_topic_names_and_types()]
        assert not {'/detections_output', '/debug_image', '/label_info'} & {
            topic for topic in topics if client.node.count_publishers(topic)
        }


def test_predictions_of_a_network_without_decoder_are_refused(tmp_path):
    path = copied_model('yolo_fastest', tmp_path, decoder={'type': 'none'}, labels=[])
    with started(tmp_path, model=str(path)) as (process, client):
        until(lambda: 'not started' in process.log, explain=client._log)
        assert "has no decoder (type none)" in process.log
        assert "output:='tensors'" in process.log
