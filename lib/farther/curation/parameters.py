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
        dataset, subset: Where its images come from.
        distance: `near`: images that show a near category; `far`: those that show none; `farther`: both.
        vocabulary: Which names of the rules file the dataset uses; the dataset's own name by default.
        use: `test`: results are reported on it; `validation`: parameters of methods may be chosen on it.
        known: What happens to an image with a labelled ID class: `remove`, or `keep` where known and unknown objects
            share the images (see `farther.tools.derived`).
        candidates: A file of candidates (see `farther.curation.candidates`): of the subset, only images that it lists.
        admit: `reviewed`: an image enters when people decided that it does; `all`: when rules and people let it. Left
            out, `reviewed` where `candidates` is named and `all` elsewhere.
        assigned: What decides which images these are: `by rules`; or `as published`, where the subset is a split that
            somebody curated already: it is taken as it is, and only people's decisions change it.
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
        """Whether an image enters only when people decided that it does."""
        return self.admit == "reviewed" or (self.admit is None and self.candidates is not None)


@dataclass(config=STRICT, kw_only=True)
class Benchmark:
    """One benchmark.

    Args:
        id: The ID dataset.
        rules: The rules file.
        splits: The OOD splits by name.
        subsets: The ID splits by name: which subset of the ID dataset each is.
        most: ID splits that take at most so many images of their subset: those whose names have the smallest digests,
            so that a larger number adds images and replaces none. To fit a score, thousands of regions often do.
        protocol: Which lists of the rules file.
        empty: What happens to an OOD image without any labelled object. Nothing unknown is labelled there that could be
            found or missed, so `remove` is the default (FMIYC keeps images with labelled unknowns only).
        decisions: The file of people's decisions, see `farther.curation.decisions`; they override the rules.
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
        checked = {key: _split(f"benchmark {name!r}: split {key!r}", value) for key, value in splits.items()}
        params = {**params, "splits": checked}
    made = build(Benchmark, f"benchmark {name!r}", dict(params))
    for split in [*made.splits, *made.subsets]:
        if not re.fullmatch(r"\w[\w.-]*", split):
            raise ParameterError(f"benchmark {name!r}: split name {split!r}: use letters, digits, '_', '-' and '.'")
    both = set(made.splits) & set(made.subsets)
    if both:
        raise ParameterError(f"benchmark {name!r}: {sorted(both)} name both an ID split and an OOD split")
    strange = set(made.most) - set(made.subsets)
    if strange:
        raise ParameterError(f"benchmark {name!r}: most: {sorted(strange)} are no ID splits: {sorted(made.subsets)}")
    _refuse_overlapping(name, made)
    return made


def subsets_used(benchmarks: Mapping[str, Mapping[str, Any]]) -> dict[str, set[str]]:
    """The subsets of each dataset that the benchmarks draw from.

    Args:
        benchmarks: The section `benchmarks` of the parameters.

    Raises:
        ParameterError: see `benchmark`.
    """
    used: dict[str, set[str]] = {}
    for name, params in benchmarks.items():
        made = benchmark(name, params)
        used.setdefault(made.id, set()).update(made.subsets.values())
        for split in made.splits.values():
            used.setdefault(split.dataset, set()).add(split.subset)
    return used


def _split(what: str, params: Any) -> OodSplit:
    if not isinstance(params, Mapping):
        raise ParameterError(f"{what}: expected {{dataset, subset, distance}}, found {params!r}")
    return build(OodSplit, what, dict(params))


def _refuse_overlapping(name: str, made: Benchmark) -> None:
    taken: dict[tuple[str, str, str], str] = {}
    for key, split in made.splits.items():
        takes_all = split.distance == "farther" or split.assigned == "as published"
        for distance in ("near", "far") if takes_all else (split.distance,):
            other = taken.setdefault((split.dataset, split.subset, distance), key)
            if other != key:
                raise ParameterError(
                    f"benchmark {name!r}: splits {other!r} and {key!r} both take {distance} images of "
                    f"{split.dataset} {split.subset}"
                )
