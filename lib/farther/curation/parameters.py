"""The parameters of a benchmark: its ID dataset and the splits that are out of its distribution."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, PositiveInt, Tag
from pydantic.dataclasses import dataclass

from farther.curation.division import Division
from farther.errors import ParameterError, known_names, shorten
from farther.naming.registry import STRICT, Parameters, build
from farther.tables.arguments import instance
from farther.tables.files import file_ending
from farther.terms import OodDistance

#: What a benchmark tests (OpenOOD, Section 2): out-of-distribution detection, open-set recognition,
#: anomaly detection.
Task = Literal["ood", "osr", "ad"]

#: ID splits whose parts of a subset come first, in this order.
PART_ORDER = ("train", "val", "test")

#: Name of the split of pseudo-OOD images.
PSEUDO_OOD = "pseudo_ood"


def _require_one_group(parameter: str, pattern: str) -> None:
    """ValueError unless a parameter's value is a regular expression with one group."""
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"{parameter}: not a regular expression: {error}") from None
    if groups != 1:
        raise ValueError(f"{parameter}: expected one group in parentheses, found {groups}")


@dataclass(config=STRICT, kw_only=True)
class ImagePairs(Parameters):
    """The images that an OOD split was made from by adding an unknown object to each.

    Args:
        of: The ID or OOD split that contains these images.
        name: Regular expression with one group: the part of its name that an image shares with
            the images made from it.
        by: Name that is compared: the image's id, or its file's path within the dataset.
    """

    of: str
    name: str = "(.*)"
    by: Literal["image_id", "file"] = "image_id"

    def __post_init__(self) -> None:
        _require_one_group("name", self.name)


@dataclass(config=STRICT, kw_only=True)
class ImageSource(Parameters):
    """A subset of a dataset.

    Args:
        dataset, subset: Dataset and subset of the images.
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
        dataset, subset: Dataset and subset of the images.
        vocabulary: Key of the dataset's names in the class mapping; by default the dataset's name.
    """

    vocabulary: str | None = None

    @property
    def names(self) -> str:
        """Key of the dataset's names in the class mapping."""
        return self.vocabulary or self.dataset


@dataclass(config=STRICT, kw_only=True)
class OodSplit(RuledImages):
    """One OOD split.

    Args:
        distance: `near`: images that show a near category; `far`: those that show none; `farther`:
            both.
        use: `test`: results are reported on it; `validation`: parameters of methods may be chosen
            on it.
        known: What is done with an image that shows a labelled ID class: `remove`, or `keep` where
            known and unknown objects share the images; known objects then have the names of the ID
            classes. `with unknown` keeps it only where an unknown object is labelled too: the
            others are ID images.
        candidates: A file of candidates, as the stage `enrich` writes it: of the subset, only
            images that it lists.
        admit: `reviewed`: an image enters only by a reviewer's decision; `all`: unless rules or
            reviewers remove it. By default `reviewed` with `candidates` and `all` without.
        pairs: The images that the unknown objects were added to, for metrics of what an added
            object changes.
        assigned: `by rules`; or `as published` for a subset that is a curated split already: only
            reviewers' decisions change it.
        rest_of: An OOD split of the same images whose `most` leaves some out: this split draws from
            those, so the two share none. Validation and test halves of a dataset without such
            subsets are made so.
    """

    distance: OodDistance
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
    """An ID split of another dataset, or of a subset that shows other classes too.

    By the rules, its images show an ID class and no category that overlaps with one. Their objects
    are those of ID classes, by the names of the ID classes; objects of other classes are left out.

    Args:
        empty: What is done with an image that shows no ID class.
        others: What is done with an image that shows a class which is not an ID class. `remove`
            where unknown objects share the images: detections of these are no ID detections.
    """

    empty: Literal["keep", "remove"] = "remove"
    others: Literal["keep", "remove"] = "keep"


