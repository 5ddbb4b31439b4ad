from __future__ import annotations

import argparse

import cv2
import numpy as np
import pytest
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import get_typestore, Stores

from dla_ros.sources import open_source, read_images, SourceError
from dla_ros.sources.selection import Selection
from test.conftest import picture, PICTURES, ROOT

CLIP = ROOT / 'demo' / 'clip'


def test_a_folder_gives_its_pictures_by_name():
    images = list(read_images([ROOT / 'demo' / 'pictures']))
    assert [image.name for image in images] == PICTURES
    for image in images:
        pixels = image.data.reshape(image.height, image.width, 3)
        np.testing.assert_array_equal(pixels, picture(image.name))
        assert (image.encoding, image.step, image.stamp) == ('bgr8', 3 * image.width, None)


@pytest.mark.parametrize(
    ('topic', 'count', 'encoding'),
    [('/camera/image_raw', 2, 'bgr8'), ('/camera/image_raw/compressed', 30, 'bgr8')],
)
def test_a_bag_gives_raw_and_compressed_images_with_their_stamps(topic, count, encoding):
    images = list(read_images([CLIP], topic))
    assert len(images) == count
    stamps = [image.stamp for image in images]
    assert stamps == sorted(set(stamps)) and stamps[0] >= 1_700_000_000 * 10**9
    for image in images:
        assert (image.width, image.height, image.encoding) == (768, 576, encoding)
        assert image.frame_id and image.data.size == image.step * image.height


def test_raw_and_compressed_show_the_same():
    raw = next(iter(read_images([CLIP], '/camera/image_raw')))
    jpeg = next(
        image for image in read_images([CLIP], '/camera/image_raw/compressed')
        if image.stamp == raw.stamp
    )
    assert np.abs(raw.data.astype(int) - jpeg.data).mean() < 5


def test_sources_follow_each_other():
    names = [i.name for i in read_images([ROOT / 'demo/pictures/coral_cat.bmp', CLIP],
                                         '/camera/image_raw')]
    assert names == ['coral_cat.bmp', 'clip[0]', 'clip[1]']


def test_a_bag_with_several_image_topics_asks_for_one():
    with pytest.raises(SourceError, match=r'name one image topic.*/camera/image_raw \(sensor_m'):
        list(read_images([CLIP]))
    with pytest.raises(SourceError, match='name one image topic'):
        list(read_images([CLIP], '/none'))


def test_what_cannot_be_read_is_named(tmp_path):
    with pytest.raises(SourceError, match=f'{tmp_path}/none does not exist'):
        list(read_images([tmp_path / 'none']))
    with pytest.raises(SourceError, match='neither pictures nor'):
        list(read_images([tmp_path]))
    for content in (b'', b'no picture'):
        (tmp_path / 'bad.png').write_bytes(content)
        with pytest.raises(SourceError, match=r'bad\.png: \d+ bytes are no picture'):
            list(read_images([tmp_path]))
    (tmp_path / 'metadata.yaml').write_text('nonsense')
    with pytest.raises(SourceError, match=str(tmp_path)):
        list(read_images([tmp_path]))


def test_a_gray_picture_is_read_as_color(tmp_path):
    cv2.imwrite(str(tmp_path / 'gray.png'), np.full((4, 6), 77, np.uint8))
    (image,) = read_images([tmp_path])
    assert (image.width, image.height) == (6, 4) and (image.data == 77).all()


def test_several_topics_of_a_bag_come_in_the_order_of_time():
    topics = ['/camera/image_raw', '/camera/image_raw/compressed']
    source = open_source(CLIP, topics)
    entries = list(source)
    assert len(entries) == len(source) == 32
    assert [entry.index for entry in entries] == list(range(32))
    assert [sum(entry.topic == topic for entry in entries) for topic in topics] == [2, 30]
    times = [entry.seconds for entry in entries]
    assert times == sorted(times) and times[0] == 0


