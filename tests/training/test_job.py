import json
import runpy
from pathlib import Path

import pytest
import torch
import yaml
from torchvision.models import resnet50

from farther import detectors
from farther.detectors.networks.architectures import Blueprint, build_network
from farther.errors import DataError, ParameterError
from farther.training.initial import initial_weights
from farther.training.job import Job, run_job

CLASSES = ("square", "disc")
STAGES = Path(__file__).parents[2] / "stages"
RECIPE = {"epochs": 1, "batch_size": 4, "workers": 0, "learning_rate": 0.002, "warmup_steps": 1}


def job(folder, **changes):
    params = {"dataset": "shapes", "weights": folder / "out" / "demo.safetensors", "architecture": "small"}
    return Job(**{**params, "min_size": 64, "max_size": 64, "device": "cpu", "recipe": RECIPE, **changes})


def test_a_job_leaves_a_checkpoint_that_detects_a_card_and_a_log(ingested, tmp_path):
    artifacts, root = ingested
    card = run_job("demo", job(tmp_path), root, artifacts)
    detector = detectors.create("faster_rcnn", weights=tmp_path / "out/demo.safetensors", device="cpu")
    assert detector.header().known_classes == CLASSES
    assert detector.detect([root / "test" / "0.png"]).logits.shape[1] == 3
    assert json.loads((tmp_path / "out/demo.json").read_text()) == json.loads(json.dumps(card))
    assert (artifacts / "train/demo/log.csv").read_text().startswith("epoch,step,learning_rate,loss")
    assert not (artifacts / ".work/train/demo/state.pt").exists()
    assert (card["images"], card["objects"], card["left_out"]) == (8, 8, {})
    assert set(card["figures"]) == {"val", "test"}
    markdown = (tmp_path / "out/demo.md").read_text()
    assert f"- epochs: {RECIPE['epochs']}" in markdown
    assert card["data_digest"] in markdown


def test_chosen_classes_alone_are_learned_and_the_rest_is_counted(ingested, tmp_path):
    artifacts, root = ingested
    card = run_job("demo", job(tmp_path, classes=("disc",)), root, artifacts)
    assert (card["classes"], card["left_out"]) == (("disc",), {"square": 4})
    assert "left out: 4 square" in (tmp_path / "out/demo.md").read_text()


def test_the_same_job_gives_the_same_bytes(ingested, tmp_path):
    artifacts, root = ingested
    written = tmp_path / "out" / "demo.safetensors"
    run_job("demo", job(tmp_path), root, artifacts)
    first = written.read_bytes()
    run_job("demo", job(tmp_path), root, artifacts)
    assert written.read_bytes() == first


def test_an_absent_or_odd_table_is_named(ingested, tmp_path):
    artifacts, root = ingested
    with pytest.raises(DataError, match=r"tables/nothing/categories\.json: the file does not exist"):
        run_job("demo", job(tmp_path, dataset="nothing"), root, artifacts)
    with pytest.raises(DataError, match="leaves its folder"):
        run_job("demo", job(tmp_path, dataset="../.."), root, artifacts)
    (artifacts / "tables/shapes/categories.json").write_text('{"categories": [1]}')
    with pytest.raises(DataError, match=r"field 'categories': expected a list of names"):
        run_job("demo", job(tmp_path), root, artifacts)


def test_the_stage_reads_its_section(ingested, tmp_path, monkeypatch, capsys):
    section = {"dataset": "shapes", "weights": "out/demo.safetensors", "architecture": "small", "device": "cpu"}
    section |= {"min_size": 64, "max_size": 64, "recipe": RECIPE}
    params = {"datasets": {"shapes": {"format": "voc", "root": "pictures"}}, "train": {"demo": section}}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(STAGES)
    stage = runpy.run_path(str(STAGES / "train.py"))["main"]
    stage("demo")
    assert (tmp_path / "out/demo.safetensors").is_file()
    assert "on val" in capsys.readouterr().out
    with pytest.raises(ParameterError, match=r"no 'train\.other'. Known here: demo"):
        stage("other")


# ------------------------------------------------------------------------------------------- initial weights

RESNET = Blueprint("resnet50_fpn", CLASSES, 64, 64)


def test_a_classifiers_weights_become_the_backbone(tmp_path):
    torch.manual_seed(3)
    classifier = resnet50().state_dict()
    torch.save(classifier, tmp_path / "resnet50.pth")
    found = initial_weights(tmp_path / "resnet50.pth", RESNET)
    torch.testing.assert_close(found["backbone.body.layer4.2.conv3.weight"], classifier["layer4.2.conv3.weight"])
    assert not any(name.startswith(("rpn.", "roi_heads.", "backbone.fpn.")) for name in found)


def test_a_detector_for_other_classes_gives_all_but_its_last_layers(tmp_path):
    other = build_network(Blueprint("small", ("a", "b", "c"), 64, 64)).state_dict()
    torch.save(other, tmp_path / "other.pt")
    found = initial_weights(tmp_path / "other.pt", Blueprint("small", CLASSES, 64, 64))
    assert set(other) - set(found) == {
        f"roi_heads.box_predictor.{layer}.{part}" for layer in ("cls_score", "bbox_pred") for part in ("weight", "bias")
    }


def test_weights_of_another_network_are_refused(tmp_path):
    torch.save({"layer.weight": torch.zeros(3)}, tmp_path / "other.pt")
    with pytest.raises(DataError, match="does not hold the backbone of 'resnet50_fpn'"):
        initial_weights(tmp_path / "other.pt", RESNET)


def test_a_network_with_frozen_layers_must_start_from_weights():
    with pytest.raises(ParameterError, match="parameter 'initial_weights': its first layers never learn"):
        initial_weights(None, RESNET)
