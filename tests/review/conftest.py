"""A project small enough to check by hand.

It has six photos, a detector that saw two of them, and two reviewers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from tests.support.labelled import labelled, write_tables

from farther.curation import DecisionsFile, benchmark
from farther.review import Catalogue, ReviewServer, Session, label_checker_for
from farther.tables import Regions
from farther.tables.documents import write_json
from farther.tables.files import digest

ROOT = Path(__file__).parents[2]

RULES = """
id_classes: {cat: {photos: [Cat]}, dog: {photos: [Dog]}, person: {photos: [Person]}}
protocols: {paper: {overlap: {photos: {}}, near: {photos: {dog: [Fox]}}}}
"""

#: What each photo shows. The detector sees a cat and a dog that nobody labelled in `e`, and takes
#: `d`'s fox for a dog.
PHOTOS = {"a": ["Cat"], "b": ["Fox"], "c": ["Kite"], "d": ["Fox"], "e": ["Kite"], "f": []}

BOX = [10, 10, 40, 30]

PARAMS: dict[str, Any] = {
    "datasets": {"photos": {"format": "coco", "root": "photos"}},
    "benchmarks": {
        "tiny": {
            "id": "pets",
            "rules": "rules.yaml",
            "splits": {
                "photos_near": {"dataset": "photos", "subset": "val", "distance": "near"},
                "photos_far": {"dataset": "photos", "subset": "val", "distance": "far"},
            },
        }
    },
    "detectors": {"small": {"benchmark": "tiny"}},
}


def write_subset(folder: Path, dataset: str, shown: dict[str, list[str]]) -> None:
    n, objects = len(shown), [category for categories in shown.values() for category in categories]
    columns = {"file": [f"{image}.png" for image in shown], "width": [64] * n, "height": [48] * n}
    source = labelled(dataset, shown, **columns, digest=[digest(image) for image in shown])
    source.objects = source.objects.with_columns(box=np.tile(BOX, (len(objects), 1)).reshape(-1, 4))
    write_tables(folder, source)


def seen(
    *rows: tuple[str, list[int], float, int], classes: Sequence[str] = ("cat", "dog", "person")
) -> Regions:
    """Regions of (image, box, score, class)."""
    image, box, score, label = zip(*rows, strict=True)
    return Regions(
        image_id=list(image),
        region_id=np.arange(len(rows)),
        box=np.array(box),
        score=np.array(score),
        label=np.array(label),
        logits=np.zeros((len(rows), len(classes))),
        classes=tuple(classes),
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    tables, regions = (
        tmp_path / "artifacts" / "tables",
        tmp_path / "artifacts" / "regions" / "small",
    )
    write_subset(tables / "photos" / "val", "photos", PHOTOS)
    for subset in ("train", "val", "test"):
        write_subset(tables / "pets" / subset, "pets", {f"pet-{subset}": ["cat"]})
    write_json(
        tables / "photos" / "categories.json",
        {"categories": ["Cat", "Dog", "Person", "Fox", "Kite"]},
    )
    write_json(tables / "pets" / "categories.json", {"categories": ["cat", "dog", "person"]})
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "photos").mkdir()
    for colour, image in enumerate(PHOTOS):
        Image.new("RGB", (64, 48), (40 * colour, 120, 200)).save(
            tmp_path / "photos" / f"{image}.png"
        )
    elsewhere = [44, 4, 60, 20]
    seen(("e", elsewhere, 0.9, 0), ("e", BOX, 0.95, 1), ("c", elsewhere, 0.2, 2)).write(
        regions / "photos_far"
    )
    seen(("d", BOX, 0.99, 1)).write(regions / "photos_near")
    return tmp_path


@pytest.fixture
def params() -> dict[str, Any]:
    return PARAMS


@pytest.fixture
def saw() -> Callable[..., Regions]:
    return seen


@pytest.fixture
def there(project: Path) -> dict[str, Any]:
    """The parameters, with paths that do not depend on the current folder."""
    tiny = {**PARAMS["benchmarks"]["tiny"], "rules": project / "rules.yaml"}
    return {**PARAMS, "benchmarks": {"tiny": tiny}}


@pytest.fixture
def catalogue(project: Path, there: dict[str, Any]) -> Catalogue:
    made = benchmark("tiny", there["benchmarks"]["tiny"])
    return Catalogue.read(
        "tiny", made, PARAMS["datasets"], project, label_checker_for("tiny", there, project)
    )


@pytest.fixture
def file(project: Path) -> DecisionsFile:
    return DecisionsFile(project / "data" / "decisions" / "tiny.csv")


@pytest.fixture
def ann(catalogue: Catalogue, file: DecisionsFile) -> Session:
    return Session(catalogue, file, "ann")


@pytest.fixture
def bob(catalogue: Catalogue, file: DecisionsFile) -> Session:
    return Session(catalogue, file, "bob")


@pytest.fixture
def server(ann: Session) -> Iterator[ReviewServer]:
    with ReviewServer(ann) as server:
        yield server


@pytest.fixture
def answering(server: ReviewServer) -> Iterator[ReviewServer]:
    """The server, answering requests in a thread."""
    thread = threading.Thread(target=server.run)
    thread.start()
    yield server
    server.stop()
    thread.join()


@dataclass(frozen=True)
class Started:
    """The command at work.

    Args:
        pid: Its process.
        address: What it printed.
    """

    pid: int
    address: str


@pytest.fixture
def started(project: Path) -> Iterator[Started]:
    (project / "params.yaml").write_text(yaml.safe_dump(PARAMS))
    command = [
        sys.executable,
        "-m",
        "farther",
        "benchmark",
        "review",
        "tiny",
        "--reviewer",
        "ann",
        "--no-browser",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lib"), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=project, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield Started(process.pid, process.stdout.readline().strip())
        process.kill()
