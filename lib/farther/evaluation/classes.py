"""Results of a run by the OODness of classes, and the ID classes that other classes are taken for.

Recalcati et al., "Toward a Realistic Benchmark for Out-of-Distribution Detection", 2023,
arXiv:2404.10474: results by OODness of a class, with classes of low OODness counted as ID (Table
VI: those of 0 and 1; T2 of FACETS counts 0 to 2), the graph of classes and their predictions, and
the similarity of both (Figures 2 and 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from farther.errors import DataError
from farther.evaluation.files import RunSplit
from farther.evaluation.inputs import RunInputs
from farther.evaluation.results import (
    ClassEdge,
    ClassesResults,
    ClassGraph,
    MethodClasses,
    Number,
    SimilarClass,
)
from farther.metrics import ood
from farther.tables import ClassPairs, ImageClasses, Images, ObjectOutcomes, Regions, SortedClasses
from farther.tables.files import inside

#: Metrics that are reported.
SHOWN = ("auroc", "fpr95", "detection_error", "detection_error95")

#: The largest OODness that counts as ID: ID classes alone; also those that overlap; also near ones.
COUNTED = (0, 1, 2)

#: Outcomes of objects that are counted.
OUTCOMES = ("found", "misclassified", "missed")

#: Number of edges of the class graph that are stored, those of the most objects.
EDGES = 5000


@dataclass(frozen=True)
class SplitLevels:
    """The OODness of the regions and images of one split.

    Args:
        split: The split.
        rows: Whether each stored region counts, ndarray of shape (N,), bool.
        oodness: OODness of each region that counts, ndarray of int.
        images: OODness → number of images.
    """

    split: RunSplit
    rows: np.ndarray
    oodness: np.ndarray
    images: Mapping[int, int]


class RunClasses:
    """The OODness of the regions, images and classes of a run.

    What all methods share is read when it is first needed.

    Args:
        inputs: The run's inputs.
    """

    def __init__(self, inputs: RunInputs):
        self._inputs = inputs

    @cached_property
    def exist(self) -> bool:
        """Whether the images of a split were chosen by rules."""
        splits = (*self._inputs.tested, *self._inputs.shifted)
        return any(_image_classes_file(self._inputs, split.name).is_file() for split in splits)

    @cached_property
    def levels_by_split(self) -> list[SplitLevels]:
        """The splits whose images were chosen by the rules of the benchmark."""
        return _levels_by_split(self._inputs)

    @cached_property
    def _dataset_of_images(self) -> dict[str, pl.DataFrame]:
        """Dataset of each image of each OOD split: columns image_id, dataset."""
        frames = {}
        for split in self._inputs.tested:
            images = Images.read(self._inputs.files.images(split.name)).frame
            frames[split.name] = images.select("image_id", "dataset")
        return frames

    @cached_property
    def _oodness_of_classes(self) -> pl.DataFrame:
        """OODness of each class: columns dataset, category, oodness."""
        classes = SortedClasses.read(_benchmark_file(self._inputs, "classes.parquet")).frame
        return classes.select("dataset", "category", "oodness")

    def of_method(
        self, method: str, outcomes_by_split: Mapping[str, ObjectOutcomes]
    ) -> MethodClasses:
        """Results of a method.

        Args:
            method: Its name; its scores are stored.
            outcomes_by_split: Outcomes of the objects of each OOD split.

        Raises:
            DataError: a table is absent or damaged.
        """
        inputs = self._inputs
        levels_by_split = self.levels_by_split
        oodness = np.concatenate([levels.oodness for levels in levels_by_split])
        id_scores = inputs.scores(method, inputs.id_split)[inputs.id_above_threshold]
        scores_by_split = [
            inputs.scores(method, levels.split)[levels.rows] for levels in levels_by_split
        ]
        scores = np.concatenate(scores_by_split)
        return MethodClasses(
            by_oodness=_by_oodness(id_scores, scores, oodness, _images_by_level(levels_by_split)),
            id_up_to=_id_up_to(id_scores, scores, oodness),
            outcomes=self._outcomes(outcomes_by_split),
        )

    def _outcomes(
        self, outcomes_by_split: Mapping[str, ObjectOutcomes]
    ) -> dict[str, dict[str, int]]:
        """Objects of OOD splits by the OODness of their class and their outcome."""
        frames = []
        for split, outcomes in outcomes_by_split.items():
            with_dataset = outcomes.frame.join(self._dataset_of_images[split], on="image_id")
            frames.append(with_dataset.join(self._oodness_of_classes, on=["dataset", "category"]))
        if not frames:
            return {}

        is_counted = pl.col("outcome").is_in(OUTCOMES)
        counts = pl.concat(frames).filter(is_counted).group_by("oodness", "outcome").len()
        count_by_level: dict[str, dict[str, int]] = {}
        for level in counts["oodness"].unique().sort():
            count_by_level[str(level)] = {"objects": 0, **dict.fromkeys(OUTCOMES, 0)}
        for level, outcome, count in counts.iter_rows():
            count_by_level[str(level)][outcome] = count
            count_by_level[str(level)]["objects"] += count
        return count_by_level

    def graph(self, method: str) -> ClassGraph:
        """Unknown classes and the ID classes that their objects are taken for.

        Args:
            method: Name of a method whose outcomes are stored; see `class_edges`.

        Raises:
            DataError: a table is absent or damaged.
        """
        edges = class_edges(self._inputs, method)
        return ClassGraph(
            edges=[ClassEdge(**row) for row in edges.head(EDGES).to_dicts()],
            similarity=_similarity(self._inputs, edges),
        )


def joined_classes(by_method: Mapping[str, MethodClasses], graph: ClassGraph) -> ClassesResults:
    """The results of all methods."""
    by_oodness = {}
    id_up_to = {}
    outcomes = {}
    for method, classes in by_method.items():
        by_oodness[method] = classes.by_oodness
        id_up_to[method] = classes.id_up_to
        outcomes[method] = classes.outcomes
    return ClassesResults(
        by_oodness=by_oodness,
        id_up_to=id_up_to,
        outcomes=outcomes,
        edges=graph.edges,
        similarity=graph.similarity,
    )


def _levels_by_split(inputs: RunInputs) -> list[SplitLevels]:
    """The splits whose images were chosen by the rules of the benchmark."""
    is_ood_by_split = {split.name: split.is_ood for split in inputs.tested}
    levels_by_split = []
    for split in (*inputs.tested, *inputs.shifted):
        file = _image_classes_file(inputs, split.name)
        if not file.is_file():
            continue

        regions = split.regions()
        rows = regions.score >= inputs.threshold
        if split.name in is_ood_by_split:
            rows[rows] = is_ood_by_split[split.name]  # without the regions of known objects

        is_in_split = pl.col("image_id").is_in(list(split.images))
        classes = ImageClasses.read(file).frame.filter(is_in_split)
        oodness = _oodness_of_images(regions.image_id[rows], classes, file)
        images = dict(classes["oodness"].value_counts().iter_rows())
        levels_by_split.append(SplitLevels(split, rows, oodness, images))
    return levels_by_split


def _oodness_of_images(image_id: np.ndarray, classes: pl.DataFrame, file: Path) -> np.ndarray:
    """OODness of the image of each region, ndarray of int.

    Args:
        image_id: Image of each region.
        classes: OODness of each image.
        file: The file of `classes`.

    Raises:
        DataError: an image has no row.
    """
    oodness_by_image = dict(classes.select("image_id", "oodness").iter_rows())
    for image in image_id:
        if image not in oodness_by_image:
            problem = f"no row of the image {image!r}, which the split has"
            raise DataError(problem, file=file, field="image_id")
    return np.array([oodness_by_image[image] for image in image_id], np.int64)


def _images_by_level(levels_by_split: Sequence[SplitLevels]) -> dict[int, int]:
    """Number of images of each OODness in all splits, by rising OODness."""
    images_by_level: dict[int, int] = {}
    for levels in levels_by_split:
        for level, images in levels.images.items():
            images_by_level[level] = images_by_level.get(level, 0) + images
    return dict(sorted(images_by_level.items()))


def _by_oodness(
    id_scores: np.ndarray,
    scores: np.ndarray,
    oodness: np.ndarray,
    images_by_level: Mapping[int, int],
) -> dict[str, dict[str, Number]]:
    """Separation of ID regions from the regions of each OODness.

    Args:
        id_scores: ndarray of shape (N,).
        scores: Scores of other regions, ndarray of shape (M,).
        oodness: Their OODness, ndarray of shape (M,).
        images_by_level: OODness → number of images.
    """
    metrics_by_level: dict[str, dict[str, Number]] = {}
    for level, images in images_by_level.items():
        is_level = oodness == level
        metrics_by_level[str(level)] = {
            "images": images,
            "regions": int(is_level.sum()),
            **_separation(id_scores, scores[is_level]),
        }
    return metrics_by_level


def _id_up_to(
    id_scores: np.ndarray, scores: np.ndarray, oodness: np.ndarray
) -> dict[str, dict[str, float | None]]:
    """Separation where regions up to some OODness count as ID; arguments as in `_by_oodness`."""
    metrics_by_level = {}
    for level in COUNTED:
        counts_as_id = oodness <= level
        id_side = np.concatenate([id_scores, scores[counts_as_id]])
        metrics_by_level[str(level)] = _separation(id_side, scores[~counts_as_id])
    return metrics_by_level


def _separation(id_scores: np.ndarray, ood_scores: np.ndarray) -> dict[str, float | None]:
    metrics = ood.evaluate(id_scores, ood_scores)
    return {name: metrics[name] for name in SHOWN}


def _image_classes_file(inputs: RunInputs, split: str) -> Path:
    """The table of the classes of a split's images, which only splits chosen by rules have."""
    return inside(inputs.files.images(split).parent, "classes.parquet")


