"""The stage `infer`, with torchvision's Faster R-CNN: small and untrained."""

import json
from functools import reduce
from operator import getitem

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from farther.detectors.networks.architectures import (
    FasterRCNNBlueprint,
    build_network,
    save_checkpoint,
)
from farther.errors import ParameterError
from farther.params import parse
from farther.pipeline.infer import main as run
from farther.tables import Images, Regions
from farther.tables.documents import write_json

SIZES = ((64, 48), (48, 64), (40, 40))


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with two splits, a checkpoint and params.yaml, as the stage finds them."""
    rng = np.random.default_rng(0)
    for split in ("test", "coco_far"):
        images = []
        for n, (width, height) in enumerate(SIZES):
            (tmp_path / "pictures" / split).mkdir(parents=True, exist_ok=True)
            pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / split / f"{n}.png")
            images.append((f"{split} {n}", "drawn", f"{split}/{n}.png", width, height, ""))
        names = ("image_id", "dataset", "file", "width", "height", "digest")
        table = Images(**dict(zip(names, zip(*images, strict=True), strict=True)))
        table.write(tmp_path / "artifacts/splits/voc" / split / "images.parquet")
    write_json(tmp_path / "artifacts/splits/voc/id_classes.json", ["cat", "dog"])
    torch.manual_seed(0)
    blueprint = FasterRCNNBlueprint("small", ("dog", "cat"), 48, 64)
    save_checkpoint(
        tmp_path / "weights.safetensors", build_network(blueprint).state_dict(), blueprint
    )
    params = {
        "datasets": {"drawn": {"format": "voc", "root": "pictures"}},
        "detectors": {
            "demo": {
                "adapter": "faster_rcnn",
                "benchmark": "voc",
                "weights": "weights.safetensors",
                "params": {"max_detections": 5, "device": "cpu"},
            }
        },
        "inference": {"batch_size": 2, "workers": 1},
    }
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def change(project, section, **values):
    """Changes entries of a section of params.yaml."""
    params = parse((project / "params.yaml").read_text())
    reduce(getitem, section, params).update(values)
    (project / "params.yaml").write_text(json.dumps(params))


def test_each_split_of_the_benchmark_gets_its_regions_and_only_once(project, capsys):
    run("demo")
    assert capsys.readouterr().out.splitlines() == [
        "coco_far: 3 images, 15 regions, 0 failures",
        "test: 3 images, 15 regions, 0 failures",
    ]
    regions = Regions.read(project / "artifacts/regions/demo/test")
    assert list(regions.image_id) == [f"test {n}" for n in range(3) for _ in range(5)]
    np.testing.assert_allclose(
        regions.features @ regions.weight.T + regions.bias, regions.logits, atol=1e-4
    )
    run("demo")
    assert capsys.readouterr().out.splitlines() == ["coco_far: unchanged", "test: unchanged"]


def test_other_names_of_the_classes_do_not_run_the_detector_again(project, capsys):
    run("demo")
    before = Regions.read(project / "artifacts/regions/demo/test")
    write_json(project / "artifacts/splits/voc/id_classes.json", ["cat", "hound"])
    change(project, ("detectors", "demo"), classes={"dog": "hound"})
    capsys.readouterr()
    run("demo")
    assert capsys.readouterr().out.splitlines() == ["coco_far: unchanged", "test: unchanged"]
    after = Regions.read(project / "artifacts/regions/demo/test")
    assert (before.header.known_classes, after.header.known_classes) == (
        ("dog", "cat"),
        ("hound", "cat"),
    )
    assert after.frame.equals(before.frame)
    np.testing.assert_array_equal(after.weight, before.weight)


def test_a_misspelt_setting_ends_the_stage_with_the_known_ones(project):
    change(project, ("inference",), batchsize=2)
    with pytest.raises(
        ParameterError,
        match=r"params\.yaml: inference: unknown parameter 'batchsize'\. Known: batch_size",
    ):
        run("demo")


def test_a_detector_of_other_classes_is_refused_before_it_sees_an_image(project):
    write_json(project / "artifacts/splits/voc/id_classes.json", ["cat", "hound"])
    with pytest.raises(
        ParameterError, match=r"1 of the detector's 2 classes are not ID classes .*: dog\."
    ):
        run("demo")
    assert not (project / "artifacts/regions/demo").exists()


def test_a_mapping_gives_the_detectors_classes_the_names_of_the_benchmark(project, capsys):
    write_json(project / "artifacts/splits/voc/id_classes.json", ["cat", "hound", "cow"])
    change(project, ("detectors", "demo"), classes={"dog": "hound"})
    run("demo")
    assert capsys.readouterr().out.startswith(
        "demo does not have the ID classes cow: it finds none of their objects\n"
    )
    regions = Regions.read(project / "artifacts/regions/demo/test")
    assert regions.header.known_classes == ("hound", "cat")
