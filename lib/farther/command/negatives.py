"""`farther benchmark negatives`: negative prompts for the text scores of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from farther.command.output import next_step, paragraph
from farther.command.project import PARAMS, BenchmarkName, Params, Project
from farther.errors import DataError, ParameterError
from farther.tables.writing import write_aside
from farther.text.terminal import say

#: Maximum number of leaks that are printed.
LISTED = 20


def negatives(
    benchmark: BenchmarkName,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="The text file to write, one prompt per line.")
    ],
    wordnet: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="WordNet's dict folder, or a YAML file of kinds; by default stratify.wordnet's.",
        ),
    ] = None,
    count: Annotated[int, typer.Option(metavar="N", help="Number of prompts.", min=1)] = 1000,
    leave_out: Annotated[
        bool,
        typer.Option(
            "--leave-out", help="Exclude nouns that name a category of an OOD test split."
        ),
    ] = False,
    params: Params = PARAMS,
) -> None:
    """Write negative prompts: nouns far from ID classes.

    The nouns of WordNet, except people, groups and quantities, ordered by the distance of their
    text embeddings from those of the ID classes (NegLabel's NegMine), with the CLIP of section
    `embed`. A pass of kind `crops` and open-vocabulary detectors take the file as `unknown`. Nouns
    that name a category of an OOD test split are *leaks*: the unknown objects are then not unknown
    to the prompts. They are printed, or excluded with --leave-out. Needs the splits.

    \b
    Examples:
      farther benchmark negatives voc nouns.txt --wordnet data/wordnet/dict
      farther benchmark negatives voc nouns.txt --count 5000 --leave-out
    """
    from farther.curation import read_rules
    from farther.datasets.wordnet import open_hierarchy
    from farther.images.clip import Encoder, EncoderParams
    from farther.naming.registry import build
    from farther.similarity.negatives import MiningParams, mine_negatives

    if out.is_dir():
        raise ParameterError(f"{out} is a folder: name a text file")
    project = Project(params)
    folder = wordnet or (project.section("stratify").get("wordnet") or {}).get("folder")
    if folder is None:
        raise ParameterError("no WordNet: give --wordnet, its dict folder or a YAML file of kinds")
    id_classes = read_rules(project.benchmark(benchmark), project.folder).id_classes
    categories = _categories(project, benchmark) - set(id_classes)
    encoder = Encoder(build(EncoderParams, f"{params}: embed.encoder", dict(project.encoder or {})))
    mining = MiningParams(count=count)
    mined = mine_negatives(
        encoder, open_hierarchy(folder), id_classes, categories, mining, leave_out=leave_out
    )
    with write_aside(out) as aside:
        aside.write_text("".join(f"{prompt}\n" for prompt in mined.prompts), encoding="utf-8")
    cosines = f"cosines {mined.cosines[0]:.3f} to {mined.cosines[-1]:.3f}"
    say(f"Written: {out}, {len(mined.prompts)} prompts; {cosines}.")
    if mined.leaks:
        say(paragraph(_leaks_text(mined.leaks, len(categories))))
    next_step(f"write `unknown: {out}` in a pass or a detector in params.yaml, then farther repro")


def _leaks_text(leaks: Mapping[str, str], category_count: int) -> str:
    """A sentence on the prompts that name an unknown object.

    Args:
        leaks: {noun: the category that it names}.
        category_count: Number of categories of the OOD test splits.
    """
    names = []
    for noun, category in leaks.items():
        names.append(noun if noun == category else f"{noun} ({category})")
    listed = ", ".join(names[:LISTED])
    if len(names) > LISTED:
        listed += f" and {len(names) - LISTED} more"
    return (
        f"Leaks: {len(names)} prompts name one of the {category_count} categories of the OOD test "
        f"splits: {listed}. --leave-out excludes them."
    )


def _categories(project: Project, benchmark: str) -> set[str]:
    """Categories of all objects in the OOD test splits."""
    from farther.tables import Objects

    categories: set[str] = set()
    for split in project.benchmark(benchmark).splits:
        file = project.artifacts / "splits" / benchmark / split / "objects.parquet"
        if not file.exists():
            raise DataError("the file does not exist: run `farther repro curate`", file=file)
        categories.update(Objects.read(file).category.astype(str))
    return categories
