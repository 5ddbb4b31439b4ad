"""The node as a real process over real DDS."""

from __future__ import annotations

from dataclasses import replace

import cv2
from diagnostic_msgs.msg import DiagnosticArray
import numpy as np
import pytest
from rclpy.qos import qos_profile_sensor_data, QoSProfile
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import String
from vision_msgs.msg import Detection2DArray

from dla_ros.messages import detection_rows as rows
from dla_ros.parameters import PARAMETERS
from test.conftest import iou, picture, ROOT
from test.ros import Client, description, message, Process, running, start_node, until


@pytest.fixture
def node(tmp_path):
    """An active YOLO-Fastest node of its own for one test."""
    with running(tmp_path / 'node.log', description(model='yolo_fastest')) as (process, client):
        client.wait_for_node()
        yield process, client


# Bad images


def bad_images():
    good = message(picture('coral_cat.bmp'))

    def changed(**fields):
        image = message(picture('coral_cat.bmp'))
        for name, value in fields.items():
            setattr(image, name, value)
        return image

    yield 'size', changed(width=0, height=0)
    yield 'size', changed(height=0)
    yield 'empty', changed(data=b'')
    yield 'step', changed(step=0)
    yield 'step', changed(width=good.width + 1)
    yield 'data', changed(height=good.height + 1)
    yield 'data', changed(data=bytes(good.data)[:1000])
    yield 'data', changed(width=2**31, height=2**31, step=2**32 - 1, encoding='mono8')
    yield 'encoding', changed(encoding='bgr')
    yield 'encoding', changed(encoding='')
    yield 'color', changed(encoding='8UC2')
    yield 'color', changed(encoding='8SC3')


def test_bad_images_are_skipped_counted_and_reported_once(node):
    process, client = node
    received: list[DiagnosticArray] = []
    client.node.create_subscription(DiagnosticArray, '/diagnostics', received.append, 10)
    expected: dict[str, int] = {}
    for _ in range(2):
        for kind, image in bad_images():
            client.images.publish(image)
            expected[kind] = expected.get(kind, 0) + 1
            assert client.detect(message(picture('coral_cat.bmp'))).detections

    def counts():
        if not received:
            return {}
        return {
            value.key.removeprefix('dropped '): int(value.value)
            for value in received[-1].status[0].values if value.key.startswith('dropped ')
        }

    until(lambda: counts() == expected, explain=counts)
    assert process.log.count('image skipped') == len(expected), process.log


def test_compressed_images_on_the_topic_of_image_transport(tmp_path):
    node = description(model='yolo_fastest', image_transport='compressed')
    node = replace(node, remappings=[('image', '/camera/image_raw')])
    with running(tmp_path / 'node.log', node) as (process, client):
        publisher = client.node.create_publisher(
            CompressedImage, '/camera/image_raw/compressed', QoSProfile(depth=10)
        )
        until(lambda: publisher.get_subscription_count() == 1, explain=lambda: process.log)
        until(lambda: client.node.count_publishers('detections_output') == 1)
        client.wait_until_known('dla_node')
        _, encoded = cv2.imencode('.jpg', picture('coral_cat.bmp'))
        good = CompressedImage(format='bgr8; jpeg compressed bgr8', data=encoded.tobytes())
        good.header.frame_id, good.header.stamp.sec = 'eye', 7
        bad = [CompressedImage(data=data) for data in (b'', b'no picture', good.data[:50])]
        for image in (*bad, good):
            publisher.publish(image)
        until(lambda: client.received, explain=lambda: process.log)
        (found,) = client.received
        assert rows(found)[0][0] == 'cat' and found.header == good.header
        assert 'are no picture that OpenCV can read' in process.log


def test_an_overridden_encoding(tmp_path):
    node = description(model='yolo_fastest', input_encoding='rgb8')
    with running(tmp_path / 'node.log', node) as (_, client):
        client.wait_for_node()
        image = picture('skimage_coffee.png')
        mislabelled = message(image[..., ::-1], '8UC3')
        assert {row[0] for row in rows(client.detect(mislabelled))} == {'cup', 'diningtable'}


