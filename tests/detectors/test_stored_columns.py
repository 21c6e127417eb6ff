"""The columns that adapters store of the demo's detectors: `latent`, and changes by `protocol`."""

from functools import partial

import numpy as np
import pytest
import torch
from tests.detectors.demo import WEIGHTS, create, fresh, scene
from tests.support.cases import slow_but
from torch import nn
from torchvision.models.detection import retinanet_resnet50_fpn
from torchvision.models.detection.image_list import ImageList
from torchvision.ops import roi_align

from farther import detectors, methods
from farther.detectors import yolo
from farther.detectors.networks.architectures import (
    FasterRCNNBlueprint,
    build_network,
    save_checkpoint,
)
from farther.detectors.networks.faster_rcnn import run_rpn
from farther.detectors.networks.pooling import latent_means, pixels_to_cells
from farther.detectors.settings import Layers, Pooling
from farther.detectors.whole_images import ClassifierNetwork
from farther.errors import DataError, ParameterError
from farther.methods import FitError
from farther.tables import Regions, RegionsFolder

#: Scale (x, y) and offset of a box of an image of 160 × 120 pixels in each network's input. YOLO
#: pads 192 × 144 to 192 × 160 pixels, evenly above and below; RT-DETR's input is 192 × 192; the
#: demo's Faster R-CNN has 224 × 168.
PLACES = {
    "yolo": ((1.2, 1.2), (0, 8)),
    "faster_rcnn": ((1.4, 1.4), (0, 0)),
    "detr": ((1.2, 1.6), (0, 0)),
    "retinanet": ((1, 1), (0, 0)),
}


#: Parameters that leave many detections.
SETTINGS = {"score_threshold": 0.0, "nms_iou": 0.9, "max_detections": 1000, "device": "cpu"}


def make_detector(adapter, folder, **params):
    """An adapter on a checkpoint of the demo; that of RetinaNet is untrained, and large."""
    settings = {**SETTINGS, **params}
    if adapter != "retinanet":
        return create(adapter, **settings)
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
    """The activations, with x and y of each cell's centre in 1/1000 pixels in two channels."""
    activations = activations.clone()
    height, width = activations.shape[-2:]
    stride = 2 ** np.ceil(np.log2(160 / width))  # inputs are 160 to 224 pixels wide
    activations[..., 0, :, :] = (torch.arange(width) + 0.5) * stride / 1000
    activations[..., 1, :, :] = ((torch.arange(height) + 0.5) * stride / 1000)[:, None]
    return activations


@pytest.mark.parametrize("adapter", slow_but(WEIGHTS, PLACES))
def test_activations_that_are_the_place_of_their_cell_give_the_middle_of_the_box(adapter, tmp_path):
    """Half a cell off, YOLO's latents would be 16 pixels beside the middle."""
    detector = make_detector(adapter, tmp_path)

    def replace(module, given, output):
        levels = output.items() if isinstance(output, dict) else None
        return (
            with_places(output)
            if levels is None
            else {name: with_places(level) for name, level in levels}
        )

    hook = pooled_layer(detector).register_forward_hook(replace)
    regions = detector.detect([scene()])
    hook.remove()
    box = regions.box
    # Beyond the outermost centres activations are constant, so that the mean is not the middle:
    # keep boxes inside.
    inside = (box[:, :2] > 25).all(1) & (box[:, 2] < 135) & (box[:, 3] < 95)
    assert inside.sum() >= 3
    scale, offset = PLACES[adapter]
    middle = (box[inside, :2] + box[inside, 2:]) / 2 * scale + offset
    np.testing.assert_allclose(1000 * regions.latent[inside, :2], middle, atol=0.05)


def activations_of(detector, image):
    """Maps (C, h, w) of YOLO or Faster R-CNN for an image, one per level, and the first stride."""
    batch = torch.from_numpy(image).permute(2, 0, 1)[None] / 255
    with torch.inference_mode():
        if detector.name == "yolo":
            return [yolo.run(detector.network, batch)[2][0]], 32
        network = detector.network
        images = ImageList(batch, [tuple(batch.shape[2:])])
        return [level[0] for level in run_rpn(network, images, network.backbone(batch)).shared], 8


