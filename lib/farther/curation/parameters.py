"""The parameters of a benchmark: its ID dataset and the splits that are out of its distribution."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, PositiveInt, Tag
from pydantic.dataclasses import dataclass

from farther.curation.division import Division
from farther.errors import ParameterError
from farther.registry import STRICT, build

Distance = Literal["near", "far", "farther"]

#: What a benchmark tests (OpenOOD, Section 2): out-of-distribution detection, open-set recognition,
#: anomaly detection.
Task = Literal["ood", "osr", "ad"]

#: Name of the split of pseudo-OOD images.
PSEUDO_OOD = "pseudo_ood"


@dataclass(config=STRICT, kw_only=True)
class ImagePairs:
    """Images of which those of an OOD split were made, by adding an unknown object.

    Args:
        of: The ID or OOD split that has them.
        name: Regular expression with one group: the part of its name that an image shares with
            those made from it.
        by: Name that is compared: the image's id, or its file's path within the dataset.
    """

    of: str
    name: str = "(.*)"
    by: Literal["image_id", "file"] = "image_id"

    def __post_init__(self) -> None:
        try:
            groups = re.compile(self.name).groups
        except re.error as error:
            raise ValueError(f"name: not a regular expression: {error}") from None
        if groups != 1:
            raise ValueError(f"name: expected one group in parentheses, found {groups}")


@dataclass(config=STRICT, kw_only=True)
class ImageSource:
    """A subset of a dataset.

    Args:
        dataset, subset: The names of both.
    """

    dataset: str
    subset: str

    @property
    def origin(self) -> tuple[str, str]:
        """Dataset and subset."""
        return self.dataset, self.subset


@dataclass(config=STRICT, kw_only=True)
class RuledImages(ImageSource):
    """A subset of a dataset, whose images are chosen by the rules.

    Args:
        dataset, subset: Source of the images.
        vocabulary: Key of the dataset's names in the rules file; by default the dataset's name.
    """

    vocabulary: str | None = None

    @property
    def names(self) -> str:
        """Key of the dataset's names in the rules file."""
        return self.vocabulary or self.dataset


@dataclass(config=STRICT, kw_only=True)
class OodSplit(RuledImages):
    """One OOD split; see `RuledImages` for its other parameters.

    Args:
        distance: `near`: images that show a near category; `far`: those that show none; `farther`:
            both.
        use: `test`: results are reported on it; `validation`: parameters of methods may be chosen
            on it.
        known: Fate of an image with a labelled ID class: `remove`, or `keep` where known and
            unknown objects share the images (see `farther.derived`); known objects then have the
            names of the ID classes. `with unknown` keeps it only where an unknown object is
            labelled too: the others are ID images.
        candidates: A file of candidates (see `farther.curation.candidates`): of the subset, only
            images that it lists.
        admit: `reviewed`: an image enters only by a reviewer's decision; `all`: unless rules or
            reviewers remove it. By default `reviewed` with `candidates` and `all` without.
        pairs: Images that the unknown objects were added to; see
            `farther.metrics.open_set.image_pairs`.
        assigned: `by rules`; or `as published` for a subset that is a curated split already: only
            reviewers' decisions change it.
        rest_of: An OOD split of the same images whose `most` leaves some out: this split draws from
            those, so the two share none. Validation and test halves of a dataset without such
            subsets are made so.
    """

    distance: Distance
    use: Literal["test", "validation"] = "test"
    known: Literal["remove", "keep", "with unknown"] = "remove"
    candidates: Path | None = None
    admit: Literal["reviewed", "all"] | None = None
    assigned: Literal["by rules", "as published"] = "by rules"
    pairs: ImagePairs | None = None
    rest_of: str | None = None

    @property
    def needs_review(self) -> bool:
        """True if an image enters only by a reviewer's decision."""
        return self.admit == "reviewed" or (self.admit is None and self.candidates is not None)


@dataclass(config=STRICT, kw_only=True)
class IdSplit(RuledImages):
    """An ID split that is not a whole subset of the ID dataset: one of another dataset, or with other classes too.

    By the rules, its images show an ID class and no category that overlaps with one. Their objects
    are those of ID classes, by the names of the ID classes; objects of other classes are left out.
    See `RuledImages` for the other parameters.

    Args:
        empty: Fate of an image that shows no ID class.
        others: Fate of an image that shows a class which is not an ID class. `remove` where unknown
            objects share the images: detections of these are no ID detections.
    """

    empty: Literal["keep", "remove"] = "remove"
    others: Literal["keep", "remove"] = "keep"


