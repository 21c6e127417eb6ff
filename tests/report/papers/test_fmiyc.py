"""FMIYC's tables, with values worked out by hand."""

import polars as pl
from tests.report.papers.conftest import rows_by_table

from farther.report.papers.table import Sources
from farther.report.settings import Counterpart


def test_fmiyc_counts_images_and_those_without_a_detection(sources):
    found = rows_by_table(sources, "fmiyc")
    # Two of the four near photos and one of the two far ones have no detection.
    assert found["Table 1"] == [
        {
            "Model": "net",
            "ID pets: photos near, 4 images (%)": 0.5,
            "ID pets: photos far, 2 images (%)": 0.5,
        }
    ]
    assert [(row["OOD"], row["Images"]) for row in found["Table 2"]] == [
        ("photos far", 2),
        ("photos near", 4),
    ]
    assert found["Table 3"] == [
        {"Model": "net", "pets, 20 images (%)": 1.0, "pets, as printed (%)": None}
    ]


def test_fmiyc_puts_a_printed_value_beside_the_split_that_it_is_of(sources):
    class Typed(Sources):
        def printed(self, name, texts, numbers):
            rows = [("net", "pets", "photos_far", 0.25)] if name == "fmiyc_no_detection.csv" else []
            return pl.DataFrame(rows, schema=[*texts, *numbers], orient="row")

    published = {sources.runs[0].name: Counterpart(detector="net", id="pets")}
    rows = rows_by_table(Typed(sources.runs, sources.params, sources.root, published), "fmiyc")[
        "Table 1"
    ]
    assert rows[0]["ID pets: photos far, as printed (%)"] == 0.25
    assert [head for head in rows[0] if "as printed" in head] == [
        "ID pets: photos far, as printed (%)"
    ]


def test_fmiyc_lists_what_the_rules_removed_and_what_they_call_near(sources):
    found = rows_by_table(sources, "fmiyc")
    assert found["Table 4"] == [{"ID dataset": "pets", "ID class": "cat", "Images": 1}]
    assert found["Tables 5 and 6"] == [{"ID dataset": "pets", "ID class": "cat", "photos": "Lynx"}]


def test_fmiyc_has_the_metrics_of_each_split_as_columns(sources):
    found = rows_by_table(sources, "fmiyc")
    msp = next(row for row in found["Tables 8 to 13"] if row["Method"] == "MSP")
    values = {head.replace("\N{NO-BREAK SPACE}", " "): value for head, value in msp.items()}
    assert values["photos near AUC ↑ (%)"] == values["photos near FPR95 ↓ (%)"] == 0.5
    first = found["Tables 14 to 25"][0]
    assert [head.split("\N{NO-BREAK SPACE}")[0] for head in first][:5] == [
        "Method",
        "photos near nOSE",
        "photos near AP_U",
        "photos near P_U",
        "photos near R_U",
    ]