def test_a_video_gives_its_frames_with_times():
    source = open_source(ROOT / 'test/data/vtest.avi')
    assert len(source) == 795
    entries = list(zip(range(3), source, strict=False))
    assert [(e.index, e.name, e.topic) for _, e in entries] == [
        (i, f'vtest.avi[{i}]', '') for i in range(3)
    ]
    assert [e.seconds for _, e in entries] == pytest.approx([0, 0.1, 0.2])
    (image,) = (entry.load() for entry in Selection(start=50, limit=1).entries(source))
    assert (image.name, image.stamp) == ('vtest.avi[500]', 50 * 10**9)
    capture = cv2.VideoCapture(str(source.path))
    capture.set(cv2.CAP_PROP_POS_FRAMES, 500)
    _, expected = capture.read()
    np.testing.assert_array_equal(image.data.reshape(576, 768, 3), expected)


def test_a_lone_file_with_compressed_messages_and_old_type_names():
    images = list(read_images([ROOT / 'test/data/soccer_goal_12.mcap']))
    assert [(i.width, i.height, i.encoding) for i in images] == [(640, 480, 'rgb8')] * 2
    assert images[0].stamp == 8297777777 and images[0].data.size == 640 * 480 * 3
    assert 20 < images[0].data.mean() < 235


@pytest.mark.parametrize('storage', list(StoragePlugin))
@pytest.mark.parametrize('compression', [None, 'MESSAGE', 'FILE'])
def test_bags_of_every_kind(tmp_path, storage, compression):
    store, topic, bag = get_typestore(Stores.ROS2_JAZZY), '/cam', tmp_path / 'bag'
    with AnyReader([CLIP], default_typestore=store) as reader:
        (connection,) = (c for c in reader.connections if c.topic == '/camera/image_raw')
        messages = [(time, raw) for _, time, raw in reader.messages([connection])]
    writer = Writer(bag, version=9, storage_plugin=storage)
    if compression:
        writer.set_compression(CompressionMode[compression], CompressionFormat.ZSTD)
    with writer:
        added = writer.add_connection(topic, connection.msgtype, typestore=store)
        for time, raw in messages:
            writer.write(added, time, raw)
    expected = list(read_images([CLIP], '/camera/image_raw'))
    found = list(read_images([bag]))
    assert [i.stamp for i in found] == [i.stamp for i in expected]
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(left.data, right.data)
    lone = [path for path in bag.iterdir() if path.suffix in ('.mcap', '.db3')]
    if compression != 'FILE':
        assert len(list(read_images(lone))) == len(expected)


def test_a_bag_that_breaks_off_gives_what_is_whole(tmp_path):
    data = bytearray((CLIP / 'vtest_mcap.mcap').read_bytes())
    middle = len(data) // 2
    data[middle : middle + 2000] = b'\xff' * 2000
    path = tmp_path / 'broken.mcap'
    path.write_bytes(data)
    images = []
    with pytest.raises(SourceError, match=r'broken\.mcap: '):
        images.extend(
            image.name for image in read_images([path], '/camera/image_raw/compressed')
        )
    path.write_bytes(data[:middle])
    with pytest.raises(SourceError, match=r'broken\.mcap: '):
        open_source(path)


@pytest.mark.parametrize(
    ('selection', 'indices'),
    [
        (Selection(), range(30)),
        (Selection(every=7), range(0, 30, 7)),
        (Selection(limit=4), range(4)),
        (Selection(every=3, limit=2), range(0, 6, 3)),
        (Selection(start=0.95), range(10, 30)),
        (Selection(start=0.35, end=0.75, every=2), range(4, 8, 2)),
    ],
)
def test_a_selection(selection, indices):
    source = open_source(CLIP, ['/camera/image_raw/compressed'])
    assert [entry.index for entry in selection.entries(source)] == list(indices)
    if selection.start is None:
        assert selection.most(source) == len(indices)


def test_a_selection_as_words_is_the_same_selection():
    selection = Selection(start=0.5, end=2.0, every=3, limit=7)
    parser = argparse.ArgumentParser()
    Selection.add_arguments(parser)
    assert Selection.of(parser.parse_args(selection.words())) == selection
    assert Selection.of(parser.parse_args(Selection().words())) == Selection()
