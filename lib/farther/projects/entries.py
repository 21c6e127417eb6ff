"""Datasets and detectors of a project, and what their classes are called in it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from farther import detectors
from farther.detectors.known_classes import renamed
from farther.errors import ParameterError
from farther.projects.proposals import Lookup, Proposal, propose
from farther.projects.recognise import Dataset
from farther.projects.recognise_detector import RecognisedDetector, recognise_detector
from farther.tables.folders import resolved


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
        return sorted(
            (one for one in self.proposals if one.relation == relation),
            key=lambda one: -one.similarity,
        )

    def by_class(self, relation: str) -> dict[str, list[str]]:
        """The categories of a relation by ID class, the most similar first."""
        found: dict[str, list[str]] = {}
        for one in self.of(relation):
            found.setdefault(one.id_class, []).append(one.category)
        return found

    def unlearned(self) -> list[str]:
        """The categories that are no ID class."""
        return [one.category for one in self.proposals if one.relation != "same"]

    def splits(self) -> dict[str, str]:
        """Names of its OOD splits, one per subset, with the subset."""
        several = len(self.dataset.subsets) > 1
        return {f"{self.name}_{one}" if several else self.name: one for one in self.dataset.subsets}


@dataclass(frozen=True)
class ProjectDetector:
    """A detector of the project.

    Args:
        name: Its name in params.yaml: that of its file.
        path: The file.
        found: As it was recognised.
        classes: Names of the ID dataset for classes that the detector calls otherwise.
    """

    name: str
    path: Path
    found: RecognisedDetector
    classes: dict[str, str]

    @classmethod
    def open(
        cls,
        path: Path,
        taken: Collection[str],
        dataset: Dataset,
        id_names: Sequence[str],
        lookup: Lookup,
    ) -> ProjectDetector:
        """Recognises a detector and opens it.

        Args:
            path: See `recognise_detector`.
            taken: Names of other runs.
            dataset: The ID dataset.
            id_names: Names that the project has for classes.
            lookup: Where synonyms are found.

        Raises:
            DataError: it is not a detector that is known.
            ParameterError: another run has its name.
        """
        lookup = replace(lookup, clip=None)
        found = recognise_detector(resolved(path), dataset, lookup)
        proposals = propose(found.header.known_classes, id_names, lookup)
        same = {one.category: one.id_class for one in proposals if one.relation == "same"}
        other = {one: name for one, name in same.items() if one != name}
        classes = {
            one: name for one, name in other.items() if list(other.values()).count(name) == 1
        }
        return cls(name_of(path, taken), path, found, classes)

    @property
    def id_classes(self) -> tuple[str, ...]:
        """Its classes as the project calls them."""
        return renamed(self.found.header, self.classes).known_classes

    def entry(self, benchmark: str) -> dict[str, Any]:
        """Its entry in section `detectors`."""
        own = detectors.get(self.found.entry["adapter"]).PROPOSALS
        more = {"classes": self.classes, "proposals": {own: {}} if own else {}}
        return {
            **self.found.entry,
            **{key: value for key, value in more.items() if value},
            "benchmark": benchmark,
        }


def name_of(path: Path, taken: Collection[str]) -> str:
    """A name for a folder or a file: its own, after that of the folder around it where it is taken.

    Raises:
        ParameterError: both names are taken.
    """
    file = resolved(path)
    own, outer = (
        re.sub(r"\W+", "_", one).strip("_").lower()
        for one in (file.stem if file.is_file() else file.name, file.parent.name)
    )
    for name in (own or "dataset", f"{outer}_{own}"):
        if name not in taken:
            return name
    raise ParameterError(f"two entries of params.yaml would be called {outer}_{own}: rename {path}")
