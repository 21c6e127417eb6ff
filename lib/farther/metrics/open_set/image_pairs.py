"""Metrics of pairs of images that show the same scene with an unknown object and without it.

An image with a pasted or inpainted object is compared with the image that it was made from. A
detection at the object's place that is there without the object too was not caused by it, and a
known object that is detected only without it is lost because of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from farther.errors import DataError
from farther.metrics.open_set.outcomes import FOUND, KEPT, MISCLASSIFIED, Outcome
from farther.metrics.weighting import ImageWeights, plain, ratio, row_weights
from farther.tables import Regions


def base_images(
    images: Mapping[str, str], bases: Mapping[str, str], name: str = "(.*)"
) -> dict[str, str]:
    """The image without the unknown object of each image that has one; images without such a partner are left out.

    Args:
        images: Images with the object, each with its name or file.
        bases: Images without it, likewise; several images may have the same partner.
        name: Regular expression with one group: the part of a name or file that both have.

    Raises:
        DataError: two images without the object have the same part.

    >>> base_images(
    ...     {"1": "b1c6-dog.png", "2": "b1c6-boar.png", "3": "77aa-dog.png"},
    ...     {"x": "b1c6"},
    ...     "^([0-9a-f]{4})",
    ... )
    {'1': 'x', '2': 'x'}
    """
    pattern, by_part = re.compile(name), dict[str, str]()
    for base, text in sorted(bases.items()):
        if (found := pattern.search(text)) and by_part.setdefault(found[1], base) != base:
            other = by_part[found[1]]
            raise DataError(
                f"{other!r} and {base!r} have the same part {found[1]!r} by the pattern {name!r}"
            )
    parts = {
        image: found[1] for image, text in sorted(images.items()) if (found := pattern.search(text))
    }
    return {image: by_part[part] for image, part in parts.items() if part in by_part}


def of_partners(regions: Regions, base_of: Mapping[str, str]) -> tuple[Regions, np.ndarray]:
    """Regions of the images without the object, by the names of those with it.

    Args:
        regions: Of the images without the object.
        base_of: See `base_images`.

    Returns:
        For each image of `base_of` a copy of the regions of its partner, and the row of `regions`
        that each copies.
    """
    partners = pl.DataFrame({"image": list(base_of), "image_id": list(base_of.values())})
    rows = pl.DataFrame({"image_id": pl.Series(regions.image_id, dtype=pl.String)}).with_row_index(
        "row"
    )
    copied = rows.join(partners, on="image_id").sort("image", "row")
    row = copied["row"].to_numpy().astype(np.int64)
    return regions[row].with_columns(image_id=copied["image"].to_list()), row


def metrics(
    with_object: Outcome, without: Outcome, weights: ImageWeights | None = None
) -> dict[str, Any]:
    """What an unknown object changes in its image, as shares of objects.

    Args:
        with_object: Regions of the images with the unknown objects, matched to M objects under
            protocol "paper"; its settings name the known classes.
        without: Regions of the images without them (see `of_partners`), matched to the same
            objects.
        weights: How often the scene of each object was drawn in B replicates, ndarray of shape (B,
            M).

    Returns:
        Fractions, None where they are not defined; with weights ndarrays of shape (B,), NaN for
        None, and of the differences only.

        found: Share of the unknown objects that are found, minus the share found at the same place
            without the object.
        misclassified: The same of a known class that is detected there.
        known: Share of the known objects with a kept detection of their class, minus that share
            without the unknown object: what the unknown object costs the others.
        with, without: The two shares of each.
    """
    sides = {"with": _shares(with_object, weights), "without": _shares(without, weights)}
    changes = {name: share - sides["without"][name] for name, share in sides["with"].items()}
    return (
        changes
        if weights is not None
        else {**plain(changes), **{side: plain(of) for side, of in sides.items()}}
    )


def _shares(outcome: Outcome, weights: ImageWeights | None) -> dict[str, np.ndarray]:
    split = outcome.split
    known = split.is_known & ~split.is_ignored
    rows = row_weights(weights, np.arange(len(known)), len(known))
    parts = {
        "found": (outcome.of_object == FOUND, split.is_counted),
        "misclassified": (outcome.of_object == MISCLASSIFIED, split.is_counted),
        "known": (_detected(outcome), known),
    }
    return {
        name: ratio(rows[part & of].total(), rows[of].total()) for name, (part, of) in parts.items()
    }


def _detected(outcome: Outcome) -> np.ndarray:
    """Known objects with a kept detection of their class, bool."""
    split = outcome.split
    pair = split.candidates
    right = split.detections.label[pair.region] == split.object_class[pair.target]
    detected = np.zeros(len(split.objects), dtype=bool)
    detected[pair.target[right & (outcome.kind == KEPT)[pair.region]]] = True
    return detected & split.is_known
