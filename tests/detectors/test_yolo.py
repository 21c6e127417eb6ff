"""The YOLO adapter, beside Ultralytics' own `predict`."""

import copy
import json
import os
import zipfile
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tests.support.cases import slow_but
from torchvision.ops import roi_align

from farther import detectors
from farther.detectors.networks.yolo import (
    YoloBlueprint,
    build_network,
    letterbox,
    load_network,
    read_checkpoint,
    save_checkpoint,
)
from farther.detectors.settings import ProposalSelection
from farther.detectors.yolo import run
from farther.errors import DataError, ParameterError

CLASSES = ("cat", "dog", "fox", "owl")
SIZE = 96
#: Height and width: two of one shape, one of each kind of padding, a thin one.
SIZES = ((90, 120), (90, 120), (128, 80), (64, 64), (300, 12))
THRESHOLD = 0.3


def blotches(seed, height, width):
    """An image with some structure: filled rectangles on noise."""
    random = np.random.default_rng(seed)
    pixels = random.integers(0, 60, (height, width, 3), np.uint8)
    for _ in range(6):
        y, x = random.integers(0, height), random.integers(0, width)
        pixels[y : y + random.integers(10, 60), x : x + random.integers(10, 60)] = random.integers(
            60, 255, 3
        )
    return pixels


IMAGES = [blotches(seed, *size) for seed, size in enumerate(SIZES)]


@pytest.fixture(scope="module")
def images():
    return [image.copy() for image in IMAGES]


def as_batch(image):
    """An image alone, as the network takes it: shape (1, 3, H, W)."""
    return torch.from_numpy(letterbox(image, SIZE, 32).pixels).permute(2, 0, 1)[None] / 255


