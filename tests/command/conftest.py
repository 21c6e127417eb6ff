"""The published benchmark in miniature: datasets and checkpoints in their true layouts."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.stages.in_process import OF_RUN
from tests.support.shared import once

from farther.command import main
from farther.params import parse
from farther_demo import DemoWorld, Subsets, generate

ROOT = Path(__file__).parents[2]

#: What of a profile the miniature changes: sizes, and t*.
WORLD = DemoWorld(
    size=96,
    voc=Subsets(train=5, val=1, test=3),
    bdd=Subsets(train=4, val=3, test=0),
    coco=10,
    openimages=8,
)
SMALL = {"min_size": 40, "max_size": 60, "max_detections": 12}
REPLICATES = 100
#: Of a profile that runs whole, one run of each kind of detector and of each benchmark, and a
#: method of each kind.
RUNS = ("voc-vos", "voc-yolov8", "bdd-rtdetr")
METHODS = ("confidence", "msp", "energy", "vos", "knn", "dice_react")

#: t* by adapter, where a profile names none: too few images are left to choose it by.
LOW = {"faster_rcnn": 0.1, "yolo": 0.05, "detr": 0.08}


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as docs/benchmark.md describes it."""
    with once(tmp_path_factory, "command-data") as (folder, is_first):
        if is_first:
            _lay(folder)
    return folder


def _lay(folder: Path) -> None:
    """Writes datasets and checkpoints."""
    folder.mkdir()
    generate("voc", folder / "drawn", WORLD)
    _lay_voc(folder / "drawn", folder / "VOCdevkit")
    for name, place in (("bdd", "bdd100k"), ("coco", "coco"), ("openimages", "openimages")):
        generate(name, folder / place, WORLD)
    _lay_training_sets(folder)
    (folder / "checkpoints").mkdir()
    for id_name, classes in (("voc", 20), ("bdd", 10)):
        _detectron2(folder / "checkpoints", id_name, classes)
        _ultralytics(
            folder / "checkpoints" / f"{id_name}-yolov8n.pt",
            ROOT / f"data/demo/{id_name}-yolov8.safetensors",
        )
        _lightning(folder / "checkpoints", id_name)


def _lay_training_sets(folder: Path) -> None:
    """Other images, of other names, as the training sets of COCO and OpenImages.

    Candidates are drawn from them.
    """
    others = replace(WORLD, seed=WORLD.seed + 1)
    _lay_coco_train(folder / "drawn/coco-train", folder / "coco", others)
    _lay_openimages_train(folder / "drawn/openimages-train", folder / "openimages", others)


def _lay_coco_train(drawn: Path, folder: Path, world: DemoWorld) -> None:
    generate("coco", drawn, world)
    labels = json.loads((drawn / "annotations/instances_val2017.json").read_text())
    (folder / "train2017").mkdir()
    for image in labels["images"]:
        image["id"] += 500
        file = f"{image['id']:012}.jpg"
        shutil.copy(drawn / "val2017" / image["file_name"], folder / "train2017" / file)
        image["file_name"] = file
    for annotation in labels["annotations"]:
        annotation["image_id"] += 500
    (folder / "annotations/instances_train2017.json").write_text(json.dumps(labels))


