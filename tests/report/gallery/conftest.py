"""A run on three splits, small enough that the outcome of each object can be worked out by hand."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.support.evaluations import evaluation_of

from farther.evaluation.recovery import RecoveredRun, SourceResults
from farther.evaluation.stored_results import StoredResults
from farther.report.gallery.outcomes import read_run_outcomes, read_run_summaries
from farther.report.pages.gallery import Gallery
from farther.report.results import OodTestSplit, Run
from farther.report.settings import GallerySettings
from farther.report.site import Site
from farther.tables import Header, Images, ObjectOutcomes, Objects, RegionOutcomes, Regions, Scores
from farther.tables.unknown_proposals import UnknownProposalTable

SIZE = (64, 48)
LEFT, RIGHT, TOP = (4, 8, 28, 40), (36, 8, 60, 40), (30, 2, 40, 8)


@dataclass(frozen=True)
class Thing:
    """An object: for each method its outcome, and the detection that decided it (−1 for none)."""

    category: str
    box: tuple
    one: tuple[str, int]
    two: tuple[str, int]


@dataclass(frozen=True)
class Detection:
    """A detection: for each method its score and its outcome. Both methods flag scores below 0."""

    label: str
    confidence: float
    box: tuple
    one: tuple[float, str]
    two: tuple[float, str]


@dataclass(frozen=True)
class Photo:
    things: tuple[Thing, ...] = ()
    detections: tuple[Detection, ...] = ()
    is_here: bool = True


MISSED = ("missed", -1)

WILD = {
    "w1": Photo(
        (Thing("zebra", LEFT, ("found", 0), ("misclassified", 0)),),
        (
            Detection("cat", 0.9, LEFT, (-2, "found"), (3, "misclassified")),
            Detection("dog", 0.6, TOP, (-1, "false_unknown"), (2, "known")),
        ),
    ),
    # Of the first zebra's two detections, `one` flags none: the more confident one decides. `two`
    # flags the other.
    "w2": Photo(
        (
            Thing("zebra", LEFT, ("misclassified", 1), ("found", 0)),
            Thing("gnu", RIGHT, MISSED, MISSED),
        ),
        (
            Detection("cat", 0.7, LEFT, (1, "misclassified"), (-5, "found")),
            Detection("dog", 0.8, LEFT, (0.5, "misclassified"), (4, "misclassified")),
        ),
    ),
    "w3": Photo((Thing("gnu", RIGHT, MISSED, MISSED),)),
    "w4": Photo((), (Detection("dog", 0.75, RIGHT, (2, "known"), (6, "known")),)),
}
TAME = {
    "<i>t1</i>": Photo(
        (Thing("<b>ox</b>", LEFT, ("found", 0), ("misclassified", 0)),),
        (Detection("dog", 0.65, LEFT, (-3, "found"), (1, "misclassified")),),
    ),
    "t2": Photo((Thing("gnu", LEFT, MISSED, MISSED),), is_here=False),
}
#: More than the page draws at once.
MANY = {
    f"m{i:02}": Photo(
        (Thing("gnu", LEFT, (outcome := "found" if i < 30 else "misclassified", 0), ("found", 0)),),
        (Detection("cat", 0.5 + i / 200, LEFT, (i - 30, outcome), (-1, "found")),),
    )
    for i in range(60)
}
SPLITS = {"wild": WILD, "tame": TAME, "many": MANY}
#: ID test images: of the cats of k1 one is correct and one a dog; in k2 `one` flags a cat, and a
#: place without an object; k3's dog is missed.
KNOWN = {
    "k1": Photo(
        (
            Thing("cat", LEFT, ("correct", 0), ("correct", 0)),
            Thing("cat", RIGHT, ("wrong_class", 1), ("wrong_class", 1)),
        ),
        (
            Detection("cat", 0.9, LEFT, (2, "known"), (3, "known")),
            Detection("dog", 0.8, RIGHT, (1, "known"), (2, "known")),
        ),
    ),
    "k2": Photo(
        (Thing("cat", LEFT, ("flagged", 0), ("correct", 0)),),
        (
            Detection("cat", 0.7, LEFT, (-1, "false_unknown"), (1, "known")),
            Detection("dog", 0.6, TOP, (-2, "false_unknown"), (1, "known")),
        ),
    ),
    "k3": Photo((Thing("dog", LEFT, MISSED, MISSED),)),
}

CLASSES = ("cat", "dog")
METHODS = ("one", "two")


class Project:
    """Writes the tables of a run below a folder; `run` is the run as the report reads it."""

    def __init__(self, root: Path):
        self.root, self.artifacts = root, root / "artifacts"
        self.roots = {"photos": root / "my photos"}
        splits = tuple(OodTestSplit(name, "photos", "near") for name in SPLITS)
        self.evaluation = evaluation_of(
            methods={method: {} for method in METHODS},
            splits={split.name: {} for split in splits},
        )
        results = StoredResults.of(self.evaluation)
        self.run = Run("net", "zoo", "yolo", "w", splits, results)

    def make(self) -> None:
        for split, photos in SPLITS.items():
            self._write(split, photos)

    def add_known(self) -> None:
        """Adds outcomes in the ID test split."""
        self._write("test", KNOWN)

    def _write(self, split: str, photos: dict[str, Photo]) -> None:
        names, n = list(photos), len(photos)
        files = [f"{split}/{place} #1%.png" for place in range(n)]
        for file, photo in zip(files, photos.values(), strict=True):
            path = self.roots["photos"] / file
            path.parent.mkdir(parents=True, exist_ok=True)
            if photo.is_here:
                Image.new("RGB", SIZE, (90, 140, 90)).save(path)
        folder = self.artifacts / "splits" / "zoo" / split
        width, height = ([side] * n for side in SIZE)
        Images(
            image_id=names,
            dataset=["photos"] * n,
            file=files,
            width=width,
            height=height,
            digest=["0"] * n,
        ).write(folder / "images.parquet")
        things = [(name, thing) for name, photo in photos.items() for thing in photo.things]
        found = [(name, one) for name, photo in photos.items() for one in photo.detections]
        object_image = [name for name, _ in things]
        numbers, categories = np.arange(len(things)), [thing.category for _, thing in things]
        Objects(
            image_id=object_image,
            object_id=numbers,
            box=[thing.box for _, thing in things],
            category=categories,
        ).write(folder / "objects.parquet")
        place = {"image_id": [name for name, _ in found], "region_id": np.arange(len(found))}
        Regions(
            **place,
            box=[one.box for _, one in found],
            score=[one.confidence for _, one in found],
            label=[CLASSES.index(one.label) for _, one in found],
            header=Header(classes=CLASSES),
        ).write(self.artifacts / "regions" / "net" / split)
        first = {name: place["image_id"].index(name) for name in place["image_id"]}
        for method in METHODS:
            scored = [getattr(one, method) for _, one in found]
            scores = Scores(**place, score=np.array([score for score, _ in scored], dtype=float))
            scores.write(self.artifacts / "scores" / "net" / method / f"{split}.parquet")
            folder = self.artifacts / "outcomes" / "net" / method
            folder.mkdir(parents=True, exist_ok=True)
            nothing = {"object_id": np.full(len(found), -1), "iou": np.zeros(len(found))}
            RegionOutcomes(**place, outcome=[outcome for _, outcome in scored], **nothing).write(
                folder / f"{split}.parquet"
            )
            decided = [(name, *getattr(thing, method)) for name, thing in things]
            ObjectOutcomes(
                image_id=object_image,
                object_id=numbers,
                category=categories,
                outcome=[outcome for _, outcome, _ in decided],
                region_id=[
                    -1 if detection < 0 else first[name] + detection
                    for name, _, detection in decided
                ],
            ).write(folder / f"{split}.objects.parquet")

    def call(self, *proposals: tuple[str, tuple, float, int]) -> None:
        """Gives the run a source of proposals.

        Args:
            proposals: Those that are called unknown in `wild`: image, box, objectness, object.
        """
        images, boxes, objectness, finds = zip(*proposals, strict=True)
        table = UnknownProposalTable(
            image_id=list(images), box=list(boxes), objectness=objectness, object_id=list(finds)
        )
        table.write(self.artifacts / "recovered/net/called/boxes/wild.parquet")
        source = SourceResults(
            kind="rpn", threshold=0.5, alarms=0.2, proposals=1, splits={}, distances={}
        )
        recovered = RecoveredRun(asked_alarms=0.2, iou=0.5, sources={"boxes": source})
        results = StoredResults.of(self.evaluation, recovered)
        self.run = replace(self.run, results=results)

    def add_swapped(self) -> Run:
        """Another run with the same detections, whose two methods have each other's outcomes."""
        for kind in ("regions", "scores", "outcomes"):
            shutil.copytree(self.artifacts / kind / "net", self.artifacts / kind / "swapped")
        for kind in ("scores", "outcomes"):
            folder = self.artifacts / kind / "swapped"
            (folder / "one").rename(folder / "other")
            (folder / "two").rename(folder / "one")
            (folder / "other").rename(folder / "two")
        return replace(self.run, name="swapped", title="swapped")

    def write_gallery(self, images: int = 5000, others: Sequence[Run] = ()) -> Path:
        """The page of a report that holds nothing else."""
        report = self.artifacts / "report"
        with Site(report) as site:
            gallery = Gallery(
                site, self.roots, self.artifacts.parent, GallerySettings(images=images)
            )
            for run in (self.run, *others):
                gallery.add(run, read_run_outcomes(run, self.artifacts))
                gallery.list_run(run, read_run_summaries(run, self.artifacts), "one")
            gallery.write()
        return report / "gallery.html"


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """To be read only."""
    made = Project(tmp_path_factory.mktemp("gallery"))
    made.make()
    return made


@pytest.fixture(scope="session")
def proposing(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The same with proposals, to be read only.

    The gnu of w2 is found by one, that of w3 by none.
    """
    made = Project(tmp_path_factory.mktemp("proposing"))
    made.make()
    made.call(("w1", TOP, 0.7, -1), ("w2", RIGHT, 0.9, 2))
    return made


@pytest.fixture(scope="session")
def with_known(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The same with outcomes in the ID test split, to be read only."""
    made = Project(tmp_path_factory.mktemp("known"))
    made.make()
    made.add_known()
    return made


@pytest.fixture(scope="session")
def gallery(project: Project) -> Path:
    """The gallery's page; to be read only."""
    return project.write_gallery()
