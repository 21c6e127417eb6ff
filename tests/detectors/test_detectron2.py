"""Checkpoints in Detectron2's layout, beside a bare transcription of what Detectron2 computes."""

import math
import pickle
import zipfile
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from PIL import Image
from torchvision.models.detection.image_list import ImageList
from torchvision.ops import batched_nms, roi_align

from farther import detectors, methods
from farther.detectors.networks.architectures import (
    MSRA,
    FasterRCNNBlueprint,
    build_network,
    save_checkpoint,
)
from farther.detectors.networks.detectron2_import import to_torchvision, torchvision_names
from farther.detectors.networks.weights import read_weights
from farther.detectors.scaling import scaled_sides
from farther.errors import DataError, ParameterError

CLASSES = ("cat", "dog", "fox")
SIZES = {"min_size": 90, "max_size": 150}


def convolution_names(shape, norm=True):
    """Parts of a convolution as Detectron2 stores it."""
    rows = shape[:1]
    if not norm:
        return {"weight": shape, "bias": rows}
    return {
        "weight": shape,
        "norm.weight": rows,
        "norm.bias": rows,
        "norm.running_mean": rows,
        "norm.running_var": rows,
    }


def layout(classes, vos=False):
    """Names and shapes of a checkpoint of Detectron2's R-50 FPN Faster R-CNN, from its layers."""
    layers = {"backbone.bottom_up.stem.conv1": convolution_names((64, 3, 7, 7))}
    inputs = {2: 64, 3: 256, 4: 512, 5: 1024}
    for stage, count, width in ((2, 3, 64), (3, 4, 128), (4, 6, 256), (5, 3, 512)):
        for block in range(count):
            name = f"backbone.bottom_up.res{stage}.{block}"
            before = inputs[stage] if block == 0 else 4 * width
            layers[f"{name}.conv1"] = convolution_names((width, before, 1, 1))
            layers[f"{name}.conv2"] = convolution_names((width, width, 3, 3))
            layers[f"{name}.conv3"] = convolution_names((4 * width, width, 1, 1))
        first = f"backbone.bottom_up.res{stage}.0.shortcut"
        layers[first] = convolution_names((4 * width, inputs[stage], 1, 1))
    for level, channels in ((2, 256), (3, 512), (4, 1024), (5, 2048)):
        layers[f"backbone.fpn_lateral{level}"] = convolution_names(
            (256, channels, 1, 1), norm=False
        )
        layers[f"backbone.fpn_output{level}"] = convolution_names((256, 256, 3, 3), norm=False)
    head = "proposal_generator.rpn_head"
    layers[f"{head}.conv"] = convolution_names((256, 256, 3, 3), norm=False)
    layers[f"{head}.objectness_logits"] = convolution_names((3, 256, 1, 1), norm=False)
    layers[f"{head}.anchor_deltas"] = convolution_names((12, 256, 1, 1), norm=False)
    layers["roi_heads.box_head.fc1"] = convolution_names((1024, 12544), norm=False)
    layers["roi_heads.box_head.fc2"] = convolution_names((1024, 1024), norm=False)
    layers["roi_heads.box_predictor.cls_score"] = convolution_names((classes + 1, 1024), norm=False)
    layers["roi_heads.box_predictor.bbox_pred"] = convolution_names((4 * classes, 1024), norm=False)
    if vos:
        layers["roi_heads.weight_energy"] = convolution_names((1, classes), norm=False)
        layers["roi_heads.logistic_regression"] = convolution_names((2, 1), norm=False)
    shapes = {}
    for layer, parts in layers.items():
        for part, shape in parts.items():
            shapes[f"{layer}.{part}"] = shape
    return shapes


