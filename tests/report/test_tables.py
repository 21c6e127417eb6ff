"""Tables and the terminal summary, compared with values worked out by hand from conftest.PHOTOS."""

import csv
from dataclasses import replace

import polars as pl
import pytest

from farther.report import summary
from farther.report.results import SHOWN, Run, read_runs
from farther.report.tables import run_tables, to_csv, to_latex, to_markdown, to_text
from farther.tables.documents import read_json


@pytest.fixture
def run(evaluated, params) -> Run:
    return read_runs(params, evaluated / "artifacts")[0]


OPEN_SET, OOD = range(2)


def column(table, title: str, metric: str) -> dict[str, tuple[str, bool]]:
    """Label of each method → the text of its cell, and whether it is the best."""
    cells = table.cells.filter(split_title=title, metric=metric)
    rows = cells.select("label", "text", "is_best").iter_rows()
    return {label: (text, is_best) for label, text, is_best in rows}


def test_splits_come_nearest_first_and_methods_in_the_order_of_the_parameters(run):
    for table in run_tables(run):
        assert table.splits == ["photos near", "photos far"]
        assert [row["labels"] for row in table.rows] == [["MSP"], ["Energy"], ["kNN"]]


def test_unknown_objects_are_counted_as_worked_out_by_hand(run):
    # Near: four objects, one found as unknown, one kept as a cat, two without a detection. Far: one
    # of two found.
    table = run_tables(run)[OPEN_SET]
    assert column(table, "photos near", "nose")["MSP"][0] == "25.0"
    assert column(table, "photos near", "r_u")["MSP"][0] == "25.0"
    assert column(table, "photos near", "p_u")["MSP"][0] == "100.0"
    assert column(table, "photos far", "nose")["MSP"][0] == "0.0"
    assert column(table, "photos far", "r_u")["MSP"][0] == "50.0"
    assert column(table, "photos near", "missed")["MSP"][0] == "50.0"
    assert column(table, "photos far", "missed")["MSP"][0] == "50.0"


def test_detections_are_told_apart_as_worked_out_by_hand(run):
    # Near: of two OOD detections one lies below all 20 ID ones, one above all of them.
    table = run_tables(run)[OOD]
    assert column(table, "photos near", "auroc")["MSP"][0] == "50.0"
    assert column(table, "photos near", "fpr95")["MSP"][0] == "50.0"
    assert column(table, "photos far", "auroc")["MSP"][0] == "100.0"


def test_the_best_is_the_lowest_where_lower_is_better_and_equal_numbers_are_equally_best(make_run):
    run = make_run(
        {
            "a": {"nose": 0.10004, "r_u": 0.5},
            "b": {"nose": 0.09996, "r_u": 0.7},
            "c": {"nose": 0.3, "r_u": None},
        }
    )
    table = run_tables(run)[OPEN_SET]
    assert column(table, "coco near", "nose") == {
        "a": ("10.0", True),
        "b": ("10.0", True),
        "c": ("30.0", False),
    }
    assert column(table, "coco near", "r_u") == {
        "a": ("50.0", False),
        "b": ("70.0", True),
        "c": ("—", False),
    }
    assert column(table, "coco near", "p_u") == dict.fromkeys("abc", ("—", False))


def test_a_method_is_tied_when_the_interval_of_its_difference_from_the_best_contains_zero(make_run):
    def details(value: float, low: float, high: float) -> dict:
        compared = {"auroc": {"best": "a", "interval": (low, high), "p": 0.5}}
        groups = {"ood": {"values": {"auroc": value}, "intervals": {"auroc": (0.6, 0.7)}}}
        return {"splits": {"coco_near": {"against_best": compared, "groups": groups}}}

    methods = {
        "a": details(0.9, 0, 0),
        "b": details(0.8, -0.1, 0.01),
        "c": details(0.7, -0.2, -0.1),
    }
    run = make_run({"a": {}, "b": {}, "c": {}}, {"methods": methods})
    cells = run_tables(run)[OOD].cells.filter(metric="auroc")
    assert cells["is_best"].to_list() == [True, False, False]
    assert cells["is_tied"].to_list() == [False, True, False]
    assert cells["interval"][1] == "[60.0, 70.0]"


def test_markdown_has_one_cell_per_column_and_bold_for_the_best(run):
    lines = to_markdown(run_tables(run)[OPEN_SET]).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert {line.count("|") for line in table} == {12}
    assert "photos near nOSE ↓" in table[0]
    msp = next(line for line in table if line.startswith("| MSP"))
    assert msp.split(" | ")[1:4:2] == ["<ins>25.0†</ins>", "100.0†"]
    assert "From photos near: 4 objects, 4 images" in lines[-1]


def test_latex_rules_each_split_over_its_own_columns(run):
    table = run_tables(run)[OPEN_SET]
    assert (len(table.splits), len(table.metrics), len(table.labels)) == (2, 5, 1)
    assert r"\cmidrule(lr){2-6} \cmidrule(lr){7-11}" in to_latex(table)


