"""Curves, compared with values worked out by hand."""

import pytest
from tests.report.charts.conftest import points

from farther.errors import DataError
from farther.report.charts import curves


def test_curves_keep_their_ends_and_no_more_points_than_asked_for(run, plots):
    figures = curves.RunCurves(run, plots, ["msp"]).curves("roc", points=5)
    found = points(figures.charts[0])
    assert 2 < len(found) <= 5
    assert found[0] == ("MSP", 0, 0)
    assert found[-1] == ("MSP", 1, 1)
    assert [key.name for key in figures.legend] == ["MSP"]


def test_a_sweep_shows_each_metric_of_each_split(run, tmp_path):
    header = "split,method,kept,tau,nose,p_u,r_u\n"
    (tmp_path / "tau.csv").write_text(
        f"{header}photos_near,msp,0.5,1,0.1,,0.25\nphotos_near,msp,0.9,1,0.2,1,0.125\n"
    )
    figures = curves.RunCurves(run, {"tau": tmp_path / "tau.csv"}, ["msp"]).sweep("tau")
    assert {chart.title: points(chart) for chart in figures.charts} == {
        "photos near: nOSE": [("MSP", 0.5, 0.1), ("MSP", 0.9, 0.2)],
        "photos near: R_U": [("MSP", 0.5, 0.25), ("MSP", 0.9, 0.125)],
        "photos near: P_U": [("MSP", 0.9, 1)],
    }


def test_images_without_detections_are_drawn_once_and_not_for_each_method(run, tmp_path):
    (tmp_path / "confidence.csv").write_text(
        "split,t,method,no_detection\nphotos_near,0.1,msp,0.25\nphotos_near,0.1,knn,0.25\nphotos_near,0.5,msp,0.5\n"
    )
    files = {"confidence": tmp_path / "confidence.csv"}
    (chart,) = curves.RunCurves(run, files, ["msp"]).no_detection().charts
    assert points(chart) == [("photos near", 0.1, 0.25), ("photos near", 0.5, 0.5)]


def test_wilderness_compares_detectors_at_one_recall(tmp_path):
    for name, impact in (("one", 0.5), ("two", 0.25)):
        (tmp_path / f"{name}.csv").write_text(
            f"recall,ratio,impact\n0.1,1,9\n0.3,0,0\n0.3,1,{impact}\n"
        )
    files = {name: tmp_path / f"{name}.csv" for name in ("one", "two", "absent")}
    (chart,) = curves.wilderness_by_run(files, "0.3").charts
    assert points(chart) == [("one", 0, 0), ("one", 1, 0.5), ("two", 0, 0), ("two", 1, 0.25)]
    assert curves.wilderness_by_run(files, "0.5").charts == ()


def test_a_damaged_curve_is_refused_by_row(run, tmp_path):
    (tmp_path / "wilderness.csv").write_text("recall,ratio,impact\n0.1,1,0.5\n0.1,two,0.5\n")
    files = {"wilderness": tmp_path / "wilderness.csv"}
    with pytest.raises(
        DataError, match=r"wilderness\.csv: row 1: field 'ratio': expected a number, found 'two'"
    ):
        curves.RunCurves(run, files, ["msp"]).wilderness()
