"""Similarity of each OOD image and split to ID by CLIP, and the images whose split is doubtful."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args

import numpy as np
import polars as pl
from pydantic import Field
from pydantic.dataclasses import dataclass as checked

from farther.errors import DataError, ParameterError
from farther.metrics.ood import auroc
from farther.registry import STRICT
from farther.similarity.categories import Prototypes
from farther.similarity.nearest import Engine, Nearest, nearest
from farther.similarity.sources import Distance, EmbeddedSplit
from farther.tables import Column, Table

Cosine = Annotated[float, Field(ge=-1, le=1)]

#: Decimals of cosines in files that git compares.
DECIMALS = 6


@checked(config=STRICT, kw_only=True)
class StratifyParams:
    """Parameters of the similarity to ID.

    Args:
        reference: The ID split that OOD images are compared with. FMIYC's code takes up to 2,000
            images of ID validation; a detector learns from all ID training images.
        reference_images: Largest number of its images, evenly spread; all of them when None.
        near: An image of at least this similarity is suggested for near. None: the cut that best
            separates the benchmark's near and far images.
        farther: An image below this similarity is suggested for farther. None: likewise between far
            and farther; without farther images, none is.
        borderline: Number of doubtful images that are listed.
        bin_width: Of the histograms.
        duplicate: Pairs of images of at least this cosine are near-duplicates.
        duplicate_pairs: Largest number of listed pairs.
        engine: See `farther.similarity.nearest.nearest`.
    """

    reference: str = "train"
    reference_images: Annotated[int, Field(ge=1)] | None = None
    near: Cosine | None = None
    farther: Cosine | None = None
    borderline: Annotated[int, Field(ge=0)] = 200
    bin_width: Annotated[float, Field(gt=0, le=1)] = 0.02
    duplicate: Cosine = 0.98
    duplicate_pairs: Annotated[int, Field(ge=1)] = 10_000
    engine: Engine = "auto"

    def __post_init__(self) -> None:
        if self.near is not None and self.farther is not None and self.farther > self.near:
            raise ParameterError(f"parameter 'farther': {self.farther} is above near = {self.near}")


class ImageSimilarity(Table):
    """One row per image of a split that is not the reference.

    Columns:
        image_id, dataset, split: The image. distance: Distance to ID by the benchmark's rules; "ID"
        for ID images. similarity: Its largest cosine to a reference image (FMIYC, Figure 3).
        neighbour: That reference image. id_class: The ID class whose prototype is the most similar,
        "" without prototypes. class_similarity: Its cosine to it, 0 without prototypes. suggested:
        The distance that its similarity suggests; "" for ID images and where there is no cut.
        margin: Distance of `similarity` from the cut, positive on the side of `distance`, negative
        on the other side.
            The smallest is the most doubtful. 0 where nothing is suggested.
    """

    image_id = Column(pl.String)
    dataset = Column(pl.String)
    split = Column(pl.String)
    distance = Column(pl.String)
    similarity = Column(pl.Float32)
    neighbour = Column(pl.String)
    id_class = Column(pl.String)
    class_similarity = Column(pl.Float32)
    suggested = Column(pl.String)
    margin = Column(pl.Float32)

    def borderline(self, count: int) -> ImageSimilarity:
        """The images whose distance is the most doubtful, the most doubtful first.

        First those whose similarity suggests another distance than their split's, the clearest
        ahead; then those closest to a cut.
        """
        doubtful = (
            self.frame.filter(pl.col("suggested") != "")
            .sort("margin", "split", "image_id")
            .head(count)
        )
        return self.with_frame(doubtful)


@dataclass(frozen=True)
class Cuts:
    """Similarities that separate near from far, and far from farther; None where there is nothing to separate.

    Args:
        near: The least similarity of near.
        farther: Below it is farther.
    """

    near: float | None
    farther: float | None

    def suggest(self, similarity: np.ndarray) -> np.ndarray:
        """The distance that each similarity, float (N,), suggests; "" everywhere without any cut."""
        if self.near is None and self.farther is None:
            return np.full(len(similarity), "", dtype=object)
        is_near = np.zeros(len(similarity), bool) if self.near is None else similarity >= self.near
        is_farther = (
            np.zeros(len(similarity), bool) if self.farther is None else similarity < self.farther
        )
        return np.select([is_near, is_farther], ["near", "farther"], "far").astype(object)

    def margin(self, similarity: np.ndarray, distance: Distance) -> np.ndarray:
        """Distance of each similarity from the cuts, positive on the side of `distance`, negative on the other side.

        Args:
            similarity: ndarray of shape (N,).
            distance: "near", "far" or "farther".

        Returns:
            float64 (N,); the smaller of two where both cuts bound the distance, 0 where none does.
        """
        sides = []
        if self.near is not None:
            sides.append(similarity - self.near if distance == "near" else self.near - similarity)
        if self.farther is not None:
            sides.append(
                self.farther - similarity if distance == "farther" else similarity - self.farther
            )
        return np.min(sides, axis=0).astype(np.float64) if sides else np.zeros(len(similarity))


def stratify(
    reference: EmbeddedSplit,
    splits: Sequence[EmbeddedSplit],
    prototypes: Prototypes | None = None,
    params: StratifyParams | None = None,
) -> tuple[ImageSimilarity, Cuts]:
    """The similarity of every image to ID, and what it suggests.

    Args:
        reference: The ID images to compare with.
        splits: OOD splits, and ID splits for comparison.
        prototypes: Of the ID classes.
        params: Thresholds of near and farther.

    Returns:
        One row per image, in the order of splits and of their tables; and the cuts that were used.

    Raises:
        DataError: the reference has no image, or the embeddings are of two models.
    """
    params = params or StratifyParams()
    if not len(reference):
        raise DataError(
            "the reference split has no image with an embedding, so similarity to ID is undefined"
        )
    count = min(params.reference_images or len(reference), len(reference))
    among = np.arange(count) * len(reference) // count  # evenly spread
    found = [nearest(split.vectors, reference.vectors[among], params.engine) for split in splits]
    cuts = cuts_of(splits, [one.cosine for one in found], params)
    neighbours = reference.image_id[among]
    parts = [
        _rows(split, one, neighbours, cuts, prototypes)
        for split, one in zip(splits, found, strict=True)
        if len(split)
    ]
    return (ImageSimilarity.concatenate(parts) if parts else ImageSimilarity.empty()), cuts


def cuts_of(
    splits: Sequence[EmbeddedSplit], similarities: Sequence[np.ndarray], params: StratifyParams
) -> Cuts:
    """The cuts of the parameters; where they name none, those that separate the benchmark's splits best."""
    by_distance: dict[Distance, list[np.ndarray]] = {}
    for split, similarity in zip(splits, similarities, strict=True):
        by_distance.setdefault(split.source.distance, []).append(similarity)
    joined = {distance: np.concatenate(parts) for distance, parts in by_distance.items()}
    near = (
        params.near if params.near is not None else best_cut(joined.get("far"), joined.get("near"))
    )
    beyond = (
        params.farther
        if params.farther is not None
        else best_cut(joined.get("farther"), joined.get("far"))
    )
    return Cuts(near, beyond)


