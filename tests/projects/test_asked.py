"""Formats and adapters are asked what they recognise: farther's own, and those of extensions."""

import json
import subprocess
import sys

import pytest
from tests.projects.files import coco, picture, results
from tests.support.extensions import forget_extensions

from farther.detectors import open_vocabulary
from farther.detectors.detr import PROMPTED
from farther.errors import DataError, ParameterError
from farther.projects import Choices, Lookup, init, recognise, recognise_detector

BOX = "<bndbox><xmin>2</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
XML = f"<annotation><object><name>cat</name>{BOX}</object></annotation>"

READER = '''
import json
from typing import ClassVar

from farther import Reader, register
from farther.datasets.base import Collector, Expected, Location
from farther.datasets.recognition import Recognised


@register("via")
class VIA(Reader):
    """VGG Image Annotator."""

    SOURCE: ClassVar[str] = "here"

    @classmethod
    def recognises(cls, folder):
        return Recognised() if (folder / "via.json").is_file() else None

    def subsets(self):
        return ["all"]

    def expects(self, subset):
        return [Expected("boxes", ("via.json",), "here")]

    def read(self, subset):
        file = self.root / "via.json"
        collector = Collector(self.root)
        for number, image in enumerate(json.loads(file.read_text()).values()):
            row = collector.add_image(image["filename"], image["filename"], Location(file))
            for region in image["regions"]:
                shape = region["shape_attributes"]
                x, y = shape["x"], shape["y"]
                box = (x, y, x + shape["width"], y + shape["height"])
                collector.add_object(row, box, 0, number)
        return collector.annotations(
            categories=["cat"], files=["via.json"], row="{image_id}", box_field="regions"
        )
'''
ADAPTER = '''
from typing import ClassVar

from farther import register
from farther.detectors.coco_results import CocoResults
from farther.detectors.recognition import RecognisedFile


@register("mine")
class Mine(CocoResults):
    """Detections in files of our own."""

    RECOGNISED_FILES: ClassVar[tuple[str, ...]] = ("*.mine",)

    @classmethod
    def recognises(cls, path, id_classes):
        return RecognisedFile({"classes": id_classes.categories}, assumed="in our order")
'''


@pytest.fixture
def extensions(tmp_path, monkeypatch):
    """The project's folder of extensions, whose names are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "extensions").mkdir()
    yield tmp_path / "extensions"
    forget_extensions()


def test_a_format_of_an_extension_is_asked_before_its_files_are_refused(extensions, tmp_path):
    shape = {"x": 2, "y": 2, "width": 8, "height": 6}
    regions = [{"shape_attributes": shape, "region_attributes": {}}]
    image = {"filename": "a.jpg", "regions": regions, "file_attributes": {}}
    picture(tmp_path / "data/a.jpg")
    (tmp_path / "data/via.json").write_text(json.dumps({"a.jpg": image}))
    with pytest.raises(DataError, match="an export of VGG Image Annotator, which is not read"):
        recognise(tmp_path / "data")
    (extensions / "via.py").write_text(READER)
    dataset = recognise(tmp_path / "data")
    assert (dataset.entry["format"], dataset.categories) == ("via", ["cat"])


def test_an_adapter_of_an_extension_is_asked_for_its_files(extensions, pets, tmp_path):
    (extensions / "mine.py").write_text(ADAPTER)
    file = results(tmp_path / "x.mine", "cat")
    recognised = recognise_detector(file, recognise(pets))
    assert recognised.entry["adapter"] == "mine"
    assert recognised.entry["params"] == {"classes": ["cat", "dog"]}
    assert recognised.assumed == "in our order"


def test_where_two_adapters_fit_the_one_that_is_taken_is_said_and_another_can_be_chosen(
    extensions, pets, tmp_path
):
    (extensions / "mine.py").write_text(ADAPTER.replace("*.mine", "*.json"))
    file = results(tmp_path / "x.json", "cat")
    dataset = recognise(pets)
    recognised = recognise_detector(file, dataset)
    assert recognised.entry["adapter"] == "mine"
    assert recognised.assumed.startswith(
        "adapters mine and coco_results open it: mine is taken (--adapter coco_results chooses"
    )
    chosen = recognise_detector(file, dataset, adapters=["coco_results"])
    assert chosen.entry["adapter"] == "coco_results"


@pytest.fixture
def both(tmp_path):
    """A folder with annotations of one image in COCO's and in VOC's format."""
    root = tmp_path / "both"
    picture(root / "a.jpg")
    coco(root / "a.json", "a.jpg")
    (root / "a.xml").write_text(XML)
    return root


def test_where_two_formats_fit_the_one_that_is_read_is_said_and_another_can_be_chosen(both):
    dataset = recognise(both)
    assert dataset.entry["format"] == "coco"
    assert dataset.questions == (
        "its files are of the formats coco and voc: coco is read (--format voc chooses otherwise)",
    )
    chosen = recognise(both, ["voc"])
    assert (chosen.entry["format"], chosen.questions) == ("voc", ())


def test_a_damaged_file_of_another_format_does_not_hide_the_one_that_fits(tmp_path):
    picture(tmp_path / "images/a.jpg")
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels/a.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    (tmp_path / "data.yaml").write_text("names: [cat]\n")
    (tmp_path / "instances.json").write_text('{"images": [], "annotations": [')
    assert recognise(tmp_path).entry["format"] == "yolo"


def test_a_format_or_an_adapter_that_nothing_is_of_is_refused(pets, tmp_path):
    picture(tmp_path / "wild/a.jpg")
    detector = results(tmp_path / "r.json", "cat")
    sources = (pets, [tmp_path / "wild"], [detector], Lookup())
    with pytest.raises(ParameterError, match="--format voc: no folder is in this format"):
        init(tmp_path / "project", *sources, choices=Choices(formats=("voc",)))
    with pytest.raises(ParameterError, match="--adapter onnx: it reads none of the detectors"):
        init(tmp_path / "project", *sources, choices=Choices(adapters=("onnx",)))
    with pytest.raises(ParameterError, match="unknown dataset format 'vok'"):
        recognise(pets, ["vok"])


def test_no_package_of_a_network_is_imported_to_recognise_images_and_detections(pets, tmp_path):
    picture(tmp_path / "wild/a.jpg")
    detector = results(tmp_path / "r.json", "cat")
    code = (
        "import sys; from pathlib import Path; from farther.projects import *;"
        "pets = recognise(Path(sys.argv[1])); recognise(Path(sys.argv[2]));"
        "recognise_detector(Path(sys.argv[3]), pets);"
        "print({'torch', 'transformers', 'onnxruntime'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code, pets, tmp_path / "wild", detector]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_networks_that_take_prompts_are_those_of_the_adapter_for_them():
    assert set(PROMPTED) == set(open_vocabulary.CLASSES)
