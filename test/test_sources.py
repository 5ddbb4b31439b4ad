from __future__ import annotations

import cv2
import numpy as np
import pytest

from dla_ros.sources import read_images, SourceError
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
        with pytest.raises(SourceError, match=r'bad.png is no picture'):
            list(read_images([tmp_path]))
    (tmp_path / 'metadata.yaml').write_text('nonsense')
    with pytest.raises(SourceError, match=str(tmp_path)):
        list(read_images([tmp_path]))


def test_a_gray_picture_is_read_as_color(tmp_path):
    cv2.imwrite(str(tmp_path / 'gray.png'), np.full((4, 6), 77, np.uint8))
    (image,) = read_images([tmp_path])
    assert (image.width, image.height) == (6, 4) and (image.data == 77).all()
