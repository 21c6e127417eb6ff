"""The parameters of a benchmark: its ID dataset and the splits that are out of its distribution."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass

from farther.errors import ParameterError
from farther.registry import STRICT, build

Distance = Literal["near", "far", "farther"]


@dataclass(config=STRICT, kw_only=True)
class OodSplit:
    """One OOD split.

    Args:
        dataset, subset: Source of its images.
        distance: `near`: images that show a near category; `far`: those that show none; `farther`: both.
        vocabulary: Key of the dataset's names in the rules file; by default the dataset's name.
        use: `test`: results are reported on it; `validation`: parameters of methods may be chosen on it.
        known: Fate of an image with a labelled ID class: `remove`, or `keep` where known and unknown objects
            share the images (see `farther.tools.derived`).
        candidates: A file of candidates (see `farther.curation.candidates`): of the subset, only images that it lists.
        admit: `reviewed`: an image enters only by a reviewer's decision; `all`: unless rules or reviewers remove it. By
            default `reviewed` with `candidates` and `all` without.
        assigned: `by rules`; or `as published` for a subset that is a curated split already: only reviewers' decisions
            change it.
    """

    dataset: str
    subset: str
    distance: Distance
    vocabulary: str | None = None
    use: Literal["test", "validation"] = "test"
    known: Literal["remove", "keep"] = "remove"
    candidates: Path | None = None
    admit: Literal["reviewed", "all"] | None = None
    assigned: Literal["by rules", "as published"] = "by rules"

    @property
    def needs_review(self) -> bool:
        """True if an image enters only by a reviewer's decision."""
        return self.admit == "reviewed" or (self.admit is None and self.candidates is not None)


@dataclass(config=STRICT, kw_only=True)
class Benchmark:
    """One benchmark.

    Args:
        id: The ID dataset.
        rules: The rules file.
        splits: The OOD splits by name.
        subsets: The ID splits by name, each a subset of the ID dataset.
        most: Largest number of images of an ID split, by name: those whose names have the smallest digests, so that a
            larger number adds images and replaces none. Thousands of regions are often enough to fit a score.
        protocol: Name of the lists of the rules file.
        empty: Fate of an OOD image without any labelled object. Nothing unknown is labelled there that could be
            found or missed, so `remove` is the default (FMIYC keeps images with labelled unknowns only).
        decisions: The file of reviewers' decisions, see `farther.curation.decisions`; they override the rules.
    """

    id: str
    rules: Path
    splits: dict[str, OodSplit]
    subsets: dict[str, str] = Field(default_factory=lambda: {"train": "train", "val": "val", "test": "test"})
    most: dict[str, PositiveInt] = Field(default_factory=dict)
    protocol: str = "paper"
    empty: Literal["keep", "remove"] = "remove"
    decisions: Path | None = None

    @property
    def test_splits(self) -> list[str]:
        """OOD splits that results are reported on, in their order; on the others parameters may be searched."""
        return [name for name, split in self.splits.items() if split.use == "test"]


def benchmark(name: str, params: Mapping[str, Any]) -> Benchmark:
    """The benchmark called `name`, its parameters checked.

    Raises:
        ParameterError: a parameter is unknown or has a wrong value; a split has the name of an ID split or one that
            cannot be a folder's; one image could be in two OOD splits; `most` names no ID split.
    """
    splits = params.get("splits")
    if isinstance(splits, Mapping):
        splits = {key: _split(f"benchmark {name!r}: split {key!r}", value) for key, value in splits.items()}
        params = {**params, "splits": splits}
    checked = build(Benchmark, f"benchmark {name!r}", dict(params))
    for split in [*checked.splits, *checked.subsets]:
        if not re.fullmatch(r"\w[\w.-]*", split):
            raise ParameterError(f"benchmark {name!r}: split name {split!r}: use letters, digits, '_', '-' and '.'")
    if both := set(checked.splits) & set(checked.subsets):
        raise ParameterError(f"benchmark {name!r}: {sorted(both)} name both an ID split and an OOD split")
    if unknown := set(checked.most) - set(checked.subsets):
        known = ", ".join(checked.subsets)
        raise ParameterError(f"benchmark {name!r}: most: {sorted(unknown)} are not ID splits. Known: {known}")
    _refuse_overlapping(name, checked)
    return checked


def subsets_used(benchmarks: Mapping[str, Mapping[str, Any]]) -> dict[str, set[str]]:
    """Subsets of each dataset in the section `benchmarks` of the parameters; errors as for `benchmark`."""
    used: dict[str, set[str]] = {}
    for name, params in benchmarks.items():
        checked = benchmark(name, params)
        used.setdefault(checked.id, set()).update(checked.subsets.values())
        for split in checked.splits.values():
            used.setdefault(split.dataset, set()).add(split.subset)
    return used


def _split(what: str, params: Any) -> OodSplit:
    if not isinstance(params, Mapping):
        raise ParameterError(f"{what}: expected {{dataset, subset, distance}}, found {params!r}")
    return build(OodSplit, what, dict(params))


def _refuse_overlapping(name: str, checked: Benchmark) -> None:
    taken: dict[tuple[str, str, str], str] = {}
    for key, split in checked.splits.items():
        takes_all = split.distance == "farther" or split.assigned == "as published"
        for distance in ("near", "far") if takes_all else (split.distance,):
            other = taken.setdefault((split.dataset, split.subset, distance), key)
            if other != key:
                raise ParameterError(
                    f"benchmark {name!r}: splits {other!r} and {key!r} both take {distance} images of "
                    f"{split.dataset} {split.subset}"
                )
