"""Training jobs: properties of all trainers, on a world that is learned in seconds."""

import csv
import itertools
import json
import runpy
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from tests.support.cases import drawn_cases
from tests.support.messages import OUTSIDE
from tests.training.tiny import CLASSES, RT_DETR, SQUARE, KilledError

from farther import detectors
from farther.errors import DataError, ParameterError
from farther.naming.registry import Registry
from farther_training import trainers
from farther_training.job import make_job, run_job
from farther_training.trainers import classifier, detr, faster_rcnn, retinanet, yolo

ROOT = Path(__file__).parents[2]
STAGES = ROOT / "training" / "stages"

SHORT = {"epochs": 2, "batch_size": 4, "workers": 0, "checkpoint_steps": 1}

#: What a tiny job of each trainer needs besides its dataset and its weights.
TINY = {
    "faster_rcnn": {
        "architecture": "small",
        "min_size": 64,
        "max_size": 64,
        "recipe": {**SHORT, "warmup_steps": 1},
    },
    "retinanet": {
        "architecture": "small",
        "min_size": 64,
        "max_size": 64,
        "recipe": {**SHORT, "warmup_steps": 1},
    },
    "mask_rcnn": {
        "architecture": "small",
        "min_size": 64,
        "max_size": 64,
        "masks": "boxes",
        "recipe": {**SHORT, "warmup_steps": 1},
    },
    "classifier": {
        "image_size": 64,
        "widths": [8, 8, 16],
        "blocks": [1, 1, 1],
        "recipe": SHORT,
    },
    "yolo": {
        "image_size": 64,
        "recipe": {
            "epochs": 2,
            "batch_size": 4,
            "nominal_batch": 4,
            "close_mosaic": 1,
            "workers": 0,
        },
    },
    "detr": {
        "network": RT_DETR,
        "processor": SQUARE,
        "recipe": {**SHORT, "warmup_steps": 0, "patience": None},
    },
}
KINDS = sorted(TINY)


def entry(kind, folder, **changes):
    """An entry of `train:` in `params.yaml`."""
    common = {
        "trainer": kind,
        "dataset": "shapes",
        "weights": str(folder / "out/demo.safetensors"),
        "device": "cpu",
    }
    return {**common, **TINY[kind], **changes}


def run(kind, folder, ingested, **changes):
    """Runs a tiny job; returns its card."""
    artifacts, root = ingested
    return run_job("demo", make_job("demo", entry(kind, folder, **changes)), root, artifacts)


# --------------------------------------------------------------------------------------------------
# what a job leaves


def kill_second_epoch(patch, kind):
    """Ends a run within its second epoch, as a kill would."""
    if kind == "yolo":
        kill_at_call(patch, yolo.Run, "validate", 2)
        return
    run_by_kind = {
        "classifier": classifier.ClassifierRun,
        "faster_rcnn": faster_rcnn.FasterRCNNRun,
        "mask_rcnn": faster_rcnn.FasterRCNNRun,
        "retinanet": retinanet.RetinaNetRun,
        "detr": detr.DetrRun,
    }
    kill_at_call(patch, run_by_kind[kind], "learn", 4)


