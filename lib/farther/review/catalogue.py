"""All OOD images of a benchmark with their labels, rules, detections and similarity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from farther.curation import Benchmark, Fates, ImageKey, TablesFolder, fates_by_rules, read_rules
from farther.curation.decisions import IMAGE
from farther.curation.sources import LabelledImages
from farther.datasets import image_roots
from farther.errors import ParameterError
from farther.review.label_checker import LabelChecker
from farther.review.suspicion import SuspectDetections, detections, pairs, surplus
from farther.similarity import EmbeddingsFolder, ImageSimilarity, SimilarityFiles
from farther.tables import Images, Objects, RegionsFolder
from farther.tables.files import inside

#: Weight of the rank of an image's surplus in the queue. It orders images without clear detections,
#: and does not outweigh a clear detection.
SURPLUS_WEIGHT = 0.2

#: Columns of an image's similarity, null where `stratify` has not run.
SIMILARITY = ("similarity", "id_class", "suggested", "margin")


@dataclass(eq=False)
class Catalogue:
    """The images of a benchmark under review.

    Args:
        name: The benchmark's name.
        benchmark: Its parameters.
        run: The run whose detections are shown, None for none.
        id_classes: The ID classes.
        roots: Dataset → folder of its image files.
        images: The images.
        objects: Their labelled objects.
        labels: `image`, the row of each object's image, and `label`, the object's row.
        fates: Fate of each image by the rules alone.
        kept: ndarray of shape (N,), str: the fate if no ID class and no overlap were labelled.
        detections: The run's detections.
        suspicion: ndarray of shape (N,), 0 to 1: evidence of a detection for an unlabelled object
            of an ID class.
        queue: ndarray of shape (N,): priority in the queue.
        similarity: Columns `SIMILARITY` of each image.
        fate_titles: Titles of fates, where these are not their names.

    Attributes:
        frame: One row per image: `image` (its row), dataset, subset, image_id, fate and rule as in
            `fates`, suspicion, queue, and the columns of `similarity`.
    """

    name: str
    benchmark: Benchmark
    run: str | None
    id_classes: Sequence[str]
    roots: Mapping[str, Path]
    images: Images
    objects: Objects
    labels: pl.DataFrame
    fates: Fates
    kept: np.ndarray
    detections: SuspectDetections
    suspicion: np.ndarray
    queue: np.ndarray
    similarity: pl.DataFrame
    fate_titles: Mapping[str, str] = field(default_factory=dict)
    frame: pl.DataFrame = field(init=False)

    def __post_init__(self) -> None:
        frame = image_rows(self.fates).with_columns(suspicion=self.suspicion, queue=self.queue)
        self.frame = frame.hstack(self.similarity)

    @classmethod
    def read(
        cls,
        name: str,
        benchmark: Benchmark,
        datasets: Mapping[str, Mapping[str, Any]],
        root: str | Path = ".",
        checker: LabelChecker | None = None,
    ) -> Catalogue:
        """The images of a benchmark's OOD sources, removed ones included.

        They are in the order of sources and tables. An image's priority is its suspicion, plus
        `SURPLUS_WEIGHT` times the rank of its `surplus` where `embed` has run.

        Args:
            name: The benchmark's name.
            benchmark: Its parameters.
            datasets: Section `datasets` of the parameters, with the folders of the image files.
            root: The project's folder, which contains `artifacts`.
            checker: The run that looks for unlabelled objects, None for none.

        Raises:
            ParameterError: a dataset or subset is unknown, or has no root.
            DataError: a table is damaged, or datasets were embedded by different models.
        """
        artifacts = Path(root) / "artifacts"
        rules = read_rules(benchmark)
        ruled = list(fates_by_rules(benchmark, TablesFolder(artifacts / "tables"), rules).values())
        if not ruled:
            raise ParameterError(f"benchmark {name!r} has no OOD split to review")
        roots = image_roots(datasets, artifacts / "tables", root)

        sources = [ruled_source.source for ruled_source in ruled]
        objects = Objects.concatenate([source.objects for source in sources])
        fates = Fates.concatenate([ruled_source.fates for ruled_source in ruled])
        labels = _label_rows(sources)
        # Without labels that only say that an image is not annotated: they explain no detection,
        # and name nothing.
        named_labels = labels.filter(~objects.is_unlabelled)
        images = image_rows(fates)
        suspects = _read_detections(checker, artifacts / "regions", images, named_labels, objects)
        suspicion = largest_evidence(suspects, len(images))
        surplus_rank = _rank_by_surplus(
            benchmark.id, artifacts / "embeddings", images, named_labels, objects
        )
        similarity_file = artifacts / "similarity" / name / "images.parquet"
        return cls(
            name=name,
            benchmark=benchmark,
            run=None if checker is None else checker.run,
            id_classes=rules.id_classes,
            roots=roots,
            images=Images.concatenate([source.images for source in sources]),
            objects=objects,
            labels=labels,
            fates=fates,
            kept=np.concatenate([ruled_source.kept for ruled_source in ruled]),
            detections=suspects,
            suspicion=suspicion,
            queue=suspicion + SURPLUS_WEIGHT * surplus_rank,
            similarity=_read_similarity(images, benchmark, similarity_file),
        )

    def __len__(self) -> int:
        return len(self.images)

    def key(self, row: int) -> ImageKey:
        """Key of the image of a row; ParameterError if the row is out of range."""
        if not 0 <= row < len(self):
            raise ParameterError(f"expected an image from 0 to {len(self) - 1}, found {row}")
        return ImageKey(*self.frame.select(IMAGE).row(row))

    def row(self, key: ImageKey) -> int:
        """Row of an image of the catalogue."""
        return self.frame.filter(**key._asdict())["image"].item()

    def fate_title(self, fate: str) -> str:
        """Title of a fate on the page."""
        return self.fate_titles.get(fate, fate)

    def with_split(self, images: pl.DataFrame) -> pl.DataFrame:
        """Images of the catalogue with the `split` of their `fate`, "" for none.

        An image of a split that is the rest of another one has the other split.
        """
        rows = []
        for name, split in self.benchmark.splits.items():
            if split.rest_of is None:
                rows.append((*split.origin, split.distance, name))
        columns = ["dataset", "subset", "fate"]
        splits = pl.DataFrame(rows, schema=[*columns, "split"], orient="row")
        return images.join(splits, on=columns, how="left", maintain_order="left").with_columns(
            pl.col("split").fill_null("")
        )

    def objects_of(self, row: int) -> Objects:
        """Labelled objects of an image."""
        return self.objects[self.labels.filter(image=row)["label"].to_numpy()]

    def detections_of(self, row: int) -> SuspectDetections:
        """Detections on an image, the most suspicious first."""
        of_image = self.detections.frame.filter(image=row)
        most_suspicious_first = of_image.sort("unlabelled", descending=True, maintain_order=True)
        return self.detections.with_frame(most_suspicious_first)

    def file(self, row: int) -> Path:
        """Image file of a row."""
        dataset = self.key(row).dataset
        if dataset not in self.roots:
            raise ParameterError(
                f"params.yaml: datasets: {dataset!r} is missing, so its images cannot be found"
            )
        return inside(self.roots[dataset], self.images.file[row])


def image_rows(fates: Fates) -> pl.DataFrame:
    """Key, fate and rule of each image, and `image`, its row."""
    return fates.frame.select(*IMAGE, "fate", "rule", image=pl.int_range(pl.len()))


def largest_evidence(suspects: SuspectDetections, images: int) -> np.ndarray:
    """Largest evidence of an image's detections: ndarray of shape (images,)."""
    evidence = np.zeros(images)
    np.maximum.at(evidence, suspects.image, suspects.unlabelled)
    return evidence


