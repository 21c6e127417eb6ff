"""Selection of a benchmark's splits from ingested tables, by its rules and reviewers' decisions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from farther.curation.candidates import candidate_mask
from farther.curation.class_similarity import image_classes
from farther.curation.decisions import HEADER, IMAGE, DecisionsFile, ReviewDecisions
from farther.curation.fates import Fates, as_published, decide, without_undrawn
from farther.curation.parameters import (
    Benchmark,
    IdSplit,
    OodSplit,
    PartOfSubset,
    PseudoOod,
    ShiftedSplit,
)
from farther.curation.review_votes import apply_decisions, withhold_unreviewed
from farther.curation.rules import CategoryRule, Kind, Rules, read_rules
from farther.curation.seen_unknowns import TRAINING, SeenUnknown, seen_unknowns
from farther.curation.sources import Categories, LabelledImages, TablesFolder
from farther.errors import LISTED, DataError, ParameterError
from farther.tables import ClassPairs, ImageClasses, Images, Objects, SortedClasses
from farther.tables.arguments import instance, one_of
from farther.tables.documents import write_json
from farther.tables.files import digest, is_present
from farther.tables.stored import ATTRIBUTES
from farther.tables.writing import write_aside

#: Number of class names that a warning lists.
SHOWN_CLASSES = 8


@dataclass(frozen=True)
class Curation:
    """A curated benchmark.

    Args:
        splits: ID and OOD splits by name.
        fates: One row per image of the OOD sources.
        id_classes: Names of the ID classes.
        classes: One row per class of the datasets that OOD splits are made from.
        pairs: Similarity of these classes to the ID classes; None without `classes_by`.
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
        """Writes the splits' tables and one file for each of the other tables.

        The folder, with `<split>/images.parquet` and `<split>/objects.parquet`, is replaced as a
        whole, so no split of an earlier definition stays. A split's files depend on its own source
        and rules only.
        """
        with write_aside(folder) as aside:
            for name, split in self.splits.items():
                split.images.write(aside / name / "images.parquet")
                split.objects.write(aside / name / "objects.parquet")
                if len(split.attributes):
                    split.attributes.write(aside / name / ATTRIBUTES)
            self.fates.write(aside / "fates.parquet")
            self.classes.write(aside / "classes.parquet")
            for name, classes in self.image_classes.items():
                classes.write(aside / name / "classes.parquet")
            if self.pairs is not None:
                self.pairs.write(aside / "similarities.parquet")
            write_json(aside / "id_classes.json", self.id_classes)
            if self.unknown_classes:
                write_json(aside / "unknown_classes.json", self.unknown_classes)
            write_json(aside / "seen_unknowns.json", self.seen)
            warnings = {"count": len(self.warnings), "warnings": self.warnings}
            write_json(aside / "warnings.json", warnings)

    def counts(self) -> dict[str, int]:
        """Counts in one flat mapping.

        Images and objects per split, images that a division leaves out per ID split, images per
        dataset and rule, seen unknown categories, warnings.
        """
        counts: dict[str, int] = {}
        for name, split in self.splits.items():
            counts[f"{name}.images"] = len(split.images)
            counts[f"{name}.objects"] = len(split.objects)
        for name, count in self.left_out.items():
            counts[f"{name}.images_of_unknown_classes"] = count
        counts["removed.images"] = int((self.fates.fate == "removed").sum())

        dataset_and_rule = pl.format("{}: {}", "dataset", "rule").alias("name")
        images_by_rule = self.fates.frame.group_by(dataset_and_rule).len().sort("name")
        counts.update(images_by_rule.iter_rows())
        counts["seen_unknowns"] = len(self.seen)
        counts["warnings"] = len(self.warnings)
        return counts


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

    def decided(self, decisions: ReviewDecisions) -> tuple[Fates, list[str]]:
        """The fates by rules and decisions.

        Returns:
            The fates, and messages about images whose reviewers have no majority.
        """
        fates, undecided = apply_decisions(self.fates, self.kept, decisions)
        if any(split.needs_review for split in self.splits.values()):
            fates = withhold_unreviewed(fates)
        return fates, undecided


