"""Files of a new project: params.yaml, a rules file, and decisions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from farther.curation.decisions import HEADER
from farther.detectors.known_classes import renamed
from farther.errors import ParameterError
from farther.projects.proposals import Lookup, Proposal, propose
from farther.projects.recognise import Dataset, recognise
from farther.projects.recognise_detector import recognise_detector
from farther.tables import Header
from farther.tables.folders import resolved

SUBSETS = ("train", "val", "test")


@dataclass(frozen=True)
class ProjectDataset:
    """A dataset of the project.

    Args:
        name: Its name in params.yaml.
        dataset: As it was recognised.
        proposals: What its categories were taken for.
    """

    name: str
    dataset: Dataset
    proposals: list[Proposal] = field(default_factory=list)

    def of(self, relation: str) -> list[Proposal]:
        """The proposals of a relation, the most similar first."""
        return sorted((one for one in self.proposals if one.relation == relation), key=lambda one: -one.similarity)

    def by_class(self, relation: str) -> dict[str, list[str]]:
        """The categories of a relation by ID class, the most similar first."""
        found: dict[str, list[str]] = {}
        for one in self.of(relation):
            found.setdefault(one.id_class, []).append(one.category)
        return found

    def unlearned(self) -> list[str]:
        """The categories that are no ID class."""
        return [one.category for one in self.proposals if one.relation != "same"]


def init(
    folder: str | Path,
    id: str | Path,
    ood: Sequence[str | Path],
    detector: str | Path,
    *,
    names: Path,
    wordnet: str | Path | None = None,
    clip: str | None = None,
    force: bool = False,
    log: Callable[[str], None] = print,
) -> Path:
    """Makes a project for one ID dataset, OOD datasets and a detector: params.yaml, rules file and decisions.

    Every proposal is written with a comment where it can be edited.

    Args:
        folder: The project's folder. Parameters of CLIP are written if it has a dvc.yaml with those stages.
        id: Folder of the ID dataset.
        ood: Folders of the OOD datasets.
        detector: A checkpoint, a COCO results file, or a folder of detections.
        names: Folder of `names/classes.yaml` and `similarity/synsets.yaml`: synonyms.
        wordnet: WordNet's `dict` folder, for synonyms and near categories.
        clip: A CLIP for near categories, see `farther.projects.proposals.encoder_params`.
        force: Replace a params.yaml and a rules file that are there.
        log: Takes one line per finding.

    Returns:
        The file of parameters.

    Raises:
        ParameterError: a params.yaml is there, or an OOD dataset has the ID dataset's folder.
        DataError: a format is not known, or a file is damaged.
    """
    folder, params = Path(folder), Path(folder) / "params.yaml"
    if params.exists() and not force:
        raise ParameterError(f"{params} is there already; name another folder, or add --force to replace it")
    lookup = Lookup.open(names, wordnet, clip)
    known = ProjectDataset(_name(Path(id), []), recognise(resolved(id)))
    recognised = recognise_detector(resolved(detector), known.dataset, replace(lookup, clip=None))
    entry, header = recognised.entry, recognised.header
    found = _mapping(known.dataset, header, lookup)
    id_classes = renamed(header, found).known_classes
    sources = [ProjectDataset(known.name, known.dataset, propose(known.dataset.categories, id_classes))]
    for path in ood:
        dataset = recognise(resolved(path))
        name = _name(Path(path), [source.name for source in sources])
        sources.append(ProjectDataset(name, dataset, propose(dataset.categories, id_classes, lookup)))
    benchmark, clip_stages = known.name, (folder / "dvc.yaml").exists()
    subsets, note = _id_subsets(known.dataset.subsets)
    run = {**entry, **({"classes": found} if found else {}), "benchmark": benchmark}
    params_of = {"name": benchmark, "note": note, "subsets": subsets, "detector": run, "clip": clip_stages}
    names_of = [(name, *_names_of(name, sources)) for name in id_classes]
    written = {
        f"data/benchmarks/{benchmark}.yaml": _filled("rules.yaml", sources=sources, id_classes=names_of),
        f"data/decisions/{benchmark}.csv": HEADER,
        "params.yaml": _filled("params.yaml", sources=sources, **params_of),
    }
    for name, text in written.items():
        file = folder / name
        if name.startswith("data/decisions") and file.exists():
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        log(f"wrote {file}")
    for line in _summary(sources, entry, id_classes):
        log(line)
    return params


def _name(path: Path, taken: Sequence[str]) -> str:
    """A dataset's name: that of its folder."""
    name = re.sub(r"\W+", "_", resolved(path).name).strip("_").lower() or "dataset"
    if name in taken:
        name = f"{re.sub(r'[^0-9a-zA-Z]+', '_', resolved(path).parent.name).lower()}_{name}"
    if name in taken:
        raise ParameterError(f"two datasets would be called {name!r}: rename the folder {path}")
    return name


