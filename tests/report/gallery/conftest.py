"""A run on three splits, small enough that what becomes of each object can be seen in the numbers below."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from farther.report.gallery import page
from farther.report.gallery.parameters import GallerySettings
from farther.report.results import Run, Split
from farther.report.site import Entry, Site
from farther.tables import Header, Images, Objects, Regions, Scores

SIZE = (64, 48)
LEFT, RIGHT, TOP = (4, 8, 28, 40), (36, 8, 60, 40), (30, 2, 40, 8)


@dataclass(frozen=True)
class Photo:
    """An image: objects are (category, box), detections (class, confidence, box, score of `one`, score of `two`)."""

    objects: tuple = ()
    detections: tuple = ()
    is_here: bool = True


#: Both methods flag scores below 0.
WILD = {
    "w1": Photo((("zebra", LEFT),), (("cat", 0.9, LEFT, -2, 3), ("dog", 0.6, TOP, -1, 2))),
    "w2": Photo((("zebra", LEFT), ("gnu", RIGHT)), (("cat", 0.7, LEFT, 1, -5), ("dog", 0.8, LEFT, 0.5, 4))),
    "w3": Photo((("gnu", RIGHT),)),
    "w4": Photo((), (("dog", 0.75, RIGHT, 2, 6),)),
}
TAME = {
    "<i>t1</i>": Photo((("<b>ox</b>", LEFT),), (("dog", 0.65, LEFT, -3, 1),)),
    "t2": Photo((("gnu", LEFT),), is_here=False),
}
#: More than the page draws at once.
MANY = {f"m{i:02}": Photo((("gnu", LEFT),), (("cat", 0.5 + i / 200, LEFT, i - 30, -1),)) for i in range(60)}
SPLITS = {"wild": WILD, "tame": TAME, "many": MANY}

CLASSES = ("cat", "dog")
METHODS = ("one", "two")


class Project:
    """Writes the tables of a run below a folder; `run` is what the report knows of it."""

    def __init__(self, root: Path):
        self.root, self.artifacts = root, root / "artifacts"
        self.roots = {"photos": root / "my photos"}
        splits = tuple(Split(name, "photos", "near") for name in SPLITS)
        figures = {(split, method): {} for split in SPLITS for method in METHODS}
        evaluation = {
            "threshold": 0.5,
            "settings": {"iou": 0.5, "protocol": "paper"},
            "methods": {method: {"tau": 0.0} for method in METHODS},
        }
        self.run = Run("net", "zoo", "yolo", "w", splits, METHODS, figures, {"threshold": 0.5}, evaluation)

    def make(self) -> None:
        for split, photos in SPLITS.items():
            self._write(split, photos)

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
        Images(image_id=names, dataset=["photos"] * n, file=files, width=width, height=height, digest=["0"] * n).write(
            folder / "images.parquet"
        )
        objects = [(name, *one) for name, photo in photos.items() for one in photo.objects]
        image_id, category, box = zip(*objects, strict=True)
        Objects(image_id=image_id, object_id=np.arange(len(box)), box=box, category=category).write(
            folder / "objects.parquet"
        )
        found = [(name, *one) for name, photo in photos.items() for one in photo.detections]
        image_id, label, score, box, *scores = zip(*found, strict=True)
        Regions(
            image_id=image_id,
            region_id=np.arange(len(box)),
            box=box,
            score=score,
            label=[CLASSES.index(name) for name in label],
            header=Header(classes=CLASSES),
        ).write(self.artifacts / "regions" / "net" / split)
        for method, values in zip(METHODS, scores, strict=True):
            table = Scores(image_id=image_id, region_id=np.arange(len(box)), score=np.array(values, dtype=float))
            table.write(self.artifacts / "scores" / "net" / method / f"{split}.parquet")

    def write_gallery(self, images: int = 5000) -> Path:
        """The page of a report that holds nothing else."""
        report = self.artifacts / "report"
        site = Site(report, [Entry(page.PAGE, "Gallery")])
        page.write(site, [self.run], self.artifacts, self.roots, GallerySettings(images=images), "one")
        return report / page.PAGE


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """To be read only."""
    made = Project(tmp_path_factory.mktemp("gallery"))
    made.make()
    return made


@pytest.fixture(scope="session")
def gallery(project: Project) -> Path:
    """The gallery's page; to be read only."""
    return project.write_gallery()
