"""Formats and names that `farther init` recognises, and what it refuses."""

import argparse
import json
import re
from pathlib import Path

import pytest
import torch
import yaml
from dvc.utils.serialize import modify_yaml
from PIL import Image
from tests.detectors.test_detectron2 import layout
from tests.detectors.test_open_vocabulary import write_folder
from tests.support.rfdetr import SETTINGS, content, state_of_rfdetr
from torchvision.models import mobilenet_v3_small
from transformers import (
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
    YolosConfig,
    YolosForObjectDetection,
    YolosImageProcessor,
)
from ultralytics import YOLO

from farther import datasets
from farther.command import main
from farther.curation import Rules
from farther.datasets import ClassNames
from farther.errors import DataError, ParameterError
from farther.projects import Lookup, RecognisedDetector, add, init, recognise, recognise_detector
from farther.projects.class_matching import match_classes
from farther.projects.entries import ProjectDetector
from farther.projects.project import _entry_macros
from farther.projects.yaml_text import inserted
from farther.tables import Header

ROOT = Path(__file__).parents[2]
NAMES = ClassNames(ROOT / "data/names/classes.yaml")


def picture(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (20, 10)).save(file)


def coco(file: Path, name: str, categories=("cat", "dog")) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    described = [{"id": 3 + k, "name": one} for k, one in enumerate(categories)]
    annotation = {"id": 1, "image_id": 1, "category_id": 3, "bbox": [1, 2, 8, 6]}
    content = {
        "images": [{"id": 1, "file_name": name}],
        "annotations": [annotation],
        "categories": described,
    }
    file.write_text(json.dumps(content))


@pytest.fixture
def pets(tmp_path) -> Path:
    """COCO files as Roboflow writes them: in the folder of the images."""
    root = tmp_path / "pets"
    for subset in ("train", "valid"):
        picture(root / subset / "a.jpg")
        coco(root / subset / "_annotations.coco.json", "a.jpg")
    return root


def results(file: Path, *categories) -> Path:
    found = [
        {"image_id": 1, "category_id": one, "bbox": [1, 2, 8, 6], "score": 0.3}
        for one in categories
    ]
    file.write_text(json.dumps(found))
    return file


def test_coco_files_are_found_in_any_folder_with_their_images(pets):
    found = recognise(pets)
    assert found.entry["layout"] == {
        "train": ["train/_annotations.coco.json", "train"],
        "val": ["valid/_annotations.coco.json", "valid"],
    }
    assert found.categories == ["cat", "dog"]
    assert found.numbers == {3: "cat", 4: "dog"}


def test_annotations_of_the_same_images_are_one_subset(tmp_path):
    for number in range(2):
        picture(tmp_path / f"images/{number}.jpg")
    coco(tmp_path / "coco_v1.json", "0.jpg")
    coco(tmp_path / "coco_v2.json", "0.jpg", ("cat", "dog", "owl"))
    coco(tmp_path / "more.json", "1.jpg")
    found = recognise(tmp_path)
    assert (found.subsets, found.repeats) == (["coco_v1", "more"], {"coco_v2": "coco_v1"})
    assert found.categories == ["cat", "dog"]


def test_boxes_with_scores_beside_annotations_are_detections(tmp_path):
    picture(tmp_path / "0.jpg")
    for name in ("train", "boxes"):
        coco(tmp_path / f"{name}.json", "0.jpg")
    content = json.loads((tmp_path / "boxes.json").read_text())
    content["annotations"][0]["score"] = 0.5
    (tmp_path / "boxes.json").write_text(json.dumps(content))
    assert recognise(tmp_path).entry["layout"] == {"train": ["train.json", "."]}
    (tmp_path / "train.json").unlink()
    assert recognise(tmp_path).entry["layout"] == {"boxes": ["boxes.json", "."]}


def test_one_coco_file_without_a_name_of_a_subset_is_all(tmp_path):
    picture(tmp_path / "a.jpg")
    coco(tmp_path / "_annotations.coco.json", "a.jpg")
    assert recognise(tmp_path).entry["layout"] == {"all": ["_annotations.coco.json", "."]}


def test_xml_files_are_found_beside_and_below_their_images(tmp_path):
    xml = (
        "<annotation><object><name>fox</name>"
        "<bndbox><xmin>2</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
    )
    for subset in ("train", "test"):
        picture(tmp_path / subset / "images" / "a.png")
        (tmp_path / subset / "annots").mkdir()
        (tmp_path / subset / "annots/a.xml").write_text(f"{xml}</object></annotation>")
    found = recognise(tmp_path)
    assert found.entry["layout"] == {
        "test": ["test/annots", "test/images"],
        "train": ["train/annots", "train/images"],
    }
    assert found.categories == ["fox"]
    assert found.unlisted == 0


