"""`farther doctor` looks at ID images where a checkpoint does not name its classes."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydantic.dataclasses import dataclass

from farther import datasets, detectors
from farther.command.doctor.class_order import check_order
from farther.curation import Rules
from farther.detectors import Detector
from farther.naming.registry import STRICT
from farther.tables import Header, Regions

NAMES, COLOURS = ("cat", "dog", "owl"), ((200, 0, 0), (0, 200, 0), (0, 0, 200))
RULES = """
id_classes:
  cat: {pets: [cat]}
  dog: {pets: [dog]}
  owl: {pets: [owl]}
protocols: {paper: {}}
"""


@dataclass(config=STRICT, kw_only=True)
class Colours(Detector):
    """Finds the square of each image; its outputs are red, green and blue."""

    classes: tuple[str, ...] | None = None
    sees: bool = True
    network: None = None

    def header(self):
        return Header(classes=self.classes or NAMES, detector={"name": "colours"})

    def prepare(self, image):
        return image

    def forward(self, prepared, image_ids):
        label = [int(image[5, 5].argmax()) for image in prepared]
        boxes = [[2, 2, 12, 12]] if self.sees else [[20, 20, 22, 22]]
        return Regions(
            header=self.header(),
            image_id=np.array(image_ids, dtype=object),
            region_id=np.arange(len(label)),
            box=np.tile(np.array(boxes, np.float32), (len(label), 1)),
            score=np.full(len(label), 0.9, np.float32),
            label=np.array(label),
        )


@pytest.fixture
def looked(tmp_path, monkeypatch):
    """Findings on a detector, with 24 images of one coloured square each."""
    for number in range(24):
        picture = np.full((30, 30, 3), 90, np.uint8)
        picture[2:12, 2:12] = COLOURS[number % 3]
        for folder, content in (
            ("images", None),
            ("labels", f"{number % 3} {7 / 30} {7 / 30} {10 / 30} {10 / 30}\n"),
        ):
            (tmp_path / folder).mkdir(exist_ok=True)
            if content is None:
                Image.fromarray(picture).save(tmp_path / folder / f"{number}.png")
            else:
                (tmp_path / folder / f"{number}.txt").write_text(content)
    (tmp_path / "data.yaml").write_text("val: images\nnames: [cat, dog, owl]\n")
    (tmp_path / "rules.yaml").write_text(RULES)
    annotations = datasets.create(format="yolo", root=str(tmp_path)).read("val")
    rules = Rules(Path(tmp_path / "rules.yaml"))

    def call(**params):
        monkeypatch.setattr(
            detectors, "of_entry", lambda _: Colours(weights=tmp_path / "x", **params)
        )
        return [
            (one.state, one.text)
            for one in check_order("mine", {"adapter": "x"}, rules, "pets", annotations)
        ]

    return call


def test_classes_in_their_order_are_confirmed(looked):
    assert looked(classes=NAMES) == [
        ("ok", "of 24 detected objects in 24 images of pets, 24 have the annotated class")
    ]


def test_another_order_is_wrong_and_says_what_is_mistaken_for_what(looked):
    ((state, text),) = looked(classes=("dog", "owl", "cat"))
    assert state == "wrong"
    assert text.startswith(
        "of 24 detected objects in 24 images of pets, 0 have the annotated class ("
    )
    assert "cat is called dog" in text and "owl is called cat" in text


def test_a_detector_that_finds_nothing_shows_no_order(looked):
    ((state, text),) = looked(classes=NAMES, sees=False)
    assert (state, text.rpartition(": ")[2]) == (
        "note",
        "too few to tell whether their order is right",
    )


def test_a_checkpoint_that_names_its_classes_is_not_looked_at(looked):
    assert looked() == []
