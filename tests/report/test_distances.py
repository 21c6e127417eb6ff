"""The first figure and its sentences, compared with conftest.PHOTOS and tables of outcomes."""

import re

import numpy as np
import polars as pl
import pytest

from farther.evaluation.files import RunFiles
from farther.metrics.statistics.bootstrap import interval
from farther.report import headline
from farther.report.charts.distances import figure, panels
from farther.report.charts.figures import as_files
from farther.report.distances import Distances, Shares
from farther.report.results import read_runs
from farther.tables import ObjectOutcomes


@pytest.fixture
def distances(evaluated, params) -> Distances:
    runs = [run for run in read_runs(params, evaluated / "artifacts") if run.is_evaluated]
    return Distances(runs, evaluated / "artifacts", "msp")


def test_bars_hold_the_outcomes_of_each_distance(distances):
    shown = {
        (row["distance"], row["outcome"]): row["share"]
        for row in distances.rows.iter_rows(named=True)
    }
    near = {("near", "found"): 0.25, ("near", "misclassified"): 0.25, ("near", "missed"): 0.5}
    far = {("far", "found"): 0.5, ("far", "misclassified"): 0, ("far", "missed"): 0.5}
    assert shown == pytest.approx(near | far)
    assert distances.rows["objects"].unique().sort().to_list() == [2, 4]


def test_a_panel_is_called_by_the_runs_title_and_runs_of_one_title_share_it(evaluated, params):
    params["detectors"]["pets-net"]["title"] = "Net"
    run = next(run for run in read_runs(params, evaluated / "artifacts") if run.is_evaluated)
    assert run.full_title == "Net (pets)"
    assert list(Distances([run], evaluated / "artifacts").panels) == ["Net"]
    twice = Distances(
        [run, run.__class__(**{**vars(run), "name": "pets-copy"})], evaluated / "artifacts"
    )
    assert list(twice.panels) == [
        "pets-net",
        "pets-copy",
    ]  # both have near and far: each its own panel


def test_the_sentences_say_what_the_tables_of_outcomes_hold(evaluated, params, distances):
    first, second, *_ = headline(params, evaluated)
    files = evaluated / "artifacts" / "outcomes" / "pets-net" / "msp"
    counts = {}
    for distance in ("near", "far"):
        outcomes = ObjectOutcomes.read(files / f"photos_{distance}.objects.parquet").frame[
            "outcome"
        ]
        counts[distance] = {name: (outcomes == name).mean() for name in outcomes.unique()}
    numbers = [int(number) for number in re.findall(r"(\d+)%", first)]
    assert numbers == [
        round(100 * counts["near"][name]) for name in ("misclassified", "missed", "found")
    ]
    assert "4 near unknown objects" in first
    change = round(100 * (counts["far"].get("misclassified", 0) - counts["near"]["misclassified"]))
    assert second.startswith("From near to far") and str(abs(change)) in second


def test_the_method_that_finds_most_is_compared_by_the_tables_of_outcomes_and_paired_replicates(
    evaluated, distances
):
    artifacts = evaluated / "artifacts"
    splits = ("photos_near", "photos_far")

    def found(method: str, split: str) -> float:
        table = ObjectOutcomes.read(
            artifacts / "outcomes" / "pets-net" / method / f"{split}.objects.parquet"
        )
        return (table.frame["outcome"] == "found").mean()

    def replicates(method: str, split: str) -> np.ndarray:
        table = pl.read_parquet(RunFiles("pets-net", "pets", artifacts).replicates(method, split))
        return (table["tp_u"] / table["unknown_objects"]).to_numpy()

    gains = {
        method: np.mean([found(method, split) - found("msp", split) for split in splits])
        for method in ("knn", "energy")
    }
    best = max(gains, key=gains.get)
    assert best == "knn" and gains["knn"] > gains["energy"]
    drawn = np.mean(
        [replicates("knn", split) - replicates("msp", split) for split in splits], axis=0
    )
    low, high = (f"{100 * value:+.1f}" for value in interval(drawn))
    third = distances.sentences()[2]
    assert third.startswith("Of 3 methods, kNN finds the most unknown objects")
    assert f"{100 * gains['knn']:+.1f} points [{low}, {high}]" in third


def test_no_change_is_claimed_where_the_interval_contains_zero(distances):
    assert "the misclassified share does not change significantly" in distances.sentences()[1]


def test_intervals_are_those_of_the_pooled_splits():
    drawn_shares = {name: np.linspace(0, 1, 201) for name in ("found", "missed", "misclassified")}
    shares = Shares(10, {"found": 3, "missed": 5, "misclassified": 2}, drawn_shares)
    assert (
        shares.interval("found") == interval(np.linspace(0, 1, 201))
        and shares.share("missed") == 0.5
    )
    assert Shares(10, shares.counts, {}).interval("found") is None


def test_without_an_own_method_in_the_settings_the_detectors_confidence_is_shown(make_run):
    run = make_run({"energy": {"ap_u": 0.9}, "confidence": {"ap_u": 0.1}})
    assert run.shown_method(None) == "confidence"
    assert make_run({"energy": {"ap_u": 0.1}, "knn": {"ap_u": 0.9}}).shown_method(None) == "energy"


def test_the_figure_is_written_in_each_format(distances):
    files = as_files(figure(distances.rows))
    assert files["png"].startswith(b"\x89PNG") and files["pdf"].startswith(b"%PDF")
    for text in (b">net<", b">found<", b">25%<", b">near<"):
        assert text in files["svg"]


def test_a_chart_says_its_numbers_in_words(distances):
    (panel,) = panels(distances.rows).charts
    assert (
        "near (4 objects): 25% found" in panel.description
        and "near (4 objects): 50% missed" in panel.description
    )


def test_nothing_is_drawn_without_results(tmp_path):
    empty = Distances([], tmp_path)
    assert (
        empty.sentences() == [] and empty.rows.is_empty() and isinstance(empty.rows, pl.DataFrame)
    )
