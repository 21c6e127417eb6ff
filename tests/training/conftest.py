"""A world that is learned in seconds: bright squares and dark discs on grey."""

import json

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from farther.detectors.networks.architectures import FasterRCNNBlueprint
from farther.tables import Images, Objects
from farther.tables.files import digest
from farther_training.samples import Samples

CLASSES = ("square", "disc")
SIZES = ((64, 48), (48, 64), (64, 64), (56, 64))


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def blueprint():
    return FasterRCNNBlueprint("small", CLASSES, 64, 64)


def draw(folder, count, seed):
    """Writes images with one object each; gives the tables `images` and `objects`."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    images, objects = [], []
    for n in range(count):
        width, height = SIZES[n % len(SIZES)]
        image = Image.fromarray(rng.integers(90, 150, (height, width, 3), np.uint8))
        x, y, side = (int(value) for value in (*rng.integers(2, 16, 2), rng.integers(22, 30)))
        box = (x, y, x + side, y + side)
        kind = n % 2
        shape = ImageDraw.Draw(image).ellipse if kind else ImageDraw.Draw(image).rectangle
        shape((x, y, x + side - 1, y + side - 1), fill=(20, 20, 30) if kind else (250, 240, 220))
        path = folder / f"{n}.png"
        image.save(path)
        images.append((f"image {n}", "shapes", path.name, width, height, digest(path)))
        objects.append((f"image {n}", n, box, CLASSES[kind]))
    image_names = ("image_id", "dataset", "file", "width", "height", "digest")
    object_names = ("image_id", "object_id", "box", "category")
    return (
        Images(**dict(zip(image_names, zip(*images, strict=True), strict=True))),
        Objects(**dict(zip(object_names, map(list, zip(*objects, strict=True)), strict=True))),
    )


@pytest.fixture
def tables(tmp_path):
    return draw(tmp_path / "pictures", 8, seed=0)


@pytest.fixture
def samples(tables, tmp_path):
    return Samples(*tables, tmp_path / "pictures", CLASSES)


@pytest.fixture
def ingested(tmp_path):
    """The artifacts folder of a dataset "shapes" with three subsets, and the root of its images."""
    folder = tmp_path / "artifacts" / "tables" / "shapes"
    for seed, subset in enumerate(("train", "val", "test")):
        images, objects = draw(tmp_path / "pictures" / subset, 8, seed)
        images = images.with_columns(file=[f"{subset}/{name}" for name in images.file])
        images.write(folder / subset / "images.parquet")
        objects.write(folder / subset / "objects.parquet")
    (folder / "categories.json").write_text(
        json.dumps({"categories": list(CLASSES), "parents": {}})
    )
    return tmp_path / "artifacts", tmp_path / "pictures"
