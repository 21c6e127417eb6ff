"""A small demo world."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path

import numpy as np
import pytest

from farther_demo import NAMES, DemoWorld, Subsets, generate

WORLD = DemoWorld(
    size=96,
    voc=Subsets(train=5, val=2, test=8),
    bdd=Subsets(train=2, val=2, test=110),
    coco=130,
    openimages=130,
    drawings=Subsets(train=40, val=20, test=20),
    drawings_unknown=34,
)


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> dict[str, Path]:
    """Folder of each dataset of `WORLD`, written once."""
    root = tmp_path_factory.mktemp("demo")
    for name in NAMES:
        generate(name, root / name, WORLD)
    return {name: root / name for name in NAMES}


def digests(folder: Path) -> dict[str, str]:
    """Digest of each file in a folder."""
    digest_by_file = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            digest_by_file[str(path.relative_to(folder))] = digest
    return digest_by_file


def extent(owner: np.ndarray, sprites: tuple[int, ...]) -> tuple[int, int, int, int]:
    """First and last column and row of the pixels of some sprites: xmin, ymin, xmax, ymax."""
    pixels = np.concatenate([np.argwhere(owner == number) for number in sprites])
    ymin, xmin = pixels.min(axis=0).tolist()
    ymax, xmax = pixels.max(axis=0).tolist()
    return xmin, ymin, xmax, ymax


def read_rows(path: Path) -> list[list[str]]:
    """The rows of a CSV file, with its header."""
    with path.open(newline="") as file:
        return list(csv.reader(file))
