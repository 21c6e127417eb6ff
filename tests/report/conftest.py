"""A project in miniature: 1 run, 2 OOD splits, 3 methods.

It is made by the same functions that the pipeline calls.

The detector's output is written down here, so that every value of the report can be worked out by
hand.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import Image
from tests.support.evaluations import evaluation_of, recovered_run, stored_results
from tests.support.shared import once

from farther import curation
from farther.evaluation.deploy.choose import write_choice
from farther.evaluation.deploy.results import Budget
from farther.evaluation.evaluate import EvaluationCode, evaluate_run
from farther.evaluation.files import Roles, RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.recovery import RecoveredRun
from farther.evaluation.results import Evaluation
from farther.evaluation.settings import EvaluationSettings
from farther.evaluation.write import write_values
from farther.report import build
from farther.report.kinds import POST_HOC
from farther.report.papers.layout import PAPERS
from farther.report.results import OodTestSplit, Run
from farther.scoring.entries import read_entry
from farther.scoring.fit import fit_run
from farther.scoring.inputs import RunRegions, TauSettings
from farther.scoring.score import score_run
from farther.tables import Header, Images, Objects, Regions
from farther.tables.documents import read_json, write_json
from farther.tables.files import digest

RULES = """
id_classes: {cat: {photos: [Cat]}, dog: {photos: [Dog]}}
protocols: {paper: {overlap: {}, near: {photos: {cat: [Lynx]}}}}
"""

PARAMS: dict[str, Any] = {
    "datasets": {
        "pets": {"format": "coco", "root": "pets"},
        "photos": {"format": "coco", "root": "photos"},
    },
    "benchmarks": {
        "pets": {
            "id": "pets",
            "rules": "rules.yaml",
            "splits": {
                "photos_far": {"dataset": "photos", "subset": "val", "distance": "far"},
                "photos_near": {"dataset": "photos", "subset": "val", "distance": "near"},
            },
        }
    },
    "detectors": {
        "pets-net": {"adapter": "faster_rcnn", "benchmark": "pets", "weights": "pets.safetensors"},
        "pets-later": {"adapter": "yolo", "benchmark": "pets", "weights": "later.safetensors"},
    },
    "methods": {"msp": {}, "energy": {}, "knn": {"k": 1}, "lard_knn": {}},
    "report": {"examples": 3, "method": "msp", "few": 0},
}

#: What each photo shows, and the detector's softmax probability for what it found there (None:
#: nothing).
PHOTOS = {
    "n1": ("Lynx", 0.70),  # below every ID detection: flagged as unknown
    "n2": ("Lynx", 0.995),  # above them: taken as a cat
    "n3": ("Lynx", None),
    "n4": ("Lynx", None),
    "f1": ("<b>Kite</b>", 0.65),
    "f2": ("<b>Kite</b>", None),
    "c1": ("Cat", None),  # an ID class: removed
}

SIZE = (64, 48)
BOX = (8, 8, 40, 40)


VOID = {"meta", "link", "input", "img", "br", "hr"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    text: str = ""
    inside: tuple[str, ...] = ()


class Page(HTMLParser):
    """All elements of a page, in order; refuses elements that are closed in the wrong order."""

    def __init__(self, file: Path):
        super().__init__(convert_charrefs=True)
        self.source = file.read_text(encoding="utf-8")
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(self.source)
        assert not self._open, f"never closed: {[e.tag for e in self._open]}"

    def handle_starttag(self, tag, attributes):
        element = Element(tag, dict(attributes), inside=tuple(e.tag for e in self._open))
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag, attributes):
        self.elements.append(Element(tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
        self._open.pop()
        for element in self._open:
            element.text += " " * (tag in ("td", "th"))

    def handle_data(self, data):
        for element in self._open:
            element.text += data

    def all(self, tag: str) -> list[Element]:
        return [element for element in self.elements if element.tag == tag]

    def texts(self, tag: str) -> list[str]:
        """The text of each of these elements, in single spaces."""
        return [" ".join(element.text.split()) for element in self.all(tag)]

    def charts(self) -> dict[str, dict[str, Any]]:
        """The specification of each chart."""
        specs = {}
        for element in self.all("script"):
            if element.attributes.get("type") == "application/json":
                spec = json.loads(element.text)
                if "usermeta" in spec:
                    specs[str(element.attributes["id"])] = spec
        return specs


class Project:
    """Writes the project's files below a folder."""

    #: Shifted splits, and the confidence of what is detected in their images.
    shifted: ClassVar[dict[str, Any]] = {}
    detected: ClassVar[dict[str, dict[str, float]]] = {}
    #: ID classes, what each photo shows and how sure the detector is, and the rules.
    classes: tuple[str, ...] = ("cat", "dog")
    photos: ClassVar[dict[str, tuple[str, float | None]]] = PHOTOS
    rules = RULES

    def __init__(self, root: Path) -> None:
        self.root = root
        self.artifacts = root / "artifacts"

    def make(self) -> None:
        (self.root / "rules.yaml").write_text(self.rules)
        for subset in SUBSETS:
            names = [f"{subset}{i}" for i in range(20)]
            categories = [self.classes[i % len(self.classes)] for i in range(20)]
            self._ingest("pets", subset, dict(zip(names, categories, strict=True)))
        self._ingest(
            "photos", "val", {name: category for name, (category, _) in self.photos.items()}
        )
        self._curate()
        for subset in SUBSETS:
            self._detect(subset, {f"{subset}{i}": 0.90 + 0.004 * i for i in range(20)})
        self._detect("photos_near", self._detected_photos("n"))
        self._detect("photos_far", self._detected_photos("f"))
        for split, confidence in self.detected.items():
            self._detect(split, confidence)
        self._evaluate()

    def _detected_photos(self, start: str) -> dict[str, float]:
        """Photos whose names start with a letter and that show a detection → its confidence."""
        confidence = {}
        for name, (_, probability) in self.photos.items():
            if name.startswith(start) and probability:
                confidence[name] = probability
        return confidence

    def _ingest(self, dataset: str, subset: str, category_of: dict[str, str]) -> None:
        """Writes images and tables of a subset, one object per image."""
        names = list(category_of)
        n = len(names)
        files = [self.root / dataset / f"{self.stem(name)}.jpg" for name in names]
        for place, file in enumerate(files):
            file.parent.mkdir(exist_ok=True)
            Image.new("RGB", SIZE, (40 + 7 * place, 120, 90)).save(file)
        images = Images(
            image_id=names,
            dataset=[dataset] * n,
            file=[file.name for file in files],
            width=[SIZE[0]] * n,
            height=[SIZE[1]] * n,
            digest=[digest(file) for file in files],
        )
        objects = Objects(
            image_id=names,
            object_id=np.arange(n),
            box=[BOX] * n,
            category=list(category_of.values()),
        )
        categories = sorted(set(category_of.values()))
        folder = self.artifacts / "tables" / dataset
        images.write(folder / subset / "images.parquet")
        objects.write(folder / subset / "objects.parquet")
        write_json(folder / "categories.json", {"categories": categories, "parents": {}})
        file = self.artifacts / "counts" / "ingest" / f"{dataset}.json"
        counts_by_subset = read_json(file) if file.exists() else {}
        counts_by_subset[subset] = {
            "images": n,
            "objects": n,
            "categories": len(categories),
            "warnings": 0,
        }
        write_json(file, counts_by_subset)

    def stem(self, image: str) -> str:
        """What the file of an image is called."""
        return image

    @property
    def benchmark(self) -> curation.Benchmark:
        params = {
            **PARAMS["benchmarks"]["pets"],
            "rules": self.root / "rules.yaml",
            "shifted": self.shifted,
        }
        return curation.benchmark("pets", params)

    def _curate(self) -> None:
        tables = curation.TablesFolder(self.artifacts / "tables")
        curated = curation.curate(self.benchmark, tables)
        curated.write(self.artifacts / "splits" / "pets")
        write_json(self.artifacts / "counts" / "curate" / "pets.json", curated.counts())

    def _detect(self, split: str, confidence: dict[str, float]) -> None:
        """Writes one region per image; its label is the image's class, the first one for photos."""
        n = len(confidence)
        p = np.array(list(confidence.values()))
        known = len(self.classes)
        label = np.zeros(n, int)
        if split in SUBSETS:
            label = np.arange(n) % known
        log_p = np.log(p)[:, None]
        log_p_of_others = (np.log1p(-p) - np.log(known - 1))[:, None]
        logits = np.where(label[:, None] == np.arange(known), log_p, log_p_of_others)
        Regions(
            image_id=list(confidence),
            region_id=np.arange(n),
            box=np.tile(BOX, (n, 1)),
            score=p,
            label=label,
            logits=logits,
            features=np.stack([p, label, np.ones(n)], axis=1),
            header=Header(
                classes=self.classes, detector={"name": "faster_rcnn", "weights_digest": "abc123"}
            ),
        ).write(self.artifacts / "regions" / "pets-net" / split)

    def _evaluate(self) -> None:
        write_json(
            self.artifacts / "thresholds" / "pets-net.json", {"threshold": 0.5, "rule": "fixed"}
        )
        regions = self.artifacts / "regions" / "pets-net"
        entries = [read_entry(method, params) for method, params in PARAMS["methods"].items()]
        code = dict.fromkeys(PARAMS["methods"], "")
        fitted = self.artifacts / "fitted" / "pets-net"
        scores = self.artifacts / "scores" / "pets-net"
        fit_run(entries, RunRegions(regions, operating=0.5), fitted, code)
        score_run(regions, self.artifacts / "passes/pets-net", fitted, scores, lambda method: "")
        settings = EvaluationSettings(replicates=100)
        inputs = RunInputs(
            RunFiles("pets-net", "pets", self.artifacts), Roles(**self.benchmark.roles()), settings
        )
        evaluation, _ = evaluate_run(inputs, TauSettings(), EvaluationCode(""))
        (self.root / EVALUATION).write_text(evaluation.model_dump_json())
        write_choice(inputs, Budget(max_false_alarms=0.5, max_misclassified=0.1))


