"""The passes `augment` and `ensemble`: moments over views of the image and over networks."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from tests.detectors.demo import DEMO, create, detected, passed, scene
from tests.support.cases import slow_but
from torchvision.ops import box_iou

from farther import detectors
from farther.errors import DataError, ParameterError


@pytest.fixture(scope="module")
def images():
    """160 × 120 and 130 × 120 pixels."""
    return [scene(), np.ascontiguousarray(scene()[:, 20:150])]


def sparse(adapter):
    """A detector with fewer detections per object."""
    return create(adapter, nms_iou=0.5)


def overlaps(boxes, other_boxes):
    return box_iou(torch.tensor(boxes), torch.tensor(other_boxes)).numpy()


def mirrored(boxes, width):
    return np.stack([width - boxes[:, 2], boxes[:, 1], width - boxes[:, 0], boxes[:, 3]], axis=1)


def replayed(detector, images):
    return detector.replay([detector.prepare(image) for image in images])


def test_a_view_that_changes_nothing_has_the_same_rows(images):
    detector = sparse("faster_rcnn")
    plain = detected(detector, images)
    view = replayed(detector, images).view(flip=False, scale=1.0)
    assert_allclose(view.logits, plain.logits, rtol=1e-3, atol=1e-3)
    assert_allclose(view.boxes, plain.box, atol=0.01)


@pytest.mark.parametrize(("flip", "scale"), [(True, 1.0), (False, 1.25), (True, 0.8)])
def test_a_view_pools_the_same_places_and_finds_the_same_boxes(flip, scale, images):
    """The proposals are boxes in the first image's map, mirrored and scaled with the image."""
    detector = sparse("faster_rcnn")
    plain = detected(detector, images)
    replay = replayed(detector, images)
    pooled = []

    def record(_module, inputs):
        pooled.append(inputs[1:])

    hook = detector.network.roi_heads.box_roi_pool.register_forward_pre_hook(record)
    original = replay.view(flip=False, scale=1.0)
    view = replay.view(flip=flip, scale=scale)
    hook.remove()

    (original_boxes, original_sizes), (view_boxes, view_sizes) = pooled
    for number in range(len(images)):
        width = original_sizes[number][1]
        view_width = view_sizes[number][1]
        boxes = original_boxes[number].numpy()
        if flip:
            boxes = mirrored(boxes, width)
        assert view_width == pytest.approx(width * scale, abs=1)
        assert_allclose(view_boxes[number], boxes * view_width / width, atol=1.0)

    is_certain = plain.score > 0.02
    assert is_certain.any()
    ious = overlaps(view.boxes[is_certain].numpy(), original.boxes[is_certain].numpy())
    assert (ious.diagonal() > 0.6).all()


def test_moments_of_faster_rcnn_are_those_of_plain_and_mirrored_rows(images):
    detector = sparse("faster_rcnn")
    regions = passed("augment", detector, images)
    plain = detected(detector, images)
    view = replayed(detector, images).view(flip=True, scale=1.0)
    assert_array_equal(regions.box, plain.box)
    assert_allclose(regions.logits, (plain.logits + view.logits.numpy()) / 2, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("adapter", slow_but(("yolo",), ["yolo", "detr"]))
def test_other_detectors_take_the_nearest_detection_of_the_mirrored_image(adapter, images):
    detector = sparse(adapter)
    regions = passed("augment", detector, images, iou=0.6)
    plain = detected(detector, images)
    view = detected(detector, [np.ascontiguousarray(image[:, ::-1]) for image in images])
    assert len(regions) > 2

    matched = 0
    for row in range(len(plain)):
        expected = plain.logits[row]
        candidates = view[view.image_id == plain.image_id[row]]
        if len(candidates):
            width = 160 if plain.image_id[row] == "a" else 130
            ious = overlaps(plain.box[[row]], mirrored(candidates.box, width))[0]
            if ious.max() >= 0.6:
                matched += 1
                expected = (expected + candidates.logits[ious.argmax()]) / 2
        assert_allclose(regions.logits[row], expected, rtol=1e-4, atol=1e-4)
    assert matched


def test_yolo_is_scaled_too_but_a_detection_transformer_is_refused(images):
    plain = passed("augment", sparse("yolo"), images, scales=[])
    scaled = passed("augment", sparse("yolo"), images, scales=[1.33])
    assert not np.allclose(plain.logits, scaled.logits)
    with pytest.raises(
        ParameterError, match=r"detector 'detr': the size of its input cannot be scaled by 0\.8"
    ):
        passed("augment", sparse("detr"), images, scales=[0.8])
    with pytest.raises(ParameterError, match="no view but the plain one"):
        passed("augment", sparse("detr"), images, flip=False)


def test_an_ensemble_with_itself_changes_nothing(images):
    detector = sparse("faster_rcnn")
    regions = passed("ensemble", detector, images, members=[detector.weights])
    assert_allclose(regions.logits, detected(detector, images).logits, rtol=1e-5)
    assert regions.mutual_information.max() < 1e-6


def test_a_member_counts_where_it_finds_the_object(images):
    detector = sparse("faster_rcnn")
    file = DEMO / "voc-vos.safetensors"
    regions = passed("ensemble", detector, images, members=[file], iou=0.6)
    plain = detected(detector, images)
    member = detectors.create(
        "faster_rcnn", weights=file, device="cpu", score_threshold=0.002, nms_iou=0.5
    )
    member_regions = detected(member, images)

    is_same_image = plain.image_id[:, None] == member_regions.image_id[None]
    ious = overlaps(plain.box, member_regions.box) * is_same_image
    is_matched = ious.max(1) >= 0.6
    assert is_matched.any()
    assert not is_matched.all()
    means = (plain.logits + member_regions.logits[ious.argmax(1)]) / 2
    expected = np.where(is_matched[:, None], means, plain.logits)
    assert_allclose(regions.logits, expected, rtol=1e-4, atol=1e-4)
    assert (regions.mutual_information[~is_matched] == 0).all()
    assert (regions.mutual_information[is_matched] > 0).any()


def test_a_member_with_other_classes_is_refused(images):
    with pytest.raises(DataError, match="its classes or its activation differ"):
        passed(
            "ensemble",
            sparse("faster_rcnn"),
            images,
            members=[DEMO / "bdd-faster_rcnn.safetensors"],
        )