@pytest.mark.parametrize(("kit", "image_set"), [("VOC2012/", "VOC2012/train"), ("", "train")])
def test_image_sets_of_voc_have_the_folder_of_their_kit_in_front(tmp_path, kit, image_set):
    root = tmp_path / "VOCdevkit"
    picture(root / f"{kit}JPEGImages/2008_a.jpg")
    box = "<bndbox><xmin>2</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
    xml = f"<annotation><object><name>dog</name>{box}</object></annotation>"
    texts = {"Annotations/2008_a.xml": xml, "ImageSets/Main/train.txt": "2008_a\n"}
    for name, text in texts.items():
        (root / kit / name).parent.mkdir(parents=True)
        (root / kit / name).write_text(text)
    found = recognise(root)
    assert found.entry["image_sets"] == {"train": [image_set]}
    assert found.images == 1


@pytest.mark.parametrize("folder", ["images", "JPEGImages"])
def test_xml_files_beside_their_folder_of_images_are_read(tmp_path, folder):
    picture(tmp_path / folder / "a.jpg")
    box = "<bndbox><xmin>2</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
    (tmp_path / "a.xml").write_text(
        f"<annotation><object><name>dog</name>{box}</object></annotation>"
    )
    dataset = recognise(tmp_path)
    assert dataset.entry["layout"] == {"all": [".", folder]}
    assert dataset.images == 1


def test_folders_of_classes_are_labelled_images(tmp_path):
    picture(tmp_path / "train/cat/1.jpg")
    picture(tmp_path / "test/dog/1.jpg")
    found = recognise(tmp_path)
    assert (found.entry["format"], found.subsets) == ("image_folder", ["test", "train"])


def test_a_folder_without_images_is_refused_with_what_was_looked_for(tmp_path):
    (tmp_path / "notes.txt").write_text("lynx")
    with pytest.raises(
        DataError, match=r"unknown format; looked for data\.yaml \(YOLO\), JSON with images"
    ):
        recognise(tmp_path)


@pytest.mark.parametrize(
    "files", [("trip/a/1.jpg", "2.jpg"), ("images/train/1.jpg", "images/val/2.jpg")]
)
def test_photographs_in_folders_are_no_classes(tmp_path, files):
    for file in files:
        picture(tmp_path / file)
    assert recognise(tmp_path).entry["format"] == "images"


def test_images_that_a_coco_file_does_not_name_are_counted(tmp_path):
    for number in range(3):
        picture(tmp_path / f"{number}.jpg")
    coco(tmp_path / "boxes.json", "0.jpg")
    assert recognise(tmp_path).unlisted == 2


def test_images_without_labels_are_unlabelled_and_no_id_dataset(pets, tmp_path):
    picture(tmp_path / "photos/june/a.jpg")
    found = recognise(tmp_path / "photos")
    assert (found.entry["format"], found.images, found.unlabelled, found.categories) == (
        "images",
        1,
        1,
        [],
    )
    detector = results(tmp_path / "r.json", "cat")
    made = init(tmp_path / "made", pets, [tmp_path / "photos"], [detector], Lookup())
    assert any(
        "photos: 1 images without boxes, assumed to show no ID class" in line
        for line in made.assumed()
    )
    made.write()
    assert Rules(tmp_path / "made/data/benchmarks/pets.yaml").of("photos") == []
    with pytest.raises(
        DataError, match="images without boxes: the ID dataset needs boxes of the known classes"
    ):
        init(tmp_path / "other", tmp_path / "photos", [pets], [detector], Lookup())


def cut(content: bytes) -> bytes:
    return content[:-30]


