"""Checks of the stage `infer`, for `farther doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from farther import detectors
from farther.command.doctor.class_order import check_order
from farther.command.doctor.inspection import ARTIFACTS, Inspection
from farther.datasets import image_roots
from farther.datasets.check import as_table, damage
from farther.detectors.check import (
    ELSEWHERE,
    check_entry,
    check_names,
    check_run,
    check_weights,
)
from farther.detectors.imported import Imported, Scopes
from farther.detectors.inference import InferenceParams
from farther.errors import Finding, refused
from farther.naming.registry import build

if TYPE_CHECKING:
    from farther.tables import Images


def check(project: Inspection) -> Iterator[Finding]:
    """The section `inference`; entries of `detectors`, with checkpoints or detections; images.

    Images are those that the check of `ingest` found to be damaged.
    """
    section = project.section("inference")
    yield from refused("inference", partial(build, InferenceParams, "inference", section))
    opens_images = False
    for run, entry in project.section("detectors").items():
        check_params = partial(check_entry, run, entry, project.section("embed").get("encoder"))
        if project.opens_nothing:
            check_params = partial(check_names, entry)
        check_benchmark = partial(project.benchmark, str((entry or {}).get("benchmark")))
        try:
            invalid = refused(f"detectors.{run}", check_params, check_benchmark)
            if invalid:
                yield from invalid
                continue
            if project.opens_nothing:
                yield from _check_weights(project, run, entry)
                continue
            if not isinstance(detectors.of_entry(entry), Imported):
                opens_images = True
            yield from _check_run(project, run, entry)
        except ModuleNotFoundError as error:
            text = f"{entry.get('weights')}: cannot be opened without the package {error.name}"
            yield Finding("checkpoints", run, "note", text)
    yield from _check_images(project, opens_images=opens_images)


def _check_weights(project: Inspection, run: str, entry: dict[str, Any]) -> Iterator[Finding]:
    """Whether the checkpoint of a run, or its detections, are there."""
    source = str(project.section("sources").get(run, ELSEWHERE))
    absent = check_weights(run, entry, source)
    if absent:
        yield absent


def _check_run(project: Inspection, run: str, entry: dict[str, Any]) -> Iterator[Finding]:
    """The checkpoint of a run, or its detections; and its passes."""
    absent = list(_check_weights(project, run, entry))
    if absent:
        yield from absent
        return
    source = str(project.section("sources").get(run, ELSEWHERE))
    if project.quick and not isinstance(detectors.of_entry(entry), Imported):
        yield Finding("checkpoints", run, "ok", f"{entry['weights']} (not opened)")
        return
    name = entry["benchmark"]
    if refused(name, partial(project.rules, name)):
        return  # the check of `curate` says what is wrong with the rules
    rules = project.rules(name)
    images = None if project.quick else _images(project, name)
    encoder = project.section("embed").get("encoder")
    is_wrong = False
    for finding in check_run(run, entry, rules.id_classes, images, encoder, rules.unknown_classes):
        if finding.state == "wrong":
            is_wrong = True
            yield replace(finding, more={"comes from": source})
        else:
            yield finding
    id_subset = project.benchmark(name).id_sources["val"]
    contents = project.subsets.get(id_subset)
    if contents and contents.annotations and not is_wrong:
        yield from check_order(run, entry, rules, id_subset[0], contents.annotations)


def _images(project: Inspection, benchmark: str) -> tuple[dict[str, Images], Scopes]:
    """Images of the splits whose subsets were read, and the names that detections may have."""
    checked = project.benchmark(benchmark)
    subset_by_split = dict(checked.id_sources)
    for split, ood_split in checked.splits.items():
        subset_by_split[split] = (ood_split.dataset, ood_split.subset)
    tables = {}
    for split, subset in subset_by_split.items():
        if subset not in project.subsets:
            continue
        table = as_table(subset[0], project.subsets[subset])
        if table is not None:
            tables[split] = table
    datasets = frozenset(dataset for dataset, _ in subset_by_split.values())
    entries = project.section("datasets")
    read = {dataset: entries[dataset] for dataset, _ in project.subsets if dataset in entries}
    roots = image_roots(read, ARTIFACTS / "tables")
    return tables, Scopes(frozenset(subset_by_split), datasets, roots)


def _check_images(project: Inspection, *, opens_images: bool) -> Iterator[Finding]:
    """Damaged images.

    They are wrong where a detector opens images, and where there are more than
    `inference.max_failures` allows.
    """
    limit = project.section("inference").get("max_failures", InferenceParams().max_failures)
    for (dataset, subset), contents in project.subsets.items():
        if not contents.broken:
            continue
        text = damage(contents, subset, contents.broken)
        if not opens_images:
            yield Finding("datasets", dataset, "note", f"{text} Only detectors would open them")
        elif len(contents.broken) > limit * contents.looked_at:
            advice = f"These are more than max_failures = {limit:g} allows: replace or delete them"
            yield Finding("datasets", dataset, "wrong", f"{text} {advice}")
        else:
            yield Finding("datasets", dataset, "note", f"{text} `infer` leaves them out")