def test_a_region_of_interest(tmp_path):
    node = description(
        roi_top_left_x=100, roi_top_left_y=300, crop_width=250, crop_height=280,
        class_filter=['tie'], max_detections=1,
    )
    with running(tmp_path / 'node.log', node) as (process, client):
        client.wait_for_node()
        ((label, _, box),) = rows(client.detect(message(picture('coral_grace_hopper.bmp'))))
        assert label == 'tie' and iou(box, [221, 408, 295, 531]) > 0.6
        client.images.publish(message(picture('skimage_chelsea.png')))
        process.wait_for_log('region of interest 250x280 at (100, 300) is not inside the image')
        assert client.detect(message(picture('coral_grace_hopper.bmp'))).detections


# Parameters


def test_parameters_that_may_change_at_run_time(node):
    _, client = node
    image = message(picture('coral_grace_hopper.bmp'))

    def labels():
        return sorted(row[0] for row in rows(client.detect(image)))

    assert labels() == ['person', 'tie']
    assert client.set(confidence_threshold=0.9)[0].successful and labels() == ['person']
    assert client.set(confidence_threshold=0)[0].successful
    assert client.set(max_detections=7)[0].successful and len(labels()) == 7
    assert client.set(confidence_threshold=0.35, max_detections=100)[0].successful
    assert client.set(class_filter=['tie'])[0].successful and labels() == ['tie']
    assert client.set(class_filter=[''])[0].successful and labels() == ['person', 'tie']
    assert client.set(class_filter=[])[0].successful and labels() == ['person', 'tie']
    assert client.set(nms_threshold=1)[0].successful and len(labels()) > 2


def test_what_belongs_to_the_robot_can_change_between_cleanup_and_configure(node):
    _, client = node
    assert client.transition('deactivate') and client.transition('cleanup')
    (result,) = client.set(model='yolox_nano')
    assert result.successful
    assert client.transition('configure') and client.transition('activate')
    client.wait_for_node()
    ((label, score, _),) = rows(client.detect(message(picture('coral_cat.bmp'))))
    assert label == 'cat' and score == pytest.approx(0.738, abs=0.02)


def test_a_params_file_with_integers_for_floats_and_an_empty_list(tmp_path):
    params = tmp_path / 'params.yaml'
    params.write_text(
        '/**:\n  ros__parameters:\n    model: yolo_fastest\n    autostart: true\n'
        "    confidence_threshold: 0\n    class_filter: []\n    roi_top_left_x: 0\n"
    )
    node = description()
    node.parameters.clear()
    node.parameters['input_qos'] = 'DEFAULT'
    with running(tmp_path / 'node.log', node, '--params-file', str(params)) as (_, client):
        client.wait_for_node()
        assert len(client.detect(message(picture('coral_cat.bmp'))).detections) == 100


@pytest.mark.parametrize('name', ['detector.yaml', 'replay.yaml'])
def test_shipped_params_files_start_the_node(tmp_path, name):
    node = description()
    node.parameters.clear()
    arguments = ('--params-file', str(ROOT / 'config' / name), '-p', 'autostart:=true')
    with running(tmp_path / 'node.log', node, *arguments) as (process, client):
        client.wait_for_node()
        small = message(np.ascontiguousarray(picture('coral_cat.bmp')[::2, ::2]))
        assert client.detect(small).detections
        assert 'WARN' not in process.log and 'ERROR' not in process.log, process.log


# Models that cannot be used


def faulty_model(folder, text):
    path = folder / 'model.yaml'
    path.write_text(text)
    return str(path)


def five_faults(folder):
    return faulty_model(
        folder,
        'name: x\nonnx: none.onnx\nlabels: none.names\n'
        'input: {color_order: gbr, resize: squash}\ndecoder: {type: yolo}\n',
    )


