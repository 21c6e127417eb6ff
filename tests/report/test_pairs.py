"""Two detectors on the same images."""

from dataclasses import replace

import numpy as np
import pytest

from farther.report.distances import Distances, Shares
from farther.report.links import GalleryLinks
from farther.report.pairs import Difference, Pair, listing, pairs
from farther.report.results import read_runs


@pytest.fixture
def distances(evaluated, params):
    run = read_runs(params, evaluated / "artifacts")[0]
    return Distances([run, replace(run, name="twin", title="twin")], evaluated / "artifacts", "msp")


def test_a_detector_does_not_differ_from_itself(distances):
    (pair,) = pairs(distances)
    assert [one.value for one in pair.differences] == [0, 0, 0]
    assert not any(one.is_significant for one in pair.differences)
    assert pair.verdict() == "no outcome differs significantly"
    links = {run.name: GalleryLinks(run.name, "", {"photos_far": 2}, 9) for run in distances.runs}
    table = listing(distances, links)
    assert len(table) == 1


def test_differences_are_paired_over_resamples(distances, monkeypatch):
    shares = {
        "pets-net": [0.2, 0.3, 0.25, 0.35] * 50,
        "twin": [0.5, 0.6, 0.55, 0.66] * 50,  # about 0.3 more in each resample
    }

    def of_run(self, run, method):
        found = np.array(shares[run.name])
        replicates = {"found": found, "misclassified": 1 - found, "missed": 0 * found}
        counts = {"found": 2, "misclassified": 8, "missed": 0}
        if run.name == "twin":
            counts = {"found": 5, "misclassified": 5, "missed": 0}
        return Shares(10, 6, counts, replicates)

    monkeypatch.setattr(Distances, "all_shares", of_run)
    (pair,) = pairs(distances)
    found, misclassified, missed = pair.differences
    assert found.value == pytest.approx(0.3)
    assert found.interval == pytest.approx((0.3, 0.31))
    assert found.is_better and misclassified.is_better
    assert not missed.is_significant
    assert pair.verdict() == "twin is better: found, misclassified"


def test_runs_on_other_images_are_no_pair(distances):
    run, twin = distances.runs
    other = replace(twin, benchmark="zoo")
    assert not list(pairs(replace(distances, runs=[run, other])))


def test_each_side_can_be_better_in_something(distances):
    run, twin = distances.runs
    differences = [
        Difference("found", 0.2, (0.1, 0.3)),
        Difference("misclassified", 0.2, (0.1, 0.3)),
        Difference("missed", -0.4, None),
    ]
    verdict = Pair(run, twin, differences).verdict()
    assert verdict == "twin is better: found; net is better: misclassified"
