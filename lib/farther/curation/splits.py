"""Makes a benchmark's splits from ingested tables, by its rules file and reviewers' decisions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations, product
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from farther.curation.candidates import listed
from farther.curation.class_similarity import image_classes
from farther.curation.decisions import HEADER, IMAGE, Decisions, DecisionsFile
from farther.curation.fates import Fates, as_published, decide, without_undrawn
from farther.curation.overruling import overrule, withhold_unreviewed
from farther.curation.parameters import (
    Benchmark,
    IdSplit,
    OodSplit,
    PartOfSubset,
    PseudoOod,
    ShiftedSplit,
)
from farther.curation.rules import Rule, Rules, read_rules
from farther.curation.seen import TRAINING, SeenUnknown, seen_unknowns
from farther.curation.sources import Categories, LabelledImages, TablesFolder
from farther.errors import LISTED, DataError, ParameterError
from farther.tables import ClassPairs, ImageClasses, Images, Objects, SortedClasses
from farther.tables.documents import write_json
from farther.tables.files import digest, is_present
from farther.tables.writing import write_aside

#: Names of classes that a warning lists.
SHOWN_CLASSES = 8


@dataclass(frozen=True)
class Curation:
    """A curated benchmark.

    Args:
        splits: ID and OOD splits by name.
        fates: One row per image of the OOD sources.
        id_classes: Names of the ID classes.
        classes: One row per class of the datasets that OOD splits are made from.
        pairs: Similarity of these to the ID classes; None without `classes_by`.
        image_classes: The class that decides on each image, by split.
        warnings: Messages about rules without effect and images whose reviewers have no majority.
        similar: Groups of ID classes that are easily confused.
        seen: OOD categories that ID training images show.
        unknown_classes: Classes of the ID dataset that a division takes for unknown.
        left_out: Images of the ID dataset that a division leaves out, by split.
    """

    splits: Mapping[str, LabelledImages]
    fates: Fates
    id_classes: tuple[str, ...] = ()
    classes: SortedClasses = field(default_factory=SortedClasses.empty)
    pairs: ClassPairs | None = None
    image_classes: Mapping[str, ImageClasses] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    similar: list[list[str]] = field(default_factory=list)
    seen: list[SeenUnknown] = field(default_factory=list)
    unknown_classes: tuple[str, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)

    def write(self, folder: str | Path) -> None:
        """Writes `<split>/images.parquet`, `<split>/objects.parquet`, and one file of each of the other tables.

        The folder is replaced as a whole, so no split of an earlier definition stays. A split's
        files depend on its own source and rules only.
        """
        with write_aside(folder) as aside:
            for name, split in self.splits.items():
                split.images.write(aside / name / "images.parquet")
                split.objects.write(aside / name / "objects.parquet")
            self.fates.write(aside / "fates.parquet")
            self.classes.write(aside / "classes.parquet")
            for name, of_images in self.image_classes.items():
                of_images.write(aside / name / "classes.parquet")
            if self.pairs is not None:
                self.pairs.write(aside / "similarities.parquet")
            write_json(aside / "id_classes.json", self.id_classes)
            if self.unknown_classes:
                write_json(aside / "unknown_classes.json", self.unknown_classes)
            write_json(aside / "seen_unknowns.json", self.seen)
            write_json(
                aside / "warnings.json", {"count": len(self.warnings), "warnings": self.warnings}
            )

    def counts(self) -> dict[str, int]:
        """Counts in one flat mapping: images and objects per split, images that a division leaves out per ID split,
        images per dataset and rule, seen unknown categories, warnings."""
        counts: dict[str, int] = {}
        for name, split in self.splits.items():
            counts[f"{name}.images"] = len(split.images)
            counts[f"{name}.objects"] = len(split.objects)
        for name, count in self.left_out.items():
            counts[f"{name}.images_of_unknown_classes"] = count
        counts["removed.images"] = int((self.fates.fate == "removed").sum())
        rules = (
            self.fates.frame.group_by(pl.format("{}: {}", "dataset", "rule").alias("name"))
            .len()
            .sort("name")
        )
        return {
            **counts,
            **dict(rules.iter_rows()),
            "seen_unknowns": len(self.seen),
            "warnings": len(self.warnings),
        }


@dataclass(frozen=True)
class RuledSource:
    """One OOD source of a benchmark and the fates of its images by the rules.

    Args:
        source: Its images and objects.
        splits: The splits that draw from it, by name.
        fates: Fates by the rules, in the order of the images.
        kept: ndarray of shape (number of images,), str: the fate if no ID class and no overlap were
            labelled.
        warnings: Messages about rules without effect.
    """

    source: LabelledImages
    splits: Mapping[str, OodSplit]
    fates: Fates
    kept: np.ndarray
    warnings: list[str]

    def decided(self, decisions: Decisions) -> tuple[Fates, list[str]]:
        """The fates by rules and decisions, and messages about images whose reviewers have no majority."""
        fates, undecided = overrule(self.fates, self.kept, decisions)
        needs_review = any(split.needs_review for split in self.splits.values())
        return (withhold_unreviewed(fates) if needs_review else fates), undecided


def curate(benchmark: Benchmark, tables: TablesFolder) -> Curation:
    """Sorts the images of a benchmark's OOD sources by what is labelled in them, and passes its ID splits through.

    An image with a labelled ID class or an overlapping category is removed. Of the others, those
    with a near category go to the near split and the rest to the far split (FMIYC, Section 4.1, the
    automatic stage; Tables 5 and 6); a `farther` split takes all of them. The order of the rules is
    `farther.curation.rules.PRECEDENCE`. Then the decisions of more than half of an image's
    reviewers override the rules (its manual stage). The parameters of a split may keep images with
    known objects, or admit reviewed candidates only (see `OodSplit`).

    Args:
        benchmark: The benchmark.
        tables: The ingested tables of its datasets.

    Raises:
        ParameterError: a dataset, subset, protocol or vocabulary is unknown.
        DataError: a table, the rules file or the decisions file is damaged, or a decision is on
            what does not exist.
    """
    rules = read_rules(benchmark)
    splits = {name: id_split(benchmark, name, tables, rules) for name in benchmark.subsets}
    for name, derived in benchmark.derived_splits.items():
        splits[name] = _derived(derived, tables, rules).at_most(derived.most)
    left_out: dict[str, int] = {}
    if rules.unknown_classes:
        for name in benchmark.subsets:
            left_out[name] = _left_out(benchmark, name, tables, rules)
    warnings = _absent_id_classes(rules, benchmark, tables)
    for name, (
        dataset,
        subset,
    ) in benchmark.id_sources.items():  # nothing could be fitted on an empty one
        if not len(splits[name].images):
            raise DataError(
                f"ID split {name!r} has no image: {dataset} {subset} has none that the rules let in"
            )
    sources = by_rules(benchmark, tables, rules)
    decisions = _decisions(benchmark, sources, rules)
    fates: list[Fates] = []
    for ruled in sources.values():
        decided, undecided = ruled.decided(decisions)
        warnings += [*ruled.warnings, *undecided]
        drawn_by_distance: dict[str, list[str]] = {}
        for name, split in ruled.splits.items():
            eligible = ruled.source.select(decided.fate == split.distance)
            drawn = drawn_by_distance.setdefault(split.distance, [])
            if split.rest_of is not None:
                eligible = eligible.select(
                    ~eligible.images.frame["image_id"].is_in(drawn).to_numpy()
                )
            splits[name] = eligible.at_most(benchmark.most.get(name))
            drawn += splits[name].images.image_id.tolist()
        for distance, drawn in drawn_by_distance.items():
            decided = without_undrawn(decided, distance, drawn)
        fates.append(decided)
    warnings += [
        f"split {name!r} has no image, and is not tested"
        for name, split in splits.items()
        if not len(split.images)
    ]
    warnings += [*_in_common(splits, benchmark), *_without_boxes(splits, benchmark)]
    joined = Fates.concatenate(fates) if fates else Fates.empty()
    classes, pairs = _sorted_classes(benchmark, tables, rules), None
    if rules.similarity is not None:
        names = classes.category.tolist()
        pairs, lacking = rules.similarity.pairs(names), rules.similarity.unknown(names)
        warnings += [
            f"{rules.similarity.hierarchy.path}: no kind is called {name!r}" for name in lacking
        ]
    of_images = _image_classes(benchmark, tables, splits, classes)
    unique = list(dict.fromkeys(warnings))
    seen: list[SeenUnknown] = []
    if TRAINING in benchmark.id_sources:
        tested = {name: splits[name] for name in benchmark.splits}
        of_dataset = tables.source(*benchmark.id_sources[TRAINING])
        seen = seen_unknowns(of_dataset, splits[TRAINING], tested, rules.id_classes)
    return Curation(
        splits,
        joined,
        rules.id_classes,
        classes,
        pairs,
        of_images,
        unique,
        rules.similar,
        seen,
        rules.unknown_classes,
        left_out,
    )


def _derived(split: ShiftedSplit | PseudoOod, tables: TablesFolder, rules: Rules) -> LabelledImages:
    """Images and objects of a shifted split, or of pseudo-OOD images."""
    source = without_unknown(tables.source(*split.origin), rules)
    if isinstance(split, PseudoOod) or split.classes == "as labelled":
        return source
    deciding = rules.by_category(split.names, tables.categories(split.dataset))
    return of_id_classes(source, deciding, overlapping="keep")


def _sorted_classes(benchmark: Benchmark, tables: TablesFolder, rules: Rules) -> SortedClasses:
    """How far out the classes of the datasets are that splits are made from by the rules."""
    vocabularies = {split.dataset: split.names for split in _by_rules(benchmark).values()}
    parts = [
        rules.sorted_classes(name, words, tables.categories(name))
        for name, words in vocabularies.items()
    ]
    return SortedClasses.concatenate(parts) if parts else SortedClasses.empty()


def _image_classes(
    benchmark: Benchmark,
    tables: TablesFolder,
    splits: Mapping[str, LabelledImages],
    classes: SortedClasses,
) -> dict[str, ImageClasses]:
    """The class that decides on each image of the splits that are made by the rules."""
    found = {}
    for name, split in _by_rules(benchmark).items():
        source = tables.source(
            *split.origin
        )  # with the dataset's labels, which the split may not have
        chosen = (
            source.images.frame["image_id"].is_in(splits[name].images.image_id.tolist()).to_numpy()
        )
        of_dataset = classes.with_frame(classes.frame.filter(dataset=split.dataset))
        found[name] = image_classes(source.select(chosen), of_dataset)
    return found


def _by_rules(benchmark: Benchmark) -> dict[str, OodSplit | ShiftedSplit]:
    """The splits, besides ID splits, whose images are chosen by the rules, but for those that keep known objects."""
    ood = {
        n: split
        for n, split in benchmark.splits.items()
        if split.assigned == "by rules" and split.known == "remove"
    }
    return ood | {
        name: split for name, split in benchmark.shifted.items() if split.classes == "by rules"
    }


def id_split(benchmark: Benchmark, name: str, tables: TablesFolder, rules: Rules) -> LabelledImages:
    """Images and objects of an ID split.

    Raises:
        ParameterError: there is no such dataset, subset or vocabulary.
        DataError: a table is damaged.
    """
    split, source = benchmark.subsets[name], tables.source(*benchmark.id_sources[name])
    if isinstance(split, IdSplit):
        deciding = rules.by_category(split.names, tables.categories(split.dataset))
        source = of_id_classes(source, deciding, split.empty, others=split.others)
    else:
        source = without_unknown(_part(benchmark, name, source), rules)
    chosen = source.at_most(benchmark.most.get(name))
    if count := int(chosen.objects.is_unlabelled.sum()):
        where = " ".join(benchmark.id_sources[name])
        raise DataError(
            f"ID split {name!r}: {count} images of {where} have no boxes, which the ID classes need"
        )
    return chosen


def without_unknown(source: LabelledImages, rules: Rules) -> LabelledImages:
    """The images of the ID dataset that show no class which a division takes for unknown."""
    if not rules.unknown_classes:
        return source
    is_unknown = source.objects.frame["category"].is_in(list(rules.unknown_classes)).to_numpy()
    return source.select(~source.shows(is_unknown))


def _part(benchmark: Benchmark, name: str, source: LabelledImages) -> LabelledImages:
    """The part of a subset that an ID split is; the whole subset where it is none."""
    split = benchmark.subsets[name]
    if not isinstance(split, PartOfSubset):
        return source
    place = _places(source.images, split.together)
    begin, end = benchmark.shares(name)
    return source.select((place >= begin) & (place < end))


def _left_out(benchmark: Benchmark, name: str, tables: TablesFolder, rules: Rules) -> int:
    """Number of images that a division leaves out of an ID split; 0 for a split of another dataset."""
    if isinstance(benchmark.subsets[name], IdSplit):
        return 0
    source = _part(benchmark, name, tables.source(*benchmark.id_sources[name]))
    return len(source.images) - len(without_unknown(source, rules).images)


def _places(images: Images, together: str | None) -> np.ndarray:
    """A number of each image, at least 0 and less than 1, by the digest of its bytes or of the group it belongs to."""
    groups = images.digest.tolist()
    if together is not None:
        found = [re.search(together, file) for file in images.file]
        groups = [match[1] if match else alone for match, alone in zip(found, groups, strict=True)]
    return np.array([int(digest(group)[:13], 16) / 16**13 for group in groups])


def of_id_classes(
    source: LabelledImages,
    deciding: Mapping[str, Rule],
    empty: Literal["keep", "remove"] = "remove",
    overlapping: Literal["keep", "remove"] = "remove",
    others: Literal["keep", "remove"] = "keep",
) -> LabelledImages:
    """Images that show an ID class and no category that overlaps with one, with their objects of ID classes.

    Args:
        source: Images of a dataset.
        deciding: The rule for each of its categories; see `Rules.by_category`.
        empty: Fate of an image that shows no ID class.
        overlapping: "keep": a category that overlaps with an ID class counts as that class.
        others: Fate of an image that shows another class too.

    Returns:
        The images; their objects have the names of the ID classes.
    """
    kinds = ("ID class", "overlap") if overlapping == "keep" else ("ID class",)
    names = {category: rule.id_class for category, rule in deciding.items() if rule.kind in kinds}
    overlaps = [
        category
        for category, rule in deciding.items()
        if rule.kind == "overlap" and category not in names
    ]
    category = source.objects.frame["category"]
    known = category.is_in(list(names)).to_numpy()
    kept = ~source.shows(category.is_in(overlaps).to_numpy())
    if empty == "remove":
        kept &= source.shows(known)
    if others == "remove":
        kept &= ~source.shows(~known)
    return LabelledImages(source.images, _renamed(source.objects[known], names)).select(kept)


def _renamed(objects: Objects, names: Mapping[str, str]) -> Objects:
    return objects.with_frame(objects.frame.with_columns(pl.col("category").replace(names)))


def by_rules(
    benchmark: Benchmark, tables: TablesFolder, rules: Rules
) -> dict[tuple[str, str], RuledSource]:
    """Fates by the rules for each OOD source (dataset, subset), without reviewers' decisions.

    Args:
        benchmark: The benchmark.
        tables: The ingested tables of its datasets.
        rules: Its rules file.

    Raises:
        ParameterError: a dataset, subset or vocabulary is unknown.
        DataError: a table is damaged.
    """
    members: dict[tuple[str, str], dict[str, OodSplit]] = {}
    for name, split in benchmark.splits.items():
        members.setdefault(split.origin, {})[name] = split
    return {
        source: _ruled(tables, rules, splits, benchmark.empty) for source, splits in members.items()
    }


def _ruled(
    tables: TablesFolder,
    rules: Rules,
    splits: Mapping[str, OodSplit],
    empty: Literal["keep", "remove"],
) -> RuledSource:
    """Fates of the images of one source, and the splits that draw from it."""
    one = _alike(splits)
    source, categories = tables.source(*one.origin), tables.categories(one.dataset)
    if one.candidates is not None:
        source = source.select(listed(one.candidates, *one.origin, source.images.image_id))
    if one.assigned == "as published":
        fates = as_published(source, one.subset, one.distance, empty)
        return RuledSource(source, splits, fates, np.full(len(fates), one.distance, object), [])
    deciding = rules.by_category(one.names, categories)
    warnings = _of_vocabulary(rules, one, categories)
    if one.known != "remove":
        names = {
            category: rule.id_class
            for category, rule in deciding.items()
            if rule.kind == "ID class"
        }
        source = LabelledImages(source.images, _renamed(source.objects, names))
        deciding = {
            category: rule for category, rule in deciding.items() if rule.kind != "ID class"
        }
    if one.known == "with unknown":
        source = source.select(
            source.shows(~source.objects.frame["category"].is_in([*names.values()]).to_numpy())
        )
    near = {category: rule for category, rule in deciding.items() if rule.kind == "near"}
    farther = one.distance == "farther"
    fates = decide(source, deciding, subset=one.subset, farther=farther, empty=empty)
    kept = decide(source, near, subset=one.subset, farther=farther, empty="keep").fate
    return RuledSource(source, splits, fates, kept, warnings)


def _alike(splits: Mapping[str, OodSplit]) -> OodSplit:
    """One of the splits of a source, whose parameters must be equal but for near and far."""
    for name in ("names", "known", "assigned", "candidates", "needs_review"):
        values = {str(getattr(split, name)) for split in splits.values()}
        if len(values) > 1:
            word, given = "vocabulary" if name == "names" else name, ", ".join(sorted(values))
            raise ParameterError(
                f"splits {', '.join(splits)} share their images, so {word!r} cannot differ: {given}"
            )
    return next(iter(splits.values()))


def _of_vocabulary(rules: Rules, split: OodSplit, categories: Categories) -> list[str]:
    """Messages about rules without a category, and about categories that a rule is missing for."""
    dataset, names, found = split.dataset, split.names, []
    if names == dataset:
        if absent := rules.without_category(names, categories):
            count = (
                f"{len(absent)} rules name categories"
                if len(absent) > 1
                else "1 rule names a category"
            )
            found = [
                f"{rules.path}: {count} that {dataset} does not have: {'; '.join(map(str, absent))}"
            ]
    elif unnamed := rules.unnamed(
        names, categories
    ):  # the names of another dataset, of which this may have a few only
        listing = ", ".join(map(repr, unnamed[:LISTED]))
        if len(unnamed) > LISTED:
            listing = f"{listing} and {len(unnamed) - LISTED} more"
        found = [f"{dataset}: vocabulary {names!r} does not have {listing}: counted as unknown"]
    return [*found, *rules.doubtful(names, categories, keeps_known=split.known != "remove")]


def _decisions(
    benchmark: Benchmark, sources: Mapping[tuple[str, str], RuledSource], rules: Rules
) -> Decisions:
    """The benchmark's decisions, checked."""
    if benchmark.decisions is None:
        return Decisions()
    if not is_present(benchmark.decisions):
        problem = f"the file does not exist; without decisions it has one line: {HEADER.strip()}"
        raise DataError(problem, file=benchmark.decisions)
    decisions = DecisionsFile(benchmark.decisions).read()
    if len(decisions):
        known = [ruled.fates.frame.select(IMAGE) for ruled in sources.values()]
        none = pl.DataFrame(schema=dict.fromkeys(IMAGE, pl.String))
        decisions.check(pl.concat(known) if known else none, rules.id_classes)
    return decisions


