"""Results of a run by how far out the classes are, and which ID classes other classes are taken for.

Recalcati et al., "Toward a Realistic Benchmark for Out-of-Distribution Detection", 2023,
arXiv:2404.10474: results by OODness of a class, with classes of low OODness counted as ID (Table
VI: T1 counts 0 and 1, T2 counts 0 to 2), the graph of classes and their predictions, and the
similarity of both (Figures 2 and 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from farther.errors import DataError
from farther.evaluation.files import RunSplit
from farther.evaluation.inputs import RunInputs
from farther.evaluation.results import ClassEdge, ClassesResults, Number, SimilarClass
from farther.metrics import ood
from farther.tables import ClassPairs, ImageClasses, Images, ObjectOutcomes, Regions, SortedClasses
from farther.tables.files import inside

#: Metrics that are reported.
SHOWN = ("auroc", "fpr95", "detection_error", "detection_error95")

#: The largest OODness that counts as ID: ID classes alone, T1 and T2.
COUNTED = (0, 1, 2)

#: Outcomes of objects that are counted.
OUTCOMES = ("found", "misclassified", "missed")

#: Edges of the class graph that are kept, those of most objects.
EDGES = 5000


@dataclass(frozen=True)
class _Part:
    """Regions of one split at or above t*: the rows of the stored ones that count, and the OODness of each."""

    split: RunSplit
    rows: np.ndarray
    oodness: np.ndarray
    images: Mapping[int, int]


def evaluate_classes(inputs: RunInputs, methods: Sequence[str]) -> ClassesResults | None:
    """Metrics by OODness and the class graph of a run.

    Args:
        inputs: The run's inputs.
        methods: Names of the methods that apply; their scores and outcomes are stored.

    Returns:
        None for a benchmark without splits whose images are chosen by rules; else

        by_oodness: method → OODness → images, regions and the metrics of `SHOWN`: ID test regions
            against those of images of that OODness.
        id_up_to: method → largest OODness that counts as ID → the metrics of `SHOWN`: ID test
            regions and those of images that count as ID, against the others.
        outcomes: method → OODness of an object's class → objects of OOD splits, found,
            misclassified, missed.
        edges: other class, ID class that it is taken for, objects; see `class_edges`.
        similarity: mean similarity of class and prediction, by `category` and by `id_class`, with
            objects.

    Raises:
        DataError: a table is absent or damaged.
    """
    parts = _parts(inputs)
    if not parts or not methods:
        return None
    by_oodness: dict[str, dict[str, dict[str, Number]]] = {}
    id_up_to: dict[str, dict[str, dict[str, float | None]]] = {}
    for method in methods:
        id_scores = inputs.scores(method, inputs.id_split)[inputs.id_above]
        others = [inputs.scores(method, part.split)[part.rows] for part in parts]
        scores, oodness = np.concatenate(others), np.concatenate([part.oodness for part in parts])
        levels = sorted({level for part in parts for level in part.images})
        by_oodness[method] = {
            str(level): {
                "images": sum(part.images.get(level, 0) for part in parts),
                "regions": int((oodness == level).sum()),
                **_shown(id_scores, scores[oodness == level]),
            }
            for level in levels
        }
        id_up_to[method] = {
            str(most): _shown(
                np.concatenate([id_scores, scores[oodness <= most]]), scores[oodness > most]
            )
            for most in COUNTED
        }
    edges = class_edges(inputs, methods[0])
    return ClassesResults(
        by_oodness=by_oodness,
        id_up_to=id_up_to,
        outcomes={method: _outcomes(inputs, method) for method in methods},
        edges=[ClassEdge(**row) for row in edges.head(EDGES).to_dicts()],
        similarity=_similarity(inputs, edges),
    )


def _parts(inputs: RunInputs) -> list[_Part]:
    """The splits whose images were chosen by the rules of the benchmark."""
    found = []
    is_ood = {split.name: split.is_ood for split in inputs.tested}
    for split in (*inputs.tested, *inputs.shifted):
        file = inside(inputs.files.images(split.name).parent, "classes.parquet")
        if not file.is_file():
            continue
        regions = split.regions()
        rows = regions.score >= inputs.threshold
        if split.name in is_ood:
            rows[rows] = is_ood[split.name]  # without the regions of known objects
        classes = ImageClasses.read(file).frame.filter(pl.col("image_id").is_in(list(split.images)))
        of_image = dict(classes.select("image_id", "oodness").iter_rows())
        if absent := next((name for name in regions.image_id[rows] if name not in of_image), None):
            raise DataError(
                f"no row of the image {absent!r}, which the split has", file=file, field="image_id"
            )
        oodness = np.array([of_image[name] for name in regions.image_id[rows]], np.int64)
        found.append(
            _Part(split, rows, oodness, dict(classes["oodness"].value_counts().iter_rows()))
        )
    return found


def _shown(id_scores: np.ndarray, ood_scores: np.ndarray) -> dict[str, float | None]:
    found = ood.evaluate(id_scores, ood_scores)
    return {name: found[name] for name in SHOWN}


def _outcomes(inputs: RunInputs, method: str) -> dict[str, dict[str, int]]:
    """Objects of OOD splits by the OODness of their class and their outcome."""
    classes = SortedClasses.read(_of_benchmark(inputs, "classes.parquet")).frame
    found = []
    for split in inputs.tested:
        outcomes = ObjectOutcomes.read(inputs.files.object_outcomes(method, split.name)).frame
        images = Images.read(inputs.files.images(split.name)).frame
        found.append(outcomes.join(images, on="image_id").join(classes, on=["dataset", "category"]))
    rows = (
        pl.concat(found)
        .filter(pl.col("outcome").is_in(OUTCOMES))
        .group_by("oodness", "outcome")
        .len()
    )
    counts: dict[str, dict[str, int]] = {
        str(level): {"objects": 0, **dict.fromkeys(OUTCOMES, 0)}
        for level in rows["oodness"].unique().sort()
    }
    for level, outcome, count in rows.iter_rows():
        counts[str(level)][outcome] = count
        counts[str(level)]["objects"] += count
    return counts


def _of_benchmark(inputs: RunInputs, name: str) -> Path:
    """A file of the benchmark that is not of one split."""
    return inside(inputs.files.images(inputs.id_split.name).parent.parent, name)


def class_edges(inputs: RunInputs, method: str) -> pl.DataFrame:
    """Classes that are not known, and the ID classes that their objects are taken for: category, id_class, objects.

    Counted are objects of OOD splits that a detection was matched to or that it misclassifies, by
    any outcome under a method; of a classifier also the images of shifted splits that the rules
    made. The most frequent pair comes first.
    """
    found = []
    for shifted in inputs.shifted if inputs.whole_images else ():
        file = inside(inputs.files.images(shifted.name).parent, "classes.parquet")
        if file.is_file():
            predicted = _predicted(shifted.regions(), shifted.folder.header.classes)
            found.append(
                ImageClasses.read(file)
                .frame.join(predicted, on="image_id")
                .select("category", "id_class")
            )
    for split in inputs.tested:
        outcomes = ObjectOutcomes.read(inputs.files.object_outcomes(method, split.name)).frame
        predicted = _predicted(split.regions(), split.folder.header.classes)
        joined = outcomes.join(predicted, on=["image_id", "region_id"])
        found.append(joined.select("category", "id_class"))
    pairs = (
        pl.concat(found)
        if found
        else pl.DataFrame(schema={"category": pl.String, "id_class": pl.String})
    )
    known = inputs.id_split.known_classes
    counts = (
        pairs.filter(~pl.col("category").is_in(known))
        .group_by("category", "id_class")
        .agg(objects=pl.len())
    )
    return counts.sort("objects", "category", "id_class", descending=[True, False, False])


def _predicted(regions: Regions, classes: Sequence[str]) -> pl.DataFrame:
    """Name of the predicted class of each region."""
    names = pl.Series("id_class", np.array(classes, object)[regions.label], dtype=pl.String)
    return regions.frame.select("image_id", "region_id").with_columns(names)


def _similarity(inputs: RunInputs, edges: pl.DataFrame) -> dict[str, list[SimilarClass]]:
    """Mean of path and Wu–Palmer similarity of class and prediction, over objects, by either (Figures 2 and 3)."""
    file = _of_benchmark(inputs, "similarities.parquet")
    if not file.is_file():
        return {}
    pairs = ClassPairs.read(file).frame.unique(["category", "id_class"])
    similar = pairs.select(
        "category", "id_class", similarity=(pl.col("path") + pl.col("wu_palmer")) / 2
    )
    known = edges.join(similar, on=["category", "id_class"])
    weighted = (pl.col("similarity") * pl.col("objects")).sum() / pl.col("objects").sum()
    found = {}
    for side in ("category", "id_class"):
        means = known.group_by(name=side).agg(similarity=weighted, objects=pl.col("objects").sum())
        rows = means.sort("similarity", "name", descending=[True, False]).to_dicts()
        found[side] = [SimilarClass(**row) for row in rows]
    return found