def curate(benchmark: Benchmark, tables: TablesFolder) -> Curation:
    """The splits of a benchmark: its OOD sources sorted by what is labelled, and its ID splits.

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
        DataError: a table, the class mapping or the decisions file is damaged, a decision is on
            what does not exist, or an argument is of another class.
    """
    instance(benchmark, Benchmark, "benchmark")
    _refuse_other_than_tables(tables)
    rules = read_rules(benchmark)
    warnings = _absent_id_classes(rules, benchmark, tables)
    splits = {name: id_split(benchmark, name, tables, rules) for name in benchmark.subsets}
    for name, derived in benchmark.derived_splits.items():
        splits[name] = _derived_split(derived, tables, rules).at_most(derived.most)
    left_out: dict[str, int] = {}
    if rules.unknown_classes:
        for name in benchmark.subsets:
            left_out[name] = _left_out(benchmark, name, tables, rules)
    _refuse_empty_id_split(benchmark, splits)

    sources = fates_by_rules(benchmark, tables, rules)
    decisions = _decisions(benchmark, sources, rules)
    fates_by_source: list[Fates] = []
    for ruled in sources.values():
        fates, undecided = ruled.decided(decisions)
        drawn_splits = _drawn_splits(benchmark, ruled, fates)
        splits.update(drawn_splits)
        fates_by_source.append(_without_undrawn(ruled, drawn_splits, fates))
        warnings += ruled.warnings
        warnings += undecided
    joined_fates = Fates.empty()
    if fates_by_source:
        joined_fates = Fates.concatenate(fates_by_source)

    for name, split in splits.items():
        if not len(split.images):
            warnings.append(f"split {name!r} has no image, and is not tested")
    warnings += _in_common(splits, benchmark)
    warnings += _without_boxes(splits, benchmark)

    classes = _sorted_classes(benchmark, tables, rules)
    pairs = None
    if rules.similarity is not None:
        names = classes.category.tolist()
        pairs = rules.similarity.pairs(names)
        hierarchy = rules.similarity.hierarchy.path
        for name in rules.similarity.unknown(names):
            warnings.append(f"{hierarchy}: no kind is called {name!r}")
    return Curation(
        splits=splits,
        fates=joined_fates,
        id_classes=rules.id_classes,
        classes=classes,
        pairs=pairs,
        image_classes=_image_classes(benchmark, tables, splits, classes),
        warnings=list(dict.fromkeys(warnings)),
        similar=rules.similar,
        seen=_seen_unknowns(benchmark, tables, splits, rules),
        unknown_classes=rules.unknown_classes,
        left_out=left_out,
    )


def _refuse_other_than_tables(tables: TablesFolder) -> None:
    """DataError for a path, and whatever else has no tables."""
    if not hasattr(tables, "source"):
        found = type(tables).__name__
        raise DataError(f"expected TablesFolder, found {found}", field="tables")


def _refuse_empty_id_split(benchmark: Benchmark, splits: Mapping[str, LabelledImages]) -> None:
    """DataError if an ID split has no image: nothing could be fitted on it."""
    for name, (dataset, subset) in benchmark.id_sources.items():
        if not len(splits[name].images):
            raise DataError(
                f"ID split {name!r} has no image: {dataset} {subset} has none that the rules let in"
            )


def _drawn_splits(
    benchmark: Benchmark, ruled: RuledSource, fates: Fates
) -> dict[str, LabelledImages]:
    """The OOD splits of one source, by the fates of its images."""
    splits: dict[str, LabelledImages] = {}
    image_ids_by_distance: dict[str, list[str]] = {}
    for name in benchmark.draw_order(ruled.splits):
        split = ruled.splits[name]
        eligible = ruled.source.select(fates.fate == split.distance)
        image_ids = image_ids_by_distance.setdefault(split.distance, [])
        if split.rest_of is not None:
            in_earlier_split = eligible.images.frame["image_id"].is_in(image_ids).to_numpy()
            eligible = eligible.select(~in_earlier_split)
        splits[name] = eligible.at_most(benchmark.most.get(name))
        image_ids += splits[name].images.image_id.tolist()
    return {name: splits[name] for name in ruled.splits}


