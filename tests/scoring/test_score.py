"""Methods fitted to the regions of a run and applied to its splits; only what changed is redone."""

import json
import shutil
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from tests.support.fitting import fit_and_score

from farther import methods
from farther.errors import DataError, ParameterError
from farther.incremental.keyed import content_digest
from farther.methods import FitError
from farther.methods.base import count_rows
from farther.methods.torch_form import ScoreModule
from farther.naming.registry import build
from farther.scoring.device import ScoringSettings, torch_device
from farther.scoring.entries import read_entry
from farther.scoring.fit import fit_entry
from farther.scoring.fitted import applicable, read_entries
from farther.scoring.inputs import FitSettings, RegionsSample, RunRegions
from farther.scoring.score import PART, score_run
from farther.tables import Regions, RegionsFolder, Scores

T_STAR = 0.4


@pytest.fixture
def run(written, tmp_path):
    """Folder of a run's regions: `train`, `val`, `test` and `coco_far`."""
    return shutil.copytree(written, tmp_path / "regions")


@pytest.fixture(scope="module")
def written(make, tmp_path_factory):
    """The folder whose copies are `run`."""
    folder = tmp_path_factory.mktemp("regions")
    for seed, split in enumerate(["train", "val", "test", "coco_far"]):
        make(60, seed=seed, shift=6.0 if split == "coco_far" else 0.0).write(folder / split)
    return folder


def fit(run, path, name, operating=T_STAR, settings=None, **params):
    """Fits one method; returns the reason why it does not apply, or None."""
    return fit_entry(
        read_entry(name, params), RunRegions(run, operating, settings or FitSettings()), path
    )


@pytest.fixture
def fitted(run, tmp_path):
    assert fit(run, tmp_path / "fitted", "knn", k=3) is None
    return tmp_path / "fitted"


def rewrite(make, run, split, **changes):
    shutil.rmtree(run / split)
    make(60, **changes).write(run / split)


def test_only_detections_above_the_operating_threshold_are_learned_from(run, fitted):
    train = RegionsFolder(run / "train")
    above = sum(int((batch.score >= T_STAR).sum()) for batch in train.batches())
    assert 0 < above < len(train)
    assert methods.load(fitted).fitted_on_["regions"] == above


def test_the_threshold_of_a_method_that_has_one_is_stored_with_it(run, make, tmp_path):
    for split in ("train", "val"):
        make(60, unknown_columns=(4,)).write(tmp_path / "labelled" / split)
    fit(tmp_path / "labelled", tmp_path / "fitted", "native")
    fit(run, tmp_path / "other", "msp")
    assert json.loads((tmp_path / "fitted/method.json").read_text())["fixed_threshold"] == 0.0
    assert "fixed_threshold" not in json.loads((tmp_path / "other/method.json").read_text())


def test_what_is_fitted_holds_no_threshold_that_depends_on_settings(fitted):
    assert sorted(file.name for file in fitted.iterdir()) == ["method.json", "state.safetensors"]


def test_a_method_that_cannot_be_fitted_leaves_its_reason(run, tmp_path):
    reason = fit(run, tmp_path / "fitted", "knn", k=1000)
    assert "k is 1000" in reason
    assert methods.not_applicable(tmp_path / "fitted") == reason
    assert [file.name for file in (tmp_path / "fitted").iterdir()] == ["method.json"]
    with pytest.raises(FitError, match="k is 1000"):
        methods.load(tmp_path / "fitted")


def test_a_missing_column_is_a_reason_and_no_error(make, tmp_path):
    regions = make(60)
    for split in ("train", "val"):
        regions.with_frame(regions.frame.drop("features")).write(tmp_path / "run" / split)
    reason = fit(tmp_path / "run", tmp_path / "fitted", "mahalanobis", operating=0.0)
    assert reason == "mahalanobis needs features, which these regions do not have"


def test_regions_that_the_detector_labels_as_unknown_are_not_learned_from(make, tmp_path):
    known = make(60, seed=0)
    for split in ("train", "val"):
        regions = make(60, seed=0, unknown_columns=(4,))
        regions.write(tmp_path / "run" / split)
    kept = int((regions.label != 4).sum())
    assert 0 < kept < len(known)
    run = RunRegions(tmp_path / "run")
    assert count_rows(run.training) == count_rows(run.calibration) == kept
    assert [4 in batch.label for batch in run.training.batches()] == [False]


