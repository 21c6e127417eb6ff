"""Differences that a test set can show."""

import numpy as np
import polars as pl
import pytest

from farther.metrics.ood import auroc
from farther.report.power import (
    images_to_halve,
    listing,
    sizes,
    smallest_difference,
    told_apart,
    undecided,
)
from farther.report.results import read_runs


def test_a_difference_of_this_size_is_significant_in_four_of_five_test_sets():
    """Two scores on the same regions, the second better by the smallest difference; replicates by drawing again."""
    rng = np.random.default_rng(0)

    def sample(gain: float) -> np.ndarray:
        shared, own = rng.normal(0, 1, (2, 2, 150))
        known = np.array([1.0, 0.0])[:, None]
        first, second = (
            known + shared + 0.5 * own,
            (1 + gain) * known + shared + 0.5 * rng.normal(0, 1, (2, 150)),
        )
        return np.array([auroc(*first), auroc(*second)])

    none = np.array([sample(0.0) for _ in range(400)])
    wanted = smallest_difference(*none.T)
    gains = np.linspace(0, 1, 21)
    means = [np.mean([np.diff(sample(gain))[0] for _ in range(60)]) for gain in gains]
    gain = float(np.interp(wanted, means, gains))
    differences = np.array([np.diff(sample(gain))[0] for _ in range(400)])
    found = np.mean(np.abs(differences) > 1.96 * np.diff(none, axis=1).std())
    assert 0.7 < found < 0.9


def test_each_split_of_a_benchmark_has_a_row(evaluated, params):
    runs = [run for run in read_runs(params, evaluated / "artifacts") if run.is_evaluated]
    found = sizes(runs, evaluated / "artifacts")
    rows = listing("pets", found).frame
    assert rows["Split"].to_list() == ["photos near", "photos far"]
    assert rows["Images to detect half of it"].to_list() == [4 * n for n in rows["Images"]]
    assert rows["AUROC: pairs told apart"].to_list() == [
        "1 of 3",
        "0 of 3",
    ]  # near, kNN has 100% in every draw and Energy at most 35%
    assert undecided(found).startswith(
        "No two methods can be told apart on photos far (pets, 2 images):"
    )
    far = found.filter(split="photos_far")
    assert undecided(far).startswith(
        "No two methods can be told apart on any split: no difference in AUROC or R_U"
    )


def test_the_splits_on_which_no_pair_is_told_apart_are_named():
    apart = {"near": 3, "far": 0}
    rows = [
        {
            "benchmark": "b",
            "benchmark_title": "B",
            "split": split,
            "images": 40,
            "metric": metric,
            "apart": count,
        }
        for split, count in apart.items()
        for metric in ("auroc", "r_u")
    ]
    assert undecided(pl.DataFrame(rows)).startswith(
        "No two methods can be told apart on far (B, 40 images):"
    )
    assert undecided(pl.DataFrame(rows).with_columns(apart=1)) == ""


def test_only_methods_that_differ_by_more_than_chance_are_told_apart():
    rng = np.random.default_rng(0)
    values = {"a": 0.5, "b": 0.51, "c": 0.9}
    drawn = {name: value + rng.normal(0, 0.02, 400) for name, value in values.items()}
    assert told_apart(values, drawn, "all_pairs") == [("a", "c"), ("b", "c")]


def test_four_times_the_images_halve_an_interval():
    """AUROC of samples of the number that is named varies half as much."""
    rng = np.random.default_rng(0)

    def spread(count: int) -> float:
        return float(
            np.std([auroc(rng.normal(1, 1, count), rng.normal(0, 1, count)) for _ in range(1500)])
        )

    assert spread(images_to_halve(50)) / spread(50) == pytest.approx(0.5, rel=0.15)
