"""Checks of an entry of the section `detectors`, before `infer` runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from farther import detectors
from farther.detectors.base import Detector, registry
from farther.detectors.imported import Imported, Scopes, check_import
from farther.detectors.known_classes import check_classes, with_class_names
from farther.detectors.passes import check_detector, read_passes
from farther.detectors.passes.crops import Crops
from farther.detectors.proposal_sources import read_sources, selections
from farther.errors import OPENED_BYTES, FartherError, Finding, ParameterError, shorten
from farther.images.read import read_header
from farther.params import check_keys
from farther.tables import Header, Images
from farther.tables.files import inside, regular_file

#: Origin of a checkpoint that section `sources` does not name.
ELSEWHERE = "your own training, or the detector's authors"

#: Number of detections of large files that are read.
FIRST_ROWS = 20_000
#: Number of images of a split whose size is read from their files, where annotations lack it.
SIZED = 200


def check_entry(run: str, entry: Any, encoder: Mapping[str, Any] | None = None) -> None:
    """Refuses unknown keys, adapters, kinds of passes and of proposals, and their parameters.

    No file is opened.

    Args:
        run: Name of the run.
        entry: Its entry.
        encoder: See `read_passes`.

    Raises:
        ParameterError: a name is unknown; lists those that are known.
        ModuleNotFoundError: the framework of the adapter or of a pass is not installed.
    """
    check_names(entry)
    detector = detectors.of_entry(entry)
    read_passes(run, entry.get("passes"), encoder)
    selections(run, read_sources(run, entry.get("proposals")), detector)


def check_names(entry: Any) -> None:
    """Refuses unknown keys and adapters; no framework is imported.

    Raises:
        ParameterError: a name is unknown; suggests the nearest one.
    """
    if not isinstance(entry, Mapping):
        raise ParameterError(f"expected {{adapter, benchmark, weights}}, found {shorten(entry)}")
    check_keys(entry)
    registry.check(str(entry.get("adapter", "")))


def check_weights(run: str, entry: Mapping[str, Any], source: str = ELSEWHERE) -> Finding | None:
    """The finding on a checkpoint that does not exist; None if it exists."""
    weights = Path(str(entry.get("weights", "")))
    paths = [weights]
    config = (entry.get("params") or {}).get("config")  # a folder beside the weights
    if config is not None:
        paths.append(Path(str(config)))
    missing = [path for path in paths if not os.path.exists(path)]  # noqa: PTH110, a name may be too long
    if not missing:
        return None

    # The name may be a model's on the hub: owner/name, without the ending of a file.
    is_hub_name = len(weights.parts) == 2 and weights.suffix in ("", weights.name)
    if missing == [weights] and is_hub_name and detectors.get(entry["adapter"]).FROM_HUB:
        return Finding(
            "checkpoints", run, "note", f"{weights}: a model of the hub, fetched when `infer` runs"
        )
    details = {"belongs at": ", ".join(map(str, missing)), "comes from": source}
    return Finding("checkpoints", run, "missing", f"{entry['adapter']} checkpoint", details)


def check_run(
    run: str,
    entry: Mapping[str, Any],
    id_classes: Sequence[str],
    images: tuple[Mapping[str, Images], Scopes] | None = None,
    encoder: Mapping[str, Any] | None = None,
    unknown_classes: Sequence[str] = (),
) -> Iterator[Finding]:
    """Yields one finding on a checkpoint or on imported detections, and one on each pass.

    The checkpoint or the detections are opened.

    Args:
        run: Name of the run.
        entry: Its entry, which `check_entry` accepts.
        id_classes: The ID classes of its benchmark.
        images: Images of the splits, and the names of splits and datasets: imported detections are
            read and compared with them.
        encoder: See `read_passes`.
        unknown_classes: See `check_classes`.
    """
    detector = detectors.of_entry(entry)
    try:
        header = detector.header()
        absent = check_classes(header, entry.get("classes"), id_classes, unknown_classes)
        text = f"{entry['weights']}: {len(header.known_classes)} classes"
        if header.weight is not None:
            rows, columns = header.weight.shape
            text += f", last layer {rows}×{columns}"
        if absent:
            text += f"; it does not have the ID classes {', '.join(absent)}"
        if images is not None and isinstance(detector, Imported):
            text += _import_summary(detector, *images)
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
    """Yields one finding on each pass: the detector supports it, and CLIP can be loaded."""
    for name, extra_pass in read_passes(run, entry.get("passes"), encoder).items():
        subject = f"{run}, pass {name}"
        try:
            if isinstance(extra_pass, Crops):
                prompts = extra_pass.header_of(with_class_names(header, entry.get("classes")))
                count = len(prompts.unknown_columns)
                text = f"{len(prompts.known_classes)} prompts of classes, {count} negative ones"
            else:
                check_detector(name, extra_pass, detector)
                text = f"{extra_pass.name}: the detector can do it"
        except FartherError as error:
            yield Finding("checkpoints", subject, "wrong", str(error))
        else:
            yield Finding("checkpoints", subject, "ok", text)


def _import_summary(detector: Imported, images: Mapping[str, Images], scopes: Scopes) -> str:
    """Summary of imported detections, of the first ones in large files; see `check_import`."""
    size = sum(regular_file(file).stat().st_size for file in detector.files())
    most = FIRST_ROWS if size > OPENED_BYTES else None
    sized = {split: _with_sizes(table, scopes.roots) for split, table in images.items()}
    with TemporaryDirectory() as folder:
        return f", {check_import(detector, sized, scopes, Path(folder) / 'rows', most)}"


def _with_sizes(images: Images, roots: Mapping[str, Path]) -> Images:
    """The table with the sizes of some images whose size it does not know, as displayed.

    Args:
        images: Images of a split.
        roots: Folder of the image files of each dataset.
    """
    rows = np.flatnonzero(images.width == 0)
    if len(rows) > SIZED:
        rows = rows[np.linspace(0, len(rows) - 1, SIZED).astype(int)]
    width = images.width.copy()
    height = images.height.copy()
    for row in rows:
        root = roots.get(images.dataset[row])
        if root is None:
            continue
        with suppress(FartherError, OSError, ValueError):
            width[row], height[row], _ = read_header(inside(root, images.file[row]))
    return images.with_columns(width=width, height=height)