def best_cut(low: np.ndarray | None, high: np.ndarray | None) -> float | None:
    """The value that separates two groups of numbers with the highest balanced accuracy.

    Args:
        low, high: Groups whose members should lie below, and at or above the cut.

    Returns:
        Half way between two neighbouring values, the lowest of equally good ones; None when a group
        is empty or the groups do not differ in the expected direction.
    """
    if low is None or high is None or not len(low) or not len(high):
        return None
    values = np.unique(np.concatenate([low, high]).astype(np.float64))
    cuts = (values[1:] + values[:-1]) / 2
    below = np.searchsorted(np.sort(low), cuts) / len(low)
    above = 1 - np.searchsorted(np.sort(high), cuts) / len(high)
    accuracy = (below + above) / 2
    if not len(cuts) or accuracy.max() <= 0.5:
        return None
    return float(cuts[accuracy.argmax()])


#: Quantiles of a split's similarities.
QUANTILES = {"median": 0.5, "low": 0.05, "high": 0.95}

#: The image's similarity suggests another distance than its split's.
ELSEWHERE = (pl.col("suggested") != "") & (pl.col("suggested") != pl.col("distance"))


def split_similarities(images: ImageSimilarity) -> pl.DataFrame:
    """Mean, median and 5% and 95% quantile of the similarity per split; the means are FMIYC's Figure 3 in one number.

    Columns: `split`, `images`, `similarity` (the mean), `median`, `low`, `high`, `elsewhere`
    (number of images whose similarity suggests another distance).
    """
    similarity = pl.col("similarity").cast(pl.Float64)
    return images.frame.group_by("split", maintain_order=True).agg(
        images=pl.len(),
        similarity=similarity.mean().round(DECIMALS),
        **{
            name: similarity.quantile(share, "linear").round(DECIMALS)
            for name, share in QUANTILES.items()
        },
        elsewhere=ELSEWHERE.sum(),
    )