def random_weights():
    """Weights with which activations stay near one and scores differ, as in a trained network."""
    torch.manual_seed(4)
    weights = {}
    for name, shape in layout(len(CLASSES), vos=True).items():
        if name.endswith("running_var"):
            weights[name] = torch.rand(shape) + 0.5
        elif name.endswith(("bias", "running_mean")):
            weights[name] = torch.randn(shape) * 0.1
        elif name.endswith("norm.weight"):
            scale = 0.3 if "conv3" in name else 1
            weights[name] = torch.rand(shape) * scale + 0.1
        else:
            weights[name] = torch.randn(shape) * math.sqrt(2 / max(math.prod(shape[1:]), 1))
    weights["backbone.bottom_up.stem.conv1.weight"] /= 60
    weights["proposal_generator.rpn_head.anchor_deltas.weight"] *= 0.2
    weights["proposal_generator.rpn_head.objectness_logits.weight"] *= 12
    weights["roi_heads.box_predictor.cls_score.weight"] *= 1.5
    weights["roi_heads.box_predictor.bbox_pred.weight"] *= 0.5
    # Against the mean of this seed's logits, so that each class wins somewhere.
    weights["roi_heads.box_predictor.cls_score.bias"] += torch.tensor([7.3, 5.0, -0.4, -9.0])
    return weights


def without_values(classes, vos=False):
    """Weights without values, for tests of names and shapes."""
    return {name: torch.empty(shape, device="meta") for name, shape in layout(classes, vos).items()}


@pytest.fixture(scope="session")
def weights():
    return random_weights()


@pytest.fixture(scope="session")
def checkpoint(weights, tmp_path_factory):
    path = tmp_path_factory.mktemp("detectron2") / "model_final.pth"
    torch.save({"model": weights, "optimizer": {"state": {}}, "iteration": 17999}, path)
    return path


@pytest.fixture(scope="session")
def image():
    rng = np.random.default_rng(8)
    pixels = rng.integers(0, 90, (123, 181, 3), np.uint8)
    for _ in range(7):
        y, x = rng.integers(0, 100), rng.integers(0, 150)
        pixels[y : y + rng.integers(15, 60), x : x + rng.integers(15, 60)] = rng.integers(
            60, 255, 3
        )
    return pixels


@pytest.fixture(scope="session")
def detector(checkpoint):
    return create(checkpoint)


@pytest.fixture(scope="session")
def regions(detector, image):
    return detector.detect([image])


@pytest.fixture(scope="session")
def network():
    """As built, without a checkpoint's weights."""
    return build_network(FasterRCNNBlueprint(MSRA, CLASSES, 800, 1333)).eval()


def create(weights, **params):
    usual = {"classes": CLASSES, "device": "cpu", "score_threshold": 0.3, **SIZES}
    return detectors.create("faster_rcnn", weights=weights, **{**usual, **params})


# ------------------------------------------------------------------------------------------------
# Detectron2's computation, from its weights


