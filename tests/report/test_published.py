"""Ours beside published figures."""

import csv
import shutil
from pathlib import Path

import pytest

from farther.errors import DataError, ParameterError
from farther.report import build, published
from farther.report.published import Counterpart
from farther.report.results import Run, Split

PLACE = ("faster_rcnn", "voc", "coco_near", "msp")
TABLES = Path(__file__).parents[2] / published.FOLDER


def a_run(**figures):
    return Run(
        name="mine",
        benchmark="voc",
        adapter="faster_rcnn",
        weights="w",
        splits=(Split("coco_near", "coco", "near"),),
        methods=tuple(figures),
        figures={("coco_near", method): values for method, values in figures.items()},
        detector={},
        evaluation={},
    )


def test_figures_of_both_kinds_of_table_come_together():
    figures = published.read(TABLES)[PLACE]
    # Tables 8 and 17: MSP of Faster R-CNN on COCO-Near.
    assert figures == {"auroc": 0.738, "fpr95": 0.883, "nose": 0.335, "ap_u": 0.074, "p_u": 0.654, "r_u": 0.102}


def test_a_comparable_run_shows_the_difference_in_points():
    run = a_run(msp={"auroc": 0.75, "nose": None}, other={"auroc": 0.5})
    counterpart = Counterpart(detector="faster_rcnn", id="voc", comparable=True)
    table = published.beside(run, counterpart, {PLACE: {"auroc": 0.738, "nose": 0.335}})
    heads = [head.replace("\N{NO-BREAK SPACE}", " ") for head in table.heads]
    assert heads[:5] == ["Split", "Method", "AUROC ↑ ours", "AUROC ↑ published", "AUROC ↑ difference"]
    assert heads[5:] == ["nOSE ↓ ours", "nOSE ↓ published", "nOSE ↓ difference"]
    assert table.rows == (("coco near", "MSP", "75.0", "73.8", "+1.2", "—", "33.5", "—"),)
    assert "NOT" not in table.caption


def test_without_the_word_of_the_profile_figures_are_context_and_no_difference_is_shown():
    run = a_run(msp={"auroc": 0.75})
    table = published.beside(run, Counterpart(detector="faster_rcnn", id="voc"), {PLACE: {"auroc": 0.738}})
    assert table.rows == (("coco near", "MSP", "75.0", "73.8"),)
    assert [head.split()[-1] for head in table.heads[2:]] == ["ours", "published"]
    assert "NOT comparable" in table.caption


def test_each_variant_of_lard_stands_beside_the_best_of_them():
    figures = {(*PLACE[:3], "lard"): {"auroc": 0.738}}
    table = published.beside(a_run(lard_gmm={"auroc": 0.7}), Counterpart(detector="faster_rcnn", id="voc"), figures)
    assert [row[1] for row in table.rows] == ["LaRD (GMM)"]


def test_nothing_in_common_gives_no_table_and_a_detector_that_nobody_published_is_an_error():
    assert published.beside(a_run(new={}), Counterpart(detector="faster_rcnn", id="voc"), {PLACE: {}}) is None
    with pytest.raises(
        ParameterError, match=r"published\.mine: no published table has fcos/voc\. Known: faster_rcnn/voc"
    ):
        published.beside(a_run(msp={}), Counterpart(detector="fcos", id="voc"), {PLACE: {}})


def test_damaged_tables_are_named(tmp_path):
    file = tmp_path / published.FILES[0]
    file.write_text("detector,id,ood,method,auroc\nd,voc,s,msp,73.8\n")
    with pytest.raises(DataError, match=r"fmiyc_ood\.csv.*row 0.*'auroc'.*expected a fraction.*'73\.8'"):
        published.read(tmp_path)
    file.write_text("detector,id,method,auroc\n")
    with pytest.raises(DataError, match="'ood': there is no such column"):
        published.read(tmp_path)
    assert published.read(tmp_path / "nowhere") == {}


def test_the_page_shows_them_where_a_run_names_its_counterpart(built, params, tmp_path):
    root = tmp_path / "project"
    shutil.copytree(built, root)
    folder = root / published.FOLDER
    folder.mkdir(parents=True)
    with (folder / published.FILES[0]).open("w", newline="") as file:
        csv.writer(file).writerows([[*published.PLACE, "auroc"], ["faster_rcnn", "voc", "photos_near", "msp", 0.111]])
    report = {"examples": 0, "published": {"pets-net": {"detector": "faster_rcnn", "id": "voc"}}}
    build({**params, "report": report}, root)
    page = root / "artifacts" / "report" / "published.html"
    assert ">11.1<" in page.read_text(encoding="utf-8")
    build({**params, "report": {"examples": 0}}, root)
    assert "No run is put beside a published detector" in page.read_text(encoding="utf-8")
    with pytest.raises(ParameterError, match=r"no run 'other'\. Known: pets-net, pets-later"):
        build({**params, "report": {"published": {"other": {"detector": "faster_rcnn", "id": "voc"}}}}, root)