def _benchmark_file(inputs: RunInputs, name: str) -> Path:
    """A file of the benchmark that is not of one split."""
    return inside(inputs.files.images(inputs.id_split.name).parent.parent, name)


def class_edges(inputs: RunInputs, method: str) -> pl.DataFrame:
    """Unknown classes, and the ID classes that their objects are taken for.

    Counted are objects of OOD splits that a detection was matched to or that it misclassifies, by
    any outcome under a method; of a classifier also the images of shifted splits that the rules
    made.

    Returns:
        Columns category, id_class and objects, the most frequent pair first.
    """
    pairs = [pl.DataFrame(schema={"category": pl.String, "id_class": pl.String})]
    if inputs.whole_images:
        for split in inputs.shifted:
            file = _image_classes_file(inputs, split.name)
            if file.is_file():
                predicted = _predicted(split.regions(), split.folder.header.classes)
                joined = ImageClasses.read(file).frame.join(predicted, on="image_id")
                pairs.append(joined.select("category", "id_class"))

    for split in inputs.tested:
        outcomes = ObjectOutcomes.read(inputs.files.object_outcomes(method, split.name)).frame
        predicted = _predicted(split.regions(), split.folder.header.classes)
        joined = outcomes.join(predicted, on=["image_id", "region_id"])
        pairs.append(joined.select("category", "id_class"))

    is_unknown = ~pl.col("category").is_in(inputs.id_split.known_classes)
    unknown = pl.concat(pairs).filter(is_unknown)
    counts = unknown.group_by("category", "id_class").agg(objects=pl.len())
    return counts.sort("objects", "category", "id_class", descending=[True, False, False])


