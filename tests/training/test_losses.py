import torch

from farther.detectors.networks.architectures import build_network
from farther_training.recipe import FasterRCNNRecipe
from farther_training.trainers.faster_rcnn import losses


def fresh(blueprint):
    torch.manual_seed(0)
    return build_network(blueprint).train()


def test_losses_are_torchvisions(samples, blueprint):
    batch = [samples[row] for row in range(4)]
    torch.manual_seed(1)
    mine = losses(fresh(blueprint), batch, FasterRCNNRecipe())
    images = [torch.from_numpy(s.pixels).permute(2, 0, 1) / 255 for s in batch]
    targets = [{"boxes": torch.from_numpy(s.boxes), "labels": torch.from_numpy(s.labels) + 1} for s in batch]
    network = fresh(blueprint)
    expected = network(images, targets)
    for name, theirs in {
        "loss_classifier": "loss_classifier",
        "loss_boxes": "loss_box_reg",
        "loss_objectness": "loss_objectness",
        "loss_rpn_boxes": "loss_rpn_box_reg",
    }.items():
        torch.testing.assert_close(mine[name], expected[theirs], rtol=1e-4, atol=1e-6)


def test_an_extra_loss_sees_features_labels_and_logits_of_the_same_proposals(samples, blueprint):
    network = fresh(blueprint)
    seen = {}

    def loudness(features, labels, logits):
        seen.update(features=features, labels=labels, logits=logits)
        return {"loss_extra": 0.5 * features.square().mean()}

    found = losses(network, [samples[row] for row in range(4)], FasterRCNNRecipe(), [loudness])
    last = network.roi_heads.box_predictor.cls_score
    torch.testing.assert_close(seen["features"] @ last.weight.T + last.bias, seen["logits"], rtol=1e-4, atol=1e-5)
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