DAMAGES = {
    "cut off": cut,
    "cut off in its first list": lambda content: content[:20],
    "NaN": lambda content: content.replace(b"[1, 2, 8, 6]", b"[NaN, 2, 8, 6]"),
    "Latin-1": lambda content: content.replace(b'"cat"', '"K\u00e4tzchen"'.encode("latin-1")),
    "without categories": lambda content: content.replace(b'"categories"', b'"kinds"'),
    "without images": lambda content: content.replace(b'"images"', b'"pictures"'),
    "UTF-16, cut off": lambda content: content.decode().encode("utf-16")[:-41],
    "another list": lambda content: b'{"items": []}',
    "empty": lambda content: b"",
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a whole one"])
def test_damaged_annotations_are_refused_and_never_taken_for_absent(tmp_path, damage, beside):
    picture(tmp_path / "a.jpg")
    coco(tmp_path / "labels.json", "a.jpg")
    file = tmp_path / "labels.json"
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    if beside:
        coco(tmp_path / "train.json", "a.jpg")
    if beside and damage == "another list":  # whatever it is, it is whole
        found = recognise(tmp_path)
        assert list(found.entry["layout"]) == ["train"]
        assert found.notes == (
            "1 files that are annotations by their names are not read, such as labels.json",
        )
        return
    with pytest.raises(DataError, match=r"labels\.json: .*(damaged|COCO file without|not read)"):
        recognise(tmp_path)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_annotations_of_programs_of_windows_are_recognised(tmp_path, encoding):
    picture(tmp_path / "images/a.jpg")
    coco(tmp_path / "labels.json", "images\\a.jpg")
    file = tmp_path / "labels.json"
    file.write_bytes(file.read_text().encode(encoding))
    found = recognise(tmp_path)
    assert found.entry["layout"] == {"all": ["labels.json", "."]}
    assert found.categories == ["cat", "dog"]
    assert any(note.startswith("image files that are spelt otherwise") for note in found.notes)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("labels/a.txt", "0 0.5 0.5 0.2 0.2\n", "no data.yaml or classes.txt names classes"),
        (
            "annotations.csv",
            "file,xmin\n",
            "a file of annotations by its name, in a form that is not read",
        ),
        (
            "gt/a.json",
            '{"shapes_of_mine": []}',
            "a file of annotations by its name, in a form that is not read",
        ),
        ("metadata.jsonl", '{"file_na', "metadata.jsonl: a damaged file of annotations"),
    ],
)
def test_annotations_that_are_not_read_are_refused_beside_images(tmp_path, name, content, problem):
    picture(tmp_path / "a.jpg")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=problem):
        recognise(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("notes.txt", "taken in June\n"),
        ("camera.json", '{"lens": 50}'),
        ("annotations/image_info.json", '{"images": [], "categories": []}'),
        ("captions.json", '{"images": [], "annotations": [{"image_id": 1, "caption": "a fox"}]}'),
        ("prices.csv", "a,b\n"),
    ],
)
def test_other_files_beside_images_are_no_annotations(tmp_path, name, content):
    picture(tmp_path / "a.jpg")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content)
    assert recognise(tmp_path).entry["format"] == "images"


def sideways(path: Path) -> None:
    """A picture of 60 × 40 pixels as it is displayed, stored on its side."""
    exif = Image.Exif()
    exif[0x0112] = 6
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (40, 60)).save(path, exif=exif)


def test_init_writes_which_picture_boxes_refer_to_where_ingest_would_ask(tmp_path):
    for folder in ("train", "test"):
        sideways(tmp_path / folder / "a.jpg")
        coco(tmp_path / folder / "labels.json", "a.jpg")
    found = recognise(tmp_path)
    assert found.entry["orientation"] == "displayed"
    assert found.notes[0].startswith(
        "2 images are turned by a quarter by their EXIF orientation, and nothing tells"
    )
    assert (
        "test/a.jpg is displayed as 60×40 and stored as 40×60 (orientation 6), and its boxes"
        in found.notes[0]
    )
    file = tmp_path / "train/labels.json"
    file.write_text(
        file.read_text().replace("[1, 2, 8, 6]", "[1, 2, 8, 57]")
    )  # leaves the displayed picture
    found = recognise(tmp_path)
    assert found.entry["orientation"] == "stored"
    assert found.notes == (
        "1 images are turned by a quarter by their EXIF orientation; "
        "boxes of other images fit the stored picture only: orientation: stored",
    )
    (tmp_path / "test/labels.json").unlink()
    (tmp_path / "test/a.jpg").unlink()
    assert "orientation" not in recognise(tmp_path).entry  # `ingest` decides by the boxes


def classifier(path: Path, count: int) -> Path:
    """A state dict of a classifier, which names no classes."""
    torch.save(mobilenet_v3_small(num_classes=count).state_dict(), path)
    return path


def test_folders_of_classes_without_subsets_are_read_for_a_classifier(tmp_path):
    for name in ("id/cat/1", "id/dog/2", "id/dog/puppies/3", "ood/fox/1", "ood/owl/2", "loose/a"):
        picture(tmp_path / f"{name}.png")
    network = classifier(tmp_path / "net.pth", 2)
    ood = [tmp_path / "ood", tmp_path / "loose"]
    init(tmp_path / "made", tmp_path / "id", ood, [network], Lookup()).write()
    params = yaml.safe_load((tmp_path / "made/params.yaml").read_text())
    for name in ("id", "ood"):
        entry = params["datasets"][name]
        assert (entry["format"], entry["folders"]) == ("image_folder", {"all": "."})
        assert datasets.create(**entry).read("all").categories == sorted(
            path.name for path in (tmp_path / name).iterdir()
        )
    assert params["datasets"]["loose"]["format"] == "images"  # no folder of a class
    assert params["detectors"]["net"]["params"]["classes"] == ["cat", "dog"]
    picture(tmp_path / "more/elk/1.png")
    add(tmp_path / "made", [tmp_path / "more"], [], Lookup()).write()
    added = yaml.safe_load((tmp_path / "made/params.yaml").read_text())["datasets"]["more"]
    assert added["format"] == "image_folder"