class Bare:
    """Detectron2's forward pass over one image, by its names: C classes, then the background."""

    def __init__(self, weights):
        self.weights = weights

    def convolve(self, x, name, stride=1, padding=0):
        w = self.weights
        x = F.conv2d(x, w[f"{name}.weight"], w.get(f"{name}.bias"), stride, padding)
        if f"{name}.norm.weight" not in w:
            return x
        gain = w[f"{name}.norm.weight"][:, None, None]
        shift = w[f"{name}.norm.bias"][:, None, None]
        mean = w[f"{name}.norm.running_mean"][:, None, None]
        variance = w[f"{name}.norm.running_var"][:, None, None]
        return (x - mean) / (variance + 1e-5).sqrt() * gain + shift

    def pyramid(self, image):
        """Levels p2 … p6 of an image of red, green and blue bytes, (H, W, 3)."""
        mean = torch.tensor([103.530, 116.280, 123.675])
        x = torch.from_numpy(image[:, :, ::-1].copy()).float() - mean
        height, width = image.shape[:2]
        x = F.pad(x.permute(2, 0, 1), (0, -width % 32, 0, -height % 32))[None]
        x = F.relu(self.convolve(x, "backbone.bottom_up.stem.conv1", 2, 3))
        x = F.max_pool2d(x, 3, 2, 1)
        stages = {}
        for stage, blocks in ((2, 3), (3, 4), (4, 6), (5, 3)):
            for block in range(blocks):
                name = f"backbone.bottom_up.res{stage}.{block}"
                stride = 2 if block == 0 and stage > 2 else 1
                y = F.relu(self.convolve(x, f"{name}.conv1", stride))
                y = F.relu(self.convolve(y, f"{name}.conv2", 1, 1))
                y = self.convolve(y, f"{name}.conv3")
                shortcut = x
                if block == 0:
                    shortcut = self.convolve(x, f"{name}.shortcut", stride)
                x = F.relu(y + shortcut)
            stages[stage] = x
        levels = []
        above = None
        for stage in (5, 4, 3, 2):
            lateral = self.convolve(stages[stage], f"backbone.fpn_lateral{stage}")
            if above is None:
                above = lateral
            else:
                above = lateral + F.interpolate(above, scale_factor=2, mode="nearest")
            levels.insert(0, self.convolve(above, f"backbone.fpn_output{stage}", 1, 1))
        return [*levels, levels[-1][:, :, ::2, ::2]]

    def proposals(self, levels, size):
        """At most 1000 boxes, best first."""
        head = "proposal_generator.rpn_head"
        boxes, logits, numbers = [], [], []
        for number, level in enumerate(levels):
            shared = F.relu(self.convolve(level, f"{head}.conv", 1, 1))
            score = self.convolve(shared, f"{head}.objectness_logits")[0]
            score = score.permute(1, 2, 0).flatten()
            deltas = self.convolve(shared, f"{head}.anchor_deltas")[0].permute(1, 2, 0)
            anchors = []
            for y in range(level.shape[2]):
                for x in range(level.shape[3]):
                    for ratio in (0.5, 1.0, 2.0):
                        w = (32 << number) / math.sqrt(ratio)
                        cx, cy, h = x * (4 << number), y * (4 << number), w * ratio
                        anchors.append([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2])
            score, best = score.topk(min(len(score), 1000))
            boxes.append(moved(torch.tensor(anchors)[best], deltas.reshape(-1, 4)[best]))
            logits.append(score)
            numbers.append(torch.full((len(best),), number))
        boxes = clipped(torch.cat(boxes), size)
        logits = torch.cat(logits)
        numbers = torch.cat(numbers)
        proper = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
        boxes, logits, numbers = boxes[proper], logits[proper], numbers[proper]
        return boxes[batched_nms(boxes, logits, numbers, 0.7)[:1000]]

    def heads(self, levels, proposals):
        """Features, logits (background last) and deltas of every proposal."""
        w = self.weights
        sides = ((proposals[:, 2] - proposals[:, 0]) * (proposals[:, 3] - proposals[:, 1])).sqrt()
        numbers = (4 + torch.log2(sides / 224 + 2.2e-16)).floor().clamp(2, 5).long()
        pooled = []
        for number, box in zip(numbers.tolist(), proposals, strict=True):
            level = levels[number - 2]
            pooled += roi_align(level, [box[None]], 7, 1 / (1 << number), 0, aligned=True)
        features = torch.stack(pooled).flatten(1)
        for name in ("roi_heads.box_head.fc1", "roi_heads.box_head.fc2"):
            features = F.relu(F.linear(features, w[f"{name}.weight"], w[f"{name}.bias"]))
        predictor = "roi_heads.box_predictor"
        logits = F.linear(
            features, w[f"{predictor}.cls_score.weight"], w[f"{predictor}.cls_score.bias"]
        )
        deltas = F.linear(
            features, w[f"{predictor}.bbox_pred.weight"], w[f"{predictor}.bbox_pred.bias"]
        )
        return features, logits, deltas

    def detect(self, image, threshold, shorter, longer, limit=100):
        """Boxes in the image's pixels, scores, classes, logits and features; best first."""
        height, width = image.shape[:2]
        resized = Image.fromarray(image).resize(
            expected_size(width, height, shorter, longer), Image.BILINEAR
        )
        size = resized.height, resized.width
        levels = self.pyramid(np.asarray(resized))
        proposals = self.proposals(levels, size)
        features, logits, deltas = self.heads(levels[:4], proposals)
        scores = logits.softmax(1)[:, :-1]
        rows, labels = torch.where(scores > threshold)
        weights = torch.tensor([10.0, 10.0, 5.0, 5.0])
        label_deltas = deltas.view(len(deltas), -1, 4)[rows, labels] / weights
        boxes = clipped(moved(proposals[rows], label_deltas), size)
        order = batched_nms(boxes, scores[rows, labels], labels, 0.5)[:limit]
        rows, labels = rows[order], labels[order]
        ratio = torch.tensor([width / size[1], height / size[0]] * 2)
        return boxes[order] * ratio, scores[rows, labels], labels, logits[rows], features[rows]


