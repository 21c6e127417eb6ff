"""Results beside published ones."""

import csv
import shutil
from dataclasses import replace

import polars as pl
import pytest
from tests.report.conftest import run_of
from tests.report.papers.conftest import ROOT
from tests.support.evaluations import impact_of

from farther.errors import DataError, ParameterError
from farther.evaluation.results import Ablation, AcceptedImages, MetricValues
from farther.report import build
from farther.report.papers.published import PLACE, Published
from farther.report.papers.table import PRINTED
from farther.report.results import OodTestSplit
from farther.report.settings import Counterpart

KEY = dict(zip(PLACE, ("faster_rcnn", "voc", "coco_near", "msp"), strict=True))
ALL = Published.read(ROOT / PRINTED)
FASTER_RCNN = Counterpart(detector="faster_rcnn", id="voc")

MEAN = {"f": [0.9, 0.8], "precision": [0.9, 0.8], "recall": [0.9, 0.8], "threshold": [0.5, 0.75]}
WILD = {
    "map_closed": 0.8,
    "map_open": None,
    "at_recall": {"0.1": impact_of(average_impact=0.03)},
    "background": {
        "known": {"histogram": [], "classes": {"boat": {"mean": 0.5, "sd": 0.25}}},
        "unknown": {"histogram": [], "classes": {}},
    },
    "operating_points": {
        "ratios": [0.0, 1.0],
        "betas": {"1": {"mean": None, "classes": {"cow": MEAN}}},
    },
}


def printed(method: str = "msp", **metrics: float) -> Published:
    rows = [
        {
            **KEY,
            "method": method,
            "metric": name,
            "published": value,
            "origin": "FMIYC, Tables 8 to 25",
        }
        for name, value in metrics.items()
    ]
    return Published(pl.DataFrame(rows), {})


def texts(table) -> list[list[str]]:
    return [[text for text, _ in row] for row in table.rows]


def heads(table) -> list[str]:
    return [head.replace("\N{NO-BREAK SPACE}", " ") for head, _ in table.heads]


# Methods


def test_values_of_both_kinds_of_table_come_together():
    # Tables 8 and 17: MSP of Faster R-CNN on COCO-Near.
    expected = {
        "auroc": 0.738,
        "fpr95": 0.883,
        "nose": 0.335,
        "ap_u": 0.074,
        "p_u": 0.654,
        "r_u": 0.102,
    }
    assert dict(ALL.methods.filter(**KEY).select("metric", "published").iter_rows()) == expected


def test_a_comparable_run_shows_the_difference_in_points(make_run):
    run = make_run({"msp": {"auroc": 0.75, "nose": None}, "other": {"auroc": 0.5}})
    counterpart = Counterpart(detector="faster_rcnn", id="voc", comparable=True)
    (table,) = printed(auroc=0.738, nose=0.335).beside(run, counterpart)
    assert heads(table)[:5] == [
        "Split",
        "Method",
        "AUROC ↑ ours (%)",
        "AUROC ↑ published (%)",
        "AUROC ↑ difference",
    ]
    assert heads(table)[5:] == ["nOSE ↓ ours (%)", "nOSE ↓ published (%)", "nOSE ↓ difference"]
    assert texts(table) == [["coco near", "MSP", "75.0", "73.8", "+1.2", "—", "33.5", "—"]]
    assert "NOT" not in table.caption


def test_values_that_are_not_comparable_are_context_and_no_difference_is_shown(make_run):
    (table,) = printed(auroc=0.738).beside(make_run({"msp": {"auroc": 0.75}}), FASTER_RCNN)
    assert texts(table) == [["coco near", "MSP", "75.0", "73.8"]]
    assert heads(table)[2:] == ["AUROC ↑ ours (%)", "AUROC ↑ published (%)"]
    assert "NOT comparable" in table.caption


def test_each_variant_of_lard_is_beside_the_best_of_them(make_run):
    (table,) = printed("lard", auroc=0.738).beside(
        make_run({"lard_gmm": {"auroc": 0.7}}), FASTER_RCNN
    )
    assert [row[1] for row in texts(table)] == ["LaRD (GMM)"]


def test_means_over_the_splits_of_a_distance_are_beside_those_of_openood(make_run):
    counterpart = Counterpart(detector="resnet18_32x32", id="cifar10", comparable=True)
    (table,) = ALL.beside(make_run({"msp": {"auroc": 0.75}}), counterpart)
    assert texts(table) == [["near, mean over its splits", "MSP", "75.0", "88.0", "-13.0"]]
    assert "OpenOOD v1.5" in table.caption
    assert "LaRD" not in table.caption


def test_means_over_the_near_splits_are_beside_those_of_openood_version_1(make_run):
    counterpart = Counterpart(detector="resnet18", id="cifar10-v1", comparable=True)
    (table,) = ALL.beside(make_run({"msp": {"auroc": 0.75}}), counterpart)
    assert texts(table) == [["near, mean over its splits", "MSP", "75.0", "86.9", "-11.9"]]
    assert "Table 1 of version 1" in table.caption


