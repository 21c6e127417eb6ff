"""`farther explain uncertainty`, on a run of two splits."""

import json

import numpy as np
import pytest
import yaml

from farther.command import main
from farther.tables import Images, Objects, Regions, Scores

BOX = (0, 0, 100, 100)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Ten ID and ten OOD images of two detections each; a sigmoid head; method `one` has scores."""
    params = {
        "detectors": {"r": {"adapter": "yolo", "benchmark": "b"}},
        "methods": {"one": {"method": "msp"}, "two": {}},
    }
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    artifacts = tmp_path / "artifacts"
    for split, certain in (("test", 0.8), ("far", 0.3)):
        names = [f"{split}{n}" for n in range(10)]
        folder = artifacts / "splits/b" / split
        sides = np.full(10, 100)
        Images(
            image_id=names, dataset=["d"] * 10, file=names, width=sides, height=sides, digest=names
        ).write(folder / "images.parquet")
        Objects(image_id=[], object_id=[], box=np.zeros((0, 4)), category=[]).write(
            folder / "objects.parquet"
        )
        p = np.clip(certain + np.linspace(-0.2, 0.2, 20), 0.01, 0.99)
        logits = np.stack([np.log(p / (1 - p)), np.full(20, -3.0)], axis=1)
        columns = {"image_id": np.repeat(names, 2), "region_id": np.arange(20)}
        more = {"box": np.tile(BOX, (20, 1)), "score": p, "label": np.zeros(20), "logits": logits}
        table = Regions(**columns, **more, classes=("cat", "dog"), activation="sigmoid")
        table.write(artifacts / "regions/r" / split)
        Scores(**columns, score=-p).write(artifacts / "scores/r/one" / f"{split}.parquet")
    (artifacts / "splits/b/roles.json").write_text('{"test": ["far"]}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(capsys, *arguments):
    assert main(["explain", "uncertainty", "r", "--json", *arguments]) == 0
    return {row["uncertainty"]: row["auroc"] for row in json.loads(capsys.readouterr().out)["rows"]}


def test_every_uncertainty_that_the_run_has_is_compared_under_every_aggregate(project, capsys):
    auroc_by_uncertainty = rows(capsys)
    assert list(auroc_by_uncertainty) == [
        "1 − confidence",
        "entropy",
        "entropy, mean of sigmoids",
        "entropy, largest sigmoid",
        "Dempster–Shafer",
        "one",
    ]
    assert list(auroc_by_uncertainty["one"]) == ["sum", "mean", "top-5", "top-3", "top-2", "min"]
    assert set(auroc_by_uncertainty["1 − confidence"].values()) == {1}
    # The stored scores fall with the confidence, so their order is the other way round.
    assert set(auroc_by_uncertainty["one"].values()) == {0}


def test_columns_may_be_splits(project, capsys):
    auroc_by_uncertainty = rows(capsys, "--by-split", "--aggregate", "min")
    assert auroc_by_uncertainty["1 − confidence"] == {"far": 1, "all OOD": 1}
    assert main(["explain", "uncertainty", "r", "--by-split"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "r: AUROC of image uncertainty, test against far"
    assert shown[1].split() == ["uncertainty", "far", "all", "OOD"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x"], "unknown run 'x'"),
        (["r", "--split", "near"], "unknown split 'near'"),
        (["r", "--aggregate", "max"], "unknown aggregate 'max'"),
    ],
)
def test_wrong_names_are_refused_in_plain_words(project, capsys, arguments, message):
    assert main(["explain", "uncertainty", *arguments]) == 2
    assert message in capsys.readouterr().err
