"""What is published: splits of a benchmark, how they came about, and what people say about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farther.curation.fates import Fates
from farther.curation.parameters import Benchmark
from farther.curation.rules import Rules
from farther.curation.sources import Source, TablesFolder
from farther.datasets import Reader, create, image_roots
from farther.datasets.credits import Credit
from farther.errors import ParameterError
from farther.tables import Images, Objects
from farther.tables.files import inside, read_json
from farther.tools.publication.contents import Distance, PublishedSplit
from farther.tools.publication.words import Words


@dataclass(frozen=True)
class Publication:
    """Splits of a benchmark with all that is said about them.

    Args:
        name: The benchmark.
        benchmark: Its parameters.
        id_classes: Names of its ID classes.
        splits: What is published.
        fates: What became of each image of the OOD sources.
        origins: Where each dataset comes from, in words.
        similarity: Figures about the similarity to ID, by split; {} where it was not measured.
        words: What people say.
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
        """Its name."""
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
        name: The benchmark.
        benchmark: Its parameters.
        datasets: Section `datasets` of the parameters.
        artifacts: The folder that the stages write.
        splits: Which splits; all OOD splits when empty.
        words: What people say.
        project: What relative roots of datasets are relative to.

    Raises:
        ParameterError: there is no such split, one has no images, or its dataset is in no section.
        DataError: a table is absent or damaged.
    """
    artifacts = Path(artifacts)
    chosen = {split: _origin(name, benchmark, split) for split in splits or benchmark.splits}
    tables = TablesFolder(artifacts / "tables")
    roots = image_roots(datasets, artifacts / "tables", project)
    readers = {dataset: _reader(dataset, datasets) for dataset, *_ in chosen.values()}
    folder = artifacts / "splits" / name
    return Publication(
        name=name,
        benchmark=benchmark,
        id_classes=tuple(Rules(benchmark.rules, benchmark.protocol).id_classes),
        splits=tuple(
            _split(split, origin, inside(folder, split), tables, roots, readers[origin[0]])
            for split, origin in chosen.items()
        ),
        fates=Fates.read(folder / "fates.parquet"),
        origins={key: readers[key].SOURCE for key in sorted(readers)},
        similarity=_similarity(artifacts / "metrics" / "similarity" / name, chosen),
        words=words or Words(),
    )


def _reader(dataset: str, datasets: Mapping[str, Mapping[str, Any]]) -> Reader:
    if dataset not in datasets:
        raise ParameterError(f"section 'datasets' has no {dataset!r}. Known: {', '.join(datasets)}")
    return create(**datasets[dataset])


def _origin(name: str, benchmark: Benchmark, split: str) -> tuple[str, str, Distance]:
    """Dataset, subset and distance of a split."""
    if split in benchmark.splits:
        one = benchmark.splits[split]
        return one.dataset, one.subset, one.distance
    if split in benchmark.subsets:
        return benchmark.id, benchmark.subsets[split], "ID"
    known = ", ".join([*benchmark.splits, *benchmark.subsets])
    raise ParameterError(f"benchmark {name!r} has no split {split!r}. Known: {known}")


def _split(
    name: str,
    origin: tuple[str, str, Distance],
    folder: Path,
    tables: TablesFolder,
    roots: Mapping[str, Path],
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
        source=Source(images, Objects.read(objects), objects),
        categories=tables.categories(dataset),
        roots=roots,
        credits=_credits(reader, subset, wanted),
    )


def _credits(reader: Reader, subset: str, wanted: set[str]) -> dict[str, Credit]:
    return {image_id: credit for image_id, credit in reader.credits(subset) if image_id in wanted and credit}


def _similarity(folder: Path, splits: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What `stratify` measured of each split."""
    found = {split: inside(folder, f"{split}.json") for split in splits}
    return {split: read_json(file) for split, file in found.items() if file.exists()}
