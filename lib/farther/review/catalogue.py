"""All OOD images of a benchmark with their labels, rules, detections and similarity."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl

from farther.curation import Benchmark, Fates, ImageKey, TablesFolder, by_rules, read_rules
from farther.curation.decisions import IMAGE
from farther.datasets import image_roots
from farther.errors import ParameterError
from farther.review.suspicion import WatcherDetections, detections, pairs, surplus
from farther.review.watcher import Watcher
from farther.similarity import EmbeddingsFolder, ImageSimilarity, SimilarityFiles
from farther.tables import Images, Objects, RegionsFolder
from farther.tables.files import inside

#: Weight of the rank of an image's surplus in the queue. It orders images without clear detections,
#: and does not outweigh a clear detection.
WORDS = 0.2


class Catalogue:
    """The images of a benchmark's OOD sources, removed ones included, in the order of sources and tables.

    Args:
        datasets: Section `datasets` of the parameters, with the folders of the image files.
        root: The project's folder, which contains `artifacts`.
        watcher: The run that looks for unlabelled objects, None for none.

    Attributes:
        images, objects: Their tables.
        fates: Fate of each image by the rules alone.
        kept: ndarray of shape (N,), str: the fate if no ID class and no overlap were labelled.
        detections: The watcher's detections.
        suspicion: ndarray of shape (N,), 0 to 1: evidence of a detection for an unlabelled object
            of an ID class.
        queue: ndarray of shape (N,): priority: the suspicion, plus `WORDS` times the rank of the
            `surplus` where `embed` has run.
        frame: One row per image: `image` (its row), dataset, subset, image_id, fate and rule as in
            `fates`, suspicion, queue, and where `stratify` has run similarity, id_class, suggested
            and margin of `ImageSimilarity`, else null.

    Raises:
        ParameterError: a dataset or subset is unknown, or has no root.
        DataError: a table is damaged, or datasets were embedded by different models.
    """

    #: What a fate is called, where that is not its name.
    words: ClassVar[Mapping[str, str]] = {}

    def __init__(
        self,
        name: str,
        benchmark: Benchmark,
        datasets: Mapping[str, Mapping[str, Any]],
        root: str | Path = ".",
        watcher: Watcher | None = None,
    ):
        self.name, self.benchmark, self.run = (
            name,
            benchmark,
            None if watcher is None else watcher.run,
        )
        artifacts = Path(root) / "artifacts"
        rules = read_rules(benchmark)
        self.id_classes = rules.id_classes
        sources = list(by_rules(benchmark, TablesFolder(artifacts / "tables"), rules).values())
        if not sources:
            raise ParameterError(f"benchmark {name!r} has no OOD split to review")
        self.roots = image_roots(datasets, artifacts / "tables", root)
        self.images = Images.concatenate([one.source.images for one in sources])
        self.objects = Objects.concatenate([one.source.objects for one in sources])
        self.fates = Fates.concatenate([one.fates for one in sources])
        self.kept = np.concatenate([one.kept for one in sources])
        firsts = np.cumsum([0, *(len(one.source.images) for one in sources)])
        shown_in = [
            one.source.image_row + first for one, first in zip(sources, firsts, strict=False)
        ]
        self._labels = pl.DataFrame({"image": np.concatenate(shown_in)}).with_columns(
            label=pl.int_range(pl.len())
        )
        #: Without those that only say that an image is not annotated: they explain no detection,
        #: and name nothing.
        self._named = self._labels.filter(~self.objects.is_unlabelled)
        self.frame = _with_similarity(
            self.fates.frame.select(*IMAGE, "fate", "rule", image=pl.int_range(pl.len())),
            benchmark,
            artifacts / "similarity" / name / "images.parquet",
        )
        self.detections = self._detections(watcher, artifacts / "regions")
        self.suspicion = np.zeros(len(self.images))
        np.maximum.at(self.suspicion, self.detections.image, self.detections.unlabelled)
        self.queue = self.suspicion + WORDS * self._ranked_surplus(artifacts / "embeddings")
        self.frame = self.frame.with_columns(suspicion=self.suspicion, queue=self.queue)

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

    def with_split(self, images: pl.DataFrame) -> pl.DataFrame:
        """Images of the catalogue with the `split` of their `fate`, "" for none; of a `rest_of`, the other split."""
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
        return self.objects[self._labels.filter(image=row)["label"].to_numpy()]

    def detections_of(self, row: int) -> WatcherDetections:
        """Detections on an image, the most suspicious first."""
        found = self.detections.frame.filter(image=row).sort(
            "unlabelled", descending=True, maintain_order=True
        )
        return self.detections.with_frame(found)

    def file(self, row: int) -> Path:
        """Image file of a row."""
        dataset = self.key(row).dataset
        if dataset not in self.roots:
            raise ParameterError(
                f"params.yaml: datasets: {dataset!r} is missing, so its images cannot be found"
            )
        return inside(self.roots[dataset], self.images.file[row])

    def _detections(self, watcher: Watcher | None, regions: Path) -> WatcherDetections:
        parts = [WatcherDetections.empty()]
        if watcher is None:
            return parts[0]
        for (dataset, subset), splits in watcher.splits.items():
            images = self.frame.filter(dataset=dataset, subset=subset).select("image_id", "image")
            labels = self._named.join(images, on="image", how="semi")
            for folder in [inside(regions, watcher.run) / split for split in splits]:
                if folder.is_dir():
                    found = detections(
                        RegionsFolder(folder), watcher.id_class, images, labels, self.objects.box
                    )
                    parts.append(found)
        return WatcherDetections.concatenate(parts)

    def _ranked_surplus(self, embeddings: Path) -> np.ndarray:
        """Rank of each image's surplus, 0 to 1; 0 for images without an embedding."""
        ranks = np.zeros(len(self))
        sources = self.frame.partition_by("dataset", "subset", as_dict=True, maintain_order=True)
        if not all(
            (embeddings / place).is_dir()
            for place in [self.benchmark.id, *("/".join(s) for s in sources)]
        ):
            return ranks
        files = SimilarityFiles(Path(), embeddings)
        id_names = np.stack(list(files.names(self.benchmark.id).values()))
        rows, values = [], []
        for (dataset, subset), images in sources.items():
            embedded = EmbeddingsFolder(embeddings / dataset / subset).read()
            found = (
                embedded.frame.select("image_id").with_row_index("row").join(images, on="image_id")
            )
            names, vectors = (
                files.names(dataset),
                embedded.embedding[found["row"].to_numpy()].astype(np.float32),
            )
            place, label = pairs(found, self._named)
            categories = self.objects.category[label]
            known = np.array([name in names for name in categories], dtype=bool)
            labelled = np.array([names[name] for name in categories[known]]).reshape(
                -1, vectors.shape[1]
            )
            rows.append(found["image"].to_numpy())
            values.append(surplus(vectors, id_names, labelled, place[known]))
        every = np.concatenate(rows)
        ranks[every[np.argsort(np.concatenate(values), kind="stable")]] = np.linspace(
            0, 1, len(every)
        )
        return ranks


def _with_similarity(images: pl.DataFrame, benchmark: Benchmark, file: Path) -> pl.DataFrame:
    """The images with their similarity to ID, null where `stratify` has not run."""
    table = ImageSimilarity.read(file) if file.exists() else ImageSimilarity.empty()
    subset = {name: split.subset for name, split in benchmark.splits.items()}
    columns = ("similarity", "id_class", "suggested", "margin")
    known = table.frame.with_columns(
        subset=pl.col("split").replace_strict(subset, default=None, return_dtype=pl.String)
    )
    return images.join(known.select(*IMAGE, *columns), on=IMAGE, how="left", maintain_order="left")
