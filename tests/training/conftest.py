"""A world that is learned in seconds: bright squares and dark discs on grey."""

import json

import numpy as np
import pytest
from PIL import Image, ImageDraw

from farther.tables import Images, Objects
from farther.tables.files import digest

CLASSES = ("square", "disc")
SIZES = ((64, 48), (48, 64), (64, 64), (56, 64))


@pytest.fixture(autouse=True)
def one_thread():
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def blueprint():
    from farther.detectors.networks.architectures import FasterRCNNBlueprint

    return FasterRCNNBlueprint("small", CLASSES, 64, 64)


def draw(folder, count, seed):
    """Writes images with one object each; returns the tables `images` and `objects`."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    images = {"image_id": [], "file": [], "width": [], "height": [], "digest": []}
    objects = {"image_id": [], "object_id": [], "box": [], "category": []}
    for number in range(count):
        width, height = SIZES[number % len(SIZES)]
        image = Image.fromarray(rng.integers(90, 150, (height, width, 3), np.uint8))
        x, y = rng.integers(2, 16, 2).tolist()
        side = int(rng.integers(22, 30))
        category = CLASSES[number % 2]
        corners = (x, y, x + side - 1, y + side - 1)
        if category == "disc":
            ImageDraw.Draw(image).ellipse(corners, fill=(20, 20, 30))
        else:
            ImageDraw.Draw(image).rectangle(corners, fill=(250, 240, 220))
        path = folder / f"{number}.png"
        image.save(path)

        images["image_id"].append(f"image {number}")
        images["file"].append(path.name)
        images["width"].append(width)
        images["height"].append(height)
        images["digest"].append(digest(path))
        objects["image_id"].append(f"image {number}")
        objects["object_id"].append(number)
        objects["box"].append((x, y, x + side, y + side))
        objects["category"].append(category)
    return Images(dataset=["shapes"] * count, **images), Objects(**objects)


@pytest.fixture
def tables(tmp_path):
    return draw(tmp_path / "pictures", 8, seed=0)


@pytest.fixture
def samples(tables, tmp_path):
    from farther_training.samples import Samples

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
