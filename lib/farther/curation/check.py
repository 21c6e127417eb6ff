"""Checks of the sections `benchmarks` and `enrich` of params.yaml before their stages run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from farther.curation.candidates import FROM_POOLS
from farther.curation.decisions import HEADER, DecisionsFile
from farther.curation.enrichment import enrichment
from farther.curation.parameters import Benchmark, IdSplit, benchmark
from farther.curation.rules import read_rules
from farther.errors import DataError, Finding, choose, refused

#: The folder of decisions, which `curate` depends on.
DECISIONS = Path("data/decisions")

#: The folder of class mappings, whose digests `code` writes.
RULES = Path("data/benchmarks")


def check_benchmark(name: str, params: Mapping[str, Any], datasets: Iterable[str]) -> list[Finding]:
    """Problems of a benchmark: its parameters, datasets, rules, decisions and candidates.

    No image is opened.
    """
    place = f"benchmarks.{name}"
    invalid = refused(place, partial(benchmark, name, params))
    if invalid:
        return invalid
    checked = benchmark(name, params)
    return refused(
        place,
        partial(_check_datasets, checked, list(datasets)),
        partial(_check_rules, checked),
        partial(_check_decisions, checked),
        partial(_check_candidates, name, checked),
    )


def check_enrichment(
    name: str, params: Mapping[str, Any], benchmarks: Iterable[str], datasets: Iterable[str]
) -> list[Finding]:
    """Problems of a search for candidates: its parameters, its benchmark, its pools' datasets."""
    place = f"enrich.{name}"
    invalid = refused(place, partial(enrichment, name, params))
    if invalid:
        return invalid
    known_datasets = list(datasets)
    pools = enrichment(name, params).pools
    known_benchmark = partial(choose, "benchmark", name, list(benchmarks))
    known_pools = [partial(choose, "dataset", pool.dataset, known_datasets) for pool in pools]
    return refused(place, known_benchmark, *known_pools)


def _check_datasets(checked: Benchmark, known: Iterable[str]) -> None:
    datasets = {checked.id}
    for dataset, _ in checked.id_sources.values():
        datasets.add(dataset)
    for split in (*checked.splits.values(), *checked.derived_splits.values()):
        datasets.add(split.dataset)
    for dataset in sorted(datasets):
        choose("dataset", dataset, known)


def _check_rules(checked: Benchmark) -> None:
    """Checks the class mapping, the names in it, and the vocabulary of each split."""
    if not _is_within(checked.rules, RULES):
        problem = f"class mappings belong in {RULES}, which stage `code` depends on"
        raise DataError(problem, file=checked.rules)
    rules = read_rules(checked)
    rules.open_hierarchy()
    for vocabulary in _vocabularies(checked):
        rules.for_vocabulary(vocabulary)


def _vocabularies(checked: Benchmark) -> list[str]:
    """The vocabularies of the splits whose images are chosen by the rules, without repetition."""
    ood_splits = checked.splits.values()
    shifted_splits = checked.shifted.values()
    id_splits = checked.subsets.values()
    vocabularies = [
        *(split.names for split in ood_splits if split.assigned == "by rules"),
        *(split.names for split in shifted_splits if split.classes == "by rules"),
        *(split.names for split in id_splits if isinstance(split, IdSplit)),
    ]
    return list(dict.fromkeys(vocabularies))


def _check_decisions(checked: Benchmark) -> None:
    path = checked.decisions
    if path is None:
        return
    if not _is_within(path, DECISIONS):
        raise DataError(f"decisions belong in {DECISIONS}, which `curate` depends on", file=path)
    if not path.is_file():
        problem = (
            "the file does not exist: leave `decisions` out, or write a file with the line "
            f"{HEADER.strip()}"
        )
        raise DataError(problem, file=path)
    DecisionsFile(path).read()


def _check_candidates(name: str, checked: Benchmark) -> None:
    from_pools = FROM_POOLS / f"{name}.csv"
    for split in checked.splits.values():
        path = split.candidates
        if path is None or path == from_pools or path.is_file():
            continue
        problem = (
            "the file does not exist: write it, or name the list that stage `enrich` writes, "
            f"{from_pools}"
        )
        raise DataError(problem, file=path)


def _is_within(path: Path, folder: Path) -> bool:
    """Whether a path lies in a folder, also one with `..` in it."""
    return Path(os.path.normpath(path)).is_relative_to(folder)
