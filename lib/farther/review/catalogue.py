"""All OOD images of a benchmark, and what is known about each: labels, rule, detections, similarity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from farther.curation import Benchmark, Fates, ImageKey, RuledSource, Rules, TablesFolder, by_rules
from farther.datasets import image_roots
from farther.errors import ParameterError
from farther.review.suspicion import Detections, Grouped, detections
from farther.tables import Images, Objects, RegionsFolder
from farther.tables.files import inside


@dataclass(frozen=True)
class Similarity:
    """How near each image is to ID, by CLIP; NaN and "" where `stratify` did not look at an image.

    Args:
        similarity: ndarray of shape (N,): the largest cosine to an ID image.
        id_class: ndarray of shape (N,), str: the most similar ID class.
        suggested: ndarray of shape (N,), str: the distance that the similarity speaks for.
        margin: ndarray of shape (N,): the smaller, the more doubtful the image's distance.
    """

    similarity: np.ndarray
    id_class: np.ndarray
    suggested: np.ndarray
    margin: np.ndarray


class Catalogue:
    """The images of a benchmark's OOD sources, removed ones included, in the order of sources and tables.

    Args:
        name: The benchmark.
        benchmark: Its parameters.
        datasets: The section `datasets` of the parameters: where the image files lie.
        root: The project's folder, which holds `artifacts`.
        run: The detector whose regions tell where something is unlabelled, None for none.

    Attributes:
        id_classes: The ID classes.
        images: One row an image.
        fates: What the rules alone make of each.
        kept: ndarray of shape (N,), str: the fate if no ID class and no overlap were labelled.
        suspicion: ndarray of shape (N,), 0 to 1: how much a detection speaks for an unlabelled object of an ID class.
        similarity: None where `stratify` has not run.

    Raises:
        ParameterError: a dataset or subset is unknown, or has no root.
        DataError: a table is damaged.
    """

    def __init__(
        self,
        name: str,
        benchmark: Benchmark,
        datasets: Mapping[str, Mapping[str, Any]],
        root: str | Path = ".",
        run: str | None = None,
    ):
        self.name, self.benchmark, self.run = name, benchmark, run
        artifacts = Path(root) / "artifacts"
        rules = Rules(benchmark.rules, benchmark.protocol)
        self.id_classes = rules.id_classes
        sources = by_rules(benchmark, TablesFolder(artifacts / "tables"), rules)
        if not sources:
            raise ParameterError(f"benchmark {name!r} has no OOD split, so there is nothing to review")
        self.roots = image_roots(datasets, artifacts / "tables", root)
        self._join(list(sources.values()))
        self._rows = {key: row for row, key in enumerate(self._keys())}
        self.detections = self._detections(sources, artifacts)
        self.suspicion = np.zeros(len(self.images))
        np.maximum.at(self.suspicion, self.detections.image, self.detections.unlabelled)
        self._detections_by_image = Grouped(self.detections.image, len(self.images))
        self.similarity = self._similarity(artifacts / "similarity" / name / "images.parquet")

    def __len__(self) -> int:
        return len(self.images)

    def key(self, row: int) -> ImageKey:
        """Names the image of a row.

        Raises:
            ParameterError: there is no such row.
        """
        if not 0 <= row < len(self):
            raise ParameterError(f"expected an image from 0 to {len(self) - 1}, found {row}")
        return ImageKey(self.fates.dataset[row], self.fates.subset[row], self.fates.image_id[row])

    def row(self, key: ImageKey) -> int:
        """The row of an image.

        Raises:
            KeyError: there is no such image.
        """
        return self._rows[key]

    def known(self) -> dict[tuple[str, str], set[str]]:
        """Dataset and subset of each source → its images."""
        found: dict[tuple[str, str], set[str]] = {}
        for dataset, subset, image_id in self._rows:
            found.setdefault((dataset, subset), set()).add(image_id)
        return found

    def split(self, row: int, fate: str) -> str:
        """The split that an image with this fate is in, "" for none."""
        source = self.fates.dataset[row], self.fates.subset[row]
        for name, split in self.benchmark.splits.items():
            if (split.dataset, split.subset, split.distance) == (*source, fate):
                return name
        return ""

    def objects_of(self, row: int) -> Objects:
        """What is labelled in an image."""
        return self.objects[self._objects_by_image.rows(row)]

    def detections_of(self, row: int) -> np.ndarray:
        """The rows of `detections` on an image, the most suspicious first."""
        rows = self._detections_by_image.rows(row)
        return rows[np.argsort(-self.detections.unlabelled[rows], kind="stable")]

    def file(self, row: int) -> Path:
        """The image file of a row.

        Raises:
            DataError: its name leaves the dataset's folder.
            ParameterError: there is no such row, or the dataset has no folder in the parameters.
        """
        dataset = self.key(row).dataset
        if dataset not in self.roots:
            raise ParameterError(f"params.yaml: datasets: {dataset!r} is not there, so its images cannot be found")
        return inside(self.roots[dataset], self.images.file[row])

    def _keys(self) -> list[ImageKey]:
        columns = (self.fates.dataset, self.fates.subset, self.fates.image_id)
        return [ImageKey(*key) for key in zip(*columns, strict=True)]

    def _join(self, sources: list[RuledSource]) -> None:
        self.images = Images.concatenate([one.source.images for one in sources])
        self.objects = Objects.concatenate([one.source.objects for one in sources])
        self.fates = Fates.concatenate([one.fates for one in sources])
        self.kept = np.concatenate([one.kept for one in sources])
        firsts = np.cumsum([0, *(len(one.source.images) for one in sources)])
        rows = [one.source.image_row + first for one, first in zip(sources, firsts, strict=False)]
        self._objects_by_image = Grouped(np.concatenate(rows), len(self.images))

    def _detections(self, sources: Mapping[tuple[str, str], RuledSource], artifacts: Path) -> Detections:
        parts, first = [], 0
        for ruled in sources.values():
            objects, count = ruled.source.objects, len(ruled.source.images)
            by_image = Grouped(ruled.source.image_row, count)
            for split in ruled.splits if self.run else ():
                folder = inside(artifacts / "regions", str(self.run)) / split
                if folder.is_dir():
                    found = detections(RegionsFolder(folder), ruled.source.images.image_id, objects, by_image)
                    found.image[:] += first
                    parts.append(found)
            first += count
        return Detections.join(parts)

    def _similarity(self, file: Path) -> Similarity | None:
        if not file.exists():
            return None
        from farther.similarity import ImageSimilarity

        table = ImageSimilarity.read(file)
        count = len(self)
        nothing, words = np.full(count, np.nan), np.full(count, "", dtype=object)
        found = Similarity(nothing, words, words.copy(), nothing.copy())
        splits = self.benchmark.splits
        for place, (image_id, name) in enumerate(zip(table.image_id, table.split, strict=True)):
            split = splits.get(name)
            row = None if split is None else self._rows.get(ImageKey(split.dataset, split.subset, image_id))
            if row is not None:
                for column in ("similarity", "id_class", "suggested", "margin"):
                    getattr(found, column)[row] = getattr(table, column)[place]
        return found
