"""Rows that are computed again: the same without changes, with gradients, and with dropout."""

import numpy as np
import pytest
import torch
from tests.detectors.demo import WEIGHTS, create, scene
from tests.support.cases import slow_but

from farther.detectors.networks.replay import Dropout

IDS = ["a", "b"]


@pytest.fixture(scope="module", params=slow_but(("faster_rcnn", "yolo"), WEIGHTS))
def detector(request):
    return create(request.param, score_threshold=0.0005)


@pytest.fixture(scope="module")
def prepared(detector):
    """Two images of different shapes."""
    narrow = np.ascontiguousarray(scene(1)[:, 20:150])
    return [detector.prepare(scene()), detector.prepare(narrow)]


@pytest.fixture(scope="module")
def regions(detector, prepared):
    return detector.forward(prepared, IDS)


def test_nothing_changed_gives_the_same_bits(detector, prepared, regions):
    replay = detector.replay(prepared)
    for column, values in replay.regions(IDS).columns().items():
        np.testing.assert_array_equal(values, regions.array(column), err_msg=column)
    assert len(regions) >= 5 and len(set(regions.image_id)) == 2
    same_images = [image.clone() for image in replay.images]
    for outputs in (replay.recompute(), replay.recompute(same_images)):
        np.testing.assert_array_equal(outputs.logits, regions.logits)
        np.testing.assert_array_equal(outputs.boxes, regions.box)
        if regions.has("features"):
            np.testing.assert_array_equal(outputs.features, regions.features)
        for name, values in outputs.latents.items():
            np.testing.assert_array_equal(values, regions.array(name))
        assert "latent" in outputs.latents


def test_a_step_against_the_gradient_lowers_the_logits_of_the_labels(detector, prepared, regions):
    """The first-order change of a step is the squared norm of the gradient."""
    labels = torch.arange(len(regions)), torch.tensor(regions.label.tolist())
    with torch.inference_mode():  # as the engine calls it
        replay = detector.replay(prepared)
        with torch.inference_mode(False), torch.enable_grad():
            images = [image.clone().requires_grad_() for image in replay.images]
            total = replay.recompute(images).logits[labels].sum()
            gradients = torch.autograd.grad(total, images)
        assert all(gradient.abs().max() > 0 for gradient in gradients)
        norm = sum(gradient.square().sum() for gradient in gradients)
        step = 1e-3 / norm.sqrt()
        moved = []
        for image, gradient in zip(images, gradients, strict=True):
            moved.append(image.detach() - step * gradient)
        after = replay.recompute(moved)
    change = float(total.detach() - after.logits[labels].sum())
    if detector.name == "detr":  # RT-DETR takes queries out of the gradient, as in training
        assert change > 0
    else:
        assert change == pytest.approx(float(step * norm), rel=0.1)


def test_boxes_of_a_changed_image_have_gradients_too(detector, prepared):
    replay = detector.replay(prepared)
    images = [image.clone().requires_grad_() for image in replay.images]
    gradient, _ = torch.autograd.grad(replay.recompute(images).boxes.sum(), images)
    assert gradient.abs().max() > 0


def dropout(image_ids=IDS, **params):
    return Dropout(**{"rate": 0.3, "seed": 1, "number": 0, "image_ids": image_ids, **params})


def test_rate_0_changes_rounding_only(detector, prepared, regions):
    outputs = detector.replay(prepared).recompute(dropout=dropout(rate=0.0))
    np.testing.assert_allclose(outputs.logits, regions.logits, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(outputs.boxes, regions.box, rtol=1e-4, atol=1e-3)


def test_each_pass_and_seed_has_other_masks_and_the_same_ones_again(detector, prepared):
    replay = detector.replay(prepared)
    first = replay.recompute(dropout=dropout()).logits
    assert torch.equal(first, replay.recompute(dropout=dropout()).logits)
    assert not torch.allclose(first, replay.recompute(dropout=dropout(number=1)).logits)
    assert not torch.allclose(first, replay.recompute(dropout=dropout(seed=2)).logits)


def test_masks_of_an_image_do_not_depend_on_its_batch(detector, prepared, regions):
    """Two images of different shapes; the network itself rounds differently in another batch."""
    of_both = detector.replay(prepared).recompute(dropout=dropout()).logits
    of_second = detector.replay(prepared[1:]).recompute(dropout=dropout(IDS[1:])).logits
    np.testing.assert_allclose(of_both[regions.image_id == "b"], of_second, rtol=1e-3, atol=1e-3)
    assert np.abs(of_both.numpy() - regions.logits).max() > 0.1


def test_masks_drop_the_rate_and_keep_the_mean():
    (mask,) = dropout(["a"], rate=0.25).masks([(1000, 100)], "layer")
    assert mask.unique().tolist() == pytest.approx([0, 4 / 3])
    assert float((mask == 0).float().mean()) == pytest.approx(0.25, abs=0.005)
    assert float(mask.mean()) == pytest.approx(1, abs=0.01)
