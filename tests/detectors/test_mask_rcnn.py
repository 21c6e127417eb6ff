"""The Mask R-CNN adapter, beside torchvision's own model."""

import numpy as np
import pytest
import torch
from torchvision.models.detection import MaskRCNN, maskrcnn_resnet50_fpn
from torchvision.ops import MultiScaleRoIAlign

from farther import detectors
from farther.detectors.networks.architectures import Blueprint, build_network
from farther.errors import DataError

CLASSES = ("cat", "dog", "fox")
SIZES = ((90, 120), (128, 96), (64, 64))


@pytest.fixture(scope="module")
def model():
    """A Mask R-CNN of torchvision with the box branch of farther's small network, and random weights."""
    torch.manual_seed(3)
    small = build_network(Blueprint("small", CLASSES, 96, 128))
    heads, levels = small.roi_heads, ["0", "1", "2"]
    network = MaskRCNN(
        small.backbone,
        min_size=96,
        max_size=128,
        rpn_anchor_generator=small.rpn.anchor_generator,
        rpn_head=small.rpn.head,
        rpn_pre_nms_top_n_test=200,
        rpn_post_nms_top_n_test=100,
        box_roi_pool=heads.box_roi_pool,
        box_head=heads.box_head,
        box_predictor=heads.box_predictor,
        box_score_thresh=0.2,
        mask_roi_pool=MultiScaleRoIAlign(levels, output_size=14, sampling_ratio=2),
        mask_predictor=torch.nn.Conv2d(256, len(CLASSES) + 1, 1),
    )
    with torch.no_grad():
        network.roi_heads.box_predictor.cls_score.weight.mul_(150)
        network.roi_heads.box_predictor.bbox_pred.weight.mul_(20)
    return network.eval().to(memory_format=torch.channels_last)


@pytest.fixture(scope="module")
def weights(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "mask_rcnn.pth"
    torch.save(model.state_dict(), path)
    return path


def create(adapter, weights):
    sizes = {"min_size": 96, "max_size": 128}
    params = {"architecture": "small", "classes": CLASSES, "score_threshold": 0.2, "device": "cpu", **sizes}
    return detectors.create(adapter, weights=weights, **params)


def test_boxes_scores_and_labels_are_torchvisions(model, weights):
    rng = np.random.default_rng(2)
    images = [rng.integers(0, 255, (*size, 3), np.uint8) for size in SIZES]
    with torch.inference_mode():
        expected = model([torch.from_numpy(image).permute(2, 0, 1) / 255 for image in images])
    assert all("masks" in answer for answer in expected)
    regions = create("mask_rcnn", weights).detect(images, ["a", "b", "c"])
    assert len(regions) > 20
    for name, answer in zip("abc", expected, strict=True):
        mine = regions[regions.image_id == name]
        np.testing.assert_array_equal(mine.label, answer["labels"])
        np.testing.assert_allclose(mine.score, answer["scores"], rtol=1e-4)
        np.testing.assert_allclose(mine.box, answer["boxes"], rtol=1e-4, atol=1e-3)
    again = regions.features @ regions.weight.T + regions.bias
    np.testing.assert_allclose(again, regions.logits, rtol=1e-4, atol=1e-4)
    assert regions.latent.shape == (len(regions), 64)


def test_the_header_names_the_adapter_and_its_checkpoint(weights):
    header = create("mask_rcnn", weights).header()
    assert header.classes == ("background", *CLASSES)
    assert header.detector["name"] == "mask_rcnn"


def test_only_this_adapter_leaves_the_mask_branch_out(weights):
    with pytest.raises(DataError, match=r"unexpected: roi_heads.mask_head"):
        create("faster_rcnn", weights).header()


def test_all_other_weights_of_torchvisions_mask_rcnn_are_those_of_the_faster_rcnn():
    adapter = detectors.get("mask_rcnn")
    with torch.device("meta"):
        theirs = maskrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=4).state_dict()
    ours = build_network(Blueprint("resnet50_fpn", CLASSES, 800, 1333)).state_dict()
    used = {name: t.shape for name, t in theirs.items() if not name.startswith(adapter.unused_weights)}
    # torchvision counts batches in normalisations that it freezes only with pretrained weights.
    used = {name: shape for name, shape in used.items() if not name.endswith("num_batches_tracked")}
    assert used == {name: t.shape for name, t in ours.items()}
