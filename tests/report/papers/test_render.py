"""Tables from small long tables, with cells worked out by hand."""

import csv
import io

import pytest
from tests.report.papers.conftest import layout_of, listings_of, texts_of

from farther.errors import DataError
from farther.evaluation.parts import part_text
from farther.report.listing import Listing
from farther.report.papers.render import to_csv, to_latex


def rows_of(layout, *rows):
    (listing,) = listings_of(layout, *rows)
    return texts_of(listing)


def test_labels_become_rows_and_columns_and_fractions_per_cent():
    rows = rows_of(
        layout_of(),
        {"value": 0.5},
        {"split": "near", "split_position": 1, "value": 0.254},
        {"method": "knn", "value": None},
        {"method": "knn", "split": "near", "split_position": 1, "value": 1.0},
    )
    assert rows == [
        {"Method": "MSP", "far (%)": "50.0", "near (%)": "25.4"},
        {"Method": "kNN", "far (%)": "—", "near (%)": "100.0"},
    ]


def test_a_row_without_any_value_is_left_out():
    assert len(rows_of(layout_of(), {"value": 0.5}, {"method": "knn", "value": None})) == 1
    assert listings_of(layout_of(), {"value": None}) == []


def test_methods_have_the_order_of_the_table_and_others_follow():
    layout = layout_of(methods=["knn", "msp"])
    methods = [{"method": name, "value": 0.5} for name in ("energy", "msp", "knn")]
    assert [row["Method"] for row in rows_of(layout, *methods)] == ["kNN", "MSP", "Energy"]


def test_metrics_and_values_of_parts_have_the_order_of_the_selection():
    selection = {"metrics": ["recall", "f"], "part": {"beta": ["2", "1"]}, "splits": ["all"]}
    layout = layout_of(select=[selection], column="F{beta} {metric}", decimals={"f": 2})
    value = {"split": "", "role": "all", "value": 0.5}
    rows = [{**value, "metric": "f", "part": "beta=1"}, {**value, "metric": "f", "part": "beta=2"}]
    rows += [{**row, "metric": "recall"} for row in rows]
    assert list(rows_of(layout, *rows)[0]) == [
        "Method",
        "F2 recall (%)",
        "F2 f",
        "F1 recall (%)",
        "F1 f",
    ]


def test_a_part_is_selected_by_exactly_its_keys():
    selection = {"metrics": ["auroc"], "part": {"class": []}, "splits": ["ood"]}
    layout = layout_of(select=[selection], rows={"class": "Class"})
    rows = rows_of(
        layout,
        {"part": "class=tench, Tinca tinca", "value": 0.5},
        {"part": part_text({"class": "a, size=b"}), "value": 0.5},
        {"part": "class=cow, beta=1", "value": 0.5},
        {"part": "size=small", "value": 0.5},
        {"part": "", "value": 0.5},
    )
    assert [row["Class"] for row in rows] == ["tench, Tinca tinca", "a, size=b"]


def test_splits_are_selected_by_their_role_and_runs_by_their_networks():
    selection = {"metrics": ["auroc"], "splits": ["id"], "networks": "detectors"}
    layout = layout_of(select=[selection])
    rows = rows_of(
        layout,
        {"split": "test", "role": "id", "value": 0.25},
        {"split": "far", "role": "ood", "value": 0.5},
        {"method": "knn", "split": "test", "role": "id", "is_classifier": True, "value": 0.5},
    )
    assert rows == [{"Method": "MSP", "test (%)": "25.0"}]


def test_several_values_are_joined_in_one_cell_in_the_order_of_the_selection():
    selection = {
        "metrics": ["auroc"],
        "part": {"distance": ["near", "far", "farther"]},
        "splits": ["all"],
    }
    layout = layout_of(select=[selection], column="{dataset}", joined="distance")
    value = {"split": "", "role": "all"}
    far = {**value, "part": "distance=far"}
    near = {**value, "part": "distance=near"}
    rows = rows_of(layout, {**far, "value": 0.5}, {**near, "value": 0.25}, {**far, "method": "knn"})
    assert rows == [{"Method": "MSP", "pets (%)": "25.0 / 50.0"}]
    rows = rows_of(layout, {**far, "value": 0.5}, {**near, "method": "knn", "value": 0.25})
    assert [row["pets (%)"] for row in rows] == ["— / 50.0", "25.0 / —"]


def test_two_values_in_one_cell_are_refused_unless_runs_are_averaged():
    runs = [{"run": "a", "value": 0.5}, {"run": "b", "value": 0.75}]
    with pytest.raises(DataError, match=r"Table 1: 2 values in the cell MSP / far"):
        listings_of(layout_of(), *runs)
    averaging = layout_of(averages_runs=True)
    assert rows_of(averaging, *runs)[0]["far (%)"] == "62.5"
    # Of three runs, one of which has no value, there is no mean.
    assert listings_of(averaging, *runs, {"run": "c", "value": None}) == []


