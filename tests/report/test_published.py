"""Results beside published ones."""

import csv
import shutil
from pathlib import Path

import polars as pl
import pytest

from farther.errors import DataError, ParameterError
from farther.report import build, published
from farther.report.settings import Counterpart

PLACE = ("faster_rcnn", "voc", "coco_near", "msp")
TABLES = Path(__file__).parents[2] / published.FOLDER


def printed(method: str, **metrics: float) -> pl.DataFrame:
    place = dict(zip(published.PLACE, (*PLACE[:3], method), strict=True))
    origin = {"origin": "FMIYC, Tables 8 to 25"}
    return pl.DataFrame([{**place, "metric": name, "published": value, **origin} for name, value in metrics.items()])


def texts(table) -> list[list[str]]:
    return [[text for text, _ in row] for row in table.rows]


def heads(table) -> list[str]:
    return [head.replace("\N{NO-BREAK SPACE}", " ") for head, _ in table.heads]


def test_values_of_both_kinds_of_table_come_together():
    rows = published.read(TABLES).filter(**dict(zip(published.PLACE, PLACE, strict=True)))
    # Tables 8 and 17: MSP of Faster R-CNN on COCO-Near.
    expected = {"auroc": 0.738, "fpr95": 0.883, "nose": 0.335, "ap_u": 0.074, "p_u": 0.654, "r_u": 0.102}
    assert dict(rows.select("metric", "published").iter_rows()) == expected


def test_a_comparable_run_shows_the_difference_in_points(make_run):
    run = make_run({"msp": {"auroc": 0.75, "nose": None}, "other": {"auroc": 0.5}})
    counterpart = Counterpart(detector="faster_rcnn", id="voc", comparable=True)
    table = published.beside(run, counterpart, printed("msp", auroc=0.738, nose=0.335))
    assert heads(table)[:5] == ["Split", "Method", "AUROC ↑ ours (%)", "AUROC ↑ published (%)", "AUROC ↑ difference"]
    assert heads(table)[5:] == ["nOSE ↓ ours (%)", "nOSE ↓ published (%)", "nOSE ↓ difference"]
    assert texts(table) == [["coco near", "MSP", "75.0", "73.8", "+1.2", "—", "33.5", "—"]]
    assert "NOT" not in table.caption


def test_values_that_are_not_comparable_are_context_and_no_difference_is_shown(make_run):
    run = make_run({"msp": {"auroc": 0.75}})
    table = published.beside(run, Counterpart(detector="faster_rcnn", id="voc"), printed("msp", auroc=0.738))
    assert texts(table) == [["coco near", "MSP", "75.0", "73.8"]]
    assert heads(table)[2:] == ["AUROC ↑ ours (%)", "AUROC ↑ published (%)"]
    assert "NOT comparable" in table.caption


def test_each_variant_of_lard_is_beside_the_best_of_them(make_run):
    run = make_run({"lard_gmm": {"auroc": 0.7}})
    table = published.beside(run, Counterpart(detector="faster_rcnn", id="voc"), printed("lard", auroc=0.738))
    assert [row[1] for row in texts(table)] == ["LaRD (GMM)"]


def test_means_over_the_splits_of_a_distance_are_beside_those_of_openood(make_run):
    run = make_run({"msp": {"auroc": 0.75}})
    counterpart = Counterpart(detector="resnet18_32x32", id="cifar10", comparable=True)
    table = published.beside(run, counterpart, published.read(TABLES))
    assert texts(table) == [["near, mean over its splits", "MSP", "75.0", "88.0", "-13.0"]]
    assert "OpenOOD v1.5" in table.caption
    assert "LaRD" not in table.caption


def test_full_spectrum_means_are_averaged_over_seeds_beside_published_ones(make_run):
    seeds = [
        make_run({"msp": {"auroc": 0.75}}, {"methods": {"msp": {"means": {"near": {"full_spectrum_auroc": value}}}}})
        for value in (0.5, 0.75)
    ]
    counterpart = Counterpart(detector="resnet50", id="imagenet", comparable=True)
    table = published.beside(seeds[0], counterpart, published.read(TABLES), seeds)
    assert heads(table)[-3:] == [f"AUROC full-spectrum ↑ {one}" for one in ("ours (%)", "published (%)", "difference")]
    assert texts(table)[0][-3:] == ["62.5", "60.8", "+1.7"]  # MSP of ResNet-50, near


def test_nothing_in_common_gives_no_table(make_run):
    counterpart = Counterpart(detector="faster_rcnn", id="voc")
    assert published.beside(make_run({"new": {}}), counterpart, printed("msp", auroc=0.738)) is None
    other = Counterpart(detector="fcos", id="voc")
    assert published.beside(make_run({"msp": {"auroc": 0.5}}), other, printed("msp", auroc=0.738)) is None


def test_damaged_tables_are_named(tmp_path):
    file = tmp_path / "fmiyc_ood.csv"
    file.write_text("detector,id,ood,method,auroc\nd,voc,s,msp,73.8\n")
    with pytest.raises(DataError, match=r"fmiyc_ood\.csv.*row 0.*'auroc'.*expected a fraction.*73\.8"):
        published.read(tmp_path)
    file.write_text("detector,id,method,auroc\n")
    with pytest.raises(DataError, match="'ood': there is no such column"):
        published.read(tmp_path)
    assert published.read(tmp_path / "nowhere").is_empty()


def test_the_page_shows_them_where_a_run_names_its_counterpart(built, params, tmp_path):
    root = tmp_path / "project"
    shutil.copytree(built, root)
    folder = root / published.FOLDER
    folder.mkdir(parents=True)
    with (folder / "fmiyc_ood.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[*published.PLACE, "auroc"], ["faster_rcnn", "voc", "photos_near", "msp", 0.111]])
    report = {"examples": 0, "published": {"pets-net": {"detector": "faster_rcnn", "id": "voc"}}}
    build({**params, "report": report}, root)
    page = root / "artifacts" / "report" / "published.html"
    assert ">11.1<" in page.read_text(encoding="utf-8")
    build({**params, "report": {"examples": 0}}, root)
    assert "No run is compared with a published detector" in page.read_text(encoding="utf-8")
    with pytest.raises(
        ParameterError, match=r"published\.pets-net: no published table has fcos/voc\. Known: faster_rcnn/voc"
    ):
        build({**params, "report": {"published": {"pets-net": {"detector": "fcos", "id": "voc"}}}}, root)
    with pytest.raises(ParameterError, match=r"no run 'other'\. Known: pets-net, pets-later"):
        build({**params, "report": {"published": {"other": {"detector": "faster_rcnn", "id": "voc"}}}}, root)
