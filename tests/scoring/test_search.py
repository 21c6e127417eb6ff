import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from farther import methods
from farther.errors import ParameterError
from farther.methods import FitError
from farther.scoring.entries import read_entry
from farther.scoring.fit import fit_entry
from farther.scoring.inputs import FitSettings, RunRegions
from farther.scoring.search import Search, Trial, search
from farther.tables import Regions


@pytest.fixture
def run(make, tmp_path):
    for seed, split in enumerate(["train", "val", "test", "ood_val", "coco_far"]):
        make(80, seed=seed, shift=3.0 if split in ("ood_val", "coco_far") else 0.0).write(
            tmp_path / split
        )
    return RunRegions(tmp_path, test_splits=("coco_far",))


GRID = {"temperature": [0.5, 1.0, 100.0], "background": ["drop"]}


def test_the_best_parameters_have_the_largest_value(run):
    found = search({"energy": GRID}, run, "ood_val")
    assert not found.oracle
    assert [trial.params["temperature"] for trial in found.trials] == [0.5, 1.0, 100.0]
    assert found.best.value == max(trial.value for trial in found.trials)
    method = methods.create("energy", **found.best.params)
    id_scores, ood_scores = (
        method.score(Regions.read(run.folder / split)) for split in ("val", "ood_val")
    )
    assert (id_scores[:, None] > ood_scores).mean() == pytest.approx(found.best.value)


def trials(*values):
    """A search over `k` with these values of AUROC for k = 1, 2, 3, …."""
    tried = [Trial("knn", {"k": k}, value) for k, value in enumerate(values, start=1)]
    best = max(tried, key=lambda trial: trial.value)
    return Search(best, tuple(tried), "val", "ood_val", oracle=False)


def test_a_best_value_at_the_end_of_those_tried_is_remarked():
    assert (
        "k: the best of the values tried, 3, is the largest" in trials(0.1, 0.2, 0.3).remarks()[0]
    )
    assert "1, is the smallest" in trials(0.3, 0.2, 0.1).remarks()[0]
    for values in ([0.1, 0.3, 0.2], [0.3, 0.3, 0.2], [0.1, 0.2]):
        assert trials(*values).remarks() == []


def test_remarks_on_the_values_tried_are_stored_with_the_method(run, tmp_path):
    entry = read_entry(
        "knn", {"search": {"ood_split": "ood_val", "grids": {"knn": {"k": [1, 2, 60]}}}}
    )
    assert fit_entry(entry, run, tmp_path / "knn", search) is None
    stored = json.loads((tmp_path / "knn/method.json").read_text())
    best = stored["choice"]["best"]["params"]["k"]
    assert bool(stored["remarks"]) == (best in (1, 60))


def test_the_first_of_equals_is_chosen(run):
    found = search({"msp": {"activation": ["detector", "softmax"]}}, run, "ood_val")
    assert found.best.params == {"activation": "detector"}


@pytest.mark.parametrize("split", ["test", "coco_far"])
def test_a_test_split_is_refused(run, split):
    with pytest.raises(ParameterError, match=f"results are reported on '{split}'"):
        search({"energy": GRID}, run, split)


@pytest.mark.parametrize("split", ["train", "val"])
def test_an_in_distribution_split_is_refused(run, split):
    with pytest.raises(ParameterError, match="in-distribution"):
        search({"energy": GRID}, run, split)


def test_the_best_on_test_data_is_labelled_an_oracle(run):
    grids = {
        "lard_knn": {"components": [1, 4], "k": [3]},
        "lard_mahalanobis": {"components": [4]},
        "lard_gmm": {},
    }
    found = search(grids, run, "coco_far", oracle=True)
    assert found.oracle
    assert [trial.name for trial in found.trials] == [
        "lard_gmm",
        "lard_knn",
        "lard_knn",
        "lard_mahalanobis",
    ]
    assert json.loads(json.dumps(asdict(found)))["oracle"] is True


def test_entries_of_a_grid_in_another_order_find_the_same(run):
    knn = {"k": [3, 5], "protocol": ["paper", "published-code"]}  # the protocols tie
    grids = {"knn": knn, "energy": {}}
    found = search(grids, run, "ood_val")
    reordered = {"energy": {}, "knn": dict(reversed(knn.items()))}
    assert search(reordered, run, "ood_val") == found


def test_combinations_that_cannot_be_fitted_are_listed_with_their_reason(run):
    found = search({"knn": {"k": [3, 5000]}}, run, "ood_val")
    assert found.best.params == {"k": 3}
    assert found.trials[1].value is None
    assert "k is 5000" in found.trials[1].reason


def test_if_none_can_be_fitted_the_reasons_are_told(run):
    with pytest.raises(FitError, match=r"none of 2 combinations can be fitted: .*k is 5000"):
        search({"knn": {"k": [5000, 6000]}}, run, "ood_val")


def test_a_sample_of_the_training_split_is_enough(run):
    small = replace(run, settings=FitSettings(max_regions=4))
    with pytest.raises(FitError, match="4 regions to fit on, but k is 5"):
        search({"knn": {"k": [5]}}, small, "ood_val")


def test_only_detections_above_the_operating_threshold_count(run):
    half = replace(run, operating=0.5)
    scores = []
    for split in ("val", "ood_val"):
        regions = Regions.read(run.folder / split)
        scores.append(methods.create("msp").score(regions[regions.score >= 0.5]))
    expected = (scores[0][:, None] > scores[1]).mean()
    assert search({"msp": {}}, half, "ood_val").best.value == pytest.approx(expected)
    assert search({"msp": {}}, run, "ood_val").best.value != pytest.approx(expected)


def test_the_layer_of_a_method_is_chosen_on_the_validation_split(run, make):
    for split in ("train", "val", "ood_val"):
        regions = Regions.read(run.folder / split)
        noise = np.random.default_rng(0).normal(size=(len(regions), 6))
        layers = {"latent.blurred": noise, "latent.sharp": regions.features}
        Regions(header=regions.header, **regions.columns(), **layers).write(run.folder / split)
    for name, params in {"oodl": {"gamma": [0.05]}, "knn": {"k": [3]}}.items():
        found = search({name: {"layer": ["blurred", "sharp", "absent"], **params}}, run, "ood_val")
        assert found.best.params["layer"] == "sharp"
        assert "latent.absent" in found.trials[2].reason


def test_oodl_takes_the_features_where_they_are_better_than_every_layer_and_the_best_nu_of_them(
    run,
):
    for split in ("train", "val", "ood_val"):
        regions = Regions.read(run.folder / split)
        noise = np.random.default_rng(0).normal(size=(len(regions), 6))
        Regions(header=regions.header, **regions.columns(), **{"latent.blurred": noise}).write(
            run.folder / split
        )
    grid = {
        "layer": ["blurred", None],
        "nu": [0.01, 0.5],
        "kernel": ["rbf", "nystroem"],
        "gamma": [0.05],
    }
    found = search({"oodl": grid}, run, "ood_val")
    assert [trial.params["nu"] for trial in found.trials] == [0.01, 0.5] * 4
    assert found.best.params["layer"] is None
    for trial in found.trials:
        method = methods.create("oodl", **trial.params).fit(Regions.read(run.folder / "train"))
        id_scores, ood_scores = (
            method.score(Regions.read(run.folder / split)) for split in ("val", "ood_val")
        )
        wins = (id_scores[:, None] > ood_scores) + (id_scores[:, None] == ood_scores) / 2
        assert trial.value == pytest.approx(wins.mean())
    assert found.best.value == max(trial.value for trial in found.trials)