def test_no_detection_above_the_threshold_is_a_reason(run, tmp_path):
    assert "no regions to fit on" in fit(run, tmp_path / "fitted", "msp", operating=1.1)


def test_a_missing_split_is_an_error(run, tmp_path):
    shutil.rmtree(run / "val")
    with pytest.raises(DataError, match="val"):
        fit(run, tmp_path / "fitted", "msp")


def test_a_sample_has_the_asked_size_and_depends_on_its_seed(run, tmp_path):
    def stored(seed):
        settings = FitSettings(max_regions=20, seed=seed)
        fit(run, tmp_path / "fitted", "knn", settings=settings, k=3)
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
    drawn = np.concatenate(
        [batch.region_id for batch in RegionsSample(regions, 50, seed=0).batches()]
    )
    np.testing.assert_array_equal(drawn, regions.region_id)


# ------------------------------------------------------------------------------------------ a run
# with all its methods


@pytest.fixture
def process(run, tmp_path):
    """Fits entries of params.yaml to the run and scores it; returns what was done."""

    def fit_and_score_run(entries, code=None, scored=(), **settings):
        regions = RunRegions(run, T_STAR, **settings)
        return fit_and_score(entries, regions, tmp_path, code, scored)

    return fit_and_score_run


BOTH = {"knn": {"k": 3}, "msp": {}}
SPLITS = ("coco_far", "test", "val")