def test_photographs_in_folders_are_no_classes_of_a_detector(tmp_path, pets):
    for name in ("june/1", "may/2"):
        picture(tmp_path / f"photos/{name}.png")
    detector = results(tmp_path / "r.json", "cat")
    with pytest.raises(
        DataError, match=r"images without boxes: .*for a classifier, one folder of images per class"
    ):
        init(tmp_path / "other", tmp_path / "photos", [pets], [detector], Lookup())
    init(tmp_path / "made", pets, [tmp_path / "photos"], [detector], Lookup()).write()
    assert (
        yaml.safe_load((tmp_path / "made/params.yaml").read_text())["datasets"]["photos"]["format"]
        == "images"
    )


def test_folders_with_images_at_two_depths_are_classes_if_a_detector_has_their_names(tmp_path):
    for name in ("cat/indoors/1", "dog/indoors/2", "dog/outdoors/3"):
        picture(tmp_path / f"id/{name}.png")
    picture(tmp_path / "ood/fox/1.png")
    labels = {0: "cat", 1: "dog"}
    size = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    config = ViTConfig(
        **size, image_size=16, patch_size=8, id2label=labels, label2id={"cat": 0, "dog": 1}
    )
    ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(tmp_path / "vit")
    init(
        tmp_path / "made", tmp_path / "id", [tmp_path / "ood"], [tmp_path / "vit"], Lookup()
    ).write()
    entry = yaml.safe_load((tmp_path / "made/params.yaml").read_text())["datasets"]["id"]
    assert entry["folders"] == {"all": "."}


def test_a_classifier_with_another_number_of_classes_than_folders_is_refused_with_both(tmp_path):
    for name in ("id/cat/1", "id/dog/2", "ood/fox/1"):
        picture(tmp_path / f"{name}.png")
    with pytest.raises(
        DataError, match=r"With its folders as classes: .*its 3 cannot be the 2 of the ID dataset"
    ):
        init(
            tmp_path / "made",
            tmp_path / "id",
            [tmp_path / "ood"],
            [classifier(tmp_path / "n.pth", 3)],
            Lookup(),
        )


def test_numbers_of_results_are_those_of_the_id_dataset(pets, tmp_path):
    found = recognise_detector(results(tmp_path / "r.json", 4, 3), recognise(pets))
    assert found.header.known_classes == ("cat", "dog")
    assert found.entry["params"] == {
        "score_threshold": 0.3,
        "classes": ["cat", "dog"],
        "categories": {3: "cat", 4: "dog"},
    }
    with pytest.raises(DataError, match="category_id 9 is not a class of the ID dataset"):
        recognise_detector(results(tmp_path / "r.json", 9), recognise(pets))


def test_a_checkpoint_is_opened_by_the_adapter_that_fits(pets):
    found = recognise_detector(ROOT / "data/demo/bdd-vos.safetensors", recognise(pets))
    assert (found.entry["adapter"], found.assumed) == ("faster_rcnn", "")
    assert "pedestrian" in found.header.known_classes


@pytest.mark.parametrize(
    ("content", "seems"),
    [
        (b"nothing", "text"),
        (b"\x89HDF\r\n", "a file of Keras (HDF5)"),
        (
            b"PK\x03\x04 and no more",
            "a damaged or incomplete file of `torch.save`: copy or fetch it again",
        ),
        (b"\x80\x04K\x01.", "a pickle"),
        (b"\x20" + b"\0" * 7 + b'{"x": 1}', "a safetensors file written by another program"),
        (bytes(range(200, 216)), "something else"),
        ({"bbox_head.fc.weight": torch.ones(1)}, "weights of MMDetection: give the JSON files"),
        (
            {"model": {"backbone.bottom_up.x": torch.ones(1)}},
            "weights of Detectron2 of another network",
        ),
        ({"visual.proj": torch.ones(1)}, "weights of a CLIP: name their architecture by hand"),
        (
            {"model.0.conv.weight": torch.ones(1)},
            "a state dict of Ultralytics: give the .pt file that training wrote",
        ),
        ({"a": torch.ones(1)}, "a state dict of a network that is not known, with 'a'"),
    ],
)
def test_a_file_that_is_not_a_detector_comes_with_what_it_seems_to_be(
    pets, tmp_path, content, seems
):
    if isinstance(content, bytes):
        (tmp_path / "x.pt").write_bytes(content)
    else:
        torch.save(content, tmp_path / "x.pt")
    with pytest.raises(
        DataError, match=re.escape(f"no adapter opens it: it seems to be {seems}")
    ) as error:
        recognise_detector(tmp_path / "x.pt", recognise(pets))
    assert "Supported are checkpoints of Ultralytics" in str(error.value)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("pose", "estimates poses: let Ultralytics write its boxes"),
        ("cls", "classifies: classifiers are read from"),
    ],
)
def test_networks_of_ultralytics_for_other_tasks_are_refused_with_what_to_do(
    pets, tmp_path, head, said
):
    YOLO(f"yolov8n-{head}.yaml", verbose=False).save(tmp_path / "x.pt")
    with pytest.raises(DataError, match=f"a network of Ultralytics without an adapter: it {said}"):
        recognise_detector(tmp_path / "x.pt", recognise(pets))