def moved(boxes, deltas):
    sides = boxes[:, 2:] - boxes[:, :2]
    middle = boxes[:, :2] + sides / 2 + deltas[:, :2] * sides
    sides = sides * deltas[:, 2:].clamp(max=math.log(1000 / 16)).exp()
    return torch.cat([middle - sides / 2, middle + sides / 2], 1)


def clipped(boxes, size):
    return torch.stack([boxes[:, i].clamp(0, size[1 - i % 2]) for i in range(4)], 1)


def expected_size(width, height, shorter, longer):
    """Width and height of these tests' scaled image, whose longer side is within its limit."""
    assert height < width
    assert round(width * shorter / height) <= longer
    return round(width * shorter / height), shorter


# ------------------------------------------------------------------------------------------------
# numbers


def test_detections_are_detectron2s(weights, regions, image):
    with torch.inference_mode():
        boxes, scores, labels, logits, features = Bare(weights).detect(image, 0.3, 90, 150)
    assert len(regions) == len(boxes) > 10
    np.testing.assert_array_equal(regions.label, labels + 1)
    np.testing.assert_allclose(regions.score, scores, rtol=1e-4)
    np.testing.assert_allclose(regions.box, boxes, rtol=1e-4, atol=1e-2)
    # Detectron2 keeps the background last, farther's header says where.
    np.testing.assert_allclose(regions.logits, logits.roll(1, 1), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(regions.features, features, rtol=1e-4, atol=1e-3)
    assert len(set(regions.label)) == 3


def test_features_through_the_last_layer_give_the_logits(regions):
    assert (regions.classes[0], regions.background_index) == ("background", 0)
    again = regions.features @ regions.weight.T + regions.bias
    np.testing.assert_allclose(again, regions.logits, rtol=1e-4, atol=1e-4)


def test_vos_head_scores_as_its_authors_do(weights, regions):
    head = regions.header.detector["vos_head"]
    assert [len(head[name]) for name in ("energy_weight", "weight", "bias")] == [3, 2, 2]
    # The log of the sum that is weighted by relu of the energy's weights, through the logistic
    # regression.
    logits = torch.tensor(regions.logits[:, 1:])
    energy = (weights["roi_heads.weight_energy.weight"].relu() * logits.double().exp()).sum(1).log()
    weight = weights["roi_heads.logistic_regression.weight"]
    bias = weights["roi_heads.logistic_regression.bias"]
    output = energy[:, None] @ weight.double().T + bias
    method = methods.create("vos", output="logistic").fit(regions)
    np.testing.assert_allclose(
        method.score(regions), output[:, 1] - output[:, 0], rtol=1e-4, atol=1e-4
    )


# -----------------------------------------------------------------------------------------------
# the key map


@pytest.mark.parametrize("classes", [20, 10])
def test_every_name_of_the_layout_is_known_with_its_shape(classes):
    shapes = {name: shape for name, (_, shape) in torchvision_names(classes).items()}
    assert shapes == layout(classes)


def test_every_weight_of_the_network_is_filled_once(network):
    names = torchvision_names(len(CLASSES))
    state = network.state_dict()
    assert sorted(name for name, _ in names.values()) == sorted(state)
    for name, shape in names.values():
        assert tuple(state[name].shape) == shape or "box_predictor" in name


def test_background_goes_first_and_has_a_box_that_never_moves(weights):
    state = to_torchvision("model.pth", weights, len(CLASSES))
    score = weights["roi_heads.box_predictor.cls_score.bias"]
    assert state["roi_heads.box_predictor.cls_score.bias"].tolist() == score[[3, 0, 1, 2]].tolist()
    boxes = state["roi_heads.box_predictor.bbox_pred.weight"]
    assert not boxes[:4].any()
    torch.testing.assert_close(boxes[4:], weights["roi_heads.box_predictor.bbox_pred.weight"])


def test_a_checkpoint_that_does_not_match_is_refused_with_the_lists():
    weights = without_values(2)
    weights["roi_heads.mask_head.deconv.weight"] = weights.pop("backbone.fpn_lateral3.bias")
    weights["roi_heads.box_head.fc2.bias"] = torch.empty(512, device="meta")
    with pytest.raises(DataError) as refused:
        to_torchvision("model.pth", weights, 2)
    message = str(refused.value)
    assert "missing: backbone.fpn_lateral3.bias;" in message
    assert "unexpected: roi_heads.mask_head.deconv.weight;" in message
    assert message.endswith(
        "of another shape: roi_heads.box_head.fc2.bias (512,) instead of (1024,)"
    )


def test_another_number_of_classes_is_refused_by_the_last_layers():
    with pytest.raises(DataError, match=r"cls_score.weight \(21, 1024\) instead of \(11, 1024\)"):
        to_torchvision("model.pth", without_values(20), 10)


def test_half_a_vos_head_is_refused():
    weights = without_values(2, vos=True)
    del weights["roi_heads.logistic_regression.bias"]
    with pytest.raises(DataError, match=r"missing: roi_heads\.logistic_regression\.bias$"):
        to_torchvision("model.pth", weights, 2)


def test_a_deeper_network_is_refused():
    weights = without_values(2)
    weights["backbone.bottom_up.res4.6.conv1.weight"] = torch.empty(256, 1024, 1, 1, device="meta")
    with pytest.raises(DataError, match=r"unexpected: backbone\.bottom_up\.res4\.6\.conv1\.weight"):
        to_torchvision("model.pth", weights, 2)


def constants():
    """Constants that older versions of Detectron2 store besides the weights."""
    stored = {
        "pixel_mean": torch.tensor([103.53, 116.28, 123.675]).view(3, 1, 1),
        "pixel_std": torch.ones(3, 1, 1),
    }
    for level in range(5):
        anchors = []
        for ratio in (0.5, 1, 2):
            half_width = (16 << level) / ratio**0.5
            half_height = (16 << level) * ratio**0.5
            anchors.append([-half_width, -half_height, half_width, half_height])
        name = f"proposal_generator.anchor_generator.cell_anchors.{level}"
        stored[name] = torch.tensor(anchors)
    return stored


def test_constants_of_older_versions_are_accepted():
    state = to_torchvision("model.pth", {**without_values(2), **constants()}, 2)
    assert state.keys() == {name for name, _ in torchvision_names(2).values()}


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("pixel_std", torch.tensor([57.375, 57.12, 58.395]), "found [57.375"),
        ("pixel_mean", torch.tensor([123.675, 116.28, 103.53]), "found [123.675"),
        ("proposal_generator.anchor_generator.cell_anchors.1", torch.zeros(3, 4), "found [0.0"),
    ],
)
def test_other_pixels_and_anchors_are_refused(name, values, message):
    with pytest.raises(DataError) as refused:
        to_torchvision("model.pth", {**without_values(2), **constants(), name: values}, 2)
    assert message in str(refused.value)
    assert f"field {name!r}" in str(refused.value)


