"""The similarity of a whole benchmark: from its splits and embeddings to tables, metrics and curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farther.datasets.hierarchy import read_synsets
from farther.datasets.wordnet import WordNet, WordNetParams
from farther.errors import DataError, ParameterError
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
        """Writes all of it.

        Args:
            tables: Folder to replace: `images.parquet`, `categories.parquet`, `borderline.parquet`,
                `duplicates.parquet`, and `summary.json` with the cuts.
            counts: JSON file: `split_similarities` by split, and the row `similarity` of the
                benchmark.
            histograms: CSV file (Figure 3).
        """
        with write_aside(tables) as aside:
            for name in ("images", "categories", "borderline", "duplicates"):
                getattr(self, name).write(aside / f"{name}.parquet")
            write_json(aside / "summary.json", self.summary())
        by_split = split_similarities(self.images).rows_by_key("split", named=True, unique=True)
        write_json(counts, {"similarity": self.summary(), **by_split})
        write_csv(histograms, histogram(self.images, self.bin_width))

    def summary(self) -> dict[str, Any]:
        """Mean similarity by distance, `separations`, the cuts, doubtful images and near-duplicates."""
        cuts = {"near_cut": self.cuts.near, "farther_cut": self.cuts.farther}
        return {
            **mean_similarities(self.images),
            **separations(self.images),
            **{name: round(cut, DECIMALS) for name, cut in cuts.items() if cut is not None},
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
    if params.reference not in [source.name for source in id_splits]:
        known = ", ".join(source.name for source in id_splits)
        raise ParameterError(
            f"parameter 'reference': no ID split {params.reference!r}. Known: {known}"
        )
    _check_one_encoder(files, [*id_splits, *ood_splits])
    ids = [files.split(source) for source in id_splits]
    oods = [files.split(source) for source in ood_splits]
    reference = next(split for split in ids if split.name == params.reference)
    id_names = files.names(reference.source.dataset)
    id_prototypes = prototypes([(reference, files.objects(reference.source))], id_names)
    others = [*(split for split in ids if split is not reference), *oods]
    try:
        images, cuts = stratify(reference, others, id_prototypes, params)
    except DataError as error:
        raise error.within(files.splits / reference.name / "images.parquet") from None
    categories = _categories(files, oods, IdClasses(id_names, id_prototypes), wordnet)
    duplicates, pairs = near_duplicates([*ids, *oods], params.duplicate, params.duplicate_pairs)
    return BenchmarkSimilarity(
        images,
        categories,
        duplicates,
        pairs,
        cuts,
        images.borderline(params.borderline),
        params.bin_width,
    )


def _categories(
    files: SimilarityFiles,
    oods: Sequence[EmbeddedSplit],
    id_classes: IdClasses,
    params: WordNetParams | None,
) -> CategorySimilarity:
    wordnet = None
    if params is not None:
        synsets = {} if params.synsets is None else read_synsets(params.synsets)
        wordnet = (WordNet(params.folder, synsets, params.leacock_chodorow), params)
    parts = []
    for dataset in dict.fromkeys(split.source.dataset for split in oods):
        of_dataset = [split for split in oods if split.source.dataset == dataset]
        shown = prototypes([(split, files.objects(split.source)) for split in of_dataset])
        try:
            parts.append(
                category_similarities(dataset, files.names(dataset), shown, id_classes, wordnet)
            )
        except DataError as error:
            raise error.within(files.embeddings) from None
    return CategorySimilarity.concatenate(parts) if parts else CategorySimilarity.empty()


def _check_one_encoder(files: SimilarityFiles, sources: Sequence[SplitSource]) -> None:
    """Raises an error for embeddings by several models, whose cosines have no meaning."""
    encoders = {source.dataset: files.encoder(source) for source in sources}
    (first, encoder), *others = encoders.items()
    for dataset, other in others:
        if other != encoder:
            problem = f"datasets {first!r} and {dataset!r} were embedded by different models: {encoder} and {other}"
            raise DataError(f"{problem}; run `embed` again", file=files.embeddings)