SUBSETS = ("train", "val", "test")

#: The file of a project with what the evaluation of `pets-net` gave.
EVALUATION = "evaluation.json"


def run_of(
    results: dict[str, dict[str, float | None]],
    sections: dict[str, Any] | None = None,
    detector: dict[str, float | None] | None = None,
) -> Run:
    """A run on one split, `coco_near` of benchmark `voc`.

    Args:
        detector: Metrics of the detector itself.
        results: Metrics by method.
        sections: Of its evaluation, see `evaluation_of`; None where that is not on this machine.
    """
    evaluation = None
    if sections is not None:
        evaluation = evaluation_of(**sections)
    splits = (OodTestSplit("coco_near", "coco", "near"),)
    values = {("coco_near", method): metrics for method, metrics in results.items()}
    stored = stored_results(values, evaluation, detector=detector or {})
    return Run(
        "net", "voc", "faster_rcnn", "w", splits, stored, kinds=dict.fromkeys(results, POST_HOC)
    )


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a project that was evaluated; to be read only."""
    with once(tmp_path_factory, "report-evaluated") as (root, is_empty):
        if is_empty:
            root.mkdir()
            Project(root).make()
    return root


#: Folders of results that each run has.
RESULTS = ("evaluation", "metrics", "outcomes", "regions", "scores")


def copy_run(root: Path, run: str = "pets-later") -> None:
    """Gives a run the results of `pets-net`."""
    artifacts = root / "artifacts"
    for name in RESULTS:
        shutil.copytree(artifacts / name / "pets-net", artifacts / name / run)
    for file in artifacts.glob("plots/*/pets-net.csv"):
        shutil.copy(file, file.with_name(f"{run}.csv"))
    write_evaluation(root, evaluation_in(root, run))


def evaluation_in(root: Path, run: str = "pets-net") -> Evaluation:
    """What the evaluation of `pets-net` in a project gave, as that of a run."""
    evaluation = Evaluation.model_validate_json((root / EVALUATION).read_text())
    return evaluation.model_copy(update={"run": run})


def write_evaluation(
    root: Path, evaluation: Evaluation, recovered: RecoveredRun | None = None
) -> None:
    """Writes the results of a run: its evaluation, and those of its proposals."""
    files = RunFiles(evaluation.run, evaluation.benchmark, root / "artifacts")
    write_values(files, evaluation, recovered)


def add_proposals(root: Path) -> None:
    """Gives `pets-later` results of proposals."""
    write_evaluation(root, evaluation_in(root, "pets-later"), recovered_run())


class WithCats(Project):
    """The photos of cats are a shifted split; one cat is detected."""

    shifted: ClassVar = {
        "cats": {"dataset": "photos", "subset": "val", "severity": 1, "classes": "by rules"}
    }
    detected: ClassVar = {"cats": {"c1": 0.92}}


@pytest.fixture(scope="session")
def with_cats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a project with a shifted split that is made by the rules; to be read only."""
    with once(tmp_path_factory, "report-with-cats") as (root, is_empty):
        if is_empty:
            root.mkdir()
            WithCats(root).make()
    return root


