"""Training of Faster R-CNN: learned detections, resuming, losses, and initial weights."""

import pytest
import torch
from tests.training.tiny import CLASSES, assert_log_adds_up, log_rows, recipe, run
from torchvision.models import resnet50

from farther.detectors.networks.architectures import FasterRCNNBlueprint, build_network
from farther.errors import DataError, ParameterError
from farther_training.recipe import FasterRCNNRecipe
from farther_training.samples import Sample
from farther_training.trainers.faster_rcnn import evaluate, initial_weights, losses

RESNET = FasterRCNNBlueprint("resnet50_fpn", CLASSES, 64, 64)


@pytest.mark.slow
@pytest.mark.parametrize(("epochs", "ap50"), [(14, 0.6), (24, 0.8)])
def test_shapes_on_noise_are_learned(tmp_path, blueprint, samples, epochs, ap50):
    params = recipe(epochs=epochs, batch_size=8, average=0.8, evaluate_epochs=epochs)
    network = run(tmp_path, blueprint, samples, params)
    assert evaluate(network, samples, params)["ap50"] > ap50
    rows = log_rows(tmp_path)
    assert float(rows[-1]["loss"]) < 0.5 * float(rows[0]["loss"])


def test_the_log_has_a_row_an_epoch_and_the_map_where_it_was_measured(tmp_path, blueprint, samples):
    run(tmp_path, blueprint, samples, recipe(epochs=3, evaluate_epochs=2))
    assert_log_adds_up(
        tmp_path, ("loss_classifier", "loss_boxes", "loss_objectness", "loss_rpn_boxes")
    )


def untrained(blueprint):
    """A network in training mode, the same one at each call."""
    torch.manual_seed(0)
    return build_network(blueprint).train()


def test_losses_are_torchvisions(samples, blueprint):
    batch = [samples[row] for row in range(4)]
    torch.manual_seed(1)
    terms = losses(untrained(blueprint), batch, FasterRCNNRecipe())

    images = []
    targets = []
    for sample in batch:
        images.append(torch.from_numpy(sample.pixels).permute(2, 0, 1) / 255)
        labels = torch.from_numpy(sample.labels) + 1
        targets.append({"boxes": torch.from_numpy(sample.boxes), "labels": labels})
    expected = untrained(blueprint)(images, targets)
    for name in ("loss_classifier", "loss_boxes", "loss_objectness", "loss_rpn_boxes"):
        expected_term = expected[name.replace("boxes", "box_reg")]
        torch.testing.assert_close(terms[name], expected_term, rtol=1e-4, atol=1e-6)


def test_an_extra_loss_sees_features_labels_and_logits_of_the_same_proposals(samples, blueprint):
    network = untrained(blueprint)
    inputs = {}

    def mean_square(features, labels, logits):
        inputs.update(features=features, labels=labels, logits=logits)
        return {"loss_extra": 0.5 * features.square().mean()}

    batch = [samples[row] for row in range(4)]
    terms = losses(network, batch, FasterRCNNRecipe(), [mean_square])
    last = network.roi_heads.box_predictor.cls_score
    expected_logits = inputs["features"] @ last.weight.T + last.bias
    torch.testing.assert_close(inputs["logits"], expected_logits, rtol=1e-4, atol=1e-5)
    assert inputs["labels"].shape == inputs["logits"].shape[:1]
    assert set(inputs["labels"].tolist()) == {0, 1, 2}
    terms["loss_extra"].backward()
    assert network.backbone.stem[0].weight.grad.abs().sum() > 0


def test_an_image_without_objects_teaches_that_there_are_none(samples, blueprint):
    sample = samples[0]
    empty = Sample(sample.pixels, sample.boxes[:0], sample.labels[:0])
    terms = losses(untrained(blueprint), [empty, empty], FasterRCNNRecipe())
    assert terms["loss_boxes"] == terms["loss_rpn_boxes"] == 0
    assert terms["loss_objectness"] > 0


def test_a_classifiers_weights_become_the_backbone(tmp_path):
    torch.manual_seed(3)
    classifier = resnet50().state_dict()
    torch.save(classifier, tmp_path / "resnet50.pth")
    weights = initial_weights(tmp_path / "resnet50.pth", RESNET)
    torch.testing.assert_close(
        weights["backbone.body.layer4.2.conv3.weight"], classifier["layer4.2.conv3.weight"]
    )
    assert not any(name.startswith(("rpn.", "roi_heads.", "backbone.fpn.")) for name in weights)


def test_a_detector_for_other_classes_gives_all_but_its_last_layers(tmp_path):
    other = build_network(FasterRCNNBlueprint("small", ("a", "b", "c"), 64, 64)).state_dict()
    torch.save(other, tmp_path / "other.pt")
    weights = initial_weights(tmp_path / "other.pt", FasterRCNNBlueprint("small", CLASSES, 64, 64))
    assert other.keys() - weights.keys() == {
        "roi_heads.box_predictor.cls_score.weight",
        "roi_heads.box_predictor.cls_score.bias",
        "roi_heads.box_predictor.bbox_pred.weight",
        "roi_heads.box_predictor.bbox_pred.bias",
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