def times(folder):
    return {file: file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("part", [PART, 7])
def test_all_splits_but_the_training_split_get_all_their_rows_scored(
    run, process, tmp_path, monkeypatch, part
):
    monkeypatch.setattr("farther.scoring.score.PART", part)  # rows that one core scores
    monkeypatch.setattr("farther.scoring.score.count_cores", lambda: 3)
    done = process(BOTH)
    assert done.fit.fitted == ["knn", "msp"]
    assert sorted(done.score.scored) == sorted(
        f"{name}/{split}" for name in BOTH for split in SPLITS
    )
    for name in BOTH:
        for split in SPLITS:
            scores = Scores.read(tmp_path / "scores" / name / f"{split}.parquet")
            np.testing.assert_array_equal(scores.region_id, np.arange(60))
            expected = methods.load(tmp_path / "fitted" / name).score(RegionsFolder(run / split))
            np.testing.assert_allclose(scores.score, expected, rtol=1e-9)  # other rows in a product
        assert not (tmp_path / "scores" / name / "train.parquet").exists()


def test_a_split_to_learn_from_and_to_calibrate_on_is_scored(process):
    done = process({"msp": {}}, settings=FitSettings(split="val", calibration_split="val"))
    assert sorted(done.score.scored) == ["msp/coco_far", "msp/test", "msp/val"]


def test_splits_that_are_only_learned_from_are_not_scored(process):
    settings = FitSettings(split="val", calibration_split="test")
    assert sorted(process({"msp": {}}, settings=settings).score.scored) == [
        "msp/coco_far",
        "msp/test",
    ]
    assert sorted(process({"msp": {}}, settings=settings, scored=["val"]).score.scored) == [
        "msp/val"
    ]


def test_what_did_not_change_is_left_alone(process, tmp_path):
    process(BOTH)
    before = times(tmp_path / "scores") | times(tmp_path / "fitted")
    done = process(BOTH)
    assert (done.fit.fitted, done.score.scored) == ([], [])
    assert (str(done.fit), str(done.score)) == ("2 methods unchanged", "2 methods unchanged")
    assert times(tmp_path / "scores") | times(tmp_path / "fitted") == before


@pytest.mark.parametrize(
    ("entries", "code"),
    [({**BOTH, "knn": {"k": 4}}, {}), (BOTH, {"knn": "2"})],
    ids=["parameters", "code"],
)
def test_a_changed_method_alone_is_fitted_and_scored_and_one_line_says_so(
    process, tmp_path, entries, code
):
    process(BOTH)
    before = times(tmp_path / "scores" / "msp")
    done = process(entries, code)
    assert str(done.fit) == "fitted knn; 1 method unchanged"
    assert str(done.score) == "scored coco_far, test, val by knn; 1 method unchanged"
    assert times(tmp_path / "scores" / "msp") == before


def test_a_changed_split_alone_is_scored_again(run, process, make):
    process(BOTH)
    rewrite(make, run, "coco_far", seed=9)  # as many rows, other values
    done = process(BOTH)
    assert (done.fit.fitted, done.score.scored) == ([], ["knn/coco_far", "msp/coco_far"])


@pytest.mark.parametrize("split", ["train", "val"])
def test_methods_are_fitted_again_when_what_they_learn_from_changes(run, process, make, split):
    process(BOTH)
    rewrite(make, run, split, seed=9)
    assert process(BOTH).fit.fitted == ["knn", "msp"]


def test_a_search_is_repeated_when_its_split_changes_or_becomes_a_test_split(run, process, make):
    make(60, seed=4, shift=2.0).write(run / "choose")
    lines = {
        "energy": {
            "search": {"ood_split": "choose", "grids": {"energy": {"temperature": [0.5, 100.0]}}}
        }
    }
    assert process(lines).fit.fitted == ["energy"]
    assert process(lines).fit.fitted == []
    rewrite(make, run, "choose", seed=9)
    assert process(lines).fit.fitted == ["energy"]
    with pytest.raises(ParameterError, match="results are reported on 'choose'"):
        process(lines, test_splits=("choose",))


def test_what_belongs_to_no_entry_or_split_is_removed(run, process, tmp_path):
    process(BOTH)
    shutil.rmtree(run / "coco_far")
    process({"msp": {}})
    found = {str(file.relative_to(tmp_path)) for file in times(tmp_path / "scores")}
    assert found == {"scores/msp/test.parquet", "scores/msp/val.parquet"}
    assert not (tmp_path / "fitted/knn").exists()


def test_a_method_that_does_not_apply_scores_nothing_and_its_earlier_scores_go(process, tmp_path):
    process(BOTH)
    done = process({**BOTH, "knn": {"k": 1000}})
    assert "k is 1000" in done.fit.refused["knn"]
    assert str(done.fit) == "1 method unchanged; not applicable: knn"
    assert str(done.score) == "1 method unchanged"
    assert not (tmp_path / "scores/knn").exists()
    assert "knn/test" in process(BOTH).score.scored


def test_a_split_without_detections_gets_an_empty_file(run, process, tmp_path, make):
    make(0).write(run / "empty")
    process(BOTH)
    assert len(Scores.read(tmp_path / "scores/knn/empty.parquet")) == 0


def test_unfinished_work_is_not_a_split(run, process):
    shutil.copytree(run / "test", run / ".work")
    assert sorted(process({"msp": {}}).score.scored) == ["msp/coco_far", "msp/test", "msp/val"]


def test_an_error_on_one_split_leaves_no_half_written_file(run, process, tmp_path, make):
    process(BOTH)
    rewrite(make, run, "val", dimensions=9)
    with pytest.raises(DataError):
        process(BOTH)
    for file in (tmp_path / "scores").rglob("*.parquet"):
        assert len(Scores.read(file)) == 60


def test_the_entries_of_a_run_are_listed_in_the_order_of_params(process, tmp_path):
    process({"msp": {}, "knn": {"k": 1000}, "energy": {}})
    listed = read_entries(tmp_path / "fitted")
    assert listed.names == ["msp", "knn", "energy"]
    assert listed.not_scored == ["train"]
    assert [entry.name for entry in applicable(tmp_path / "fitted", listed)] == ["msp", "energy"]


def test_a_run_that_was_not_fitted_says_which_stage_to_run(run, tmp_path):
    with pytest.raises(
        DataError,
        match=r"fitted/r/methods\.json: the file does not exist: run `farther repro fit`",
    ):
        score_run(run, tmp_path / "passes", tmp_path / "fitted/r", tmp_path / "scores", str)


def test_an_equal_entry_in_another_place_of_params_changes_the_list_alone(process, tmp_path):
    process(BOTH)
    process(dict(reversed(BOTH.items())))
    done = process(BOTH)
    assert (done.fit.fitted, done.score.scored) == ([], [])
    assert read_entries(tmp_path / "fitted").names == ["knn", "msp"]


# --------------------------------------------------------------------------------------------------
# nothing is stale


def test_another_operating_threshold_fits_all_methods_again(run, process, tmp_path):
    process(BOTH)
    done = fit_and_score(BOTH, RunRegions(run, T_STAR + 0.1), tmp_path)
    assert done.fit.fitted == ["knn", "msp"]


@pytest.mark.parametrize(
    "settings", [{"max_regions": 20}, {"seed": 1}, {"calibration_split": "test"}]
)
def test_other_settings_fit_all_methods_again(process, settings):
    process(BOTH)
    assert process(BOTH, settings=FitSettings(**settings)).fit.fitted == ["knn", "msp"]


def test_a_fitted_state_that_was_replaced_by_another_valid_one_is_fitted_again(process, tmp_path):
    entries = {**BOTH, "other": {"method": "knn", "k": 5}}
    process(entries)
    shutil.rmtree(tmp_path / "fitted/knn")
    shutil.copytree(tmp_path / "fitted/other", tmp_path / "fitted/knn")
    done = process(entries)
    assert (done.fit.fitted, done.score.scored) == (["knn"], [])
    assert methods.load(tmp_path / "fitted/knn").k == 3


def test_scores_that_were_replaced_by_other_valid_ones_are_computed_again(process, tmp_path):
    process(BOTH)
    before = (tmp_path / "scores/knn/test.parquet").read_bytes()
    shutil.copy(tmp_path / "scores/msp/test.parquet", tmp_path / "scores/knn/test.parquet")
    assert process(BOTH).score.scored == ["knn/test"]
    assert (tmp_path / "scores/knn/test.parquet").read_bytes() == before


def test_a_state_that_is_equal_after_a_fit_leaves_its_scores(process):
    process(BOTH)
    settings = FitSettings(max_regions=1000)  # more than there are
    done = process(BOTH, settings=settings)
    assert (done.fit.fitted, done.score.scored) == (["knn", "msp"], [])


def test_other_names_of_classes_in_the_header_fit_and_score_again(run, process):
    """With the same numbers in all columns."""
    process(BOTH)
    for split in ("train", "val", "test", "coco_far"):
        file = run / split / "regions.json"
        header = json.loads(file.read_text())
        header["classes"] = header["classes"][::-1]
        file.write_text(json.dumps(header))
    done = process(BOTH)
    assert done.fit.fitted == ["knn", "msp"]
    assert len(done.score.scored) == 2 * len(SPLITS)


def test_results_of_every_file_are_the_same_bytes_in_another_folder(run, process, tmp_path):
    process(BOTH)
    fit_and_score(BOTH, RunRegions(run, T_STAR), tmp_path / "again")
    for name in ("fitted", "scores"):
        assert content_digest(tmp_path / "again" / name) == content_digest(tmp_path / name)


# ---------------------------------------------------------------------------------------- methods
# on a pass of the run


@pytest.fixture
def passes(run, make, tmp_path):
    """The passes of the run: "perturbed", whose vectors differ from the run's own."""
    for seed, split in enumerate(["train", "val", "test", "coco_far"]):
        make(60, seed=seed, shift=2.0).write(tmp_path / "passes" / "perturbed" / split)
    return tmp_path / "passes"


def test_an_entry_with_pass_learns_from_the_pass_and_scores_it(process, passes, tmp_path):
    done = process(
        {"knn": {"k": 3}, "stepped": {"method": "knn", "k": 3, "pass": "perturbed"}}, passes=passes
    )
    assert done.fit.refused == {}
    of_pass = methods.create("knn", k=3).fit(
        RegionsFolder(passes / "perturbed/train").above(T_STAR)
    )
    expected = of_pass.score(RegionsFolder(passes / "perturbed/test"))
    np.testing.assert_allclose(
        Scores.read(tmp_path / "scores/stepped/test.parquet").score, expected, rtol=1e-9
    )
    assert not np.allclose(Scores.read(tmp_path / "scores/knn/test.parquet").score, expected)


@pytest.fixture
def aligned(run, make, tmp_path):
    """The pass "perturbed" with the boxes, scores and classes of the run."""
    for seed, split in enumerate(["train", "val", "test", "coco_far"]):
        own = Regions.read(run / split)
        rows = make(len(own), seed=seed + 20, shift=2.0)
        shared = {name: own.array(name) for name in ("box", "score", "label")}
        rows.with_columns(**shared).write(tmp_path / "passes/perturbed" / split)
    return tmp_path / "passes"


def test_a_cascade_reads_a_pass_beside_the_detections(process, aligned, tmp_path):
    entries = {
        "confidence": {},
        "stepped": {"method": "knn", "k": 3, "pass": "perturbed"},
        "cascade": {"first": "confidence", "then": "stepped", "share": 1},
        "fused": {"of": ["confidence", "stepped"], "by": "mean"},
    }
    done = process(entries, passes=aligned)
    assert done.fit.refused == {}

    second = Scores.read(tmp_path / "scores/stepped/test.parquet").score
    both = Scores.read(tmp_path / "scores/cascade/test.parquet").score
    state = methods.load(tmp_path / "fitted/cascade")
    of_second = state._knots()[1]
    inside = (second > of_second.scores[0]) & (second < of_second.scores[-1])
    assert inside.sum() > 10
    order = np.argsort(second[inside])
    assert np.all(np.diff(both[inside][order]) >= -1e-9)

    [listed] = [
        entry for entry in read_entries(tmp_path / "fitted").entries if entry.name == "fused"
    ]
    assert listed.passes_beside == ["perturbed"]
    assert process(entries, passes=aligned).score.scored == []


def test_a_cascade_is_scored_again_where_the_rows_of_its_pass_changed(
    process, passes, make, tmp_path
):
    entries = {
        "confidence": {},
        "cascade": {"first": "confidence", "then": {"knn": {"k": 3, "pass": "perturbed"}}},
    }
    process(entries, passes=passes)
    rewrite(make, passes / "perturbed", "test", seed=2, shift=9.0)
    assert process(entries, passes=passes).score.scored == ["cascade/test"]


def test_a_pass_of_other_rows_is_refused(process, passes, make):
    shutil.rmtree(passes / "perturbed/test")
    make(59).write(passes / "perturbed/test")
    entries = {"cascade": {"first": "confidence", "then": {"knn": {"pass": "perturbed"}}}}
    with pytest.raises(DataError, match="not those of the run"):
        process(entries, passes=passes)


def test_a_run_without_the_pass_of_a_part_says_so(process):
    entries = {"cascade": {"first": "confidence", "then": {"knn": {"pass": "perturbed"}}}}
    refused = process(entries).fit.refused
    assert "the run has no pass 'perturbed'" in refused["cascade"]


def test_an_ood_split_that_the_run_lacks_does_not_apply(process):
    fused = {"of": ["confidence", "knn"], "by": "logistic", "ood_split": "pasted"}
    search = {"ood_split": "pasted", "grids": {"knn": {"k": [1, 3]}}}
    entries = {
        "fused": fused,
        "mds_ensemble": {"layer": ["latent"], "ood_split": "pasted"},
        "chosen": {"search": search},
    }
    refused = process(entries).fit.refused
    assert list(refused) == list(entries)
    for reason in refused.values():
        assert (
            "the run has no split 'pasted' to learn from (`ood_split`); it has coco_far" in reason
        )


def test_it_learns_from_the_detections_where_fit_on_says_so(process, run, passes, tmp_path):
    process(
        {"stepped": {"method": "knn", "k": 3, "pass": "perturbed", "fit_on": "detections"}},
        passes=passes,
    )
    expected = methods.create("knn", k=3).fit(RegionsFolder(run / "train").above(T_STAR))
    scores = expected.score(RegionsFolder(passes / "perturbed/test"))
    np.testing.assert_allclose(
        Scores.read(tmp_path / "scores/stepped/test.parquet").score, scores, rtol=1e-9
    )


def test_fit_on_names_the_split_that_one_method_learns_from(process, run, passes, make, tmp_path):
    entries = {"knn": {"k": 3}, "on_val": {"method": "knn", "k": 3, "fit_on": "val"}}
    entries["stepped"] = {**entries["on_val"], "pass": "perturbed"}
    done = process(entries, passes=passes)
    assert sorted(done.score.scored) == sorted(
        f"{name}/{split}" for name in entries for split in SPLITS
    )
    for name, of, split in (
        ("knn", run, "train"),
        ("on_val", run, "val"),
        ("stepped", passes / "perturbed", "val"),
    ):
        expected = methods.create("knn", k=3).fit(RegionsFolder(of / split).above(T_STAR))
        stored = Scores.read(tmp_path / "scores" / name / "test.parquet").score
        np.testing.assert_allclose(stored, expected.score(RegionsFolder(of / "test")), rtol=1e-9)
    rewrite(make, run, "train", seed=9)
    assert process(entries, passes=passes).fit.fitted == ["knn"]


@pytest.mark.parametrize("split", ["vall", "coco_far"])
def test_a_method_is_not_fitted_on_an_unknown_or_a_test_split(process, split):
    with pytest.raises(
        ParameterError,
        match=rf"unknown split in methods.msp.fit_on '{split}'.* (Did you mean|Known: test, train)",
    ):
        process({"msp": {"fit_on": split}}, test_splits=("coco_far",))


def test_a_changed_pass_alone_is_scored_again(process, passes, make):
    entries = {"knn": {"k": 3}, "stepped": {"method": "knn", "k": 3, "pass": "perturbed"}}
    process(entries, passes=passes)
    shutil.rmtree(passes / "perturbed/test")
    make(60, seed=8).write(passes / "perturbed/test")
    assert process(entries, passes=passes).score.scored == ["stepped/test"]


def test_a_run_without_the_pass_says_so_and_gets_it_later(process, passes):
    entries = {"stepped": {"method": "msp", "pass": "perturbed"}}
    assert "no pass 'perturbed'; list it in `passes`" in process(entries).fit.refused["stepped"]
    assert process(entries, passes=passes).score.scored == [f"stepped/{split}" for split in SPLITS]


def test_a_method_that_wants_a_pass_learns_from_it_and_scores_the_detections(
    process, run, passes, make, tmp_path
):
    entries = {"safe": {}, "msp": {}}
    assert "no pass 'perturbed'" in process(entries).fit.refused["safe"]
    assert process(entries, passes=passes).score.scored == [f"safe/{split}" for split in SPLITS]
    clean, moved = (
        RegionsFolder(folder / "train").above(T_STAR) for folder in (run, passes / "perturbed")
    )
    expected = methods.create("safe").fit(clean)
    expected.learn_pass(clean, moved)
    stored = Scores.read(tmp_path / "scores/safe/test.parquet").score
    np.testing.assert_allclose(stored, expected.score(RegionsFolder(run / "test")), rtol=1e-9)
    shutil.rmtree(passes / "perturbed/train")
    make(60, seed=8, shift=3.0).write(passes / "perturbed/train")
    assert process(entries, passes=passes).fit.fitted == ["safe"]


def test_a_pass_without_the_training_split_needs_fit_on(process, passes):
    shutil.rmtree(passes / "perturbed/train")
    entries = {
        "energy": {"pass": "perturbed"},
        "odin": {"method": "msp", "pass": "perturbed", "fit_on": "detections"},
    }
    done = process(entries, passes=passes)
    assert "no split 'train' to learn from" in done.fit.refused["energy"]
    assert "fit_on: detections" in done.fit.refused["energy"]
    assert done.score.scored == [f"odin/{split}" for split in SPLITS]


def test_a_pass_without_the_calibration_split_names_skip(process, passes):
    shutil.rmtree(passes / "perturbed/val")
    refused = process(
        {"stepped": {"method": "msp", "pass": "perturbed"}}, passes=passes
    ).fit.refused["stepped"]
    assert (
        "the pass 'perturbed' has no split 'val'" in refused
        and "take it out of the pass's `skip`" in refused
    )


def test_a_pass_whose_training_split_is_left_out_can_be_fitted_on_another(process, passes):
    shutil.rmtree(passes / "perturbed/train")
    settings = FitSettings(split="val", calibration_split="test")
    done = process(
        {"stepped": {"method": "knn", "k": 3, "pass": "perturbed"}},
        passes=passes,
        settings=settings,
    )
    assert (done.fit.refused, sorted(done.score.scored)) == (
        {},
        ["stepped/coco_far", "stepped/test"],
    )


def test_fit_on_without_on_is_refused():
    with pytest.raises(
        ParameterError, match="'fit_on: detections' goes with 'pass'; or name an ID split"
    ):
        read_entry("msp", {"fit_on": "detections"})


def test_splits_that_a_pass_leaves_out_have_no_scores(process, run, passes):
    shutil.rmtree(passes / "perturbed/coco_far")
    entries = {"msp": {}, "stepped": {"method": "msp", "pass": "perturbed"}}
    assert sorted(process(entries, passes=passes).score.scored) == [
        *(f"msp/{split}" for split in sorted(SPLITS)),
        *(f"stepped/{split}" for split in sorted(set(SPLITS) - {"coco_far"})),
    ]


@pytest.fixture
def on_device(monkeypatch):
    """PyTorch's CPU takes the place of a GPU."""
    device_of = {"cpu": None, "cuda": "cpu", "auto": "cpu"}
    monkeypatch.setattr("farther.scoring.score.torch_device", device_of.__getitem__)


@pytest.fixture
def fitted_methods(run, tmp_path):
    entries = {"knn": {"k": 3}, "approximate": {"method": "knn", "k": 3, "index": "approximate"}}
    entries |= {"mahalanobis": {}, "vim": {}, "energy": {}, "openmax": {"tail": 5}, "gen": {}}
    fit_and_score(entries, RunRegions(run, T_STAR, FitSettings()), tmp_path)
    return tmp_path


def rescore(folder, name, device):
    done = score_run(
        folder / "regions", folder / "no passes", folder / "fitted", folder / name, code, device
    )
    return done, {
        str(file.relative_to(folder / name)): Scores.read(file)
        for file in sorted((folder / name).rglob("*.parquet"))
    }


def code(_):
    return "1"


def test_scores_on_a_device_of_pytorch_are_those_of_numpy(fitted_methods, on_device):
    _, numpys = rescore(fitted_methods, "numpy", "cpu")
    _, torchs = rescore(fitted_methods, "torch", "cuda")
    assert len(numpys) == 21
    assert torchs.keys() == numpys.keys()
    for name, expected in numpys.items():
        found = torchs[name]
        assert found.image_id.tolist() == expected.image_id.tolist()
        largest = 1e-6 * expected.score.std()
        np.testing.assert_allclose(found.score, expected.score, rtol=0, atol=largest)


def test_each_row_is_scored_once_where_it_shall_be(fitted_methods, on_device, monkeypatch):
    rows = Counter()
    usual = ScoreModule.score_regions

    def counted(module, regions):
        rows[module.method.name] += len(regions)
        return usual(module, regions)

    monkeypatch.setattr(ScoreModule, "score_regions", counted)
    rescore(fitted_methods, "torch", "cuda")
    total = sum(
        len(RegionsFolder(fitted_methods / "regions" / split))
        for split in ("val", "test", "coco_far")
    )
    on_torch = ("knn", "mahalanobis", "vim", "energy", "openmax", "gen")
    assert rows == dict.fromkeys(on_torch, total)  # an approximate index is FAISS's


def test_another_device_scores_again_and_the_same_one_does_not(fitted_methods, on_device):
    assert rescore(fitted_methods, "scores", "cpu")[0].scored == []
    assert len(rescore(fitted_methods, "scores", "auto")[0].scored) == 21
    assert rescore(fitted_methods, "scores", "auto")[0].scored == []
    assert rescore(fitted_methods, "scores", "cuda")[0].scored == []


def test_scores_of_a_gpu_are_not_kept_where_there_is_none(fitted_methods, monkeypatch):
    present = ["cpu"]
    monkeypatch.setattr("farther.scoring.score.torch_device", lambda _: present[0])
    rescore(fitted_methods, "scores", "auto")
    present[0] = None
    assert len(rescore(fitted_methods, "scores", "auto")[0].scored) == 21
    assert rescore(fitted_methods, "scores", "cpu")[0].scored == []


def test_a_gpu_that_is_not_there_is_refused_unless_the_device_may_be_another(monkeypatch):
    monkeypatch.setattr("farther.scoring.device.has_gpu", lambda: False)
    assert torch_device("auto") is None
    with pytest.raises(
        ParameterError, match=r"scoring.device: PyTorch can use no GPU .* cpu or auto"
    ):
        torch_device("cuda")
    with pytest.raises(ParameterError, match=r"scoring.*device"):
        build(ScoringSettings, "scoring", {"device": "gpu"})


def test_scores_on_the_cpu_do_not_import_pytorch():
    text = (
        "import sys; from farther.scoring import score; from farther.scoring.device import *;"
        "assert torch_device('cpu') is None; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
