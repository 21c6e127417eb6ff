"""Fitting one run's regions and scoring its splits, incrementally."""

import json
import shutil

import numpy as np
import pytest

from farther import methods
from farther.errors import DataError
from farther.methods import FitError
from farther.scoring.fit import FitSettings, RegionsSample, fit_run, operating_threshold
from farther.scoring.score import score_run
from farther.tables import RegionsFolder, Scores

T_STAR = 0.4


@pytest.fixture
def run(make, tmp_path):
    folder = tmp_path / "regions"
    for seed, split in enumerate(["train", "val", "test", "coco_far"]):
        make(60, seed=seed, shift=6.0 if split == "coco_far" else 0.0).write(folder / split)
    return folder


@pytest.fixture
def fitted(run, tmp_path):
    assert fit_run("knn", {"k": 3}, run, T_STAR, FitSettings(), tmp_path / "fitted") is None
    return tmp_path / "fitted"


def rewrite(make, run, split, **changes):
    shutil.rmtree(run / split)
    make(60, **changes).write(run / split)


def test_only_detections_above_the_operating_threshold_are_learned_from(run, fitted):
    train = RegionsFolder(run / "train")
    above = sum(int((batch.score >= T_STAR).sum()) for batch in train.batches())
    assert 0 < above < len(train)
    assert methods.load(fitted).fitted_on_["regions"] == above


def test_tau_keeps_its_fraction_of_the_calibration_split(run, fitted):
    found = json.loads((fitted / "threshold.json").read_text())
    scores = methods.load(fitted).score(RegionsFolder(run / "val").above(T_STAR))
    assert found == {
        "threshold": methods.threshold(scores),
        "rule": "percentile",
        "keep": 0.95,
        "regions": len(scores),
    }


def test_a_method_that_cannot_be_fitted_leaves_its_reason(run, tmp_path):
    reason = fit_run("knn", {"k": 1000}, run, T_STAR, FitSettings(), tmp_path / "fitted")
    assert "k is 1000" in reason
    assert methods.not_applicable(tmp_path / "fitted") == reason
    assert not (tmp_path / "fitted" / "threshold.json").exists()
    with pytest.raises(FitError, match="k is 1000"):
        methods.load(tmp_path / "fitted")


def test_a_missing_column_is_a_reason_and_no_error(make, tmp_path):
    regions = make(60)
    for split in ("train", "val"):
        regions.with_frame(regions.frame.drop("features")).write(tmp_path / "run" / split)
    reason = fit_run("mahalanobis", {}, tmp_path / "run", 0.0, FitSettings(), tmp_path / "fitted")
    assert reason == "mahalanobis needs features, which these regions do not have"


def test_no_detection_above_the_threshold_is_a_reason(run, tmp_path):
    assert "no regions to fit on" in fit_run("msp", {}, run, 1.1, FitSettings(), tmp_path / "fitted")


def test_a_missing_split_is_an_error(run, tmp_path):
    shutil.rmtree(run / "val")
    with pytest.raises(DataError, match="val"):
        fit_run("msp", {}, run, T_STAR, FitSettings(), tmp_path / "fitted")


def test_a_sample_has_the_asked_size_and_depends_on_its_seed(run, tmp_path):
    def stored(seed):
        settings = FitSettings(max_regions=20, seed=seed)
        fit_run("knn", {"k": 3}, run, T_STAR, settings, tmp_path / "fitted")
        return methods.load(tmp_path / "fitted").stored_

    assert stored(0).shape[0] == 20
    np.testing.assert_array_equal(stored(0), stored(0))
    assert not np.array_equal(stored(0), stored(1))


def test_a_sample_draws_each_row_at_most_once_across_batches(make, tmp_path, monkeypatch):
    monkeypatch.setattr("farther.tables.regions.ROW_GROUP", 16)
    make(100).write(tmp_path / "regions")
    sample = RegionsSample(RegionsFolder(tmp_path / "regions"), 40, seed=3)
    drawn = np.concatenate([batch.region_id for batch in sample.batches()])
    assert len(drawn) == len(sample) == 40
    assert (np.diff(drawn) > 0).all()


def test_a_sample_larger_than_the_table_is_the_table(make):
    regions = make(30)
    drawn = np.concatenate([batch.region_id for batch in RegionsSample(regions, 50, seed=0).batches()])
    np.testing.assert_array_equal(drawn, regions.region_id)


