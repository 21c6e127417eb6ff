"""SAOD's tables, with values worked out by hand."""

import re
from dataclasses import replace

import polars as pl
import pytest
from tests.report.papers.conftest import ROOT, rows_by_table
from tests.support.evaluations import evaluation_of

from farther.evaluation import image_uncertainties
from farther.evaluation.files import RunFiles
from farther.evaluation.results import MetricValues
from farther.report.papers.table import Sources
from farther.tables import ImageAttributes, Images


def test_self_awareness_has_a_column_per_aggregate_and_calibrator(sources):
    found = rows_by_table(sources, "saod")
    assert list(found["Table 2"][0])[2:-1] == [
        f"{how} (%)" for how in ("sum", "mean", "top-5", "top-3", "top-2", "min")
    ]
    assert [row["Metric"] for row in found["Table 5"]] == ["LaECE", "LRP", "IDQ"]
    assert list(found["Table 5"][0])[3:7] == ["uncalibrated (%)", "LR (%)", "HB (%)", "IR (%)"]
    assert list(found["Table 4"][0])[2:] == [
        "photos near, 4 images (%)",
        "photos far, 2 images (%)",
        "all OOD (%)",
        "Images, ID / OOD",
    ]
    (three,), (eight,) = found["Table 3"], found["Table A.8"]
    assert list(three)[2:-1] == [
        "H(p) (%)",
        "DS (%)",
        "1 − p (%)",
        "|Σ| (%)",
        "tr(Σ) (%)",
        "H(Σ) (%)",
    ]
    assert re.fullmatch(r"\d+\.\d \[\d+\.\d, \d+\.\d\]", three["1 − p (%)"])
    assert three["|Σ| (%)"] == "—"  # its boxes have no variance
    assert float(three["1 − p (%)"].split()[0]) == pytest.approx(
        100 * found["Table 2"][0]["top-3 (%)"], abs=0.06
    )
    assert list(eight)[2:4] == ["Val (%)", "ID (%)"]
    assert found["Table 6"][0]["Val AP ↑ (%)"] == eight["Val (%)"]
    assert [row["u"] for row in found["Table A.11"]] == ["1 − p"]
    assert not {"Table A.9", "Table A.10"} & set(found)
    (full,) = found["Table A.16"]
    assert full["BA ↑ (%)"] == pytest.approx(
        2 * full["TPR ↑ (%)"] * full["TNR ↑ (%)"] / (full["TPR ↑ (%)"] + full["TNR ↑ (%)"])
    )


def test_objects_are_counted_by_class_in_both_id_splits(sources):
    assert rows_by_table(sources, "saod")["Figure A.6"] == [
        {"Class": "cat", "ID validation": 10, "ID test": 10},
        {"Class": "dog", "ID validation": 10, "ID test": 10},
    ]


def test_images_are_counted_by_weather_where_their_dataset_says_it(sources):
    assert "Figure A.8" not in rows_by_table(sources, "saod")
    run = next(run for run in sources.runs if run.evaluation.self_awareness)
    images = Images.read(
        RunFiles(run.name, run.benchmark, sources.artifacts).images("test")
    ).image_id.tolist()
    assert len(images) == 20
    rows = [
        {"image_id": name, "attribute": "weather", "value": "rainy"}
        for name in [*images[:5], "of no split"]
    ]
    rows += [{"image_id": name, "attribute": "weather", "value": "clear"} for name in images[5:15]]
    file = sources.artifacts / "tables/pets/test/attributes.parquet"
    ImageAttributes.from_frame(pl.DataFrame(rows)).write(file)
    try:
        shown = rows_by_table(sources, "saod")["Figure A.8"]
    finally:
        file.unlink()
    assert shown == [
        {"Attribute": "weather", "Value": "clear", "Images": 10, "Share (%)": "50.0"},
        {"Attribute": "weather", "Value": "rainy", "Images": 5, "Share (%)": "25.0"},
    ]


def test_printed_values_of_saod_follow_those_of_the_runs(sources):
    of_repository = Sources(sources.runs, sources.params, sources.root, {})

    class Printed(Sources):
        def printed(self, name, texts, numbers):
            return Sources(self.runs, self.params, ROOT).printed(name, texts, numbers)

    ours = rows_by_table(of_repository, "saod")
    both = rows_by_table(Printed(sources.runs, sources.params, sources.root), "saod")
    assert {
        name: len(both[name]) - len(ours[name])
        for name in ("Table 2", "Table 5", "Table 6", "Table 7")
    } == {
        "Table 2": 6,
        "Table 5": 12,
        "Table 6": 6,
        "Table 7": 4,
    }
    linear = both["Table 5"][-12]
    assert (linear["Detector"], linear["Metric"], linear["LR (%)"], linear["HB (%)"]) == (
        "F-RCNN",
        "LaECE",
        0.177,
        0.186,
    )
    last = both["Table 7"][-1]
    assert (last["v"], last["Calibrator"], last["u"], last["DAQ (%)"]) == (
        "LRP-optimal",
        "LR",
        "pseudo-OOD",
        0.397,
    )
    assert both["Table 2"][-1]["Detector"] == "ATSS"
    assert both["Table 2"][-1]["Dataset"] == "SAOD-AV"


def test_uncertainties_of_probabilistic_boxes_and_sigmoid_heads_have_tables_of_their_own(sources):
    titles = [*image_uncertainties.COMPUTED, "entropy + box entropy", "4 · entropy + box entropy"]
    titles += ["1 − confidence", "both entropies, normalised"]
    made = {title: MetricValues(values={"top-3": n / 20}) for n, title in enumerate(titles)}
    made["box entropy"].intervals["top-3"] = (0.25, 0.5)
    aware = sources.runs[0].evaluation.self_awareness.model_copy(update={"uncertainties": made})
    run = replace(
        sources.runs[0],
        evaluation=evaluation_of(self_awareness=aware, splits=sources.runs[0].evaluation.splits),
    )
    found = rows_by_table(Sources([run], sources.params, sources.root), "saod")
    assert list(found["Table A.9"][0].values())[2:5] == ["5.0", "10.0", "0.0"]
    assert [list(row.values())[2:7] for row in found["Table A.10"]] == [
        ["✓", "✗", "✗", "✗", "0.0"],
        ["✗", "✓", "✗", "✗", "30.0 [25.0, 50.0]"],
        ["✓", "✓", "✗", "✗", "35.0"],
        ["✓", "✓", "✓", "✗", "40.0"],
        ["✓", "✓", "✗", "✓", "50.0"],
    ]
    assert [(row["u"], row["top-3 (%)"]) for row in found["Table A.11"]] == [
        ("1 − p", "45.0"),
        ("|Σ|", "20.0"),
    ]
