"""ID images in which reviewers saw objects that are not labelled.

A proposal on such an object counts as a false alarm although it is right, so the sources of
proposals are measured a second time without these images.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import polars as pl

from farther.curation.decisions import DecisionsFile
from farther.errors import DataError
from farther.tables.files import is_present

#: `farther.evaluation.recovery.SourceResults.rule` of results without these images.
REVIEWED: Final = "reviewed"


def reviewed_file(benchmark: str, root: str | Path = ".") -> Path:
    """The file of decisions about the ID images of a benchmark; see `farther.review.suspects`."""
    return Path(root) / "data" / "decisions" / f"{benchmark}.id.csv"


def check_reviewed(file: Path, images_by_split: Mapping[str, Collection[str]]) -> None:
    """Refuses decisions about images that a split does not have: they would count for nothing.

    Args:
        file: See `reviewed_file`; may be absent.
        images_by_split: Names of the images of some splits; decisions about other splits are
            ignored.

    Raises:
        DataError: there is such a decision, or the file is damaged; names row and field.
    """
    if not is_present(file):
        return
    decided = DecisionsFile(file).read().current
    for split, images in images_by_split.items():
        of_split = decided.filter(subset=split)
        elsewhere = of_split.filter(~pl.col("image_id").is_in(list(images)))
        if elsewhere.height:
            row, image_id = elsewhere.select("row", "image_id").row(0)
            count = f"{elsewhere.height} of {of_split.height} decisions about split {split!r}"
            problem = (
                f"{count} are of images that it does not have, as {image_id!r}: delete these lines"
            )
            raise DataError(problem, file=file, row=row, field="image_id")


def with_unlabelled(file: Path, splits: Collection[str]) -> dict[str, set[str]] | None:
    """Images of each split in which most of their reviewers saw an unlabelled object.

    Args:
        file: See `reviewed_file`; may be absent.
        splits: Names of splits.

    Returns:
        {split: names of images}; None where there is no such image.

    Raises:
        DataError: the file is damaged; names row and field.
    """
    if not is_present(file):
        return None

    decisions = DecisionsFile(file).read().current
    share_of_removals = (pl.col("decision") == "remove").mean().alias("share")
    votes = decisions.group_by("subset", "image_id").agg(share_of_removals)
    unlabelled = votes.filter(pl.col("share") > 0.5)

    images_by_split = {}
    for split in splits:
        images_by_split[split] = set(unlabelled.filter(subset=split)["image_id"])
    if not any(images_by_split.values()):
        return None
    return images_by_split
