"""Tables of Recalcati et al., and the printed values."""

import polars as pl
import pytest
from tests.report.papers.conftest import ROOT, listings_of, rows_by_table, texts_of

from farther.report.papers.layout import read_paper

#: AUROC of all images together, by the largest OODness that counts as ID.
AUROCS = {"0": 0.6, "1": 0.7, "2": 0.8}


def rows_of_table_vi(protocol):
    """Dataset of each row of Table VI that is of all images → its cell under MSP."""
    rows = []
    for level, auroc in AUROCS.items():
        of_level = {"split": "", "role": "all", "group": "classes", "part": f"id up to={level}"}
        of_level |= {"protocol": protocol, "method_title": "MSP"}
        rows += [
            {**of_level, "metric": "classes_fpr95", "value": 0.5},
            {**of_level, "metric": "classes_detection_error95", "value": 0.275},
            {**of_level, "metric": "classes_auroc", "value": auroc},
        ]
    layouts = {layout.number: layout for layout in read_paper("realistic").tables}
    first, *_ = listings_of(layouts["Table VI"], *rows)
    return {row["Dataset"]: row["MSP (%)"] for row in texts_of(first)}


@pytest.mark.parametrize(
    ("protocol", "title"),
    [
        ("baseline", "Baseline"),
        ("interdataset", "InterDataset"),
        ("T40", "T40"),
        ("T45", "T45"),
        ("T50", "T50"),
    ],
)
def test_similar_classes_are_id_in_the_row_of_a_threshold(protocol, title):
    assert rows_of_table_vi(protocol) == {title: "50.0 / 27.5 / 70.0"}


def test_t1_and_t2_are_rows_of_people_s_labels_only():
    assert rows_of_table_vi("people") == {"T1": "50.0 / 27.5 / 70.0", "T2": "50.0 / 27.5 / 80.0"}
    assert list(rows_of_table_vi("paper")) == [
        "OOD: OODness 1 to 3 (ID test images)",
        "OOD: OODness 2 and 3",
        "OOD: OODness 3",
    ]


def test_class_similarity_has_a_column_per_method_and_three_metrics_in_a_cell(sources):
    found = rows_by_table(sources, "realistic")
    (near,) = [row for row in found["Table VI"] if row["Dataset"] == "photos near"]
    # The score of one of two near detections is above those of all ID detections: AUROC 50, and FPR
    # 50 at any TPR. The detection error is 2.5 + FPR / 2.
    assert near["MSP (%)"] == "50.0 / 27.5 / 50.0"
    levels = {row["Dataset"] for row in found["Table VI"]}
    assert {"OOD: OODness 2 and 3", "OOD: OODness 3"} <= levels


def test_printed_detection_errors_are_those_at_tpr_95():
    printed = pl.read_csv(ROOT / "data/published/realistic.csv")
    assert len(printed) == 48
    expected = 0.025 + printed["fpr95"] / 2
    differs = (printed["detection_error95"] - expected).abs() > 0.00016
    assert printed.filter(differs)["method"].to_list() == ["oodl", "oodl"]
    # TS is at a large temperature: it ranks as the largest logit does.
    auroc = printed.pivot("method", index=["table", "dataset"], values="auroc")
    assert (auroc["temperature_scaling"] - auroc["mls"]).abs().max() < 0.0002
