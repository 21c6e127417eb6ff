"""Differences that a test set can show."""

import numpy as np
import polars as pl
import pytest

from farther.metrics.ood import auroc
from farther.report.power import (
    apart,
    images_to_halve,
    listing,
    significant_pairs,
    sizes,
    smallest_difference,
    undecided,
)
from farther.report.results import read_runs


def test_a_difference_of_this_size_is_significant_in_four_of_five_test_sets():
    """Two scores on the same regions, the second better by the smallest difference.

    Replicates are new samples.
    """
    rng = np.random.default_rng(0)

    def sample(gain: float) -> tuple[float, float]:
        """AUROC of both scores on 150 ID and 150 OOD regions."""
        shared, own = rng.normal(0, 1, (2, 2, 150))
        known = np.array([1.0, 0.0])[:, None]
        first = known + shared + 0.5 * own
        second = (1 + gain) * known + shared + 0.5 * rng.normal(0, 1, (2, 150))
        return auroc(*first), auroc(*second)

    def differences(gain: float, count: int) -> np.ndarray:
        pairs = np.array([sample(gain) for _ in range(count)])
        return pairs[:, 1] - pairs[:, 0]

    without_gain = np.array([sample(0.0) for _ in range(400)])
    detectable = smallest_difference(*without_gain.T)
    gains = np.linspace(0, 1, 21)
    mean_differences = [differences(gain, 60).mean() for gain in gains]
    gain = float(np.interp(detectable, mean_differences, gains))

    sd = np.diff(without_gain, axis=1).std()
    is_significant = np.abs(differences(gain, 400)) > 1.96 * sd
    assert 0.7 < is_significant.mean() < 0.9


def test_each_split_of_a_benchmark_has_a_row(evaluated, params):
    runs = [run for run in read_runs(params, evaluated / "artifacts") if run.is_evaluated]
    test_sizes = sizes(runs, evaluated / "artifacts")
    rows = listing("pets", test_sizes).frame
    assert rows["Split"].to_list() == ["photos near", "photos far"]
    assert rows["Images to detect half of it"].to_list() == [4 * n for n in rows["Images"]]
    # Near, kNN has 100% in every replicate and Energy at most 35%.
    assert rows["AUROC: pairs told apart"].to_list() == ["1 of 3", "0 of 3"]
    assert undecided(test_sizes).startswith(
        "No two methods can be told apart on photos far (pets, 2 images):"
    )
    far = test_sizes.filter(split="photos_far")
    assert undecided(far).startswith(
        "No two methods can be told apart on any split: no difference in AUROC or R_U"
    )


def test_a_sentence_has_the_share_of_pairs_that_differ_and_what_a_split_detects():
    test_sizes = pl.DataFrame(
        {
            "metric": ["auroc", "auroc", "r_u", "r_u"],
            "pairs": [6, 4, 6, 4],
            "apart": [3, 1, 0, 1],
            "smallest": [0.02, 0.04, 0.1, 0.1],
        }
    )
    assert apart(test_sizes) == (
        "Of the pairs of methods on a split of a run, 40% differ significantly by AUROC (4 of 10) "
        "and 10% by R_U (1 of 10). The images of a split of median size can show differences "
        "of at least 3.0 points in AUROC and 10.0 points in R_U."
    )
    assert apart(test_sizes.clear()) == ""


def test_the_splits_on_which_no_pair_is_told_apart_are_named():
    test_sizes = pl.DataFrame(
        {
            "benchmark_title": ["B", "B", "B", "B"],
            "split": ["near", "near", "far", "far"],
            "images": [40, 40, 40, 40],
            "metric": ["auroc", "r_u", "auroc", "r_u"],
            "apart": [3, 3, 0, 0],
        }
    )
    assert undecided(test_sizes).startswith(
        "No two methods can be told apart on far (B, 40 images):"
    )
    assert undecided(test_sizes.with_columns(apart=1)) == ""


def test_only_methods_that_differ_by_more_than_chance_are_told_apart():
    rng = np.random.default_rng(0)
    values = {"a": 0.5, "b": 0.51, "c": 0.9}
    replicates = {name: value + rng.normal(0, 0.02, 400) for name, value in values.items()}
    assert significant_pairs(values, replicates, "all_pairs") == [("a", "c"), ("b", "c")]


def test_four_times_the_images_halve_an_interval():
    """AUROC of samples of the number that is named varies half as much."""
    rng = np.random.default_rng(0)

    def sd(count: int) -> float:
        """Standard deviation of AUROC over samples of `count` regions of each side."""
        values = []
        for _ in range(1500):
            known, unknown = rng.normal(1, 1, count), rng.normal(0, 1, count)
            values.append(auroc(known, unknown))
        return float(np.std(values))

    assert sd(images_to_halve(50)) / sd(50) == pytest.approx(0.5, rel=0.15)