def _label_rows(sources: Sequence[LabelledImages]) -> pl.DataFrame:
    """`image`, the row of each object's image in the catalogue, and `label`, the object's row."""
    first_image = 0
    image_row = []
    for source in sources:
        image_row.append(source.image_row + first_image)
        first_image += len(source.images)
    return pl.DataFrame({"image": np.concatenate(image_row)}).with_columns(
        label=pl.int_range(pl.len())
    )


def _read_detections(
    checker: LabelChecker | None,
    regions: Path,
    images: pl.DataFrame,
    labels: pl.DataFrame,
    objects: Objects,
) -> SuspectDetections:
    """The detections of the checking run on the images of the catalogue."""
    if checker is None:
        return SuspectDetections.empty()
    parts = [SuspectDetections.empty()]
    for (dataset, subset), splits in checker.splits.items():
        images_of_source = images.filter(dataset=dataset, subset=subset).select("image_id", "image")
        labels_of_source = labels.join(images_of_source, on="image", how="semi")
        for split in splits:
            folder = inside(regions, checker.run) / split
            if folder.is_dir():
                part = detections(
                    RegionsFolder(folder),
                    checker.id_class,
                    images_of_source,
                    labels_of_source,
                    objects.box,
                )
                parts.append(part)
    return SuspectDetections.concatenate(parts)


