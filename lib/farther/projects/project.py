"""Files of a project: params.yaml, a class mapping, and decisions.

They are new, or existing ones with entries added.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from farther import methods
from farther.curation import benchmark as read_benchmark
from farther.curation import read_rules
from farther.curation.decisions import HEADER
from farther.datasets.subset_names import SUBSETS, SubsetNames, read_names
from farther.detectors.known_classes import check_classes
from farther.errors import DataError, ParameterError, choose, shorten
from farther.evaluation.deploy.results import Budget
from farther.projects.assumptions import (
    PARAMS,
    Assumption,
    assumption_lines,
    of_categories,
    of_dataset,
    of_detector,
)
from farther.projects.class_matching import Lookup, match_classes
from farther.projects.entries import ProjectDataset, ProjectDetector, name_of
from farther.projects.recognise import (
    NO_CHOICES,
    Choices,
    Dataset,
    class_folders,
    combined,
    describe,
    recognise,
)
from farther.projects.yaml_text import inserted
from farther.tables.documents import read_yaml
from farther.tables.files import is_present, read_text
from farther.tables.folders import resolved
from farther.tables.writing import write_aside
from farther.text.printable import printable, printable_line
from farther.text.terminal import working

#: Parts of a subset that is the only one.
PARTS = {"train": 0.6, "val": 0.2, "test": 0.2}

#: Limit on false alarms of the template.
FALSE_ALARMS = 0.05
#: The methods of a new project, in the order of its file, each with its line.
METHOD_LINES = {
    "confidence": "confidence: {}    # the detector's own score: the baseline",
    "msp": "msp: {}",
    "energy": "energy: {temperature: 1}",
    "knn": "knn: {k: 10}",
    "mahalanobis": "mahalanobis: {}",
    "lard_mahalanobis": "lard_mahalanobis: {components: 32}    # of earlier layers",
}
#: Most characters of a key of YAML.
LONGEST_KEY = 1024


@dataclass(frozen=True)
class ProjectFiles:
    """Files of a project that are not written yet.

    Args:
        folder: The project's folder.
        texts: Content of the files by path in the folder.
        assumptions: Statements about the files and about assumptions.
    """

    folder: Path
    texts: dict[str, str]
    assumptions: list[Assumption]

    def write(self) -> None:
        """Writes the files, params.yaml last; an existing file of decisions stays as it is.

        A project that was stopped before is begun again, since it has no params.yaml.

        Raises:
            DataError: the file of decisions is a broken link.
        """
        names = sorted(self.texts, key=lambda name: name == PARAMS)
        for name in names:
            text = self.texts[name]
            file = self.folder / name
            if text == HEADER and is_present(file):
                continue
            with write_aside(file) as aside:
                aside.write_text(text, encoding="utf-8")

    def assumed(self) -> list[str]:
        """The assumptions, each with the line to change it."""
        return assumption_lines(self.assumptions, self.texts)


def init(
    folder: str | Path,
    id: str | Path,
    ood: Sequence[str | Path],
    detectors: Sequence[str | Path],
    lookup: Lookup,
    *,
    choices: Choices = NO_CHOICES,
    force: bool = False,
) -> ProjectFiles:
    """The files of a project for one ID dataset, OOD datasets and detectors.

    Every suggestion is written with a comment where it can be edited. Nothing is written before
    `ProjectFiles.write`.

    Args:
        folder: The project's folder. Parameters of CLIP are written if it has a dvc.yaml with those
            stages.
        id: Folder of the ID dataset.
        ood: Folders of the OOD datasets.
        detectors: Checkpoints, COCO results files, or folders of detections.
        lookup: Sources of synonyms and similarities of class names.
        choices: Formats and adapters for files that fit several.
        force: Replace existing files.

    Raises:
        ParameterError: a params.yaml exists, two datasets would have one name, or nothing is of a
            format or adapter that `choices` names.
        DataError: a format is not known, or a file is damaged.
    """
    folder = Path(folder)
    if is_present(folder / PARAMS) and not force:
        advice = (
            "--add adds a detector or an OOD dataset to it, --force replaces it; "
            "or name another folder"
        )
        raise ParameterError(f"{folder / PARAMS} already exists: {advice}")

    id_source, runs = _id_dataset(Path(id), [Path(path) for path in detectors], lookup, choices)
    id_splits = _id_splits(id_source.dataset)
    id_source = replace(id_source, dataset=id_splits.dataset)
    id_classes = _all_classes(runs)
    id_matches = match_classes(id_source.dataset.categories, id_classes)
    sources = [replace(id_source, matches=id_matches)]
    are_classifiers = any(run.recognised.header.whole_images for run in runs)
    for path in ood:
        names = [source.name for source in sources]
        recognised = _ood_dataset(Path(path), choices, are_classifiers=are_classifiers)
        sources.append(_with_matches(Path(path), names, recognised, id_classes, lookup))
    choices.refuse_unused(
        [source.dataset for source in sources],
        [run.recognised.entry["adapter"] for run in runs],
    )

    benchmark = id_source.name
    rules = f"data/benchmarks/{benchmark}.yaml"
    has_clip = _has_clip(folder)
    named_classes = [(name, *_names_of(name, sources)) for name in id_classes]
    texts = {
        PARAMS: _template("params.yaml", folder).render(
            sources=sources,
            runs=runs,
            name=benchmark,
            subsets=id_splits.subsets,
            methods=_method_lines(runs),
            clip=has_clip,
            questions=_questions(sources, id_splits.questions),
        ),
        rules: _template("rules.yaml", folder).render(sources=sources, id_classes=named_classes),
        f"data/decisions/{benchmark}.csv": HEADER,
    }

    assumptions = [Assumption(text, ("deploy",)) for text in _too_few(id_splits)]
    for text in (*id_splits.questions, *id_splits.notes):
        place = ("benchmarks", benchmark, "subsets")
        assumptions.append(Assumption(f"{benchmark}: {text}", place))
    for run in runs:
        assumptions += of_detector(run, id_source)
    for source in sources:
        assumptions += of_dataset(source)
    for source in sources[1:]:
        assumptions += of_categories(source, rules)
    return ProjectFiles(folder, texts, assumptions)


def _too_few(id_splits: _IdSplits) -> list[str]:
    """A sentence where the ID validation images are too few for the limit on false alarms."""
    subset = id_splits.subsets.get("val")
    part = 1.0
    if isinstance(subset, dict):
        part = subset["part"]
        subset = subset["of"]
    images = round(part * id_splits.dataset.counts.get(subset or "", 0))
    if not images:
        return []
    text = Budget(max_false_alarms=FALSE_ALARMS).too_few("false_alarms", images)
    return [text.removesuffix(".")] if text else []


def _questions(sources: Sequence[ProjectDataset], id_questions: Sequence[str]) -> list[str]:
    """What the files of the datasets do not decide, for the top of params.yaml.

    Args:
        sources: The datasets, the ID dataset first.
        id_questions: Questions about the ID splits.
    """
    questions = [f"{sources[0].name}: {question}" for question in id_questions]
    for source in sources:
        questions += [f"{source.name}: {question}" for question in source.dataset.questions]
    return questions


def _has_clip(folder: Path) -> bool:
    """Whether the dvc.yaml of a folder has the stage that runs CLIP."""
    file = folder / "dvc.yaml"
    if not is_present(file):
        return False
    content = read_yaml(file)
    return isinstance(content, dict) and "embed" in (content.get("stages") or ())


def _method_lines(runs: Sequence[ProjectDetector]) -> list[str]:
    """Lines of section `methods`: the methods that apply to a detector of the project."""
    columns: set[str] = set()
    for run in runs:
        columns |= run.columns()
    lines = []
    for name, line in METHOD_LINES.items():
        needed = methods.get(name).needs - {"labels"}
        if needed <= columns:
            lines.append(line)
    return lines


def _all_classes(runs: Sequence[ProjectDetector]) -> list[str]:
    """The classes of all detectors, without repetition."""
    classes: dict[str, None] = {}
    for run in runs:
        classes |= dict.fromkeys(run.id_classes)
    return list(classes)


def add(
    folder: str | Path,
    ood: Sequence[str | Path],
    detectors: Sequence[str | Path],
    lookup: Lookup,
    *,
    choices: Choices = NO_CHOICES,
    benchmark: str | None = None,
) -> ProjectFiles:
    """The files of a project with additional OOD datasets and detectors.

    Every existing line stays as it is.

    Args:
        folder: The project's folder.
        ood, detectors, lookup, choices: See `init`.
        benchmark: The benchmark that they are added to; needed where there are several.

    Raises:
        ParameterError: see `init`; there is no such benchmark; a detector has classes that are not
            its ID classes; or the files have another form than those of `init`, with what to write
            by hand.
        DataError: a format is not known, or a file is damaged.
    """
    folder = Path(folder)
    text = read_text(folder / PARAMS)
    params = read_yaml(folder / PARAMS)
    benchmarks = params.get("benchmarks") or {}
    if benchmark is None and len(benchmarks) != 1:
        raise ParameterError(f"{folder / PARAMS} has several benchmarks: name one with --benchmark")
    benchmark = choose("benchmark", benchmark or next(iter(benchmarks)), benchmarks)
    entry = benchmarks[benchmark]
    rules_file = str(entry["rules"])
    protocol = str(entry.get("protocol", "paper"))
    rules = read_text(folder / rules_file)
    id_classes = read_rules(read_benchmark(benchmark, entry), folder).id_classes
    id_entry = params["datasets"][entry["id"]]
    id_root = str(folder / id_entry["root"])
    id_source = ProjectDataset(entry["id"], describe({**id_entry, "root": id_root}))

    macros = _entry_macros(folder)
    assumptions: list[Assumption] = []
    runs: list[ProjectDetector] = []
    sources: list[ProjectDataset] = []
    for path in detectors:
        with working(f"opening {path}"):
            run = ProjectDetector.open(
                Path(path), params["detectors"], id_source.dataset, id_classes, lookup, choices
            )
        runs.append(run)
        check_classes(run.recognised.header, run.classes, id_classes)
        params["detectors"][run.name] = run.entry(benchmark)
        text = inserted(text, ["detectors"], macros.detector(run, benchmark).splitlines())
        assumptions += of_detector(run, id_source)
    for path in ood:
        recognised = _ood_dataset(
            Path(path), choices, are_classifiers=id_source.dataset.whole_images
        )
        source = _with_matches(Path(path), params["datasets"], recognised, id_classes, lookup)
        sources.append(source)
        params["datasets"][source.name] = source.dataset.entry
        text = inserted(text, ["datasets"], macros.dataset(source).splitlines())
        splits = macros.splits(source).splitlines()
        text = inserted(text, ["benchmarks", benchmark, "splits"], splits)
        rules = _with_categories(rules, source, protocol)
        assumptions += of_dataset(source)
        assumptions += of_categories(source, rules_file, protocol)
    choices.refuse_unused(
        [source.dataset for source in sources],
        [run.recognised.entry["adapter"] for run in runs],
    )
    texts = {PARAMS: text}
    if ood:
        texts[rules_file] = rules
    return ProjectFiles(folder, texts, assumptions)


def _with_categories(rules: str, source: ProjectDataset, protocol: str) -> str:
    """A class mapping with the categories of another OOD dataset."""
    macros = _entry_macros()
    for id_class, categories in source.by_class("same").items():
        rules = inserted(rules, ["id_classes", id_class], [f"{source.name}: {_flow(categories)}"])
    for relation in ("overlap", "near"):
        lines = macros.categories(source, relation).splitlines()
        rules = inserted(rules, ["protocols", protocol, relation], lines)
    return inserted(rules, ["protocols", protocol, "far"], macros.far(source).splitlines())


def _id_dataset(
    path: Path, detector_paths: Sequence[Path], lookup: Lookup, choices: Choices
) -> tuple[ProjectDataset, list[ProjectDetector]]:
    """The ID dataset, recognised, and the detectors, opened with its classes.

    Folders of images without subsets are classes where all detectors are classifiers, or have
    classes of these names; otherwise they are photographs that were sorted into folders.

    Raises:
        DataError: the images have no boxes; or see `ProjectDetector.open`.
    """
    folder = resolved(path)
    name = name_of(path, ())
    with working(f"reading {path}"):
        dataset = recognise(folder, choices.formats)
    folders = None
    if dataset.entry["format"] in ("images", "image_folder"):
        folders = class_folders(folder)
    if folders is not None:
        try:
            runs = _open_detectors(detector_paths, folders, lookup, choices)
        except DataError as error:
            if dataset.unlabelled:
                raise _without_boxes(path, f". With its folders as classes: {error}") from None
        else:
            if _are_classes(folders, runs, is_only_reading=bool(dataset.unlabelled)):
                return ProjectDataset(name, folders), runs
    if dataset.unlabelled:
        raise _without_boxes(path)
    return ProjectDataset(name, dataset), _open_detectors(detector_paths, dataset, lookup, choices)


def _without_boxes(path: Path, reason: str = "") -> DataError:
    problem = (
        "images without boxes: the ID dataset needs boxes of the known classes, or, for a "
        "classifier, one folder of images per class"
    )
    return DataError(f"{problem}{reason}", file=path)


def _are_classes(
    folders: Dataset, runs: Sequence[ProjectDetector], *, is_only_reading: bool
) -> bool:
    """Whether folders of images are the classes of detectors.

    Args:
        folders: The dataset with the folders as classes.
        runs: The detectors.
        is_only_reading: Its files can otherwise be read only as images without labels, which
            cannot be an ID dataset.
    """
    categories = set(folders.categories)
    for run in runs:
        entry = run.recognised.entry
        takes_folder_names = "classes" in entry.get("params", {})
        shared = categories & set(run.id_classes)
        has_these_classes = not takes_folder_names and len(shared) >= len(categories) / 2
        is_classifier = run.recognised.header.whole_images and is_only_reading
        if not has_these_classes and not is_classifier:
            return False
    return True


def _open_detectors(
    paths: Sequence[Path], dataset: Dataset, lookup: Lookup, choices: Choices
) -> list[ProjectDetector]:
    """The detectors of a new project."""
    runs: list[ProjectDetector] = []
    for path in paths:
        names = [run.name for run in runs]
        with working(f"opening {path}"):
            run = ProjectDetector.open(path, names, dataset, dataset.categories, lookup, choices)
        runs.append(run)
    return runs


def _ood_dataset(path: Path, choices: Choices, *, are_classifiers: bool) -> Dataset:
    """An OOD dataset, recognised.

    Args:
        path: Its folder.
        choices: See `init`.
        are_classifiers: The project is about labels of whole images: folders of images are classes.
    """
    folder = resolved(path)
    with working(f"reading {path}"):
        dataset = recognise(folder, choices.formats)
    if are_classifiers and dataset.unlabelled:
        return class_folders(folder) or dataset
    return dataset


def _with_matches(
    path: Path,
    existing: Collection[str],
    dataset: Dataset,
    id_classes: Sequence[str],
    lookup: Lookup,
) -> ProjectDataset:
    """An OOD dataset with the relation of its categories to the ID classes.

    Args:
        path: Its folder.
        existing: Names of other datasets.
        dataset: The dataset.
        id_classes: The known classes.
        lookup: Sources of synonyms and similarities of names.
    """
    name = name_of(path, existing)
    return ProjectDataset(name, dataset, match_classes(dataset.categories, id_classes, lookup))


def _template(name: str, folder: Path = Path()) -> Template:
    """The template of a file of the project, or of entries in such files.

    Args:
        name: Its name.
        folder: The project's folder.
    """
    loader = PackageLoader("farther.projects", "templates")
    texts = Environment(
        loader=loader,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    placed = partial(_placed, prefix=f"{resolved(folder)}{os.sep}")
    texts.filters |= {"flow": _flow, "key": _key, "line": printable_line, "placed": placed}
    return texts.get_template(f"{name}.jinja")


def _entry_macros(folder: Path = Path()) -> Any:
    """The macros for entries of one dataset or detector in the files of a project."""
    return _template("entries", folder).module


def _placed(value: Any, prefix: str) -> Any:
    """A value with the paths in it that begin with a prefix relative to the project.

    Files in the project's folder move with it, and are the same in a clone.

    Args:
        value: An entry of params.yaml, or a part of one.
        prefix: The project's folder, as an absolute path that ends in a separator.
    """
    if isinstance(value, dict):
        return {key: _placed(part, prefix) for key, part in value.items()}
    if isinstance(value, list):
        return [_placed(part, prefix) for part in value]
    if isinstance(value, str):
        return value.removeprefix(prefix)
    return value


@dataclass(frozen=True)
class _IdSplits:
    """The ID splits of a project.

    Args:
        dataset: The ID dataset, whose subsets may be combined for them.
        subsets: ID split (train, val, test) → its subset, or `{"of": subset, "part": fraction}`.
        notes: Sentences about what was assumed.
        questions: Sentences about what the names of the subsets do not decide.
    """

    dataset: Dataset
    subsets: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)


def _id_splits(dataset: Dataset) -> _IdSplits:
    """The ID splits from the subsets of the ID dataset, by their names."""
    reading = read_names(dataset.subsets)
    if len(dataset.subsets) == 1:
        return _divided(dataset, dataset.subsets[0])
    if not reading.are_subsets and not reading.assumed:
        return _all_divided(dataset, reading)

    notes: list[str] = []
    questions: list[str] = []
    name_by_subset = {subset: name for name, subset in dataset.renamed.items()}
    for split, subset in reading.chosen.items():
        if subset != split:
            notes.append(f"{subset} → {split}, by its name")
        name = name_by_subset.get(subset, subset)
        for rival in reading.rivals.get(split, ()):
            questions.append(f"{rival} may be {split}, too: {name} is used and {rival} is not")
    for split, subset in reading.assumed.items():
        (named,) = reading.chosen.values()
        questions.append(_assumed_question(split, subset, named))
    if reading.others and not reading.assumed:
        names = ", ".join(reading.others)
        questions.append(f"not used, as no name says for what: {names}")
    chosen = {**reading.chosen, **reading.assumed}
    for first, second in combinations(chosen.values(), 2):
        count = dataset.overlaps(first, [second])
        if count:
            questions.append(f"{first} and {second} have {count} images in common")

    by_names = _by_names(dataset, chosen)
    return replace(by_names, notes=[*notes, *by_names.notes], questions=questions)


def _assumed_question(split: str, subset: str, named: str) -> str:
    """The question about a subset that is taken for an ID split, as its name means none.

    Args:
        split: The ID split.
        subset: The subset.
        named: The subset beside it, whose name means another ID split.
    """
    if split == "train":
        return (
            f"is {subset} what the detector was trained on? It is assumed, as the only name beside "
            f"{named}. Otherwise write which subset train, val and test are: "
            "benchmarks, subsets"
        )
    return (
        f"has {subset} no image that the detector was trained on? It is assumed, as the only name "
        f"beside {named}. Otherwise write which subset train, val and test are: "
        "benchmarks, subsets"
    )


def _by_names(dataset: Dataset, chosen: Mapping[str, str]) -> _IdSplits:
    """The ID splits of a dataset that has one, two or three subsets with names of such.

    Args:
        dataset: The ID dataset.
        chosen: ID split → the subset of its name.
    """
    if len(chosen) == len(SUBSETS):
        return _IdSplits(dataset, dict(chosen))
    if len(chosen) == 1:
        (subset,) = chosen.values()
        return _divided(dataset, subset)
    if "train" not in chosen:
        half = {"of": chosen["val"], "part": 0.5}
        subsets = {"train": half, "val": dict(half), "test": chosen["test"]}
        return _IdSplits(dataset, subsets, [f"train and val are halves of {chosen['val']}"])
    subset = chosen.get("val") or chosen["test"]
    half = {"of": subset, "part": 0.5}
    subsets = {"train": chosen["train"], "val": half, "test": dict(half)}
    return _IdSplits(dataset, subsets, [f"val and test are halves of {subset}"])


def _divided(dataset: Dataset, subset: str) -> _IdSplits:
    """Parts of one subset as ID splits."""
    parts: dict[str, Any] = {}
    shares: list[str] = []
    for split, part in PARTS.items():
        parts[split] = {"of": subset, "part": part}
        shares.append(f"{split} {part:.0%}")
    note = f"{subset} is divided at random, the same each time: {', '.join(shares)}"
    return _IdSplits(dataset, parts, [note])


def _all_divided(dataset: Dataset, reading: SubsetNames) -> _IdSplits:
    """Parts of all images as ID splits, where the names of the subsets do not divide them."""
    name = "all"
    while name in dataset.subsets:
        name = f"{name}_images"
    whole = combined(dataset, name, dataset.subsets)
    divided = _divided(whole, name)
    names = ", ".join(reading.others)
    if not reading.chosen:
        note = f"no subset is called train, val or test: {name} has all images of {names}"
        return replace(divided, notes=[note, *divided.notes])
    named = next(iter(reading.chosen.values()))
    question = (
        f"is {named} a subset, or one set of images among others, as {names}? The latter is "
        f"assumed: {name} has all images"
    )
    return replace(divided, questions=[question])


def _names_of(
    id_class: str, sources: Sequence[ProjectDataset]
) -> tuple[dict[str, list[str]], list[str]]:
    """Names of an ID class by dataset, and the reasons of those that are not its own."""
    names_by_dataset: dict[str, list[str]] = {}
    reasons: dict[str, None] = {}
    for source in sources:
        for match in source.matches_of("same"):
            if match.id_class != id_class:
                continue
            names_by_dataset.setdefault(source.name, []).append(match.category)
            if match.category != id_class:
                reasons[f"{source.name}: {match.category} is {match.reason}"] = None
    return names_by_dataset, list(reasons)


def _flow(value: Any) -> str:
    """A value as YAML in one line."""
    options: dict[str, Any] = {"default_flow_style": True, "sort_keys": False, "width": 10**6}
    text = str(yaml.safe_dump(value, allow_unicode=True, **options))
    if printable(text) != text:  # such as a direction of writing
        text = str(yaml.safe_dump(value, **options))
    return text.removesuffix("\n").removesuffix("\n...").strip()


def _key(name: str) -> str:
    """A class name as a key of YAML."""
    text = _flow(name)
    if len(text) > LONGEST_KEY:
        problem = f"the class {shorten(name)} has {len(name):,} characters: give it a shorter name"
        raise ParameterError(f"{problem}; a key of YAML has at most {LONGEST_KEY:,}")
    return text