@pytest.mark.parametrize(
    ('parameters', 'words'),
    [
        ({'model': ''}, ['model', 'yolox_nano']),
        ({'model': 'home/me/model.yaml'}, [f'{ROOT}/home/me/model.yaml does not exist']),
        ({'model': five_faults}, ['5 fault(s)', 'none.onnx', 'none.names', "'gbr'", "'squash'",
                                  "'yolo'"]),
        ({'model': '123E5'}, ["no model '123E5'"]),
        ({'model': 7}, ['model must be of type string, got 7']),
        ({'confidence_threshold': 1.5, 'depth': 0, 'backend': 'cuda', 'nms_threshold': 'x'},
         ['confidence_threshold must be 0 to 1', 'depth must be 1 to 16', "got 'cuda'",
          'nms_threshold must be of type double']),
        ({'class_filter': ['persn']}, ["no label 'persn'"]),
        ({'input_qos': 'BEST'}, ["input_qos must be one of 'SENSOR_DATA'"]),
    ],
)
def test_configure_fails_at_once_with_all_faults_and_can_be_tried_again(
    tmp_path, parameters, words
):
    parameters = {k: v(tmp_path) if callable(v) else v for k, v in parameters.items()}
    with running(tmp_path / 'node.log', description(**parameters)) as (process, client):
        log = process.wait_for_log('not started')
        for word in words:
            assert word in log, (word, log)
        assert client.state() == 'unconfigured'
        defaults = {**{p.name: p.default for p in PARAMETERS}, 'input_qos': 'DEFAULT'}
        mended = {name: defaults[name] for name in parameters}
        results = client.set(**{**mended, 'model': 'yolo_fastest'})
        assert all(result.successful for result in results), results
        assert client.transition('configure') and client.transition('activate')
        client.wait_for_node()
        assert client.detect(message(picture('coral_cat.bmp'))).detections


def test_an_unknown_parameter_is_named_with_the_likely_one(tmp_path):
    with running(tmp_path / 'node.log', description(confidence_treshold=0.1)) as (process, _):
        process.wait_for_log('confidence_treshold has no effect; did you mean confidence_thresh')


# Lifecycle


def test_the_life_cycle_by_hand(tmp_path):
    with running(tmp_path / 'node.log', description(autostart=False)) as (process, client):
        process.wait_for_log('waiting for: ros2 lifecycle set /dla_node configure')
        assert client.state() == 'unconfigured'
        assert not client.transition('activate')
        for _ in range(3):
            assert client.transition('configure') and client.state() == 'inactive'
            assert client.images.get_subscription_count() == 0
            for _ in range(2):
                assert client.transition('activate') and client.state() == 'active'
                client.wait_for_node()
                assert client.detect(message(picture('coral_cat.bmp'))).detections
                assert client.transition('deactivate') and client.state() == 'inactive'
            assert client.transition('cleanup') and client.state() == 'unconfigured'
        assert client.transition('configure') and client.transition('activate')
        assert client.transition('shutdown') and client.state() == 'finalized'


@pytest.mark.parametrize('number', [99, 255, 2, 62])
def test_an_invalid_transition_does_not_end_the_node(node, number):
    process, client = node
    assert not client.transition(number=number)
    assert not client.transition('no such transition')
    assert client.state() == 'active'
    assert client.detect(message(picture('coral_cat.bmp'))).detections
    assert process.popen.poll() is None


def test_deactivate_under_fire(node):
    _, client = node
    image = message(picture('coral_cat.bmp'))
    for _ in range(3):
        for _ in range(5):
            client.images.publish(image)
        assert client.transition('deactivate') and client.transition('activate')
    client.wait_for_node()
    until(lambda: client.images.get_subscription_count() == 1)
    count = len(client.received)
    client.images.publish(image)
    until(lambda: len(client.received) > count)


# Neighbours


def test_best_effort_and_reliable_publishers_are_both_heard(tmp_path):
    node = description(model='yolo_fastest', input_qos='SENSOR_DATA')
    with running(tmp_path / 'node.log', node) as (process, client):
        client.wait_for_node()
        # Small enough for the default transports, which lose large best effort images.
        small = message(np.ascontiguousarray(picture('coral_cat.bmp')[::2, ::2]))
        reliable = client.images
        best_effort = client.node.create_publisher(Image, 'image', qos_profile_sensor_data)
        until(lambda: best_effort.get_subscription_count() == 1)
        for client.images in (best_effort, reliable):
            assert client.detect(small).detections
        assert 'RELIABILITY' not in process.log


