"""What `farther init` read from the files and what it assumed, each with the line where it can be changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from farther.printable import printable_line
from farther.projects.entries import ProjectDataset, ProjectDetector
from farther.projects.yaml_text import line_of

PARAMS = "params.yaml"
#: Most lines that are printed, and most names in a line.
MOST_LINES, MOST_NAMES = 10, 6


@dataclass(frozen=True)
class Assumption:
    """One sentence about a project.

    Args:
        text: The sentence.
        keys: Where it can be changed: the keys, from the outermost.
        file: The file with these keys.
        sure: It follows from the files; what does not is printed first.
    """

    text: str
    keys: tuple[str, ...]
    file: str = PARAMS
    sure: bool = False


def shown(found: Sequence[Assumption], texts: Mapping[str, str]) -> list[str]:
    """One line each with its place, at most `MOST_LINES`, the doubtful ones first.

    Args:
        found: The assumptions.
        texts: Content of the files.
    """
    ordered = sorted(found, key=lambda one: one.sure)
    kept = ordered if len(ordered) <= MOST_LINES else ordered[: MOST_LINES - 1]
    places = [f"{one.file}:{line_of(texts[one.file], one.keys)}" for one in kept]
    wide = max(map(len, places), default=0)
    lines = [
        f"  {place:<{wide}}  {printable_line(one.text)}"
        for place, one in zip(places, kept, strict=True)
    ]
    more = len(ordered) - len(kept)
    return (
        [*lines, f"  and {more} more: read {' and '.join({one.file for one in ordered})}"]
        if more
        else lines
    )


def of_detector(run: ProjectDetector, dataset: ProjectDataset) -> Iterator[Assumption]:
    """What was read and assumed of a detector.

    Args:
        run: The detector.
        dataset: The ID dataset.
    """
    at, file, found = ("detectors", run.name), run.path.name, run.found
    content = f": {found.content}" if found.content else ""
    text = f"{file}: adapter {found.entry['adapter']}, {_count(len(found.header.known_classes), 'class', 'es')}{content}"
    yield Assumption(text, at, sure=True)
    if found.assumed:
        yield Assumption(f"{file}: {found.assumed}", (*at, "params"))
    if run.classes:
        pairs = [f"{one} is {other}" for one, other in run.classes.items()]
        yield Assumption(f"{file}: other names of classes: {_some(pairs)}", (*at, "classes"))
    if unlearned := [name for name in dataset.dataset.categories if name not in run.id_classes]:
        yield Assumption(f"{file}: no class for {_some(unlearned)} of {dataset.name}", at)


def of_dataset(source: ProjectDataset) -> Iterator[Assumption]:
    """What was read of a dataset."""
    found, at = source.dataset, ("datasets", source.name)
    subsets = f"subset{'s' if len(found.subsets) > 1 else ''} {_some(found.subsets)}"
    categories = _count(len(found.categories), "categor", "ies", "y")
    yield Assumption(
        f"{source.name}: format {found.entry['format']}, {subsets}, {categories}", at, sure=True
    )
    for note in found.notes:
        yield Assumption(f"{source.name}: {note}", at)
    if found.unlisted:
        kept = "format images with `boxes` keeps them, as unlabelled"
        yield Assumption(
            f"{source.name}: {found.unlisted} images are in no annotation file and are ignored ({kept})",
            at,
        )
    for subset, first in found.repeats.items():
        yield Assumption(
            f"{source.name}: {subset} has the same images as {first} and is ignored", at
        )


def of_categories(
    source: ProjectDataset, rules: str, protocol: str = "paper"
) -> Iterator[Assumption]:
    """Which categories of an OOD dataset are taken to be known or unknown.

    Args:
        source: The dataset.
        rules: The rules file.
        protocol: The protocol that its lists are of.
    """
    lists = ("protocols", protocol)
    if source.dataset.unlabelled:
        text = f"{source.name}: {source.dataset.unlabelled} images without boxes, assumed to show no ID class"
        yield Assumption(text, (*lists, "far", source.name), rules)
    if same := source.of("same"):
        names = [
            one.category if one.category == one.id_class else f"{one.category} ({one.id_class})"
            for one in same
        ]
        text = f"{source.name}: known classes, whose images are left out: {_some(names)}"
        yield Assumption(text, ("id_classes", same[0].id_class), rules, sure=True)
    meanings = {
        "resembles": ("far", "be"),
        "overlap": ("overlap", "contain or be"),
        "near": ("near", "be near to"),
    }
    for relation, (key, verb) in meanings.items():
        if doubtful := source.of(relation):
            pairs = [f"{one.category} may {verb} {one.id_class}" for one in doubtful]
            yield Assumption(
                f"{source.name}: unknown, but {_some(pairs)}", (*lists, key, source.name), rules
            )
    if unknown := [one.category for one in source.of("unknown")]:
        yield Assumption(
            f"{source.name}: unknown: {_some(unknown)}",
            (*lists, "far", source.name),
            rules,
            sure=True,
        )


def _count(number: int, noun: str, plural: str, singular: str = "") -> str:
    return f"{number} {noun}{singular if number == 1 else plural}"


def _some(names: Sequence[str]) -> str:
    """Names in a line, the first of many."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