def untrained(architecture):
    """A network whose random answers differ from place to place, as if it had learned something."""
    torch.manual_seed(2)
    network = build_network(YoloBlueprint.shipped(architecture, CLASSES, SIZE))
    norms = [layer for layer in network.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    head = network.model[-1]
    with torch.no_grad():
        for layer in norms:
            layer.momentum = None  # running figures become plain means over all images
        for image in IMAGES:
            network(as_batch(image))
        network.eval()
        for box, logit in zip(head.cv2, head.cv3, strict=True):
            # Boxes of a few cells: low distances are likelier, or the distance itself is low.
            box[-1].bias.copy_(
                -torch.arange(head.reg_max).repeat(4) if head.reg_max > 1 else torch.tensor(1.0)
            )
            box[-1].weight.mul_(0.1 if head.reg_max > 1 else 0)
            logit[-1].weight.normal_()
        raw = network(as_batch(IMAGES[0]))[1]
        spread = raw.get("one2many", raw)["scores"].std()
        for logit in head.cv3:
            logit[-1].weight.div_(spread)
            logit[-1].bias.fill_(-0.5)
        if hasattr(
            head, "proto"
        ):  # masks that fill their boxes: `predict` drops boxes whose mask is empty
            head.proto.cv3.bn.bias.fill_(5)
            for mask in head.cv4:
                mask[-1].weight.zero_()
                mask[-1].bias.fill_(1)
    return network


def ultralytics_file(network, path):
    """A checkpoint as Ultralytics writes it."""
    task = "segment" if type(network.model[-1]).__name__ == "Segment" else "detect"
    held = {
        "model": copy.deepcopy(network).half(),
        "ema": None,
        "train_args": {"imgsz": SIZE, "task": task},
    }
    torch.save(held, path)
    return path


@pytest.fixture(
    scope="module", params=slow_but(("yolov8n", "yolo26n"), ["yolov8n", "yolo26n", "yolov8n-seg"])
)
def any_pt(request, tmp_path_factory):
    return ultralytics_file(
        untrained(request.param), tmp_path_factory.mktemp("any") / f"{request.param}.pt"
    )


@pytest.fixture(scope="module")
def network():
    return untrained("yolov8n")


@pytest.fixture(scope="module")
def pt(network, tmp_path_factory):
    return ultralytics_file(network, tmp_path_factory.mktemp("pt") / "best.pt")


@pytest.fixture(scope="module")
def weights(network, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "network.safetensors"
    save_checkpoint(
        path, network, YoloBlueprint.shipped("yolov8n", CLASSES, SIZE), {"data_digest": "abc"}
    )
    return path


@pytest.fixture(scope="module")
def detector(weights):
    return create(weights)


@pytest.fixture(scope="module")
def regions(detector, images):
    return detector.detect(images)


def create(weights, **params):
    return detectors.create(
        "yolo", weights=weights, **{"score_threshold": THRESHOLD, "device": "cpu", **params}
    )


def rewritten(weights, path, changed=None, **metadata):
    """A copy of farther's checkpoint with changed metadata or weights; None removes a field."""
    with safe_open(weights, framework="pt") as file:
        fields = {**file.metadata(), **metadata}
    save_file(
        {**load_file(weights), **(changed or {})},
        path,
        {k: v for k, v in fields.items() if v is not None},
    )
    return path


def test_boxes_scores_and_labels_are_those_of_predict(any_pt, images, tmp_path):
    from ultralytics import YOLO

    found = create(any_pt, max_detections=30).detect(images)
    model = YOLO(any_pt, task="segment" if "seg" in any_pt.stem else "detect")
    asked = {
        "conf": THRESHOLD,
        "iou": 0.7,
        "max_det": 30,
        "imgsz": SIZE,
        "device": "cpu",
        "project": str(tmp_path),
    }
    for number, image in enumerate(images):
        own = found[found.image_id == str(number)]
        theirs = model.predict(image[..., ::-1], verbose=False, **asked)[0].boxes
        assert len(own) == len(theirs) > 0
        np.testing.assert_allclose(own.box, theirs.xyxy.numpy(), atol=1e-4 * max(image.shape))
        np.testing.assert_allclose(own.score, theirs.conf.numpy(), rtol=1e-4)
        np.testing.assert_array_equal(own.label, theirs.cls.numpy())


def test_proposals_are_those_of_predict_at_a_low_threshold_without_classes(pt, images, tmp_path):
    from ultralytics import YOLO

    detector, model = create(pt), YOLO(pt, task="detect")
    selection = ProposalSelection(most=40, smallest=0, objectness="class_score", size=0)
    prepared = [detector.prepare(image) for image in images]
    found = detector.forward_proposals(prepared, list("abcde"), {"every": selection})[1]
    asked = {
        "conf": 0.001,
        "iou": 0.5,
        "agnostic_nms": True,
        "max_det": 40,
        "imgsz": SIZE,
        "device": "cpu",
    }
    for image_id, image in zip("abcde", images, strict=True):
        own = found[found.image_id == image_id]
        theirs = model.predict(image[..., ::-1], verbose=False, project=str(tmp_path), **asked)[
            0
        ].boxes
        assert len(own) == len(theirs) > 0
        np.testing.assert_allclose(own.box, theirs.xyxy.numpy(), atol=1e-4 * max(image.shape))
        np.testing.assert_allclose(own.score, theirs.conf.numpy(), rtol=1e-4)
        np.testing.assert_array_equal(own.label, theirs.cls.numpy())


def test_image_size_of_a_pt_file_is_the_one_it_was_trained_with(pt, images):
    np.testing.assert_array_equal(
        create(pt).detect(images[:1]).box, create(pt, image_size=SIZE).detect(images[:1]).box
    )


def test_scores_are_the_sigmoid_of_the_label_s_logit_and_no_other_class_has_a_higher_one(regions):
    own = regions.logits[np.arange(len(regions)), regions.label]
    np.testing.assert_allclose(1 / (1 + np.exp(-own)), regions.score, rtol=1e-5)
    np.testing.assert_array_equal(own, regions.logits.max(axis=1))


def test_logits_stand_at_an_anchor_of_the_head_whose_box_is_the_detection_s(
    weights, regions, images
):
    whole = load_network(weights, read_checkpoint(weights))
    with torch.inference_mode():
        decoded, raw = whole(
            as_batch(images[3])
        )  # 64 × 64 pixels become 96 × 96: neither padded nor moved
    x, y, w, h = decoded[0, :4].numpy() * 64 / 96
    corners = np.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], axis=1).clip(0, 64)
    own = regions[regions.image_id == "3"]
    assert len(own) > 3
    for box, logits in zip(own.box, own.logits, strict=True):
        at_box = np.abs(corners - box).max(axis=1) < 1e-3
        distance = np.abs(raw["scores"][0].T.numpy()[at_box] - logits).max(axis=1)
        assert distance.min() < 1e-4