@pytest.fixture(scope="session")
def built(evaluated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a project whose report was built; to be read only."""
    with once(tmp_path_factory, "report-built") as (root, is_empty):
        if is_empty:
            shutil.copytree(evaluated, root)
            build(PARAMS, root)
    return root


@pytest.fixture(scope="session")
def read() -> Callable[[Path], Page]:
    """Reads a page."""
    return Page


@pytest.fixture(scope="session")
def report(built: Path) -> Path:
    """The report's folder; to be read only."""
    return built / "artifacts" / "report"


@pytest.fixture(scope="session")
def built_twice(evaluated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a project whose report has all pages; to be read only.

    Two runs are evaluated, one of them has proposals, and section `report` names all papers.
    """
    with once(tmp_path_factory, "report-built-twice") as (root, is_empty):
        if is_empty:
            shutil.copytree(evaluated, root)
            copy_run(root)
            add_proposals(root)
            papers = list(PAPERS)
            build({**PARAMS, "report": {**PARAMS["report"], "papers": papers}}, root)
    return root


@pytest.fixture(scope="session")
def report_of_two(built_twice: Path) -> Path:
    """The folder of the report of two runs; to be read only."""
    return built_twice / "artifacts" / "report"


@pytest.fixture
def params() -> dict[str, Any]:
    """What the project's params.yaml holds."""
    return copy.deepcopy(PARAMS)


@pytest.fixture
def make_run() -> Callable[..., Run]:
    """Makes a run on one split; see `run_of`."""
    return run_of


@pytest.fixture
def seed_runs(make_run: Callable[..., Run]) -> list[Run]:
    """Two seeds of `net` with accuracies 0.8 and 0.9, and another run."""
    first = {"msp": {"auroc": 0.8, "fpr95": 0.5}, "knn": {"auroc": 0.7, "fpr95": None}}
    second = {"msp": {"auroc": 0.9, "fpr95": 0.3}, "knn": {"auroc": 0.95, "fpr95": 0.2}}
    return [
        replace(make_run(first, detector={"accuracy": 0.8}), name="net-1"),
        replace(make_run(second, detector={"accuracy": 0.9}), name="net-2"),
        replace(make_run(first, detector={"accuracy": 0.5}), name="other"),
    ]
