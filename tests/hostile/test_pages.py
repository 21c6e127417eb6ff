"""Pages in a browser show names, labels, paths and notes as written, and execute none of them."""

import copy
import json
import threading
from typing import ClassVar

import numpy as np
import pytest
import yaml
from PIL import Image
from tests.disturbed.damage.values import OBEYED as TEXTS
from tests.evaluation.evaluated_runs import write_split
from tests.monitor.predict.test_drift import clustered, feed, rates
from tests.report.conftest import PARAMS, SUBSETS, Project
from tests.report.test_leaderboard import BEST
from tests.review.conftest import seen
from tests.support.labelled import labelled, write_tables
from tests.support.pages import until

from farther.detectors.proposal_sources import read_sources
from farther.evaluation.files import RunFiles
from farther.evaluation.recovery import evaluate_proposals
from farther.evaluation.results import write_results
from farther.evaluation.settings import EvaluationSettings, ProposalSettings
from farther.monitor.drift import Drift
from farther.monitor.drift_page import write_drift
from farther.report import build
from farther.report.leaderboard import StoredRun, write_leaderboard
from farther.review import ReviewSettings
from farther.review.serve import make_server
from farther.tables import Objects
from farther.tables.documents import write_json
from farther.text.printable import printable

pytestmark = pytest.mark.slow

NAMES = tuple(TEXTS.values())
SHOWN = tuple(map(printable, NAMES))
#: All in one, without the long one.
JOINED = "; ".join(name for name in NAMES if len(name) < 999)

#: What a page shows: its text, and what is read aloud of it or appears below the pointer.
WORDS = (
    "[document.documentElement.textContent, "
    '...[...document.querySelectorAll("*")].flatMap((one) =>\n'
    '  ["aria-label", "title", "alt", "value", "placeholder"]'
    '.map((name) => one.getAttribute(name) ?? ""))].join("\\n")'
)
DRAWN = (
    "[...document.querySelectorAll('.chart')].every((one) => "
    "one.offsetParent === null || one.querySelector('svg'))"
)


@pytest.fixture
def watched(tab, complaints):
    """A page of which all requests and dialogs are recorded."""
    page = Watched(tab, complaints)
    yield page
    page.assert_quiet()


class Watched:
    """A page, with what it asked for.

    Args:
        tab: The page.
        complaints: What it complained about.

    Attributes:
        home: Where its files may come from.
    """

    def __init__(self, tab, complaints):
        self.tab = tab
        self.home = "file://"
        self._complaints = complaints
        self._addresses: list[str] = []
        self._dialogs: list[str] = []
        tab.on("request", lambda request: self._addresses.append(request.url))
        tab.on("dialog", self._close)

    def _close(self, dialog) -> None:
        self._dialogs.append(dialog.message)
        dialog.dismiss()

    def assert_quiet(self) -> None:
        """Checks that no dialog opened, no script of a text ran, and nothing came from elsewhere.

        The browser must not complain either, not even of the page's content policy.
        """
        assert self.tab.evaluate("window.ran") is None
        assert self._dialogs == []
        expected = (self.home, "data:", "blob:")
        assert [url for url in self._addresses if not url.startswith(expected)] == []
        assert self._complaints() == []
        handlers = (
            "[...document.querySelectorAll('*')].some((one) => "
            "one.getAttributeNames().some((name) => /^on/.test(name)))"
        )
        assert not self.tab.evaluate(handlers)
        links = "[...document.querySelectorAll('a')].map((one) => one.protocol)"
        assert {*self.tab.evaluate(links)} <= {"file:", "https:", "http:"}
        assert self.tab.evaluate("document.documentElement.scrollWidth") <= 1280