def kill_at_call(patch, cls, method, number):
    """Raises an error at a call of a method, counted from 1."""
    original = getattr(cls, method)
    calls = itertools.count(1)

    def until_killed(*arguments):
        if next(calls) == number:
            raise KilledError
        return original(*arguments)

    patch.setattr(cls, method, until_killed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", drawn_cases(KINDS, 3))
def test_a_job_leaves_a_checkpoint_a_card_and_a_log_and_a_killed_one_the_same(
    kind, ingested, tmp_path, monkeypatch
):
    artifacts, root = ingested
    card = run(kind, tmp_path, ingested)
    weights = tmp_path / "out/demo.safetensors"
    log = artifacts / "train/demo/log.csv"
    work = artifacts / ".work/train/demo"
    last_column = "val_accuracy"
    params = {"weights": weights, "device": "cpu"}
    if kind != "classifier":
        last_column = "val_map50"
        params["score_threshold"] = 0.001
    detector = detectors.create(kind, **params)
    assert detector.header().known_classes == CLASSES
    regions = detector.detect([root / "test" / "0.png"])
    assert regions.logits.shape[1] == len(regions.classes)
    assert json.loads((tmp_path / "out/demo.json").read_text()) == json.loads(json.dumps(card))
    assert (card["trainer"], card["images"], card["objects"], card["left_out"]) == (kind, 8, 8, {})
    assert list(card["metrics"]) == ["val", "test"]
    text = (tmp_path / "out/demo.md").read_text()
    assert "- epochs: 2" in text
    assert card["data_digest"] in text
    with log.open() as file:
        rows = list(csv.DictReader(file))
    columns = list(rows[0])
    assert columns[:4] == ["epoch", "step", "learning_rate", "loss"]
    assert columns[-1] == last_column
    assert [(row["epoch"], row["step"]) for row in rows] == [("1", "2"), ("2", "4")]
    assert not work.exists()

    content_by_file = {path: path.read_bytes() for path in (log, *weights.parent.iterdir())}
    with monkeypatch.context() as patch:
        kill_second_epoch(patch, kind)
        with pytest.raises(KilledError):
            run(kind, tmp_path, ingested)
    (work / ".123.state.pt").write_bytes(b"half a file of the killed process")
    run(kind, tmp_path, ingested)
    for path, content in content_by_file.items():
        assert path.read_bytes() == content
    assert not work.exists()


def test_chosen_classes_alone_are_learned_and_the_rest_is_counted(ingested, tmp_path):
    card = run("faster_rcnn", tmp_path, ingested, classes=["disc"], val="test", test="val")
    assert (card["classes"], card["left_out"]) == (["disc"], {"square": 4})
    text = (tmp_path / "out/demo.md").read_text()
    assert "left out: 4 square" in text and "mAP50 on `val`: disc" in text


def test_the_card_shows_the_whole_recipe(ingested, tmp_path):
    outliers = {"queue": 1, "candidates": 10, "start": 0.0}
    how = {**TINY["faster_rcnn"]["recipe"], "epochs": 1, "virtual_outliers": outliers}
    run("faster_rcnn", tmp_path, ingested, recipe=how)
    text = (tmp_path / "out/demo.md").read_text()
    assert "- virtual_outliers\n  - queue: 1\n  - candidates: 10\n" in text
    assert "Faster R-CNN with virtual outliers (VOS), architecture `small`" in text


# --------------------------------------------------------------------------------------------------
# what is refused


def test_an_absent_or_odd_table_is_named(ingested, tmp_path):
    with pytest.raises(
        DataError, match=r"tables/nothing/categories\.json: the file does not exist"
    ):
        run("faster_rcnn", tmp_path, ingested, dataset="nothing")
    with pytest.raises(DataError, match=OUTSIDE):
        run("faster_rcnn", tmp_path, ingested, dataset="../..")
    objects = ingested[0] / "tables/shapes/val/objects.parquet"
    objects.unlink()
    with pytest.raises(DataError, match=r"val/objects\.parquet"):
        run("faster_rcnn", tmp_path, ingested)
    (ingested[0] / "tables/shapes/categories.json").write_text('{"categories": [1]}')
    with pytest.raises(
        DataError, match=r"field 'categories\.0': Input should be a valid string, found 1"
    ):
        run("faster_rcnn", tmp_path, ingested)


def test_a_subset_without_objects_is_named(ingested, tmp_path):
    categories = ingested[0] / "tables/shapes/categories.json"
    categories.write_text('{"categories": ["square", "disc", "star"]}')
    with pytest.raises(
        DataError, match=r"tables/shapes/train: nothing to learn: 8 images with 0 objects"
    ):
        run("faster_rcnn", tmp_path, ingested, classes=["star"])


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (
            "faster_rcnn",
            {"classes": ["disk"]},
            "parameter 'classes': 'disk' is not a category of 'shapes'",
        ),
        ("faster_rcnn", {"architecture": "huge"}, "unknown architecture 'huge'. Known: "),
        ("yolo", {"device": "warp"}, "device 'warp' cannot be used here"),
    ],
)
def test_what_cannot_be_trained_is_an_error_that_names_the_job(
    kind, changes, message, ingested, tmp_path
):
    with pytest.raises(ParameterError, match=f"^training job 'demo': .*{message}"):
        run(kind, tmp_path, ingested, **changes)


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("yolo", {"image_size": 0}, "parameter 'image_size': "),
        ("yolo", {"min_size": 64}, "unknown parameter 'min_size'. Known: "),
        (
            "yolo",
            {"weights": "demo.pt"},
            "parameter 'weights': .* ends in .safetensors, found 'demo.pt'",
        ),
        ("detr", {"recipe": {"epochs": 0}}, "parameter 'recipe.epochs': "),
        ("detr", {"classes": ["disc", "disc"]}, "parameter 'classes': .* each once"),
        (
            "detr",
            {"network": None, "processor": None},
            "expected either 'initial_weights' .* given: neither",
        ),
        ("detr", {"processor": None}, "expected either .* given: network$"),
        ("detr", {"network": None}, "expected either .* given: processor$"),
        (
            "detr",
            {"initial_weights": "x"},
            "expected either .* given: initial_weights, network, processor$",
        ),
        ("detr", {"queries": 5}, "expected either .* given: network, processor, queries$"),
    ],
)
def test_a_wrong_parameter_is_named_with_its_job(kind, changes, message, tmp_path):
    with pytest.raises(ParameterError, match=f"^training job 'demo': {message}"):
        make_job("demo", entry(kind, tmp_path, **changes))