@dataclass(config=STRICT, kw_only=True)
class PartOfSubset:
    """A part of a subset of the ID dataset, for datasets without separate images for validation and test.

    An image belongs to a part by the digest of its file's bytes, so the parts are disjoint and the
    same on every machine, files of equal content stay together, and added images move no other one.
    The shares are met in the mean: of n images a part has about part · n, ± √(part · (1 − part) ·
    n).

    Args:
        of: The subset.
        part: Share of its images. Parts of one subset follow each other in the order of `subsets`.
        together: Regular expression with one group, searched in the file's path: images with the
            same group (frames of one video, crops of one picture) belong to the same part. Images
            without a match stand for themselves.
    """

    of: str
    part: Annotated[float, Field(gt=0, le=1)]
    together: str | None = None

    def __post_init__(self) -> None:
        try:
            groups = 1 if self.together is None else re.compile(self.together).groups
        except re.error as error:
            raise ValueError(f"together: not a regular expression: {error}") from None
        if groups != 1:
            raise ValueError(f"together: expected one group in parentheses, found {groups}")


@dataclass(config=STRICT, kw_only=True)
class ShiftedSplit(RuledImages):
    """Images of the ID classes under another distribution, such as corrupted images (see `farther.derived`).

    Its labels of ID classes have the ID dataset's names. See `RuledImages` for the other
    parameters; `vocabulary` is for `by rules`.

    Args:
        severity: Strength of the shift, from 1 on; images of the largest may be rejected without
            loss (`farther.metrics.self_awareness`).
        classes: `as labelled`; or `by rules`: of the dataset's images, those that show a class
            which by the rules is an ID class or overlaps with one, labelled by that ID class.
            Images of other classes that count as ID.
        most: Largest number of images, selected as by a benchmark's `most`.
    """

    severity: PositiveInt
    classes: Literal["as labelled", "by rules"] = "as labelled"
    most: PositiveInt | None = None


@dataclass(config=STRICT, kw_only=True)
class PseudoOod(ImageSource):
    """Images of the ID validation split whose objects were blanked out (see `farther.derived`).

    Args:
        dataset, subset: Source of its images.
        most: Largest number of images, selected as by a benchmark's `most`.
    """

    most: PositiveInt | None = None


def _kind(value: Any) -> str:
    """The tag of an ID split's form."""
    if isinstance(value, str):
        return " "
    return (
        "  "
        if isinstance(value, PartOfSubset) or (isinstance(value, Mapping) and "of" in value)
        else ""
    )


#: A subset of the ID dataset, a part of one, or an ID split that is neither. The tags are no part
#: of the names in messages.
IdSubset = Annotated[
    Annotated[str, Tag(" ")] | Annotated[PartOfSubset, Tag("  ")] | Annotated[IdSplit, Tag("")],
    Discriminator(_kind),
]


