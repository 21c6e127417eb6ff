"""Post-hoc, native and text scores: which is which, and the table that compares them."""

from dataclasses import replace

import pytest

from farther.report.kinds import kind_of
from farther.report.pages.compare import kinds
from farther.report.tables import benchmark_tables, to_csv

CROPS = {"passes": {"crop": {"kind": "crops"}, "dropout": {"passes": 10}}}
PROMPTED = {"adapter": "open_vocabulary", "params": {"unknown": ["an object"]}}


@pytest.mark.parametrize(
    ("name", "entry", "detector", "kind"),
    [
        ("msp", {}, {}, "post-hoc"),
        ("msp", {"pass": "dropout"}, CROPS, "post-hoc"),
        ("msp", {}, CROPS, "post-hoc"),
        ("mcm_on_crops", {"method": "mcm", "pass": "crop"}, CROPS, "text"),
        ("knn_on_crops", {"method": "knn", "pass": "crop"}, CROPS, "post-hoc"),
        ("native", {}, {}, "native"),
        ("labels", {"method": "native"}, PROMPTED, "native"),
        ("energy", {}, PROMPTED, "text + native"),
        ("energy", {}, {"classes": {"unknown": None}}, "post-hoc + native"),
        ("my_own", {}, {}, "post-hoc"),
    ],
)
def test_the_kind_of_a_score_follows_from_its_method_its_pass_and_the_detector(
    name, entry, detector, kind
):
    assert kind_of({name: entry}, name, detector) == kind


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        ({"method": "fused", "of": ["energy", "mcm_on_crops"]}, "text"),
        ({"method": "cascade", "first": "energy", "then": "mcm_on_crops"}, "text"),
        ({"method": "cascade", "first": "energy", "then": "knn_on_crops"}, "post-hoc"),
        ({"method": "fused", "of": ["energy", "mcm"]}, "post-hoc"),
    ],
)
def test_a_score_that_is_made_of_one_on_texts_is_one_on_texts(entry, kind):
    entries = {
        "energy": None,
        "mcm_on_crops": {"method": "mcm", "pass": "crop"},
        "knn_on_crops": {"method": "knn", "pass": "crop"},
        "together": entry,
    }
    assert kind_of(entries, "together", CROPS) == kind


@pytest.fixture
def run(make_run):
    means = {
        "near": {
            "splits": ["coco_near"],
            "values": {"auroc": 0.5, "ap_u": 0.25},
            "intervals": {"auroc": (0.4, 0.6)},
        }
    }
    results = {name: {"auroc": 0.5, "ap_u": 0.25} for name in ("msp", "energy", "native")}
    return make_run(results, {"methods": {name: {"means": means} for name in results}})


def test_the_methods_of_the_charts_are_compared_with_native_and_text_scores(run):
    run = replace(
        run, kinds={"msp": "post-hoc + native", "energy": "post-hoc + native", "native": "native"}
    )
    rows = kinds([run], {run.name: "energy"}).frame
    assert rows.select("Method", "Kind").rows() == [
        ("Energy", "post-hoc + native"),
        ("Native", "native"),
    ]
    assert rows["Near AUROC\N{NO-BREAK SPACE}↑"].to_list() == ["50.0 [40.0, 60.0]"] * 2
    assert "post-hoc + native" in benchmark_tables("voc", [run])[0].different("Kind")
    assert ",native,native," in to_csv([run])


def test_scores_of_one_kind_need_no_comparison(run):
    assert not kinds([run], {run.name: "msp"})
    assert "Kind" not in benchmark_tables("voc", [run])[0].labels