def test_latent_is_the_mean_over_the_box_of_the_backbone_s_last_layer(weights, regions, images):
    whole = load_network(weights, read_checkpoint(weights))
    seen = []
    whole.model[9].register_forward_hook(lambda layer, given, out: seen.append(out))
    with torch.inference_mode():
        whole(as_batch(images[0]))
    # 90 × 120 pixels become 72 × 96, with 12 rows of padding above and below; a cell of the last
    # layer is 32 pixels.
    own = regions[regions.image_id == "0"]
    inside = (own.box > 0).all(axis=1) & (own.box < (120, 90, 120, 90)).all(
        axis=1
    )  # where clipping changed nothing
    assert inside.sum() > 3
    boxes = own.box[inside] * 0.8 + np.float32([0, 12, 0, 12])
    pooled = roi_align(seen[0], [torch.from_numpy(boxes)], 9, 1 / 32, 2, aligned=True).mean(
        dim=(2, 3)
    )
    np.testing.assert_allclose(own.latent[inside], pooled.numpy(), rtol=1e-3, atol=1e-4)


def test_there_is_no_background_and_no_last_linear_layer(regions):
    assert regions.classes == CLASSES
    assert (regions.background_index, regions.activation) == (None, "sigmoid")
    assert not regions.has("features")
    assert not regions.has("last_layer")
    assert regions.has("latent")


def test_an_image_s_detections_do_not_depend_on_its_neighbours_in_the_batch(
    detector, images, regions
):
    alone = detector.detect(images, batch_size=1)
    np.testing.assert_array_equal(alone.image_id, regions.image_id)
    for image_id in np.unique(alone.image_id):
        # Scores that differ by a rounding may change places; one box can have several labels.
        here, there = (np.flatnonzero(of.image_id == image_id) for of in (alone, regions))
        apart = np.abs(alone.box[here, None] - regions.box[there]).sum(2)
        there = there[(apart + 1e6 * (alone.label[here, None] != regions.label[there])).argmin(1)]
        assert len(set(there)) == len(here)
        np.testing.assert_allclose(alone.box[here], regions.box[there], atol=1e-2)
        np.testing.assert_allclose(alone.logits[here], regions.logits[there], rtol=1e-4, atol=1e-4)


def test_best_detections_come_first_and_no_more_than_asked_for(weights, images):
    few = create(weights, max_detections=3).detect(images)
    for number in range(len(images)):
        scores = few.score[few.image_id == str(number)]
        assert 0 < len(scores) <= 3
        assert (np.diff(scores) <= 0).all()


def test_an_image_without_detections_has_no_rows_but_all_columns(weights, images):
    none = create(weights, score_threshold=1.0).detect(images)
    assert len(none) == 0
    assert none.logits.shape == (0, 4)
    assert none.has("latent")


def test_gradients_reach_the_image_after_detections_without_any(network, images):
    network.model[-1].shape = None  # as it was loaded
    with torch.inference_mode():
        run(network, as_batch(images[0]))
    batch = as_batch(images[0]).requires_grad_()
    run(network, batch).decoded[:, :4].sum().backward()
    assert batch.grad.abs().max() > 0


