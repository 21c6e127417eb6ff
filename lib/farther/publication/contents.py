"""The published splits of a benchmark: image files, objects, and where they come from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from farther.curation.fates import Fates
from farther.curation.parameters import Benchmark
from farther.curation.rules import read_rules
from farther.curation.sources import Categories, LabelledImages, TablesFolder
from farther.datasets import Reader, create, image_roots
from farther.datasets.base import Credit
from farther.errors import DataError, ParameterError, choose
from farther.publication.datasheet import Words
from farther.tables import Images, Objects
from farther.tables.files import digest, inside
from farther.tables.stored import similarities
from farther.terms import SplitDistance


@dataclass(frozen=True)
class PublishedSplit:
    """A split and the files of its images.

    Args:
        name: Its name.
        distance: Its distance from the ID dataset.
        dataset, subset: Source of its images.
        folder: The split's tables, as `curate` wrote them; messages name its files.
        source: Its images and their objects.
        categories: The categories of its dataset.
        root: Folder of the image files of its dataset.
        credits: Licence and author of images by image id, as far as the dataset's files contain
            them.

    Raises:
        DataError: an object has a category that its dataset does not have; names the row.
    """

    name: str
    distance: SplitDistance
    dataset: str
    subset: str
    folder: Path
    source: LabelledImages
    categories: Categories
    root: Path
    credits: Mapping[str, Credit] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        unknown = np.flatnonzero(self.category_number < 0)
        if len(unknown):
            row = int(unknown[0])
            raise DataError(
                f"{self.objects.category[row]!r} is not a category of dataset {self.dataset!r}; "
                "rerun `curate`",
                file=self.folder / "objects.parquet",
                row=row,
                field="category",
            )

    @cached_property
    def category_number(self) -> np.ndarray:
        """Index of each object's category in `categories.names`, -1 if absent.

        int64 of shape (number of objects,).
        """
        number_by_name = {name: number for number, name in enumerate(self.categories.names)}
        numbers = [number_by_name.get(name, -1) for name in self.objects.category]
        return np.array(numbers, dtype=np.int64)

    @property
    def images(self) -> Images:
        """The images."""
        return self.source.images

    @property
    def objects(self) -> Objects:
        """Their objects."""
        return self.source.objects

    @cached_property
    def boxes(self) -> np.ndarray:
        """The boxes as x, y, width, height: float64 of shape (number of objects, 4)."""
        return xywh(self.objects.box)

    @cached_property
    def areas(self) -> list[float]:
        """Area of each box in square pixels, to four decimals."""
        return [round(width * height, 4) for width, height in self.boxes[:, 2:].tolist()]

    def credit(self, row: int) -> Credit:
        """Licence and author of an image, empty where they are not known."""
        return self.credits.get(self.images.image_id[row], Credit())

    def supercategory(self, category: str) -> str:
        """Parent of a category in its dataset's hierarchy, "" where it is not known."""
        return next(iter(self.categories.above(category)), "")

    def image_path(self, row: int) -> Path:
        """Path of an image's file; DataError if the name leaves the folder of its dataset."""
        return inside(self.root, self.images.file[row])

    def image_bytes(self, row: int) -> bytes:
        """Content of an image's file.

        Raises:
            DataError: it cannot be read, or is not the file that was ingested.
        """
        path = self.image_path(row)
        images_file = self.folder / "images.parquet"
        try:
            content = path.read_bytes()
        except OSError as error:
            problem = (
                f"the image {path} cannot be read ({error.strerror}); restore it, or rerun `ingest`"
            )
            raise DataError(problem, file=images_file, row=row, field="file") from None
        if digest(hashlib.sha256(content).digest()) != self.images.digest[row]:
            problem = (
                f"the file {path} has changed since it was ingested; rerun `ingest` and `curate`"
            )
            raise DataError(problem, file=images_file, row=row, field="digest")
        return content


@dataclass(frozen=True)
class Publication:
    """Splits of a benchmark and all that is known about them.

    Args:
        name: The benchmark's name.
        benchmark: Its parameters.
        id_classes: Its ID classes.
        splits: The splits.
        fates: Fate of each image of the OOD sources.
        origins: Source of each dataset, as text.
        similarity: Similarity to ID by split, as `stratify` measured it; {} where it did not run.
        words: The publisher's statements.
    """

    name: str
    benchmark: Benchmark
    id_classes: tuple[str, ...]
    splits: tuple[PublishedSplit, ...]
    fates: Fates
    origins: Mapping[str, str]
    similarity: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    words: Words = field(default_factory=Words)

    @property
    def title(self) -> str:
        """The publisher's title, else one from the ID dataset."""
        return self.words.title or f"Out of the distribution of {self.benchmark.id}"


