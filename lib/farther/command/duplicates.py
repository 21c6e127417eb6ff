"""`farther benchmark duplicates`: near-duplicate images of a benchmark."""

from __future__ import annotations

import csv
import sys
from typing import Annotated

import typer

from farther.command.output import next_step
from farther.command.project import PARAMS, OptionalBenchmark, Params, Project
from farther.text.escaping import spreadsheet
from farther.text.printable import printable
from farther.text.terminal import say


def duplicates(
    benchmark: OptionalBenchmark = None,
    cosine: Annotated[
        float | None,
        typer.Option(
            metavar="C",
            help="Minimum cosine similarity of a pair; by default stratify.duplicate.",
            min=-1,
            max=1,
        ),
    ] = None,
    params: Params = PARAMS,
) -> None:
    """List near-duplicate images of a benchmark as CSV.

    Compares the OOD splits with each other and with all images of the ID dataset's subsets,
    including those that the ID splits leave out: a detector may have been trained on them. Reads
    the embeddings.

    \b
    Examples:
      farther benchmark duplicates voc > duplicates.csv
      farther benchmark duplicates voc --cosine 0.99
    """
    from farther.naming.registry import build
    from farther.similarity import SimilarityFiles, SplitSource, near_duplicates
    from farther.similarity.stratify import StratifySection

    project = Project(params)
    benchmark = project.benchmark_name(benchmark)
    checked = project.benchmark(benchmark)
    settings = build(StratifySection, f"{params}: stratify", project.section("stratify"))
    threshold = settings.duplicate if cosine is None else cosine
    embeddings = project.artifacts / "embeddings"
    splits = []
    for dataset, subset in dict.fromkeys(checked.id_sources.values()):
        files = SimilarityFiles(project.artifacts / "tables" / dataset, embeddings)
        splits.append(files.split(SplitSource(subset, dataset, subset, "ID")))
    files = SimilarityFiles(project.artifacts / "splits" / benchmark, embeddings)
    for name, split in checked.splits.items():
        splits.append(files.split(SplitSource(name, split.dataset, split.subset, split.distance)))
    pairs, count = near_duplicates(splits, threshold, settings.duplicate_pairs)
    columns = pairs.columns()
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerow(columns)
    for *names, similarity, same_file in zip(*columns.values(), strict=True):
        cells = [spreadsheet(printable(name)) for name in names]
        rows.writerow([*cells, f"{similarity:.4f}", "yes" if same_file else "no"])
    summary = f"{count} pairs with a cosine of at least {threshold:g}, {len(pairs)} listed"
    say(summary, file=sys.stderr)
    next_step(f"farther benchmark review {benchmark}")