class Hostile(Project):
    """ID classes, categories and images have these names."""

    classes = NAMES
    photos: ClassVar = {
        **{
            f"n{name}": (f"{name}?", None if place % 3 else 0.7)
            for place, name in enumerate(NAMES[::2])
        },
        **{
            f"f{name}": (f"{name}?", None if place % 3 else 0.65)
            for place, name in enumerate(NAMES[1::2])
        },
    }
    rules = yaml.safe_dump(
        {
            "id_classes": {name: {"photos": [f"ID {name}"]} for name in NAMES},
            "protocols": {
                "paper": {
                    "overlap": {},
                    "near": {"photos": {NAMES[0]: [f"{name}?" for name in NAMES[::2]]}},
                }
            },
        }
    )

    def stem(self, image):
        return str([*self.photos].index(image)) if image in self.photos else image


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    root = tmp_path_factory.mktemp("hostile")
    Hostile(root).make()
    params = copy.deepcopy(PARAMS)
    params["detectors"]["pets-net"]["title"] = JOINED
    write_json(
        root / "artifacts/tables/photos/warnings.json", {"counts": {JOINED: 1}, "warnings": []}
    )
    build(params, root)
    return root / "artifacts/report"


def test_pages_of_a_report(watched, report):
    shown = {}
    for page in sorted(report.rglob("*.html")):
        watched.tab.goto(page.as_uri())
        watched.tab.evaluate(
            "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
        )
        until(watched.tab, DRAWN)
        shown[page.relative_to(report).as_posix()] = watched.tab.evaluate(WORDS)
        watched.assert_quiet()
    assert len(shown) > 6
    assert not [name for name in SHOWN if name not in shown["detectors/pets-net.html"]]
    assert printable(JOINED) in shown["index.html"]


def test_the_gallery(watched, report):
    watched.tab.goto((report / "gallery.html").as_uri())
    status = "document.getElementById('status').textContent"
    until(watched.tab, f"/images?\\.|No image/.test({status})")
    split = "const one = document.getElementById('split'); one.value = '';"
    watched.tab.evaluate(f"{split} one.dispatchEvent(new Event('change', {{ bubbles: true }})); 0")
    until(watched.tab, f"{status}.includes('in {len(NAMES)} images')")

    watched.tab.evaluate("document.querySelector('#cards button, #cards [tabindex]').click(); 0")
    words = ""
    for _ in NAMES:
        words += watched.tab.evaluate(WORDS)
        watched.tab.evaluate("document.getElementById('next').click(); 0")
    assert not [name for name in SHOWN if f"n{name}" not in words and f"f{name}" not in words]
    options = watched.tab.evaluate(
        "[...document.getElementById('category').options].map((one) => one.value)"
    )
    assert {*options} >= {f"{name}?" for name in SHOWN}


@pytest.mark.parametrize("name", [JOINED, TEXTS["long"]])
def test_the_page_of_drift(watched, tmp_path, name):
    random = np.random.default_rng(2)
    drift = Drift(rates(*clustered(random, 250)), window=50)
    feed(drift, *clustered(random, 100, share=0.5))
    write_drift(drift, tmp_path, name)
    watched.tab.goto((tmp_path / "drift/index.html").as_uri())
    until(watched.tab, DRAWN)
    assert f"Drift of {printable(name)}" in watched.tab.evaluate(WORDS)


def test_the_page_of_a_leaderboard(watched, tmp_path):
    def run(name, **inputs):
        about = dict.fromkeys(
            ("project", "commit", "date", "version", "run", "title", "checkpoint", "code"), name
        )
        values = {(name, name): BEST}
        return StoredRun(
            **about, benchmark=f"of {name}", inputs={"splits": name, **inputs}, values=values
        )

    write_leaderboard([run(name) for name in NAMES], tmp_path / "out")
    watched.tab.goto((tmp_path / "out/index.html").as_uri())
    words = watched.tab.evaluate(WORDS)
    assert not [name for name in SHOWN if name not in words or f"of {name}" not in words]


