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

from farther.errors import DataError, ParameterError, shorten
from farther.metrics.open_set.outcomes import FOUND, KEPT, MISCLASSIFIED, Outcome
from farther.metrics.weighting import ImageWeights, plain, ratio, row_weights
from farther.tables import Regions
from farther.tables.arguments import instance, texts


def base_images(
    images: Mapping[str, str], bases: Mapping[str, str], name: str = "(.*)"
) -> dict[str, str]:
    """The image without the unknown object of each image that has one.

    Args:
        images: Images with the object, each with its name or file.
        bases: Images without it, likewise; several images may have the same partner.
        name: Regular expression with one group: the part of a name or file that both have.

    Returns:
        Image with the object → image without it; images without such a partner are left out.

    Raises:
        DataError: two images without the object have the same part.

    >>> images = {"1": "b1c6-dog.png", "2": "b1c6-boar.png", "3": "77aa-dog.png"}
    >>> base_images(images, {"x": "b1c6"}, "^([0-9a-f]{4})")
    {'1': 'x', '2': 'x'}
    """
    for argument, values in (("images", images), ("bases", bases)):
        instance(values, Mapping, argument)
        texts(list(values), argument, strict=True)
        texts(list(values.values()), argument, strict=True)
    if not isinstance(name, str):
        raise ParameterError(f"name: expected a regular expression, found {shorten(name)}")
    try:
        pattern = re.compile(name)
    except re.error as error:
        raise ParameterError(f"name: not a regular expression: {error}") from None
    if pattern.groups < 1:
        raise ParameterError(f"name: expected a regular expression with one group, found {name!r}")
    base_by_part: dict[str, str] = {}
    for base, text in sorted(bases.items()):
        match = pattern.search(text)
        if match is None:
            continue
        first_base = base_by_part.setdefault(match[1], base)
        if first_base != base:
            raise DataError(
                f"{first_base!r} and {base!r} have the same part {match[1]!r} "
                f"by the pattern {name!r}"
            )

    base_by_image = {}
    for image, text in sorted(images.items()):
        match = pattern.search(text)
        if match is not None and match[1] in base_by_part:
            base_by_image[image] = base_by_part[match[1]]
    return base_by_image


def partner_regions(regions: Regions, base_of: Mapping[str, str]) -> tuple[Regions, np.ndarray]:
    """Regions of the images without the object, by the names of those with it.

    Args:
        regions: Of the images without the object.
        base_of: Image with the object → image without it; see `base_images`.

    Returns:
        For each image of `base_of` a copy of the regions of its partner, and the row of `regions`
        that each copies.
    """
    instance(regions, Regions, "regions")
    instance(base_of, Mapping, "base_of")
    texts(list(base_of), "base_of", strict=True)
    texts(list(base_of.values()), "base_of", strict=True)
    partners = pl.DataFrame({"image": list(base_of), "image_id": list(base_of.values())})
    image_ids = pl.DataFrame({"image_id": pl.Series(regions.image_id, dtype=pl.String)})
    rows = image_ids.with_row_index("row")
    copied = rows.join(partners, on="image_id").sort("image", "row")
    row = copied["row"].to_numpy().astype(np.int64)
    return regions[row].with_columns(image_id=copied["image"].to_list()), row


def metrics(
    with_object: Outcome,
    without: Outcome,
    weights: ImageWeights | None = None,
    weights_without: ImageWeights | None = None,
) -> dict[str, Any]:
    """Changes that an unknown object causes in its image, as shares of objects.

    Args:
        with_object: Regions of the images with the unknown objects, matched to M objects under
            protocol "paper"; its settings name the known classes.
        without: Regions of the images without them (see `partner_regions`), matched to the same
            objects.
        weights: How often the scene of each object was drawn in B replicates, ndarray of shape (B,
            M).
        weights_without: The same of the objects of `without`; `weights` when None.

    Returns:
        Fractions, None where they are not defined; with weights ndarrays of shape (B,), NaN for
        None, and of the differences only.

        found: Share of the unknown objects that are found, minus the share found at the same place
            without the object.
        misclassified: The same of a known class that is detected there.
        known: Share of the known objects with a kept detection of their class, minus that share
            without the unknown object: what the unknown object costs the known classes.
        with, without: The two shares of each.
    """
    instance(with_object, Outcome, "with_object")
    instance(without, Outcome, "without")
    shares_with = _shares(with_object, weights)
    if weights_without is None:
        weights_without = weights
    shares_without = _shares(without, weights_without)
    changes = {name: share - shares_without[name] for name, share in shares_with.items()}
    if weights is not None:
        return changes
    return {**plain(changes), "with": plain(shares_with), "without": plain(shares_without)}


def _shares(outcome: Outcome, weights: ImageWeights | None) -> dict[str, np.ndarray]:
    """Shares of unknown and of known objects, each an ndarray of shape (B,); see `metrics`."""
    split = outcome.split
    is_known = split.is_known & ~split.is_ignored
    objects = row_weights(weights, np.arange(len(is_known)), len(is_known))

    def share(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
        selected = objects[numerator & denominator].total()
        return ratio(selected, objects[denominator].total())

    return {
        "found": share(outcome.of_object == FOUND, split.is_counted),
        "misclassified": share(outcome.of_object == MISCLASSIFIED, split.is_counted),
        "known": share(_detected(outcome), is_known),
    }


def _detected(outcome: Outcome) -> np.ndarray:
    """Known objects with a kept detection of their class, ndarray of shape (M,), bool."""
    split = outcome.split
    pair = split.candidates
    has_own_class = split.detections.label[pair.region] == split.object_class[pair.target]
    is_kept = (outcome.kind == KEPT)[pair.region]
    detected = np.zeros(len(split.objects), dtype=bool)
    detected[pair.target[has_own_class & is_kept]] = True
    return detected & split.is_known