@pytest.mark.parametrize("adapter", slow_but(("yolo",), ["yolo", "faster_rcnn"]))
def test_a_shifted_image_gives_the_same_latents_for_the_shifted_box(adapter, tmp_path):
    """RT-DETR's latents follow attention with positions: they differ in a shifted image."""
    detector = make_detector(adapter, tmp_path)
    shift = 32  # the coarsest stride
    image = np.full((960, 960, 3), 114, np.uint8)
    image[400:520, 400:560] = scene()
    boxes = torch.tensor([[410.0, 405, 530, 520], [395, 390, 460, 490], [450, 410, 470, 425]])
    levels, stride = activations_of(detector, image)
    before = latent_means(levels, pixels_to_cells(boxes, levels, stride), stride, Pooling(9, 2))
    levels, stride = activations_of(detector, np.roll(image, (shift, shift), axis=(0, 1)))
    after = latent_means(
        levels, pixels_to_cells(boxes + shift, levels, stride), stride, Pooling(9, 2)
    )
    assert (before - before.mean(0)).abs().max() > 0.01
    torch.testing.assert_close(after, before, rtol=1e-3, atol=1e-4)


# -------------------------------------------------------------------------------------------
# protocol

DEMO_ADAPTERS = list(WEIGHTS)


def pooled_maps(detector, image):
    """The activations that `latent` is pooled from, (1, C, h, w) per level, and the regions."""
    maps = []
    hook = pooled_layer(detector).register_forward_hook(
        lambda module, given, output: maps.append(output)
    )
    regions = detector.detect([image])
    hook.remove()
    assert len(regions) > 5
    return maps, regions


def in_network(adapter, box):
    """Boxes in pixels of the network's input."""
    scale, offset = PLACES[adapter]
    return torch.from_numpy(box * np.float32(scale * 2) + np.float32(offset * 2))


def aligned_means(level, boxes, scale, size=16, sampling=-1):
    return roi_align(level, [boxes], size, scale, sampling, aligned=True).mean((2, 3)).numpy()


def unclipped(box):
    """Rows whose box does not touch the border of `scene`."""
    return (box > 0).all(1) & (box < np.float32([160, 120, 160, 120])).all(1)


@pytest.mark.parametrize("adapter", slow_but(("detr",), ["yolo", "detr"]))
def test_published_latents_have_a_grid_of_16_with_as_many_samples_as_fit(adapter):
    maps, regions = pooled_maps(make_detector(adapter, None, protocol="published-code"), scene())
    rows = unclipped(regions.box)
    expected = aligned_means(maps[0], in_network(adapter, regions.box[rows]), 1 / 32)
    np.testing.assert_allclose(regions.latent[rows], expected, rtol=1e-3, atol=1e-4)
    alone = make_detector(adapter, None, latent_size=16, latent_sampling=-1).detect([scene()])
    paper = make_detector(adapter, None).detect([scene()])
    if adapter == "yolo":  # RT-DETR has fewer rows under the protocol
        np.testing.assert_array_equal(alone.latent, regions.latent)
    assert np.abs(paper.latent - alone.latent).max() > 1e-3


@pytest.mark.parametrize(
    "params",
    [
        {"protocol": "published-code"},
        {"latent": "levels", "latent_size": 16, "latent_sampling": -1},
    ],
)
def test_published_latents_of_faster_rcnn_are_all_levels_side_by_side(params):
    maps, regions = pooled_maps(make_detector("faster_rcnn", None, **params), scene())
    rows = unclipped(regions.box)
    boxes = in_network("faster_rcnn", regions.box[rows])
    expected = [
        aligned_means(level, boxes, 1 / stride)
        for level, stride in zip(maps, (8, 16, 32), strict=True)
    ]
    assert regions.latent.shape[1] == 3 * 64  # five levels of 256 in the ResNet-50 network
    np.testing.assert_allclose(
        regions.latent[rows], np.concatenate(expected, axis=1), rtol=1e-3, atol=1e-4
    )


@pytest.mark.slow
def test_the_five_levels_of_a_resnet50_give_1280_latents(tmp_path):
    torch.manual_seed(5)
    path = tmp_path / "network.safetensors"
    blueprint = FasterRCNNBlueprint("resnet50_fpn", ("cat", "dog"), 64, 96)
    save_checkpoint(path, build_network(blueprint).state_dict(), blueprint)
    made = partial(detectors.create, "faster_rcnn", weights=path, score_threshold=0.0, device="cpu")
    levels, level = made(latent="levels").detect([scene()]), made().detect([scene()])
    assert (levels.latent.shape[1], level.latent.shape[1]) == (1280, 256)
    parts = np.split(levels.latent, 5, axis=1)
    fitting = [np.isclose(part, level.latent, atol=1e-6).all(axis=1) for part in parts]
    assert np.any(fitting, axis=0).all()  # the paper's are one of the five