def test_full_spectrum_means_are_averaged_over_seeds_beside_published_ones(make_run):
    means = (
        {"near": {"splits": [], "values": {"full_spectrum_auroc": value}}} for value in (0.5, 0.75)
    )
    seeds = [
        make_run({"msp": {"auroc": 0.75}}, {"methods": {"msp": {"means": of}}}) for of in means
    ]
    counterpart = Counterpart(detector="resnet50", id="imagenet", comparable=True)
    (table,) = filter(len, ALL.beside(seeds[0], counterpart, seeds))
    assert heads(table)[-3:] == [
        f"AUROC full-spectrum ↑ {one}" for one in ("ours (%)", "published (%)", "difference")
    ]
    assert texts(table)[0][-3:] == ["62.5", "60.8", "+1.7"]  # MSP of ResNet-50, near


def test_nothing_in_common_gives_no_rows(make_run):
    (table,) = printed(auroc=0.738).beside(make_run({"new": {}}), FASTER_RCNN)
    assert len(table) == 0
    assert not list(
        printed(auroc=0.7).beside(
            make_run({"msp": {"auroc": 0.5}}), Counterpart(detector="fcos", id="voc")
        )
    )


# Wilderness


@pytest.fixture
def wilderness(make_run):
    def tables(detector, comparable=False, **changed):
        run = make_run({}, {"wilderness": WILD | changed})
        found = ALL.beside(run, Counterpart(detector=detector, id="voc", comparable=comparable))
        return [table for table in found if "Overlooked Elephant" in table.caption and len(table)]

    return tables


def test_each_value_of_wilderness_is_beside_the_printed_one_with_the_difference(wilderness):
    tables = wilderness("faster_rcnn", comparable=True)
    assert [table.caption.split("Table ")[1][0] for table in tables] == ["1", "2", "3"]
    assert heads(tables[0]) == [
        f"mAP {kind} {one}"
        for kind in ("closed", "open")
        for one in ("ours (%)", "published (%)", "difference")
    ]
    assert texts(tables[0]) == [["80.0", "81.9", "-1.9", "—", "77.1", "—"]]
    assert texts(tables[1]) == [
        ["0.1", "3.0", "1.9", "+1.0"],
        ["0.3", "—", "3.8", "—"],
        ["0.5", "—", "9.7", "—"],
    ]
    boat = next(row for row in texts(tables[2]) if row[0] == "boat")
    assert boat == ["boat", "0.500", "0.387", "+0.113", "0.250", "0.684", "-0.434"]


def test_operating_points_are_those_of_the_printed_class_ratio_and_beta(wilderness):
    *_, points = wilderness("retinanet")
    rows = {(row[1], row[2]): row[3:] for row in texts(points)}
    assert rows["1", "1"] == ["80.0", "72.0", "80.0", "70.9", "80.0", "73.8", "0.750", "0.650"]
    assert rows["0", "1"][0] == "90.0"
    assert rows["1", "0.5"][0] == rows["4.25", "1"][0] == "—"
    assert "NOT comparable" in points.caption


def test_detectors_that_a_table_of_wilderness_lacks_have_none(wilderness):
    assert [
        len(wilderness(name)) for name in ("mask_rcnn", "yolov2", "dropout_sampling", "yolov8")
    ] == [1, 2, 2, 0]
    background = wilderness("faster_rcnn", background=None)[2]
    assert {row[1] for row in texts(background)} == {"—"}
    assert ("retinanet", "voc") in ALL.detectors


# Files and the page


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        (
            "fmiyc_ood.csv",
            "detector,id,ood,method,auroc\nd,voc,s,msp,73.8\n",
            r"row 0.*'auroc'.*a fraction.*73\.8",
        ),
        ("fmiyc_ood.csv", "detector,id,method,auroc\n", "'ood': there is no such column"),
        (
            "elephant_map.csv",
            "detector,id,map_closed\nd,voc,0.5\n",
            "'map_open': there is no such column",
        ),
    ],
)
def test_damaged_tables_are_named(tmp_path, file, text, problem):
    assert Published.read(tmp_path).detectors == set()
    (tmp_path / file).write_text(text)
    with pytest.raises(DataError, match=rf"{file}.*{problem}"):
        Published.read(tmp_path)


