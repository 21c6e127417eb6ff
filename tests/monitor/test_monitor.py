"""The monitor beside the pipeline: equal detections, scores and decisions for every adapter."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from safetensors.torch import save_file
from tests.detectors.test_open_vocabulary import write_folder
from tests.monitor.conftest import DEMO, Deployed, make, scene
from tests.support.cases import slow_but
from tests.support.messages import ABSENT
from torchvision.models.detection import FCOS, RetinaNet
from torchvision.models.detection.anchor_utils import AnchorGenerator
from transformers import AutoConfig, AutoModelForImageClassification

from farther.detectors import dense
from farther.detectors.networks.architectures import CompactPyramid
from farther.errors import DataError, ParameterError
from farther.monitor import Monitor
from farther.tables import Regions

CLASSES = ("cat", "dog", "fox")
KNN = {"knn": {"k": 2}}
LATENT = {"lard": {"method": "lard_mahalanobis", "components": 4}}


def demo(name: str) -> str:
    return str(DEMO / f"{name}.safetensors")


def one_stage(network: torch.nn.Module, folder) -> str:
    """A file of an untrained network whose logits differ between images."""
    with torch.no_grad():
        network.head.classification_head.cls_logits.weight.mul_(30)
        network.head.classification_head.cls_logits.bias.fill_(-1)
    torch.save(network.state_dict(), folder / "network.pth")
    return str(folder / "network.pth")


def small(kind: type) -> torch.nn.Module:
    """RetinaNet or FCOS with strides 8 to 32 and few channels."""
    pyramid = CompactPyramid((8, 8, 16, 16, 16), (1, 1, 1, 1), 32)
    sizes = ((8,), (16,), (32,)) if kind is FCOS else ((8, 12, 16), (16, 24, 32), (32, 48, 64))
    anchors = AnchorGenerator(sizes, ((1.0,) if kind is FCOS else (0.5, 1.0, 2.0),) * 3)
    network = kind(pyramid, len(CLASSES), min_size=64, max_size=96, anchor_generator=anchors)
    if kind is FCOS:
        torch.nn.init.constant_(
            network.head.regression_head.bbox_reg.bias, 1.5
        )  # else boxes have no area
    for layer in network.head.classification_head.conv.modules():
        if isinstance(layer, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(
                layer.weight
            )  # else nothing of the image reaches the logits
    return network


def use_small_networks(patch: pytest.MonkeyPatch) -> None:
    """Lets the adapters of RetinaNet and FCOS compute `small` in the place of a ResNet-50."""
    for kind, name in ((RetinaNet, "retinanet_resnet50_fpn"), (FCOS, "fcos_resnet50_fpn")):
        builder = dense.BUILDERS[name]
        reduced = dataclasses.replace(builder, build=lambda _, kind=kind: small(kind))
        patch.setitem(dense.BUILDERS, name, reduced)


def retinanet(folder) -> str:
    torch.manual_seed(5)
    return one_stage(small(RetinaNet), folder)


def fcos(folder) -> str:
    torch.manual_seed(5)
    return one_stage(small(FCOS), folder)


def vit(folder) -> str:
    """A folder as transformers saves it."""
    small = {
        "image_size": 32,
        "patch_size": 8,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_attention_heads": 2,
    }
    config = AutoConfig.for_model(
        "vit", **small, num_hidden_layers=4, id2label=dict(enumerate(CLASSES))
    )
    torch.manual_seed(0)
    AutoModelForImageClassification.from_config(config).save_pretrained(folder / "vit")
    processor = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}}
    (folder / "vit/preprocessor_config.json").write_text(json.dumps(processor))
    return str(folder / "vit")


def clip(folder) -> str:
    """A folder as open_clip reads it."""
    vision = {"image_size": 32, "layers": 4, "width": 16, "head_width": 8, "patch_size": 8}
    text = {"context_length": 16, "vocab_size": 49408, "width": 8, "heads": 2, "layers": 1}
    model = {"embed_dim": 8, "vision_cfg": vision, "text_cfg": text}
    (folder / "clip").mkdir()
    config = {"model_cfg": model, "preprocess_cfg": {"interpolation": "bicubic"}}
    (folder / "clip/open_clip_config.json").write_text(json.dumps(config))
    torch.manual_seed(0)
    save_file(open_clip.CLIP(**model).state_dict(), folder / "clip/open_clip_model.safetensors")
    return str(folder / "clip")


def owlv2(folder) -> str:
    """A folder as transformers saves it, with a file of negative prompts."""
    (folder / "owlv2").mkdir()
    (folder / "owlv2/negatives.txt").write_text("thing\n")
    return str(write_folder(folder / "owlv2", "owlv2"))


@dataclass
class Kind:
    """An adapter: its checkpoint, its parameters, methods of each kind of column, and t*."""

    weights: Any
    methods: dict[str, dict[str, Any]]
    params: dict[str, Any]
    operating: float
    more: dict[str, Any]


SMALL = {"min_size": 64, "max_size": 96, "classes": list(CLASSES), "score_threshold": 0.3}
ODIN = {"odin": {"method": "temperature_scaling", "temperature": 1000, "pass": "perturbed"}}
DROPOUT = {"mutual_information": {"pass": "dropout"}}
KINDS = {
    "faster_rcnn": Kind(
        lambda folder: demo("voc-vos"),
        {
            "msp": {},
            **KNN,
            "vos": {"output": "logistic"},
            "mahalanobis": {},
            "vim": {"dim": 20},
            **LATENT,
        },
        {"score_threshold": 0.05},
        0.2,
        {"classes": {"cat": "kitten"}},
    ),
    "yolo": Kind(
        lambda folder: demo("voc-yolov8"),
        {
            "energy": {},
            **LATENT,
            "stage": {"method": "lard_mahalanobis", "layer": "model.4", "components": 4},
            **DROPOUT,
        },
        {"score_threshold": 0.005, "latents": ["model.4"]},
        0.01,
        {"passes": {"dropout": {"passes": 3, "rate": 0.2}}},
    ),
    "detr": Kind(
        lambda folder: demo("voc-rtdetr"),
        {"msp": {}, **KNN, **LATENT},
        {"score_threshold": 0.01},
        0.05,
        {"classes": {"boat": None}},
    ),
    "retinanet": Kind(retinanet, {"msp": {}, **LATENT}, SMALL, 0.4, {}),
    "fcos": Kind(fcos, {"msp": {}, **LATENT}, SMALL, 0.4, {}),
    "classifier": Kind(
        lambda folder: demo("drawings-resnet-1"),
        {"msp": {}, **KNN, "mds_ensemble": {"layer": ["layer1", "features"]}, **ODIN},
        {"latents": ["layer1", "layer2"]},
        0.0,
        {"passes": {"perturbed": {"kind": "perturb"}}},
    ),
    "open_vocabulary": Kind(
        owlv2,
        {"energy": {}, **KNN, "native": {}},
        {"classes": list(CLASSES), "unknown": "owlv2/negatives.txt"},
        0.1,
        {},
    ),
    "transformers_classifier": Kind(vit, {"energy": {}, **KNN, **LATENT}, {}, 0.0, {}),
    "open_clip_classifier": Kind(clip, {"energy": {}, **KNN}, {"classes": list(CLASSES)}, 0.0, {}),
}
#: Columns that every detector has.
USUAL = ["image_id", "region_id", "box", "score", "label", "logits"]


#: A detector of each way to find regions: an image, a prompt, proposals, cells.
QUICK = ("classifier", "open_vocabulary", "faster_rcnn", "yolo")


@pytest.fixture(scope="module")
def small_networks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        use_small_networks(patch)
        yield


@pytest.fixture(scope="module", params=slow_but(QUICK, sorted(KINDS), drawn=3))
def deployed(request, tmp_path_factory, small_networks) -> Deployed:
    kind, folder = KINDS[request.param], tmp_path_factory.mktemp(request.param)
    params = {**kind.params, "device": "cpu"}
    if "unknown" in params:
        params["unknown"] = str(folder / params["unknown"])
    entry = {
        "adapter": request.param,
        "weights": kind.weights(folder),
        "params": params,
        **kind.more,
    }
    return make(folder, entry, kind.methods, kind.operating)


@pytest.fixture(scope="module")
def bundles(deployed) -> dict[str, Path]:
    """Folder of the bundle of each method."""
    return {name: deployed.bundle(name) for name in deployed.methods}


@pytest.fixture(scope="module")
def monitors(bundles) -> dict[str, Monitor]:
    """The monitor of each method."""
    return {name: Monitor.load(folder, device="cpu") for name, folder in bundles.items()}


@pytest.fixture(scope="module")
def monitor(monitors) -> Monitor:
    """The monitor of the first method."""
    return next(iter(monitors.values()))


def test_on_the_pipelines_batches_the_monitor_finds_and_scores_what_the_pipeline_did(
    deployed, monitors
):
    for name, monitor in monitors.items():
        found = {}
        for ids, files in deployed.batches():
            found |= {one.image_id: one for one in monitor(files, ids, len(files))}
        regions, scores = deployed.stored(name)
        assert len(regions) > 5
        together = Regions.concatenate(
            [found[image].regions for image in deployed.images().image_id]
        )
        columns = monitor.bundle.method.columns
        assert together.header.classes == regions.header.classes
        if monitor.bundle.info.method.pass_name is None:
            assert sorted(together.frame.columns) == sorted([*USUAL, *columns])
        for column in ("image_id", *USUAL[2:], *columns):
            np.testing.assert_array_equal(
                together.array(column), regions.array(column), strict=True
            )
        score = np.concatenate([found[image].score for image in deployed.images().image_id])
        np.testing.assert_allclose(
            score, scores, rtol=0, atol=1e-6 * scores.std()
        )  # scored beside other rows
        unknown = np.concatenate([found[image].unknown for image in deployed.images().image_id])
        np.testing.assert_array_equal(unknown, score < monitor.bundle.info.tau)
        assert unknown.any()


def test_scores_on_the_networks_device_are_those_of_numpy(bundles, monkeypatch):
    monkeypatch.setattr("farther.monitor.monitor.has_float64", lambda _: True)  # as a GPU has it
    for folder in bundles.values():
        monitor = Monitor.load(folder, device="cpu")
        method = monitor.bundle.method
        assert (monitor._score_module is None) == bool(method.no_torch_form())
        images = [scene(number) for number in range(200, 204)]  # τ is none of their scores
        for one in monitor(images):
            expected = method.score(one.regions)
            largest = 1e-6 * max(1.0, np.abs(expected).max(initial=0.0))
            np.testing.assert_allclose(one.score, expected, rtol=0, atol=largest)
            np.testing.assert_array_equal(one.unknown, expected < monitor.bundle.info.tau)


def test_calibration_and_acceptance_are_those_of_the_self_aware_detector(deployed, monitor):
    stored, names = Regions.read(deployed.files.regions("val")), sorted(deployed.images().image_id)
    self_aware = monitor.bundle.self_aware
    rejected = self_aware.rejected(stored, names)
    assert 0 < len(rejected) < len(names)
    for ids, files in deployed.batches():
        for one in monitor(files, ids, len(files)):
            assert one.accepted == (one.image_id not in rejected)
            assert one.uncertainty == self_aware.uncertainty(
                stored[stored.image_id == one.image_id], [one.image_id]
            )
            names_of = one.classes
            expected = [
                self_aware.calibrators.get(c, float)(s)  # a negative prompt has none
                for c, s in zip(names_of, one.regions.score.astype(float), strict=True)
            ]
            np.testing.assert_array_equal(one.confidence, np.array(expected, np.float32))


def test_an_image_is_a_path_an_array_or_a_pil_image_alone_or_in_a_batch_or_a_stream(tmp_path):
    from PIL import Image

    kind = KINDS["classifier"]
    entry = {
        "adapter": "classifier",
        "weights": kind.weights(tmp_path),
        "params": {"device": "cpu"},
    }
    monitor = make(tmp_path, entry, {"msp": {}}, 0.0).monitor("msp")
    pixels = scene(0)
    Image.fromarray(pixels).save(tmp_path / "one.png")
    alone = monitor(pixels)
    for other in (tmp_path / "one.png", str(tmp_path / "one.png"), Image.fromarray(pixels)):
        assert monitor(other).score == pytest.approx(alone.score, rel=1e-9)
    assert [one.image_id for one in monitor(np.stack([pixels, pixels]))] == ["0", "1"]
    assert [one.image_id for one in monitor([tmp_path / "one.png"])] == [str(tmp_path / "one.png")]
    assert monitor(pixels, "name").image_id == "name"
    endless = monitor.stream((f"frame {n}", pixels) for n in itertools.count())
    assert next(endless).image_id == "frame 0"
    with pytest.raises(ParameterError, match="2 images, but 1 image_ids"):
        monitor([pixels, pixels], ["a"])
    for wrong in (0, True, 2.5, "8", None):
        with pytest.raises(ParameterError, match="batch_size: expected"):
            monitor([pixels], batch_size=wrong)
        with pytest.raises(ParameterError, match="batch_size: expected"):
            monitor.stream([pixels], batch_size=wrong)
    for wrong in (0, True, "8"):
        with pytest.raises(ParameterError, match="max_pixels: expected"):
            Monitor(monitor.bundle, "cpu", max_pixels=wrong)
    with pytest.raises(ParameterError, match="two images of a batch are called 'a'"):
        monitor([pixels, pixels], ["a", "a"])
    failures = []
    given = [("a", pixels), ("b", tmp_path / "none.png"), ("c", pixels / 255), ("d", pixels)]
    found = list(
        monitor.stream(given, failed=lambda name, error: failures.append((name, str(error))))
    )
    assert [one.image_id for one in found] == ["a", "d"]
    assert [name for name, _ in failures] == ["b", "c"]
    assert "does not exist" in failures[0][1]
    with pytest.raises(DataError, match=ABSENT):
        list(monitor.stream(given))

    grey = np.asarray(Image.fromarray(pixels).convert("L"))
    in_colour = np.stack([grey, grey, grey], axis=2)
    assert monitor(grey).score == pytest.approx(monitor(in_colour).score, rel=1e-9)
    mirrored = np.ascontiguousarray(pixels[:, ::-1])
    assert monitor(mirrored[:, ::-1]).score == pytest.approx(alone.score, rel=1e-9)
    for image in (None, b"a", 3, torch.zeros(3, 8, 8)):
        with pytest.raises(DataError, match=r"image '0': expected a path.*, found "):
            monitor(image)
    with pytest.raises(DataError, match=r"image '1': .* found None"):
        monitor([pixels, None])
    with pytest.raises(DataError, match=r"image '1': .* found None"):
        monitor.bundle.detector("cpu").detect([pixels, None])

    small = Monitor(monitor.bundle, "cpu", max_pixels=10)
    with pytest.raises(DataError, match="more than the limit of 10: raise max_pixels of the Moni"):
        small(tmp_path / "one.png")
    assert small(pixels).score == pytest.approx(alone.score, rel=1e-9)


def test_results_become_those_of_supervision_and_coco(monitor):
    for one in monitor([scene(n) for n in range(100, 106)]):
        detections = one.to_supervision()
        assert len(detections) == len(one)
        np.testing.assert_array_equal(detections.xyxy, one.regions.box)
        assert list(detections.data) == ["class_name", "unknown", "id_score"]
        np.testing.assert_array_equal(detections.data["id_score"], one.score)
        np.testing.assert_array_equal(
            detections.data["id_score"] < monitor.bundle.info.tau, one.unknown
        )
        results = one.to_coco()
        assert [result["unknown"] for result in results] == one.unknown.tolist()
        assert [result["id_score"] for result in results] == one.score.tolist()
        assert [result["category_name"] for result in results] == one.classes
        assert [result["category_id"] for result in results] == detections.class_id.tolist()
        for result, box in zip(results, one.regions.box.tolist(), strict=True):
            x, y, width, height = result["bbox"]
            assert [x, y, x + width, y + height] == pytest.approx(box)
        json.dumps(results)