@pytest.mark.parametrize("params", [{"protocol": "published-code"}, {"logits": "log_sigmoid"}])
def test_published_logits_of_yolo_are_logarithms_of_the_class_scores(params):
    def detect(**params):
        detector = fresh("yolo", **SETTINGS, **params)
        for layers in detector.network.model[-1].cv3:
            layers[-1].bias.data += 10  # confident, so that the two differ
        return detector.detect([scene()])

    raw, stored = detect(), detect(**params)
    np.testing.assert_array_equal(stored.score, raw.score)
    np.testing.assert_allclose(
        stored.logits, -np.log1p(np.exp(-raw.logits.astype(np.float64))), rtol=1e-5, atol=1e-7
    )
    rows = np.arange(len(stored))
    np.testing.assert_allclose(np.exp(stored.logits[rows, stored.label]), stored.score, rtol=1e-4)
    assert (stored.activation, raw.activation) == ("exp", "sigmoid")
    assert (stored.logits <= 0).all() and (raw.logits > 1).any()


@pytest.mark.parametrize("params", [{"protocol": "published-code"}, {"per_query": "one"}])
def test_published_detections_of_rt_detr_are_the_best_class_of_each_query(params):
    settings = {"score_threshold": 0.02, "nms_iou": 1.0, "max_detections": 1000}
    several = make_detector("detr", None, **settings).detect([scene()])
    one = make_detector("detr", None, **settings, **params).detect([scene()])
    best = several[several.label == several.logits.argmax(axis=1)]
    assert len(one) == len(best) < len(several)
    np.testing.assert_array_equal(one.label, best.label)
    np.testing.assert_allclose(one.score, best.score)
    assert len(np.unique(one.logits, axis=0)) == len(one)


@pytest.mark.parametrize("adapter", slow_but(("faster_rcnn", "yolo"), DEMO_ADAPTERS))
def test_published_rois_are_asked_for_alone_and_scale_boxes_of_the_image_by_the_widths(adapter):
    """FMIYC's published code pools with spatial_scale = width of the map / width of the image."""
    image = scene()
    maps, regions = pooled_maps(make_detector(adapter, None, published_rois=True), image)
    if (
        adapter == "faster_rcnn"
    ):  # of several levels, each box from one; all of them are of stride 8 here
        sides = np.sqrt((regions.box[:, 2:] - regions.box[:, :2]).prod(axis=1)) * 1.4
        assert (sides < 223).all()
    scale = maps[0].shape[-1] / image.shape[1]
    expected = aligned_means(maps[0], torch.tensor(regions.box), scale, size=9, sampling=2)
    np.testing.assert_allclose(regions.latent, expected, rtol=1e-3, atol=1e-4)
    right = make_detector(adapter, None).detect([image])
    if (
        adapter != "faster_rcnn"
    ):  # 224 pixels are a multiple of the stride: no padding beside, the same scale
        assert np.abs(right.latent - regions.latent).max() > 1e-2
    assert not make_detector(adapter, None, protocol="published-code").published_rois


# ---------------------------------------------------------------------------------------
# latent.<layer>

#: A module whose output is a map, and the shape (height, width) of the network's input for an image
#: of 120 × 160.
LAYERS = {
    "yolo": ("model.4", (160, 192)),
    "faster_rcnn": ("backbone.steps.1", (192, 224)),
    "detr": ("model.backbone.model.encoder.stages.1", (192, 192)),
    "retinanet": ("backbone.body.layer2", (128, 160)),
}


def maps_seen(detector, layer: str, image: np.ndarray) -> tuple[Regions, torch.Tensor]:
    """Regions of an image, and the output of the layer for it."""
    seen = []
    hook = detector.network.get_submodule(layer).register_forward_hook(
        lambda *call: seen.append(call[2])
    )
    regions = detector.detect([image])
    hook.remove()
    return regions, seen[-1]