@pytest.fixture
def reviewed(tmp_path):
    """A project to review: OOD images, and ID images with a proposal on no detection."""
    names = {name: [name] for name in NAMES}
    tables = tmp_path / "artifacts/tables"
    for dataset, subset, shown in (
        ("photos", "val", names),
        *(("pets", kind, {kind: NAMES}) for kind in SUBSETS),
    ):
        images = {
            "file": [f"{place}.png" for place in range(len(shown))],
            "width": [64] * len(shown),
        }
        write_tables(
            tables / dataset / subset, labelled(dataset, shown, **images, digest=["0"] * len(shown))
        )
        write_json(tables / dataset / "categories.json", {"categories": sorted(NAMES)})
    (tmp_path / "photos").mkdir()
    for place in range(len(NAMES)):
        Image.new("RGB", (64, 9)).save(tmp_path / f"photos/{place}.png")
    id_classes = {name: {"photos": [f"ID {name}"]} for name in NAMES}
    rules = {
        "id_classes": id_classes,
        "protocols": {"paper": {"overlap": {"photos": {}}, "near": {"photos": {}}}},
    }
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    far = {"far": {"dataset": "photos", "subset": "val", "distance": "far"}}
    files = RunFiles("small", "tiny", tmp_path / "artifacts")
    objects = Objects(
        image_id=NAMES,
        object_id=range(len(NAMES)),
        box=[[0, 0, 50, 50]] * len(NAMES),
        category=NAMES,
    )
    for split in ("val", "test", "far"):
        found = [(name, [0, 0, 50, 50], 0.9, place) for place, name in enumerate(NAMES)]
        write_split(files, split, objects, seen(*found, classes=NAMES))
        proposed = [(name, [100, 0, 160, 60], 0.9, 0) for name in NAMES]
        seen(*proposed).write(files.proposals("anchors", split))
    write_json(files.threshold, {"threshold": 0.5})
    write_json(
        tmp_path / "artifacts/splits/tiny/roles.json", {"test": ["far"], "distance": {"far": "far"}}
    )
    settings = EvaluationSettings(replicates=0, proposals=ProposalSettings(alarms=2, rates=(0.5,)))
    write_results(
        files.recovered, evaluate_proposals(files, read_sources("small", {"anchors": {}}), settings)
    )
    return tmp_path, {
        "datasets": {"photos": {"format": "coco", "root": "photos"}},
        "benchmarks": {
            "tiny": {"id": "pets", "rules": str(tmp_path / "rules.yaml"), "splits": far}
        },
        "detectors": {"small": {"benchmark": "tiny", "proposals": {"anchors": {}}}},
    }


NAME = "document.getElementById('name').textContent"


def click(button):
    """Clicks a button, which does nothing while the page waits for an answer; false."""
    return f"(document.querySelector('[data-do={button}]').click(), false)"


@pytest.mark.parametrize("suspects", [False, True])
def test_the_page_of_a_review(watched, reviewed, suspects, complaints):
    root, params = reviewed
    names = NAMES * (1 + suspects)  # of splits val and test
    # Images that are not here, decisions that are refused.
    complaints.expect("/picture/", "api/decide")
    tab = watched.tab
    status, words, said = "document.getElementById('status').textContent", "", []
    with make_server(
        "tiny", params, ReviewSettings(reviewer="ann", suspects=suspects), root
    ) as server:
        thread = threading.Thread(target=server.run)
        thread.start()
        watched.home = server.address
        tab.goto(server.address)
        until(tab, f"{NAME} !== ''")
        for name in names:
            words += tab.evaluate(WORDS)
            shown = tab.evaluate(NAME)
            tab.evaluate(
                f"{status} = ''; document.getElementById('note').value = {json.dumps(name)}; 0"
            )
            until(tab, f"{status} !== '' || {click('keep')}")
            said.append(tab.evaluate(status))
            until(
                tab,
                f"{NAME} !== {json.dumps(shown)} || {click('next')} || /last image/.test({status})",
            )
        watched.assert_quiet()
        server.stop()
        thread.join()
    assert not [name for name in SHOWN if name not in words]
    saved = "\n".join(said)
    assert saved.count("Saved: keep (") > len(names) / 2
    assert saved.count("Saved") + saved.count("expected text in one line") == len(names)