def _without_undrawn(
    ruled: RuledSource, splits: Mapping[str, LabelledImages], fates: Fates
) -> Fates:
    """The fates of a source, with the images removed that its splits do not draw."""
    image_ids_by_distance: dict[str, list[str]] = {}
    for name, split in ruled.splits.items():
        image_ids = image_ids_by_distance.setdefault(split.distance, [])
        image_ids += splits[name].images.image_id.tolist()
    for distance, image_ids in image_ids_by_distance.items():
        fates = without_undrawn(fates, distance, image_ids)
    return fates


def _seen_unknowns(
    benchmark: Benchmark,
    tables: TablesFolder,
    splits: Mapping[str, LabelledImages],
    rules: Rules,
) -> list[SeenUnknown]:
    """OOD categories that the images of the training split show; [] without a training split."""
    if TRAINING not in benchmark.id_sources:
        return []
    tested = {name: splits[name] for name in benchmark.splits}
    dataset = tables.source(*benchmark.id_sources[TRAINING])
    return seen_unknowns(dataset, splits[TRAINING], tested, rules.id_classes)


def _derived_split(
    split: ShiftedSplit | PseudoOod, tables: TablesFolder, rules: Rules
) -> LabelledImages:
    """Images and objects of a shifted split, or of pseudo-OOD images."""
    source = without_unknown(tables.source(*split.origin), rules)
    if isinstance(split, PseudoOod) or split.classes == "as labelled":
        return source
    rule_by_category = rules.by_category(split.names, tables.categories(split.dataset))
    return select_id_classes(source, rule_by_category, overlapping="keep")


def _sorted_classes(benchmark: Benchmark, tables: TablesFolder, rules: Rules) -> SortedClasses:
    """OODness of the classes of the datasets that splits are made from by the rules."""
    vocabularies = {}
    for _, split in sorted(_splits_by_rules(benchmark).items()):
        vocabularies[split.dataset] = split.names
    classes_by_dataset = []
    for dataset, vocabulary in vocabularies.items():
        categories = tables.categories(dataset)
        classes_by_dataset.append(rules.sorted_classes(dataset, vocabulary, categories))
    if not classes_by_dataset:
        return SortedClasses.empty()
    return SortedClasses.concatenate(classes_by_dataset)


def _image_classes(
    benchmark: Benchmark,
    tables: TablesFolder,
    splits: Mapping[str, LabelledImages],
    classes: SortedClasses,
) -> dict[str, ImageClasses]:
    """The class that decides on each image of the splits that are made by the rules."""
    classes_by_split = {}
    for name, split in _splits_by_rules(benchmark).items():
        # The dataset's own labels, which the split may lack.
        source = tables.source(*split.origin)
        image_ids = splits[name].images.image_id.tolist()
        in_split = source.images.frame["image_id"].is_in(image_ids).to_numpy()
        classes_of_dataset = classes.with_frame(classes.frame.filter(dataset=split.dataset))
        classes_by_split[name] = image_classes(source.select(in_split), classes_of_dataset)
    return classes_by_split


def _splits_by_rules(benchmark: Benchmark) -> dict[str, OodSplit | ShiftedSplit]:
    """The OOD and shifted splits whose images are chosen by the rules.

    Splits that keep known objects are left out.
    """
    splits: dict[str, OodSplit | ShiftedSplit] = {}
    for name, ood_split in benchmark.splits.items():
        keeps_known = ood_split.known != "remove"
        if ood_split.assigned == "by rules" and not keeps_known:
            splits[name] = ood_split
    shifted = benchmark.shifted.items()
    splits.update((name, split) for name, split in shifted if split.classes == "by rules")
    return splits


