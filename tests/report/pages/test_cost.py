"""The section of cost and quality."""

import re
from dataclasses import replace

import pytest
from tests.report.conftest import run_of
from tests.support.pages import until

from farther.report.pages import cost, deploy
from farther.report.pages.missed import TimedSource, costs
from farther.report.site import Site
from farther.tables.documents import write_json

GAINS = {
    "baseline": "confidence",
    "methods": {
        "confidence": {"auroc": {"value": 0.7, "gain": 0.0, "gain_interval": (0.0, 0.0)}},
        "knn": {"auroc": {"value": 0.72, "gain": 0.02, "gain_interval": (-0.01, 0.05)}},
        "odin": {"auroc": {"value": 0.75, "gain": 0.05, "gain_interval": None}},
    },
}
KNN_GAIN = GAINS["methods"]["knn"]["auroc"]
COST = {
    "images": 4,
    "runs": {
        "net": {
            "passes": {"perturbed": {"forward": 1, "backward": 1}},
            "methods": {
                "confidence": {"passes": {}, "bytes": 40.0},
                "knn": {"passes": {}, "bytes": 5200.0},
                "odin": {"passes": {"perturbed": 1.0}, "bytes": 800.0},
            },
        }
    },
}
NO_TIMES = {"machine": None, "runs": {}}
TIMES = {
    "machine": {"processor": "Some CPU", "gpu": None},
    "runs": {
        "net": {
            "key": "",
            "keys": {},
            "detector": 40.0,
            "passes": {"perturbed": 90.0},
            "proposals": {"rpn": 10.0},
            "methods": {"confidence": 0.0, "knn": 0.5, "odin": 0.1},
        }
    },
}


def sources_of(run):
    """A source of the network, and one that uses another run's detections."""
    return [
        TimedSource(run, "rpn", "rpn", None),
        TimedSource(run, "more", "second_detector", "net"),
    ]


def run_with(gains):
    """A run with three methods and their gains."""
    names = ("knn", "odin", "confidence")
    sections = {"methods": {name: {} for name in names}, "gains": gains}
    return run_of({name: {} for name in names}, sections)


@pytest.fixture
def run():
    return run_with(GAINS)


@pytest.fixture
def write(run, tmp_path):
    """Writes the page with some times into a folder of its own, the one that it returns."""

    def to(name, times):
        artifacts = tmp_path / name
        for file, content in (("cost", COST), ("times", times)):
            write_json(artifacts / f"{file}.json", content)
        with Site(artifacts / "report") as site:
            costs = cost.write_costs(site, [run], artifacts, sources_of(run))
            site.write("deploy.html", **deploy.content([]), **costs, not_drawn="")
        return artifacts / "report"

    return to


def texts_of(row) -> list[str]:
    """The texts of a row of a listing."""
    return [text for text, _ in row]


def test_the_message_compares_the_best_methods_with_and_without_further_passes(run):
    message = cost.content([run], COST, TIMES)["passes"]
    assert (
        "the best method with further passes, ODIN, has an AUROC 3.0 points above "
        "the best without, kNN, at 90.1"
    ) in message


def test_the_page_begins_with_the_runs_where_methods_are_significantly_better(run):
    assert cost.content([run], COST, TIMES)["message"] == (
        "No method has a significantly higher AUROC than the detector's confidence: use the "
        "confidence, which costs nothing."
    )
    gains = {**GAINS["methods"], "knn": {"auroc": {**KNN_GAIN, "gain_interval": (0.01, 0.05)}}}
    better = run_with({"baseline": "confidence", "methods": gains})
    assert cost.content([better], COST, TIMES)["message"] == (
        "A significantly higher AUROC than the detector's confidence in every run that they apply "
        "to: kNN (1 run)."
    )
    cost_of_two = {**COST, "runs": {"net": COST["runs"]["net"], "two": COST["runs"]["net"]}}
    both = [replace(run, name="two", title="two"), better]
    assert cost.content(both, cost_of_two, TIMES)["message"] == (
        "A significantly higher AUROC than the detector's confidence in some runs only: "
        "kNN (1 of 2)."
    )


def test_the_first_table_has_costs_and_gains_over_the_runs_of_a_method(run):
    (knn, odin) = (texts_of(row) for row in cost.content([run], COST, TIMES)["overview"].rows)
    assert knn[:7] == ["kNN", "1", "—", "0.500", "5.2", "+2.0", "0 of 1"]
    assert odin[:7] == ["ODIN", "1", "perturbed", "90.1", "0.8", "+5.0", "0 of 1"]


