"""The adapter of a detector, recognised from its files."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

import numpy as np

from farther import detectors
from farther.detectors import Detector
from farther.errors import DataError, FartherError, shorten
from farther.monitor.bundle import Bundle
from farther.naming.extras import missing, require
from farther.projects.class_matching import Lookup
from farther.projects.recognise import Dataset
from farther.projects.recognise_results import recognise_results
from farther.tables import Header
from farther.tables.documents import read_json
from farther.tables.files import inside, is_file, is_present, open_binary
from farther.tables.folders import listed

#: Adapters that open a checkpoint which names its classes, in the order in which they are tried.
ADAPTERS = ("yolo", "faster_rcnn", "detr", "classifier")
#: The configuration that `save_pretrained` of transformers writes.
CONFIG = "config.json"
#: Ending of the names of networks of transformers → their adapter; the boxes of RF-DETR's
#: segmentation networks are read without the masks.
ENDINGS = {
    "ForObjectDetection": "detr",
    "RfDetrForInstanceSegmentation": "detr",
    "ForImageClassification": "transformers_classifier",
}
#: Shape of the image on which a network is tried.
TEST_IMAGE = (480, 640, 3)
#: The assumption about a file without names of classes.
UNNAMED = "it names no classes: assumed to be the ID dataset's, in its order"
COMPARED = f"{UNNAMED} (farther doctor compares)"
#: The assumption about Parquet whose classes are numbers without names.
NUMBERED = "classes are numbers: assumed to be the ID dataset's, in its order, from 0"
#: Bytes of a checkpoint in which `WORDS` are looked for.
BEGINNING = 2**20
#: A word in a file of PyTorch → the adapter of the file.
WORDS = {b"ultralytics": "yolo", b"refpoint_embed": "detr"}
#: First bytes of a file → its kind, for a message.
BEGINNINGS = {
    b"\x89HDF": "a file of Keras (HDF5)",
    b"\x08": "an ONNX graph: call it .onnx",
    b"\x1f\x8b": "an archive: unpack it",
}
_MMDETECTION = (
    "weights of MMDetection: give the JSON files that its inferencer writes (pred_out_dir)"
)
_DETECTRON2 = (
    "weights of Detectron2 of another network than Faster R-CNN: give the "
    "coco_instances_results.json of its evaluator"
)
_DETR = "weights of DETR's own code: give a folder of transformers with this network"
#: Beginning of the names of weights in a state dict → its kind, for a message.
STATES = {
    "visual.": "weights of a CLIP: name their architecture by hand "
    "(farther list detectors open_clip_classifier)",
    "bbox_head.": _MMDETECTION,
    "roi_head.": _MMDETECTION,
    "backbone.bottom_up.": _DETECTRON2,
    "transformer.decoder.": _DETR,
    "model.0.": "a state dict of Ultralytics: give the .pt file that training wrote",
}
READ = (
    "Supported are checkpoints of Ultralytics, of rfdetr and of farther, state dicts of "
    "torchvision's detectors and classifiers, folders of transformers, ONNX graphs (.onnx), "
    "detections (COCO results, CSV, Ultralytics' txt and JSON, supervision, FiftyOne, MMDetection) "
    "and folders of Parquet"
)


@dataclass(frozen=True)
class RecognisedDetector:
    """A detector, or its detections, as it was recognised.

    Args:
        entry: Its entry in section `detectors`, without a benchmark.
        header: The header of its regions.
        content: The content of the files in a few words, where `init` should print it.
        assumed: A sentence about what the files do not say; empty where nothing was assumed.
    """

    entry: dict[str, Any]
    header: Header
    content: str = ""
    assumed: str = ""


def recognise_detector(
    path: Path, dataset: Dataset, lookup: Lookup | None = None
) -> RecognisedDetector:
    """The adapter and the parameters of a detector.

    Args:
        path: A checkpoint; a folder of transformers; a file or folder of COCO results; or a folder
            of Parquet.
        dataset: The ID dataset. Results without names have its numbers of classes, and state dicts,
            which name no classes, have its classes in its order.
        lookup: Sources of synonyms of the ID dataset's names in results with names.

    Raises:
        DataError: it is none of these, and what it seems to be; a state dict has another number of
            classes; or a package is not installed that a checkpoint probably needs.
        AbsentPackagesError: see `farther.naming.extras`.
    """
    if not is_present(path):
        raise DataError("the file does not exist", file=path)
    for name, entry_of_folder in FOLDERS.items():
        if is_file(path / name):
            return _open({"weights": str(path), **entry_of_folder(path, dataset)})
    results = recognise_results(path, dataset, lookup)
    if results is not None:
        return _open({**results.entry, "weights": str(path)}, results.content, results.assumed)
    parquet = _of_parquet(path, dataset)
    if parquet is not None:
        return _open(parquet, assumed=NUMBERED if "params" in parquet else "")
    if path.suffix.lower() == ".onnx":
        entry, assumed = _of_onnx(path, dataset)
        return _open(entry, assumed=assumed)
    rfdetr_entry = _of_rfdetr(path, dataset)
    if rfdetr_entry is not None:
        return _open(rfdetr_entry, assumed=COMPARED if "params" in rfdetr_entry else "")
    return _recognise_checkpoint(path, dataset)


def _recognise_checkpoint(path: Path, dataset: Dataset) -> RecognisedDetector:
    """A checkpoint, by the first adapter that opens it, or a state dict."""
    absent_packages: dict[str, str] = {}
    yolo_problem = ""
    for adapter in ADAPTERS:
        try:
            return _open({"adapter": adapter, "weights": str(path)})
        except FartherError as error:
            problem = str(getattr(error, "problem", error))
            if problem.startswith("a network of Ultralytics"):
                raise
            yolo_problem = yolo_problem or problem
        except ModuleNotFoundError as error:
            absent_packages[adapter] = missing(error)
    probable_adapter = _probable_adapter(path)
    if probable_adapter in absent_packages:
        raise DataError(absent_packages[probable_adapter], file=path)

    state = None
    if probable_adapter is not None:
        # torchvision loads slowly
        from farther.projects.recognise_state_dict import recognise_state_dict

        state = recognise_state_dict(path, dataset)
    if state is not None:
        entry = {"adapter": state.adapter, "params": state.params, "weights": str(path)}
        return _open(entry, assumed="; ".join(state.assumed))
    kind = _kind(path, yolo_problem)
    raise DataError(f"no adapter opens it: it seems to be {kind}. {READ}", file=path)


def _probable_adapter(path: Path) -> str | None:
    """The adapter of a checkpoint, as far as words in the file tell; None for other files.

    No package of a network is needed. Most checkpoints without such words are state dicts of
    torchvision.
    """
    if not is_file(path):
        return None
    with open_binary(path) as file:
        start = file.read(BEGINNING)
    if start[8:9] == b"{":
        written = re.search(rb'"format":\s*"farther\.(\w+)"', start)
        if written and written[1].decode() in ADAPTERS:
            return written[1].decode()
        return "faster_rcnn"
    if is_zipfile(path):
        with ZipFile(path) as archive:
            pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            if not pickles:
                return None
            with archive.open(pickles[0]) as member:
                start = member.read(BEGINNING)
    elif not start.startswith(b"\x80"):
        return None
    for word, adapter in WORDS.items():
        if word in start:
            return adapter
    return "faster_rcnn"


def _kind(path: Path, problem: str) -> str:
    """The probable kind of a file or folder.

    Args:
        path: The file or folder.
        problem: The YOLO adapter's problem with it, for a file that PyTorch wrote.
    """
    if path.is_dir():
        return "a folder without a config.json, results or a regions.json"
    with open_binary(path) as file:
        start = file.read(16)
    if start[8:9] == b"{":
        return "a safetensors file written by another program"
    if start.startswith(b"PK") and not is_zipfile(path):
        return "a damaged or incomplete file of `torch.save`: copy or fetch it again"
    if start.startswith((b"PK", b"\x80")):
        return _kind_of_torch_file(path, problem)
    for beginning, kind in BEGINNINGS.items():
        if start.startswith(beginning):
            return kind
    if start.isascii() and start.decode().strip().isprintable():
        return "text"
    return "something else"


def _kind_of_torch_file(path: Path, problem: str) -> str:
    """The probable kind of a file of `torch.save`, or of a pickle; see `_kind`."""
    from farther.detectors.networks.weights import read_weights

    try:
        names = read_weights(path)
    except DataError:
        if is_zipfile(path):
            return f"a file of `torch.save` with more than weights ({problem})"
        return (
            "a pickle (Detectron2's zoo has such): where you trust it, load it and torch.save its "
            "weights"
        )
    for beginning, kind in STATES.items():
        if any(f".{beginning}" in f".{name}" for name in names):
            return kind
    first_name = next(iter(names), "")
    return f"a state dict of a network that is not known, with {shorten(first_name)}"


def _of_bundle(folder: Path, dataset: Dataset) -> dict[str, Any]:
    """The detector of a bundle that `farther bundle` wrote."""
    detector = Bundle.load(folder).info.detector
    weights = str(detector.weights)
    if detector.copied:
        weights = str(inside(folder, detector.weights))
    return {"adapter": detector.adapter, "params": detector.params, "weights": weights}


def _of_open_clip(folder: Path, dataset: Dataset) -> dict[str, Any]:
    """A CLIP as a zero-shot classifier of the ID classes."""
    return {"adapter": "open_clip_classifier", "params": {"classes": dataset.categories}}


def _of_transformers(folder: Path, dataset: Dataset) -> dict[str, Any]:
    """The adapter of a folder that `save_pretrained` wrote.

    With prompts, the ID classes, where the network needs some.

    Raises:
        DataError: its network neither detects nor classifies.
    """
    require("a network of transformers", "torch", "torchvision", "transformers")
    from farther.detectors.open_vocabulary import CLASSES

    config = read_json(folder / CONFIG)
    if not isinstance(config, dict):
        problem = f"expected the object that transformers writes, found {shorten(config)}"
        raise DataError(problem, file=folder / CONFIG)
    if str(config.get("model_type")) in CLASSES:
        return {"adapter": "open_vocabulary", "params": {"classes": dataset.categories}}
    architectures = config.get("architectures")
    architecture = ""
    if isinstance(architectures, list) and architectures:
        architecture = str(architectures[0])
    for ending, adapter in ENDINGS.items():
        if architecture.endswith(ending):
            return {"adapter": adapter}
    problem = (
        f"{shorten(architecture)} is not a transformers network for detection or classification of "
        "images"
    )
    raise DataError(problem, file=folder / CONFIG, field="architectures")


def _of_rfdetr(path: Path, dataset: Dataset) -> dict[str, Any] | None:
    """The entry of a checkpoint of the package rfdetr; None for other files.

    With the ID dataset's classes if the checkpoint names none.

    Raises:
        DataError: it names no classes, and has another number of them than the ID dataset.
    """
    if not path.is_file() or path.suffix.lower() == ".safetensors":
        return None
    try:
        from farther.detectors.networks.rfdetr_import import COCO_ROWS, read_rfdetr

        file = read_rfdetr(path)
    except (DataError, ModuleNotFoundError):
        return None
    if file is None:
        return None

    entry: dict[str, Any] = {"adapter": "detr", "weights": str(path)}
    if file.class_names is None and file.rows != COCO_ROWS:
        count = len(dataset.categories)
        if file.rows not in (count, count + 1):
            problem = (
                f"it names no classes, and a class head of {file.rows} rows is not that of the "
                f"{count} of the ID dataset (one row per class, and one more)"
            )
            raise DataError(problem, file=path)
        entry["params"] = {"classes": dataset.categories}
    return entry


def _of_parquet(path: Path, dataset: Dataset) -> dict[str, Any] | None:
    """The entry of Parquet files, with the ID dataset's classes where no file names them.

    None for other files and folders.
    """
    entry: dict[str, Any] = {"adapter": "parquet", "weights": str(path)}
    if path.is_dir():
        if listed(path, "**/regions.json"):
            return entry
        if not listed(path, "**/*.parquet"):
            return None
    elif path.suffix != ".parquet":
        return None
    elif is_file(path.parent / "regions.json"):
        return entry
    entry["params"] = {"classes": dataset.categories}
    return entry


def _of_onnx(path: Path, dataset: Dataset) -> tuple[dict[str, Any], str]:
    """The entry of an ONNX graph.

    It detects objects in one image, so that a graph that cannot run is refused here.

    Returns:
        The entry, and what was assumed: the ID dataset's classes, and a size, where the graph lacks
        them.

    Raises:
        AbsentPackagesError: ONNX Runtime or another package is not installed.
        DataError: its layout is not known, it has another number of classes, or it does not run.
    """
    detectors.get("onnx")
    from farther.detectors.onnx import YOLO_SIZE, Onnx

    params: dict[str, Any] = {}
    assumed = []
    detector = Onnx(weights=path)
    if not detector.names_classes:
        params["classes"] = dataset.categories
        assumed.append(COMPARED)
    if detector.lacks_size:
        params["size"] = YOLO_SIZE
        assumed.append(f"its input varies: images are given {YOLO_SIZE} pixels (parameter size)")
    entry: dict[str, Any] = {"adapter": "onnx", "weights": str(path)}
    if params:
        entry["params"] = params
    try:
        detectors.of_entry(entry).detect(np.zeros(TEST_IMAGE, dtype=np.uint8))
    except DataError as error:
        if error.field != "classes" or "classes" not in params:
            raise
        problem = (
            "the graph names no classes, and they cannot be the ID dataset's: "
            f"{error.problem}. Make the project with another detector, then write "
            "{adapter: onnx, weights: …, params: {classes: […]}} into section 'detectors' of "
            "params.yaml"
        )
        raise DataError(problem, file=path) from None
    return entry, "; ".join(assumed)


#: A file in a folder of one detector → the function that makes the folder's entry.
FOLDERS: dict[str, Callable[[Path, Dataset], dict[str, Any]]] = {
    "bundle.json": _of_bundle,
    "open_clip_config.json": _of_open_clip,
    CONFIG: _of_transformers,
}


def _open(entry: dict[str, Any], content: str = "", assumed: str = "") -> RecognisedDetector:
    """The detector of an entry; a damaged file is refused."""
    detector = detectors.of_entry(entry)
    if isinstance(detector, Detector):
        detector.load_network()
    return RecognisedDetector(entry, detector.header(), content, assumed or detector.assumed)
