from __future__ import annotations

import numpy as np
import pytest

import dla_ros
from dla_ros import BackendError, Detector, ImageError, ImageView, Model, ModelError, Rect
from dla_ros.backends.base import BackendOptions
from dla_ros.decoders.base import Thresholds
from test.conftest import assert_same, MODELS, picture, PICTURES


@pytest.fixture(scope='module', params=MODELS)
def detector(request):
    with Detector.open(request.param, options=BackendOptions(depth=2, threads=1)) as opened:
        yield opened


def rows(detector, detections):
    return [(detector.model.labels[c], score, list(box)) for box, score, c in detections.rows()]


@pytest.mark.parametrize('name', PICTURES)
def test_golden_detections(detector, golden, name):
    found = detector(picture(name))
    assert_same(rows(detector, found), golden[detector.model.name][name])


@pytest.mark.parametrize('encoding', ['rgb8', 'bgra8', 'rgba8', 'bgr16'])
def test_the_encoding_does_not_matter(detector, encoding):
    image = picture('skimage_coffee.png')
    expected = rows(detector, detector(image))
    alpha = np.full((*image.shape[:2], 1), 13, np.uint8)
    rendered = {
        'rgb8': lambda: image[..., ::-1],
        'bgra8': lambda: np.concatenate([image, alpha], 2),
        'rgba8': lambda: np.concatenate([image[..., ::-1], alpha], 2),
        'bgr16': lambda: image.astype(np.uint16) * 257,
    }[encoding]()
    found = rows(detector, detector(rendered, encoding))
    assert_same(found, expected, overlap=0.999, tolerance=1e-4)


def test_slices_are_padded_images(detector):
    image = picture('coral_cat.bmp')
    wide = np.full((image.shape[0], image.shape[1] + 37, 3), 255, np.uint8)
    wide[:, : image.shape[1]] = image
    found = rows(detector, detector(wide[:, : image.shape[1]]))
    assert_same(found, rows(detector, detector(image)), overlap=0.999, tolerance=1e-6)


def test_a_region_of_interest_is_like_a_cut_image(detector):
    image = picture('coral_grace_hopper.bmp')
    roi = Rect(100, 300, 250, 280)
    cut = image[roi.y : roi.y + roi.height, roi.x : roi.x + roi.width]
    expected = rows(detector, detector(np.ascontiguousarray(cut)))
    edges = [roi.x, roi.y, roi.x + roi.width, roi.y + roi.height]
    shifted = [
        (label, score, list(np.add(box, edges[:2] * 2)))
        for label, score, box in expected
    ]
    # Boxes may reach beyond the region, but not beyond the cut image.
    found = [
        (label, score, list(np.clip(box, edges[:2] * 2, edges[2:] * 2)))
        for label, score, box in rows(detector, detector(image, roi=roi))
    ]
    assert found
    assert_same(found, shifted, overlap=0.99, tolerance=1e-4)


def test_a_region_outside_the_image_is_an_image_error(detector):
    with pytest.raises(ImageError, match='512x600') as caught:
        detector(picture('coral_grace_hopper.bmp'), roi=Rect(500, 0, 100, 0))
    assert caught.value.kind == 'roi'


@pytest.mark.parametrize('shape', [(1, 1), (1, 500), (500, 1), (3, 7), (2000, 3)])
def test_extreme_sizes(detector, shape):
    found = detector(np.full((*shape, 3), 90, np.uint8))
    assert (found.xyxy >= 0).all() and (found.xyxy <= [shape[1], shape[0]] * 2).all()


def test_thresholds(detector):
    image = picture('coral_grace_hopper.bmp')
    labels = detector.model.labels
    assert len(detector(image, thresholds=Thresholds(confidence=0.99999))) == 0
    assert len(detector(image, thresholds=Thresholds(confidence=0.01))) > 2
    only = detector(image, thresholds=Thresholds(class_ids=frozenset({labels.index('tie')})))
    assert [row[0] for row in rows(detector, only)] == ['tie']
    assert len(detector(image, thresholds=Thresholds(max_detections=1))) == 1


@pytest.mark.parametrize('confidence', [0.0, 1.0])
def test_the_ends_of_the_confidence_range(detector, confidence):
    found = detector(picture('coral_cat.bmp'), thresholds=Thresholds(confidence=confidence))
    assert len(found) == (100 if confidence == 0.0 else 0)


def test_labels_one_line_short_are_a_configure_error_with_both_numbers():
    model = Model.load('yolox_nano')
    with pytest.raises(ModelError, match='80 classes.*79 labels'):
        Detector.open(model.model_copy(update={'labels': model.labels[:-1]}))


def test_an_unknown_backend_names_the_known_ones():
    with pytest.raises(BackendError, match="Invalid backend 'tensorrt'.*onnxruntime"):
        Detector.open('yolox_nano', backend='tensorrt')


def test_close_twice_and_views():
    image = picture('coral_cat.bmp')
    opened = dla_ros.Detector.open('yolo_fastest')
    view = ImageView.from_array(image)
    assert len(opened(view)) == 1
    opened.close()
    opened.close()


def test_the_public_names():
    assert all(getattr(dla_ros, name) is not None for name in dir(dla_ros))
    with pytest.raises(AttributeError, match='Detectron'):
        dla_ros.Detectron  # noqa: B018