def separations(images: ImageSimilarity) -> dict[str, Any]:
    """AUROC of the similarity alone: the detector has no part in it.

    Returns:
        "auroc_from_id": {OOD split: AUROC of ID images against its images}, near 1 where the images
        of both differ so much that a method's score may only tell their source; "auroc_of_near": of
        all near images against all far ones, 0.5 where these do not differ. A split or distance
        without images has none.
    """
    frame = images.frame.with_columns(pl.col("similarity").cast(pl.Float64))
    of_distance = {
        distance: part["similarity"].to_numpy() for (distance,), part in frame.group_by("distance")
    }
    ood = frame.filter(pl.col("distance") != "ID").group_by("split", maintain_order=True)
    from_id = {}
    if "ID" in of_distance:
        from_id = {
            split: _auroc(of_distance["ID"], of["similarity"].to_numpy()) for (split,), of in ood
        }
    found: dict[str, Any] = {"auroc_from_id": from_id}
    if {"near", "far"} <= set(of_distance):
        found["auroc_of_near"] = _auroc(of_distance["near"], of_distance["far"])
    return found


def _auroc(high: np.ndarray, low: np.ndarray) -> float:
    """AUROC of two groups, neither empty, rounded."""
    return round(float(auroc(high, low)), DECIMALS)


def histogram(images: ImageSimilarity, bin_width: float) -> pl.DataFrame:
    """Histograms of the similarity, one per split over the same bins, which start at -1.

    Columns: `split`, `similarity` (middle of the bin), `fraction`. Bins outside all similarities
    are left out.
    """
    bins = ((pl.col("similarity").cast(pl.Float64) + 1) / bin_width).floor().cast(pl.Int64)
    counts = images.frame.group_by("split", bin=bins, maintain_order=True).len("count")
    between = pl.int_range(pl.col("bin").min(), pl.col("bin").max() + 1)
    all_bins = counts.select(between) if counts.height else counts.select("bin")
    grid = (
        counts.select("split")
        .unique(maintain_order=True)
        .join(all_bins, how="cross", maintain_order="left_right")
    )
    filled = grid.join(counts, on=["split", "bin"], how="left", maintain_order="left").fill_null(0)
    return filled.select(
        "split",
        similarity=((pl.col("bin") + 0.5) * bin_width - 1).round(DECIMALS),
        fraction=(pl.col("count") / pl.col("count").sum().over("split")).round(DECIMALS),
    )


def mean_similarities(images: ImageSimilarity) -> dict[str, float]:
    """Mean similarity of all images of a distance, for those of ID, near, far and farther that occur."""
    means = images.frame.group_by("distance").agg(
        pl.col("similarity").cast(pl.Float64).mean().round(DECIMALS)
    )
    found = dict(means.iter_rows())
    return {distance: found[distance] for distance in get_args(Distance) if distance in found}


def _rows(
    split: EmbeddedSplit,
    found: Nearest,
    neighbours: np.ndarray,
    cuts: Cuts,
    prototypes: Prototypes | None,
) -> ImageSimilarity:
    count, source = len(split), split.source
    suggested, margin = np.full(count, "", dtype=object), np.zeros(count)
    if source.distance != "ID":
        suggested, margin = cuts.suggest(found.cosine), cuts.margin(found.cosine, source.distance)
    classes, cosines = np.full(count, "", dtype=object), np.zeros(count, np.float32)
    if prototypes is not None and len(prototypes):
        classes, cosines = prototypes.nearest(split.vectors)
    return ImageSimilarity(
        image_id=split.image_id,
        dataset=[source.dataset] * count,
        split=[source.name] * count,
        distance=[source.distance] * count,
        similarity=found.cosine,
        neighbour=neighbours[found.row],
        id_class=classes,
        class_similarity=cosines,
        suggested=suggested,
        margin=margin,
    )
