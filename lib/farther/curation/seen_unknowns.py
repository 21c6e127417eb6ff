"""Unknown classes that a detector may have seen: OOD categories annotated in ID training images."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import polars as pl
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from farther.curation.sources import LabelledImages

#: The ID split that methods, and usually detectors, are fitted to.
TRAINING = "train"


class SeenUnknown(TypedDict):
    """A category of unknown objects that ID training images show.

    Keys:
        category: Its name in the OOD splits.
        objects: Number of objects that the ID dataset annotates as this category in images of the
            training split.
        images: Number of images with such an object.
        splits: The OOD splits that test the category → number of its objects there.
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
    """OOD categories that the ID dataset annotates in images of the training split.

    A detector that was trained on these images has seen such objects, as background or under
    another label: they are unknown to it in name only. Objects that are not annotated cannot be
    found this way. Names are compared without regard to case and to spaces, underscores and
    hyphens.

    Args:
        dataset: The subset that the training split is made from, with all its labels.
        training: The training split; objects that it keeps with an ID class are known.
        tested: The OOD splits.
        id_classes: Names of the ID classes.

    Returns:
        The categories, the most frequent first.
    """
    is_known = pl.col("category").is_in(list(id_classes))
    plain_name = pl.col("category").str.to_lowercase().str.replace_all("[ _-]", "")

    known_objects = training.objects.frame.filter(is_known)
    in_training = dataset.objects.frame.join(training.images.frame, on="image_id", how="semi")
    unknown_in_training = in_training.join(known_objects, on="object_id", how="anti")
    annotated = unknown_in_training.group_by(plain_name=plain_name).agg(
        objects=pl.len(), images=pl.col("image_id").n_unique()
    )

    unknown_by_name: dict[str, SeenUnknown] = {}
    for split_name, split in tested.items():
        unknown_objects = split.objects.frame.filter(~is_known)
        tested_categories = (
            unknown_objects.group_by("category").agg(tested=pl.len()).sort("category")
        )
        seen_categories = tested_categories.with_columns(plain_name=plain_name).join(
            annotated, on="plain_name", maintain_order="left"
        )
        for row in seen_categories.iter_rows(named=True):
            plain = row["plain_name"]
            if plain not in unknown_by_name:
                unknown_by_name[plain] = SeenUnknown(
                    category=row["category"],
                    objects=row["objects"],
                    images=row["images"],
                    splits={},
                )
            objects_by_split = unknown_by_name[plain]["splits"]
            objects_by_split[split_name] = objects_by_split.get(split_name, 0) + row["tested"]
    return sorted(unknown_by_name.values(), key=_by_falling_frequency)


def _by_falling_frequency(unknown: SeenUnknown) -> tuple[int, str]:
    return -unknown["objects"], unknown["category"]
