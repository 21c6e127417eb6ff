"""Datasets in miniature, and the images that `ingest` writes."""

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from farther import datasets
from farther.datasets import Reader
from farther.datasets.ingest import ingest
from farther.datasets.presence import EXTRACTED
from farther.tables import Images, Objects


@pytest.fixture
def lay(tmp_path: Path) -> Callable[..., Path]:
    """Writes files below a root.

    Text and bytes are written as they are, (width, height) as an image, anything else as JSON.
    """

    def write(files: dict[str, Any]) -> Path:
        root = tmp_path / "root"
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, tuple):
                Image.new("RGB", content, (200, 30, 60)).save(path)
            elif isinstance(content, bytes):
                path.write_bytes(content)
            elif isinstance(content, str):
                path.write_text(content, encoding="utf-8")
            else:
                path.write_text(json.dumps(content), encoding="utf-8")
        return root

    return write


@pytest.fixture
def random_images() -> Callable[..., np.ndarray]:
    """Pixels of random images by their shape, uint8."""

    def generate(*shape: int) -> np.ndarray:
        return np.random.default_rng(7).integers(0, 256, shape, dtype=np.uint8)

    return generate


@pytest.fixture
def extracted(tmp_path: Path) -> Callable[[Reader, str], tuple[list[np.ndarray], list[str]]]:
    """Pixels of the files that `ingest` writes for labelled images, and their classes."""

    def run(reader: Reader, subset: str) -> tuple[list[np.ndarray], list[str]]:
        tables = tmp_path / "tables"
        ingest(reader, "digits", tables)
        images = Images.read(tables / subset / "images.parquet")
        objects = Objects.read(tables / subset / "objects.parquet")
        assert images.image_id.tolist() == objects.image_id.tolist()
        zeros = np.zeros(len(images))
        expected_box = np.stack([zeros, zeros, images.width, images.height], axis=1)
        np.testing.assert_array_equal(objects.box, expected_box)
        pixels = [np.array(Image.open(tables / EXTRACTED / file)) for file in images.file]
        return pixels, objects.category.tolist()

    return run


def tables(reader: Reader, out: Path, subset: str) -> tuple[Images, Objects, dict[str, str]]:
    """Images, objects, and the text of warnings by kind, after `ingest`."""
    ingest(reader, "pets", out)
    images = Images.read(out / subset / "images.parquet")
    objects = Objects.read(out / subset / "objects.parquet")
    warnings = json.loads((out / "warnings.json").read_text())["warnings"]
    return images, objects, {warning["kind"]: warning["found"] for warning in warnings}


def coco_reader(lay, names, files, annotations=None, **params):
    """A reader of images with these names in the annotations, one box each, and these files."""
    images = [{"id": number, "file_name": name} for number, name in enumerate(names)]
    if annotations is None:
        annotations = [
            {"id": number, "image_id": number, "category_id": 1, "bbox": [1, 2, 8, 6]}
            for number in range(len(names))
        ]
    content = {
        "images": images,
        "annotations": annotations,
        "categories": [{"id": 1, "name": "fox"}],
    }
    root = lay({"a.json": content, **dict.fromkeys(files, (40, 20))})
    return datasets.create("coco", root=root, layout={"train": ("a.json", ".")}, **params)


#: A name, and the same in the form that a Mac writes: the accent is a character of its own.
ACCENT = "caf\u00e9 1"
DECOMPOSED = unicodedata.normalize("NFD", ACCENT)
