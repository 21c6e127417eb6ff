"""Statements about what `farther init` read and assumed, each with the line to change it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from farther.projects.class_matching import ClassMatch
from farther.projects.entries import ProjectDataset, ProjectDetector
from farther.projects.yaml_text import line_of
from farther.text.printable import printable_line

PARAMS = "params.yaml"
#: Most lines that are printed.
MOST_LINES = 10
#: Most names in a line.
MOST_NAMES = 6


@dataclass(frozen=True)
class Assumption:
    """One sentence about a project.

    Args:
        text: The sentence.
        keys: The keys to change it at, from the outermost.
        file: The file with these keys.
        sure: It follows from the files; assumptions that do not are printed first.
    """

    text: str
    keys: tuple[str, ...]
    file: str = PARAMS
    sure: bool = False


def assumption_lines(assumptions: Sequence[Assumption], texts: Mapping[str, str]) -> list[str]:
    """One line per assumption, with its place.

    At most `MOST_LINES`, the doubtful assumptions first.

    Args:
        assumptions: The assumptions.
        texts: Content of the files.
    """
    ordered = sorted(assumptions, key=_is_sure)
    printed = ordered
    if len(ordered) > MOST_LINES:
        printed = ordered[: MOST_LINES - 1]
    places = []
    for assumption in printed:
        line = line_of(texts[assumption.file], assumption.keys)
        places.append(f"{assumption.file}:{line}")
    width = max(map(len, places), default=0)
    lines = []
    for place, assumption in zip(places, printed, strict=True):
        lines.append(f"  {place:<{width}}  {printable_line(assumption.text)}")
    if len(printed) < len(ordered):
        files = dict.fromkeys(assumption.file for assumption in ordered)
        lines.append(f"  and {len(ordered) - len(printed)} more: read {' and '.join(files)}")
    return lines


def _is_sure(assumption: Assumption) -> bool:
    return assumption.sure


def of_detector(run: ProjectDetector, id_dataset: ProjectDataset) -> Iterator[Assumption]:
    """Assumptions about a detector.

    Args:
        run: The detector.
        id_dataset: The ID dataset.
    """
    place = ("detectors", run.name)
    file = run.path.name
    recognised = run.recognised
    classes = _count(len(recognised.header.known_classes), "class", "classes")
    text = f"{file}: adapter {recognised.entry['adapter']}, {classes}"
    if recognised.content:
        text = f"{text}: {recognised.content}"
    yield Assumption(text, place, sure=True)

    if recognised.assumed:
        yield Assumption(f"{file}: {recognised.assumed}", (*place, "params"))
    if run.classes:
        renamings = [f"{name} is {id_name}" for name, id_name in run.classes.items()]
        text = f"{file}: other names of classes: {_first_names(renamings)}"
        yield Assumption(text, (*place, "classes"))
    categories = id_dataset.dataset.categories
    unlearned = [name for name in categories if name not in run.id_classes]
    if unlearned:
        text = f"{file}: no class for {_first_names(unlearned)} of {id_dataset.name}"
        yield Assumption(text, place)


def of_dataset(source: ProjectDataset) -> Iterator[Assumption]:
    """Assumptions about a dataset."""
    dataset = source.dataset
    place = ("datasets", source.name)
    noun = "subsets" if len(dataset.subsets) > 1 else "subset"
    subsets = f"{noun} {_first_names(dataset.subsets)}"
    categories = _count(len(dataset.categories), "category", "categories")
    text = f"{source.name}: format {dataset.entry['format']}, {subsets}, {categories}"
    yield Assumption(text, place, sure=True)

    if dataset.renamed:
        names = [f"{name} → {subset}" for name, subset in dataset.renamed.items()]
        yield Assumption(f"{source.name}: subsets by their names: {_first_names(names)}", place)
    for question in dataset.questions:
        yield Assumption(f"{source.name}: {question}", place)
    for note in dataset.notes:
        yield Assumption(f"{source.name}: {note}", place)
    if dataset.unlisted:
        text = (
            f"{source.name}: {dataset.unlisted} images are in no annotation file and are ignored "
            "(format images with `boxes` keeps them, as unlabelled)"
        )
        yield Assumption(text, place)
    for subset, first in dataset.repeats.items():
        text = f"{source.name}: {subset} has the same images as {first} and is ignored"
        yield Assumption(text, place)


def of_categories(
    source: ProjectDataset, rules: str, protocol: str = "paper"
) -> Iterator[Assumption]:
    """Assumptions about the categories of an OOD dataset that are known or unknown.

    Args:
        source: The dataset.
        rules: The class mapping.
        protocol: The protocol that its lists are of.
    """
    lists = ("protocols", protocol)
    far = (*lists, "far", source.name)
    if source.dataset.unlabelled:
        text = (
            f"{source.name}: {source.dataset.unlabelled} images without boxes, "
            "assumed to show no ID class"
        )
        yield Assumption(text, far, rules)
    same = source.matches_of("same")
    if same:
        names = _first_names([_known_class(match) for match in same])
        text = f"{source.name}: known classes, whose images are left out: {names}"
        yield Assumption(text, ("id_classes", same[0].id_class), rules, sure=True)

    yield from _doubtful(source, source.matches_of("resembles"), "be", far, rules)
    overlap = (*lists, "overlap", source.name)
    yield from _doubtful(source, source.matches_of("overlap"), "contain or be", overlap, rules)
    near = (*lists, "near", source.name)
    yield from _doubtful(source, source.matches_of("near"), "be near to", near, rules)

    unknown = [match.category for match in source.matches_of("unknown")]
    if unknown:
        text = f"{_first_names(unknown)}: unknown (dataset {source.name})"
        yield Assumption(text, far, rules, sure=True)


def _known_class(match: ClassMatch) -> str:
    """A category that is an ID class, with the class in parentheses where the names differ."""
    if match.category == match.id_class:
        return match.category
    return f"{match.category} ({match.id_class})"


def _doubtful(
    source: ProjectDataset,
    matches: Sequence[ClassMatch],
    verb: str,
    place: tuple[str, ...],
    rules: str,
) -> Iterator[Assumption]:
    """An assumption about categories that may have a relation to an ID class, if there are any."""
    if matches:
        pairs = [f"{match.category} may {verb} {match.id_class}" for match in matches]
        text = f"{source.name}: unknown, but {_first_names(pairs)}"
        yield Assumption(text, place, rules)


def _count(number: int, singular: str, plural: str) -> str:
    if number == 1:
        return f"{number} {singular}"
    return f"{number} {plural}"


def _first_names(names: Sequence[str]) -> str:
    """The first `MOST_NAMES` names, and the number of the others."""
    listing = ", ".join(names[:MOST_NAMES])
    if len(names) > MOST_NAMES:
        listing = f"{listing} and {len(names) - MOST_NAMES} more"
    return listing
