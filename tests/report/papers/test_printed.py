"""Values beside printed ones."""

import csv
import shutil

import pytest
from tests.report.papers.conftest import ROOT, layout_of, listings_of, texts_of

from farther.errors import DataError, ParameterError
from farther.report import build
from farther.report.papers.frames import Sources
from farther.report.papers.layout import PAPERS, read_paper
from farther.report.papers.printed import PUBLISHED, published_detectors
from farther.report.settings import Counterpart

COMPARABLE = Counterpart(detector="rcnn", id="voc", comparable=True)
PUBLISHED_VALUES = {
    "file": "values.csv",
    "keys": {"ood": "split", "method": "method"},
    "values": {"auroc": {"metric": "auroc"}},
    "caption": "{dataset}, as printed.",
}


@pytest.fixture
def project(tmp_path):
    """Makes a project with a file of printed values, and the data of its tables."""

    def make(rows, published=None, seeds=None):
        folder = tmp_path / PUBLISHED
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "values.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
        counterparts = {"net": COMPARABLE} if published is None else published
        return Sources([], {}, tmp_path, counterparts, seeds or {})

    return make


HEAD = ["detector", "id", "ood", "method", "auroc"]
ROW = ["rcnn", "voc", "far", "msp", "0.4"]


def test_a_value_is_beside_the_printed_one_with_the_difference_in_points(project):
    layout = layout_of(published=[PUBLISHED_VALUES])
    sources = project([HEAD, ROW, ["rcnn", "voc", "far", "knn", "0.3"]])
    own, beside, printed = listings_of(
        layout, {"value": 0.5}, {"method": "energy", "value": 0.5}, sources=sources
    )
    assert [row["Method"] for row in texts_of(own)] == ["MSP", "Energy"]
    # Where both have the value.
    assert texts_of(beside) == [
        {
            "Split": "far",
            "Method": "MSP",
            "AUROC ↑ ours (%)": "50.0",
            "AUROC ↑ published (%)": "40.0",
            "AUROC ↑ difference": "+10.0",
        }
    ]
    assert beside.caption.startswith("Net (pets) beside rcnn on voc as printed.")
    assert printed.caption == "voc, as printed."
    assert texts_of(printed) == [
        {"Method": "MSP", "far (%)": "40.0"},
        {"Method": "kNN", "far (%)": "30.0"},
    ]


def test_a_run_that_is_not_comparable_is_beside_nothing(project):
    context = Counterpart(detector="rcnn", id="voc")
    sources = project([HEAD, ROW], {"net": context})
    layout = layout_of(published=[PUBLISHED_VALUES])
    assert len(listings_of(layout, {"value": 0.5}, sources=sources)) == 2


def test_different_names_of_a_printed_method_are_each_beside_it(project):
    same = {"method": {"lard_knn": "lard", "lard_gmm": "lard"}}
    layout = layout_of(published=[{**PUBLISHED_VALUES, "same": same}])
    sources = project([HEAD, ["rcnn", "voc", "far", "lard", "0.4"]])
    rows = [{"method": name, "value": 0.5} for name in ("lard_knn", "lard_gmm", "msp")]
    _, beside, _ = listings_of(layout, *rows, sources=sources)
    assert [row["Method"] for row in texts_of(beside)] == ["LaRD (kNN)", "LaRD (GMM)"]


def test_seeds_are_beside_a_printed_value_as_their_mean(project):
    sources = project([HEAD, ROW], {"both": COMPARABLE}, {"both": ["a", "b"]})
    layout = layout_of(published=[PUBLISHED_VALUES], averages_runs=True)
    rows = [{"run": "a", "value": 0.5}, {"run": "b", "value": 0.75}, {"run": "c", "value": 1.0}]
    _, beside, _ = listings_of(layout, *rows, sources=sources)
    assert beside.caption.startswith("both beside rcnn on voc")
    assert texts_of(beside)[0]["AUROC ↑ ours (%)"] == "62.5"


