"""`farther benchmark publish`: splits of a benchmark as a data set for others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from farther.command.output import next_step
from farther.command.project import PARAMS, BenchmarkName, Params, Project, argument, option, splits
from farther.text.terminal import say


def publish(
    benchmark: BenchmarkName,
    out: Annotated[
        Path, argument("OUT", "Folder to write; an earlier publication there is replaced.")
    ],
    format: Annotated[
        Literal["coco", "parquet", "huggingface"], typer.Option(help="Format to write.")
    ],
    split: Annotated[
        list[str] | None,
        option("SPLIT", "Split to publish; repeatable; by default all OOD splits.", splits),
    ] = None,
    words: Annotated[
        Path | None,
        option("FILE", "YAML with title, licence and answers to the datasheet's questions."),
    ] = None,
    params: Params = PARAMS,
) -> None:
    """Publish a benchmark's splits as a dataset.

    Reads what the stages ingest, curate and, if it ran, stratify wrote.

    \b
    Examples:
      farther benchmark publish voc published/voc --format coco
      farther benchmark publish voc out --format huggingface --words card.yaml
      farther benchmark publish voc near --format parquet --split coco_near
    """
    from farther.publication import Words, collect, read_words
    from farther.publication import publish as write

    project = Project(params)
    checked = project.benchmark(benchmark)
    text = read_words(words) if words else Words()
    publication = collect(
        benchmark, checked, project.section("datasets"), project.artifacts, split or [], text
    )
    write(publication, out, format)
    for published in publication.splits:
        unlabelled = int(published.objects.is_unlabelled.sum())
        counts = f"{len(published.images):,} images"
        counts += f", {len(published.objects) - unlabelled:,} objects"
        if unlabelled:
            counts += f", {unlabelled:,} images without boxes"
        say(f"{published.name}: {counts}")
    say(f"Written: {out}")
    if words is None:
        next_step("run it again with --words FILE to add title, licence and answers")