def _mapping(dataset: Dataset, header: Header, lookup: Lookup) -> dict[str, str]:
    """Names of the ID dataset for classes of the detector that have another name there."""
    proposals = propose(header.known_classes, dataset.categories, replace(lookup, clip=None))
    same = {one.category: one.id_class for one in proposals if one.relation == "same"}
    found = {one: other for one, other in same.items() if one != other}
    return {one: other for one, other in found.items() if list(found.values()).count(other) == 1}


def _filled(template: str, **values: Any) -> str:
    """Text of a file of the project."""
    loader = PackageLoader("farther.projects", "templates")
    texts = Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    texts.filters["flow"] = _flow
    return texts.get_template(f"{template}.jinja").render(values)


def _id_subsets(subsets: Sequence[str]) -> tuple[dict[str, str], str]:
    """The subset of each ID split, and a remark where there are not three."""
    if set(SUBSETS) <= set(subsets):
        return {name: name for name in SUBSETS}, ""
    train = "train" if "train" in subsets else subsets[0]
    others = [name for name in subsets if name != train] or [train]
    val, test = ("val" if "val" in others else others[0]), ("test" if "test" in others else others[-1])
    note = ""
    if train == val == test:
        note = f"Statistics, thresholds and results are all of {test!r}: other subsets would make results independent."
    elif val == test:
        note = f"Thresholds and results are both of {test!r}: a third subset would make the results independent."
    return dict(zip(SUBSETS, (train, val, test), strict=True)), note


def _names_of(id_class: str, sources: Sequence[ProjectDataset]) -> tuple[dict[str, list[str]], list[str]]:
    """Names of an ID class by dataset, and the reasons of those that are not its own."""
    same = {source.name: [one for one in source.of("same") if one.id_class == id_class] for source in sources}
    named = {key: [one.category for one in value] for key, value in same.items() if value}
    others = [(key, one) for key, value in same.items() for one in value if one.category != id_class]
    return named, list(dict.fromkeys(f"{key}: {one.category} is {one.reason}" for key, one in others))


def _summary(sources: Sequence[ProjectDataset], entry: Mapping[str, Any], id_classes: Sequence[str]) -> list[str]:
    lines = [
        f"{source.name}: format {source.dataset.entry['format']}, subsets {', '.join(source.dataset.subsets)}, "
        f"{len(source.dataset.categories)} categories"
        for source in sources
    ]
    lines += [
        f"{source.name}: {subset} has the images of {first}, and is left out"
        for source in sources
        for subset, first in source.dataset.repeats.items()
    ]
    lines.append(f"detector: adapter {entry['adapter']}, {len(id_classes)} classes")
    for source in sources[1:]:
        named = {
            "known": [f"{one.category} → {one.id_class}" for one in source.of("same")],
            "unknown": source.unlearned(),
        }
        lines.append(f"{source.name}: " + "; ".join(f"{key} {', '.join(one) or 'none'}" for key, one in named.items()))
        for relation, question in {"resembles": "look at", "overlap": "may overlap:", "near": "may be near:"}.items():
            if found := source.of(relation):
                listed = ", ".join(f"{one.category} ({one.id_class}?)" for one in found)
                lines.append(f"{source.name}: {question} {listed}")
    return lines


def _flow(value: Any) -> str:
    """A value as YAML in one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...").strip()