@dataclass(config=STRICT, kw_only=True)
class Benchmark:
    """One benchmark.

    Args:
        id: The ID dataset.
        rules: The rules file.
        splits: The OOD splits by name.
        shifted: Shifted splits of the ID classes by name, on which self-awareness is measured.
        shifted_val: The same of ID validation images, on which AP alone is measured (SAOD, Table
            A.8).
        pseudo_ood: Images without their known objects, from which the image threshold is taken; the
            split's name is `pseudo_ood`.
        subsets: The ID splits by name: each a subset of the ID dataset, a `PartOfSubset`, or an
            `IdSplit`.
        most: Largest number of images of an ID or OOD split, by name: those whose names have the
            smallest digests, so that a larger number adds images and replaces none. Thousands of
            regions are often enough to fit a score.
        protocol: Name of the lists of the rules file.
        empty: Fate of an OOD image without any labelled object. Nothing unknown is labelled there
            that could be found or missed, so `remove` is the default (FMIYC keeps images with
            labelled unknowns only).
        decisions: The file of reviewers' decisions, see `farther.curation.decisions`; they override
            the rules.
        title: Its name in reports.
        division: Divides the ID dataset's classes into known and unknown ones: only the known ones
            are ID classes. Of the ID splits, images that show an unknown class are left out. In an
            OOD split of the ID dataset, images that show a known class are removed, and unknown
            classes are near.
        kind: The task: `ood`; `osr`, open-set recognition; `ad`, anomaly detection. By default
            `osr` with a division and `ood` without; see `task`.
    """

    id: str
    rules: Path
    splits: dict[str, OodSplit]
    shifted: dict[str, ShiftedSplit] = Field(default_factory=dict)
    shifted_val: dict[str, ShiftedSplit] = Field(default_factory=dict)
    pseudo_ood: PseudoOod | None = None
    subsets: dict[str, IdSubset] = Field(
        default_factory=lambda: dict[str, IdSubset](train="train", val="val", test="test")
    )
    most: dict[str, PositiveInt] = Field(default_factory=dict)
    protocol: str = "paper"
    empty: Literal["keep", "remove"] = "remove"
    decisions: Path | None = None
    title: str | None = None
    division: Division | None = None
    kind: Task | None = None

    @property
    def task(self) -> Task:
        """What the benchmark tests; see `kind`."""
        if self.kind is not None:
            return self.kind
        return "ood" if self.division is None else "osr"

    @property
    def id_sources(self) -> dict[str, tuple[str, str]]:
        """Dataset and subset of each ID split."""
        return {
            name: split.origin
            if isinstance(split, IdSplit)
            else (self.id, split if isinstance(split, str) else split.of)
            for name, split in self.subsets.items()
        }

    def shares(self, name: str) -> tuple[float, float]:
        """Begin and end, between 0 and 1, of the part that an ID split is of its subset."""
        begin, split = 0.0, self.subsets[name]
        if not isinstance(split, PartOfSubset):
            return 0.0, 1.0
        for other, one in self.subsets.items():
            if other == name:
                break
            begin += one.part if isinstance(one, PartOfSubset) and one.of == split.of else 0.0
        return begin, begin + split.part

    def roles(self, empty: Collection[str] = ()) -> dict[str, Any]:
        """Role of each split besides the ID splits.

        Args:
            empty: Names of splits without images, on which nothing is tested.

        Returns:
            `test`: names of the OOD splits that results are reported on; `distance`: of each of
                them; `shifted`:
            severity by name; `shifted_val`: the same, where there are any; `pseudo_ood`: its name
            or None; `pairs`: the parameter of each OOD test split that has it.
        """
        tested = [name for name in self.test_splits if name not in empty]
        pairs = {}
        for name in tested:
            made = self.splits[name].pairs
            if made is not None:
                pairs[name] = asdict(made)
        roles: dict[str, Any] = {
            "test": tested,
            "distance": {name: self.splits[name].distance for name in tested},
            "shifted": {name: split.severity for name, split in self.shifted.items()},
            "pseudo_ood": PSEUDO_OOD if self.pseudo_ood else None,
            "pairs": pairs,
        }
        if self.shifted_val:
            roles["shifted_val"] = {
                name: split.severity for name, split in self.shifted_val.items()
            }
        return roles

    @property
    def derived_splits(self) -> dict[str, ShiftedSplit | PseudoOod]:
        """The shifted splits and the one of pseudo-OOD images, by name."""
        derived: dict[str, ShiftedSplit | PseudoOod] = {**self.shifted, **self.shifted_val}
        if self.pseudo_ood:
            derived[PSEUDO_OOD] = self.pseudo_ood
        return derived

    @property
    def test_splits(self) -> list[str]:
        """OOD splits that results are reported on, in their order; on the others parameters may be searched."""
        return [name for name, split in self.splits.items() if split.use == "test"]


def _rest_problems(checked: Benchmark, name: str) -> Iterator[str]:
    """What does not fit an OOD split that draws what another one leaves."""
    split = checked.splits[name]
    names = list(checked.splits)
    earlier = names[: names.index(name)]
    if split.rest_of not in earlier:
        known = ", ".join(earlier) or "none"
        yield f"split {name!r}: rest_of: no OOD split before it is called {split.rest_of!r}. Known: {known}"
        return
    other = checked.splits[split.rest_of]
    place = f"split {name!r}: rest_of: split {split.rest_of!r}"
    if (other.origin, other.distance) != (split.origin, split.distance):
        images = f"{other.distance} images of {' '.join(other.origin)}"
        yield f"{place} takes {images}; write the same dataset, subset, distance"
    elif split.rest_of not in checked.most:
        yield f"{place} leaves no image; write its number of images in `most`"


def benchmark(name: str, params: Mapping[str, Any] | None) -> Benchmark:
    """The benchmark called `name`, its parameters checked.

    Args:
        name: Its key in the section `benchmarks` of params.yaml.
        params: Its entry there; None where it is empty.

    Raises:
        ParameterError: a parameter is unknown or has a wrong value; a split has the name of an ID
            split or one that cannot be a folder's; one image could be in two OOD splits; `most`
            names no ID or OOD split.
    """
    checked = build(Benchmark, f"benchmark {name!r}", dict(params or {}))
    for problem in _problems(checked):
        raise ParameterError(f"benchmark {name!r}: {problem}")
    return checked