def test_a_checkpoint_of_detectron2_and_open_vocabulary_are_recognised(pets, tmp_path):
    weights = layout(classes=2)
    torch.save(
        {"model": {name: torch.zeros(shape) for name, shape in weights.items()}, "iteration": 9},
        tmp_path / "d.pth",
    )
    found = recognise_detector(tmp_path / "d.pth", recognise(pets))
    assert (found.entry["adapter"], found.header.known_classes) == ("faster_rcnn", ("cat", "dog"))
    found = recognise_detector(write_folder(tmp_path / "owl", "owlv2"), recognise(pets))
    assert (found.entry["adapter"], found.header.known_classes) == (
        "open_vocabulary",
        ("cat", "dog"),
    )


def test_detection_transformers_are_recognised_in_folders_and_files_of_rfdetr(pets, tmp_path):
    config = YolosConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    config.image_size, config.num_detection_tokens, config.id2label = (
        [32, 32],
        5,
        {0: "cat", 1: "dog"},
    )
    YolosForObjectDetection(config).save_pretrained(tmp_path / "yolos")
    YolosImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path / "yolos")
    found = recognise_detector(tmp_path / "yolos", recognise(pets))
    assert (found.entry["adapter"], found.header.known_classes) == ("detr", ("cat", "dog"))

    state, args = state_of_rfdetr(), {"class_names": ["dog", "cat", "fox"]}
    torch.save(content(state, args=args), tmp_path / "checkpoint_best_total.pth")
    found = recognise_detector(tmp_path / "checkpoint_best_total.pth", recognise(pets))
    assert (found.entry["adapter"], found.header.known_classes) == ("detr", ("dog", "cat", "fox"))
    assert "params" not in found.entry and found.assumed == ""

    old = argparse.Namespace(**SETTINGS, **args)
    torch.save(content(state, args=old, model_config=None), tmp_path / "old.pth")
    assert "numbered from 1" in recognise_detector(tmp_path / "old.pth", recognise(pets)).assumed


def test_a_file_of_rfdetr_without_names_has_the_classes_of_the_id_dataset_if_their_number_fits(
    pets, tmp_path
):
    state = state_of_rfdetr()
    torch.save(content(state, args={}), tmp_path / "four.pth")
    with pytest.raises(
        DataError, match="class head of 4 rows is not that of the 2 of the ID dataset"
    ):
        recognise_detector(tmp_path / "four.pth", recognise(pets))
    for name, tensor in state.items():
        if "class_embed" in name:
            state[name] = tensor[:3]
    torch.save(content(state, args={}), tmp_path / "three.pth")
    found = recognise_detector(tmp_path / "three.pth", recognise(pets))
    assert (
        found.entry["params"] == {"classes": ["cat", "dog"]}
        and "farther doctor compares" in found.assumed
    )
    state["transformer.level_embed"] = torch.zeros(3)
    torch.save(content(state, args={}), tmp_path / "strange.pth")
    with pytest.raises(DataError, match=r"unexpected: transformer\.level_embed"):
        recognise_detector(tmp_path / "strange.pth", recognise(pets))


def test_a_clip_of_open_clip_classifies_the_id_classes(pets):
    found = recognise_detector(ROOT / "data/demo/clip", recognise(pets))
    assert (found.entry["adapter"], found.header.known_classes) == (
        "open_clip_classifier",
        ("cat", "dog"),
    )


