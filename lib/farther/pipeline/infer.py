"""Runs a detector over the splits of its benchmark that changed, or imports what another program detected in them.

Then it looks again at what the detector found, in the passes that the run's entry asks for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farther import detectors
from farther.datasets import image_roots
from farther.detectors.imported import Imported, import_splits
from farther.detectors.inference import TRAINING, InferenceParams, ProposalFolders, infer_splits
from farther.detectors.known_classes import check_classes
from farther.detectors.passes import infer_passes, read_passes
from farther.detectors.proposals import ImportedBoxes, read_sources, selections
from farther.errors import Finding, ParameterError, refused
from farther.params import run_entry, section
from farther.registry import build
from farther.stage import run_stage
from farther.tables.schema import read_typed
from farther.terminal import say

if TYPE_CHECKING:
    from farther.pipeline.inspection import Inspection

ARTIFACTS = Path("artifacts")
OUTPUT = "artifacts/regions/{}"


def main(run: str) -> None:
    """Reads `detectors.RUN`, `inference`, roots of `datasets`; writes artifacts/{regions,proposals,passes}/RUN."""
    entry = run_entry(run)
    detector = detectors.of_entry(entry)
    roots = image_roots(section("datasets"), ARTIFACTS / "tables")
    params = build(InferenceParams, "params.yaml: inference", section("inference"))
    log = partial(say, flush=True)
    splits = ARTIFACTS / "splits" / entry["benchmark"]
    out, work = ARTIFACTS / "regions" / run, ARTIFACTS / ".work" / "regions" / run
    passes = read_passes(run, entry["passes"], (section().get("embed") or {}).get("encoder"))
    names, sources = entry["classes"], read_sources(run, entry["proposals"])
    proposals = ARTIFACTS / "proposals" / run, selections(run, sources, detector)
    boxes = {name: source for name, source in sources.items() if isinstance(source, ImportedBoxes)}
    if absent := check_classes(detector.header(), names, read_typed(list[str], splits / "id_classes.json")):
        log(f"{run} does not have the ID classes {', '.join(absent)}: it finds none of their objects")
    if isinstance(detector, Imported):
        import_splits(detector, splits, out, work, params.shard_images, classes=names, log=log)
        ProposalFolders(*proposals, {})
    else:
        infer_splits(detector, splits, roots, out, work, params, classes=names, proposals=proposals, log=log)
    for name, source in boxes.items():
        place, unfinished = proposals[0] / name, ARTIFACTS / ".work" / "proposals" / run / name
        shards, without = params.shard_images, (TRAINING,)
        try:
            import_splits(source.reader, splits, place, unfinished, shards, without=without, log=log)
        except ParameterError as error:
            raise ParameterError(f"detectors.{run}.proposals.{name}: {error}") from None
    again, unfinished = ARTIFACTS / "passes" / run, ARTIFACTS / ".work" / "passes" / run
    infer_passes(detector, passes, splits, roots, out, again, unfinished, params, classes=names, log=log)


def check(project: Inspection) -> Iterator[Finding]:
    """The section `inference`; entries of `detectors`, their checkpoints or detections; images that are damaged."""
    from farther.detectors.check import check_entry

    yield from refused("inference", lambda: build(InferenceParams, "inference", project.section("inference")))
    opens = False
    for run, entry in project.section("detectors").items():
        read = partial(check_entry, run, entry, project.section("embed").get("encoder"))
        benchmark = partial(project.benchmark, str((entry or {}).get("benchmark")))
        try:
            if wrong := refused(f"detectors.{run}", read, benchmark):
                yield from wrong
            else:
                opens = opens or not isinstance(detectors.of_entry(entry), Imported)
                yield from _check_run(project, run, entry)
        except ModuleNotFoundError as error:
            text = f"{entry.get('weights')}: cannot be opened without the package {error.name}"
            yield Finding("checkpoints", run, "note", text)
    yield from _check_images(project, opens=opens)


def _check_run(project: Inspection, run: str, entry: dict[str, Any]) -> Iterator[Finding]:
    """The checkpoint of a run, or its detections; and its passes."""
    from farther.datasets.check import as_table
    from farther.detectors.check import ELSEWHERE, check_run, check_weights
    from farther.detectors.imported import Scopes
    from farther.pipeline.class_order import check_order

    name, source = entry["benchmark"], str(project.section("sources").get(run, ELSEWHERE))
    if absent := check_weights(run, entry, source):
        yield absent
    elif project.quick and not isinstance(detectors.of_entry(entry), Imported):
        yield Finding("checkpoints", run, "ok", f"{entry['weights']} (not opened)")
    elif not refused(name, partial(project.rules, name)):  # the check of `curate` says what is wrong with them
        made = project.benchmark(name)
        subsets = made.id_sources | {split: (one.dataset, one.subset) for split, one in made.splits.items()}
        looked_at = [(split, key) for split, key in subsets.items() if key in project.subsets]
        tables = {split: as_table(key[0], project.subsets[key]) for split, key in looked_at}
        scopes = Scopes(frozenset(subsets), frozenset(dataset for dataset, _ in subsets.values()))
        images = {split: table for split, table in tables.items() if table is not None}, scopes
        id_classes, encoder = project.rules(name).id_classes, project.section("embed").get("encoder")
        findings = list(check_run(run, entry, id_classes, None if project.quick else images, encoder))
        for finding in findings:
            yield replace(finding, more={"comes from": source}) if finding.state == "wrong" else finding
        found = project.subsets.get(subsets["val"])
        if found and found.annotations and not any(one.state == "wrong" for one in findings):
            yield from check_order(run, entry, project.rules(name), subsets["val"][0], found.annotations)


def _check_images(project: Inspection, *, opens: bool) -> Iterator[Finding]:
    """Damaged images; wrong where these are more than `inference.max_failures` allows and a detector opens images."""
    from farther.datasets.check import damage

    limit = project.section("inference").get("max_failures", InferenceParams().max_failures)
    for (dataset, subset), found in project.subsets.items():
        if not found.broken:
            continue
        text = damage(found, subset, found.broken)
        if opens and len(found.broken) > limit * found.looked_at:
            text += f" These are more than max_failures = {limit:g} allows: replace or delete them"
            yield Finding("datasets", dataset, "wrong", text)
        else:
            text += " `infer` leaves them out" if opens else " Only detectors would open them"
            yield Finding("datasets", dataset, "note", text)


if __name__ == "__main__":
    run_stage(main, OUTPUT)
