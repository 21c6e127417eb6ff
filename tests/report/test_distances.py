"""The first figure and its sentences, compared with conftest.PHOTOS and tables of outcomes."""

import json
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from pydantic_core import to_jsonable_python

from farther.evaluation.deploy.results import Budget, DeployChoices
from farther.evaluation.files import RunFiles
from farther.evaluation.replicates import read_replicates
from farther.metrics.statistics.bootstrap import interval
from farther.report import headline
from farther.report.charts.distances import BAR_HEIGHT, figure, panels
from farther.report.charts.figures import FORMATS, draw
from farther.report.charts.outcomes import LYING, bars
from farther.report.distances import Distances, Shares, _compared, too_few
from farther.report.outcomes import OutcomeShares
from farther.report.results import read_runs
from farther.tables import ObjectOutcomes
from farther.tables.documents import write_json


@pytest.fixture
def distances(evaluated, params) -> Distances:
    runs = [run for run in read_runs(params, evaluated / "artifacts") if run.is_evaluated]
    return Distances(runs, evaluated / "artifacts", "msp")


def test_bars_hold_the_outcomes_of_each_distance(distances):
    shares = {}
    for row in distances.rows.filter(method="MSP").iter_rows(named=True):
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


def test_images_that_are_too_few_for_a_limit_are_named_once(evaluated, params, tmp_path):
    (run,) = [run for run in read_runs(params, evaluated / "artifacts") if run.is_evaluated]
    choices = DeployChoices(
        run=run.name,
        benchmark=run.benchmark,
        budget=Budget(max_false_alarms=0.05),
        id_splits=("val", "test"),
        choice=None,
        methods={},
        alone={},
        left_out={},
        notes=[],
        too_few="21 images are too few.",
    )
    file = RunFiles(run.name, run.benchmark, tmp_path).choice
    assert too_few([run], tmp_path) == []
    write_json(file, to_jsonable_python(choices))
    assert too_few([run, run], tmp_path) == ["21 images are too few."]
    write_json(file, to_jsonable_python(replace(choices, too_few="")))
    assert too_few([run], tmp_path) == []


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
        file = RunFiles("pets-net", "pets", artifacts).replicates(method, split)
        table = read_replicates(file)
        return table["tp_u"] / table["unknown_objects"]

    def gain(method: str) -> float:
        return np.mean([found(method, split) - found("msp", split) for split in splits])

    assert gain("knn") > gain("energy")
    differences = [replicates("knn", split) - replicates("msp", split) for split in splits]
    low, high = interval(np.mean(differences, axis=0))
    third = distances.sentences()[2]
    assert third.startswith("Among 3 methods, kNN finds the most unknown objects")
    # The interval begins at zero, which has no sign.
    assert round(low, 3) == 0
    points = f"{100 * gain('knn'):+.1f} points [0.0, {100 * high:+.1f}]"
    assert points in third


@pytest.mark.parametrize(
    ("gain", "ends", "sentence"),
    [
        (0.02, (0.01, 0.03), "kNN finds the most unknown objects, +2.0 points [+1.0, +3.0] "
         "compared with MSP"),
        (0.02, None, "kNN finds the most unknown objects, +2.0 points compared with MSP"),
        (0.02, (-0.01, 0.03), "kNN finds the most unknown objects, but not significantly more than "
         "MSP: +2.0 points [-1.0, +3.0]"),
        (-0.0001, (-0.01, 0.01), "none finds more unknown objects than MSP; kNN comes nearest: "
         "0.0 points [-1.0, +1.0]"),
        (-0.05, None, "none finds more unknown objects than MSP; kNN comes nearest: -5.0 points"),
    ],
)  # fmt: skip
def test_a_method_finds_the_most_only_if_it_finds_more_than_the_one_it_is_compared_with(
    gain, ends, sentence
):
    assert _compared("knn", "msp", gain, ends) == sentence


def test_a_change_is_called_by_the_distances_with_unknown_objects(distances):
    (run,) = distances.runs
    # A farther split without unknown objects has no bar.
    farther = replace(run.splits[-1], name="unlabelled", distance="farther")
    with_farther = replace(run, splits=[*run.splits, farther])
    trend = replace(distances, runs=[with_farther]).sentences()[1]
    assert trend.startswith("From near to far,")


