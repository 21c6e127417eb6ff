"""torchvision's detectors with random weights whose scores differ, as in trained networks."""

from contextlib import ExitStack
from unittest import mock

import numpy as np
import torch
from tests.detectors.test_faster_rcnn import blotches
from torch import nn
from torchvision.models import (
    MobileNet_V3_Large_Weights,
    ResNet50_Weights,
    detection,
    mobilenet_v3_large,
    resnet50,
)
from torchvision.models.detection import (
    faster_rcnn,
    fcos,
    keypoint_rcnn,
    mask_rcnn,
    retinanet,
    ssdlite,
)

from farther.detectors.networks.weights import BlankWeights

CLASSES = ("cat", "dog", "fox")

#: Name of a builder, or of a case of one, and parameters of both model and adapter, which keep the
#: tests quick.
SMALL = {"min_size": 64, "max_size": 96}
#: What the tests ask for of all.
SCORE_THRESHOLD, MAX_DETECTIONS = 0.3, 25
BUILT = {
    "fasterrcnn_resnet50_fpn": SMALL,
    "fasterrcnn_resnet50_fpn_v2": SMALL,
    "fasterrcnn_mobilenet_v3_large_fpn": {"min_size": 160, "max_size": 240},
    "fasterrcnn_mobilenet_v3_large_320_fpn": {},
    "maskrcnn_resnet50_fpn": SMALL,
    "maskrcnn_resnet50_fpn_v2": SMALL,
    "keypointrcnn_resnet50_fpn": SMALL,
    "retinanet_resnet50_fpn": SMALL,
    "retinanet_resnet50_fpn_v2": SMALL,
    "fcos_resnet50_fpn": SMALL,
    "ssd300_vgg16": {},
    "ssdlite320_mobilenet_v3_large": {},
    "ssdlite320 of a classifier": {},
}


def untrained(name, columns=4, **settings):
    """A builder's network without weights, whose normalisations can all learn."""
    torch.manual_seed(5)
    if name == "ssdlite320 of a classifier":
        return of_classifier("ssdlite320_mobilenet_v3_large", columns, **settings)
    build = getattr(detection, name)
    return build(weights=None, weights_backbone=None, num_classes=columns, **settings).eval()


def of_classifier(name, columns, **settings):
    """A builder's network as torchvision builds it on a classifier's weights; they are random.

    The normalisations of most are then frozen.
    """
    with ExitStack() as patches:
        for module in (faster_rcnn, fcos, keypoint_rcnn, mask_rcnn, retinanet, ssdlite):
            for function in (resnet50, mobilenet_v3_large):
                if hasattr(module, function.__name__):
                    patches.enter_context(
                        mock.patch.object(module, function.__name__, without_download(function))
                    )
        kind = MobileNet_V3_Large_Weights if "mobilenet" in name else ResNet50_Weights
        build = getattr(detection, name)
        return build(weights_backbone=kind.DEFAULT, num_classes=columns, **settings).eval()


def without_download(function):
    """A builder of torchvision's classifiers that takes weights and does not load them."""
    return lambda weights, **options: function(weights=None, **options)


def model(name, columns=4, **settings):
    """The same, with scores and boxes that differ among anchors or proposals.

    Args:
        name: One of `BUILT`.
        columns: Outputs, the background included.
        settings: Of the builder.
    """
    thresholds = {"score_thresh": SCORE_THRESHOLD, "detections_per_img": MAX_DETECTIONS}
    if "rcnn" in name:
        thresholds = {f"box_{key}": value for key, value in thresholds.items()}
    if "ssdlite" in name:  # the builder gives its keywords to the backbone, too
        thresholds = {}
    settings = {**BUILT[name], **thresholds, **settings}
    network = untrained(name, columns, **settings)
    if "ssdlite" in name:
        network.score_thresh, network.detections_per_img = SCORE_THRESHOLD, MAX_DETECTIONS
    without_branches(network)
    rng = np.random.default_rng(8)
    picture, second_picture = (
        torch.from_numpy(blotches(rng, 100, 110)).permute(2, 0, 1) / 255 for _ in range(2)
    )
    if "rcnn" in name:
        rpn, predictor = network.rpn, network.roi_heads.box_predictor
        usual = rpn._post_nms_top_n
        rpn._post_nms_top_n = {**usual, "testing": 60}
        normalise(network, [picture, second_picture])
        spread(network, picture, {rpn.head.cls_logits: 1.5, rpn.head.bbox_pred: 0.3})
        spread(network, picture, {predictor.cls_score: 1.5, predictor.bbox_pred: 0.5})
        rpn._post_nms_top_n = usual
        if name.endswith("v2"):
            return network
        with BlankWeights():
            frozen = of_classifier(name, columns, **settings)
        frozen.load_state_dict(network.state_dict())
        return without_branches(frozen)
    normalise(network, [picture, second_picture])
    classes, boxes = network.head.classification_head, network.head.regression_head
    deviations = {}
    if "ssd" in name:
        for layers, deviation in ((classes.module_list, 1.5), (boxes.module_list, 1.0)):
            for layer in layers:
                last = layer[-1] if isinstance(layer, nn.Sequential) else layer
                deviations[last] = deviation
        spread(network, picture, deviations)
        return network
    deviations = {classes.cls_logits: 1.5, boxes.bbox_reg: 0.5}
    if "fcos" in name:
        deviations[boxes.bbox_ctrness] = 1.5
    spread(network, picture, deviations)
    if "fcos" in name:
        with torch.no_grad():
            boxes.bbox_reg.bias.add_(2)
    return network


def without_branches(network):
    """The same network, which finds neither masks nor keypoints; it keeps their weights.

    No test compares them, and they take longer than all else.
    """
    if hasattr(network, "roi_heads"):
        network.roi_heads.mask_roi_pool = None
        network.roi_heads.keypoint_roi_pool = None
    return network


@torch.no_grad()
def normalise(network, pictures):
    """Sets statistics of normalisations, without which deep networks of random weights fail."""
    modules = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    if not modules:
        return
    for module in modules:
        module.momentum = 1.0
        module.train()
    network(pictures)
    network.eval()
    for module in modules:
        # Channels that hardly vary in these pictures would blow up any other.
        module.running_var.clamp_(min=module.running_var.median())


@torch.no_grad()
def spread(network, picture, deviations):
    """Scales the channels of layers: outputs for a picture have mean 0 and a given deviation.

    Args:
        network: The network.
        picture: A picture that it is given.
        deviations: Of the outputs of each layer. None may be computed from those of another.
    """
    outputs = {layer: [] for layer in deviations}
    hooks = []
    for layer in deviations:
        hook = layer.register_forward_hook(lambda layer, _, output: outputs[layer].append(output))
        hooks.append(hook)
    network([picture])
    for hook in hooks:
        hook.remove()
    for layer, deviation in deviations.items():
        values = torch.cat([output.transpose(0, 1).flatten(1) for output in outputs[layer]], dim=1)
        if values.shape[1] < 2:  # a level of one cell
            continue
        factor = deviation / values.std(dim=1).clamp_min(1e-6)
        layer.weight.mul_(factor.view(-1, *[1] * (layer.weight.ndim - 1)))
        layer.bias.copy_((layer.bias - values.mean(dim=1)) * factor)
