"""All OOD images of a benchmark with their labels, rules, detections and similarity."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from farther.curation import Benchmark, Fates, ImageKey, RuledSource, Rules, TablesFolder, by_rules
from farther.datasets import image_roots
from farther.errors import ParameterError
from farther.review.suspicion import Detections, Grouped, detections, surplus
from farther.review.watcher import Watcher
from farther.similarity import EmbeddingsFolder, ImageSimilarity, SimilarityFiles
from farther.tables import Images, Objects, RegionsFolder
from farther.tables.files import inside

#: Weight of the rank of an image's surplus in the queue. It orders images without clear detections, and does not
#: outweigh a clear detection.
WORDS = 0.2


class Catalogue:
    """The images of a benchmark's OOD sources, removed ones included, in the order of sources and tables.

    Args:
        datasets: Section `datasets` of the parameters, with the folders of the image files.
        root: The project's folder, which contains `artifacts`.
        watcher: The run that looks for unlabelled objects, None for none.

    Attributes:
        fates: Fate of each image by the rules alone.
        kept: ndarray of shape (N,), str: the fate if no ID class and no overlap were labelled.
        suspicion: ndarray of shape (N,), 0 to 1: evidence of a detection for an unlabelled object of an ID class.
        queue: ndarray of shape (N,): priority: the suspicion, plus `WORDS` times the rank of the `surplus` where
            `embed` has run.
        similarity: Row → the row of the image in `ImageSimilarity`; empty where `stratify` has not run.

    Raises:
        ParameterError: a dataset or subset is unknown, or has no root.
        DataError: a table is damaged, or datasets were embedded by different models.
    """

    def __init__(
        self,
        name: str,
        benchmark: Benchmark,
        datasets: Mapping[str, Mapping[str, Any]],
        root: str | Path = ".",
        watcher: Watcher | None = None,
    ):
        self.name, self.benchmark, self.run = name, benchmark, None if watcher is None else watcher.run
        artifacts = Path(root) / "artifacts"
        rules = Rules(benchmark.rules, benchmark.protocol)
        self.id_classes = rules.id_classes
        sources = by_rules(benchmark, TablesFolder(artifacts / "tables"), rules)
        if not sources:
            raise ParameterError(f"benchmark {name!r} has no OOD split to review")
        self.roots = image_roots(datasets, artifacts / "tables", root)
        self._join(list(sources.values()))
        keys = zip(self.fates.dataset, self.fates.subset, self.fates.image_id, strict=True)
        self._rows = {ImageKey(*key): row for row, key in enumerate(keys)}
        found = [] if watcher is None else self._detections(sources, watcher, artifacts)
        self.detections = Detections.concatenate(found) if found else Detections.empty()
        self.suspicion = np.zeros(len(self.images))
        np.maximum.at(self.suspicion, self.detections.image, self.detections.unlabelled)
        self.queue = self.suspicion + WORDS * self._ranked_surplus(artifacts / "embeddings")
        self._detections_by_image = Grouped(self.detections.image, len(self.images))
        self.similarity = self._similarity(artifacts / "similarity" / name / "images.parquet")

    def __len__(self) -> int:
        return len(self.images)

    def key(self, row: int) -> ImageKey:
        """Key of the image of a row; ParameterError if the row is out of range."""
        if not 0 <= row < len(self):
            raise ParameterError(f"expected an image from 0 to {len(self) - 1}, found {row}")
        return ImageKey(self.fates.dataset[row], self.fates.subset[row], self.fates.image_id[row])

    def row(self, key: ImageKey) -> int:
        """Row of an image; KeyError for an unknown one."""
        return self._rows[key]

    def split(self, row: int, fate: str) -> str:
        """Split of an image with this fate, "" for none."""
        source = self.fates.dataset[row], self.fates.subset[row]
        for name, split in self.benchmark.splits.items():
            if (split.dataset, split.subset, split.distance) == (*source, fate):
                return name
        return ""

    def objects_of(self, row: int) -> Objects:
        """Labelled objects of an image."""
        return self.objects[self._objects_by_image.rows(row)]

    def detections_of(self, row: int) -> np.ndarray:
        """Rows of `detections` on an image, the most suspicious first."""
        rows = self._detections_by_image.rows(row)
        return rows[np.argsort(-self.detections.unlabelled[rows], kind="stable")]

    def file(self, row: int) -> Path:
        """Image file of a row."""
        dataset = self.key(row).dataset
        if dataset not in self.roots:
            raise ParameterError(f"params.yaml: datasets: {dataset!r} is missing, so its images cannot be found")
        return inside(self.roots[dataset], self.images.file[row])

    def _join(self, sources: list[RuledSource]) -> None:
        self.images = Images.concatenate([one.source.images for one in sources])
        self.objects = Objects.concatenate([one.source.objects for one in sources])
        self.fates = Fates.concatenate([one.fates for one in sources])
        self.kept = np.concatenate([one.kept for one in sources])
        firsts = np.cumsum([0, *(len(one.source.images) for one in sources)])
        rows = [one.source.image_row + first for one, first in zip(sources, firsts, strict=False)]
        self._objects_by_image = Grouped(np.concatenate(rows), len(self.images))

    def _detections(
        self, sources: Mapping[tuple[str, str], RuledSource], watcher: Watcher, artifacts: Path
    ) -> list[Detections]:
        parts, first = [], 0
        for source, ruled in sources.items():
            objects, count = ruled.source.objects, len(ruled.source.images)
            by_image = Grouped(ruled.source.image_row, count)
            for split in watcher.splits.get(source, ()):
                folder = inside(artifacts / "regions", watcher.run) / split
                if folder.is_dir():
                    regions, image_id = RegionsFolder(folder), ruled.source.images.image_id
                    found = detections(regions, watcher.id_class, image_id, objects, by_image)
                    parts.append(found.with_columns(image=found.image + first))
            first += count
        return parts

    def _ranked_surplus(self, embeddings: Path) -> np.ndarray:
        """Rank of each image's surplus, 0 to 1; 0 for images without an embedding."""
        ranks = np.zeros(len(self))
        sources = dict.fromkeys(zip(self.fates.dataset, self.fates.subset, strict=True))
        if not all((embeddings / place).is_dir() for place in [self.benchmark.id, *("/".join(s) for s in sources)]):
            return ranks
        files = SimilarityFiles(Path(), embeddings)
        id_names = np.stack(list(files.names(self.benchmark.id).values()))
        rows, values = [], []
        for dataset, subset in sources:
            embedded = EmbeddingsFolder(embeddings / dataset / subset).read()
            found = [self._rows.get(ImageKey(dataset, subset, image_id), -1) for image_id in embedded.image_id]
            row = np.array(found, dtype=np.int64)
            names, vectors = files.names(dataset), embedded.embedding[row >= 0].astype(np.float32)
            row = row[row >= 0]
            place, objects = self._objects_by_image.pairs(row)
            categories = self.objects.category[objects]
            known = np.array([name in names for name in categories], dtype=bool)
            labelled = np.array([names[name] for name in categories[known]]).reshape(-1, vectors.shape[1])
            rows.append(row)
            values.append(surplus(vectors, id_names, labelled, place[known]))
        every = np.concatenate(rows)
        ranks[every[np.argsort(np.concatenate(values), kind="stable")]] = np.linspace(0, 1, len(every))
        return ranks

    def _similarity(self, file: Path) -> dict[int, dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        for one in ImageSimilarity.read(file).frame.iter_rows(named=True) if file.exists() else ():
            split = self.benchmark.splits.get(one["split"])
            row = None if split is None else self._rows.get(ImageKey(split.dataset, split.subset, one["image_id"]))
            if row is not None:
                found[row] = one
        return found
