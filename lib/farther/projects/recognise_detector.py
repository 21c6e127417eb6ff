"""The adapter of a detector: each adapter is asked whether it recognises a file or folder."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

from farther import datasets, detectors
from farther.detectors import Detector
from farther.detectors.adapter import Adapter, registry
from farther.detectors.recognition import IdClasses, LabelledImage, RecognisedFile
from farther.errors import DataError, FartherError, shorten
from farther.monitor.bundle import Bundle
from farther.naming.extras import missing
from farther.projects.class_matching import Lookup, match_classes
from farther.projects.recognise import Dataset
from farther.tables import Header
from farther.tables.documents import read_json
from farther.tables.files import inside, is_file, is_present, open_binary
from farther.tables.folders import files_below

#: The file of a bundle.
BUNDLE = "bundle.json"
#: The pattern of adapters that open any file.
EVERY = "*"
#: Precision of the names of `Adapter.RECOGNISED_FILES`, the most precise first.
FILE_NAME = 0
ENDING = 1
ANY_FILE = 2
#: The configuration that `save_pretrained` of transformers writes.
CONFIG = "config.json"
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
    path: Path,
    dataset: Dataset,
    lookup: Lookup | None = None,
    adapters: Collection[str] = (),
) -> RecognisedDetector:
    """The adapter and the parameters of a detector: those of the first adapter that recognises it.

    Args:
        path: A bundle of `farther bundle`, or a file or folder that an adapter recognises.
        dataset: The ID dataset. Results without names have its numbers of classes, and state dicts,
            which name no classes, have its classes in its order.
        lookup: Sources of synonyms of the ID dataset's names in results with names.
        adapters: Names of adapters that are taken where they recognise it, even if others do, too.

    Raises:
        DataError: no adapter recognises it, and what it seems to be; a state dict has another
            number of classes; or a package is not installed that a checkpoint probably needs.
        ParameterError: an adapter has no such name.
        AbsentPackagesError: see `farther.naming.extras`.
    """
    if not is_present(path):
        raise DataError("the file does not exist", file=path)
    if is_file(path / BUNDLE):
        entry = {"weights": str(path), **_of_bundle(path)}
        return _described(entry, RecognisedFile(detector=_open(entry)))
    id_classes = _id_classes(dataset, lookup)
    for name in adapters:
        registry.check(name)
        if not _precisions(name, path, _names_of_files(path)):
            continue
        recognised = registry.get(name).recognises(path, id_classes)
        if recognised is not None:
            return _opened(path, name, recognised)

    absent_packages: dict[str, str] = {}
    adapters_by_precision = _adapters_by_precision(path)
    for precision in sorted(adapters_by_precision):
        names = adapters_by_precision[precision]
        for place, name in enumerate(names):
            try:
                recognised = registry.get(name).recognises(path, id_classes)
            except ModuleNotFoundError as error:
                absent_packages[name] = missing(error)
                continue
            if recognised is None:
                continue
            detector = _opened(path, name, recognised)
            if precision == ANY_FILE:
                # The names of its weights say which network a checkpoint is of.
                return detector
            others = _others_that_recognise(path, names[place + 1 :], id_classes)
            return _with_others(detector, name, others)
        if precision < ANY_FILE:
            for problem in absent_packages.values():
                raise DataError(problem, file=path)
        if precision == FILE_NAME:
            break
    probable_adapter = _probable_adapter(path)
    if probable_adapter in absent_packages:
        raise DataError(absent_packages[probable_adapter], file=path)
    raise DataError(f"no adapter opens it: it seems to be {_kind(path)}. {READ}", file=path)


def _opened(path: Path, name: str, recognised: RecognisedFile) -> RecognisedDetector:
    """A detector that an adapter recognised."""
    entry: dict[str, Any] = {"adapter": recognised.adapter or name, "weights": str(path)}
    if recognised.params:
        entry["params"] = recognised.params
    return _described(entry, recognised)


def _others_that_recognise(path: Path, adapters: Sequence[str], id_classes: IdClasses) -> list[str]:
    """Names of the adapters that recognise a file or folder, too."""
    others = []
    for name in adapters:
        try:
            recognised = registry.get(name).recognises(path, id_classes)
        except (ModuleNotFoundError, FartherError):
            continue
        if recognised is not None:
            others.append(name)
    return others


def _with_others(
    detector: RecognisedDetector, adapter: str, others: Sequence[str]
) -> RecognisedDetector:
    """A detector with the sentence that says which other adapters recognise it."""
    if not others:
        return detector
    choice = (
        f"adapters {adapter} and {' and '.join(others)} open it: {adapter} is taken "
        f"(--adapter {others[0]} chooses otherwise)"
    )
    if detector.assumed:
        choice = f"{choice}; {detector.assumed}"
    return replace(detector, assumed=choice)


def _described(entry: dict[str, Any], recognised: RecognisedFile) -> RecognisedDetector:
    """A detector with the header of its regions; it is opened if that was not done."""
    detector = recognised.detector or _open(entry)
    assumed = recognised.assumed or detector.assumed
    return RecognisedDetector(entry, detector.header(), recognised.content, assumed)


def _adapters_by_precision(path: Path) -> dict[int, list[str]]:
    """Names of the adapters that may recognise a file or folder, by the precision of that.

    Adapters that know the name of a file are asked before those that know its ending, and these
    before those that open any file; of the latter, the one that the file's first bytes name first.
    """
    adapters_by_precision: dict[int, list[str]] = {}
    names_of_files = _names_of_files(path)
    for name in registry.defining("recognises"):
        precisions = _precisions(name, path, names_of_files)
        if precisions:
            adapters_by_precision.setdefault(min(precisions), []).append(name)

    probable_adapter = _probable_adapter(path)
    for names in adapters_by_precision.values():
        if probable_adapter in names:
            names.remove(probable_adapter)
            names.insert(0, probable_adapter)
    return adapters_by_precision


def _precisions(adapter: str, path: Path, names_of_files: Sequence[str]) -> list[int]:
    """Precision of each name in `RECOGNISED_FILES` of an adapter that a file or folder has."""
    precisions = []
    for pattern in _patterns(adapter):
        if _fits(pattern, path, names_of_files):
            precisions.append(_precision(pattern))
    return precisions


def _patterns(adapter: str) -> tuple[str, ...]:
    """The names of files of an adapter; no module of farther is imported for them."""
    registration = registry.written.registrations.get(adapter)
    if registration is None:  # an extension
        return registry.get(adapter).RECOGNISED_FILES
    return registration.recognised_files or Adapter.RECOGNISED_FILES


def _names_of_files(path: Path) -> list[str]:
    """The names of the files of a folder and of its folders, or of a file, in lower case."""
    if not path.is_dir():
        return [path.name.lower()]
    return [file.name.lower() for file in files_below(path)]


def _fits(pattern: str, path: Path, names_of_files: Sequence[str]) -> bool:
    """Whether a file, or a file of a folder, has a name of an adapter."""
    if pattern == EVERY:
        return not path.is_dir()
    if "*" not in pattern:
        return is_file(path / pattern)
    return any(fnmatchcase(name, pattern) for name in names_of_files)


def _precision(pattern: str) -> int:
    """How precisely a name of `Adapter.RECOGNISED_FILES` says which files are meant."""
    if pattern == EVERY:
        return ANY_FILE
    if "*" in pattern:
        return ENDING
    return FILE_NAME


def _id_classes(dataset: Dataset, lookup: Lookup | None) -> IdClasses:
    """The classes of the ID dataset."""

    def with_synonym(names: Sequence[str]) -> set[str]:
        classes = set()
        for match in match_classes(names, dataset.categories, lookup):
            if match.relation == "same":
                classes.add(match.id_class)
        return classes

    return IdClasses(
        categories=dataset.categories,
        numbers=dataset.numbers,
        format=dataset.entry["format"],
        images=partial(_labelled_images, dataset),
        with_synonym=with_synonym,
    )


def _labelled_images(dataset: Dataset) -> Iterator[LabelledImage]:
    """The images of the ID dataset, with their classes, subset by subset, the smallest first."""
    reader = datasets.create(**dataset.entry)
    for subset in sorted(dataset.subsets, key=lambda name: dataset.counts.get(name, 0)):
        annotations = reader.read(subset)
        images = annotations.images
        objects = annotations.objects
        classes_by_row: list[set[str]] = [set() for _ in range(len(images))]
        for image, category in zip(objects.image, objects.category, strict=True):
            classes_by_row[image].add(annotations.categories[category])
        for row, classes in enumerate(classes_by_row):
            yield LabelledImage(images.image_id[row], images.file[row], subset, frozenset(classes))


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
        if written and written[1].decode() in registry.defining("recognises"):
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


def _kind(path: Path) -> str:
    """The probable kind of a file or folder.

    Raises:
        DataError: it is a folder of transformers with a network that has no adapter.
    """
    if is_file(path / CONFIG):
        problem = (
            f"{shorten(_architecture(path))} is not a transformers network for detection or "
            "classification of images"
        )
        raise DataError(problem, file=path / CONFIG, field="architectures")
    if path.is_dir():
        return "a folder without a config.json, results or a regions.json"
    with open_binary(path) as file:
        start = file.read(16)
    if start[8:9] == b"{":
        return "a safetensors file written by another program"
    if start.startswith(b"PK") and not is_zipfile(path):
        return "a damaged or incomplete file of `torch.save`: copy or fetch it again"
    if start.startswith((b"PK", b"\x80")):
        return _kind_of_torch_file(path)
    for beginning, kind in BEGINNINGS.items():
        if start.startswith(beginning):
            return kind
    if start.isascii() and start.decode().strip().isprintable():
        return "text"
    return "something else"


def _kind_of_torch_file(path: Path) -> str:
    """The probable kind of a file of `torch.save`, or of a pickle; see `_kind`."""
    # It imports PyTorch.
    from farther.detectors.networks.weights import read_weights

    try:
        names = read_weights(path)
    except DataError:
        if is_zipfile(path):
            return f"a file of `torch.save` with more than weights ({_problem_of_yolo(path)})"
        return (
            "a pickle (Detectron2's zoo has such): where you trust it, load it and torch.save its "
            "weights"
        )
    for beginning, kind in STATES.items():
        if any(f".{beginning}" in f".{name}" for name in names):
            return kind
    first_name = next(iter(names), "")
    return f"a state dict of a network that is not known, with {shorten(first_name)}"


def _architecture(folder: Path) -> str:
    """Name of the network of a folder of transformers; "" where it names none."""
    config = read_json(folder / CONFIG)
    architectures = config.get("architectures") if isinstance(config, dict) else None
    if isinstance(architectures, list) and architectures:
        return str(architectures[0])
    return ""


def _problem_of_yolo(path: Path) -> str:
    """The problem of the YOLO adapter with a file that PyTorch wrote; "" without its packages."""
    try:
        detector = detectors.create("yolo", weights=path)
        if isinstance(detector, Detector):
            detector.load_network()
    except FartherError as error:
        return str(getattr(error, "problem", error))
    except ModuleNotFoundError:
        pass
    return ""


def _of_bundle(folder: Path) -> dict[str, Any]:
    """The detector of a bundle that `farther bundle` wrote."""
    detector = Bundle.load(folder).info.detector
    weights = str(detector.weights)
    if detector.copied:
        weights = str(inside(folder, detector.weights))
    return {"adapter": detector.adapter, "params": detector.params, "weights": weights}


def _open(entry: dict[str, Any]) -> Adapter:
    """The detector of an entry; a damaged file is refused."""
    detector: Adapter = detectors.of_entry(entry)
    if isinstance(detector, Detector):
        detector.load_network()
    return detector
