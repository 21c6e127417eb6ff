"""Charts of results, compared with values worked out by hand."""

import pytest
from tests.report.charts.conftest import rows

from farther.report.charts import results as charts
from farther.report.results import CHARTED, OPEN_SET


def test_a_detector_s_page_draws_the_values_of_every_method_and_split(report, read, run):
    drawn = read(report / "detectors/pets-net.html").charts()
    for place, metric in enumerate(CHARTED, start=1):
        rows = drawn[f"methods-{place}"]["data"]["values"]
        shown = {(row["row"], row["split"]): row["value"] for row in rows}
        values = run.values.filter(metric=metric.name).drop_nulls("value")
        expected = {}
        for label, title, value in values.select("label", "split_title", "value").iter_rows():
            expected[label, title] = value
        assert shown == pytest.approx(expected, abs=1e-4)
        assert len(shown) > 0


def test_one_family_of_several_methods_is_compared_with_none(run):
    assert set(run.values["method"]) == {"msp", "energy", "knn"}
    assert not charts.families(run.values, OPEN_SET).charts


def test_families_have_the_methods_of_the_paper_and_the_best_lard(make_run):
    run = make_run(
        {
            "confidence": {"auroc": 0.1, "nose": 0.1},
            "vos": {"auroc": 0.1, "nose": 0.1},
            "msp": {"auroc": 0.6, "nose": 0.4},
            "gen": {"auroc": 0.8, "nose": 0.2},
            "knn": {"auroc": 0.3, "nose": 0.6},
            "ddu": {"auroc": 0.5, "nose": 0.8},
            "lard_knn": {"auroc": 0.7, "nose": 0.5},
            "lard_gmm": {"auroc": 0.9, "nose": 0.3},
        }
    )
    metrics = [metric for metric in CHARTED if metric.name in ("auroc", "nose")]
    mean_by_place = {}
    for chart, metric in zip(charts.families(run.values, metrics).charts, metrics, strict=True):
        for row in rows(chart):
            mean_by_place[metric.name, row["family"]] = (row["value"], row["methods"])
    # The detector's confidence and VOS are in no family. LaRD is the one with AUROC 0.9, also in
    # nOSE.
    assert mean_by_place == {
        ("auroc", "output"): (pytest.approx(0.7), 2),
        ("auroc", "feature"): (pytest.approx(0.4), 2),
        ("auroc", "latent"): (pytest.approx(0.9), 1),
        ("nose", "output"): (pytest.approx(0.3), 2),
        ("nose", "feature"): (pytest.approx(0.7), 2),
        ("nose", "latent"): (pytest.approx(0.3), 1),
    }


def test_correlations_are_over_all_rows_of_the_tables(make_run):
    values_by_method = {}
    for number in range(charts.FEWEST_CORRELATED):
        auroc = 0.5 + 0.04 * number
        values_by_method[f"method_{number}"] = {"auroc": auroc, "fpr95": 1 - auroc, "nose": None}
    run = make_run(values_by_method)
    cells = {
        (row["first"], row["second"]): row["value"] for row in rows(charts.correlations(run.values))
    }
    assert cells["AUROC", "FPR95"] == pytest.approx(-1)
    assert {name for pair in cells for name in pair} == {"AUROC", "FPR95"}, "nOSE has no value"
    values_by_method.popitem()
    assert charts.correlations(make_run(values_by_method).values) is None, "too few"


def counted(chart):
    """The cells of a heat map: category, class and number."""
    return [tuple(row.values()) for row in rows(chart)]


CONFUSED = {
    "cat": {"cat": 9, "dog": 1},
    "dog": {"dog": 12},
    "Lynx": {"cat": 2, "dog": 1},
    "Kite": {"dog": 1},
}


def test_the_confusion_of_the_paper_has_a_chart_for_known_and_one_for_unknown_classes(make_run):
    run = make_run(
        {},
        {
            "closed_set": {"per_class": {"cat": {"objects": 9}, "dog": {"objects": 12}}},
            "wilderness": {"confusion": CONFUSED},
        },
    )
    known = charts.confusion_at_recall(run, limit=5, of_known=True)
    assert counted(known) == [("dog", "dog", 12), ("cat", "cat", 9), ("cat", "dog", 1)]
    unknown = charts.confusion_at_recall(run, limit=5, of_known=False)
    assert counted(unknown) == [("Lynx", "cat", 2), ("Lynx", "dog", 1), ("Kite", "dog", 1)]
    one_category = charts.confusion_at_recall(run, limit=1, of_known=False)
    assert one_category.title.endswith("(1 of 2 categories)")
    for of_known in (True, False):
        assert charts.confusion_at_recall(make_run({}), limit=5, of_known=of_known) is None