@dataclass(config=STRICT, kw_only=True)
class PartOfSubset(Parameters):
    """A part of a subset of the ID dataset, where validation and test have no images of their own.

    An image belongs to a part by the digest of its file's bytes, so the parts are disjoint and the
    same on every machine, files of equal content stay together, and added images move no other one.
    The shares hold on average: of n images a part has about part · n, with a standard deviation of
    √(part · (1 − part) · n).

    Args:
        of: The subset of the ID dataset.
        part: Share of its images. Parts of one subset follow each other: train, val, test, then
            others by name.
        together: Regular expression with one group, searched in the file's path: images with the
            same group (frames of one video, crops of one picture) belong to the same part. An image
            without a match is a group of its own.
    """

    of: str
    part: Annotated[float, Field(gt=0, le=1)]
    together: str | None = None

    def __post_init__(self) -> None:
        if self.together is not None:
            _require_one_group("together", self.together)


@dataclass(config=STRICT, kw_only=True)
class ShiftedSplit(RuledImages):
    """Images of the ID classes under another distribution, such as corrupted images.

    Its labels of ID classes have the ID dataset's names; `vocabulary` is for `by rules`.

    Args:
        severity: Strength of the shift, from 1 on; images of the largest may be rejected without
            loss where self-awareness is measured.
        classes: `as labelled`; or `by rules`: of the dataset's images, those that show a class
            which by the rules is an ID class or overlaps with one, labelled by that ID class:
            images of other classes that count as ID.
        most: Largest number of images, selected as by a benchmark's `most`.
    """

    severity: PositiveInt
    classes: Literal["as labelled", "by rules"] = "as labelled"
    most: PositiveInt | None = None


@dataclass(config=STRICT, kw_only=True)
class PseudoOod(ImageSource):
    """Images of the ID validation split whose objects were blanked out (see `derived.blank`).

    Args:
        dataset, subset: Dataset and subset of its images.
        most: Largest number of images, selected as by a benchmark's `most`.
    """

    most: PositiveInt | None = None


def _kind(value: Any) -> str:
    """The tag of an ID split's form."""
    if isinstance(value, str):
        return " "
    if isinstance(value, PartOfSubset):
        return "  "
    if isinstance(value, Mapping) and "of" in value:
        return "  "
    return ""


#: A subset of the ID dataset, a part of one, or an ID split that is neither. The tags are blank, so
#: that the names in messages do not show them.
IdSubset = Annotated[
    Annotated[str, Tag(" ")] | Annotated[PartOfSubset, Tag("  ")] | Annotated[IdSplit, Tag("")],
    Discriminator(_kind),
]


def _usual_subsets() -> dict[str, IdSubset]:
    return {"train": "train", "val": "val", "test": "test"}