def test_classifiers_of_torchvision_and_transformers_are_recognised(pets, tmp_path):
    torch.save(mobilenet_v3_small(num_classes=2).state_dict(), tmp_path / "mobile.pth")
    found = recognise_detector(tmp_path / "mobile.pth", recognise(pets))
    assert (found.entry["adapter"], found.entry["params"]["architecture"]) == (
        "classifier",
        "mobilenet_v3_small",
    )
    assert found.header.known_classes == ("cat", "dog")
    assert found.assumed.startswith("it names no classes")
    # Names beside the file are those of its outputs.
    (tmp_path / "other").mkdir()
    torch.save(mobilenet_v3_small(num_classes=3).state_dict(), tmp_path / "other/mobile.pth")
    with pytest.raises(
        DataError,
        match=r"its 3 cannot be the 2 of the ID dataset: write the names .* into classes\.txt",
    ):
        recognise_detector(tmp_path / "other/mobile.pth", recognise(pets))
    (tmp_path / "other/classes.txt").write_text("cat\ndog\nfox\n")
    assert recognise_detector(tmp_path / "other/mobile.pth", recognise(pets)).header.classes == (
        "cat",
        "dog",
        "fox",
    )
    size = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    config = ViTConfig(
        **size,
        image_size=16,
        patch_size=8,
        id2label={0: "cat", 1: "dog"},
        label2id={"cat": 0, "dog": 1},
    )
    ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(tmp_path / "vit")
    found = recognise_detector(tmp_path / "vit", recognise(pets))
    assert (found.entry["adapter"], found.header.known_classes) == (
        "transformers_classifier",
        ("cat", "dog"),
    )
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert/config.json").write_text(
        '{"model_type": "bert", "architectures": ["BertModel"]}'
    )
    with pytest.raises(
        DataError, match="'BertModel' is not a transformers network for detection or classification"
    ):
        recognise_detector(tmp_path / "bert", recognise(pets))
    (tmp_path / "bert/config.json").write_text('{"model_type": {"a": 1}, "architectures": 5}')
    with pytest.raises(
        DataError, match="'' is not a transformers network for detection or classification"
    ):
        recognise_detector(tmp_path / "bert", recognise(pets))


def test_results_with_names_have_the_classes_of_the_id_dataset_and_all_names_of_the_file(
    pets, tmp_path
):
    def record(name: str, **more) -> dict:
        return {"image_id": 1, "category_id": name, "bbox": [1, 2, 3, 4], "score": 0.5, **more}

    file = tmp_path / "r.json"
    file.write_text(json.dumps([record("dog")] * 2_500 + [record("zebra")]))
    assert recognise_detector(file, recognise(pets)).header.known_classes == ("cat", "dog", "zebra")
    file.write_text(
        json.dumps([record("dog", logits=[1.0, 2.0]), record("zebra", logits=[2.0, 1.0])])
    )
    assert recognise_detector(file, recognise(pets)).header.known_classes == ("dog", "zebra")


def test_equal_names_and_synonyms_are_proposed_and_doubtful_ones_are_pointed_out():
    found = match_classes(
        ["Person", "cats", "tvmonitor", "persn", "zebra"], ["person", "cat", "tv"], Lookup(NAMES)
    )
    assert [(one.category, one.relation, one.id_class) for one in found] == [
        ("Person", "same", "person"),
        ("cats", "same", "cat"),
        ("tvmonitor", "same", "tv"),
        ("persn", "resembles", "person"),
        ("zebra", "unknown", ""),
    ]
    assert found[2].reason == "a synonym in farther's list"


def test_classes_of_the_detector_get_the_names_of_the_id_dataset(pets, tmp_path):
    for subset in ("train", "valid"):
        coco(pets / subset / "_annotations.coco.json", "a.jpg", ("tvmonitor", "aeroplane"))
    picture(tmp_path / "wild/a.jpg")
    coco(tmp_path / "wild/all.json", "a.jpg", ("Television", "zebra"))
    found = results(tmp_path / "r.json", "tv", "airplane")
    init(tmp_path / "made", pets, [tmp_path / "wild"], [found], Lookup(NAMES)).write()
    params = yaml.safe_load((tmp_path / "made/params.yaml").read_text())
    assert params["detectors"]["r"]["classes"] == {"airplane": "aeroplane", "tv": "tvmonitor"}
    rules = yaml.safe_load((tmp_path / "made/data/benchmarks/pets.yaml").read_text())
    assert rules["id_classes"]["tvmonitor"] == {"pets": ["tvmonitor"], "wild": ["Television"]}
    assert rules["protocols"]["paper"]["far"] == {"wild": ["zebra"]}
    half = {"of": "val", "part": 0.5}
    assert params["benchmarks"]["pets"]["subsets"] == {"train": "train", "val": half, "test": half}


