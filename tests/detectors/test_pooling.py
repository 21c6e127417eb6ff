"""`latent`: where activations are pooled, beside torchvision's ROIAlign and for each architecture."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.models.detection import retinanet_resnet50_fpn
from torchvision.models.detection.image_list import ImageList
from torchvision.ops import roi_align

from farther import detectors
from farther.detectors.networks import yolo
from farther.detectors.networks.passes import propose
from farther.detectors.networks.pooling import box_means, latent_means, pixels_to_cells

DEMO = Path(__file__).parents[2] / "data/demo"

SIZES = [(7, 7), (1, 1), (2, 5), (12, 3), (80, 60)]


def boxes_around(height, width, count=200):
    """Corners in cells: most inside the map, some partly or wholly outside, some without extent."""
    generator = torch.Generator().manual_seed(height * 100 + width)
    first = torch.rand(count, 2, generator=generator) * 1.6 - 0.3
    extent = torch.rand(count, 2, generator=generator) ** 2
    extent[:5] = 0
    boxes = torch.cat([first, first + extent], dim=1) * torch.tensor([width, height, width, height])
    boxes[5] = torch.tensor([-9.0, -9, -5, -5])
    boxes[6] = torch.tensor([0.0, 0, width, height])
    return boxes


@pytest.mark.parametrize("sampling", [1, 2, 0, -1])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_means_over_boxes_are_those_of_aligned_roi_align(height, width, sampling):
    level = torch.randn(5, height, width, generator=torch.Generator().manual_seed(1))
    boxes = boxes_around(height, width)
    pooled = roi_align(level[None], [boxes], 9, 1.0, sampling, aligned=True).mean((2, 3))
    torch.testing.assert_close(box_means(level, boxes, 9, sampling), pooled, rtol=1e-5, atol=1e-5)


def test_each_box_is_pooled_from_the_level_that_fits_its_size():
    levels = [torch.full((1, 64 >> n, 64 >> n), float(n)) for n in range(3)]  # strides 8, 16 and 32
    boxes = torch.tensor([[50.0, 50, 50 + side, 50 + side] for side in (20, 223, 224, 400, 447, 448)])
    means = latent_means(levels, pixels_to_cells(boxes, levels, 8), 8, 9, 2)
    # Level 4 + log2(side / 224): of stride 8 (2³) below 224 pixels, 16 below 448, and 32 from there on.
    assert means[:, 0].tolist() == pytest.approx([0, 0, 1, 1, 1, 2])


def test_an_image_without_boxes_has_no_means():
    assert box_means(torch.ones(3, 4, 4), torch.zeros(0, 4), 9, 2).shape == (0, 3)


# ----------------------------------------------------------------------------- the place of a box

#: Scale (x, y) and offset of a box of an image of 160 × 120 pixels in each network's input. YOLO pads 192 × 144 to
#: 192 × 160 pixels, evenly above and below; RT-DETR's input is 192 × 192; the demo's Faster R-CNN has 224 × 168.
PLACES = {
    "yolo": ((1.2, 1.2), (0, 8)),
    "faster_rcnn": ((1.4, 1.4), (0, 0)),
    "detr": ((1.2, 1.6), (0, 0)),
    "retinanet": ((1, 1), (0, 0)),
}
WEIGHTS = {"yolo": "voc-yolov8", "faster_rcnn": "voc-faster_rcnn", "detr": "voc-rtdetr"}


def scene():
    """Two discs on grey, 120 × 160 pixels."""
    y, x = np.mgrid[:120, :160]
    pixels = np.full((120, 160, 3), 200, np.uint8)
    for column, radius, colour in ((55, 22, (200, 40, 40)), (108, 17, (250, 220, 40)), (55, 9, (20, 20, 20))):
        pixels[(y - 60) ** 2 + (x - column) ** 2 < radius**2] = colour
    return pixels


def make_detector(adapter, folder, **params):
    settings = {"score_threshold": 0.0, "nms_iou": 0.9, "max_detections": 1000, "device": "cpu", **params}
    if adapter != "retinanet":
        return detectors.create(adapter, weights=DEMO / f"{WEIGHTS[adapter]}.safetensors", **settings)
    torch.manual_seed(3)
    network = retinanet_resnet50_fpn(weights=None, weights_backbone=None, num_classes=3)
    torch.save(network.state_dict(), folder / "network.pth")
    sizes = {"classes": ["cat", "dog", "fox"], "min_size": 120, "max_size": 160}
    return detectors.create(adapter, weights=folder / "network.pth", **sizes, **settings)


def pooled_layer(detector):
    """The module whose output is pooled."""
    network = detector.network
    return {
        "yolo": lambda: network.model[9],
        "faster_rcnn": lambda: network.rpn.head.conv,
        "detr": lambda: network.model.encoder.aifi[0],
        "retinanet": lambda: network.backbone,
    }[detector.name]()


def with_places(activations):
    """The activations with x and y of each cell's centre, in 1/1000 pixels of the network's input, for two channels."""
    activations = activations.clone()
    height, width = activations.shape[-2:]
    stride = 2 ** np.ceil(np.log2(160 / width))  # inputs are 160 to 224 pixels wide
    activations[..., 0, :, :] = (torch.arange(width) + 0.5) * stride / 1000
    activations[..., 1, :, :] = ((torch.arange(height) + 0.5) * stride / 1000)[:, None]
    return activations


@pytest.mark.parametrize("adapter", list(PLACES))
def test_activations_that_are_the_place_of_their_cell_give_the_middle_of_the_box(adapter, tmp_path):
    """Half a cell off, YOLO's latents would be 16 pixels beside the middle."""
    detector = make_detector(adapter, tmp_path)

    def replace(module, given, output):
        levels = output.items() if isinstance(output, dict) else None
        return with_places(output) if levels is None else {name: with_places(level) for name, level in levels}

    hook = pooled_layer(detector).register_forward_hook(replace)
    regions = detector.detect([scene()])
    hook.remove()
    box = regions.box
    # Beyond the outermost centres activations are constant, so that the mean is not the middle: keep boxes inside.
    inside = (box[:, :2] > 25).all(1) & (box[:, 2] < 135) & (box[:, 3] < 95)
    assert inside.sum() >= 3
    scale, offset = PLACES[adapter]
    middle = (box[inside, :2] + box[inside, 2:]) / 2 * scale + offset
    np.testing.assert_allclose(1000 * regions.latent[inside, :2], middle, atol=0.05)