def _rank_by_surplus(
    id_dataset: str,
    embeddings: Path,
    images: pl.DataFrame,
    labels: pl.DataFrame,
    objects: Objects,
) -> np.ndarray:
    """Rank of each image's surplus, 0 to 1: ndarray of shape (N,).

    0 for images without an embedding, and for all where a source was not embedded.
    """
    ranks = np.zeros(len(images))
    images_by_source = images.partition_by("dataset", "subset", as_dict=True, maintain_order=True)
    folders = [embeddings / id_dataset]
    folders += [embeddings / dataset / subset for dataset, subset in images_by_source]
    if not all(folder.is_dir() for folder in folders):
        return ranks

    files = SimilarityFiles(Path(), embeddings)
    id_names = np.stack(list(files.names(id_dataset).values()))
    rows = []
    surpluses = []
    for (dataset, subset), images_of_source in images_by_source.items():
        embedded = EmbeddingsFolder(embeddings / dataset / subset).read()
        numbered = embedded.frame.select("image_id").with_row_index("row")
        embedded_images = numbered.join(images_of_source, on="image_id")
        vectors = embedded.embedding[embedded_images["row"].to_numpy()].astype(np.float32)
        names = files.names(dataset)
        image, label = pairs(embedded_images, labels)
        categories = objects.category[label]
        has_embedding = np.array([name in names for name in categories], dtype=bool)
        labelled = [names[name] for name in categories[has_embedding]]
        rows.append(embedded_images["image"].to_numpy())
        surpluses.append(
            surplus(
                vectors,
                id_names,
                np.array(labelled).reshape(-1, vectors.shape[1]),
                image[has_embedding],
            )
        )
    lowest_first = np.argsort(np.concatenate(surpluses), kind="stable")
    ranked_rows = np.concatenate(rows)[lowest_first]
    ranks[ranked_rows] = np.linspace(0, 1, len(ranked_rows))
    return ranks


def _read_similarity(images: pl.DataFrame, benchmark: Benchmark, file: Path) -> pl.DataFrame:
    """The columns `SIMILARITY` of each image, null where `stratify` has not run."""
    table = ImageSimilarity.read(file) if file.exists() else ImageSimilarity.empty()
    subset_of_split = {name: split.subset for name, split in benchmark.splits.items()}
    subset = pl.col("split").replace_strict(subset_of_split, default=None, return_dtype=pl.String)
    similarity = table.frame.with_columns(subset=subset).select(*IMAGE, *SIMILARITY)
    joined = images.join(similarity, on=IMAGE, how="left", maintain_order="left")
    return joined.select(SIMILARITY)
