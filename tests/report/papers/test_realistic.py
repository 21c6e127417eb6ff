"""Tables of Recalcati et al., and the printed values."""

import polars as pl
from tests.report.papers.conftest import ROOT, rows_by_table


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
