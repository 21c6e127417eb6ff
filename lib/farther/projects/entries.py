"""Datasets and detectors of a project, and the names of their classes in it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from farther import detectors
from farther.detectors.imported import Imported
from farther.detectors.known_classes import with_class_names
from farther.errors import ParameterError
from farther.naming.registry import parameters
from farther.projects.class_matching import ClassMatch, Lookup, match_classes
from farther.projects.recognise import Choices, Dataset
from farther.projects.recognise_detector import RecognisedDetector, recognise_detector
from farther.tables.folders import resolved


@dataclass(frozen=True)
class ProjectDataset:
    """A dataset of the project.

    Args:
        name: Its name in params.yaml.
        dataset: As it was recognised.
        matches: The relation of each category to the ID classes.
    """

    name: str
    dataset: Dataset
    matches: list[ClassMatch] = field(default_factory=list)

    def matches_of(self, relation: str) -> list[ClassMatch]:
        """The matches of a relation, the most similar first."""
        matches = [match for match in self.matches if match.relation == relation]
        return sorted(matches, key=_dissimilarity)

    def by_class(self, relation: str) -> dict[str, list[str]]:
        """The categories of a relation by ID class, the most similar first."""
        categories_by_class: dict[str, list[str]] = {}
        for match in self.matches_of(relation):
            categories_by_class.setdefault(match.id_class, []).append(match.category)
        return categories_by_class

    def unlearned(self) -> list[str]:
        """The categories that are no ID class."""
        return [match.category for match in self.matches if match.relation != "same"]

    def splits(self) -> dict[str, str]:
        """Name of each of its OOD splits, one per subset → the subset."""
        if len(self.dataset.subsets) == 1:
            return {self.name: self.dataset.subsets[0]}
        return {f"{self.name}_{subset}": subset for subset in self.dataset.subsets}


def _dissimilarity(match: ClassMatch) -> float:
    return -match.similarity


@dataclass(frozen=True)
class ProjectDetector:
    """A detector of the project.

    Args:
        name: Its name in params.yaml: that of its file.
        path: The file.
        recognised: As it was recognised.
        classes: Name of a class in the detector → in the ID dataset, where the two differ.
    """

    name: str
    path: Path
    recognised: RecognisedDetector
    classes: dict[str, str]

    @classmethod
    def open(
        cls,
        path: Path,
        existing: Collection[str],
        dataset: Dataset,
        id_names: Sequence[str],
        lookup: Lookup,
        choices: Choices,
    ) -> ProjectDetector:
        """Recognises a detector and opens it.

        Args:
            path: See `recognise_detector`.
            existing: Names of the other detectors of the project.
            dataset: The ID dataset.
            id_names: Names of the classes in the project.
            lookup: Sources of synonyms.
            choices: Adapters that are taken where they recognise it.

        Raises:
            DataError: it is not a detector that is known.
            ParameterError: another detector has its name.
        """
        lookup = replace(lookup, clip=None)
        recognised = recognise_detector(resolved(path), dataset, lookup, choices.adapters)
        synonyms = {}
        for match in match_classes(recognised.header.known_classes, id_names, lookup):
            if match.relation == "same" and match.category != match.id_class:
                synonyms[match.category] = match.id_class
        # Of several classes with one name in the project, none is renamed.
        count = Counter(synonyms.values())
        classes = {name: id_name for name, id_name in synonyms.items() if count[id_name] == 1}
        return cls(name_of(path, existing), path, recognised, classes)

    @property
    def id_classes(self) -> tuple[str, ...]:
        """Its classes by the project's names."""
        return with_class_names(self.recognised.header, self.classes).known_classes

    def columns(self) -> set[str]:
        """The columns of its regions that methods may need.

        Those of imported detections are in their first rows. A network has logits, features where
        it has a last layer, and averages of inner layers where its adapter takes them.
        """
        adapter = detectors.of_entry(self.recognised.entry)
        if isinstance(adapter, Imported):
            return _columns_of_first_rows(adapter)
        columns = {"score", "logits"}
        if self.recognised.header.weight is not None:
            columns.add("features")
        if parameters(type(adapter)).keys() & {"latent", "latent_size"}:
            columns.add("latent")
        return columns

    def entry(self, benchmark: str) -> dict[str, Any]:
        """Its entry in section `detectors`."""
        entry = dict(self.recognised.entry)
        if self.classes:
            entry["classes"] = self.classes
        own_proposals = detectors.get(entry["adapter"]).PROPOSALS
        if own_proposals:
            entry["proposals"] = {own_proposals: {}}
        entry["benchmark"] = benchmark
        return entry


def _columns_of_first_rows(adapter: Imported) -> set[str]:
    """The columns of imported detections; only the score where there are none.

    How far scores may differ from those of the logits is an entry of the project to be.
    """
    columns = {"score"}
    tolerant = replace(adapter, score_tolerance=None)
    for source in tolerant.sources():
        for batch in tolerant.batches(source):
            return columns | set(batch.regions.names)
    return columns


def name_of(path: Path, existing: Collection[str]) -> str:
    """A name for a folder or a file.

    Its own, after that of the folder around it where its own is taken.

    Raises:
        ParameterError: both names are taken.
    """
    file = resolved(path)
    own_name = _plain(file.stem if file.is_file() else file.name)
    longer_name = f"{_plain(file.parent.name)}_{own_name}"
    for name in (own_name or "dataset", longer_name):
        if name not in existing:
            return name
    raise ParameterError(f"two entries of params.yaml would be called {longer_name}: rename {path}")


def _plain(name: str) -> str:
    """A name in lower case, with underscores in the place of blanks and punctuation."""
    return re.sub(r"\W+", "_", name).strip("_").lower()