def _predicted(regions: Regions, classes: Sequence[str]) -> pl.DataFrame:
    """Name of the predicted class of each region."""
    names = pl.Series("id_class", np.array(classes, object)[regions.label], dtype=pl.String)
    return regions.frame.select("image_id", "region_id").with_columns(names)


def _similarity(inputs: RunInputs, edges: pl.DataFrame) -> dict[str, list[SimilarClass]]:
    """Mean similarity of class and prediction over objects, by either (Figures 2 and 3).

    The similarity is the mean of path and Wu–Palmer similarity.
    """
    file = _benchmark_file(inputs, "similarities.parquet")
    if not file.is_file():
        return {}

    pairs = ClassPairs.read(file).frame.unique(["category", "id_class"])
    mean_similarity = (pl.col("path") + pl.col("wu_palmer")) / 2
    similarities = pairs.select("category", "id_class", similarity=mean_similarity)
    edges_with_similarity = edges.join(similarities, on=["category", "id_class"])

    objects = pl.col("objects").sum()
    weighted_mean = (pl.col("similarity") * pl.col("objects")).sum() / objects
    similar_classes = {}
    for side in ("category", "id_class"):
        means = edges_with_similarity.group_by(name=side).agg(
            similarity=weighted_mean, objects=objects
        )
        rows = means.sort("similarity", "name", descending=[True, False]).to_dicts()
        similar_classes[side] = [SimilarClass(**row) for row in rows]
    return similar_classes
