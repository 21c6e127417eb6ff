"""The similarity of a benchmark to ID: from its splits and embeddings to tables and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farther.datasets.hierarchy import read_synsets
from farther.datasets.wordnet import WordNet, WordNetParams
from farther.errors import DataError, ParameterError, known_names
from farther.similarity.categories import (
    CategorySimilarity,
    IdClasses,
    category_similarities,
    prototypes,
)
from farther.similarity.duplicates import Duplicates, near_duplicates
from farther.similarity.sources import EmbeddedSplit, SimilarityFiles, SplitSource
from farther.similarity.stratify import (
    DECIMALS,
    ELSEWHERE,
    Cuts,
    ImageSimilarity,
    StratifyParams,
    histogram,
    mean_similarities,
    separations,
    split_similarities,
    stratify,
)
from farther.tables.documents import write_json
from farther.tables.files import write_csv
from farther.tables.writing import write_aside


@dataclass(frozen=True)
class BenchmarkSimilarity:
    """Similarity of a benchmark's splits and categories to ID.

    Args:
        images: One row per image.
        categories: One row per category of an OOD dataset.
        duplicates: Pairs of near-duplicates.
        duplicate_pairs: Number of all pairs; `duplicates` may list fewer.
        cuts: Similarities that separate near, far and farther.
        borderline: The doubtful images, the most doubtful first.
        bin_width: Of the histograms.
    """

    images: ImageSimilarity
    categories: CategorySimilarity
    duplicates: Duplicates
    duplicate_pairs: int
    cuts: Cuts
    borderline: ImageSimilarity
    bin_width: float

    def write(self, tables: str | Path, counts: str | Path, histograms: str | Path) -> None:
        """Writes tables, metrics and histograms.

        Args:
            tables: Folder to replace: `images.parquet`, `categories.parquet`, `borderline.parquet`,
                `duplicates.parquet`, and `summary.json` with the cuts.
            counts: JSON file: `split_similarities` by split, and the row `similarity` of the
                benchmark.
            histograms: CSV file (Figure 3).
        """
        with write_aside(tables) as aside:
            self.images.write(aside / "images.parquet")
            self.categories.write(aside / "categories.parquet")
            self.borderline.write(aside / "borderline.parquet")
            self.duplicates.write(aside / "duplicates.parquet")
            write_json(aside / "summary.json", self.summary())
        by_split = split_similarities(self.images).rows_by_key("split", named=True, unique=True)
        write_json(counts, {"similarity": self.summary(), **by_split})
        write_csv(histograms, histogram(self.images, self.bin_width))

    def summary(self) -> dict[str, Any]:
        """Mean similarity by distance, `separations`, cuts, doubtful images and near-duplicates."""
        cuts = {}
        if self.cuts.near is not None:
            cuts["near_cut"] = round(self.cuts.near, DECIMALS)
        if self.cuts.farther is not None:
            cuts["farther_cut"] = round(self.cuts.farther, DECIMALS)
        return {
            **mean_similarities(self.images),
            **separations(self.images),
            **cuts,
            "elsewhere": self.images.frame.select(ELSEWHERE.sum()).item(),
            "near_duplicates": self.duplicate_pairs,
        }


def stratify_benchmark(
    files: SimilarityFiles,
    id_splits: Sequence[SplitSource],
    ood_splits: Sequence[SplitSource],
    params: StratifyParams | None = None,
    wordnet: WordNetParams | None = None,
) -> BenchmarkSimilarity:
    """Similarity of a benchmark's images and categories to ID.

    Args:
        files: Folders of splits and embeddings.
        id_splits: The ID splits, the reference among them.
        ood_splits: The OOD splits.
        params: Thresholds of near and farther.
        wordnet: A local WordNet to compare class names by.

    Raises:
        ParameterError: no ID split is called `params.reference`.
        DataError: a table is absent or damaged, datasets were embedded by different models, or
            WordNet is absent.
    """
    params = params or StratifyParams()
    id_names = [source.name for source in id_splits]
    if params.reference not in id_names:
        raise ParameterError(
            f"parameter 'reference': no ID split {params.reference!r}. {known_names(id_names)}"
        )
    _check_one_encoder(files, [*id_splits, *ood_splits])
    id_embedded = [files.split(source) for source in id_splits]
    ood_embedded = [files.split(source) for source in ood_splits]
    reference = id_embedded[id_names.index(params.reference)]
    compared = [split for split in id_embedded if split is not reference]
    compared.extend(ood_embedded)

    name_vectors = files.names(reference.source.dataset)
    id_prototypes = prototypes([(reference, files.objects(reference.source))], list(name_vectors))
    try:
        images, cuts = stratify(reference, compared, id_prototypes, params)
    except DataError as error:
        raise error.within(files.splits / reference.name / "images.parquet") from None
    id_classes = IdClasses(name_vectors, id_prototypes)
    categories = _categories(files, ood_embedded, id_classes, wordnet)
    duplicates, pairs = near_duplicates(
        [*id_embedded, *ood_embedded], params.duplicate, params.duplicate_pairs
    )
    return BenchmarkSimilarity(
        images=images,
        categories=categories,
        duplicates=duplicates,
        duplicate_pairs=pairs,
        cuts=cuts,
        borderline=images.borderline(params.borderline),
        bin_width=params.bin_width,
    )


def _categories(
    files: SimilarityFiles,
    ood_splits: Sequence[EmbeddedSplit],
    id_classes: IdClasses,
    params: WordNetParams | None,
) -> CategorySimilarity:
    """The similarity of the categories of all OOD datasets.

    Args:
        files: Folders of splits and embeddings.
        ood_splits: The OOD splits.
        id_classes: Embeddings of the ID classes.
        params: A local WordNet to compare class names by.
    """
    wordnet = None
    if params is not None:
        synsets = {} if params.synsets is None else read_synsets(params.synsets)
        wordnet = (WordNet(params.folder, synsets, params.leacock_chodorow), params)
    splits_by_dataset: dict[str, list[EmbeddedSplit]] = {}
    for split in ood_splits:
        splits_by_dataset.setdefault(split.source.dataset, []).append(split)

    parts = []
    for dataset, splits in splits_by_dataset.items():
        category_prototypes = prototypes([(split, files.objects(split.source)) for split in splits])
        try:
            names = files.names(dataset)
            part = category_similarities(dataset, names, category_prototypes, id_classes, wordnet)
        except DataError as error:
            raise error.within(files.embeddings) from None
        parts.append(part)
    return CategorySimilarity.concatenate(parts) if parts else CategorySimilarity.empty()


def _check_one_encoder(files: SimilarityFiles, sources: Sequence[SplitSource]) -> None:
    """Raises an error for embeddings by several models, whose cosines have no meaning."""
    first, *others = sources
    encoder = files.encoder(first)
    for source in others:
        other_encoder = files.encoder(source)
        if other_encoder != encoder:
            pair = f"datasets {first.dataset!r} and {source.dataset!r}"
            if source.dataset == first.dataset:
                pair = f"subsets {first.subset!r} and {source.subset!r} of {first.dataset!r}"
            problem = f"{pair} were embedded by different models: {encoder} and {other_encoder}"
            raise DataError(f"{problem}; run `embed` again", file=files.embeddings)
