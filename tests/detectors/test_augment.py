"""The passes `augment` and `ensemble`: moments over views of the image and over networks."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from tests.detectors.demo import DEMO, create, detected, passed, scene
from torchvision.ops import box_iou

from farther import detectors
from farther.errors import DataError, ParameterError


@pytest.fixture(scope="module")
def images():
    """160 × 120 and 130 × 120 pixels."""
    return [scene(), np.ascontiguousarray(scene()[:, 20:150])]


def sparse(adapter):
    """With fewer detections of one object."""
    return create(adapter, nms_iou=0.5)


def overlaps(a, b):
    return box_iou(torch.tensor(a), torch.tensor(b)).numpy()


def mirrored(boxes, width):
    return np.stack([width - boxes[:, 2], boxes[:, 1], width - boxes[:, 0], boxes[:, 3]], axis=1)


def test_a_view_that_changes_nothing_has_the_same_rows(images):
    detector = sparse("faster_rcnn")
    replay = detector.replay([detector.prepare(image) for image in images])
    plain, same = detected(detector, images), replay.view(flip=False, scale=1.0)
    assert_allclose(same.logits, plain.logits, rtol=1e-3, atol=1e-3)
    assert_allclose(same.boxes, plain.box, atol=0.01)


@pytest.mark.parametrize(("flip", "scale"), [(True, 1.0), (False, 1.25), (True, 0.8)])
def test_a_view_pools_the_same_places_and_finds_the_same_boxes(flip, scale, images):
    """The proposals are boxes in the first image's map, mirrored and scaled with the image."""
    detector = sparse("faster_rcnn")
    plain = detected(detector, images)
    replay = detector.replay([detector.prepare(image) for image in images])
    pooled = []
    pool = detector.network.roi_heads.box_roi_pool
    hook = pool.register_forward_pre_hook(lambda _module, given: pooled.append(given[1:]))
    same, view = (
        replay.view(flip=mirror, scale=factor) for mirror, factor in ((False, 1.0), (flip, scale))
    )
    hook.remove()
    (before, sizes), (after, scaled) = pooled
    for one, other, (_, width), (_, new_width) in zip(before, after, sizes, scaled, strict=True):
        expected = (mirrored(one.numpy(), width) if flip else one.numpy()) * new_width / width
        assert new_width == pytest.approx(width * scale, abs=1)
        assert_allclose(other, expected, atol=1.0)
    sure = plain.score > 0.02
    assert sure.any()
    assert (overlaps(view.boxes[sure].numpy(), same.boxes[sure].numpy()).diagonal() > 0.6).all()


def test_moments_of_faster_rcnn_are_those_of_plain_and_mirrored_rows(images):
    detector = sparse("faster_rcnn")
    regions = passed("augment", detector, images)
    plain = detected(detector, images)
    view = detector.replay([detector.prepare(image) for image in images]).view(flip=True, scale=1.0)
    assert_array_equal(regions.box, plain.box)
    assert_allclose(regions.logits, (plain.logits + view.logits.numpy()) / 2, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("of", ["yolo", "detr"])
def test_other_detectors_take_the_nearest_detection_of_the_mirrored_image(of, images):
    detector = sparse(of)
    regions, plain = passed("augment", detector, images, iou=0.6), detected(detector, images)
    other = detected(detector, [np.ascontiguousarray(image[:, ::-1]) for image in images])
    assert len(regions) > 2
    matched = 0
    for row in range(len(plain)):
        theirs = other[other.image_id == plain.image_id[row]]
        width = 160 if plain.image_id[row] == "a" else 130
        found = (
            overlaps(plain.box[[row]], mirrored(theirs.box, width))[0]
            if len(theirs)
            else np.zeros(1)
        )
        near = found.max() >= 0.6
        matched += near
        expected = (
            (plain.logits[row] + theirs.logits[found.argmax()]) / 2 if near else plain.logits[row]
        )
        assert_allclose(regions.logits[row], expected, rtol=1e-4, atol=1e-4)
    assert matched


def test_yolo_is_scaled_too_but_a_detection_transformer_is_refused(images):
    plain, scaled = (
        passed("augment", sparse("yolo"), images, scales=s).logits for s in ([], [1.33])
    )
    assert not np.allclose(plain, scaled)
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
    detector, file = sparse("faster_rcnn"), DEMO / "voc-vos.safetensors"
    regions, plain = (
        passed("ensemble", detector, images, members=[file], iou=0.6),
        detected(detector, images),
    )
    member = detectors.create(
        "faster_rcnn", weights=file, device="cpu", score_threshold=0.002, nms_iou=0.5
    )
    other = detected(member, images)
    found = overlaps(plain.box, other.box) * (plain.image_id[:, None] == other.image_id[None])
    near = found.max(1) >= 0.6
    assert near.any() and not near.all()
    expected = np.where(
        near[:, None], (plain.logits + other.logits[found.argmax(1)]) / 2, plain.logits
    )
    assert_allclose(regions.logits, expected, rtol=1e-4, atol=1e-4)
    assert (regions.mutual_information[~near] == 0).all() and (
        regions.mutual_information[near] > 0
    ).any()


def test_a_member_with_other_classes_is_refused(images):
    with pytest.raises(DataError, match="its classes or its activation differ"):
        passed(
            "ensemble",
            sparse("faster_rcnn"),
            images,
            members=[DEMO / "bdd-faster_rcnn.safetensors"],
        )
