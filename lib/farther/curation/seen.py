"""Unknown classes that a detector may have seen: OOD categories annotated in ID training images."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import polars as pl
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from farther.curation.sources import LabelledImages

#: The ID split that methods, and usually detectors, learn from.
TRAINING = "train"


class SeenUnknown(TypedDict):
    """A category of unknown objects that ID training images show.

    Keys:
        category: Its name in the OOD splits. objects, images: Objects that the ID dataset annotates
        as this category in images of the training split, and
            these images.
        splits: The OOD splits that test it, with its objects there.
    """

    category: str
    objects: int
    images: int
    splits: dict[str, int]


def seen_unknowns(
    dataset: LabelledImages,
    training: LabelledImages,
    tested: Mapping[str, LabelledImages],
    id_classes: Collection[str],
) -> list[SeenUnknown]:
    """OOD categories that the ID dataset annotates in images of the training split, the most frequent first.

    A detector that was trained on these images has seen such objects, as background or under
    another label: they are unknown to it in name only. Objects that are not annotated cannot be
    found this way. Names are compared without regard to case and to spaces, underscores and
    hyphens.

    Args:
        dataset: The subset that the training split is made from, with all its labels.
        training: The training split; objects that it keeps with an ID class are known.
        tested: The OOD splits.
        id_classes: Names of the ID classes.
    """
    is_known, plain = (
        pl.col("category").is_in(list(id_classes)),
        pl.col("category").str.to_lowercase(),
    )
    plain = plain.str.replace_all("[ _-]", "")
    known = training.objects.frame.filter(is_known)
    annotated = (
        dataset.objects.frame.join(training.images.frame, on="image_id", how="semi")
        .join(known, on="object_id", how="anti")
        .group_by(plain=plain)
        .agg(objects=pl.len(), images=pl.col("image_id").n_unique())
    )
    found: dict[str, SeenUnknown] = {}
    for name, split in tested.items():
        counts = (
            split.objects.frame.filter(~is_known)
            .group_by("category")
            .agg(tested=pl.len())
            .sort("category")
        )
        for row in (
            counts.with_columns(plain=plain)
            .join(annotated, on="plain", maintain_order="left")
            .to_dicts()
        ):
            empty = SeenUnknown(
                category=row["category"], objects=row["objects"], images=row["images"], splits={}
            )
            splits = found.setdefault(row["plain"], empty)["splits"]
            splits[name] = splits.get(name, 0) + row["tested"]
    return sorted(found.values(), key=lambda one: (-one["objects"], one["category"]))