def collect(
    name: str,
    benchmark: Benchmark,
    datasets: Mapping[str, Mapping[str, Any]],
    artifacts: str | Path,
    splits: Sequence[str] = (),
    words: Words | None = None,
    project: str | Path = ".",
) -> Publication:
    """Gathers splits of a benchmark that was curated.

    Args:
        name: The benchmark's name.
        benchmark: Its parameters.
        datasets: Section `datasets` of the parameters.
        artifacts: The artifacts folder.
        splits: Names of splits; all OOD splits when empty.
        words: The publisher's statements.
        project: The folder that the datasets' roots are relative to.

    Raises:
        ParameterError: a split is unknown or has no images, or its dataset is not in the
            parameters.
        DataError: a table is absent or damaged.
    """
    artifacts = Path(artifacts)
    splits_folder = artifacts / "splits" / name
    source_by_split = {}
    for split in splits or benchmark.splits:
        source_by_split[split] = _source(name, benchmark, split)
    roots = image_roots(datasets, artifacts / "tables", project)
    readers: dict[str, Reader] = {}
    for source in source_by_split.values():
        params = datasets[choose("dataset", source.dataset, datasets)]
        readers[source.dataset] = create(**params)
    tables = TablesFolder(artifacts / "tables")

    published = []
    for split, source in source_by_split.items():
        published.append(
            _published_split(
                split,
                source,
                inside(splits_folder, split),
                tables.categories(source.dataset),
                roots[source.dataset],
                readers[source.dataset],
            )
        )
    similarity = similarities(artifacts / "counts" / "similarity" / f"{name}.json").splits
    return Publication(
        name=name,
        benchmark=benchmark,
        id_classes=tuple(read_rules(benchmark).id_classes),
        splits=tuple(published),
        fates=Fates.read(splits_folder / "fates.parquet"),
        origins={dataset: readers[dataset].SOURCE for dataset in sorted(readers)},
        similarity={split: similarity[split] for split in source_by_split if split in similarity},
        words=words or Words(),
    )


@dataclass(frozen=True)
class SplitSource:
    """Source of a split's images, and the split's distance from the ID dataset."""

    dataset: str
    subset: str
    distance: SplitDistance


def _source(name: str, benchmark: Benchmark, split: str) -> SplitSource:
    """Source of an OOD split, or of a split of the ID dataset."""
    choose(f"split of benchmark {name!r}", split, [*benchmark.splits, *benchmark.subsets])
    if split in benchmark.subsets:
        dataset, subset = benchmark.id_sources[split]
        return SplitSource(dataset, subset, "ID")
    settings = benchmark.splits[split]
    return SplitSource(settings.dataset, settings.subset, settings.distance)


def _published_split(
    name: str,
    source: SplitSource,
    folder: Path,
    categories: Categories,
    root: Path,
    reader: Reader,
) -> PublishedSplit:
    images = Images.read(folder / "images.parquet")
    if not len(images):
        raise ParameterError(f"split {name!r} has no images; name the splits to publish")
    image_ids = set(images.image_id)
    credits = {}
    for image_id, credit in reader.credits(source.subset):
        if image_id in image_ids and credit:
            credits[image_id] = credit
    objects_file = folder / "objects.parquet"
    return PublishedSplit(
        name=name,
        distance=source.distance,
        dataset=source.dataset,
        subset=source.subset,
        folder=folder,
        source=LabelledImages(images, Objects.read(objects_file), objects_file),
        categories=categories,
        root=root,
        credits=credits,
    )


def xywh(edges: np.ndarray) -> np.ndarray:
    """Boxes as x, y, width and height in short decimals that give the same edges back.

    `x + width`, computed in double precision and rounded to float32, is exactly the right edge, and
    `y + height` the lower one. 123.4 is written as 123.4, not as all digits of the nearest float32.

    Args:
        edges: xmin, ymin, xmax, ymax: float32 of shape (N, 4).

    Returns:
        float64 of shape (N, 4).

    Example:
        >>> xywh(np.array([[0.1, 2, 123.4, 5.5]], np.float32)).tolist()
        [[0.1, 2.0, 123.3, 3.5]]
    """
    exact = edges.astype(np.float64).reshape(-1, 4)
    short = edges.astype("U32").astype(np.float64).reshape(-1, 4)
    size = np.round(short[:, 2:] - short[:, :2], 6)
    is_same = ((short[:, :2] + size).astype(np.float32) == exact[:, 2:]).all(axis=1, keepdims=True)
    low = np.where(is_same, short[:, :2], exact[:, :2])
    return np.concatenate([low, np.where(is_same, size, exact[:, 2:] - exact[:, :2])], axis=1)