def test_the_page_of_papers_has_them_where_a_run_repeats_its_counterpart(built, params, tmp_path):
    root = tmp_path / "project"
    shutil.copytree(built, root)
    folder = root / PRINTED
    folder.mkdir(parents=True)
    with (folder / "fmiyc_ood.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [[*PLACE, "auroc"], ["faster_rcnn", "voc", "photos_near", "msp", 0.111]]
        )
    counterpart = {"detector": "faster_rcnn", "id": "voc", "comparable": True}

    def report_with(**report):
        build({**params, "report": {"examples": 0, "papers": ["fmiyc"], **report}}, root)
        return (root / "artifacts/report/papers.html").read_text(encoding="utf-8")

    page = report_with(published={"pets-net": counterpart})
    assert "Beside the printed values" in page
    assert ">11.1<" in page
    context = {**counterpart, "comparable": False}
    assert "Beside the printed values" not in report_with(published={"pets-net": context})
    assert "Beside the printed values" not in report_with()
    with pytest.raises(
        ParameterError,
        match=r"published\.pets-net: no published table has fcos/voc\. Known: faster_rcnn/voc",
    ):
        report_with(published={"pets-net": {**counterpart, "detector": "fcos"}})
    with pytest.raises(ParameterError, match=r"no run 'other'\. Known: pets-net, pets-later"):
        report_with(published={"other": counterpart})


# SAOD

#: A run on COCO with two splits of SVHN.
AWARE = {
    "aggregates": {"top-3": {"all OOD": 0.95}, "min": {"all OOD": 0.9}},
    "uncertainties": {"1 − confidence": MetricValues(values={"top-3": 0.95})},
    "splits": {
        "svhn_train": {"auroc": 0.9},
        "svhn_test": {"auroc": 0.6},
        "all OOD": {"auroc": 0.8},
    },
    "images": {
        "svhn_train": AcceptedImages(images=10, rejected_images=0, histogram=[]),
        "svhn_test": AcceptedImages(images=20, rejected_images=0, histogram=[]),
    },
    "calibrated": {"none": {"laece": 0.4, "lrp": 0.7}, "linear": {"laece": 0.2, "lrp": 0.7}},
    "values": {"daq": 0.5, "idq": None},
    "accuracy": {"val": MetricValues(values={"ap": 0.399, "lrp": 0.6})},
    "ablation": [
        Ablation(
            confidence_threshold="half",
            calibrator=None,
            image_threshold="keep_95",
            metrics={"daq": 0.35},
        )
    ],
}


def self_aware_tables(detector, comparable=True):
    run = run_of({}, {"self_awareness": AWARE})
    splits = tuple(OodTestSplit(name, "svhn", "far") for name in ("svhn_train", "svhn_test"))
    run = replace(run, splits=splits)
    counterpart = Counterpart(detector=detector, id="coco", comparable=comparable)
    return [table for table in ALL.beside(run, counterpart) if "SAOD, Table" in table.caption]


def test_each_value_of_saod_is_beside_the_printed_one_with_the_difference():
    tables = self_aware_tables("faster_rcnn")
    assert [table.caption.split("Table ")[1][0] for table in tables] == [
        "2",
        "3",
        "4",
        "5",
        "6",
        "7",
    ]
    two, three, four, five, six, seven = tables
    (row,) = texts(two)
    assert row[:9] == ["—", "20.9", "—", "—", "84.1", "—", "—", "93.4", "—"]  # sum, mean, top-5
    assert row[9:] == ["95.0", "94.1", "+0.9", "—", "94.4", "—", "90.0", "93.8", "-3.8"]
    # Faster R-CNN's boxes have no variance: Table 3 prints three uncertainties.
    assert texts(three) == [["—", "92.6", "—", "—", "89.7", "—", "95.0", "94.1", "+0.9"]]
    # Both splits of SVHN: (10 · 0.9 + 20 · 0.6) / 30 = 0.7.
    assert texts(four)[0][6:] == ["70.0", "99.8", "-29.8", "80.0", "94.1", "-14.1"]
    assert texts(five)[:2] == [
        ["none", "40.0", "43.3", "-3.3", "70.0", "74.7", "-4.7"],
        ["linear", "20.0", "17.7", "+2.3", "70.0", "74.7", "-4.7"],
    ]
    assert texts(five)[2] == ["histogram", "—", "18.6", "—", "—", "74.7", "—"]
    assert texts(six)[0][:3] == ["50.0", "39.7", "+10.3"]
    assert texts(six)[0][-6:] == ["60.0", "59.5", "+0.5", "39.9", "39.9", "+0.0"]
    assert texts(seven)[0][:6] == ["half", "none", "keep_95", "35.0", "36.0", "-1.0"]


def test_probabilistic_detectors_are_in_table_3_alone():
    (three,) = (table for table in self_aware_tables("nll_rcnn", comparable=False) if len(table))
    assert texts(three) == [
        ["—", "92.4", "—", "89.0", "95.0", "94.1", "—", "87.6", "—", "87.5", "—", "87.7"]
    ]
    assert "NOT comparable" in three.caption
    assert ("atss", "nuimages") in ALL.detectors


def test_a_percentage_in_a_table_of_saod_is_refused(tmp_path):
    header = "detector,id,calibrator,laece,lrp"
    (tmp_path / "saod_calibration.csv").write_text(f"{header}\nfaster_rcnn,coco,none,43.3,0.747\n")
    with pytest.raises(
        DataError, match=r"saod_calibration\.csv.*row 0.*'laece'.*a fraction.*43\.3"
    ):
        Published.read(tmp_path)
