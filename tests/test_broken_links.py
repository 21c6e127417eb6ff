"""A broken link in the place of an optional input is refused by name, not treated as absent."""

from __future__ import annotations

import ast
import gzip
import io
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tests.datasets import (
    test_coco,
    test_huggingface,
    test_mnist,
    test_openimages,
    test_yolo,
)
from tests.datasets.conftest import lay
from tests.similarity.tiny_wordnet import write as write_wordnet

import farther
from farther import datasets, detectors
from farther.curation import Decision, DecisionsFile, benchmark
from farther.curation.decisions import HEADER
from farther.datasets.wordnet import WordNet
from farther.derived.folder import CutOutFolder
from farther.detectors.hub import weight_files
from farther.detectors.imported.formats import files_of
from farther.detectors.open_vocabulary import read_folder
from farther.errors import DataError
from farther.evaluation.reviewed_images import reviewed_file, with_unlabelled
from farther.monitor.sources import open_source
from farther.projects import recognise
from farther.projects.project import ProjectFiles
from farther.report.charts.vega import read_csv
from farther.review.label_checker import match_id_classes
from farther.tables.files import is_file, is_folder, is_present
from farther.tables.header import _read_last_layer

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class OptionalInput:
    """An input that may be left out.

    Args:
        link: Its path in the folder that has the inputs.
        read: Reads the inputs; called with the folder.
        files: The other inputs, as the fixture `lay` takes them.
        may_be_absent: Whether `read` works without the input and with these files; False where the
            files are too few.
    """

    link: str
    read: Callable[[Path], Any]
    files: dict[str, Any]
    may_be_absent: bool = True


def reader(format: str, root: Path, **params: Any) -> datasets.Reader:
    return datasets.create(format, root=root, **params)


def lock_decisions(root: Path) -> None:
    with DecisionsFile(root / "new/decisions.csv").locked():
        pass


def check_decision(root: Path) -> None:
    """A decision that is written through a broken link must not end up elsewhere, nor nowhere."""
    file = DecisionsFile(root / "decisions.csv")
    with file.locked() as opened:
        file.append(
            opened, Decision(datetime(2026, 1, 1, tzinfo=UTC), "ann", "d", "s", "i", "keep")
        )


def names_of_a_detector(root: Path) -> dict[str, str]:
    """ID classes of a benchmark that a detector of another dataset knows, by a file of names."""
    ood = {"far": {"dataset": "coco", "subset": "val2017", "distance": "far"}}
    id_sources = {"train": {"dataset": "voc", "subset": "train"}}
    rules = str(ROOT / "data/benchmarks/voc.yaml")
    made = benchmark("voc", {"id": "voc", "rules": rules, "subsets": id_sources, "splits": ood})
    return match_id_classes(("dog",), "coco", made, root / "classes.yaml")


def wordnet_files() -> dict[str, bytes]:
    """A tiny WordNet without its file `lexnames`."""
    with tempfile.TemporaryDirectory() as folder:
        files = {file.name: file.read_bytes() for file in write_wordnet(Path(folder)).iterdir()}
    del files["lexnames"]
    return files


