"""Checks of a dataset before `ingest` reads it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import numpy as np

from farther.datasets.presence import Checked, Missing, check_subset, missing
from farther.datasets.readers import create
from farther.datasets.sizes import bytes_of
from farther.errors import DataError, Finding
from farther.images.read import MAX_PIXELS
from farther.tables import Images
from farther.tables.folders import refuse_linked_folders


def check_dataset(
    name: str,
    params: Mapping[str, Any],
    used: Collection[str],
    source: str | None = None,
    max_pixels: int = MAX_PIXELS,
    checks: MutableMapping[tuple[str, str], Checked] | None = None,
) -> Iterator[Finding]:
    """Findings about a dataset before `ingest` reads it.

    One per file or folder that it lacks, or one for a complete dataset and one per subset with
    damaged images.

    Args:
        name: Its name.
        params: Its entry of the section `datasets`.
        used: Its subsets that benchmarks use.
        source: Where its files come from, if not from where its format says.
        max_pixels: Images with more are not read by detectors.
        checks: Takes the checks by (dataset, subset). None: neither annotations nor images are
            opened.
    """
    lacking = missing({name: params}, {name: used})
    if lacking:
        for entry in lacking:
            yield _missing_finding(entry, params, source)
        return

    checked_by_subset: dict[str, Checked] = {}
    problem = ""
    try:
        refuse_linked_folders(params["root"])
    except DataError as error:
        problem = str(error)
    if checks is not None and not problem:
        try:
            checked_by_subset = _check_subsets(params, used, max_pixels)
        except DataError as error:
            problem = str(error)
    for subset, checked in checked_by_subset.items():
        problem = problem or checked.problem
        if checks is not None:
            checks[name, subset] = checked

    if problem:
        yield Finding("datasets", name, "wrong", problem)
        return
    yield Finding("datasets", name, "ok", f"at {params['root']}")
    for subset, checked in checked_by_subset.items():
        if checked.not_images:
            text = f"{damage(checked, subset, checked.not_images)} `ingest` leaves them out"
            yield Finding("datasets", name, "note", text)


def _check_subsets(
    params: Mapping[str, Any], used: Collection[str], max_pixels: int
) -> dict[str, Checked]:
    """The check of each subset of a dataset.

    Raises:
        DataError: a subset that benchmarks use is not read.
    """
    reader = create(**params)
    subsets = reader.subsets()
    absent = sorted(set(used) - set(subsets))
    if absent:
        raise DataError(
            f"a benchmark uses the subset {absent[0]!r}, but only {', '.join(subsets)} are read"
        )
    return {subset: check_subset(reader, subset, max_pixels) for subset in subsets}


def damage(checked: Checked, subset: str, damaged: Mapping[Path, str]) -> str:
    """A sentence about damaged images of a subset: the first one, and their number.

    Args:
        checked: The check of the subset.
        subset: Its name.
        damaged: Reason by damaged file.
    """
    path, reason = next(iter(damaged.items()))
    count = f"{len(damaged)} of {checked.looked_at} images of {subset} that were looked at"
    return f"{path}: {reason} ({count})."


def as_table(dataset: str, checked: Checked) -> Images | None:
    """The images of a subset as annotated, of unknown size; None if annotations were not opened."""
    if checked.annotations is None:
        return None
    images = checked.annotations.images
    count = len(images)
    unknown_size = np.zeros(count, np.int32)
    return Images(
        image_id=images.image_id,
        file=images.file,
        width=unknown_size,
        height=unknown_size,
        dataset=[dataset] * count,
        digest=[""] * count,
    )


def _missing_finding(entry: Missing, params: Mapping[str, Any], source: str | None) -> Finding:
    """The finding about a file or folder that a dataset lacks."""
    text = entry.what
    if entry.subsets:
        text += f" ({', '.join(entry.subsets)})"
    details = {
        "belongs at": " or ".join(str(path) for path in entry.paths),
        "comes from": source or entry.source,
    }
    relative_paths = [
        Path(os.path.relpath(path, params["root"])).as_posix() for path in entry.paths
    ]
    size = bytes_of(str(params["format"]), relative_paths, entry.subsets)
    return Finding("datasets", entry.dataset, "missing", text, details, size)