def test_a_dataset_of_one_subset_with_annotations_in_two_formats(tmp_path):
    for name in ("pets", "wild"):
        picture(tmp_path / name / "a.jpg")
    for name in ("v1", "v2"):
        coco(tmp_path / f"pets/{name}.json", "a.jpg")
    coco(tmp_path / "wild/all.json", "a.jpg", ("zebra",))
    found = results(tmp_path / "r.json", "cat", "dog")
    made = init(tmp_path / "made", tmp_path / "pets", [tmp_path / "wild"], [found], Lookup())
    assert any(
        "pets: v2 has the same images as v1 and is ignored" in line for line in made.assumed()
    )
    made.write()
    file = tmp_path / "made/params.yaml"
    params = yaml.safe_load(file.read_text())
    parts = {"train": 0.6, "val": 0.2, "test": 0.2}
    subsets = {name: {"of": "v1", "part": part} for name, part in parts.items()}
    assert params["benchmarks"]["pets"]["subsets"] == subsets
    assert any("v1 is divided into train, val and test" in line for line in made.assumed())


def test_near_categories_are_proposed_in_comments_that_become_rules_when_moved(pets, tmp_path):
    picture(tmp_path / "wild/a.jpg")
    coco(
        tmp_path / "wild/all.json", "a.jpg", ("elephant", "zebra", "Cat", "guitar", "pizza", "bus")
    )
    found, clip = results(tmp_path / "r.json", "cat", "dog"), f"local-dir:{ROOT / 'data/demo/clip'}"
    made = init(
        tmp_path / "made", pets, [tmp_path / "wild"], [found], Lookup.open(ROOT / "data", clip=clip)
    )
    made.write()
    lines = made.assumed()
    file = tmp_path / "made/data/benchmarks/pets.yaml"
    text = file.read_text()
    before = Rules(file)
    assert {str(rule) for rule in before.of("wild")} == {"ID class: Cat → cat"}
    proposed = re.findall(r"^      # proposed (wild: .*)$", text, re.MULTILINE)
    values = re.findall(r"^      #   (\w+): (cat|dog), CLIP (0\.\d\d)$", text, re.MULTILINE)
    assert proposed and values
    listed = [
        re.findall(r"CLIP (0\.\d\d)$", part, re.MULTILINE) for part in text.split("    near:")
    ]
    assert listed == [sorted(part, reverse=True) for part in listed]
    for line in proposed:
        text = text.replace(f"wild: {{}}\n      # proposed {line}", line)
    file.write_text(text)
    named = {
        rule.category: rule.id_class for rule in Rules(file).of("wild") if rule.kind != "ID class"
    }
    assert named == {name: id_class for name, id_class, _ in values}
    assert any("may contain or be" in line or "may be near to" in line for line in lines)
    params = (tmp_path / "made/params.yaml").read_text()
    if "be near to" in " ".join(lines):
        assert "      # wild_near: {dataset: wild, subset: all, distance: near}" in params


def test_parameters_that_are_there_are_kept(pets, tmp_path):
    (tmp_path / "params.yaml").write_text("mine: 1\n")
    found = results(tmp_path / "r.json", "cat")
    with pytest.raises(
        ParameterError,
        match=r"params\.yaml already exists: --add adds a detector or an OOD dataset",
    ):
        init(tmp_path, pets, [pets], [found], Lookup())
    assert (tmp_path / "params.yaml").read_text() == "mine: 1\n"


def test_the_command_says_what_is_not_given(capsys):
    assert main(["init", "--id", "x"]) == 2
    assert capsys.readouterr().err == "farther init: give --ood, --detector\n"


def test_links_that_form_a_loop_are_named(pets, tmp_path):
    (tmp_path / "a.json").symlink_to("b.json")
    (tmp_path / "b.json").symlink_to("a.json")
    with pytest.raises(DataError, match=r"[ab]\.json: "):
        init(tmp_path / "made", pets, [pets], [tmp_path / "a.json"], Lookup())
    assert not (tmp_path / "made/params.yaml").exists()


@pytest.fixture
def project(pets, tmp_path) -> Path:
    """A project of pets and wild animals."""
    picture(tmp_path / "wild/a.jpg")
    coco(tmp_path / "wild/all.json", "a.jpg", ("zebra",))
    found = results(tmp_path / "r.json", "cat", "dog")
    init(tmp_path / "made", pets, [tmp_path / "wild"], [found], Lookup()).write()
    return tmp_path / "made"


def edited(file: Path) -> str:
    """The file after a person wrote into it: comments, other indentation, a quoted name."""
    text = (
        file.read_text()
        .replace("\ninference:", "\n# mine: slow machine\ninference:")
        .replace("keep: 0.95", "keep: 0.9")
    )
    file.write_text(text)
    return text


