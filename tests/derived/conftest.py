"""ID images in miniature, and the datasets that are derived from them."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from farther.curation import LabelledImages, Rules
from farther.derived import Scenes, derived
from farther.tables import Images, Objects
from farther.tables.files import digest

RULES = """
id_classes:
  cat: {photos: [Cat]}
  table: {photos: [Table]}
protocols:
  paper:
    overlap: {photos: {table: [Plate]}}
    near: {photos: {cat: [Lynx]}}
"""


@pytest.fixture
def rules(tmp_path: Path) -> Rules:
    (tmp_path / "rules.yaml").write_text(RULES)
    return Rules(tmp_path / "rules.yaml")


@pytest.fixture
def scenes() -> Callable[[Path, int], Scenes]:
    """See `write_scenes`."""
    return write_scenes


@pytest.fixture
def write() -> Callable[..., tuple[dict, dict[str, dict]]]:
    """See `write_derived`."""
    return write_derived


@pytest.fixture
def files_of() -> Callable[[Path], dict[str, str]]:
    """See `digest_by_file`."""
    return digest_by_file


def write_scenes(folder: Path, count: int) -> Scenes:
    """Writes white pictures of 64 × 48 pixels with a cat in the upper left corner."""
    ids = [f"scene {number}" for number in range(count)]
    files = [f"{image_id}.png" for image_id in ids]
    for file in files:
        Image.new("RGB", (64, 48), "white").save(folder / file)
    images = Images(
        image_id=ids,
        dataset=["id"] * count,
        file=files,
        width=[64] * count,
        height=[48] * count,
        digest=ids,
    )
    objects = Objects(
        image_id=ids,
        object_id=np.arange(count),
        box=np.tile([0, 0, 16, 12], (count, 1)),
        category=["cat"] * count,
    )
    return Scenes(LabelledImages(images, objects), folder, ("cat", "table"))


def write_derived(kind: str, scenes: Scenes, out: Path, **params) -> tuple[dict, dict[str, dict]]:
    """Writes a derived dataset; returns its counts, and the annotations of each subset."""
    images = {"dataset": "id", "subset": "test"}
    settings = derived(kind, "d", {"images": images, "file_type": "png", **params})
    counts = settings.write(scenes, out)
    annotations = {}
    for file in (out / "annotations").glob("*.json"):
        annotations[file.stem.removeprefix("instances_")] = json.loads(file.read_text())
    return counts, annotations


def digest_by_file(folder: Path) -> dict[str, str]:
    """Digest of each file in a folder."""
    digests = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digests[path.relative_to(folder).as_posix()] = digest(path)
    return digests