def cut_out() -> bytes:
    """An image that is transparent around its object."""
    image = Image.new("RGBA", (12, 12))
    image.paste((200, 30, 60, 255), (3, 3, 9, 9))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def parquet(**columns: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


#: Width and height of an image.
PICTURE = (40, 20)

ONE_ROW = test_huggingface.parquet(
    [test_huggingface.row(test_huggingface.LISTS)], test_huggingface.labelled()
)
DIGITS = gzip.compress(test_mnist.idx(np.zeros((1, 28, 28), np.uint8)))
DIGIT_LABELS = gzip.compress(test_mnist.idx(np.zeros(1, np.uint8)))
COCO_FILES = {"annotations/instances_train2017.json": test_coco.instances()}
XML = (
    "<annotation><object><name>fox</name><bndbox><xmin>2</xmin><ymin>2</ymin><xmax>9</xmax>"
    "<ymax>9</ymax></bndbox>"
)
VOC_FILES = {
    "VOC2007/Annotations/a.xml": f"{XML}</object></annotation>",
    "VOC2007/JPEGImages/a.jpg": PICTURE,
    "VOC2007/ImageSets/Main/train.txt": "a\n",
    "VOC2012/notes.txt": "",
}
BOXES = json.dumps([{"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5}])
DETECTIONS = parquet(image_id=["a"], score=[0.5])
CHECKPOINT = {
    "config.json": {},
    "model.safetensors": "",
    "preprocessor_config.json": {},
    "tokenizer.json": {},
}


def imported(adapter: str, root: Path, **params: Any) -> detectors.Adapter:
    return detectors.create(adapter, weights=root, classes=("cat",), **params)


INPUTS = {
    # Decisions
    "decisions that are read": OptionalInput(
        "decisions.csv", lambda root: DecisionsFile(root / "decisions.csv").read(), {}
    ),
    "whether decisions changed": OptionalInput(
        "decisions.csv", lambda root: DecisionsFile(root / "decisions.csv").state(), {}
    ),
    "decisions that are written": OptionalInput("decisions.csv", check_decision, {}),
    "the folder of decisions": OptionalInput("new", lock_decisions, {}),
    "decisions that init would begin": OptionalInput(
        "data/decisions/b.csv",
        lambda root: ProjectFiles(root, {"data/decisions/b.csv": HEADER}, []).write(),
        {},
    ),
    "decisions about ID images": OptionalInput(
        "data/decisions/b.id.csv",
        lambda root: with_unlabelled(reviewed_file("b", root), ["test"]),
        {},
    ),
    # Names and published values
    "names of classes": OptionalInput("classes.yaml", names_of_a_detector, {}),
    "published values": OptionalInput(
        "fmiyc_images.csv", lambda root: read_csv(root / "fmiyc_images.csv", {"id": pl.String}), {}
    ),
    "WordNet's lexnames": OptionalInput("lexnames", WordNet, wordnet_files()),
    # Datasets
    "labels of an image of YOLO": OptionalInput(
        "labels/val/b.txt",
        lambda root: reader("yolo", root).read("val"),
        test_yolo.files(**{"images/val/b.jpg": PICTURE}),
    ),
    "labels of a subset of YOLO": OptionalInput(
        "labels/train",
        lambda root: reader("yolo", root).read("both"),
        test_yolo.files(
            text="both: [images/train, images/val]\nval: images/val\nnames: [cat, dog]\n",
            **{"images/train/b.jpg": PICTURE},
        ),
    ),
    "the description of YOLO": OptionalInput(
        "data.yaml", lambda root: reader("yolo", root).expects("val"), {}
    ),
    "a folder of images of YOLO": OptionalInput(
        "images/train",
        lambda root: reader("yolo", root).subsets(),
        test_yolo.files(text="names: [cat, dog]\n"),
    ),
    "annotations of a subset of COCO": OptionalInput(
        "annotations/instances_val2017.json",
        lambda root: reader("coco", root).subsets(),
        COCO_FILES,
    ),
    "the folder of annotations of COCO": OptionalInput(
        "annotations",
        lambda root: list(reader("coco", root).credits("val2017")),
        {},
    ),
    "the class hierarchy of OpenImages": OptionalInput(
        test_openimages.HIERARCHY,
        lambda root: reader("openimages", root).read("validation"),
        {k: v for k, v in test_openimages.files().items() if k != test_openimages.HIERARCHY},
    ),
    "the credits of OpenImages": OptionalInput(
        "validation-images-with-rotation.csv",
        lambda root: list(reader("openimages", root).credits("validation")),
        test_openimages.files(),
    ),
    "the first of several names of a file": OptionalInput(
        "t10k-images-idx3-ubyte",
        lambda root: reader("mnist", root).read("test"),
        {"t10k-images-idx3-ubyte.gz": DIGITS, "t10k-labels-idx1-ubyte.gz": DIGIT_LABELS},
    ),
    "the folder of CIFAR's archive": OptionalInput(
        "cifar-10-batches-bin",
        lambda root: reader("cifar", root).expects("test"),
        {"test_batch.bin": b"", "batches.meta.txt": "cat\n"},
    ),
    "a split of a dataset of Hugging Face": OptionalInput(
        "val",
        lambda root: reader("huggingface", root).subsets(),
        {"train/train-00000-of-00001.parquet": ONE_ROW},
    ),
    "the card of a dataset of Hugging Face": OptionalInput(
        "README.md",
        lambda root: reader("huggingface", root).read("train"),
        {"data/train-00000-of-00001.parquet": ONE_ROW},
    ),
    "the features of a dataset of Hugging Face": OptionalInput(
        "data/dataset_info.json",
        lambda root: reader("huggingface", root).read("train"),
        {"data/train-00000-of-00001.parquet": ONE_ROW},
    ),
    "a list of OpenOOD": OptionalInput(
        "test.txt",
        lambda root: reader("imglist", root).expects("test"),
        {"train.txt": "a/1.png 0\n"},
    ),
    "a folder of a class": OptionalInput(
        "train/dog",
        lambda root: reader("image_folder", root).read("train"),
        {"train/cat/1.png": PICTURE},
    ),
    "a folder of a subset": OptionalInput(
        "val", lambda root: reader("image_folder", root).subsets(), {"train/cat/1.png": PICTURE}
    ),
    "a folder in that of a class": OptionalInput(
        "train/cat/more",
        lambda root: reader("image_folder", root).read("train"),
        {"train/cat/1.png": PICTURE},
    ),
    "images without boxes": OptionalInput(
        "june", lambda root: reader("images", root).read("all"), {"may/1.png": PICTURE}
    ),
    "images beside the XML files": OptionalInput(
        "images",
        lambda root: reader("voc", root, layout={"all": ["annots", "images"]}).read("all"),
        {"annots/a.xml": f"{XML}</object></annotation>"},
    ),
    "patches of Objects365": OptionalInput(
        "train/patch1",
        lambda root: reader("objects365", root)._image_name("train"),
        {"train/a.jpg": PICTURE},
    ),
    "cut-outs of a category": OptionalInput(
        "fox", lambda root: CutOutFolder(root=root, smallest=4).read(), {"cat/1.png": cut_out()}
    ),
    # Detections made elsewhere
    "detections of a split": OptionalInput(
        "val", lambda root: imported("detections", root).sources(), {"train/boxes.json": BOXES}
    ),
    "FiftyOne's samples": OptionalInput("samples.json", files_of, {"boxes.json": BOXES}),
    "Parquet files of a split": OptionalInput(
        "val", lambda root: imported("parquet", root).sources(), {"train/part.parquet": DETECTIONS}
    ),
    "facts beside Parquet files": OptionalInput(
        "regions.json",
        lambda root: imported("parquet", root).header(),
        {"part.parquet": DETECTIONS},
    ),
    "the last layer beside Parquet files": OptionalInput(
        "last_layer.safetensors",
        lambda root: imported("parquet", root).files(),
        {"part.parquet": DETECTIONS},
    ),
    "the last layer of regions": OptionalInput(
        "last_layer.safetensors", lambda root: _read_last_layer(root / "last_layer.safetensors"), {}
    ),
    # Checkpoints
    "a member of an ensemble": OptionalInput(
        "b.safetensors",
        lambda root: detectors.create(
            "repeated", weights=root, of="yolo", kind="ensemble"
        ).content(),
        {"a.safetensors": ""},
    ),
    "the list of shards": OptionalInput("model.safetensors.index.json", weight_files, CHECKPOINT),
    "a tokenizer": OptionalInput(
        "tokenizer.json", read_folder, {"config.json": {}}, may_be_absent=False
    ),
    "a description of the prompts": OptionalInput(
        "special_tokens_map.json", read_folder, CHECKPOINT, may_be_absent=False
    ),
    "a file of CLIP": OptionalInput(
        "merges.txt",
        lambda root: imported("open_clip_classifier", root).files(),
        {"open_clip_config.json": {}},
    ),
    # What `farther init` looks for
    "image sets of VOC": OptionalInput("VOC2012/ImageSets", recognise, VOC_FILES),
    "a list of classes": OptionalInput(
        "classes.txt", recognise, {"cat/1.png": PICTURE}, may_be_absent=False
    ),
    # Images to predict
    "an image of a pattern": OptionalInput(
        "b.png", lambda root: open_source(f"{root}/*.png"), {"a.png": PICTURE}
    ),
}


@pytest.fixture(params=INPUTS)
def optional(request, tmp_path) -> tuple[OptionalInput, Path]:
    """An input, and the folder with all others."""
    chosen = INPUTS[request.param]
    (tmp_path / "root").mkdir()
    return chosen, lay.__wrapped__(tmp_path)(chosen.files)


def test_it_may_be_left_out(optional):
    chosen, root = optional
    if chosen.may_be_absent:
        chosen.read(root)


@pytest.mark.parametrize("kind", ["dangling", "loop"])
def test_a_broken_link_is_refused_by_name(optional, kind):
    chosen, root = optional
    link = root / chosen.link
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to({"dangling": "nowhere", "loop": link.name}[kind])
    with pytest.raises(
        DataError, match="that leads nowhere: correct the link, or delete it"
    ) as error:
        chosen.read(root)
    assert error.value.file == str(link)
    assert link.is_symlink()
    assert not (link.parent / "nowhere").exists()


#: Packages whose modules read what users bring.
READING = (
    "curation",
    "datasets",
    "derived",
    "detectors",
    "images",
    "methods",
    "projects",
    "review",
    "similarity",
)

#: Module → why it may ask a path itself whether it exists: nothing that may be left out is looked
#: for there.
ASKING = {
    "curation.check": "files that parameters name: absent is an error",
    "curation.sources": "ingested tables",
    "datasets.base": "the root: absent is an error",
    "datasets.bdd": "a file or a folder of labels: absent is an error",
    "datasets.image_folder": "the folder of a subset: absent is an error",
    "datasets.ingest": "extracted images, which it writes",
    "datasets.openimages": "folders of images: absent is an error",
    "datasets.presence": "says what is missing; extracted images",
    "datasets.unlabelled": "the folder of a subset: absent is an error",
    "datasets.wordnet": "files of WordNet that are needed, and the size of all others",
    "datasets.yolo": "the folder of images: absent is an error",
    "derived.folder": "the root: absent is an error",
    "detectors.check": "says what is missing",
    "detectors.coco_results": "files that parameters name: absent is an error",
    "detectors.detections": "a file or a folder of detections: absent is an error",
    "images.folders": "the folder of images: absent is an error",
    "detectors.imported.recognition": "a file or a folder: absent is an error",
    "detectors.imported.record_files": "a file or a folder of detections: absent is an error",
    "detectors.onnx": "a file or a folder: absent is an error",
    "detectors.hub": "the folder of a checkpoint: absent is an error",
    "detectors.networks.detr": "the file or folder of a checkpoint: absent is an error",
    "detectors.parquet": "a file or a folder of detections: absent is an error",
    "detectors.passes.streaming": "stored output of passes",
    "detectors.splits": "stored regions",
    "images.clip": "the configuration of a CLIP: absent is an error",
    "images.ray": "a folder that workers share: absent is an error",
    "images.read": "not a file: an error",
    "projects.entries": "the name of a file or a folder that was read",
    "projects.project": "whether a project has its pipeline",
    "projects.recognise": "the root: absent is an error",
    "projects.recognise_detector": "a file or a folder: absent is an error",
    "review.catalogue": "stored embeddings",
    "review.label_checker": "stored regions",
    "similarity.embed": "stored embeddings",
    "similarity.lookalikes": "stored embeddings",
    "similarity.sources": "stored embeddings",
}


def modules_that_ask() -> Iterator[str]:
    """Modules that read what users bring, and call `exists`, `is_file` or `is_dir` of a path."""
    root = Path(farther.__file__).parent
    for package in READING:
        for file in sorted((root / package).rglob("*.py")):
            calls = [
                node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)
            ]
            names = {call.func.attr for call in calls if isinstance(call.func, ast.Attribute)}
            if names & {"exists", "is_file", "is_dir"}:
                yield ".".join(file.relative_to(root).with_suffix("").parts)


def test_what_may_be_left_out_is_looked_for_by_the_functions_that_refuse_broken_links():
    assert sorted(set(modules_that_ask()) - set(ASKING)) == []


def test_a_path_below_a_file_or_a_link_to_a_folder_is_absent_or_present(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").touch()
    (tmp_path / "link").symlink_to("folder")
    assert is_present(tmp_path / "link/file")
    assert not is_present(tmp_path / "link/other")
    assert not is_present(tmp_path / "folder/file/below")
    assert (is_file(tmp_path / "link"), is_folder(tmp_path / "link")) == (False, True)
    assert (is_file(tmp_path / "link/file"), is_folder(tmp_path / "link/file")) == (True, False)


@pytest.mark.parametrize("name", ["n" * 300, "nul\0"])
def test_a_name_that_no_file_can_have_is_an_error(tmp_path, name):
    with pytest.raises(DataError, match="the file cannot be read: "):
        is_present(tmp_path / name)
