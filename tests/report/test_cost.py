"""The page of cost and quality."""

import re

import pytest
from tests.report.conftest import run_of

from farther.report.pages import cost
from farther.report.pages.proposals import TimedSource, costs
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
COST = {
    "images": 4,
    "runs": {
        "net": {
            "passes": {"perturbed": {"forward": 1, "backward": 1}},
            "methods": {
                "confidence": {"pass": None, "bytes": 40.0},
                "knn": {"pass": None, "bytes": 5200.0},
                "odin": {"pass": "perturbed", "bytes": 800.0},
            },
        }
    },
}
#: A source of the network, and one that takes another run's detections.
SOURCES = lambda run: [
    TimedSource(run, "rpn", "rpn", None),
    TimedSource(run, "more", "second_detector", "net"),
]  # noqa: E731
NO_TIMES = {"machine": None, "runs": {}}
TIMES = {
    "machine": {"processor": "Some CPU", "gpu": None},
    "runs": {
        "net": {
            "key": "",
            "detector": 40.0,
            "passes": {"perturbed": 90.0},
            "proposals": {"rpn": 10.0},
            "methods": {"confidence": 0.0, "knn": 0.5, "odin": 0.1},
        }
    },
}


@pytest.fixture
def run():
    return run_of({"knn": {}, "odin": {}, "confidence": {}}, {"gains": GAINS})


@pytest.fixture
def write(run, tmp_path):
    """Writes the page with some times into a folder of its own, the one that it returns."""

    def to(name, times):
        artifacts = tmp_path / name
        for file, content in (("cost", COST), ("times", times)):
            write_json(artifacts / f"{file}.json", content)
        with Site(artifacts / "report") as site:
            cost.write_costs(site, [run], artifacts, SOURCES(run))
        return artifacts / "report"

    return to


def test_the_message_compares_the_best_methods_with_and_without_further_passes(run):
    said = "the best method with further passes, odin, has an AUROC 3.0 points above the best without, kNN, at 90.1"
    assert said in cost.content([run], COST, TIMES)["message"]


def test_the_chart_shows_gain_by_time_of_pass_and_scoring(run):
    (chart,) = cost.content([run], COST, TIMES)["groups"]["AUROC"].charts
    points = {row["method"]: row for row in chart.spec["data"]["values"]}
    assert (points["odin"]["ms"], points["odin"]["gain"], points["odin"]["low"]) == (
        90.1,
        0.05,
        None,
    )
    assert (points["kNN"]["low"], points["kNN"]["high"]) == (-0.01, 0.05)
    assert points["Confidence"]["ms"] == cost.SHORTEST_MS
    assert "odin: +5.0 at 90.1 ms" in chart.description


def test_the_table_has_passes_times_bytes_and_gains(run):
    table = cost.content([run], COST, TIMES)["tables"]["net (voc)"]
    confidence, knn, odin = ([text for text, _ in row] for row in table.rows)
    assert confidence[6] == "baseline"
    assert knn == ["kNN", "—", "0", "0", "0.500", "5.2", "+2.0 (-1.0 to +5.0)", "—"]
    assert odin[:5] == ["odin", "perturbed", "1", "1", "90.1"]


def test_before_anything_is_measured_the_page_says_what_to_run(run):
    assert cost.content([run], {"images": 0, "runs": {}}, NO_TIMES)["tables"] == {}


IMPORTED = {
    **TIMES,
    "runs": {"net": {**TIMES["runs"]["net"], "detector": None, "passes": {"perturbed": None}}},
}


@pytest.mark.parametrize("times", [NO_TIMES, IMPORTED])
def test_without_times_there_is_a_table_but_no_chart(run, times):
    found = cost.content([run], COST, times)
    assert found["groups"] == {}
    odin = [text for text, _ in list(found["tables"]["net (voc)"].rows)[2]]
    assert odin[:6] == ["odin", "perturbed", "1", "1", "—", "0.8"]


def test_times_change_no_file_but_the_one_that_is_not_shared(write):
    folders = [write(name, times) for name, times in (("without", NO_TIMES), ("with", TIMES))]
    without, timed = (
        {
            file.relative_to(folder).as_posix(): file.read_bytes()
            for file in folder.rglob("*")
            if file.is_file()
        }
        for folder in folders
    )
    assert "detection takes 40.0 ms per image" in timed.pop("times.js").decode()
    assert timed == without
    assert "no times here" in without["cost.html"].decode()


def test_the_page_of_proposals_has_what_each_source_adds(run, tmp_path):
    with Site(tmp_path / "report") as site:
        without, timed = (costs(site, SOURCES(run), some) for some in (NO_TIMES, TIMES))
    cells = re.findall(r"<td[^>]*>(?:<a.*?>)?(.*?)(?:</a>)?</td>", timed)
    # The network's own adds 10 ms to 40; a second detector, here of the same network, all of its
    # 40.
    assert cells == [
        "net (voc)",
        "rpn",
        "40.0",
        "10.0",
        "80.0",
        "net (voc)",
        "more",
        "40.0",
        "40.0",
        "50.0",
    ]
    assert "no times here" in without
    assert "no times here" not in timed


def test_a_page_shows_the_times_beside_it(write, browser):
    browser.open((write("with", TIMES) / "cost.html").as_uri())
    browser.until("document.querySelector('.chart svg')")
    text = browser.read("document.getElementById('costs').innerText")
    assert (
        "detection takes 40.0 ms per image" in text
        and "Some CPU" in text
        and "no times here" not in text
    )
    assert browser.complaints() == []


def test_a_page_that_was_exchanged_since_does_not_show_the_times_of_the_earlier_one(write, browser):
    page = write("with", TIMES) / "cost.html"
    page.write_text(re.sub('data-key="..', 'data-key="--', page.read_text()))
    browser.open(page.as_uri())
    assert "no times here" in browser.read("document.getElementById('costs').innerText")