# --------------------------------------------------------------------------------------------------
# the file


@pytest.mark.parametrize("zipped", [True, False])
def test_numpy_beside_the_weights_is_read(tmp_path, zipped):
    path = tmp_path / "model.pth"
    content = {
        "iteration": np.int64(17999),
        "metrics": np.arange(3.0),
        "model": {"w": np.ones(2, np.float32)},
    }
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    assert read_weights(path)["w"].tolist() == [1, 1]


def test_names_that_numpy_had_before_its_second_version_are_read(tmp_path):
    torch.save({"best": np.float64(0.5), "model": {"w": torch.ones(2)}}, tmp_path / "new.pth")
    with (
        zipfile.ZipFile(tmp_path / "new.pth") as new,
        zipfile.ZipFile(tmp_path / "old.pth", "w") as old,
    ):
        for name in new.namelist():
            old.writestr(
                name, new.read(name).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
            )
    assert read_weights(tmp_path / "old.pth")["w"].tolist() == [1, 1]


@pytest.mark.parametrize("zipped", [True, False])
def test_nothing_that_a_file_names_is_run(tmp_path, zipped):
    path = tmp_path / "code.pth"
    torch.save(
        {"model": {"w": torch.ones(2)}, "hook": print}, path, _use_new_zipfile_serialization=zipped
    )
    with pytest.raises(DataError, match=r"it names (builtins\.)?print, which is not run"):
        read_weights(path)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("content", [b"nothing of the kind", pickle.dumps({"model": {"w": 1.5}})])
