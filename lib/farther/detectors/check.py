"""What `infer` would refuse in an entry of the section `detectors`, before it runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from farther import detectors
from farther.detectors.base import Detector
from farther.detectors.imported import Imported, Scopes, check_import
from farther.detectors.known_classes import check_classes, renamed
from farther.detectors.passes import check_detector, read_passes
from farther.detectors.passes.crops import Crops
from farther.detectors.proposals import read_sources, selections
from farther.errors import OPENED_BYTES, FartherError, Finding, ParameterError, choose, shorten
from farther.tables import Header, Images
from farther.tables.files import regular_file

#: What an entry may have.
KEYS = (
    "title",
    "adapter",
    "benchmark",
    "weights",
    "params",
    "classes",
    "threshold",
    "passes",
    "proposals",
)

#: Where a checkpoint comes from if section `sources` does not name it.
ELSEWHERE = "your own training (docs/training.md), or the detector's authors"


def check_entry(run: str, entry: Any, encoder: Mapping[str, Any] | None = None) -> None:
    """Refuses unknown keys, adapters, kinds of passes and of proposals, and their parameters; opens nothing.

    Args:
        run: Name of the run.
        entry: Its entry.
        encoder: See `read_passes`.

    Raises:
        ParameterError: what is wrong, with the names that are known.
        ModuleNotFoundError: the framework of the adapter or of a pass is not installed.
    """
    if not isinstance(entry, Mapping):
        raise ParameterError(f"expected {{adapter, benchmark, weights}}, found {shorten(entry)}")
    for key in entry:
        choose("parameter of a detector", str(key), KEYS)
    detector = detectors.of_entry(entry)
    read_passes(run, entry.get("passes"), encoder)
    selections(run, read_sources(run, entry.get("proposals")), detector)


def check_weights(run: str, entry: Mapping[str, Any], source: str = ELSEWHERE) -> Finding | None:
    """The finding on a checkpoint that is not there; None where it is."""
    weights = Path(str(entry.get("weights", "")))
    config = (entry.get("params") or {}).get("config")  # a folder beside the weights
    places = (weights, *([] if config is None else [Path(str(config))]))
    lacking = [path for path in places if not os.path.exists(path)]  # noqa: PTH110, a name may be too long
    # The name may be a model's on the hub: owner/name, without the ending of a file.
    named = len(weights.parts) == 2 and weights.suffix in ("", weights.name)
    if lacking == [weights] and named and detectors.get(entry["adapter"]).FROM_HUB:
        return Finding(
            "checkpoints", run, "note", f"{weights}: a model of the hub, fetched when `infer` runs"
        )
    if lacking:
        more = {"belongs at": ", ".join(map(str, lacking)), "comes from": source}
        return Finding("checkpoints", run, "missing", f"{entry['adapter']} checkpoint", more)
    return None


def check_run(
    run: str,
    entry: Mapping[str, Any],
    id_classes: Sequence[str],
    images: tuple[Mapping[str, Images], Scopes] | None = None,
    encoder: Mapping[str, Any] | None = None,
    unknown_classes: Sequence[str] = (),
) -> Iterator[Finding]:
    """One finding on a checkpoint or on imported detections, which are opened, and one on each pass of the run.

    Args:
        run: Name of the run.
        entry: Its entry, which `check_entry` accepts.
        id_classes: The ID classes of its benchmark.
        images: Images of the splits, and the splits and datasets that there are: imported
            detections are read and compared with them.
        encoder: See `read_passes`.
        unknown_classes: See `check_classes`.
    """
    weights, detector = entry["weights"], detectors.of_entry(entry)
    try:
        header = detector.header()
        absent = check_classes(header, entry.get("classes"), id_classes, unknown_classes)
        layer = (
            ""
            if header.weight is None
            else f", last layer {header.weight.shape[0]}×{header.weight.shape[1]}"
        )
        text = f"{weights}: {len(header.known_classes)} classes{layer}"
        text += f"; it does not have the ID classes {', '.join(absent)}" if absent else ""
        if images is not None and isinstance(detector, Imported):
            text += _counted(detector, *images)
    except FartherError as error:
        yield Finding("checkpoints", run, "wrong", str(error))
        return
    yield Finding("checkpoints", run, "ok", text)
    yield from check_passes(run, entry, detector, header, encoder)


def check_passes(
    run: str,
    entry: Mapping[str, Any],
    detector: Detector | Imported,
    header: Header,
    encoder: Mapping[str, Any] | None = None,
) -> Iterator[Finding]:
    """One finding on each pass of a run: whether its detector can do it, and its CLIP can be loaded."""
    for name, again in read_passes(run, entry.get("passes"), encoder).items():
        try:
            if isinstance(again, Crops):
                prompts = again.header_of(renamed(header, entry.get("classes")))
                count = len(prompts.unknown_columns)
                text = f"{len(prompts.known_classes)} prompts of classes, {count} negative ones"
            else:
                check_detector(name, again, detector)
                text = f"{again.name}: the detector can do it"
        except FartherError as error:
            yield Finding("checkpoints", f"{run}, pass {name}", "wrong", str(error))
        else:
            yield Finding("checkpoints", f"{run}, pass {name}", "ok", text)


def _counted(detector: Imported, images: Mapping[str, Images], scopes: Scopes) -> str:
    """How many detections there are, or that they were too large to read; errors as in `check_import`."""
    if sum(regular_file(file).stat().st_size for file in detector.files()) > OPENED_BYTES:
        return " (large: the detections were not read)"
    with TemporaryDirectory() as folder:
        return f", {check_import(detector, images, scopes, Path(folder) / 'rows')}"
