"""The charts: drawn by Vega-Lite, and compared with values worked out by hand."""

import csv
import re
from itertools import pairwise

import pytest
import vl_convert

from farther.errors import DataError
from farther.report.charts import curves
from farther.report.charts import results as charts
from farther.report.charts.vega import DASHES, Axis, keys, line_group, series
from farther.report.results import CHARTED, OPEN_SET, Run, read_runs


@pytest.fixture
def run(built, params) -> Run:
    return read_runs(params, built / "artifacts")[0]


@pytest.fixture
def plots(built):
    return built / "artifacts" / "plots" / "pets-net"


def rows(chart) -> list[dict]:
    values = chart.spec["data"]["values"]
    return list(csv.DictReader(values.splitlines())) if isinstance(values, str) else values


def points(chart) -> list[tuple[str, float, float]]:
    return [(row["series"], float(row["x"]), float(row["y"])) for row in rows(chart)]


@pytest.mark.parametrize(
    "kind",
    [
        "index.html hero-1",
        "detectors.html outcomes-1-1",
        "charts.html ood-1",
        "charts.html correlations",
        "splits/pets.html categories-1",
        "methods/msp.html detectors-1-1",
        "detectors/pets-net.html outcomes",
        "detectors/pets-net.html confusion",
        "detectors/pets-net.html methods-3",
        "detectors/pets-net.html roc-1",
        "detectors/pets-net.html pr-1",
        "detectors/pets-net.html tau-1",
        "detectors/pets-net.html confidence-1",
        "detectors/pets-net.html no-detection-1",
        "detectors/pets-net.html wilderness-1",
        "detectors/pets-net.html reliability",
    ],
)
def test_vega_lite_draws_it(report, read, kind):
    page, name = kind.split()
    svg = vl_convert.vegalite_to_svg(
        {**read(report / page).charts()[name], "width": 300}, show_warnings=False
    )
    assert "<path" in svg


def test_each_place_for_a_figure_has_its_specification(report, read):
    for file in report.rglob("*.html"):
        page = read(file)
        places = [e.attributes["data-spec"] for e in page.all("div") if "data-spec" in e.attributes]
        assert places == list(page.charts())


def test_a_line_is_drawn_along_its_points():
    # Twelve points: as text, 10 and 11 would come before 2.
    x = [k / 11 for k in range(12)]
    points = series({"a": [(value, value**2) for value in x]})
    (chart,) = line_group("t", "d", points, Axis("x"), Axis("y")).charts
    svg = vl_convert.vegalite_to_svg({**chart.spec, "width": 300})
    path = next(d for d in re.findall(r'd="(M[^"]+)"', svg) if d.count("L") == 11)
    xs = [float(x) for x in re.findall(r"[ML]([\d.]+),", path)]
    assert xs == sorted(xs)


def test_a_method_s_page_draws_its_values_of_every_detector_and_split(report, read, run):
    drawn = read(report / "methods" / "msp.html").charts()
    for place, metric in enumerate(CHARTED, start=1):
        rows = drawn[f"detectors-1-{place}"]["data"]["values"]
        shown = {(row["row"], row["split"]): row["value"] for row in rows}
        values = run.values.filter(method="msp", metric=metric.name).drop_nulls("value")
        expected = {
            ("net (pets)", title): value
            for title, value in values.select("split_title", "value").iter_rows()
        }
        assert shown == pytest.approx(expected, abs=1e-4)
        assert len(shown) > 0


def test_neighbouring_lines_differ_in_more_than_colour():
    legend = keys([str(k) for k in range(7)], DASHES)
    assert all(a.colour != b.colour and a.letter != b.letter for a, b in pairwise(legend))


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
    figures = curves.RunCurves(run, tmp_path, ["msp"]).sweep("tau")
    assert {chart.title: points(chart) for chart in figures.charts} == {
        "photos near: nOSE": [("MSP", 0.5, 0.1), ("MSP", 0.9, 0.2)],
        "photos near: R_U": [("MSP", 0.5, 0.25), ("MSP", 0.9, 0.125)],
        "photos near: P_U": [("MSP", 0.9, 1)],
    }


