"""The page of methods: means over the same runs, and gains of methods of fewer runs."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.report.conftest import run_of

from farther.report.all_results import AllResults
from farther.report.documented import texts_of
from farther.report.pages.methods import _tables
from farther.report.settings import ReportSettings

METHODS = ("confidence", "msp", "energy", "native", "knn")


def values(**auroc):
    return {name: {"auroc": value, "ap_u": value / 2} for name, value in auroc.items()}


@pytest.fixture
def tables():
    def make(*runs):
        texts = {name: texts_of(name, {}) for name in METHODS}
        params = {"methods": dict.fromkeys(METHODS), "benchmarks": {"voc": {}}}
        results = AllResults(params, ReportSettings(), runs, Path(), {}, texts)
        return [listing.frame for listing in _tables(results)]

    return make


RUNS = [
    replace(run_of(values(confidence=0.6, msp=0.5, energy=0.7)), name="hard"),
    replace(run_of(values(confidence=0.9, msp=0.8, energy=0.86, native=0.98)), name="easy"),
]


def test_a_method_of_one_run_is_in_a_table_of_gains_below_those_of_every_run(tables):
    means, gains, unused = tables(*RUNS)
    assert means["Method"].to_list() == ["Energy", "Confidence", "MSP"]  # the best AUROC first
    assert means["Mean AUROC (%)"].to_list() == pytest.approx([0.78, 0.75, 0.65])
    assert means["Runs"].to_list() == [2, 2, 2]
    assert gains["Method"].to_list() == ["Native"]
    assert gains["AUROC gained (points)"].to_list() == ["+8.0"]
    assert gains["Runs"].to_list() == [1]
    assert not any("Mean" in column for column in gains.columns)
    assert unused["Method"].to_list() == ["kNN"]


def test_one_run_has_one_table_of_means(tables):
    means, unused = tables(RUNS[1])
    assert means["Method"].to_list() == ["Native", "Confidence", "Energy", "MSP"]
    assert unused["Method"].to_list() == ["kNN"]


def test_detectors_and_classifiers_are_not_averaged_together(tables):
    classifier = run_of(values(confidence=0.1, knn=0.3), detector={"accuracy": 0.5})
    means, gains, of_classifier = tables(*RUNS, classifier)
    assert means["Mean AUROC (%)"].to_list() == pytest.approx([0.78, 0.75, 0.65])
    assert gains["Method"].to_list() == ["Native"]
    assert of_classifier["Method"].to_list() == ["kNN", "Confidence"]
    assert of_classifier["Mean AUROC (%)"].to_list() == pytest.approx([0.3, 0.1])


def test_runs_that_share_no_method_have_no_means(tables):
    first = replace(run_of(values(confidence=0.6, msp=0.5)), name="first")
    second = replace(run_of(values(knn=0.99)), name="second")
    gains, _ = tables(first, second)
    assert gains["Method"].to_list() == ["Confidence", "MSP", "kNN"]
    assert gains["AUROC gained (points)"].to_list() == ["baseline", "-10.0", "—"]


def test_before_anything_is_evaluated_the_methods_are_listed(tables):
    (unused,) = tables()
    assert len(unused) == len(METHODS)