@dataclass(config=STRICT, kw_only=True)
class Benchmark(Parameters):
    """One benchmark: an ID dataset, and the splits that detectors of its classes are tested on.

    Args:
        id: The ID dataset, in the section `datasets`.
        rules: The class mapping: which categories of the datasets are ID classes, and
            which are near.
        splits: The OOD splits by name.
        shifted: Shifted splits of the ID classes by name, on which self-awareness is measured.
        shifted_val: The same of ID validation images, on which AP alone is measured (SAOD, Table
            A.8).
        pseudo_ood: Images without their known objects, from which the image threshold is taken; the
            split's name is `pseudo_ood`.
        subsets: The ID splits by name: each the name of a subset of the ID dataset, a part of one,
            or a subset of another dataset.
        most: Largest number of images of an ID or OOD split, by name: those whose names have the
            smallest digests, so that a larger number adds images and replaces none. Thousands of
            regions are often enough to fit a score.
        protocol: The lists of the class mapping that apply, by their name under its `protocols`.
        empty: What is done with an OOD image without any labelled object. Nothing unknown is
            labelled there that could be found or missed, so `remove` is the default (FMIYC keeps
            images with labelled unknowns only).
        decisions: The file of reviewers' decisions, which `farther benchmark review` writes; they
            override the rules.
        title: Its name in reports.
        division: Divides the ID dataset's classes into known and unknown ones: only the known ones
            are ID classes. Of the ID splits, images that show an unknown class are left out. In an
            OOD split of the ID dataset, images that show a known class are removed, and unknown
            classes are near.
        kind: The task: `ood`; `osr`, open-set recognition; `ad`, anomaly detection. By default
            `osr` with a division and `ood` without.
    """

    id: str
    rules: Path
    splits: dict[str, OodSplit]
    shifted: dict[str, ShiftedSplit] = Field(default_factory=dict)
    shifted_val: dict[str, ShiftedSplit] = Field(default_factory=dict)
    pseudo_ood: PseudoOod | None = None
    subsets: dict[str, IdSubset] = Field(default_factory=_usual_subsets)
    most: dict[str, PositiveInt] = Field(default_factory=dict)
    protocol: str = "paper"
    empty: Literal["keep", "remove"] = "remove"
    decisions: Path | None = None
    title: str | None = None
    division: Division | None = None
    kind: Task | None = None

    @property
    def task(self) -> Task:
        """The task of the benchmark; see `kind`."""
        if self.kind is not None:
            return self.kind
        return "ood" if self.division is None else "osr"

    @property
    def id_sources(self) -> dict[str, tuple[str, str]]:
        """Dataset and subset of each ID split."""
        sources = {}
        for name, split in self.subsets.items():
            if isinstance(split, IdSplit):
                sources[name] = split.origin
            elif isinstance(split, PartOfSubset):
                sources[name] = (self.id, split.of)
            else:
                sources[name] = (self.id, split)
        return sources

    def shares(self, name: str) -> tuple[float, float]:
        """Begin and end, between 0 and 1, of the part of its subset that an ID split is."""
        split = self.subsets[name]
        if not isinstance(split, PartOfSubset):
            return 0.0, 1.0
        begin = 0.0
        for earlier_name in sorted(self.subsets, key=_part_order):
            if earlier_name == name:
                break
            earlier = self.subsets[earlier_name]
            if isinstance(earlier, PartOfSubset) and earlier.of == split.of:
                begin += earlier.part
        return begin, begin + split.part

    def draw_order(self, names: Iterable[str]) -> list[str]:
        """OOD splits in the order in which they draw images: none before the split it is a rest of.

        Args:
            names: The splits.
        """
        return sorted(names, key=lambda name: (len(_rest_chain(self.splits, name)), name))

    def roles(self, empty: Collection[str] = ()) -> dict[str, Any]:
        """Role of each split besides the ID splits.

        Args:
            empty: Names of splits without images, on which nothing is tested.

        Returns:
            `test`: names of the OOD splits that results are reported on; `distance`: of each of
            them; `shifted`: severity by name; `shifted_val`: the same, where there are any;
            `pseudo_ood`: its name or None; `pairs`: the parameter of each OOD test split that has
            it.
        """
        tested = [name for name in self.test_splits if name not in empty]
        distances = {}
        pairs = {}
        for name in tested:
            split = self.splits[name]
            distances[name] = split.distance
            if split.pairs is not None:
                pairs[name] = asdict(split.pairs)
        roles: dict[str, Any] = {
            "test": tested,
            "distance": distances,
            "shifted": _severities(self.shifted),
            "pseudo_ood": None,
            "pairs": pairs,
        }
        if self.pseudo_ood:
            roles["pseudo_ood"] = PSEUDO_OOD
        if self.shifted_val:
            roles["shifted_val"] = _severities(self.shifted_val)
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
        """Names of the OOD splits that results are reported on, in their order.

        Parameters may be searched on the others.
        """
        return [name for name, split in self.splits.items() if split.use == "test"]