def test_a_detector_and_a_dataset_are_added_and_every_other_line_stays(project, tmp_path):
    for file in ("params.yaml", "data/benchmarks/pets.yaml"):
        edited(project / file)
    before = {
        file: (project / file).read_text().splitlines()
        for file in ("params.yaml", "data/benchmarks/pets.yaml")
    }
    picture(tmp_path / "street/a.jpg")
    coco(tmp_path / "street/all.json", "a.jpg", ("Cats", "bus", "doge"))
    (tmp_path / "other").mkdir()
    found = results(tmp_path / "other/r.json", "dog")
    add(project, [tmp_path / "street"], [found], Lookup()).write()
    params = yaml.safe_load((project / "params.yaml").read_text())
    assert list(params["detectors"]) == ["r", "other_r"]
    assert params["detectors"]["other_r"]["params"]["classes"] == ["cat", "dog"]
    assert params["benchmarks"]["pets"]["splits"]["street"] == {
        "dataset": "street",
        "subset": "all",
        "distance": "farther",
    }
    rules = Rules(project / "data/benchmarks/pets.yaml")
    assert {str(rule) for rule in rules.of("street")} == {"ID class: Cats → cat"}
    for file, lines in before.items():
        after = (project / file).read_text().splitlines()
        changed = [line for line in lines if line not in after]
        assert changed == ([] if file == "params.yaml" else ["  cat: {pets: [cat]}"])
    assert (
        "      # doge: is it dog? similar spelling"
        in (project / "data/benchmarks/pets.yaml").read_text()
    )


def test_a_detector_with_other_classes_is_not_added(project, tmp_path):
    before = (project / "params.yaml").read_text()
    with pytest.raises(
        ParameterError,
        match="1 of the detector's 3 classes are not ID classes of the benchmark: zebra",
    ):
        add(project, [], [results(tmp_path / "z.json", "zebra", "cat")], Lookup())
    assert (project / "params.yaml").read_text() == before
    with pytest.raises(ParameterError, match="unknown benchmark 'birds'"):
        add(project, [], [results(tmp_path / "y.json", "cat")], Lookup(), benchmark="birds")


def test_each_assumption_has_the_line_that_it_is_about(project, pets, tmp_path):
    made = init(tmp_path / "again", pets, [tmp_path / "wild"], [tmp_path / "r.json"], Lookup())
    for line in made.assumed():
        file, _, number = line.split()[0].partition(":")
        text = made.texts[file].splitlines()[int(number) - 1]
        said = line.split(maxsplit=1)[1]
        assert text.split(":")[0].strip() in said or text.lstrip().startswith("subsets:")


def test_several_detectors_share_the_classes_of_all(pets, tmp_path):
    picture(tmp_path / "wild/a.jpg")
    coco(tmp_path / "wild/all.json", "a.jpg", ("zebra", "owl"))
    files = [
        results(tmp_path / "a.json", "cat", "zebra"),
        results(tmp_path / "b.json", "dog", "cat"),
    ]
    init(tmp_path / "made", pets, [tmp_path / "wild"], files, Lookup()).write()
    assert list(yaml.safe_load((tmp_path / "made/params.yaml").read_text())["detectors"]) == [
        "a",
        "b",
    ]
    rules = Rules(tmp_path / "made/data/benchmarks/pets.yaml")
    assert rules.id_classes == ("cat", "dog", "zebra")
    assert {str(rule) for rule in rules.of("wild")} == {"ID class: zebra → zebra"}


def test_a_dry_run_writes_nothing(project, pets, tmp_path, capsys):
    arguments = [
        "--id",
        str(pets),
        "--ood",
        str(tmp_path / "wild"),
        "--detector",
        str(tmp_path / "r.json"),
    ]
    assert main(["init", str(tmp_path / "dry"), "--dry-run", *arguments]) == 0
    assert not (tmp_path / "dry").exists()
    printed = capsys.readouterr()
    assert printed.out.startswith(f"would write {tmp_path / 'dry/params.yaml'}")
    assert len(printed.out.splitlines()) <= 12
    assert printed.err == "Next: the same command without --dry-run\n"


def test_dvc_may_rewrite_the_parameters(project, pets, tmp_path):
    """Names with blanks, in a mapping longer than a line."""
    long = {f"detected thing {n} of many": f"annotated thing {n} of many" for n in range(9)}
    (tmp_path / "again").mkdir()
    text = (project / "params.yaml").read_text()
    run = ProjectDetector(
        "x",
        tmp_path / "x.pt",
        RecognisedDetector({"adapter": "yolo"}, Header(classes=("a",))),
        long,
    )
    entry = _entry_macros().detector(run, "pets").splitlines()
    (tmp_path / "again/params.yaml").write_text(inserted(text, ["detectors"], entry))
    with modify_yaml(tmp_path / "again/params.yaml") as params:
        params["methods"]["energy"]["temperature"] = 2
    read = yaml.safe_load((tmp_path / "again/params.yaml").read_text())
    assert read["detectors"]["x"]["classes"] == long
    assert read["methods"]["energy"] == {"temperature": 2}
