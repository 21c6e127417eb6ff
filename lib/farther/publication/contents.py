"""The published splits of a benchmark: image files, objects, and where they come from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

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

#: Distance of a split from the ID dataset; "ID" for a split of the ID dataset itself.
Distance = Literal["ID", "near", "far", "farther"]


@dataclass(frozen=True)
class PublishedSplit:
    """A split and the files of its images.

    Args:
        dataset, subset: Source of its images.
        folder: The split's tables, as `curate` wrote them; messages name its files.
        categories: The categories of its dataset.
        root: Folder of the image files of its dataset.
        credits: Licence and author of images by image id, as far as the dataset's files contain
            them.

    Raises:
        DataError: an object has a category that its dataset does not have; names the row.
    """

    name: str
    distance: Distance
    dataset: str
    subset: str
    folder: Path
    source: LabelledImages
    categories: Categories
    root: Path
    credits: Mapping[str, Credit] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        lost = np.flatnonzero(self.category_number < 0)
        if len(lost):
            row = int(lost[0])
            problem = f"{self.objects.category[row]!r} is not a category of dataset {self.dataset!r}; rerun `curate`"
            raise DataError(
                problem, file=self.folder / "objects.parquet", row=row, field="category"
            )

    @cached_property
    def category_number(self) -> np.ndarray:
        """Index of each object's category in `categories.names`, -1 if absent: int64 of shape (number of objects,)."""
        known = {name: number for number, name in enumerate(self.categories.names)}
        return np.array([known.get(name, -1) for name in self.objects.category], dtype=np.int64)

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
        """Content of an image's file; DataError if it cannot be read, or is not the file that was ingested."""
        path = self.image_path(row)
        try:
            content = path.read_bytes()
        except OSError as error:
            problem = (
                f"the image {path} cannot be read ({error.strerror}); restore it, or rerun `ingest`"
            )
            raise DataError(
                problem, file=self.folder / "images.parquet", row=row, field="file"
            ) from None
        if digest(hashlib.sha256(content).digest()) != self.images.digest[row]:
            problem = (
                f"the file {path} has changed since it was ingested; rerun `ingest` and `curate`"
            )
            raise DataError(problem, file=self.folder / "images.parquet", row=row, field="digest")
        return content


@dataclass(frozen=True)
class Publication:
    """Splits of a benchmark and all that is known about them.

    Args:
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

    Raises:
        ParameterError: a split is unknown or has no images, or its dataset is not in the
            parameters.
        DataError: a table is absent or damaged.
    """
    artifacts = Path(artifacts)
    chosen = {split: _origin(name, benchmark, split) for split in splits or benchmark.splits}
    tables = TablesFolder(artifacts / "tables")
    roots = image_roots(datasets, artifacts / "tables", project)
    readers = {
        name: create(**datasets[choose("dataset", name, datasets)]) for name, *_ in chosen.values()
    }
    folder, measured = (
        artifacts / "splits" / name,
        artifacts / "counts" / "similarity" / f"{name}.json",
    )
    similarity = similarities(measured).splits
    return Publication(
        name=name,
        benchmark=benchmark,
        id_classes=tuple(read_rules(benchmark).id_classes),
        splits=tuple(
            _split(
                split, origin, inside(folder, split), tables, roots[origin[0]], readers[origin[0]]
            )
            for split, origin in chosen.items()
        ),
        fates=Fates.read(folder / "fates.parquet"),
        origins={key: readers[key].SOURCE for key in sorted(readers)},
        similarity={split: similarity[split] for split in chosen if split in similarity},
        words=words or Words(),
    )


def _origin(name: str, benchmark: Benchmark, split: str) -> tuple[str, str, Distance]:
    """Dataset, subset and distance of a split."""
    choose(f"split of benchmark {name!r}", split, [*benchmark.splits, *benchmark.subsets])
    if split in benchmark.subsets:
        return *benchmark.id_sources[split], "ID"
    one = benchmark.splits[split]
    return one.dataset, one.subset, one.distance


def _split(
    name: str,
    origin: tuple[str, str, Distance],
    folder: Path,
    tables: TablesFolder,
    root: Path,
    reader: Reader,
) -> PublishedSplit:
    dataset, subset, distance = origin
    images, objects = Images.read(folder / "images.parquet"), folder / "objects.parquet"
    if not len(images):
        raise ParameterError(f"split {name!r} has no images; name the splits to publish")
    wanted = set(images.image_id)
    return PublishedSplit(
        name=name,
        distance=distance,
        dataset=dataset,
        subset=subset,
        folder=folder,
        source=LabelledImages(images, Objects.read(objects), objects),
        categories=tables.categories(dataset),
        root=root,
        credits={
            name: credit for name, credit in reader.credits(subset) if name in wanted and credit
        },
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