def _lay_openimages_train(drawn: Path, folder: Path, world: DemoWorld) -> None:
    generate("openimages", drawn, world)
    (folder / "train").mkdir()
    with (drawn / "validation-annotations-bbox.csv").open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        columns = reader.fieldnames or []
        boxes = [{**row, "ImageID": row["ImageID"][::-1]} for row in reader]
    with (folder / "train-annotations-bbox.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(boxes)
    for image in (drawn / "validation").iterdir():
        shutil.copy(image, folder / "train" / f"{image.stem[::-1]}{image.suffix}")


def _lay_voc(drawn: Path, devkit: Path) -> None:
    """The drawn images as the development kits of two years: train in 2012, the others in 2007."""
    source = drawn / "VOC2012"
    for year, sets in (
        ("VOC2007", {"trainval": "val", "test": "test"}),
        ("VOC2012", {"trainval": "train"}),
    ):
        for name in ("ImageSets/Main", "Annotations", "JPEGImages"):
            (devkit / year / name).mkdir(parents=True)
        for to, subset in sets.items():
            names = (source / "ImageSets/Main" / f"{subset}.txt").read_text().split()
            (devkit / year / "ImageSets/Main" / f"{to}.txt").write_text("\n".join(names) + "\n")
            for name in names:
                shutil.copy(source / "Annotations" / f"{name}.xml", devkit / year / "Annotations")
                shutil.copy(source / "JPEGImages" / f"{name}.jpg", devkit / year / "JPEGImages")


def _detectron2(folder: Path, id_name: str, classes: int) -> None:
    """`model_final.pth` of a Faster R-CNN on MSRA's ResNet-50, and the same with VOS's head.

    Nothing was learned. Weights are in half precision, which the files are not: they are written
    and read in half the time.
    """
    import torch

    from farther.detectors.networks.detectron2_import import torchvision_names

    torch.manual_seed(4)
    weights = {name: _drawn(name, shape) for name, (_, shape) in torchvision_names(classes).items()}
    weights["backbone.bottom_up.stem.conv1.weight"] /= 60
    weights["proposal_generator.rpn_head.anchor_deltas.weight"] *= 0.2
    weights["roi_heads.box_predictor.bbox_pred.weight"] *= 0.5
    weights["roi_heads.box_predictor.cls_score.bias"][-1] -= (
        2  # the background's: something is always seen
    )
    torch.save({"model": weights, "iteration": 17999}, folder / f"{id_name}-faster_rcnn.pth")
    head = {"weight_energy.weight": (1, classes), "weight_energy.bias": (1,)}
    head |= {"logistic_regression.weight": (2, 1), "logistic_regression.bias": (2,)}
    more = {f"roi_heads.{name}": torch.randn(shape) for name, shape in head.items()}
    torch.save({"model": weights | more, "iteration": 17999}, folder / f"{id_name}-vos.pth")


def _drawn(name: str, shape: tuple[int, ...]) -> Any:
    """Weights that keep activations near one."""
    import torch

    if name.endswith("running_var"):
        return torch.rand(shape) + 0.5
    if name.endswith(("bias", "running_mean")):
        return torch.randn(shape) * 0.1
    if name.endswith("norm.weight"):
        return torch.rand(shape) * (0.3 if "conv3" in name else 1) + 0.1
    return (torch.randn(shape) * math.sqrt(2 / math.prod(shape[1:]))).half()


def _ultralytics(path: Path, trained: Path) -> None:
    """A `.pt` file as Ultralytics writes it, of the demo's network."""
    import torch

    from farther.detectors.networks.yolo import build_network, read_checkpoint

    checkpoint = read_checkpoint(trained)
    network = build_network(checkpoint.blueprint)
    network.load_state_dict(checkpoint.weights)
    held = {"model": network.half(), "ema": None, "train_args": {"imgsz": 96, "task": "detect"}}
    torch.save(held, path)


def _lightning(folder: Path, id_name: str) -> None:
    """PyTorch Lightning's `.ckpt` beside a folder of transformers, of the demo's RT-DETR."""
    import torch

    from farther.detectors.networks.detr import find_checkpoint, load_network

    checkpoint = find_checkpoint(ROOT / f"data/demo/{id_name}-rtdetr.safetensors")
    network = load_network(checkpoint)
    described = folder / f"{id_name}-rtdetr"
    described.mkdir()
    network.config.save_pretrained(described)
    (described / "preprocessor_config.json").write_text(json.dumps(checkpoint.blueprint.processor))
    state = {f"model.{name}": tensor for name, tensor in network.state_dict().items()}
    torch.save(
        {"state_dict": state, "epoch": 3, "hyper_parameters": {"lr": 2e-5}},
        folder / f"{id_name}-rtdetr.ckpt",
    )


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project's folder: what of it git keeps and the pipeline reads, without parameters."""
    folder = tmp_path_factory.mktemp("project")
    _copy_project(folder)
    return folder


def _copy_project(folder: Path) -> None:
    for name in ("data/benchmarks", "data/decisions", "data/names", "data/published", "profiles"):
        shutil.copytree(ROOT / name, folder / name)


def shrink(params: dict[str, Any]) -> None:
    """Changes a profile's sizes to those of the miniature, t*, and nothing else."""
    for entry in params["detectors"].values():
        if entry["adapter"] == "faster_rcnn":
            entry["params"] = {**entry["params"], **SMALL}
        entry.setdefault("threshold", {"rule": LOW[entry["adapter"]]})
        entry.setdefault("params", {})["device"] = "cpu"
    params["embed"]["weights"] = str(ROOT / "data/demo/clip")
    params["embed"]["encoder"]["model"] = f"local-dir:{ROOT / 'data/demo/clip'}"
    params["inference"]["workers"] = 0
    params["evaluate"]["replicates"] = REPLICATES


def leave_few(params: dict[str, Any]) -> None:
    """Leaves `RUNS` and `METHODS`; the others take the same ways, and have tests of their own."""
    params["methods"] = {name: params["methods"][name] for name in METHODS}
    for entries in (params["detectors"], params["report"]["published"]):
        for run in list(entries):
            if run not in RUNS:
                del entries[run]


def _switch(name: str, data: Path) -> dict[str, Any]:
    """Makes a profile the parameters of the current folder, in miniature; returns them."""
    assert main(["benchmark", "profile", name, "--data", str(data), "--force"]) == 0
    params = parse(Path("params.yaml").read_text())
    shrink(params)
    Path("params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    return params


@pytest.fixture(scope="session")
def switch() -> Callable[[str, Path], dict[str, Any]]:
    """Makes a profile the parameters of the current folder, in miniature; returns them."""
    return _switch


def _stage(name: str, *arguments: str) -> None:
    """Runs a stage as the pipeline does, in this process."""
    import_module(f"farther.pipeline.{name}").main(*arguments)


@pytest.fixture(scope="session")
def switched(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the profile `fmiyc` as its parameters, and no data; tests only copy it."""
    folder = tmp_path_factory.mktemp("switched")
    (folder / "data").symlink_to(project / "data")
    shutil.copytree(ROOT / "profiles", folder / "profiles")
    with contextlib.chdir(folder):
        command = ["benchmark", "profile", "fmiyc", "--data", str(folder / "none"), "--force"]
        assert main(command) == 0
    return folder


@pytest.fixture
def here(switched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of `switched` that a test may change, as the current folder."""
    shutil.copytree(switched, tmp_path, symlinks=True, dirs_exist_ok=True)
    params = (tmp_path / "params.yaml").read_text()
    (tmp_path / "params.yaml").write_text(params.replace(str(switched), str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def stage() -> Callable[..., None]:
    """Runs a stage as the pipeline does, in this process."""
    return _stage


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """A project after the profile `fmiyc-rebuilt` ran, `ingest` to `report`; tests only read it."""
    with once(tmp_path_factory, "command-finished") as (folder, is_first):
        if is_first:
            _copy_project(folder)
            _run_everything(folder, data)
    return folder


def _run_everything(folder: Path, data: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        params = _switch("fmiyc-rebuilt", data)
        leave_few(params)
        Path("params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
        _stage("code_digests")
        for name in params["datasets"]:
            _stage("ingest", name)
        _stage("embed")
        for name in params["enrich"]:
            _stage("enrich", name)
        _accept_some()
        for stage in ("curate", "stratify"):
            _stage(stage)
        for run in params["detectors"]:
            _stage("infer", run)
            for stage in OF_RUN:
                _stage(stage, run)
        _stage("report")


def _accept_some() -> None:
    """A reviewer accepts the first candidates of each distance and pool, except far ones."""
    for name in ("voc", "bdd"):
        with Path(f"data/candidates/pools/{name}.csv").open(encoding="utf-8", newline="") as file:
            candidates = list(csv.DictReader(file))
        accepted: dict[tuple[str, str], int] = {}
        with Path(f"data/decisions/fmiyc-rebuilt-{name}.csv").open("a", encoding="utf-8") as file:
            for number, row in enumerate(candidates):
                key = row["dataset"], row["distance"]
                if row["distance"] == "far" or accepted.get(key, 0) == 2:
                    continue
                accepted[key] = accepted.get(key, 0) + 1
                image = f"{row['dataset']},{row['subset']},{row['image_id']}"
                file.write(f"2026-11-21T09:30:{number:02}Z,ann,{image},keep,,\n")
