"""Similarity of each OOD image and split to ID by CLIP, and images in the wrong split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args

import numpy as np
import polars as pl
from pydantic import Field
from pydantic.dataclasses import dataclass as checked

from farther.datasets.wordnet import WordNetParams
from farther.errors import DataError, ParameterError
from farther.metrics.ood import auroc
from farther.naming.registry import STRICT, Parameters
from farther.similarity.categories import Prototypes
from farther.similarity.nearest import Engine, Nearest, nearest
from farther.similarity.sources import EmbeddedSplit
from farther.tables import Column, Table
from farther.tables.arguments import floats, instance, instances, number, one_of
from farther.terms import SplitDistance

Cosine = Annotated[float, Field(ge=-1, le=1)]

#: Decimals of cosines in files that git compares.
DECIMALS = 6


@checked(config=STRICT, kw_only=True)
class StratifyParams(Parameters):
    """Parameters of the similarity to ID: an image's largest cosine to a reference image.

    Args:
        reference: The ID split that OOD images are compared with. FMIYC's code takes up to 2,000
            images of ID validation; a detector is trained on all ID training images.
        reference_images: Largest number of its images, evenly spread; null takes all.
        near: Cosine from which on an image is suggested for near. null: the cut that best separates
            the benchmark's near and far images.
        farther: Cosine below which an image is suggested for farther. null: likewise between far
            and farther; without farther images, none is.
        borderline: Number of borderline images that are listed, those nearest to a cut.
        bin_width: Width of the bins of the histograms, as a cosine.
        duplicate: Cosine from which on two images are near-duplicates.
        duplicate_pairs: Largest number of near-duplicates that are listed, in pairs.
        engine: Search for the nearest images by FAISS, by NumPy, or by FAISS where it is installed.
            All find the same.
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


@checked(config=STRICT, kw_only=True)
class StratifySection(StratifyParams):
    """How near the images of all splits are to the ID images: section `stratify` of params.yaml.

    Args:
        wordnet: A local WordNet, by which class names are compared, too; null for none.
    """

    wordnet: WordNetParams | None = None