def test_a_mean_is_over_the_runs_of_each_benchmark_then_over_benchmarks():
    selection = {"metrics": ["auroc"], "splits": ["ood"]}
    mean = {**selection, "labels": {"benchmark_group": "Avg."}}
    layout = layout_of(
        select=[selection, mean],
        rows={"network": "Network", "method": "Method"},
        column="{benchmark_group}",
        averages_runs=True,
    )
    rows = rows_of(
        layout,
        {"run": "a1", "benchmark_group": "A", "value": 0.5},
        {"run": "a2", "benchmark_group": "A", "value": 0.7},
        {"run": "b", "benchmark_group": "B", "value": 1.0},
        {"run": "a1", "benchmark_group": "A", "method": "knn", "value": 0.5},
        {"run": "c", "benchmark_group": "A", "network": "Other", "value": 0.25},
    )
    means = {(row["Network"], row["Method"]): row["Avg. (%)"] for row in rows}
    # kNN does not have all runs that MSP has of the same network.
    assert means[("Net", "MSP")] == "80.0"
    assert ("Net", "kNN") not in means
    assert means[("Other", "MSP")] == "25.0"


def test_intervals_follow_values_where_they_are_printed():
    value = {"value": 0.5, "low": 0.25, "high": 0.75}
    assert rows_of(layout_of(), value)[0]["far (%)"] == "50.0"
    selection = {"metrics": ["auroc"], "splits": ["ood"], "intervals": True}
    assert rows_of(layout_of(select=[selection]), value)[0]["far (%)"] == "50.0 [25.0, 75.0]"


def test_a_label_may_be_shown_in_the_place_of_values_and_named():
    selection = {"metrics": ["auroc"], "splits": ["ood"], "show": "detector"}
    layout = layout_of(select=[selection], names={"detector": {"Net": "N"}, "split": {"far": "F"}})
    assert rows_of(layout, {"value": 0.5})[0] == {"Method": "MSP", "F": "N"}


def test_there_is_one_table_per_run_and_its_caption_counts():
    counted = [{"group": "ood", "metric": "ood_regions", "word": "detections"}]
    layout = layout_of(per="run", caption="{algorithm}.", counted=counted)
    count = {"metric": "ood_regions", "unit": "count"}
    first, second = listings_of(
        layout,
        {"value": 0.5},
        {**count, "value": 1200},
        {"run": "b", "algorithm": "B", "run_position": 1, "value": 0.5},
    )
    assert first.caption == "Net (pets). far: 1,200 detections."
    assert second.caption == "B."


def test_a_table_may_need_a_row_that_a_run_has():
    selection = {"metrics": ["auroc"], "part": {"uncertainty": []}, "splits": ["all"]}
    layout = layout_of(
        select=[selection],
        rows={"detector": "Detector"},
        column="{uncertainty}",
        needs={"uncertainty": "box"},
    )
    value = {"split": "", "role": "all", "value": 0.5}
    rows = rows_of(
        layout,
        {**value, "part": "uncertainty=class"},
        {**value, "part": "uncertainty=box"},
        {**value, "run": "b", "detector": "B", "part": "uncertainty=class"},
    )
    assert [row["Detector"] for row in rows] == ["Net"]


def test_counts_rates_and_decimals_are_printed_as_such():
    layout = layout_of(
        select=[{"metrics": ["images", "auroc", "fpr95"], "splits": ["ood"]}],
        column="{metric}",
        names={"metric": {"auroc": "A", "fpr95": "F"}},
        decimals={"auroc": 2},
    )
    rows = rows_of(
        layout,
        {"metric": "images", "unit": "count", "value": 1200.0},
        {"value": 0.5},
        {"metric": "fpr95", "unit": "per image", "value": 0.25},
    )
    assert rows == [{"Method": "MSP", "images": "1,200", "A": "0.50", "F": "0.250"}]


LISTING = Listing.from_rows(
    "50% of x_1.",
    [{"Method": "=MSP", "AUC ↑ (%)": "50.0"}, {"Method": "a & b", "AUC ↑ (%)": None}],
    ["AUC ↑ (%)"],
)


def test_csv_has_the_table_as_on_the_page_and_no_formula():
    rows = list(csv.reader(io.StringIO(to_csv(LISTING))))
    assert rows == [["Method", "AUC ↑ (%)"], ["'=MSP", "50.0"], ["a & b", ""]]


def test_latex_has_the_table_with_escaped_texts():
    lines = to_latex(LISTING, "p-table-1").splitlines()
    assert lines[3:5] == [r"\caption{50\% of x\_1.}", r"\label{tab:p-table-1}"]
    assert r"\begin{tabular}{lr}" in lines
    begin = lines.index(r"\toprule") + 1
    end = lines.index(r"\bottomrule")
    assert lines[begin:end] == [
        r"Method & AUC $\uparrow$ (\%) \\",
        r"\midrule",
        r"=MSP & 50.0 \\",
        r"a \& b & -- \\",
    ]
