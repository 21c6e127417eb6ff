"""Training of Faster R-CNN: learned detections, resuming, losses, and initial weights."""

import numpy as np
import pytest
import torch
from tests.training.tiny import (
    CLASSES,
    KilledError,
    assert_log_adds_up,
    assert_same,
    killed_at,
    log_rows,
    recipe,
    run,
)
from torchvision.models import resnet50

from farther.detectors.networks.architectures import FasterRCNNBlueprint, build_network
from farther.errors import DataError, ParameterError
from farther_training.recipe import FasterRCNNRecipe
from farther_training.run import TrainingError, batches_of_epoch, make_optimizer
from farther_training.trainers.faster_rcnn import evaluate, initial_weights, losses

RESNET = FasterRCNNBlueprint("resnet50_fpn", CLASSES, 64, 64)


# -------------------------------------------------------------------------------------------
# learning


def test_shapes_on_noise_are_learned(tmp_path, blueprint, samples):
    how = recipe(epochs=24, batch_size=8, average=0.8, evaluate_epochs=24)
    network = run(tmp_path, blueprint, samples, how)
    assert evaluate(network, samples, how)["ap50"] > 0.8
    rows = log_rows(tmp_path)
    assert float(rows[-1]["loss"]) < 0.5 * float(rows[0]["loss"])


def test_the_log_has_a_row_an_epoch_and_the_map_where_it_was_measured(tmp_path, blueprint, samples):
    run(tmp_path, blueprint, samples, recipe(epochs=3, evaluate_epochs=2))
    assert_log_adds_up(
        tmp_path, ("loss_classifier", "loss_boxes", "loss_objectness", "loss_rpn_boxes")
    )


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path, blueprint, samples):
    def broken(features, labels, logits):
        return {"loss_broken": features.sum() * float("nan")}

    with pytest.raises(
        TrainingError, match=r"step 0: the loss is not finite: .*'loss_broken': nan"
    ):
        run(tmp_path, blueprint, samples, recipe(), extra_losses=[broken])


# -------------------------------------------------------------------------------------------
# resuming


def test_a_state_of_another_recipe_is_not_continued(tmp_path, blueprint, samples):
    with pytest.raises(KilledError):
        run(tmp_path, blueprint, samples, recipe(), extra_losses=[killed_at(3)])
    other = recipe(learning_rate=0.001)
    restarted = run(tmp_path, blueprint, samples, other)
    fresh = run(tmp_path / "fresh", blueprint, samples, other)
    assert_same(fresh, restarted)


def test_workers_change_nothing(tmp_path, blueprint, samples):
    alone = run(tmp_path / "alone", blueprint, samples, recipe(epochs=1))
    helped = run(tmp_path / "helped", blueprint, samples, recipe(epochs=1, workers=1))
    assert_same(alone, helped)


# ------------------------------------------------------------------------------------------- order
# and optimizer


def test_an_epoch_shows_each_image_once_in_batches_of_similar_shape():
    rng = np.random.default_rng(0)
    sizes = np.where(rng.random((400, 1)) < 0.5, [[224, 170]], [[170, 224]])
    batches = batches_of_epoch(sizes, 16, seed=1, epoch=0)
    rows = np.concatenate(batches)
    assert len(batches) == 25
    assert len(set(rows)) == 400
    mixed = sum(len(np.unique(sizes[batch, 0])) == 2 for batch in batches)
    assert mixed <= 4  # one where the shapes meet in each pool of eight batches, instead of all 25


def test_the_order_follows_seed_and_epoch_alone():
    sizes = np.full((40, 2), 64)
    one = batches_of_epoch(sizes, 8, seed=1, epoch=3)
    assert one == batches_of_epoch(sizes, 8, seed=1, epoch=3)
    assert one != batches_of_epoch(sizes, 8, seed=1, epoch=4)
    assert one != batches_of_epoch(sizes, 8, seed=2, epoch=3)


def test_fewer_images_than_a_batch_make_one_batch():
    assert sorted(batches_of_epoch(np.full((3, 2), 64), 8, seed=0, epoch=0)[0]) == [0, 1, 2]


