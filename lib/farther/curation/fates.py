"""What became of each image of an OOD source, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import polars as pl
import pyarrow as pa

from farther.curation.rules import PRECEDENCE, Rule
from farther.curation.sources import Source
from farther.errors import ParameterError
from farther.tables import Column, Table

#: What stands in `rule` where no object decided.
EMPTY = "no object is labelled"
NO_NEAR = "no near category is labelled"
NO_OVERLAP = "no ID class and no overlapping category is labelled"
PUBLISHED = "as published"

#: What stands in `object_id` where no object decided.
NO_OBJECT = -1


class Fates(Table):
    """One row an image of an OOD source.

    Columns:
        image_id, dataset, subset: The image.
        fate: `near`, `far`, `farther`, or `removed`.
        rule: The rule that decided: `overlap: spoon → diningtable`, or the reason why none did; where people decided,
            `decision: removed → person`.
        category: Category of the object that decided, "" if none did.
        object_id: That object, -1 if none did.
        decided_by: The people who decided, "" where the rules did.
        by_rules: Where people decided or have to, what the rules alone would have done, and why.
    """

    image_id = Column(pl.String)
    dataset = Column(pl.String)
    subset = Column(pl.String)
    fate = Column(pl.String)
    rule = Column(pl.String)
    category = Column(pl.String)
    object_id = Column(pl.Int64)
    decided_by = Column(pl.String, default="")
    by_rules = Column(pl.String, default="")


def decide(
    source: Source,
    rules: Mapping[str, Rule],
    *,
    subset: str,
    farther: bool,
    empty: Literal["keep", "remove"],
) -> Fates:
    """The fate of each image of a source.

    The rule with the highest precedence among those of the image's objects decides; among equals, the object that
    stands first in the table.

    Args:
        source: Images and objects.
        rules: The rule that decides for each category.
        subset: Name of the source's subset.
        farther: Whether kept images are all `farther`, so that near categories do not matter.
        empty: What happens to an image without any object.
    """
    category, words = _encoded(source.objects.category)
    near = len(PRECEDENCE) - 1
    ranks = np.array([_rank(rules.get(word), near if farther else near + 1) for word in words], dtype=np.int64)
    rank, row = _deciding(source, ranks[category] if len(words) else np.zeros(0, np.int64))
    ruled = rank < len(PRECEDENCE)
    without = len(PRECEDENCE)
    kept = "farther" if farther else "far"
    fate = np.select(
        [rank < near, rank == near, (rank > without) & (empty == "remove")], ["removed", "near", "removed"], kept
    )
    reason = np.where(rank > without, EMPTY, NO_OVERLAP if farther else NO_NEAR).astype(object)
    decider = row[ruled]
    reason[ruled] = [str(rules[word]) for word in source.objects.category[decider]]
    shown = np.full(len(rank), "", dtype=object)
    shown[ruled] = source.objects.category[decider]
    object_id = np.full(len(rank), NO_OBJECT, dtype=np.int64)
    object_id[ruled] = source.objects.object_id[decider]
    return Fates(
        image_id=source.images.image_id,
        dataset=source.images.dataset,
        subset=np.full(len(rank), subset, dtype=object),
        fate=fate.astype(object),
        rule=reason,
        category=shown,
        object_id=object_id,
    )


def as_published(source: Source, subset: str, distance: str, empty: Literal["keep", "remove"]) -> Fates:
    """The fate of each image of a split that is taken as its authors published it.

    Args:
        source, subset, empty: See `decide`.
        distance: The split's, which all images that are kept get.
    """
    columns = decide(source, {}, subset=subset, farther=False, empty=empty).columns()
    kept = columns["fate"] != "removed"
    columns["fate"] = np.where(kept, distance, columns["fate"]).astype(object)
    columns["rule"] = np.where(kept, PUBLISHED, columns["rule"]).astype(object)
    return Fates(**columns)


def explain(fates: Fates, image_id: str) -> str:
    """Says in a sentence what became of an image, and why.

    Raises:
        ParameterError: no OOD source has such an image.
    """
    rows = np.flatnonzero(fates.image_id == image_id)
    if not len(rows):
        raise ParameterError(f"no image {image_id!r} in the benchmark's OOD sources")
    return "\n".join(_sentence(fates, int(row)) for row in rows)


def count_by_rule(fates: Fates) -> dict[str, int]:
    """Images by dataset and rule, as `coco: overlap: spoon → diningtable`; sorted by name."""
    names = [f"{dataset}: {rule}" for dataset, rule in zip(fates.dataset, fates.rule, strict=True)]
    found, counts = np.unique(np.array(names, dtype=object), return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def why(fates: Fates, row: int) -> str:
    """The rule that decided, and on which object or by whom."""
    if fates.by_rules[row]:
        people = f", by {fates.decided_by[row]}" if fates.decided_by[row] else ""
        return f"{fates.rule[row]}{people} (by the rules: {fates.by_rules[row]})"
    if fates.object_id[row] != NO_OBJECT:
        return f"{fates.rule[row]} (object {fates.object_id[row]}, {fates.category[row]})"
    return str(fates.rule[row])


def _sentence(fates: Fates, row: int) -> str:
    place = f"{fates.dataset[row]} {fates.subset[row]} {fates.image_id[row]}"
    return f"{place}: {fates.fate[row]}; {why(fates, row)}"


def _encoded(values: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Index of each value in the list of distinct ones, and that list."""
    encoded = pa.array(values, pa.string()).dictionary_encode()
    return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()


def _rank(rule: Rule | None, ranks: int) -> int:
    """Precedence of a category's rule; the rank after the last where there is none or it does not matter."""
    return rule.precedence if rule is not None and rule.precedence < ranks else len(PRECEDENCE)


def _deciding(source: Source, ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each image's lowest rank and the first object that has it; for an image without objects, a rank above all."""
    count = max(len(ranks), 1)
    best = np.full(len(source.images), (len(PRECEDENCE) + 1) * count, dtype=np.int64)
    np.minimum.at(best, source.image_row, ranks * count + np.arange(len(ranks)))
    return best // count, best % count