@pytest.mark.parametrize("text", ['{"threshold": null}', '{"threshold": true}', "[]", '{"tau": 0.5}'])
def test_an_operating_threshold_must_be_a_number(tmp_path, text):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(DataError, match=r"t\.json: field 'threshold'"):
        operating_threshold(tmp_path / "t.json")


def test_all_splits_but_the_training_split_get_all_their_rows_scored(run, fitted, tmp_path):
    done = score_run(run, fitted, tmp_path / "scores")
    assert done == {"coco_far": "scored", "test": "scored", "val": "scored"}
    for split in done:
        scores = Scores.read(tmp_path / "scores" / f"{split}.parquet")
        regions = RegionsFolder(run / split)
        np.testing.assert_array_equal(scores.region_id, np.arange(60))
        np.testing.assert_array_equal(scores.score, methods.load(fitted).score(regions))


def test_unchanged_splits_are_left_alone(run, fitted, tmp_path):
    score_run(run, fitted, tmp_path / "scores")
    before = {f.name: f.stat().st_mtime_ns for f in (tmp_path / "scores").iterdir()}
    assert set(score_run(run, fitted, tmp_path / "scores").values()) == {"unchanged"}
    assert {f.name: f.stat().st_mtime_ns for f in (tmp_path / "scores").iterdir()} == before


def test_a_changed_split_alone_is_scored_again(run, fitted, tmp_path, make):
    score_run(run, fitted, tmp_path / "scores")
    rewrite(make, run, "coco_far", seed=9)  # as many rows, other values
    assert score_run(run, fitted, tmp_path / "scores") == {
        "coco_far": "scored",
        "test": "unchanged",
        "val": "unchanged",
    }


def test_another_state_scores_every_split_again(run, fitted, tmp_path):
    score_run(run, fitted, tmp_path / "scores")
    fit_run("knn", {"k": 4}, run, T_STAR, FitSettings(), fitted)
    assert set(score_run(run, fitted, tmp_path / "scores").values()) == {"scored"}


def test_another_code_scores_every_split_again(run, fitted, tmp_path, monkeypatch):
    score_run(run, fitted, tmp_path / "scores")
    monkeypatch.setattr("farther.scoring.score.digest_of", lambda module: "another")
    assert set(score_run(run, fitted, tmp_path / "scores").values()) == {"scored"}


def test_scores_of_a_split_that_is_no_more_are_removed(run, fitted, tmp_path):
    score_run(run, fitted, tmp_path / "scores")
    shutil.rmtree(run / "coco_far")
    assert score_run(run, fitted, tmp_path / "scores")["coco_far"] == "removed"
    assert not (tmp_path / "scores" / "coco_far.parquet").exists()


def test_a_damaged_scores_file_is_written_again(run, fitted, tmp_path):
    score_run(run, fitted, tmp_path / "scores")
    (tmp_path / "scores" / "test.parquet").write_bytes(b"half a file")
    assert score_run(run, fitted, tmp_path / "scores")["test"] == "scored"


def test_a_method_that_does_not_apply_scores_nothing_and_takes_old_scores_away(run, fitted, tmp_path):
    score_run(run, fitted, tmp_path / "scores")
    fit_run("knn", {"k": 1000}, run, T_STAR, FitSettings(), fitted)
    done = score_run(run, fitted, tmp_path / "scores")
    assert "k is 1000" in done["test"]
    assert [f.name for f in (tmp_path / "scores").iterdir()] == ["not_applicable.json"]
    fit_run("knn", {"k": 3}, run, T_STAR, FitSettings(), fitted)
    score_run(run, fitted, tmp_path / "scores")
    assert not (tmp_path / "scores" / "not_applicable.json").exists()


def test_a_split_without_detections_gets_an_empty_file(run, fitted, tmp_path, make):
    make(0).write(run / "empty")
    score_run(run, fitted, tmp_path / "scores")
    assert len(Scores.read(tmp_path / "scores" / "empty.parquet")) == 0


def test_unfinished_work_is_no_split(run, fitted, tmp_path):
    shutil.copytree(run / "test", run / ".test.unfinished")
    assert ".test.unfinished" not in score_run(run, fitted, tmp_path / "scores")
