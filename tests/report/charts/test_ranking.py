"""Charts that compare methods, from values worked out by hand."""

import copy
from dataclasses import replace

import polars as pl
import pytest
from tests.support.evaluations import stored_results

from farther.report.charts import ranking
from farther.report.results import OodTestSplit, Run


@pytest.fixture
def runs(make_run) -> list[Run]:
    """Two detectors with three methods each, on a near and a far split.

    The method `late` applies to the first only.
    """
    splits = (OodTestSplit("coco_near", "coco", "near"), OodTestSplit("coco_far", "coco", "far"))
    auroc = {"energy": (0.9, 0.95), "msp": (0.7, 0.9), "knn": (0.6, 0.6), "late": (0.5, 0.5)}
    found = []
    for name in ("one", "two"):
        methods = {m: v for m, v in auroc.items() if name == "one" or m != "late"}
        of_split = {
            (split.name, m): {"auroc": v[k], "fpr95": 1 - v[k], "nose": 0.5, "ap_u": 1 - v[k]}
            for k, split in enumerate(splits)
            for m, v in methods.items()
        }
        results = stored_results(of_split)
        found.append(replace(make_run({}), name=name, splits=splits, results=results))
    return found


def rows_of(chart) -> pl.DataFrame:
    return pl.DataFrame(chart.spec["data"]["values"])


def test_mean_ranks_leave_out_methods_that_do_not_apply_everywhere(runs):
    chart = ranking.comparisons(runs)["mean_ranks"].charts[0]
    ranks = dict(rows_of(chart).select("method", "rank").iter_rows())
    assert ranks == {"Energy": 1, "MSP": 2, "kNN": 3}
    assert "over 4 pairs of run and split" in chart.description


def test_lower_is_better_is_ranked_from_below(runs):
    fpr95 = next(
        one
        for one in ranking.comparisons(runs)["mean_ranks"].charts
        if one.title.startswith("FPR95")
    )
    assert rows_of(fpr95)["method"].to_list() == ["Energy", "MSP", "kNN"]


def test_agreement_is_spearmans_correlation_of_the_mean_ranks(runs):
    (chart,) = ranking.comparisons(runs)["agreement"].charts
    assert chart.title.endswith("-1.00")  # ap_u falls where auroc rises


def test_the_gap_is_far_minus_near_over_runs_with_both_of_methods_of_all_of_them(runs):
    (chart,) = ranking.comparisons(runs)["gaps"].charts
    gaps = dict(rows_of(chart).select("method", "gap").unique().iter_rows())
    assert gaps == pytest.approx({"Energy": 0.05, "MSP": 0.2, "kNN": 0})
    only_near = [replace(run, splits=run.splits[:1]) for run in runs]
    assert ranking.comparisons(only_near)["gaps"] is None


def test_ranks_on_images_and_objects_leave_out_methods_that_do_not_apply_everywhere(runs):
    classifiers = []
    for run in runs:
        results = copy.copy(run.results)
        results.detector = {"accuracy": 0.9}
        classifiers.append(replace(run, results=results))
    (chart,) = ranking.ranks([*runs, *classifiers]).charts
    assert set(rows_of(chart)["method"]) == {"Energy", "MSP", "kNN"}


def test_nothing_is_compared_without_results():
    assert set(ranking.comparisons([]).values()) == {None}