def test_what_torch_did_not_write_is_refused_without_its_advice_to_run_it(tmp_path, content):
    path = tmp_path / "model_final.pkl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"damaged, or not written by torch\.save$"):
        read_weights(path)


def test_layout_is_recognised_and_said(regions, checkpoint):
    assert regions.header.detector["layout"] == "detectron2"
    assert create(checkpoint, layout="detectron2").blueprint.architecture == MSRA
    with pytest.raises(
        DataError, match=r"field 'layout': expected 'torchvision', found weights in 'detectron2'"
    ):
        create(checkpoint, layout="torchvision").header()


def test_detectron2s_weights_are_not_computed_as_torchvision_does(checkpoint):
    with pytest.raises(
        DataError, match=r"which 'resnet50_fpn' does not compute; take 'resnet50_fpn_msra'"
    ):
        create(checkpoint, architecture="resnet50_fpn").header()


def test_a_safetensors_checkpoint_says_its_layout_itself(tmp_path):
    with pytest.raises(ParameterError, match=r"'layout'.*says so itself"):
        detectors.create("faster_rcnn", weights=tmp_path / "w.safetensors", layout="detectron2")


def test_the_architecture_decides_who_scales_whatever_the_file_format(tmp_path, image):
    save_checkpoint(tmp_path / "w.safetensors", {}, FasterRCNNBlueprint(MSRA, CLASSES, 90, 150))
    ours = detectors.create("faster_rcnn", weights=tmp_path / "w.safetensors")
    assert ours.prepare(image).pixels.shape == (90, 132, 3)


# --------------------------------------------------------------------------------------------------
# the small things


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [
        (480, 640, (800, 1067)),  # 1066.67 rounds up; torchvision rounds down
        (640, 480, (1067, 800)),
        (500, 500, (800, 800)),
        (375, 1242, (402, 1333)),  # 800 would make 2649.6 of the longer side
        (720, 1280, (750, 1333)),  # BDD100k: 749.8
        (1, 5000, (1, 1333)),
    ],
)
def test_sides_are_scaled_to_the_nearest_pixel(height, width, expected):
    assert scaled_sides(height, width, 800, 1333) == expected
    assert scaled_sides(*expected, 800, 1333) == expected or height == 1