@pytest.mark.parametrize("adapter", slow_but(WEIGHTS, LAYERS))
def test_a_layer_is_averaged_over_the_box_in_its_own_cells(adapter, tmp_path):
    layer, (height, width) = LAYERS[adapter]
    detector = make_detector(adapter, tmp_path, latents=[layer], max_detections=20)
    regions, maps = maps_seen(detector, layer, scene())
    (scale_x, scale_y), (left, top) = PLACES[adapter]
    boxes = torch.from_numpy(regions.box.copy()) * torch.tensor(
        [scale_x, scale_y] * 2
    ) + torch.tensor([left, top] * 2)
    rows, columns = maps.shape[-2:]
    cells = boxes.float() * torch.tensor([columns / width, rows / height] * 2)
    expected = roi_align(maps.float(), [cells], 9, 1.0, 2, aligned=True).mean((2, 3))
    latents = regions.array(f"latent.{layer}")
    assert latents.shape == (len(regions), maps.shape[1])
    # The box of a network may leave the image, and is cut to it afterwards.
    inside = (regions.box[:, :2] > 0).all(1) & (regions.box[:, 2] < 160) & (regions.box[:, 3] < 120)
    assert inside.sum() > 3
    np.testing.assert_allclose(latents[inside], expected.numpy()[inside], rtol=2e-3, atol=2e-3)


def test_columns_of_layers_are_written_and_read_only_when_asked_for(tmp_path):
    detector = make_detector("yolo", tmp_path, latents=["model.4", "model.6"])
    regions = detector.detect([scene()])
    regions.write(tmp_path / "regions")
    folder = RegionsFolder(tmp_path / "regions")
    assert folder.has("latent.model.6")
    (batch,) = folder.batches(["latent.model.4"])
    assert "latent.model.6" not in batch.frame.columns
    np.testing.assert_array_equal(batch.array("latent.model.4"), regions.array("latent.model.4"))
    assert Regions.read(tmp_path / "regions").has("latent.model.6")


def test_a_method_reads_the_layer_that_it_names():
    random = np.random.default_rng(0)
    first, second = random.normal(size=(2, 60, 8)).astype(np.float32)
    names = {
        "image_id": [f"i{n}" for n in range(60)],
        "region_id": range(60),
        "box": [[0, 0, 9, 9]] * 60,
    }
    common = {
        **names,
        "score": np.full(60, 0.9),
        "label": np.zeros(60, int),
        "logits": np.ones((60, 2)),
    }
    regions = Regions(**common, latent=first, **{"latent.deep": second})
    for name in ("lard_knn", "lard_mahalanobis"):
        method = methods.create(name, components=4, layer="deep").fit(regions)
        swapped = Regions(**common, latent=second)
        expected = methods.create(name, components=4).fit(swapped).score(swapped)
        np.testing.assert_allclose(method.score(regions), expected, rtol=1e-9)
        assert method.columns == ["latent.deep"]
    swapped = Regions(**common, features=second)
    for name, params in {"oodl": {"components": 4}, "knn": {"k": 3}, "mahalanobis": {}}.items():
        method = methods.create(name, **params, layer="deep").fit(regions)
        expected = methods.create(name, **params).fit(swapped).score(swapped)
        np.testing.assert_allclose(method.score(regions), expected, rtol=1e-9)
        assert method.missing(swapped) == ["latent.deep"]
    assert methods.create("knn", layer="latent").columns == ["latent"]
    assert methods.create("lard_knn", layer="shallow").missing(regions) == ["latent.shallow"]
    with pytest.raises(
        FitError, match=r"lard_knn needs latent\.shallow, which these regions do not have"
    ):
        methods.create("lard_knn", layer="shallow").fit(regions)
    with pytest.raises(DataError, match=r"latent\.deep"):
        method.score(swapped)


def test_layers_of_a_classifier_are_averaged_over_the_image():
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    network = nn.Sequential(network, nn.Linear(6, 5)).eval()
    classifier = ClassifierNetwork(network, (16, 16), layers=Layers(("0.0", "0.2")))
    pixels = torch.rand(3, 3, 16, 16)
    seen = classifier(pixels)
    with torch.inference_mode():
        shallow = network[0][0](pixels)
        torch.testing.assert_close(seen.latents["latent.0.0"], shallow.mean((2, 3)))
        torch.testing.assert_close(
            seen.latents["latent.0.2"], network[0][2](shallow.relu()).mean((2, 3))
        )


@pytest.mark.parametrize(
    ("layer", "problem"),
    [
        ("model.99", "no module 'model.99'"),
        ("model.22", r"the output of .model\.22. for 1 images is"),
    ],
)
def test_a_module_that_cannot_be_pooled_is_refused_by_name(layer, problem, tmp_path):
    with pytest.raises(ParameterError, match=f"parameter 'latents': .*({problem})"):
        make_detector("yolo", tmp_path, latents=[layer]).detect([scene()])