def test_a_job_says_which_trainer_it_wants():
    with pytest.raises(
        ParameterError, match=r"'demo': parameter 'trainer' is missing\. Known: classifier, detr"
    ):
        make_job("demo", {"dataset": "shapes"})
    with pytest.raises(
        ParameterError, match=r"'demo': parameter 'trainer': .* Did you mean 'yolo'"
    ):
        make_job("demo", {"trainer": "yolov8"})


# --------------------------------------------------------------------------------------------------
# training/params.yaml


def test_every_entry_is_a_job_and_the_committed_cards_are_its_cards():
    entries = yaml.safe_load((ROOT / "training" / "params.yaml").read_text())["train"]
    detectors_of_the_paper = ("faster_rcnn", "vos", "yolov8", "rtdetr")
    detectors_of_both = {
        f"{dataset}-{name}" for dataset in ("voc", "bdd") for name in detectors_of_the_paper
    }
    assert set(entries) == detectors_of_both | {
        "drawings-resnet-1",
        "drawings_open-lenet",
        "voc-yolov8-unknown",
    }
    for name, params in entries.items():
        job = make_job(name, params)
        assert job.weights == Path(f"artifacts/train/{name}/{name}.safetensors")
        file = ROOT / "data/demo" / f"{name}.json"
        if not file.exists():
            continue
        card = json.loads(file.read_text())
        job_values = json.loads(json.dumps(asdict(job), default=str))
        for key in (job_values.keys() & card.keys()) - {"classes", "recipe"}:
            assert job_values[key] == card[key], (name, key)
        for key, value in card["recipe"].items():
            assert job_values["recipe"][key] == value, (name, key)


def test_the_stage_reads_its_section(ingested, tmp_path, monkeypatch, capsys):
    section = entry("faster_rcnn", Path(), recipe={**TINY["faster_rcnn"]["recipe"], "epochs": 1})
    datasets = {"shapes": {"format": "voc", "root": "pictures"}}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"datasets": datasets}))
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "params.yaml").write_text(yaml.safe_dump({"train": {"demo": section}}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(STAGES)
    stage = runpy.run_path(str(STAGES / "train.py"))["main"]
    stage("demo")
    assert (tmp_path / "out/demo.safetensors").is_file()
    assert "on val" in capsys.readouterr().out
    with pytest.raises(ParameterError, match=r"no 'train\.other'. Known here: demo"):
        stage("other")


def test_trainers_are_found_by_themselves():
    assert isinstance(trainers.registry, Registry) and trainers.names() == KINDS


def test_a_recipe_that_names_a_folder_is_in_the_card(ingested, tmp_path):
    """Pictures of the test images' folder serve as those that PixMix mixes in."""
    how = {
        **TINY["classifier"]["recipe"],
        "epochs": 1,
        "pixmix": {"folder": str(ingested[1] / "test")},
    }
    run("classifier", tmp_path, ingested, recipe=how)
    card = json.loads((tmp_path / "out/demo.json").read_text())
    assert card["recipe"]["pixmix"]["folder"] == str(ingested[1] / "test")
    assert card["recipe"]["pixmix"]["most"] == 4
    assert "trained with PixMix" in (tmp_path / "out/demo.md").read_text()