def test_splits_of_a_printed_dataset_are_one_value_weighted_by_their_images(project):
    published = {"file": "values.csv", "values": {"svhn": {"source": "svhn"}}}
    layout = layout_of(published=[published])
    sources = project([["detector", "id", "svhn"], ["rcnn", "voc", "0.6"]])
    first = {"split": "svhn_train", "source": "svhn", "n": 10, "value": 0.9}
    second = {"split": "svhn_test", "source": "svhn", "n": 20, "value": 0.6}
    _, beside = listings_of(layout, first, second, sources=sources)
    (row,) = texts_of(beside)
    # (10 · 0.9 + 20 · 0.6) / 30
    assert row["svhn ours (%)"] == "70.0"


def test_values_that_are_not_per_cent_differ_in_their_unit(project):
    layout = layout_of(published=[PUBLISHED_VALUES], decimals={"auroc": 2})
    _, beside, _ = listings_of(layout, {"value": 0.5}, sources=project([HEAD, ROW]))
    assert list(texts_of(beside)[0].values())[2:] == ["0.50", "0.40", "+0.100"]


@pytest.mark.parametrize(
    ("rows", "row", "field", "problem"),
    [
        ([HEAD, ROW, [*ROW[:4], "73.8"]], 1, "auroc", "a fraction, 0 to 1, found 73.8"),
        ([HEAD, [*ROW[:4], "high"]], 0, "auroc", "expected a number, found 'high'"),
        ([["detector", "id", "method", "auroc"]], None, "ood", "there is no such column"),
    ],
)
def test_a_damaged_file_is_named_with_row_and_column(project, rows, row, field, problem):
    layout = layout_of(published=[PUBLISHED_VALUES])
    with pytest.raises(DataError, match=problem) as error:
        listings_of(layout, {"value": 0.5}, sources=project(rows))
    assert (error.value.row, error.value.field) == (row, field)
    assert error.value.file.endswith("values.csv")


def test_printed_detectors_are_those_of_all_papers():
    detectors = published_detectors(ROOT, [read_paper(name) for name in PAPERS])
    known = {("faster_rcnn", "bdd"), ("retinanet", "voc"), ("atss", "nuimages")}
    assert known | {("resnet18_32x32", "cifar10"), ("anomaly", "mvtec-ad")} <= detectors


def test_the_page_of_a_paper_has_a_run_beside_its_counterpart(built, params, tmp_path):
    root = tmp_path / "project"
    shutil.copytree(built, root)
    (root / PUBLISHED).mkdir(parents=True)
    header = ["detector", "id", "ood", "method", "auroc", "fpr95"]
    with (root / PUBLISHED / "fmiyc_ood.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [header, ["faster_rcnn", "voc", "photos_near", "msp", 0.111, 0.222]]
        )
    counterpart = {"detector": "faster_rcnn", "id": "voc", "comparable": True}

    def page_with(**report):
        build({**params, "report": {"examples": 0, "papers": ["fmiyc"], **report}}, root)
        return (root / "artifacts/report/papers/fmiyc.html").read_text(encoding="utf-8")

    page = page_with(published={"pets-net": counterpart})
    assert ">11.1<" in page
    beside = root / "artifacts/report/papers/fmiyc/tables-8-to-13-beside-pets-net.csv"
    (row,) = csv.DictReader(beside.open(encoding="utf-8"))
    assert row["Method"] == "MSP"
    assert ">11.1<" not in page_with(published={"pets-net": {**counterpart, "comparable": False}})
    with pytest.raises(
        ParameterError,
        match=r"published\.pets-net: no published table has fcos/voc\. Known: faster_rcnn/voc",
    ):
        page_with(published={"pets-net": {**counterpart, "detector": "fcos"}})
    with pytest.raises(ParameterError, match=r"no run 'other'\. Known: pets-net, pets-later"):
        page_with(published={"other": counterpart})
