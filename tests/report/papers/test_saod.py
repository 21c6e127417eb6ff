"""SAOD's tables, with values worked out by hand."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from tests.report.conftest import evaluation_in
from tests.report.papers.conftest import ROOT, GivenTables, rows_by_table, sources_of, texts_of
from tests.support.evaluations import evaluation_of

from farther.evaluation import image_uncertainties
from farther.evaluation.files import RunFiles
from farther.evaluation.results import MetricValues
from farther.evaluation.stored_results import StoredResults
from farther.report.papers.frames import Sources, results_of_run
from farther.report.papers.layout import read_paper
from farther.report.papers.printed import printed_rows
from farther.report.papers.render import render
from farther.tables import ImageAttributes, Images


def test_self_awareness_has_a_column_per_aggregate_and_calibrator(sources):
    found = rows_by_table(sources, "saod")
    aggregates = [f"{how} (%)" for how in ("sum", "mean", "top-5", "top-3", "top-2", "min")]
    assert list(found["Table 2"][0])[3:] == aggregates
    assert [row["Metric"] for row in found["Table 5"]] == ["LaECE ↓", "LRP ↓", "IDQ ↑"]
    calibrators = {"uncalibrated (%)", "LR (%)", "HB (%)", "IR (%)"}
    assert calibrators <= set(found["Table 5"][0])
    assert list(found["Table 4"][0]) == [
        "Dataset",
        "Detector",
        "Images, ID / OOD",
        "photos near (%)",
        "photos far (%)",
        "all OOD (%)",
    ]
    (three,) = found["Table 3"]
    (eight,) = found["Table A.8"]
    assert list(three)[3:] == ["H(p) (%)", "DS (%)", "1 − p (%)"]  # its boxes have no variance
    assert re.fullmatch(r"\d+\.\d \[\d+\.\d, \d+\.\d\]", three["1 − p (%)"])
    assert three["1 − p (%)"].split()[0] == found["Table 2"][0]["top-3 (%)"]
    assert list(eight)[3:5] == ["Val (%)", "ID (%)"]
    assert found["Table 6"][0]["Val AP ↑ (%)"] == eight["Val (%)"]
    assert [row["u"] for row in found["Table A.11"]] == ["1 − p"]
    assert not {"Table A.9", "Table A.10"} & set(found)
    (full,) = found["Table A.16"]
    tpr = float(full["TPR ↑ (%)"])
    tnr = float(full["TNR ↑ (%)"])
    assert float(full["BA ↑ (%)"]) == pytest.approx(2 * tpr * tnr / (tpr + tnr), abs=0.1)


def test_choices_are_rows_of_what_they_change(sources):
    found = rows_by_table(sources, "saod")
    assert [(row["v"], row["LR"]) for row in found["Table 7"]] == [
        ("0.5", "without"),
        ("LRP-optimal", "without"),
        ("LRP-optimal", "with"),
    ]
    assert [row["Dummies up to"] for row in found["Table A.13"]][1:3] == ["10", "25"]
    thresholds = [row["Threshold"] for row in found["Table A.14"]]
    assert thresholds == ["none", "0.3", "0.5", "0.7", "LRP-optimal"]


def test_objects_are_counted_by_class_in_both_id_splits(sources):
    assert rows_by_table(sources, "saod")["Figure A.6"] == [
        {"Class": "cat", "ID validation": "10", "ID test": "10"},
        {"Class": "dog", "ID validation": "10", "ID test": "10"},
    ]


def test_images_are_counted_by_weather_where_their_dataset_says_it(evaluated, tmp_path):
    root = Path(shutil.copytree(evaluated, tmp_path / "project"))
    sources = sources_of(root)
    assert "Figure A.8" not in rows_by_table(sources, "saod")
    run = sources.runs[0]
    file = RunFiles(run.name, run.benchmark, sources.artifacts).images("test")
    names = Images.read(file).image_id.tolist()
    assert len(names) == 20
    rows = []
    for name in [*names[:5], "of no split"]:
        rows.append({"image_id": name, "attribute": "weather", "value": "rainy"})
    for name in names[5:15]:
        rows.append({"image_id": name, "attribute": "weather", "value": "clear"})
    file = sources.artifacts / "tables/pets/test/attributes.parquet"
    ImageAttributes.from_frame(pl.DataFrame(rows)).write(file)
    assert rows_by_table(sources, "saod")["Figure A.8"] == [
        {"Attribute": "weather", "Value": "clear", "Images": "10", "Share (%)": "50.0"},
        {"Attribute": "weather", "Value": "rainy", "Images": "5", "Share (%)": "25.0"},
    ]


def test_printed_values_have_the_rows_and_columns_of_the_runs(sources):
    layouts = {layout.number: layout for layout in read_paper("saod").tables}
    counts = {}
    for number, layout in layouts.items():
        for published in layout.published:
            counts[number] = len(printed_rows(ROOT, published, layout))
    assert counts["Table 2"] == 6 * 6
    assert counts["Table 5"] == 24 * 2

    of_repository = replace(sources, root=ROOT)
    frame = results_of_run(sources.runs[0], sources.runs[0].results.table.frame, sources)
    listings = render(layouts["Table 5"], GivenTables(frame, of_repository)).listings
    rows = texts_of(listings[-1].listing)
    assert len(rows) == 12
    assert list(rows[0].values())[:4] == ["SAOD-Gen", "F-RCNN", "LaECE ↓", "43.3"]
    assert (rows[0]["LR (%)"], rows[0]["HB (%)"]) == ("17.7", "18.6")


def test_uncertainties_of_probabilistic_boxes_and_sigmoid_heads_have_tables_of_their_own(sources):
    titles = [*image_uncertainties.COMPUTED, "entropy + box entropy", "4 · entropy + box entropy"]
    titles += ["1 − confidence", "both entropies, normalised"]
    made = {}
    for number, title in enumerate(titles):
        made[title] = MetricValues(values={"top-3": number / 20})
    made["box entropy"].intervals["top-3"] = (0.25, 0.5)
    first = sources.runs[0]
    stored = evaluation_in(sources.root)
    aware = stored.self_awareness.model_copy(update={"uncertainties": made})
    evaluation = evaluation_of(self_awareness=aware, splits=stored.splits)
    run = replace(first, results=StoredResults.of(evaluation))
    frame = results_of_run(run, run.results.table.frame, sources)

    tables = GivenTables(frame, Sources([run], sources.params, sources.root))
    found = {}
    for layout in read_paper("saod").tables:
        if layout.source == "results":
            for part in render(layout, tables).listings:
                found[layout.number] = texts_of(part.listing)
    assert list(found["Table A.9"][0].values())[3:] == ["5.0", "10.0", "0.0"]
    assert [list(row.values())[3:] for row in found["Table A.10"]] == [
        ["H(p)", "0.0"],
        ["H(Σ)", "30.0 [25.0, 50.0]"],
        ["H(p) + H(Σ)", "35.0"],
        ["4 H(p) + H(Σ), balanced", "40.0"],
        ["H(p) + H(Σ), normalised", "50.0"],
    ]
    assert [(row["u"], row["top-3 (%)"]) for row in found["Table A.11"]] == [
        ("1 − p", "45.0"),
        ("|Σ|", "20.0"),
    ]
