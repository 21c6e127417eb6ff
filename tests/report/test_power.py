"""Differences that a test set can show."""

import numpy as np

from farther.metrics.ood import auroc
from farther.report.power import smallest_difference, split_sizes
from farther.report.results import read_runs


def test_a_difference_of_this_size_is_significant_in_four_of_five_test_sets():
    """Two scores on the same regions, the second better by the smallest difference; replicates by drawing again."""
    rng = np.random.default_rng(0)

    def sample(gain: float) -> np.ndarray:
        shared, own = rng.normal(0, 1, (2, 2, 150))
        known = np.array([1.0, 0.0])[:, None]
        first, second = known + shared + 0.5 * own, (1 + gain) * known + shared + 0.5 * rng.normal(0, 1, (2, 150))
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
    listing = split_sizes("pets", runs, evaluated / "artifacts")
    assert listing.frame["Split"].to_list() == ["photos near", "photos far"]
    assert listing.frame["Images to show half of it"].to_list() == [4 * n for n in listing.frame["Images"]]
