"""What `curate` would refuse in an entry of the section `benchmarks`, before it runs."""

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

#: The folders of decisions, which `curate` depends on, and of rules, of which `code` takes digests.
DECISIONS, RULES = Path("data/decisions"), Path("data/benchmarks")


def check_benchmark(name: str, params: Mapping[str, Any], datasets: Iterable[str]) -> list[Finding]:
    """What is wrong with a benchmark: its parameters, datasets, rules, decisions and candidates; no image is opened."""
    place = f"benchmarks.{name}"
    invalid = refused(place, partial(benchmark, name, params))
    if invalid:
        return invalid
    made = benchmark(name, params)
    return refused(
        place,
        partial(_check_datasets, made, list(datasets)),
        partial(_check_rules, made),
        partial(_check_decisions, made),
        partial(_check_candidates, name, made),
    )


def check_enrichment(
    name: str, params: Mapping[str, Any], benchmarks: Iterable[str], datasets: Iterable[str]
) -> list[Finding]:
    """What is wrong with an entry of the section `enrich`: its parameters, its benchmark, the datasets of its pools."""
    place = f"enrich.{name}"
    invalid = refused(place, partial(enrichment, name, params))
    if invalid:
        return invalid
    pools = enrichment(name, params).pools
    checks = [partial(choose, "dataset", pool.dataset, list(datasets)) for pool in pools]
    return refused(place, partial(choose, "benchmark", name, list(benchmarks)), *checks)


def _check_datasets(made: Benchmark, known: Iterable[str]) -> None:
    splits = (*made.splits.values(), *made.derived_splits.values())
    for dataset in sorted(
        {made.id, *(name for name, _ in made.id_sources.values()), *(one.dataset for one in splits)}
    ):
        choose("dataset", dataset, known)


def _is_within(path: Path, folder: Path) -> bool:
    """Whether a path lies in a folder, whatever `..` it has."""
    return Path(os.path.normpath(path)).is_relative_to(folder)


def _check_rules(made: Benchmark) -> None:
    """The rules file, the names in it, and the vocabulary of each split."""
    if not _is_within(made.rules, RULES):
        raise DataError(
            f"rules files belong in {RULES}, which stage `code` depends on", file=made.rules
        )
    rules = read_rules(made)
    _ = rules.similarity  # opens WordNet where the rules use it
    shifted = [split for split in made.shifted.values() if split.classes == "by rules"]
    ruled = [split for split in made.splits.values() if split.assigned == "by rules"]
    others = [split for split in made.subsets.values() if isinstance(split, IdSplit)]
    for vocabulary in dict.fromkeys(split.names for split in (*ruled, *shifted, *others)):
        rules.of(vocabulary)


def _check_decisions(made: Benchmark) -> None:
    path = made.decisions
    if path is None:
        return
    if not _is_within(path, DECISIONS):
        raise DataError(f"decisions belong in {DECISIONS}, which `curate` depends on", file=path)
    if not path.is_file():
        problem = f"the file does not exist: leave `decisions` out, or write a file with the line {HEADER.strip()}"
        raise DataError(problem, file=path)
    DecisionsFile(path).read()


def _check_candidates(name: str, made: Benchmark) -> None:
    from_pools = FROM_POOLS / f"{name}.csv"
    for split in made.splits.values():
        path = split.candidates
        if path is None or path == from_pools or path.is_file():
            continue
        problem = f"the file does not exist: write it, or name the list that stage `enrich` writes, {from_pools}"
        raise DataError(problem, file=path)