def test_sides_are_padded_to_multiples_of_the_stride_and_image_size_rounds_up_to_one():
    wide = letterbox(np.full((50, 100, 3), 200, np.uint8), 100, 32)
    assert wide.pixels.shape == (64, 128, 3)  # 100 becomes 128, so 50 becomes 64
    narrow = letterbox(np.full((100, 30, 3), 200, np.uint8), 64, 32).pixels
    assert narrow.shape == (64, 32, 3)  # 30 becomes 19; 6 columns of grey before and 7 after
    assert (narrow[:, :6] == 114).all()
    assert (narrow[:, 6:25] == 200).all()
    assert (narrow[:, 25:] == 114).all()


def test_half_precision_halves_the_file_and_keeps_what_the_network_says(pt, weights, images):
    assert weights.stat().st_size < 8e6
    assert all(t.dtype != torch.float32 for t in load_file(weights).values())
    for own, theirs in zip(
        create(weights).detect(images).columns().values(),
        create(pt).detect(images).columns().values(),
        strict=True,
    ):
        np.testing.assert_array_equal(own, theirs)


def test_a_lower_precision_changes_scores_little(detector, weights, images):
    low = create(weights, precision="bfloat16").detect(images, batch_size=1)
    high = detector.detect(images, batch_size=1)
    assert low.logits.dtype == np.float32
    assert abs(low.score[0] - high.score[0]) < 0.05


def test_a_pickle_that_names_foreign_code_is_refused_by_that_name_and_runs_nothing(tmp_path):
    class Malicious:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    torch.save({"model": Malicious()}, tmp_path / "evil.pt")
    with pytest.raises(DataError, match=r"evil.pt: names 'posix.mkdir'"):
        create(tmp_path / "evil.pt").header()
    assert not (tmp_path / "made").exists()


def test_a_pickle_that_names_what_no_program_can_is_refused(tmp_path):
    torch.save({"model": PurePosixPath("x")}, tmp_path / "whole.pt")
    with (
        zipfile.ZipFile(tmp_path / "whole.pt") as whole,
        zipfile.ZipFile(tmp_path / "damaged.pt", "w") as damaged,
    ):
        for name in whole.namelist():
            damaged.writestr(name, whole.read(name).replace(b"PurePosixPath", b"PurePosix\0ath"))
    with pytest.raises(
        DataError,
        match=r"damaged.pt: names 'pathlib\.(_local\.)?PurePosix\\x00ath', which no network",
    ):
        create(tmp_path / "damaged.pt").header()


def test_even_known_names_in_a_pickle_are_never_called(tmp_path):
    class Malicious:
        def __reduce__(self):
            return Path.touch, (tmp_path / "made",)

    class Sly:
        def __reduce__(self):
            return np.save, (str(tmp_path / "made.npy"), [1])

    for culprit in (Malicious(), Sly()):
        torch.save({"model": culprit}, tmp_path / "evil.pt")
        with pytest.raises(DataError):
            create(tmp_path / "evil.pt").header()
    assert [file.name for file in tmp_path.iterdir()] == ["evil.pt"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"activation": "__import__('os').mkdir('made')"}, "is not like 'nn.SiLU"),
        ({"head": [[-1, 1, "torch_safe_load", ["evil.pt"]]]}, "'torch_safe_load' is not a layer"),
        (
            {"head": [[-1, 1, "DetectionModel", ["yolov8n.yaml"]]]},
            "'DetectionModel' is not a layer",
        ),
        ({"head": [[-1, 1, "TorchVision", [64, "resnet18"]]]}, "'TorchVision' is not a layer"),
        (
            {"head": [[[15, 18, 21], 1, "RTDETRDecoder", ["nc"]]]},
            "it is an RT-DETR: let Ultralytics write its boxes",
        ),
        ({"head": [[[15, 18, 21], 1, "Odd", ["nc"]]]}, "'Odd' is not a layer"),
        ({"head": "Detect"}, "'head' is not a list"),
        ({"head": [[[3, 99], 1, "Detect", ["nc"]]]}, "cannot be built"),
    ],
)
def test_an_architecture_that_is_more_or_less_than_layers_is_refused(
    weights, tmp_path, images, change, problem
):
    with safe_open(weights, framework="pt") as file:
        architecture = {**json.loads(file.metadata()["architecture"]), **change}
    odd = rewritten(weights, tmp_path / "odd.safetensors", architecture=json.dumps(architecture))
    with pytest.raises(DataError, match=problem) as raised:
        create(odd).detect(images[:1])
    assert str(odd) in str(raised.value)


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ({"format": "farther.faster_rcnn"}, "field 'format': expected 'farther.yolo'"),
        ({"classes": None}, "field 'classes': the field is missing"),
        ({"classes": "cat"}, "field 'classes': not JSON"),
        ({"classes": "[]"}, "field 'classes': expected a list of names"),
        ({"image_size": "0"}, "field 'image_size': expected a number of pixels"),
        ({"architecture": "[]"}, "field 'architecture': expected a description of layers"),
    ],
)
def test_wrong_metadata_is_named(weights, tmp_path, metadata, problem):
    with pytest.raises(DataError, match=problem):
        create(rewritten(weights, tmp_path / "odd.safetensors", **metadata)).header()