def test_latex_escapes_names_and_has_as_many_cells_as_columns(make_run):
    run = make_run({"my_method": {"nose": 0.5, "ap_u": 0.25}, "b": {"nose": 0.25, "ap_u": 0.125}})
    text = to_latex(run_tables(run)[OPEN_SET])
    assert r"my\_method & \underline{50.0} & \textbf{25.0} & -- & -- & -- \\" in text
    assert r"b & \textbf{25.0} & \underline{12.5} & -- & -- & -- \\" in text
    assert r"\begin{tabular}{lrrrrr}" in text
    assert r"\cmidrule(lr){2-6}" in text
    assert r"nOSE$\downarrow$ & $AP_U$$\uparrow$" in text
    assert text.count("{") == text.count("}")


def test_values_from_few_objects_are_grey_and_equal_ones_unmarked(make_run):
    def details(objects: int) -> dict:
        groups = {
            "open_set": {"values": {"unknown_objects": objects}},
            "ood": {"values": {"ood_regions": 99}},
        }
        return {"splits": {"coco_near": {"groups": groups}}}

    results = {
        "a": {"nose": 0.5, "p_u": 1, "auroc": 0.9},
        "b": {"nose": 0.25, "p_u": 1, "auroc": 0.8},
    }
    run = make_run(results, {"methods": {name: details(29) for name in results}})
    open_set, separation = run_tables(run)
    assert open_set.counts == {"coco near": "29 objects"}
    assert separation.counts == {"coco near": "99 detections"}
    assert r"\textcolor{gray}{25.0}" in to_latex(open_set)
    assert "(25.0)" in to_markdown(open_set)
    assert r"\textbf" not in to_latex(open_set)
    assert r"\textbf{90.0}" in to_latex(separation)
    run = make_run(results, {"methods": {name: details(30) for name in results}})
    enough = run_tables(run)[OPEN_SET]
    assert column(enough, "coco near", "nose") == {"a": ("50.0", False), "b": ("25.0", True)}
    assert column(enough, "coco near", "p_u") == {"a": ("100.0", False), "b": ("100.0", False)}


def test_a_name_is_not_a_command_of_tex_and_not_a_formula(make_run):
    run = make_run(
        {
            r"\input /etc/passwd ~^<|>": {"nose": 0.5, "ap_u": 0.25},
            "=1+1": {"nose": -0.5, "ap_u": None},
        }
    )
    (row,) = [line for line in to_latex(run_tables(run)[OPEN_SET]).splitlines() if "input" in line]
    escaped = (
        r"\textbackslash{}input /etc/passwd \textasciitilde{}\textasciicircum{}"
        r"\textless{}\textbar{}\textgreater{}"
    )
    assert row.startswith(f"{escaped} & ")
    rows = list(csv.DictReader(to_csv([run]).splitlines()))
    assert {row["method"] for row in rows} == {r"\input /etc/passwd ~^<|>", "'=1+1"}
    assert "-0.5" in {row["value"] for row in rows}


def test_csv_holds_every_value_as_an_unrounded_fraction(run, evaluated):
    rows = list(csv.DictReader(to_csv([run]).splitlines()))
    metrics = {row["metric"] for row in rows}
    assert len(rows) == 2 * 3 * len(metrics)
    assert metrics > {metric.name for metric in SHOWN}
    assert metrics > {"aupr_in", "detection_error", "per_image_auroc", "fpr95_ood_positive"}
    row_of = {(row["split"], row["method"], row["metric"]): row for row in rows}
    folder = evaluated / "artifacts" / "metrics" / "pets-net"
    for split in ("photos_near", "photos_far"):
        for method in run.methods:
            for metric, value in read_json(folder / split / f"{method}.json").items():
                text = row_of[split, method, metric]["value"]
                if value is None:
                    assert text == ""
                else:
                    assert float(text) == value
    assert row_of["photos_near", "msp", "nose"]["distance"] == "near"


def test_a_narrow_terminal_gets_the_splits_below_each_other(run):
    table = run_tables(run)[OPEN_SET]
    wide, narrow = to_text(table, width=100), to_text(table, width=60)
    assert len(wide.splitlines()) == 5
    assert len(narrow.splitlines()) == 11
    assert max(map(len, narrow.splitlines())) <= 60
    assert [line.split()[0] for line in wide.splitlines()[2:]] == ["MSP", "Energy", "kNN"]


def test_a_title_of_a_split_is_apart_from_the_one_before_however_long(run):
    table = run_tables(run)[OPEN_SET]
    titles = {title: f"{title} {'x' * 60}" for title in table.splits}
    cells = table.cells.with_columns(pl.col("split_title").replace(titles))
    heads = to_text(replace(table, cells=cells), width=1000).splitlines()[0]
    assert heads.split("  ")[-2:] == list(titles.values())


def test_the_summary_names_runs_that_were_not_evaluated(evaluated, params):
    text = summary(params, evaluated)
    assert "pets-later: not evaluated yet" in text
    assert "pets-net   mAP50 100.0%   t* 0.500" in text