class ImageSimilarity(Table):
    """One row per image of a split that is not the reference.

    Columns:
        image_id, dataset, split: The image.
        distance: Distance to ID by the benchmark's rules; "ID" for ID images.
        similarity: Its largest cosine to a reference image (FMIYC, Figure 3).
        neighbour: That reference image.
        id_class: The ID class whose prototype is the most similar, "" without prototypes.
        class_similarity: Its cosine to it, 0 without prototypes.
        suggested: The distance that its similarity suggests; "" for ID images and where there is no
            cut.
        margin: Distance of `similarity` from the cut, positive on the side of `distance`, negative
            on the other side. The smallest is the most doubtful. 0 where nothing is suggested.
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
        has_suggestion = pl.col("suggested") != ""
        doubtful = self.frame.filter(has_suggestion).sort("margin", "split", "image_id")
        return self.with_frame(doubtful.head(count))


@dataclass(frozen=True)
class Cuts:
    """Similarities that separate near from far, and far from farther.

    Args:
        near: The lowest similarity of near; None where there is nothing to separate.
        farther: Below it is farther; None likewise.
    """

    near: float | None
    farther: float | None

    def __post_init__(self) -> None:
        for name in ("near", "farther"):
            cut = getattr(self, name)
            if cut is not None:
                number(cut, name)

    def suggest(self, similarity: np.ndarray) -> np.ndarray:
        """The distance that each similarity suggests; "" everywhere without any cut.

        Args:
            similarity: ndarray of shape (N,).

        Returns:
            Object array of shape (N,).
        """
        similarity = floats(similarity, "similarity")
        if self.near is None and self.farther is None:
            return np.full(len(similarity), "", dtype=object)
        suggested = np.full(len(similarity), "far", dtype=object)
        if self.farther is not None:
            suggested[similarity < self.farther] = "farther"
        if self.near is not None:
            suggested[similarity >= self.near] = "near"
        return suggested

    def margin(self, similarity: np.ndarray, distance: SplitDistance) -> np.ndarray:
        """Distance of each similarity from the cuts.

        Args:
            similarity: ndarray of shape (N,).
            distance: "near", "far" or "farther".

        Returns:
            float64 (N,), positive on the side of `distance`, negative on the other side; the
            smaller of two where both cuts bound the distance, 0 where none does.
        """
        similarity = floats(similarity, "similarity")
        one_of(distance, get_args(SplitDistance), "distance")
        margins = []
        if self.near is not None:
            above_near = similarity - self.near
            margins.append(above_near if distance == "near" else -above_near)
        if self.farther is not None:
            above_farther = similarity - self.farther
            margins.append(-above_farther if distance == "farther" else above_farther)
        if not margins:
            return np.zeros(len(similarity))
        return np.min(margins, axis=0).astype(np.float64)


def stratify(
    reference: EmbeddedSplit,
    splits: Sequence[EmbeddedSplit],
    prototypes: Prototypes | None = None,
    params: StratifyParams | None = None,
) -> tuple[ImageSimilarity, Cuts]:
    """The similarity of every image to ID, and the distance that it suggests.

    Args:
        reference: The ID images to compare with.
        splits: OOD splits, and ID splits for comparison.
        prototypes: Of the ID classes.
        params: Thresholds of near and farther.

    Returns:
        One row per image, in the order of splits and of their tables; and the cuts that were used.

    Raises:
        DataError: a value is of another type, the reference has no image, or the embeddings are of
            two models.
    """
    instance(reference, EmbeddedSplit, "reference")
    splits = instances(splits, EmbeddedSplit, "splits")
    if prototypes is not None:
        instance(prototypes, Prototypes, "prototypes")
    if params is None:
        params = StratifyParams()
    instance(params, StratifyParams, "params")
    if not len(reference):
        raise DataError(
            "the reference split has no image with an embedding, so similarity to ID is undefined"
        )
    count = min(params.reference_images or len(reference), len(reference))
    reference_rows = np.arange(count) * len(reference) // count  # evenly spread
    reference_vectors = reference.vectors[reference_rows]
    neighbours = reference.image_id[reference_rows]

    nearest_by_split = [
        nearest(split.vectors, reference_vectors, params.engine) for split in splits
    ]
    cuts = cuts_of(splits, [of_split.cosine for of_split in nearest_by_split], params)
    parts = []
    for split, of_split in zip(splits, nearest_by_split, strict=True):
        if len(split):
            part = _rows(split, of_split, neighbours, cuts, prototypes)
            parts.append(part)
    images = ImageSimilarity.concatenate(parts) if parts else ImageSimilarity.empty()
    return images, cuts


def cuts_of(
    splits: Sequence[EmbeddedSplit], similarities: Sequence[np.ndarray], params: StratifyParams
) -> Cuts:
    """The cuts of the parameters, or those that separate the benchmark's splits best.

    Args:
        splits: Splits with their distances.
        similarities: Similarity of each image of each split.
        params: A cut that is None there is the one that separates best.

    Raises:
        DataError: a value is of another type, or lengths differ.
    """
    splits = instances(splits, EmbeddedSplit, "splits")
    instance(params, StratifyParams, "params")
    similarities = list(similarities)
    if len(similarities) != len(splits):
        problem = f"expected one array for each of {len(splits)} splits, found {len(similarities)}"
        raise DataError(problem, field="similarities")
    parts_by_distance: dict[SplitDistance, list[np.ndarray]] = {}
    for split, values in zip(splits, similarities, strict=True):
        similarity = floats(values, "similarities", shape=(len(split),))
        parts_by_distance.setdefault(split.source.distance, []).append(similarity)
    by_distance = {distance: np.concatenate(part) for distance, part in parts_by_distance.items()}
    near_cut = params.near
    if near_cut is None:
        near_cut = best_cut(by_distance.get("far"), by_distance.get("near"))
    farther_cut = params.farther
    if farther_cut is None:
        farther_cut = best_cut(by_distance.get("farther"), by_distance.get("far"))
    return Cuts(near_cut, farther_cut)


def best_cut(low: np.ndarray | None, high: np.ndarray | None) -> float | None:
    """The value that separates two groups of numbers with the highest balanced accuracy.

    Args:
        low, high: Groups whose members should lie below, and at or above the cut.

    Returns:
        Half way between two neighbouring values, the lowest of equally good ones; None when a group
        is empty or the groups do not differ in the expected direction.

    Raises:
        DataError: a group is not finite numbers.
    """
    if low is None or high is None:
        return None
    low = floats(low, "low")
    high = floats(high, "high")
    if not len(low) or not len(high):
        return None
    values = np.unique(np.concatenate([low, high]))
    cuts = (values[1:] + values[:-1]) / 2
    low_below = np.searchsorted(np.sort(low), cuts) / len(low)
    high_above = 1 - np.searchsorted(np.sort(high), cuts) / len(high)
    balanced_accuracy = (low_below + high_above) / 2
    if not len(cuts) or balanced_accuracy.max() <= 0.5:
        return None
    return float(cuts[balanced_accuracy.argmax()])


#: Quantiles of a split's similarities.
QUANTILES = {"median": 0.5, "low": 0.05, "high": 0.95}

#: The image's similarity suggests another distance than its split's.
ELSEWHERE = (pl.col("suggested") != "") & (pl.col("suggested") != pl.col("distance"))


def split_similarities(images: ImageSimilarity) -> pl.DataFrame:
    """Mean, median and 5% and 95% quantile of the similarity per split.

    The means are FMIYC's Figure 3 in one number.

    Columns: `split`, `images`, `similarity` (the mean), `median`, `low`, `high`, `elsewhere`
    (number of images whose similarity suggests another distance).
    """
    similarity = pl.col("similarity").cast(pl.Float64)
    quantiles = {}
    for name, share in QUANTILES.items():
        quantile = similarity.quantile(share, "linear")
        quantiles[name] = quantile.round(DECIMALS)
    return images.frame.group_by("split", maintain_order=True).agg(
        images=pl.len(),
        similarity=similarity.mean().round(DECIMALS),
        **quantiles,
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
    by_distance = {
        distance: rows["similarity"].to_numpy() for (distance,), rows in frame.group_by("distance")
    }
    auroc_from_id = {}
    if "ID" in by_distance:
        ood = frame.filter(pl.col("distance") != "ID")
        for (split,), rows in ood.group_by("split", maintain_order=True):
            auroc_from_id[split] = _auroc(by_distance["ID"], rows["similarity"].to_numpy())
    result: dict[str, Any] = {"auroc_from_id": auroc_from_id}
    if "near" in by_distance and "far" in by_distance:
        result["auroc_of_near"] = _auroc(by_distance["near"], by_distance["far"])
    return result


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
    """Mean similarity of all images of a distance, for the distances that occur.

    Returns:
        Distance → mean, in the order ID, near, far, farther.
    """
    similarity = pl.col("similarity").cast(pl.Float64)
    means = images.frame.group_by("distance").agg(similarity.mean().round(DECIMALS))
    mean_by_distance = dict(means.iter_rows())
    return {
        distance: mean_by_distance[distance]
        for distance in get_args(SplitDistance)
        if distance in mean_by_distance
    }


def _rows(
    split: EmbeddedSplit,
    nearest_reference: Nearest,
    neighbours: np.ndarray,
    cuts: Cuts,
    prototypes: Prototypes | None,
) -> ImageSimilarity:
    """The rows of one split's images.

    Args:
        split: The split.
        nearest_reference: The reference image nearest to each of its images.
        neighbours: Names of the reference images.
        cuts: Similarities that separate the distances.
        prototypes: Of the ID classes.
    """
    count = len(split)
    source = split.source
    similarity = nearest_reference.cosine
    suggested = np.full(count, "", dtype=object)
    margin = np.zeros(count)
    if source.distance != "ID":
        suggested = cuts.suggest(similarity)
        margin = cuts.margin(similarity, source.distance)
    id_class = np.full(count, "", dtype=object)
    class_similarity = np.zeros(count, np.float32)
    if prototypes is not None and len(prototypes):
        id_class, class_similarity = prototypes.nearest(split.vectors)
    return ImageSimilarity(
        image_id=split.image_id,
        dataset=[source.dataset] * count,
        split=[source.name] * count,
        distance=[source.distance] * count,
        similarity=similarity,
        neighbour=neighbours[nearest_reference.row],
        id_class=id_class,
        class_similarity=class_similarity,
        suggested=suggested,
        margin=margin,
    )