def _severities(splits: Mapping[str, ShiftedSplit]) -> dict[str, int]:
    return {name: split.severity for name, split in splits.items()}


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
    if params is None:
        params = {}
    if not isinstance(params, Mapping):
        found = shorten(params)
        raise ParameterError(f"benchmark {name!r}: expected a mapping of parameters, found {found}")
    checked = build(Benchmark, f"benchmark {name!r}", dict(params))
    problem = next(_problems(checked), None)
    if problem is not None:
        raise ParameterError(f"benchmark {name!r}: {problem}")
    return checked


def subsets_used(benchmarks: Mapping[str, Mapping[str, Any]]) -> dict[str, set[str]]:
    """Subsets of each dataset in the section `benchmarks` of the parameters.

    Raises:
        ParameterError: as for `benchmark`.
        DataError: `benchmarks` is no mapping.
    """
    instance(benchmarks, Mapping, "benchmarks")
    used: dict[str, set[str]] = {}
    for name, params in benchmarks.items():
        checked = benchmark(name, params)
        other_splits = (*checked.splits.values(), *checked.derived_splits.values())
        other_sources = [split.origin for split in other_splits]
        for dataset, subset in (*checked.id_sources.values(), *other_sources):
            used.setdefault(dataset, set()).add(subset)
    return used


def benchmark_kind(params: Mapping[str, Any]) -> Task:
    """The task of a benchmark, without checking its parameters; see `Benchmark.task`.

    Args:
        params: Its entry in the section `benchmarks` of params.yaml.

    Raises:
        DataError: `params` is no mapping.
    """
    instance(params, Mapping, "params")
    kind: Task | None = params.get("kind")
    if kind is not None:
        return kind
    return "osr" if params.get("division") else "ood"


def _problems(checked: Benchmark) -> Iterator[str]:
    """Parameters of a benchmark that do not fit together."""
    yield from _division_problems(checked)
    yield from _name_problems(checked)
    yield from _part_problems(checked)
    taken_by: dict[tuple[str, str, str], str] = {}
    for name, split in checked.splits.items():
        yield from _pair_problems(checked, name)
        if split.rest_of is not None:
            yield from _rest_problems(checked, name)
            continue
        for distance in _distances(split):
            images = (split.dataset, split.subset, distance)
            earlier = taken_by.setdefault(images, name)
            if earlier != name:
                yield (
                    f"splits {earlier!r} and {name!r} both take {distance} images of "
                    f"{split.dataset} {split.subset}"
                )


def _name_problems(checked: Benchmark) -> Iterator[str]:
    """Names of splits that are no names of folders, that two splits share, or that are unknown."""
    names_by_kind: dict[str, list[str]] = {
        "an ID split": list(checked.subsets),
        "an OOD split": list(checked.splits),
        "a shifted split": list(checked.shifted),
        "a shifted validation split": list(checked.shifted_val),
        "the pseudo-OOD split": [PSEUDO_OOD] if checked.pseudo_ood else [],
    }
    for names in names_by_kind.values():
        for name in names:
            if not re.fullmatch(r"\w[\w.-]*", name):
                yield f"split name {name!r}: use letters, digits, '_', '-' and '.'"
            ending = file_ending(name)
            if ending:
                yield f"split name {name!r}: ends like a file that farther writes ({ending})"
    for first, second in combinations(names_by_kind, 2):
        shared = set(names_by_kind[first]) & set(names_by_kind[second])
        if shared:
            yield f"{sorted(shared)} name both {first} and {second}"

    limited = (*checked.subsets, *checked.splits)
    unknown = set(checked.most) - set(limited)
    if unknown:
        known = known_names(limited)
        yield f"most: {sorted(unknown)} are neither ID nor OOD splits. {known}"


