"""YOLO-World and YOLOE with set classes, beside Ultralytics' own `predict`."""

import copy

import numpy as np
import pytest
import torch
from tests.support.cases import slow_but
from torch import nn
from ultralytics import YOLOE, YOLOWorld
from ultralytics.nn.tasks import WorldModel, YOLOEModel, YOLOESegModel

from farther import detectors
from farther.detectors.known_classes import with_class_names
from farther.detectors.networks.replay import Dropout
from farther.errors import DataError

CLASSES, SIZE, THRESHOLD = ["cat", "red dog", "owl", "thing"], 96, 0.3
#: Layers of the backbone and the neck; layer 8 has the coarse maps, layer 7 the fine ones.
BACKBONE = [[-1, 1, "Conv", [16, 3, 2]], [-1, 1, "Conv", [16, 3, 2]], [-1, 1, "Conv", [16, 3, 2]]]
BACKBONE += [[-1, 1, "Conv", [32, 3, 2]], [-1, 1, "Conv", [32, 3, 2]]]
ATTENTION = [[3, 1, "C2fAttn", [32, 16, 1]], [4, 1, "C2fAttn", [32, 16, 1]]]
POOLED = [ATTENTION[0], [[2, 5, 4], 1, "ImagePoolingAttn", [16]], ATTENTION[1]]
#: Networks by name: class, neck and head, and Ultralytics' program.
KINDS = {
    "world": (WorldModel, [*POOLED, [[2, 5, 7], 1, "WorldDetect", ["nc", 512, False]]], YOLOWorld),
    "worldv2": (
        WorldModel,
        [*ATTENTION, [[2, 5, 6], 1, "WorldDetect", ["nc", 512, True]]],
        YOLOWorld,
    ),
    "yoloe": (YOLOEModel, [[[2, 3, 4], 1, "YOLOEDetect", ["nc", 512, True]]], YOLOE),
    "yoloe-seg": (YOLOESegModel, [[[2, 3, 4], 1, "YOLOESegment", ["nc", 8, 16, 512, True]]], YOLOE),
}


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(5)
    return [
        rng.integers(0, 256, size, dtype=np.uint8)
        for size in ((90, 120, 3), (128, 80, 3), (90, 120, 3))
    ]


def untrained(kind):
    """A network whose random answers differ from place to place, with its classes set."""
    torch.manual_seed(2)
    model, head, _ = KINDS[kind]
    description = {
        "nc": 80,
        "scales": {"n": [1.0, 1.0, 1024]},
        "scale": "n",
        "yaml_file": "yolov8n-world.yaml",
    }
    network = model({**description, "backbone": BACKBONE, "head": head}, ch=3, verbose=False).eval()
    text = nn.functional.normalize(torch.randn(1, len(CLASSES), 512), dim=-1)
    if kind.startswith("yoloe"):
        network.set_classes(CLASSES, text)
    else:  # as Ultralytics' `set_classes`, without its text encoder
        network.txt_feats, network.names, network.model[-1].nc = text, list(CLASSES), len(CLASSES)
    head = network.model[-1]
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.weight, 1, 3)
                nn.init.normal_(module.bias)
        for box, contrast in zip(head.cv2, head.cv4, strict=True):
            box[-1].bias.copy_(-torch.arange(16).repeat(4))
            contrast.bias.uniform_(-1, 0)
            contrast.logit_scale.fill_(3.0 if kind == "world" else -0.5)
    return network


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Checkpoints as Ultralytics writes them, by kind, made when first asked for."""
    made = {}

    def file(kind):
        if kind not in made:
            made[kind] = write(untrained(kind), tmp_path_factory.mktemp("text") / f"{kind}.pt")
        return made[kind]

    return file


def write(network, path):
    task = {"imgsz": SIZE, "task": "segment" if "seg" in path.name else "detect"}
    torch.save({"model": copy.deepcopy(network).half(), "ema": None, "train_args": task}, path)
    return path


def create(weights, **params):
    return detectors.create(
        "yolo", weights=weights, **{"score_threshold": THRESHOLD, "device": "cpu", **params}
    )


@pytest.mark.parametrize("kind", slow_but(("worldv2", "yoloe-seg"), sorted(KINDS)))
def test_boxes_scores_and_labels_are_those_of_predict(kind, files, images, tmp_path):
    regions = create(files(kind), max_detections=30).detect(images)
    model = KINDS[kind][2](files(kind))
    asked = {
        "conf": THRESHOLD,
        "iou": 0.7,
        "max_det": 30,
        "imgsz": SIZE,
        "device": "cpu",
        "project": str(tmp_path),
    }
    for number, image in enumerate(images):
        own = regions[regions.image_id == str(number)]
        theirs = model.predict(image[..., ::-1], verbose=False, **asked)[0].boxes
        assert len(own) == len(theirs) > 0
        assert len(set(own.score)) > 1
        np.testing.assert_allclose(own.box, theirs.xyxy.numpy(), atol=1e-4 * max(image.shape))
        np.testing.assert_allclose(own.score, theirs.conf.numpy(), rtol=1e-4)
        np.testing.assert_array_equal(own.label, theirs.cls.numpy())


@pytest.mark.parametrize("kind", slow_but(("worldv2", "yoloe-seg"), sorted(KINDS)))
def test_text_embeddings_are_a_last_layer_of_all_levels(kind, files, images):
    detector = create(files(kind))
    regions = detector.detect(images)
    weight = detector.header().weight
    assert weight.shape == (4, 513)
    np.testing.assert_allclose(np.linalg.norm(weight[:, :-1], axis=1), 1, rtol=1e-3)
    np.testing.assert_allclose(regions.features @ weight.T, regions.logits, atol=1e-4)
    assert detector.only(["latent"]).detect(images[0]).features is None
    assert create(files(kind), logits="log_sigmoid").header().weight is None


def test_rows_can_be_computed_again(files, images):
    detector = create(files("world"))
    replay = detector.replay([detector.prepare(image) for image in images])
    regions = replay.regions(["a", "b", "c"])
    again = replay.recompute()
    np.testing.assert_array_equal(again.logits.numpy(), regions.logits)
    np.testing.assert_array_equal(again.features.numpy(), regions.features)
    masked = replay.recompute(dropout=Dropout(0.5, 0, 0, ["a", "b", "c"]))
    assert np.abs(masked.logits.numpy() - regions.logits).max() > 0.1


def test_a_class_that_means_unknown_objects_is_mapped_to_null(files):
    header = with_class_names(create(files("worldv2")).header(), {"thing": None})
    assert (header.unknown_columns, header.known_classes) == ((3,), ("cat", "red dog", "owl"))
    assert len(header.weight) == 4


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (
            "yoloe",
            lambda network: delattr(network, "pe"),
            "text embeddings of its 4 classes, which are not there: set",
        ),
        (
            "world",
            lambda network: setattr(network, "names", ["a", "b"]),
            r"2 classes, which are of shape \(1, 4, 512\)",
        ),
        ("worldv2", lambda network: network.fuse(verbose=False), "saved before fuse"),
        (
            "worldv2",
            lambda network: network.yaml["backbone"][0].__setitem__(1, 10**6),
            "expected at most",
        ),
    ],
)
def test_networks_whose_classes_are_not_set_or_that_were_changed_are_refused(
    kind, change, message, tmp_path
):
    network = untrained(kind)
    change(network)
    with pytest.raises(DataError, match=message):
        create(write(network, tmp_path / "x.pt")).header()