def id_split(benchmark: Benchmark, name: str, tables: TablesFolder, rules: Rules) -> LabelledImages:
    """Images and objects of an ID split.

    Raises:
        ParameterError: there is no such dataset, subset or vocabulary.
        DataError: a table is damaged.
    """
    split = benchmark.subsets[name]
    source = tables.source(*benchmark.id_sources[name])
    if isinstance(split, IdSplit):
        rule_by_category = rules.by_category(split.names, tables.categories(split.dataset))
        source = select_id_classes(source, rule_by_category, split.empty, others=split.others)
    else:
        source = without_unknown(_part(benchmark, name, source), rules)
    images = source.at_most(benchmark.most.get(name))
    count = int(images.objects.is_unlabelled.sum())
    if count:
        place = " ".join(benchmark.id_sources[name])
        raise DataError(
            f"ID split {name!r}: {count} images of {place} have no boxes, which the ID classes need"
        )
    return images


def without_unknown(source: LabelledImages, rules: Rules) -> LabelledImages:
    """The images of the ID dataset without those that show an unknown class of a division."""
    if not rules.unknown_classes:
        return source
    is_unknown = source.objects.frame["category"].is_in(list(rules.unknown_classes)).to_numpy()
    return source.select(~source.shows(is_unknown))


def _part(benchmark: Benchmark, name: str, source: LabelledImages) -> LabelledImages:
    """The part of a subset that an ID split is; the subset itself if the split is no part of it."""
    split = benchmark.subsets[name]
    if not isinstance(split, PartOfSubset):
        return source
    position = _positions(source.images, split.together)
    begin, end = benchmark.shares(name)
    return source.select((position >= begin) & (position < end))


def _left_out(benchmark: Benchmark, name: str, tables: TablesFolder, rules: Rules) -> int:
    """Number of images that a division leaves out of an ID split; 0 for one of another dataset."""
    if isinstance(benchmark.subsets[name], IdSplit):
        return 0
    source = _part(benchmark, name, tables.source(*benchmark.id_sources[name]))
    return len(source.images) - len(without_unknown(source, rules).images)


def _positions(images: Images, together: str | None) -> np.ndarray:
    """A pseudo-random position of each image, at least 0 and less than 1.

    It is taken from the digest of the image's bytes, or of the group that the image belongs to.

    Args:
        images: The images.
        together: Regular expression of the group; see `PartOfSubset`.
    """
    groups = images.digest.tolist()
    if together is not None:
        for row, file in enumerate(images.file):
            match = re.search(together, file)
            if match:
                groups[row] = match[1]
    return np.array([int(digest(group)[:13], 16) / 16**13 for group in groups])


def select_id_classes(
    source: LabelledImages,
    deciding: Mapping[str, CategoryRule],
    empty: Literal["keep", "remove"] = "remove",
    overlapping: Literal["keep", "remove"] = "remove",
    others: Literal["keep", "remove"] = "keep",
) -> LabelledImages:
    """Images that show an ID class and no overlapping category, with their objects of ID classes.

    Args:
        source: Images of a dataset.
        deciding: The rule for each of its categories; see `Rules.by_category`.
        empty: Fate of an image that shows no ID class.
        overlapping: "keep": a category that overlaps with an ID class counts as that class.
        others: Fate of an image that shows another class too.

    Returns:
        The images; their objects have the names of the ID classes.
    """
    instance(source, LabelledImages, "source")
    instance(deciding, Mapping, "deciding")
    for value, name in ((empty, "empty"), (overlapping, "overlapping"), (others, "others")):
        one_of(value, ("keep", "remove"), name)
    id_class_by_category = {}
    overlaps = []
    for name, rule in deciding.items():
        if rule.kind == "ID class" or (rule.kind == "overlap" and overlapping == "keep"):
            id_class_by_category[name] = rule.id_class
        elif rule.kind == "overlap":
            overlaps.append(name)

    category = source.objects.frame["category"]
    is_known = category.is_in(list(id_class_by_category)).to_numpy()
    is_kept = ~source.shows(category.is_in(overlaps).to_numpy())
    if empty == "remove":
        is_kept &= source.shows(is_known)
    if others == "remove":
        is_kept &= ~source.shows(~is_known)
    known_objects = _renamed(source.objects[is_known], id_class_by_category)
    return source.with_objects(known_objects).select(is_kept)


def _renamed(objects: Objects, names: Mapping[str, str]) -> Objects:
    return objects.with_frame(objects.frame.with_columns(pl.col("category").replace(names)))