def test_a_network_for_other_classes_than_its_checkpoint_names_does_not_load(
    weights, tmp_path, images
):
    odd = rewritten(weights, tmp_path / "odd.safetensors", classes=json.dumps(["cat", "dog"]))
    with pytest.raises(DataError, match=r"do not fit their architecture.*size mismatch"):
        create(odd).detect(images[:1])


def test_a_fused_network_does_not_load(network, tmp_path, images):
    fused = ultralytics_file(copy.deepcopy(network).fuse(verbose=False), tmp_path / "fused.pt")
    with pytest.raises(DataError, match=r"before fuse\(\)"):
        create(fused).detect(images[:1])


@pytest.mark.parametrize(
    "name", ["absent.pt", "absent.safetensors", "text.pt", "text.safetensors", "tensors.pt"]
)
def test_what_is_no_checkpoint_is_an_error_that_names_the_file(tmp_path, name):
    if name.startswith("text"):
        (tmp_path / name).write_text("not a network")
    if name == "tensors.pt":
        torch.save({"weight": torch.zeros(3)}, tmp_path / name)
    with pytest.raises(DataError, match=name):
        create(tmp_path / name).header()


def test_boxes_turned_inside_out_are_left_out(tmp_path, images):
    # YOLO26 gives distances to the four sides as they are; nothing keeps them from being negative.
    network = untrained("yolo26n")
    with torch.no_grad():
        for branch in network.model[-1].cv2:
            branch[-1].weight.zero_()
            branch[-1].bias.copy_(torch.tensor([-1.0, 1.0, -1.0, 1.0]))
    assert len(create(ultralytics_file(network, tmp_path / "odd.pt")).detect(images)) == 0


def test_damaged_weights_are_an_error_not_an_empty_answer(weights, tmp_path, images):
    name = "model.0.conv.weight"
    nan = {name: torch.full_like(load_file(weights)[name], torch.nan)}
    with pytest.raises(DataError, match="not finite"):
        create(rewritten(weights, tmp_path / "nan.safetensors", nan)).detect(images[:1])


@pytest.mark.parametrize("name", ["yolov99", "../yolov8n", "https://example.org/yolov8n"])
def test_an_architecture_that_does_not_ship_is_an_error(name):
    with pytest.raises(ParameterError, match="Ultralytics has no architecture"):
        YoloBlueprint.shipped(name, CLASSES, SIZE)


def test_a_size_letter_scales_the_family_s_description():
    nano, small = (
        YoloBlueprint.shipped(name, CLASSES, SIZE).architecture for name in ("yolov8n", "yolov8s")
    )
    assert (nano["scale"], small["scale"]) == ("n", "s")
    assert nano["backbone"] == small["backbone"]
