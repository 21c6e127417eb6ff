"""Training of Mask R-CNN on boxes: masks, their loss, and the checkpoint that the adapter opens."""

import numpy as np
import pytest
import torch
from tests.training.tiny import CLASSES, log_rows, recipe, task
from torchvision.models.detection import maskrcnn_resnet50_fpn

from farther import methods
from farther.detectors.faster_rcnn import MaskRCNN
from farther.detectors.networks.architectures import FasterRCNNBlueprint, build_network
from farther.detectors.networks.torchvision_builders import MASK_BRANCH
from farther.errors import ParameterError
from farther.naming.registry import build
from farther_training.trainers.faster_rcnn import add_box_masks, initial_weights, losses
from farther_training.trainers.mask_rcnn import MaskRCNNJob, build_mask_rcnn


def job(folder, **changes):
    named = {
        "dataset": "shapes",
        "weights": folder / "net.safetensors",
        "architecture": "small",
        "device": "cpu",
    }
    small = {"min_size": 64, "max_size": 64, "masks": "boxes", "recipe": recipe()}
    return MaskRCNNJob(**{**named, **small, **changes})


def test_the_mask_of_a_box_is_the_pixels_whose_centre_it_contains():
    targets = [{"boxes": torch.tensor([[1.0, 0.0, 3.0, 2.0], [0.6, 1.4, 2.6, 3.0]])}]
    add_box_masks(targets, [(3, 4)])
    assert targets[0]["masks"].tolist() == [
        [[0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]],
        [[0, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0]],
    ]


def test_losses_are_those_of_torchvision(samples):
    torch.manual_seed(0)
    network = build_mask_rcnn(FasterRCNNBlueprint("small", CLASSES, 64, 64)).train()
    batch = [samples[2]]  # of 64 × 64 pixels, so that boxes are not scaled
    torch.manual_seed(1)
    found = losses(network, batch, recipe())
    images = [torch.from_numpy(sample.pixels).permute(2, 0, 1).float() / 255 for sample in batch]
    targets = [
        {"boxes": torch.from_numpy(s.boxes), "labels": torch.from_numpy(s.labels) + 1}
        for s in batch
    ]
    add_box_masks(targets, [(64, 64)])
    torch.manual_seed(1)
    expected = network(images, targets)
    assert found["loss_masks"].item() == pytest.approx(expected["loss_mask"].item(), rel=1e-4)
    assert found["loss_boxes"].item() == pytest.approx(expected["loss_box_reg"].item(), rel=1e-4)
    assert found["loss_classifier"].item() == pytest.approx(
        expected["loss_classifier"].item(), rel=1e-4
    )


@pytest.mark.slow
def test_the_checkpoint_opens_in_the_adapter_and_methods_score(tmp_path, samples):
    learner = job(tmp_path)
    trained = learner.learn(task(tmp_path, samples))
    assert trained.kind == "Mask R-CNN, architecture `small`"
    assert all(float(row["loss_masks"]) > 0 for row in log_rows(tmp_path))
    detector = MaskRCNN(weights=learner.weights, device="cpu", score_threshold=0.0)
    regions = detector.detect([samples.pixels(0)])
    assert regions.classes == ("background", *CLASSES)
    for name in ("msp", "knn"):
        assert np.isfinite(methods.create(name).fit(regions).score(regions)).all()


def test_weights_have_the_names_of_torchvision():
    blueprint = FasterRCNNBlueprint("resnet50_fpn", CLASSES, 64, 64)
    own = build_mask_rcnn(blueprint).state_dict()
    with torch.device("meta"):
        network = maskrcnn_resnet50_fpn(
            weights=None, weights_backbone=None, num_classes=3
        ).state_dict()
    shapes = {
        name: tensor.shape
        for name, tensor in network.items()
        if not name.endswith("num_batches_tracked")
    }
    assert {name: tensor.shape for name, tensor in own.items()} == shapes


def test_without_a_choice_of_masks_the_message_says_what_to_write():
    entry = {"dataset": "voc", "weights": "x.safetensors"}
    with pytest.raises(
        ParameterError, match=r"tables hold boxes only\. Write `masks: boxes` to take each box"
    ):
        build(MaskRCNNJob, "training job 'x'", entry)
    with pytest.raises(ParameterError, match=r"'masks'.*'boxes'"):
        build(MaskRCNNJob, "training job 'x'", {**entry, "masks": "polygons"})


def test_a_faster_rcnn_gives_all_but_the_mask_branch(tmp_path):
    blueprint = FasterRCNNBlueprint("small", CLASSES, 64, 64)
    boxes = build_network(blueprint).state_dict()
    torch.save(boxes, tmp_path / "boxes.pt")
    start = initial_weights(tmp_path / "boxes.pt", blueprint, build_mask_rcnn)
    assert start.keys() == boxes.keys()
    own = build_mask_rcnn(blueprint).state_dict().keys()
    assert all(name.startswith(MASK_BRANCH) for name in own - start.keys())