def _in_common(splits: Mapping[str, LabelledImages], benchmark: Benchmark) -> list[str]:
    """Messages about images, by the content of their files, of an ID split that another ID or an OOD split has too."""
    digests = {
        name: splits[name].images.frame["digest"].unique()
        for name in (*benchmark.subsets, *benchmark.splits)
    }
    found = []
    for first, second in (
        *combinations(benchmark.subsets, 2),
        *product(benchmark.subsets, benchmark.splits),
    ):
        if common := digests[first].is_in(digests[second].implode()).sum():
            images = "1 image" if common == 1 else f"{common} images"
            found.append(
                f"splits {first!r} and {second!r} have {images} in common: neither is held out from the other"
            )
    return found


def _without_boxes(splits: Mapping[str, LabelledImages], benchmark: Benchmark) -> list[str]:
    """Messages about OOD splits with images that nobody annotated."""
    counts = {name: int(splits[name].objects.is_unlabelled.sum()) for name in benchmark.splits}
    meaning = (
        "have no boxes. They are assumed to show no ID class, and metrics of unknown objects (nOSE, AP_U, P_U, R_U, "
        "missed) leave them out and are – where no image has boxes. Parameter 'boxes' of the dataset adds boxes"
    )
    return [
        f"split {name!r}: {count} of {len(splits[name].images)} images {meaning}"
        for name, count in counts.items()
        if count
    ]


def _absent_id_classes(rules: Rules, benchmark: Benchmark, tables: TablesFolder) -> list[str]:
    known = set(tables.categories(benchmark.id).names)
    absent = [name for name in rules.id_classes if name not in known]
    shown = ", ".join(map(repr, absent[:SHOWN_CLASSES])) + (
        ", …" if len(absent) > SHOWN_CLASSES else ""
    )
    count = f"{len(absent)} of {len(rules.id_classes)} ID classes"
    return [f"{rules.path}: {benchmark.id} has no category of {count}: {shown}"] if absent else []