def subsets_used(benchmarks: Mapping[str, Mapping[str, Any]]) -> dict[str, set[str]]:
    """Subsets of each dataset in the section `benchmarks` of the parameters; errors as for `benchmark`."""
    used: dict[str, set[str]] = {}
    for name, params in benchmarks.items():
        checked = benchmark(name, params)
        drawn = [
            split.origin for split in (*checked.splits.values(), *checked.derived_splits.values())
        ]
        for dataset, subset in (*checked.id_sources.values(), *drawn):
            used.setdefault(dataset, set()).add(subset)
    return used


def benchmark_kind(params: Mapping[str, Any]) -> Task:
    """What a benchmark tests; see `Benchmark.task`.

    Args:
        params: Its entry in the section `benchmarks` of params.yaml, which is not checked here.
    """
    kind: Task | None = params.get("kind")
    if kind is not None:
        return kind
    return "osr" if params.get("division") else "ood"


def _problems(checked: Benchmark) -> Iterator[str]:
    """What does not fit together in a benchmark."""
    yield from _division_problems(checked)
    kinds: dict[str, Collection[str]]
    kinds = {
        "an ID split": checked.subsets,
        "an OOD split": checked.splits,
        "a shifted split": checked.shifted,
        "a shifted validation split": checked.shifted_val,
        "the pseudo-OOD split": [PSEUDO_OOD] if checked.pseudo_ood else [],
    }
    for split in [split for names in kinds.values() for split in names]:
        if not re.fullmatch(r"\w[\w.-]*", split):
            yield f"split name {split!r}: use letters, digits, '_', '-' and '.'"
    for (first, some), (second, others) in combinations(kinds.items(), 2):
        if both := set(some) & set(others):
            yield f"{sorted(both)} name both {first} and {second}"
    limited = (*checked.subsets, *checked.splits)
    if unknown := set(checked.most) - set(limited):
        yield f"most: {sorted(unknown)} are neither ID nor OOD splits. Known: {', '.join(limited)}"
    parts = [split for split in checked.subsets.values() if isinstance(split, PartOfSubset)]
    for subset in dict.fromkeys(split.of for split in parts):
        if (total := sum(split.part for split in parts if split.of == subset)) > 1 + 1e-9:
            yield f"subsets: the parts of {subset!r} add up to {total:g}, more than 1"
        if len({split.together for split in parts if split.of == subset}) > 1:
            yield f"subsets: 'together' differs between parts of {subset!r}, which would share images"
    taken: dict[tuple[str, str, str], str] = {}
    for name, made in checked.splits.items():
        known = [other for other in (*checked.subsets, *checked.splits) if other != name]
        if made.pairs is not None and made.pairs.of not in known:
            yield f"split {name!r}: pairs: of: no other split is called {made.pairs.of!r}. Known: {', '.join(known)}"
        if made.rest_of is not None:
            yield from _rest_problems(checked, name)
            continue
        takes_all = made.distance == "farther" or made.assigned == "as published"
        for distance in ("near", "far") if takes_all else (made.distance,):
            other = taken.setdefault((*made.origin, distance), name)
            if other != name:
                yield f"splits {other!r} and {name!r} both take {distance} images of {' '.join(made.origin)}"


def _division_problems(checked: Benchmark) -> Iterator[str]:
    """What does not fit a benchmark's division of classes."""
    if checked.division is None:
        return
    of_dataset = {
        name: split for name, split in checked.splits.items() if split.dataset == checked.id
    }
    if not of_dataset:
        example = f"unknown: {{dataset: {checked.id}, subset: test, distance: near}}"
        yield (
            f"division: no OOD split is made of {checked.id!r}, so its unknown classes are never tested. "
            f"Add to `splits`: {example}"
        )
    for name, split in of_dataset.items():
        if split.assigned == "as published":
            yield f"split {name!r}: the division decides on images of {checked.id!r}; leave `assigned` out"
        if split.distance == "far":
            yield f"split {name!r}: unknown classes of a division are near; write `distance: near`"
    for name, subset in checked.subsets.items():
        if isinstance(subset, IdSplit) and subset.others == "keep":
            yield f"subset {name!r}: its images may show unknown classes of the division; write `others: remove`"