def test_images_without_detections_are_drawn_once_and_not_for_each_method(run, tmp_path):
    (tmp_path / "confidence.csv").write_text(
        "split,t,method,no_detection\nphotos_near,0.1,msp,0.25\nphotos_near,0.1,knn,0.25\nphotos_near,0.5,msp,0.5\n"
    )
    (chart,) = curves.RunCurves(run, tmp_path, ["msp"]).no_detection().charts
    assert points(chart) == [("photos near", 0.1, 0.25), ("photos near", 0.5, 0.5)]


def test_wilderness_compares_detectors_at_one_recall(tmp_path):
    for name, impact in (("one", 0.5), ("two", 0.25)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "wilderness.csv").write_text(
            f"recall,ratio,impact\n0.1,1,9\n0.3,0,0\n0.3,1,{impact}\n"
        )
    folders = {name: tmp_path / name for name in ("one", "two", "absent")}
    (chart,) = curves.wilderness_of(folders, "0.3").charts
    assert points(chart) == [("one", 0, 0), ("one", 1, 0.5), ("two", 0, 0), ("two", 1, 0.25)]
    assert curves.wilderness_of(folders, "0.5").charts == ()


def test_a_damaged_curve_is_refused_by_row(run, tmp_path):
    (tmp_path / "wilderness.csv").write_text("recall,ratio,impact\n0.1,1,0.5\n0.1,two,0.5\n")
    with pytest.raises(
        DataError, match=r"wilderness\.csv: row 1: field 'ratio': expected a number, found 'two'"
    ):
        curves.RunCurves(run, tmp_path, ["msp"]).wilderness()


def test_families_are_averaged_over_their_methods(run):
    chart = charts.families(run.values, OPEN_SET).charts[0]
    near = run.values.filter(split="photos_near", metric="nose")
    outputs = [near.filter(method=method)["value"].item() for method in ("msp", "energy")]
    by_place = {(row["split"], row["family"]): row for row in rows(chart)}
    assert by_place["photos near", "output"]["value"] == pytest.approx(sum(outputs) / 2)
    assert by_place["photos near", "output"]["methods"] == 2
    assert {family for _, family in by_place} == {"output", "feature"}


def test_correlations_are_over_all_rows_of_the_tables(make_run):
    run = make_run(
        {
            m: {"auroc": x, "fpr95": 1 - x, "nose": None}
            for m, x in (("a", 0.1), ("b", 0.4), ("c", 0.9))
        }
    )
    cells = {
        (row["first"], row["second"]): row["value"] for row in rows(charts.correlations(run.values))
    }
    assert cells["AUROC", "FPR95"] == pytest.approx(-1)
    assert {name for pair in cells for name in pair} == {"AUROC", "FPR95"}, "nOSE has no value"
    assert charts.correlations(make_run({}).values) is None


def test_known_classes_have_a_confusion_of_their_own(make_run):
    confused = {"cat": {"cat": 9, "dog": 1}, "dog": {"dog": 12}, "Lynx": {"cat": 20}}
    run = make_run(
        {},
        {
            "closed_set": {"per_class": {"cat": {}, "dog": {}}},
            "wilderness": {"confusion": confused},
        },
    )
    cells = [tuple(row.values()) for row in rows(charts.confusion_of_known(run, limit=5))]
    assert cells == [("dog", "dog", 12), ("cat", "cat", 9), ("cat", "dog", 1)]
    assert (
        charts.confusion_of_known(run, limit=1).title
        == "Known objects detected as known classes (1 of 2 categories)"
    )


def test_only_unknown_categories_are_confused(make_run):
    confused = {"cat": {"cat": 9}, "Lynx": {"cat": 2, "dog": 1}, "Kite": {"dog": 1}}
    run = make_run(
        {},
        {
            "closed_set": {"per_class": {"cat": {}, "dog": {}}},
            "wilderness": {"confusion": confused},
        },
    )
    assert [tuple(row.values()) for row in rows(charts.confusion(run, limit=5))] == [
        ("Lynx", "cat", 2),
        ("Lynx", "dog", 1),
        ("Kite", "dog", 1),
    ]
    assert charts.confusion(run, limit=1).title.endswith("(1 of 2 categories)")
    assert charts.confusion_of_known(make_run({}), limit=5) is None
    assert charts.confusion(make_run({}), limit=5) is None