def test_no_change_is_claimed_where_the_interval_contains_zero(distances):
    assert "the misclassified share does not change significantly" in distances.sentences()[1]


def test_intervals_are_those_of_the_pooled_splits():
    replicates = np.linspace(0, 1, 201)
    counts = {"found": 3, "missed": 5, "misclassified": 2}
    shares = Shares(10, 4, counts, dict.fromkeys(counts, replicates))
    assert shares.interval("found") == interval(replicates)
    assert shares.share("missed") == 0.5
    assert Shares(10, 4, shares.counts, {}).interval("found") is None


def test_a_share_of_no_object_has_the_exact_interval_of_the_images_with_objects():
    counts = {"found": 0, "missed": 10, "misclassified": 0}
    replicates = {name: np.full(200, float(count > 0)) for name, count in counts.items()}
    shares = Shares(10, 4, counts, replicates)
    assert shares.interval("found") == pytest.approx((0, 0.602), abs=0.001)
    assert shares.interval("missed") == pytest.approx((0.398, 1), abs=0.001)
    assert shares.printed("found") == "0% [0, 60]"


def test_the_figure_is_written_in_each_format(distances):
    files = {kind: draw(figure(distances.rows), kind) for kind in FORMATS}
    assert files["png"].startswith(b"\x89PNG") and files["pdf"].startswith(b"%PDF")
    for text in (b": net<", b">found<", b">25%<", b">near<"):
        assert text in files["svg"]


def test_a_chart_says_its_numbers_in_words(distances):
    (panel,) = panels(distances.rows).charts
    assert "near (4 objects): 25% found, 25% misclassified, 50% missed" in panel.description


def test_of_one_run_with_one_split_there_is_a_bar_per_method_and_no_word_on_others(
    evaluated, params
):
    run = next(run for run in read_runs(params, evaluated / "artifacts") if run.is_evaluated)
    near = replace(run, splits=tuple(split for split in run.splits if split.distance == "near"))
    distances = Distances([near], evaluated / "artifacts", "msp")
    (panel,) = panels(distances.rows).charts
    bars = {(row["bar"], row["method"]) for row in panel.spec["data"]["values"]}
    assert bars == {(0, "MSP"), (1, "Energy")}
    assert panel.spec["height"] == len(bars) * BAR_HEIGHT <= 120
    text = " ".join(distances.sentences())
    assert "the 4 unknown objects" in text
    for word in ("1 pairs", "highest of", "mean over", "on average", "near unknown"):
        assert word not in text


def test_several_panels_have_upright_bars_with_benchmark_and_number_of_objects(evaluated, params):
    run = next(run for run in read_runs(params, evaluated / "artifacts") if run.is_evaluated)
    twice = Distances([run, replace(run, name="pets-copy")], evaluated / "artifacts", "msp")
    first, _ = panels(twice.rows).charts
    axis = first.spec["layer"][0]["encoding"]["x"]["axis"]
    assert axis["labelExpr"] == '[["near", "pets", "4"], ["far", "pets", "2"]][datum.value]'
    assert "the highest of the 2 pets runs" in twice.sentences()[0]


def test_a_name_in_a_label_is_text_and_never_an_expression():
    shares = {"found": 0.5, "misclassified": 0.25, "missed": 0.25}
    rows = []
    for part in OutcomeShares(4, shares).parts():
        rows.append({"bar": 0, "name": "x", **part})
    label = 'a"] + now() + ["\\\x1b'
    chart = bars("t", "d", pl.DataFrame(rows, infer_schema_length=None), [[label]], LYING, 30)
    expression = chart.spec["layer"][0]["encoding"]["y"]["axis"]["labelExpr"]
    texts = json.loads(expression.removesuffix("[datum.value]"))
    assert texts == [['a"] + now() + ["\\\\x1b']]


def test_nothing_is_drawn_without_results(tmp_path):
    empty = Distances([], tmp_path)
    assert empty.sentences() == []
    assert empty.rows.is_empty()