def activations_of(detector, image):
    """What the convolutions of YOLO or Faster R-CNN give for an image, (C, h, w) per level, and the first stride."""
    batch = torch.from_numpy(image).permute(2, 0, 1)[None] / 255
    with torch.inference_mode():
        if detector.name == "yolo":
            return [yolo.run(detector.network, batch)[2][0]], 32
        network = detector.network
        images = ImageList(batch, [tuple(batch.shape[2:])])
        return [level[0] for level in propose(network, images, network.backbone(batch)).shared], 8


@pytest.mark.parametrize("adapter", ["yolo", "faster_rcnn"])
def test_a_shifted_image_gives_the_same_latents_for_the_shifted_box(adapter, tmp_path):
    """RT-DETR's latents follow attention with positions: they differ in a shifted image."""
    detector = make_detector(adapter, tmp_path)
    shift = 32  # the coarsest stride
    image = np.full((960, 960, 3), 114, np.uint8)
    image[400:520, 400:560] = scene()
    boxes = torch.tensor([[410.0, 405, 530, 520], [395, 390, 460, 490], [450, 410, 470, 425]])
    levels, stride = activations_of(detector, image)
    before = latent_means(levels, pixels_to_cells(boxes, levels, stride), stride, 9, 2)
    levels, stride = activations_of(detector, np.roll(image, (shift, shift), axis=(0, 1)))
    after = latent_means(levels, pixels_to_cells(boxes + shift, levels, stride), stride, 9, 2)
    assert (before - before.mean(0)).abs().max() > 0.01
    torch.testing.assert_close(after, before, rtol=1e-3, atol=1e-4)