def test_intervals_are_within_the_axis_and_charts_share_that_of_time(run):
    (chart,) = cost.content([run], COST, TIMES)["groups"]["AUROC"].charts
    _, intervals, points = chart.spec["layer"]
    low, high = intervals["encoding"]["y"]["scale"]["domain"]
    assert low < -1 < 5 < high
    assert points["encoding"]["y"]["title"] == "gain in AUROC (points)"
    assert points["encoding"]["x"]["scale"]["domain"] == [0.01, 100]


def test_the_chart_shows_gain_by_time_of_pass_and_scoring(run):
    (chart,) = cost.content([run], COST, TIMES)["groups"]["AUROC"].charts
    points = {row["method"]: row for row in chart.spec["data"]["values"]}
    odin = points["ODIN"]
    assert (odin["ms"], odin["gain"], odin["low"]) == (90.1, 5.0, None)
    assert (points["kNN"]["low"], points["kNN"]["high"]) == (-1.0, 5.0)
    assert points["Confidence"]["ms"] == cost.SHORTEST_MS
    assert "ODIN: +5.0 at 90.1 ms" in chart.description


def test_the_table_has_passes_times_bytes_and_gains(run):
    table = cost.content([run], COST, TIMES)["tables"]["net (voc)"]
    confidence, knn, odin = (texts_of(row) for row in table.rows)
    assert confidence[6] == "baseline"
    assert knn == ["kNN", "—", "0", "0", "0.500", "5.2", "+2.0 [-1.0, +5.0]", "—"]
    assert odin[:5] == ["ODIN", "perturbed", "1", "1", "90.1"]


def test_before_anything_is_measured_the_page_says_what_to_run(run):
    assert cost.content([run], {"images": 0, "runs": {}}, NO_TIMES)["tables"] == {}


IMPORTED = {
    **TIMES,
    "runs": {"net": {**TIMES["runs"]["net"], "detector": None, "passes": {"perturbed": None}}},
}


@pytest.mark.parametrize("times", [NO_TIMES, IMPORTED])
def test_without_times_there_is_a_table_but_no_chart(run, times):
    page = cost.content([run], COST, times)
    assert page["groups"] == {}
    _, _, odin = (texts_of(row) for row in page["tables"]["net (voc)"].rows)
    assert odin[:6] == ["ODIN", "perturbed", "1", "1", "—", "0.8"]


def contents(folder) -> dict[str, bytes]:
    """The files below a folder."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def test_times_change_no_file_but_the_one_that_is_not_shared(write):
    without = contents(write("without", NO_TIMES))
    timed = contents(write("with", TIMES))
    assert "detection takes 40.0 ms per image" in timed.pop("times.js").decode()
    assert timed == without
    assert "no times here" in without["deploy.html"].decode()


def test_the_page_of_proposals_has_what_each_source_adds(run, tmp_path):
    with Site(tmp_path / "report") as site:
        without = costs(site, sources_of(run), NO_TIMES)
        timed = costs(site, sources_of(run), TIMES)
    cells = re.findall(r"<td[^>]*>(?:<a.*?>)?(.*?)(?:</a>)?</td>", timed)
    # The network's own adds 10 ms to 40; a second detector, here of the same network, all of its
    # 40.
    assert cells[:5] == ["net (voc)", "rpn", "40.0", "10.0", "80.0"]
    assert cells[5:] == ["net (voc)", "more", "40.0", "40.0", "50.0"]
    assert "no times here" in without
    assert "no times here" not in timed


def test_a_page_shows_the_times_beside_it(write, tab, complaints):
    tab.goto((write("with", TIMES) / "deploy.html").as_uri())
    until(tab, "document.querySelector('.chart svg')")
    text = tab.evaluate("document.getElementById('costs').textContent")
    assert "detection takes 40.0 ms per image" in text
    assert "Some CPU" in text
    assert "no times here" not in text
    assert complaints() == []


def test_a_page_that_was_exchanged_since_does_not_show_the_times_of_the_earlier_one(write, tab):
    page = write("with", TIMES) / "deploy.html"
    page.write_text(re.sub('data-key="..', 'data-key="--', page.read_text()))
    tab.goto(page.as_uri())
    assert "no times here" in tab.evaluate("document.getElementById('costs').textContent")
