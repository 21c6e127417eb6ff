"""Results by how far out a class is, and the similarity of classes and what they are taken for."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score
from tests.evaluation.evaluated_runs import write_json, write_scores, write_split

from farther.evaluation import classes
from farther.evaluation.files import Roles, RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.settings import EvaluationSettings
from farther.tables import ClassPairs, ImageClasses, Regions


def test_classes_of_low_oodness_count_as_id_up_to_each_level(monkeypatch):
    random = np.random.default_rng(0)
    id_scores = random.normal(1, 1, 40).round(1)
    scores = {name: random.normal(0, 1, 60).round(1) for name in "ab"}
    parts = []
    for name in "ab":
        rows, levels = random.random(60) < 0.7, random.integers(0, 4, 60)
        images = {level: 3 + level for level in range(4)}
        parts.append(classes.SplitLevels(SimpleNamespace(name=name), rows, levels[rows], images))
    known = SimpleNamespace(name="test")
    inputs = SimpleNamespace(
        scores=lambda _, split: scores.get(split.name, id_scores),
        id_split=known,
        id_above_threshold=np.ones(40, dtype=bool),
    )
    monkeypatch.setattr(classes, "_levels_by_split", lambda _: parts)
    found = classes.RunClasses(inputs).of_method("msp", {})
    of_ood = np.concatenate([scores[part.split.name][part.rows] for part in parts])
    oodness = np.concatenate([part.oodness for part in parts])

    def auroc(id_side, ood_side):
        return roc_auc_score(
            np.repeat([1, 0], [len(id_side), len(ood_side)]), np.concatenate([id_side, ood_side])
        )

    for level in range(4):
        one = found.by_oodness[str(level)]
        assert (one["images"], one["regions"]) == (2 * (3 + level), np.sum(oodness == level))
        assert one["auroc"] == pytest.approx(auroc(id_scores, of_ood[oodness == level]))
    assert list(found.id_up_to) == ["0", "1", "2"]
    for most in range(3):
        expected = auroc([*id_scores, *of_ood[oodness <= most]], of_ood[oodness > most])
        assert found.id_up_to[str(most)]["auroc"] == pytest.approx(expected)


def test_known_objects_are_left_out_and_splits_have_different_levels(tmp_path, objects, regions):
    files, here, there = RunFiles("r", "b", tmp_path), (0, 0, 50, 50), (200, 0, 250, 50)
    write_split(files, "test", objects(("i", here, "cat")), regions(("i", here, 0.9)))
    fox_and_cat = objects(("n", here, "fox"), ("n", there, "cat"))
    write_split(files, "near", fox_and_cat, regions(("n", here, 0.7), ("n", there, 0.8)))
    write_split(
        files,
        "far",
        objects(("f", here, "elk")),
        regions(("f", here, 0.6), ("f", there, 0.4)),
        extra="none",
    )
    scores = {"test": [0.9], "near": [0.95, 0.1], "far": [0.3, 0.2]}
    for split, of in scores.items():
        write_scores(files, "msp", split, Regions.read(files.regions(split)), of)
    for split, images, levels in (("near", ["n"], [0]), ("far", ["f", "none"], [1, 3])):
        table = ImageClasses(image_id=images, category=[""] * len(images), oodness=levels)
        table.write(files.images(split).parent / "classes.parquet")
    write_json(files.threshold, {"threshold": 0.5})
    inputs = RunInputs(files, Roles(["near", "far"]), EvaluationSettings(replicates=0))
    of_run = classes.RunClasses(inputs)
    assert of_run.exist
    found = of_run.of_method("msp", {}).by_oodness
    # Of OODness 0 is the detection of the fox, without that of the cat; of 1 the one above t*.
    counts = {level: (one["images"], one["regions"], one["auroc"]) for level, one in found.items()}
    assert counts == {"0": (1, 1, 0), "1": (1, 1, 1), "3": (1, 0, None)}


def test_similarity_is_the_mean_of_both_measures_over_objects(tmp_path):
    pairs = {"category": ["fox", "elk", "fox"], "id_class": ["dog", "cow", "cow"]}
    measures = {
        "path": [0.5, 0.25, 0.1],
        "wu_palmer": [0.9, 0.75, 0.3],
        "leacock_chodorow": [9.0] * 3,
    }
    inputs = SimpleNamespace(
        files=RunFiles("r", "b", tmp_path), id_split=SimpleNamespace(name="test")
    )
    stored = tmp_path / "splits/b/similarities.parquet"
    ClassPairs(**pairs, **measures).write(stored)
    edges = pl.DataFrame({**pairs, "objects": [3, 4, 1]})
    found = classes._similarity(inputs, edges)
    by_class = {
        side: {one.name: (one.similarity, one.objects) for one in rows}
        for side, rows in found.items()
    }
    assert by_class["category"] == {
        "fox": (pytest.approx((3 * 0.7 + 0.2) / 4), 4),
        "elk": (pytest.approx(0.5), 4),
    }
    assert by_class["id_class"] == {
        "dog": (pytest.approx(0.7), 3),
        "cow": (pytest.approx((4 * 0.5 + 0.2) / 5), 5),
    }
    assert [one.name for one in found["category"]] == ["fox", "elk"]
    stored.unlink()
    assert classes._similarity(inputs, edges) == {}