def test_a_best_effort_publisher_and_a_reliable_node_are_named(tmp_path):
    with running(tmp_path / 'node.log', description()) as (process, client):
        client.wait_for_node()
        client.node.create_publisher(Image, 'image', qos_profile_sensor_data)
        log = process.wait_for_log('another RELIABILITY than this node (DEFAULT)')
        assert log.count('nothing passes between the two') == 1


def test_a_reliable_subscriber_of_best_effort_detections_is_named(tmp_path):
    node = description(output_qos='SENSOR_DATA')
    with running(tmp_path / 'node.log', node) as (process, client):
        client.node.create_subscription(
            Detection2DArray, 'detections_output', lambda m: None, QoSProfile(depth=1)
        )
        process.wait_for_log('detections_output asks for or offers another RELIABILITY')


def test_a_topic_of_another_type_is_named(node):
    process, client = node
    other = Client()
    try:
        other.node.destroy_publisher(other.images)
        other.node.create_publisher(String, 'image', 1)
        process.wait_for_log('client publishes std_msgs/msg/String on /image')
    finally:
        other.close()
    assert client.detect(message(picture('coral_cat.bmp'))).detections


def test_two_nodes_in_two_namespaces(tmp_path):
    def namespaced(name):
        node = description(model='yolo_fastest')
        return type(node)(node.executable, 'dla_node', name, '', node.parameters,
                          [('image', 'camera/image_raw')])

    with (
        running(tmp_path / 'left.log', namespaced('left')) as (_, left),
        running(tmp_path / 'right.log', namespaced('right')) as (_, right),
    ):
        for client in (left, right):
            client.images = client.node.create_publisher(Image, 'camera/image_raw', 10)
            client.wait_for_node()
        assert rows(left.detect(message(picture('coral_cat.bmp'))))[0][0] == 'cat'
        assert rows(right.detect(message(picture('coral_hot_dog.jpg'))))[0][0] == 'hot dog'
        assert len(left.received) == len(right.received) == 1
        assert left.state() == right.state() == 'active'


def test_a_second_node_of_the_same_name_is_named(tmp_path, node):
    process, client = node
    second: Process = start_node(tmp_path / 'second.log', description(model='yolo_fastest'))
    try:
        second.wait_for_log('another node is called /dla_node too')
        process.wait_for_log('another node is called /dla_node too')
        assert second.end() == 0
    finally:
        second.kill()
    assert client.detect(message(picture('coral_cat.bmp'))).detections


def test_simulated_time_without_a_clock(tmp_path):
    node = description(model='yolo_fastest', use_sim_time=True)
    with running(tmp_path / 'node.log', node) as (_, client):
        received: list[DiagnosticArray] = []
        client.node.create_subscription(DiagnosticArray, '/diagnostics', received.append, 10)
        client.wait_for_node()
        assert client.detect(message(picture('coral_cat.bmp'))).detections
        until(lambda: len(received) >= 2)


def test_diagnostics_say_what_happens(node):
    _, client = node
    received: list[DiagnosticArray] = []
    client.node.create_subscription(DiagnosticArray, '/diagnostics', received.append, 10)

    def said(text, level):
        return any(
            text in s.message and s.level == level and s.name == '/dla_node'
            for m in received for s in m.status
        )

    until(lambda: said('no images arrive', b'\x01'))
    client.detect(message(picture('coral_cat.bmp')))
    until(lambda: said('active', b'\x00'))
    values = {v.key: v.value for v in received[-1].status[0].values}
    assert values['received'] == values['processed'] == '1'
    assert {'preprocess ms p50/p99', 'inference ms p50/p99', 'total ms p50/p99'} <= set(values)
    assert client.transition('deactivate')
    until(lambda: said('inactive: no images are taken', b'\x01'))