def test_images_are_scaled_by_pillow_and_the_network_leaves_them_so(detector, image):
    prepared = detector.prepare(image)
    assert prepared.original == (123, 181)
    resized = Image.fromarray(image).resize((132, 90), Image.BILINEAR)
    np.testing.assert_array_equal(prepared.pixels, np.asarray(resized))
    floats = torch.from_numpy(prepared.pixels).permute(2, 0, 1) / 255
    batch, _ = detector.network.transform([floats])
    blue = prepared.pixels[:, :, 2].astype(np.float32) - np.float32(103.53)
    np.testing.assert_allclose(batch.tensors[0, 0, :90, :132], blue, atol=1e-4)
    assert batch.tensors.shape == (1, 3, 96, 160)
    assert not batch.tensors[:, :, 90:].any()


def test_worker_processes_prepare_without_the_checkpoint(image, tmp_path):
    path = tmp_path / "model.pth"
    torch.save({"model": {"proposal_generator.rpn_head.conv.bias": torch.zeros(256)}}, path)
    detector = create(path)
    assert detector.blueprint.architecture == MSRA
    packed = ForkingPickler.dumps(detector)
    path.unlink()
    assert ForkingPickler.loads(packed).prepare(image).pixels.shape == (90, 132, 3)


def test_anchors_keep_their_fractions_and_their_levels_strides(network):
    levels = [torch.zeros(1, 256, -(-800 // s), -(-832 // s)) for s in (4, 8, 16, 32, 64)]
    (anchors,) = network.rpn.anchor_generator(
        ImageList(torch.zeros(1, 3, 800, 832), [(800, 832)]), levels
    )
    # 32 √2 wide and 32 / √2 high, around the image's corner.
    torch.testing.assert_close(anchors[0], torch.tensor([-22.6274, -11.3137, 22.6274, 11.3137]))
    last = anchors[-13 * 13 * 3 :].view(13, 13, 3, 4)
    torch.testing.assert_close(
        last[12, 2, 1], torch.tensor([128.0 - 256, 768 - 256, 128 + 256, 768 + 256])
    )


def test_pooling_takes_values_to_stand_in_the_middle_of_their_cells(network):
    pool = network.roi_heads.box_roi_pool
    columns = torch.arange(32.0).expand(1, 1, 32, 32)
    levels = {str(n): columns[:, :, : 32 >> n, : 32 >> n] for n in range(4)}
    pooled = pool(levels, [torch.tensor([[8.0, 8, 36, 36]])], [(128, 128)])
    # 28 pixels are seven cells of four; the first one's middle is at 10 pixels, which is 2.5 cells
    # less half a cell.
    torch.testing.assert_close(pooled[0, 0, 3], torch.arange(7.0) + 2)


def test_boxes_are_pooled_from_the_level_of_their_size(network):
    pool = network.roi_heads.box_roi_pool
    levels = {str(n): torch.full((2, 1, 256 >> n, 256 >> n), float(n)) for n in range(4)}
    sides = (20.0, 111.9, 112.0, 224.0, 447.9, 448.0, 900.0)
    boxes = torch.tensor([[0, 0, s, s] for s in sides])
    pooled = pool(levels, [boxes[:3], boxes[3:]], [(1024, 1024)] * 2)
    assert pooled.mean((1, 2, 3)).tolist() == [0, 0, 1, 2, 2, 3, 3]


def test_proposals_are_ranked_by_logits_that_no_sigmoid_tells_apart(network):
    boxes = torch.tensor([[[0.0, 0, 20, 20], [0, 0, 20, 19], [50, 50, 60, 60], [70, 9, 70, 20]]])
    logits = torch.tensor([30.0, 40.0, 20.0, 50.0])
    (proposals,), (ranks,) = network.rpn.filter_proposals(boxes, logits[:, None], [(90, 150)], [4])
    # The first two overlap, the last one has no width.
    assert ranks.tolist() == [40, 20]
    torch.testing.assert_close(proposals, boxes[0, [1, 2]])