def fates_by_rules(
    benchmark: Benchmark, tables: TablesFolder, rules: Rules
) -> dict[tuple[str, str], RuledSource]:
    """Fates by the rules for each OOD source (dataset, subset), without reviewers' decisions.

    Args:
        benchmark: The benchmark.
        tables: The ingested tables of its datasets.
        rules: Its class mapping.

    Raises:
        ParameterError: a dataset, subset or vocabulary is unknown.
        DataError: a table is damaged, or an argument is of another class.
    """
    instance(benchmark, Benchmark, "benchmark")
    _refuse_other_than_tables(tables)
    instance(rules, Rules, "rules")
    splits_by_source: dict[tuple[str, str], dict[str, OodSplit]] = {}
    for name, split in benchmark.splits.items():
        splits_by_source.setdefault(split.origin, {})[name] = split
    ruled_sources = {}
    for source, splits in splits_by_source.items():
        ruled_sources[source] = _ruled_source(tables, rules, splits, benchmark.empty)
    return ruled_sources


def _ruled_source(
    tables: TablesFolder,
    rules: Rules,
    splits: Mapping[str, OodSplit],
    empty: Literal["keep", "remove"],
) -> RuledSource:
    """Fates of the images of one source, and the splits that draw from it."""
    split = _common_parameters(splits)
    categories = tables.categories(split.dataset)
    source = tables.source(*split.origin)
    if split.candidates is not None:
        is_candidate = candidate_mask(split.candidates, *split.origin, source.images.image_id)
        source = source.select(is_candidate)
    if split.assigned == "as published":
        fates = as_published(source, split.subset, split.distance, empty)
        without_overlap = np.full(len(fates), split.distance, object)
        return RuledSource(source, splits, fates, without_overlap, warnings=[])

    rule_by_category = rules.by_category(split.names, categories)
    warnings = _vocabulary_warnings(rules, split, categories)
    if split.known != "remove":
        source = _with_known_objects(source, split, rule_by_category)
        rule_by_category = _without_kind(rule_by_category, "ID class")
    near_rules = _without_kind(_without_kind(rule_by_category, "ID class"), "overlap")
    farther = split.distance == "farther"
    fates = decide(source, rule_by_category, subset=split.subset, farther=farther, empty=empty)
    without_overlap = decide(
        source, near_rules, subset=split.subset, farther=farther, empty="keep"
    ).fate
    return RuledSource(source, splits, fates, without_overlap, warnings)


def _with_known_objects(
    source: LabelledImages, split: OodSplit, rule_by_category: Mapping[str, CategoryRule]
) -> LabelledImages:
    """The images of a split that keeps known objects, which get the names of the ID classes."""
    id_class_by_category = {}
    for category, rule in rule_by_category.items():
        if rule.kind == "ID class":
            id_class_by_category[category] = rule.id_class
    renamed = source.with_objects(_renamed(source.objects, id_class_by_category))
    if split.known == "keep":
        return renamed
    id_classes = list(id_class_by_category.values())
    is_known = renamed.objects.frame["category"].is_in(id_classes).to_numpy()
    return renamed.select(renamed.shows(~is_known))


def _without_kind(
    rule_by_category: Mapping[str, CategoryRule], kind: Kind
) -> dict[str, CategoryRule]:
    return {name: rule for name, rule in rule_by_category.items() if rule.kind != kind}


def _common_parameters(splits: Mapping[str, OodSplit]) -> OodSplit:
    """One of the splits of a source, whose parameters must be equal but for near and far."""
    for attribute in ("names", "known", "assigned", "candidates", "needs_review"):
        values = {str(getattr(split, attribute)) for split in splits.values()}
        if len(values) > 1:
            parameter = attribute
            if attribute == "names":
                parameter = "vocabulary"
            raise ParameterError(
                f"splits {', '.join(splits)} share their images, so {parameter!r} cannot differ: "
                f"{', '.join(sorted(values))}"
            )
    return next(iter(splits.values()))


