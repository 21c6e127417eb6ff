"""With many runs, some are drawn, and all are in the tables of one row per detector."""

import copy
import shutil
from pathlib import Path

import pytest
from tests.report.conftest import PARAMS, Page, copy_run
from tests.support.evaluations import stored_results

from farther.command.doctor import report as doctor
from farther.command.doctor.inspection import Inspection
from farther.report import build, drawn
from farther.report.drawn import DRAWN, Drawn
from farther.report.results import Run


def run(name: str, benchmark: str = "voc") -> Run:
    return Run(name, benchmark, "", "", (), stored_results())


def names(drawn_runs: Drawn) -> list[str]:
    return [run.name for run in drawn_runs.runs]


def test_up_to_the_limit_all_runs_are_drawn_and_no_note_says_so():
    runs = [run(f"r{number}") for number in range(DRAWN)]
    of_all = Drawn.of(runs)
    assert list(of_all.runs) == runs
    assert of_all.note == ""


def test_of_many_runs_the_first_of_each_benchmark_are_drawn_in_their_order():
    runs = [run(f"v{number}") for number in range(DRAWN)] + [run("b0", "bdd"), run("b1", "bdd")]
    of_many = Drawn.of(runs)
    assert names(of_many) == [*(f"v{number}" for number in range(DRAWN - 2)), "b0", "b1"]
    assert f"show {DRAWN} of {DRAWN + 2} runs" in of_many.note


def test_runs_that_are_named_are_drawn_whatever_their_number():
    runs = [run(f"r{number}") for number in range(DRAWN + 5)]
    assert names(Drawn.of(runs, ["r24", "r3"])) == ["r3", "r24"]
    assert names(Drawn.of(runs, [run.name for run in runs])) == [run.name for run in runs]


def test_names_of_other_runs_only_leave_the_first_ones():
    runs = [run("a"), run("b")]
    assert names(Drawn.of(runs, ["elsewhere"])) == ["a", "b"]


def test_a_mean_over_seeds_never_lacks_one_of_them():
    runs = [run(f"r{number}") for number in range(DRAWN + 5)]
    seeds = {"mean": ["r0", "r23", "r24"]}
    assert names(Drawn.of(runs, seeds=seeds)) == [
        *(f"r{number}" for number in range(DRAWN)),
        "r23",
        "r24",
    ]
    assert names(Drawn.of(runs, ["r23"], seeds)) == ["r0", "r23", "r24"]


@pytest.fixture(scope="module")
def project(evaluated, tmp_path_factory) -> Path:
    """A project with two evaluated runs, `pets-net` and its copy `pets-later`."""
    root = tmp_path_factory.mktemp("many") / "project"
    shutil.copytree(evaluated, root, ignore=shutil.ignore_patterns("report", "records"))
    copy_run(root)
    return root


@pytest.fixture
def report(project, monkeypatch) -> Path:
    """Its report, which may draw one run."""
    monkeypatch.setattr(drawn, "DRAWN", 1)
    build(copy.deepcopy(PARAMS), project)
    return project / "artifacts/report"


NOTE = "show 1 of 2 runs"


@pytest.mark.parametrize("name", ["index.html", "compare.html", "methods.html"])
def test_each_page_says_how_many_runs_are_not_drawn(report, name):
    assert NOTE in Page(report / name).source


def test_each_run_is_in_the_first_table_and_has_a_page(report):
    rows = [text for text in Page(report / "index.html").texts("th") if "(pets)" in text]
    assert {"net (pets)", "later (pets)"} <= set(rows)
    assert (report / "detectors/pets-net.html").is_file()
    assert (report / "detectors/pets-later.html").is_file()


def test_only_runs_that_are_drawn_have_charts_and_pairs(report):
    for name in ("index.html", "compare.html"):
        for spec in Page(report / name).charts().values():
            assert "later" not in str(spec)
    page = Page(report / "compare.html")
    assert "pairs" not in [element.attributes.get("id") for element in page.all("h2")]
    cells = [element.text for element in page.all("td")]
    assert any("later" in text for text in cells)  # Quality and Runs have all


def test_a_run_is_drawn_where_the_parameter_names_it(project):
    params = copy.deepcopy(PARAMS)
    params["report"]["drawn"] = ["pets-later"]
    build(params, project)
    page = Page(project / "artifacts/report/index.html")
    assert NOTE in page.source
    assert "later" in str(page.charts())


def test_a_run_that_does_not_exist_is_refused_with_those_that_do(project):
    params = copy.deepcopy(PARAMS)
    params["report"]["drawn"] = ["pets-latre"]
    with pytest.raises(Exception, match=r"report.drawn: there is no run 'pets-latre'"):
        build(params, project)
    findings = list(doctor.check(Inspection(params)))
    assert any("pets-latre" in finding.text for finding in findings)
