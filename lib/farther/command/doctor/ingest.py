"""Checks of the stage `ingest`, for `farther doctor`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from farther import datasets
from farther.command.doctor.inspection import ARTIFACTS, Inspection
from farther.curation import subsets_used
from farther.curation.enrichment import subsets_searched
from farther.datasets.check import check_dataset
from farther.datasets.presence import Checked
from farther.errors import Finding, refused
from farther.images.read import MAX_PIXELS
from farther.tables.stored import WARNINGS, ingest_warnings


def check(project: Inspection) -> Iterator[Finding]:
    """Entries of `datasets`; absent files; annotations and images that would be refused.

    Also what the stage warned about when it ran last.
    """
    used = subsets_used(project.section("benchmarks"))
    for dataset, subsets in subsets_searched(project.section("enrich")).items():
        used.setdefault(dataset, set()).update(subsets)
    sources = project.section("sources").get("datasets") or {}
    max_pixels = project.section("inference").get("max_pixels")
    if not isinstance(max_pixels, int):
        max_pixels = MAX_PIXELS
    for name, params in project.section("datasets").items():
        subsets = used.get(name, set())
        invalid = refused(f"datasets.{name}", partial(datasets.create, **(params or {})))
        if invalid:
            yield from invalid
        elif Path(params["root"]).is_relative_to(ARTIFACTS):
            yield _written_by_pipeline(name, params, subsets)
        else:
            contents = None if project.quick else project.subsets
            source = sources.get(name)
            yield from check_dataset(name, params, subsets, source, max_pixels, contents)
        tables = ARTIFACTS / "tables" / name
        counts = ingest_warnings(tables)["counts"]
        for kind, count in counts.items():
            text = f"{kind} ({count}): see {tables / WARNINGS}"
            yield Finding("warnings", name, "note", text)
        if not counts:
            yield from _of_annotations(name, project.subsets)


def _of_annotations(name: str, contents: Mapping[tuple[str, str], Checked]) -> Iterator[Finding]:
    """One note per kind of warning about a dataset's annotations, before `ingest` runs."""
    examples: dict[str, list[str]] = {}
    for (dataset, _), checked in contents.items():
        if dataset == name and checked.annotations is not None:
            for warning in checked.annotations.warnings:
                examples.setdefault(warning.kind, []).append(warning.found)
    for kind, texts in examples.items():
        count = f" ({len(texts)})" if len(texts) > 1 else ""
        yield Finding("warnings", name, "note", f"{kind}{count}: {texts[0]}")


def _written_by_pipeline(name: str, params: Mapping[str, Any], used: Collection[str]) -> Finding:
    """Whether a dataset that an earlier stage writes is there."""
    if datasets.missing({name: params}, {name: used}):
        return Finding("datasets", name, "ok", "the pipeline will write it")
    return Finding("datasets", name, "ok", f"at {params['root']}, written by the pipeline")