def test_biases_and_normalisations_do_not_decay():
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    groups = [(1.0, list(network.parameters()))]
    decayed, free = make_optimizer(recipe(weight_decay=0.1), groups).param_groups
    assert [(len(g["params"]), g["weight_decay"]) for g in (decayed, free)] == [(1, 0.1), (3, 0.0)]
    assert isinstance(make_optimizer(recipe(optimizer="sgd"), groups), torch.optim.SGD)


# ------------------------------------------------------------------------------------------- losses


def fresh(blueprint):
    torch.manual_seed(0)
    return build_network(blueprint).train()


def test_losses_are_torchvisions(samples, blueprint):
    batch = [samples[row] for row in range(4)]
    torch.manual_seed(1)
    mine = losses(fresh(blueprint), batch, FasterRCNNRecipe())
    images = [torch.from_numpy(s.pixels).permute(2, 0, 1) / 255 for s in batch]
    targets = [
        {"boxes": torch.from_numpy(s.boxes), "labels": torch.from_numpy(s.labels) + 1}
        for s in batch
    ]
    network = fresh(blueprint)
    expected = network(images, targets)
    for name in ("loss_classifier", "loss_boxes", "loss_objectness", "loss_rpn_boxes"):
        theirs = expected[name.replace("boxes", "box_reg")]
        torch.testing.assert_close(mine[name], theirs, rtol=1e-4, atol=1e-6)


def test_an_extra_loss_sees_features_labels_and_logits_of_the_same_proposals(samples, blueprint):
    network = fresh(blueprint)
    seen = {}

    def loudness(features, labels, logits):
        seen.update(features=features, labels=labels, logits=logits)
        return {"loss_extra": 0.5 * features.square().mean()}

    found = losses(network, [samples[row] for row in range(4)], FasterRCNNRecipe(), [loudness])
    last = network.roi_heads.box_predictor.cls_score
    torch.testing.assert_close(
        seen["features"] @ last.weight.T + last.bias, seen["logits"], rtol=1e-4, atol=1e-5
    )
    assert seen["labels"].shape == seen["logits"].shape[:1]
    assert set(seen["labels"].tolist()) == {0, 1, 2}
    found["loss_extra"].backward()
    assert network.backbone.stem[0].weight.grad.abs().sum() > 0


def test_an_image_without_objects_teaches_that_there_are_none(samples, blueprint):
    empty = samples[0]
    empty = type(empty)(empty.pixels, empty.boxes[:0], empty.labels[:0])
    found = losses(fresh(blueprint), [empty, empty], FasterRCNNRecipe())
    assert found["loss_boxes"] == found["loss_rpn_boxes"] == 0
    assert found["loss_objectness"] > 0


# -------------------------------------------------------------------------------------------
# initial weights


def test_a_classifiers_weights_become_the_backbone(tmp_path):
    torch.manual_seed(3)
    classifier = resnet50().state_dict()
    torch.save(classifier, tmp_path / "resnet50.pth")
    found = initial_weights(tmp_path / "resnet50.pth", RESNET)
    torch.testing.assert_close(
        found["backbone.body.layer4.2.conv3.weight"], classifier["layer4.2.conv3.weight"]
    )
    assert not any(name.startswith(("rpn.", "roi_heads.", "backbone.fpn.")) for name in found)


def test_a_detector_for_other_classes_gives_all_but_its_last_layers(tmp_path):
    other = build_network(FasterRCNNBlueprint("small", ("a", "b", "c"), 64, 64)).state_dict()
    torch.save(other, tmp_path / "other.pt")
    found = initial_weights(tmp_path / "other.pt", FasterRCNNBlueprint("small", CLASSES, 64, 64))
    assert set(other) - set(found) == {
        f"roi_heads.box_predictor.{layer}.{part}"
        for layer in ("cls_score", "bbox_pred")
        for part in ("weight", "bias")
    }


def test_weights_of_another_network_are_refused(tmp_path):
    torch.save({"layer.weight": torch.zeros(3)}, tmp_path / "other.pt")
    with pytest.raises(DataError, match="does not contain the backbone of 'resnet50_fpn'"):
        initial_weights(tmp_path / "other.pt", RESNET)


def test_a_network_with_frozen_layers_must_start_from_weights():
    with pytest.raises(
        ParameterError, match="parameter 'initial_weights': its first layers are frozen"
    ):
        initial_weights(None, RESNET)
