"""Files of a project: params.yaml, a rules file, and decisions; made anew, or with entries added."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from farther.curation import benchmark as read_benchmark
from farther.curation import read_rules
from farther.curation.decisions import HEADER
from farther.detectors.known_classes import check_classes
from farther.errors import DataError, ParameterError, choose, shorten
from farther.printable import printable, printable_line
from farther.projects.assumptions import (
    PARAMS,
    Assumption,
    of_categories,
    of_dataset,
    of_detector,
    shown,
)
from farther.projects.entries import ProjectDataset, ProjectDetector, name_of
from farther.projects.proposals import Lookup, propose
from farther.projects.recognise import Dataset, class_folders, describe, recognise
from farther.projects.yaml_text import inserted
from farther.tables.documents import read_yaml
from farther.tables.files import is_present, read_text
from farther.tables.folders import resolved
from farther.tables.writing import write_aside

SUBSETS = ("train", "val", "test")
#: Parts of an only subset.
PARTS = {"train": 0.6, "val": 0.2, "test": 0.2}
#: Most characters of a key of YAML.
LONGEST_KEY = 1024


@dataclass(frozen=True)
class ProjectFiles:
    """Files of a project that are not written yet.

    Args:
        folder: The project's folder.
        texts: Content of the files by path in the folder.
        assumptions: What was read and assumed.
    """

    folder: Path
    texts: dict[str, str]
    assumptions: list[Assumption]

    def write(self) -> None:
        """Writes the files; decisions that are there stay.

        Raises:
            DataError: the file of decisions is a broken link.
        """
        for name, text in self.texts.items():
            file = self.folder / name
            if text == HEADER and is_present(file):
                continue
            with write_aside(file) as aside:
                aside.write_text(text, encoding="utf-8")

    def assumed(self) -> list[str]:
        """What was read and assumed, each with the line where it can be changed."""
        return shown(self.assumptions, self.texts)


def init(
    folder: str | Path,
    id: str | Path,
    ood: Sequence[str | Path],
    detectors: Sequence[str | Path],
    lookup: Lookup,
    *,
    force: bool = False,
) -> ProjectFiles:
    """A project for one ID dataset, OOD datasets and detectors: params.yaml, rules file and decisions.

    Every proposal is written with a comment where it can be edited. Nothing is written before
    `ProjectFiles.write`.

    Args:
        folder: The project's folder. Parameters of CLIP are written if it has a dvc.yaml with those
            stages.
        id: Folder of the ID dataset.
        ood: Folders of the OOD datasets.
        detectors: Each a checkpoint, a COCO results file, or a folder of detections.
        lookup: Where names are looked up.
        force: Replace a params.yaml and a rules file that are there.

    Raises:
        ParameterError: a params.yaml is there, or two datasets would have one name.
        DataError: a format is not known, or a file is damaged.
    """
    folder = Path(folder)
    if is_present(folder / PARAMS) and not force:
        advice = "--add adds a detector or an OOD dataset to it, --force replaces it; or name another folder"
        raise ParameterError(f"{folder / PARAMS} already exists: {advice}")
    known, runs = _id_dataset(Path(id), [Path(path) for path in detectors], lookup)
    classifies = any(run.found.header.whole_images for run in runs)
    id_classes = list(dict.fromkeys(name for run in runs for name in run.id_classes))
    sources = [
        ProjectDataset(known.name, known.dataset, propose(known.dataset.categories, id_classes))
    ]
    for path in ood:
        names = [source.name for source in sources]
        sources.append(_ood(Path(path), names, id_classes, lookup, classifies=classifies))
    benchmark = known.name
    rules = f"data/benchmarks/{benchmark}.yaml"
    subsets, note = _id_subsets(known.dataset.subsets)
    values = {"name": benchmark, "subsets": subsets, "clip": (folder / "dvc.yaml").exists()}
    named = [(name, *_names_of(name, sources)) for name in id_classes]
    texts = {
        PARAMS: _template("params.yaml").render(sources=sources, runs=runs, **values),
        rules: _template("rules.yaml").render(sources=sources, id_classes=named),
        f"data/decisions/{benchmark}.csv": HEADER,
    }
    noted = (
        [Assumption(f"{known.name}: {note}", ("benchmarks", benchmark, "subsets"))] if note else []
    )
    noted += [one for run in runs for one in of_detector(run, known)]
    noted += [one for source in sources for one in of_dataset(source)]
    noted += [one for source in sources[1:] for one in of_categories(source, rules)]
    return ProjectFiles(folder, texts, noted)


def add(
    folder: str | Path,
    ood: Sequence[str | Path],
    detectors: Sequence[str | Path],
    lookup: Lookup,
    *,
    benchmark: str | None = None,
) -> ProjectFiles:
    """A project with more OOD datasets and detectors; every line that is there stays as it is.

    Args:
        folder: The project's folder.
        ood, detectors, lookup: See `init`.
        benchmark: The benchmark that they join; needed where there are several.

    Raises:
        ParameterError: there is no such benchmark; a detector has classes that are not its ID
            classes; or the files have another form than those of `init`, with what to write by
            hand.
        DataError: a format is not known, or a file is damaged.
    """
    folder = Path(folder)
    text, params = read_text(folder / PARAMS), read_yaml(folder / PARAMS)
    benchmarks = params.get("benchmarks") or {}
    if benchmark is None and len(benchmarks) != 1:
        raise ParameterError(f"{folder / PARAMS} has several benchmarks: name one with --benchmark")
    benchmark = choose("benchmark", benchmark or next(iter(benchmarks)), benchmarks)
    made = benchmarks[benchmark]
    rules_file, protocol = str(made["rules"]), str(made.get("protocol", "paper"))
    rules = read_text(folder / rules_file)
    id_classes = read_rules(read_benchmark(benchmark, made), folder).id_classes
    of_id = params["datasets"][made["id"]]
    known = ProjectDataset(made["id"], describe({**of_id, "root": str(folder / of_id["root"])}))
    noted: list[Assumption] = []
    for path in detectors:
        run = ProjectDetector.open(
            Path(path), params["detectors"], known.dataset, id_classes, lookup
        )
        check_classes(run.found.header, run.classes, id_classes)
        params["detectors"][run.name] = run.entry(benchmark)
        text = inserted(text, ["detectors"], _entries().detector(run, benchmark).splitlines())
        noted += of_detector(run, known)
    for path in ood:
        source = _ood(
            Path(path),
            params["datasets"],
            id_classes,
            lookup,
            classifies=known.dataset.whole_images,
        )
        params["datasets"][source.name] = source.dataset.entry
        text = inserted(text, ["datasets"], _entries().dataset(source).splitlines())
        text = inserted(
            text, ["benchmarks", benchmark, "splits"], _entries().splits(source).splitlines()
        )
        rules = _with_categories(rules, source, protocol)
        noted += [*of_dataset(source), *of_categories(source, rules_file, protocol)]
    return ProjectFiles(folder, {PARAMS: text, **({rules_file: rules} if ood else {})}, noted)


def _with_categories(rules: str, source: ProjectDataset, protocol: str) -> str:
    """A rules file with the categories of one OOD dataset more."""
    for id_class, categories in source.by_class("same").items():
        rules = inserted(rules, ["id_classes", id_class], [f"{source.name}: {_flow(categories)}"])
    for relation in ("overlap", "near"):
        lines = _entries().categories(source, relation).splitlines()
        rules = inserted(rules, ["protocols", protocol, relation], lines)
    return inserted(rules, ["protocols", protocol, "far"], _entries().far(source).splitlines())


def _id_dataset(
    path: Path, detector_paths: Sequence[Path], lookup: Lookup
) -> tuple[ProjectDataset, list[ProjectDetector]]:
    """The ID dataset, recognised, and the detectors, opened with its classes.

    Folders of images without subsets are classes where all detectors are classifiers, or have
    classes of these names; else they are photographs that were sorted into folders.

    Raises:
        DataError: the images have no boxes; or see `ProjectDetector.open`.
    """
    folder = resolved(path)
    name = name_of(path, ())
    dataset = recognise(folder)
    folders = (
        class_folders(folder) if dataset.entry["format"] in ("images", "image_folder") else None
    )
    if folders is not None:
        try:
            runs = _opened(detector_paths, folders, lookup)
        except DataError as error:
            if dataset.unlabelled:
                raise _without_boxes(path, f". With its folders as classes: {error}") from None
        else:
            if _are_classes(folders, runs, is_only_reading=bool(dataset.unlabelled)):
                return ProjectDataset(name, folders), runs
    if dataset.unlabelled:
        raise _without_boxes(path)
    return ProjectDataset(name, dataset), _opened(detector_paths, dataset, lookup)


def _without_boxes(path: Path, reason: str = "") -> DataError:
    problem = "images without boxes: the ID dataset needs boxes of the known classes, or, for a classifier, one folder"
    return DataError(f"{problem} of images per class{reason}", file=path)


def _are_classes(
    folders: Dataset, runs: Sequence[ProjectDetector], *, is_only_reading: bool
) -> bool:
    """Whether folders of images are the classes of detectors.

    Args:
        folders: The dataset with the folders as classes.
        runs: The detectors.
        is_only_reading: Its files cannot be read otherwise but as images without labels, which
            serve no ID dataset.
    """
    categories = set(folders.categories)
    for run in runs:
        names_classes = "classes" not in run.found.entry.get(
            "params", {}
        )  # else they were taken from the folders
        is_named = names_classes and len(categories & set(run.id_classes)) >= len(categories) / 2
        is_classifier = run.found.header.whole_images and is_only_reading
        if not is_named and not is_classifier:
            return False
    return True


def _opened(paths: Sequence[Path], dataset: Dataset, lookup: Lookup) -> list[ProjectDetector]:
    """The detectors of a new project."""
    runs: list[ProjectDetector] = []
    for path in paths:
        names = [run.name for run in runs]
        runs.append(ProjectDetector.open(path, names, dataset, dataset.categories, lookup))
    return runs


def _ood(
    path: Path,
    taken: Collection[str],
    id_classes: Sequence[str],
    lookup: Lookup,
    *,
    classifies: bool,
) -> ProjectDataset:
    """An OOD dataset, recognised, with what its categories were taken for.

    Args:
        path: Its folder.
        taken: Names of other datasets.
        id_classes: The known classes.
        lookup: Where names are looked up.
        classifies: The project is about labels of whole images: folders of images are classes.
    """
    dataset = recognise(resolved(path))
    if classifies and dataset.unlabelled:
        dataset = class_folders(resolved(path)) or dataset
    return ProjectDataset(
        name_of(path, taken), dataset, propose(dataset.categories, id_classes, lookup)
    )


def _template(name: str) -> Template:
    """A file of the project, or the parts of it."""
    loader = PackageLoader("farther.projects", "templates")
    texts = Environment(
        loader=loader,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    texts.filters |= {"flow": _flow, "key": _key, "line": printable_line}
    return texts.get_template(f"{name}.jinja")


def _entries() -> Any:
    """The parts of these files that are written for one dataset or detector."""
    return _template("entries").module


def _id_subsets(subsets: Sequence[str]) -> tuple[dict[str, Any], str]:
    """The subset of each ID split, or its part of one where there are not three, and a remark on the latter."""
    if set(SUBSETS) <= set(subsets):
        return {name: name for name in SUBSETS}, ""
    if len(subsets) == 1:
        parts = {name: {"of": subsets[0], "part": part} for name, part in PARTS.items()}
        return (
            parts,
            f"{subsets[0]} is divided into train, val and test, by the digests of the image files",
        )
    train = "train" if "train" in subsets else subsets[0]
    others = [name for name in subsets if name != train]
    if len(others) == 1:
        half = {"of": others[0], "part": 0.5}
        return {
            "train": train,
            "val": half,
            "test": half,
        }, f"val and test are halves of {others[0]}"
    val, test = (
        ("val" if "val" in others else others[0]),
        ("test" if "test" in others else others[-1]),
    )
    return dict(zip(SUBSETS, (train, val, test), strict=True)), ""


def _names_of(
    id_class: str, sources: Sequence[ProjectDataset]
) -> tuple[dict[str, list[str]], list[str]]:
    """Names of an ID class by dataset, and the reasons of those that are not its own."""
    same = {
        source.name: [one for one in source.of("same") if one.id_class == id_class]
        for source in sources
    }
    named = {key: [one.category for one in value] for key, value in same.items() if value}
    others = [
        (key, one) for key, value in same.items() for one in value if one.category != id_class
    ]
    return named, list(
        dict.fromkeys(f"{key}: {one.category} is {one.reason}" for key, one in others)
    )


def _flow(value: Any) -> str:
    """A value as YAML in one line."""
    options: dict[str, Any] = {"default_flow_style": True, "sort_keys": False, "width": 10**6}
    text = str(yaml.safe_dump(value, allow_unicode=True, **options))
    if printable(text) != text:  # such as a direction of writing
        text = str(yaml.safe_dump(value, **options))
    return text.removesuffix("\n").removesuffix("\n...").strip()


def _key(name: str) -> str:
    """A class name as a key of YAML."""
    if len(text := _flow(name)) > LONGEST_KEY:
        problem = f"the class {shorten(name)} has {len(name):,} characters: give it a shorter name"
        raise ParameterError(f"{problem}; a key of YAML has at most {LONGEST_KEY:,}")
    return text
