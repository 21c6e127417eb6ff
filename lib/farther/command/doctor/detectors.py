"""Checks of the detectors for `farther doctor`: checkpoints are opened and imported detections are read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from farther.command.doctor.machine import Finding
from farther.command.project import IMPORTED, Project, make_detector
from farther.errors import FartherError
from farther.tables.files import regular_file

if TYPE_CHECKING:
    from farther.command.doctor.datasets import Found

#: Where a checkpoint comes from if section `sources` does not name it.
ELSEWHERE = "your own training (docs/training.md), or the detector's authors"

NOT_OPENED = " (not opened)"
#: Adapters whose `weights` may be the name of a model on the hub.
FROM_HUB = ("detr", "transformers_classifier", "open_clip_classifier", "open_vocabulary")


def checkpoints(project: Project, images: Found | None = None, *, opened: bool = True) -> list[Finding]:
    """One finding per run, and one for the image encoder that section `embed` names.

    Args:
        project: The project.
        images: Images of each subset, as `datasets` found them: imported detections are read and compared with them.
        opened: Open checkpoints.
    """
    sources = project.section("sources")
    entries = project.section("detectors").items()
    found = []
    for name, entry in entries:
        finding = _checkpoint(name, entry, str(sources.get(name, ELSEWHERE)), opened=opened)
        finding = _compared(project, entry, finding) if finding.state == "ok" else finding
        is_read = images is not None and finding.state == "ok" and entry.get("adapter") in IMPORTED
        found.append(_imported(project, entry, finding, images or {}) if is_read else finding)
        if finding.state == "ok" and not finding.text.endswith(NOT_OPENED):
            found += _passes(project, name, entry)
    return [*found, *_embedder(project, str(sources.get("embed", "open_clip's models on the hub")))]


def _embedder(project: Project, source: str) -> list[Finding]:
    """The weights that section `embed` names; they are not opened."""
    weights = project.section("embed").get("weights")
    if weights is None:
        return []
    if Path(str(weights)).exists():
        return [Finding("checkpoints", "embed", "ok", f"{weights} (not opened)")]
    more = {"belongs at": str(weights), "comes from": source}
    return [Finding("checkpoints", "embed", "missing", "weights of the image encoder", more)]


def _passes(project: Project, run: str, entry: Mapping[str, Any]) -> Iterator[Finding]:
    """One finding for each pass of a run: whether its detector can do it, and its CLIP can be loaded."""
    from farther.detectors.known_classes import renamed
    from farther.detectors.passes import able, read_passes
    from farther.detectors.passes.crops import Crops

    for name, again in read_passes(run, entry.get("passes"), project.encoder).items():
        finding = Finding("checkpoints", f"{run}, pass {name}", "ok", f"{again.name}: the detector can do it")
        detector = make_detector(entry)
        try:
            if isinstance(again, Crops):
                header = again.header_of(renamed(detector.header(), entry.get("classes")))
                count = len(header.unknown_columns)
                finding = replace(
                    finding, text=f"{len(header.known_classes)} prompts of classes, {count} negative ones"
                )
            else:
                able(name, again, detector)
        except FartherError as error:
            finding = replace(finding, state="wrong", text=str(error))
        yield finding


def _compared(project: Project, entry: Mapping[str, Any], finding: Finding) -> Finding:
    """The finding on a checkpoint that could be opened, or what is wrong with its classes."""
    from farther.command.doctor.parameters import id_classes
    from farther.detectors.known_classes import check_classes

    if finding.text.endswith(NOT_OPENED):
        return finding
    try:
        header = make_detector(entry).header()
        absent = check_classes(header, entry.get("classes"), id_classes(project, str(entry.get("benchmark"))))
    except FartherError as error:
        return replace(finding, state="wrong", text=str(error))
    more = f"; it does not have the ID classes {', '.join(absent)}" if absent else ""
    return replace(finding, text=finding.text + more)


def _imported(project: Project, entry: Mapping[str, Any], finding: Finding, images: Found) -> Finding:
    """The finding on imported detections, or what `infer` would refuse in them."""
    from farther.datasets.presence import OPENED_BYTES
    from farther.detectors.imported import Scopes, check_import
    from farther.tables import Images

    adapter, benchmark = make_detector(entry), project.benchmark(str(entry["benchmark"]))
    if sum(regular_file(file).stat().st_size for file in adapter.files()) > OPENED_BYTES:
        return replace(finding, text=f"{finding.text} (large: the detections were not read)")
    sources = {**benchmark.id_sources, **{name: (one.dataset, one.subset) for name, one in benchmark.splits.items()}}
    scopes = Scopes(frozenset(sources), frozenset(dataset for dataset, _ in sources.values()))
    tables = {}
    for split, source in sources.items():
        annotated = images[source].images if source in images else None
        if annotated is not None:
            size = np.zeros(len(annotated), np.int32)
            texts = {"dataset": [source[0]] * len(size), "digest": [""] * len(size)}
            tables[split] = Images(image_id=annotated.image_id, file=annotated.file, width=size, height=size, **texts)
    try:
        with TemporaryDirectory() as folder:
            count = check_import(adapter, tables, scopes, Path(folder) / "rows")
    except FartherError as error:
        return replace(finding, state="wrong", text=str(error))
    return replace(finding, text=f"{finding.text}, {count} detections")


def _checkpoint(name: str, entry: Mapping[str, Any], source: str, *, opened: bool) -> Finding:
    weights = Path(str(entry.get("weights", "")))
    config = (entry.get("params") or {}).get("config")  # a folder beside the weights
    places = (weights, *([] if config is None else [Path(str(config))]))
    lacking = [path for path in places if not os.path.exists(path)]  # noqa: PTH110, a name may be too long
    # The name may be a model's on the hub: owner/name, without the ending of a file.
    named = len(weights.parts) == 2 and weights.suffix in ("", weights.name)
    of_hub = entry.get("adapter") in FROM_HUB and named
    if lacking == [weights] and of_hub:
        return Finding("checkpoints", name, "note", f"{weights}: a model of the hub, fetched when `infer` runs")
    if lacking:
        more = {"belongs at": ", ".join(map(str, lacking)), "comes from": source}
        return Finding("checkpoints", name, "missing", f"{entry.get('adapter')} checkpoint", more)
    try:
        detector = make_detector(entry)
        if not opened and detector.name not in IMPORTED:
            return Finding("checkpoints", name, "ok", f"{weights}{NOT_OPENED}")
        header = detector.header()
    except ModuleNotFoundError as error:
        return Finding("checkpoints", name, "note", f"{weights}: cannot be opened without the package {error.name}")
    except FartherError as error:
        return Finding("checkpoints", name, "wrong", str(error), {"comes from": source})
    layer = "" if header.weight is None else f", last layer {header.weight.shape[0]}×{header.weight.shape[1]}"
    return Finding("checkpoints", name, "ok", f"{weights}: {len(header.known_classes)} classes{layer}")