def _part_problems(checked: Benchmark) -> Iterator[str]:
    """Parts of one subset that add up to more than all of it, or could share images."""
    parts_by_subset: dict[str, list[PartOfSubset]] = {}
    for split in checked.subsets.values():
        if isinstance(split, PartOfSubset):
            parts_by_subset.setdefault(split.of, []).append(split)
    for subset, parts in parts_by_subset.items():
        total = sum(split.part for split in parts)
        if total > 1 + 1e-9:
            yield f"subsets: the parts of {subset!r} add up to {total:g}, more than 1"
        groupings = {split.together for split in parts}
        if len(groupings) > 1:
            yield (
                f"subsets: 'together' differs between parts of {subset!r}, which would share images"
            )


def _pair_problems(checked: Benchmark, name: str) -> Iterator[str]:
    """An OOD split whose `pairs` name no other split."""
    pairs = checked.splits[name].pairs
    if pairs is None:
        return
    known = [split for split in (*checked.subsets, *checked.splits) if split != name]
    if pairs.of not in known:
        yield (
            f"split {name!r}: pairs: of: no other split is called {pairs.of!r}. "
            f"{known_names(known)}"
        )


def _distances(split: OodSplit) -> tuple[OodDistance, ...]:
    """The distances of the images that an OOD split takes from its subset."""
    if split.distance == "farther" or split.assigned == "as published":
        return "near", "far"
    return (split.distance,)


def _rest_chain(splits: Mapping[str, OodSplit], name: str) -> list[str]:
    """The split that a split is the rest of, the one that this is the rest of, and so on."""
    chain: list[str] = []
    earlier = splits[name].rest_of
    while earlier is not None and earlier in splits and earlier not in chain:
        chain.append(earlier)
        earlier = splits[earlier].rest_of
    return chain


def _part_order(name: str) -> tuple[int, str]:
    """Sort key of ID splits: train, val, test, then others by name."""
    if name in PART_ORDER:
        return PART_ORDER.index(name), name
    return len(PART_ORDER), name


def _rest_problems(checked: Benchmark, name: str) -> Iterator[str]:
    """An OOD split that draws the rest of a split which is absent, different, or leaves none."""
    split = checked.splits[name]
    others = [other for other in checked.splits if other != name]
    if split.rest_of not in others:
        yield (
            f"split {name!r}: rest_of: no other OOD split is called {split.rest_of!r}. "
            f"{known_names(others)}"
        )
        return
    if name in _rest_chain(checked.splits, name):
        yield f"split {name!r}: rest_of: split {split.rest_of!r} is itself a rest of {name!r}"
        return
    earlier = checked.splits[split.rest_of]
    place = f"split {name!r}: rest_of: split {split.rest_of!r}"
    if (earlier.origin, earlier.distance) != (split.origin, split.distance):
        images = f"{earlier.distance} images of {' '.join(earlier.origin)}"
        yield f"{place} takes {images}; write the same dataset, subset, distance"
    elif split.rest_of not in checked.most:
        yield f"{place} leaves no image; write its number of images in `most`"


def _division_problems(checked: Benchmark) -> Iterator[str]:
    """Splits that do not fit a benchmark's division of classes."""
    if checked.division is None:
        return
    ood_splits = checked.splits.items()
    splits_of_id_dataset = {
        name: split for name, split in ood_splits if split.dataset == checked.id
    }
    if not splits_of_id_dataset:
        example = f"unknown: {{dataset: {checked.id}, subset: test, distance: near}}"
        yield (
            f"division: no OOD split is made of {checked.id!r}, so its unknown classes are never "
            f"tested. Add to `splits`: {example}"
        )
    for name, split in splits_of_id_dataset.items():
        if split.assigned == "as published":
            yield (
                f"split {name!r}: the division decides on images of {checked.id!r}; "
                "leave `assigned` out"
            )
        if split.distance == "far":
            yield (
                f"split {name!r}: unknown classes of a division are near; write `distance: near`"
            )
    for name, subset in checked.subsets.items():
        if isinstance(subset, IdSplit) and subset.others == "keep":
            yield (
                f"subset {name!r}: its images may show unknown classes of the division; "
                "write `others: remove`"
            )
