"""Means over the same runs: which methods are compared, and what the others show."""

from dataclasses import replace

import pytest
from tests.report.conftest import run_of

from farther.evaluation.results import MeanOverSplits
from farther.metrics.catalogue import METRICS
from farther.report.common_runs import Gain, MethodsByRuns
from farther.report.overview import Overview

NAMES = ["confidence", "energy", "native", "vos"]


def run(name: str, values: dict[str, tuple[float | None, float | None]], distance: str = "near"):
    """A run whose methods have these means of AUROC and R_U at a distance."""
    methods = {}
    for method, (auroc, r_u) in values.items():
        mean = MeanOverSplits(splits=["coco_near"], values={"auroc": auroc, "r_u": r_u})
        methods[method] = {"means": {distance: mean}}
    metrics = {method: {"auroc": auroc} for method, (auroc, _) in values.items()}
    return replace(run_of(metrics, {"methods": methods}), name=name)


@pytest.fixture
def runs():
    """Two runs; `native` applies to the second only, and has by far the highest AUROC there."""
    return [
        run("hard", {"confidence": (0.6, 0.1), "energy": (0.7, 0.3)}),
        run(
            "easy",
            {"confidence": (0.98, 0.9), "energy": (0.96, 0.5), "native": (0.97, 0.95)},
        ),
    ]


def test_a_method_of_one_run_with_a_huge_mean_has_no_star_and_follows_the_others(runs):
    text = Overview.of(runs, NAMES).text()
    lines = text.splitlines()
    native = next(line for line in lines if line.startswith("Native"))
    assert "*" not in native
    # Its gain on its own run: 97 − 98 and 95 − 90.
    assert native.split() == ["Native", "-1.0", "+5.0", "1/2"]
    assert lines.index(native) > max(
        lines.index(line) for line in lines if line.startswith(("Confidence", "Energy"))
    )
    # Means over both runs: 79 and 83, 50 and 40.
    energy = next(line for line in lines if line.startswith("Energy"))
    assert energy.split() == ["Energy", "83.0*", "40.0"]
    confidence = next(line for line in lines if line.startswith("Confidence"))
    assert confidence.split() == ["Confidence", "79.0", "50.0*"]


def test_counts_of_runs_and_methods_agree_on_one_screen(runs):
    text = " ".join(Overview.of(runs, NAMES).text().split())
    assert "near, 2 runs" in text
    assert "over 2 runs and their splits; * best of the 2 methods that apply to every run." in text
    assert "(k/2)" in text
    assert "detectors" not in text


def test_no_line_is_wider_than_a_terminal_at_three_distances(runs):
    every = list(runs)
    for distance in ("far", "farther"):
        every.append(
            run(distance, {"confidence": (0.6, 0.1), "energy": (0.7, 0.3)}, distance=distance)
        )
    lines = Overview.of(every, NAMES).text().splitlines()
    assert max(map(len, lines)) <= 80


def test_each_distance_has_the_number_of_its_runs(runs):
    third = run("third", {"confidence": (0.6, 0.1), "energy": (0.7, 0.3)}, distance="far")
    heads = Overview.of([*runs, third], NAMES).text().splitlines()[0]
    assert "near, 2 runs" in heads
    assert "far, 1 run" in heads


def test_one_run_has_means_of_all_its_methods_and_no_second_block(runs):
    text = Overview.of(runs[1:], NAMES).text()
    native = next(line for line in text.splitlines() if line.startswith("Native"))
    assert native.split() == ["Native", "97.0", "95.0*"]
    assert "Applying" not in text
    assert "runs" not in text


def test_methods_that_share_no_run_are_not_compared():
    first = run("first", {"confidence": (0.6, 0.1), "energy": (0.9, 0.3)})
    second = run("second", {"vos": (0.99, 0.9)})
    text = Overview.of([first, second], NAMES).text()
    assert "No method applies to all 2 runs: no means are compared." in text
    assert "*" not in text
    rows = [line.split() for line in text.splitlines()]
    assert ["Energy", "+30.0", "+20.0", "1/2"] in rows
    # There is no Confidence on its run.
    assert ["VOS", "—", "—", "1/2"] in rows
    assert not any(row[:1] == ["Confidence"] for row in rows)


def test_without_a_baseline_the_block_says_what_its_gain_needs(runs):
    first = run("first", {"energy": (0.9, 0.3)})
    second = run("second", {"energy": (0.8, 0.3), "vos": (0.99, 0.9)})
    text = " ".join(Overview.of([first, second], NAMES).text().split())
    assert "their gain needs a line `confidence: {}` in section `methods`" in text
    assert "VOS — — 1/2" in text


def test_a_method_without_a_value_in_a_run_of_all_has_no_mean_there(runs):
    """Energy applies to both runs, but its R_U is defined in one only."""
    hard = run("hard", {"confidence": (0.6, 0.1), "energy": (0.7, None)})
    text = Overview.of([hard, runs[1]], NAMES).text()
    energy = next(line for line in text.splitlines() if line.startswith("Energy"))
    assert energy.split() == ["Energy", "83.0*", "—"]
    assert "50.0*" not in text  # nothing is left to compare Confidence with


def test_a_metric_of_errors_is_best_where_it_is_lowest():
    methods = MethodsByRuns.of(
        [run("a", {"confidence": (0.5, 0.5), "energy": (0.5, 0.5)})], ["confidence", "energy"]
    )
    values = {"a": {"confidence": 0.4, "energy": 0.2}}
    paired = methods.compare(METRICS["nose"], values)
    assert paired.best == ["energy"]
    assert paired.ranked == ["energy", "confidence"]
    assert methods.compare(METRICS["nose"], {"a": dict.fromkeys(values["a"], 0.3)}).best == []


def test_a_gain_is_over_the_baseline_on_the_same_places():
    runs = [run("a", {"confidence": (0.5, 0.5)}), run("b", {"confidence": (1, 1), "vos": (1, 1)})]
    methods = MethodsByRuns.of(runs, NAMES)
    values = {
        ("a", "near"): {"confidence": 0.1},
        ("b", "near"): {"confidence": 0.5, "vos": 0.6},
        ("b", "far"): {"confidence": 0.7, "vos": 0.6},
    }
    paired = methods.compare(METRICS["auroc"], values)
    assert paired.gains["vos"] == Gain(2, pytest.approx(0.6), pytest.approx(0.6))
    assert paired.gains["vos"].gain == pytest.approx(0.0)
    assert paired.means == {"confidence": pytest.approx(1.3 / 3)}


def test_data_has_both_blocks_and_the_runs_that_each_column_is_over(runs):
    data = Overview.of(runs, NAMES).data()
    assert data["runs"] == ["hard", "easy"]
    assert [column["name"] for column in data["columns"]] == ["near/auroc", "near/r_u"]
    assert data["columns"][0]["runs"] == ["hard", "easy"]
    assert data["baseline"] == "confidence"
    by_method = {entry["method"]: entry for entry in data["common"]}
    assert by_method["energy"]["means"]["near/auroc"] == pytest.approx(0.83)
    assert by_method["energy"]["best"] == ["near/auroc"]
    (native,) = data["partial"]
    assert native["runs"] == ["easy"]
    assert native["gain"]["near/auroc"] == pytest.approx(-0.01)
    assert native["baseline_means"]["near/r_u"] == pytest.approx(0.9)
    assert "best" not in native
