"""The first figure and its sentences, compared with conftest.PHOTOS and tables of outcomes."""

import re
from dataclasses import replace

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
    shares = {}
    for row in distances.rows.iter_rows(named=True):
        shares[row["distance"], row["outcome"]] = row["share"]
    near = {("near", "found"): 0.25, ("near", "misclassified"): 0.25, ("near", "missed"): 0.5}
    far = {("far", "found"): 0.5, ("far", "misclassified"): 0, ("far", "missed"): 0.5}
    assert shares == pytest.approx(near | far)
    assert distances.rows["objects"].unique().sort().to_list() == [2, 4]


def test_a_panel_is_called_by_the_runs_title_and_runs_of_one_title_share_it(evaluated, params):
    params["detectors"]["pets-net"]["title"] = "Net"
    run = next(run for run in read_runs(params, evaluated / "artifacts") if run.is_evaluated)
    assert run.full_title == "Net (pets)"
    assert list(Distances([run], evaluated / "artifacts").panels) == ["Net"]
    twice = Distances([run, replace(run, name="pets-copy")], evaluated / "artifacts")
    # Both have near and far: each has its own panel.
    assert list(twice.panels) == ["pets-net", "pets-copy"]


def test_the_sentences_say_what_the_tables_of_outcomes_hold(evaluated, params, distances):
    first, second, *_ = headline(params, evaluated)
    files = evaluated / "artifacts" / "outcomes" / "pets-net" / "msp"
    counts = {}
    for distance in ("near", "far"):
        table = ObjectOutcomes.read(files / f"photos_{distance}.objects.parquet")
        outcomes = table.frame["outcome"]
        counts[distance] = {name: (outcomes == name).mean() for name in outcomes.unique()}
    numbers = [int(number) for number in re.findall(r"(\d+)%", first)]
    names = ("misclassified", "missed", "found")
    assert numbers == [round(100 * counts["near"][name]) for name in names]
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

    def gain(method: str) -> float:
        return np.mean([found(method, split) - found("msp", split) for split in splits])

    assert gain("knn") > gain("energy")
    differences = [replicates("knn", split) - replicates("msp", split) for split in splits]
    low, high = interval(np.mean(differences, axis=0))
    third = distances.sentences()[2]
    assert third.startswith("Among 3 methods, kNN finds the most unknown objects")
    points = f"{100 * gain('knn'):+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}]"
    assert points in third


def test_no_change_is_claimed_where_the_interval_contains_zero(distances):
    assert "the misclassified share does not change significantly" in distances.sentences()[1]


def test_intervals_are_those_of_the_pooled_splits():
    replicates = np.linspace(0, 1, 201)
    counts = {"found": 3, "missed": 5, "misclassified": 2}
    shares = Shares(10, counts, dict.fromkeys(counts, replicates))
    assert shares.interval("found") == interval(replicates)
    assert shares.share("missed") == 0.5
    assert Shares(10, shares.counts, {}).interval("found") is None


def test_the_figure_is_written_in_each_format(distances):
    files = as_files(figure(distances.rows))
    assert files["png"].startswith(b"\x89PNG") and files["pdf"].startswith(b"%PDF")
    for text in (b">net<", b">found<", b">25%<", b">near<"):
        assert text in files["svg"]


def test_a_chart_says_its_numbers_in_words(distances):
    (panel,) = panels(distances.rows).charts
    assert "near (4 objects): 25% found" in panel.description
    assert "near (4 objects): 50% missed" in panel.description


def test_nothing_is_drawn_without_results(tmp_path):
    empty = Distances([], tmp_path)
    assert empty.sentences() == []
    assert empty.rows.is_empty()