def _vocabulary_warnings(rules: Rules, split: OodSplit, categories: Categories) -> list[str]:
    """Messages about rules without a category, and about categories that lack a rule."""
    warnings = []
    if split.names == split.dataset:
        absent = rules.without_category(split.names, categories)
        if absent:
            warnings.append(_absent_categories(rules, split.dataset, absent))
    else:
        # The names of another dataset, of which this one may have only a few.
        unnamed = rules.unnamed(split.names, categories)
        if unnamed:
            warnings.append(_unnamed_categories(split, unnamed))
    return warnings + rules.doubtful(split.names, categories, keeps_known=split.known != "remove")


def _absent_categories(rules: Rules, dataset: str, absent: Sequence[CategoryRule]) -> str:
    count = "1 rule names a category"
    if len(absent) > 1:
        count = f"{len(absent)} rules name categories"
    listing = "; ".join(map(str, absent))
    return f"{rules.path}: {count} that {dataset} does not have: {listing}"


def _unnamed_categories(split: OodSplit, unnamed: Sequence[str]) -> str:
    listing = ", ".join(map(repr, unnamed[:LISTED]))
    if len(unnamed) > LISTED:
        listing = f"{listing} and {len(unnamed) - LISTED} more"
    return (
        f"{split.dataset}: vocabulary {split.names!r} does not have {listing}: counted as unknown"
    )


def _decisions(
    benchmark: Benchmark, sources: Mapping[tuple[str, str], RuledSource], rules: Rules
) -> ReviewDecisions:
    """The benchmark's decisions, checked."""
    if benchmark.decisions is None:
        return ReviewDecisions()
    if not is_present(benchmark.decisions):
        problem = f"the file does not exist; without decisions it has one line: {HEADER.strip()}"
        raise DataError(problem, file=benchmark.decisions)
    decisions = DecisionsFile(benchmark.decisions).read()
    if len(decisions):
        no_images = pl.DataFrame(schema=dict.fromkeys(IMAGE, pl.String))
        images_by_source = [ruled.fates.frame.select(IMAGE) for ruled in sources.values()]
        decisions.check(pl.concat([no_images, *images_by_source]), rules.id_classes)
    return decisions


def _in_common(splits: Mapping[str, LabelledImages], benchmark: Benchmark) -> list[str]:
    """Messages about images of an ID split that another ID split or an OOD split has too.

    Images are equal if the content of their files is.
    """
    digests = {}
    for name in (*benchmark.subsets, *benchmark.splits):
        digests[name] = splits[name].images.frame["digest"].unique()
    id_pairs = combinations(benchmark.subsets, 2)
    id_and_ood_pairs = product(benchmark.subsets, benchmark.splits)
    messages = []
    for first, second in (*id_pairs, *id_and_ood_pairs):
        count = digests[first].is_in(digests[second].implode()).sum()
        if not count:
            continue
        images = "1 image" if count == 1 else f"{count} images"
        messages.append(
            f"splits {first!r} and {second!r} have {images} in common: "
            "neither is held out from the other"
        )
    return messages


def _without_boxes(splits: Mapping[str, LabelledImages], benchmark: Benchmark) -> list[str]:
    """Messages about OOD splits with images that nobody annotated."""
    consequence = (
        "have no boxes. They are assumed to show no ID class, and metrics of unknown objects "
        "(nOSE, AP_U, P_U, R_U, missed) leave them out and are – where no image has boxes. "
        "Parameter 'boxes' of the dataset adds boxes"
    )
    messages = []
    for name in benchmark.splits:
        count = int(splits[name].objects.is_unlabelled.sum())
        if count:
            total = len(splits[name].images)
            messages.append(f"split {name!r}: {count} of {total} images {consequence}")
    return messages


def _absent_id_classes(rules: Rules, benchmark: Benchmark, tables: TablesFolder) -> list[str]:
    """A message about ID classes that are no categories of the ID dataset; [] without any."""
    known = set(tables.categories(benchmark.id).names)
    absent = [name for name in rules.id_classes if name not in known]
    if not absent:
        return []
    names = ", ".join(map(repr, absent[:SHOWN_CLASSES]))
    if len(absent) > SHOWN_CLASSES:
        names = f"{names}, …"
    count = f"{len(absent)} of {len(rules.id_classes)} ID classes"
    return [f"{rules.path}: {benchmark.id} has no category of {count}: {names}"]
