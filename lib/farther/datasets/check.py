"""What `ingest` would refuse in a dataset, before it reads it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import numpy as np

from farther.datasets.base import create
from farther.datasets.presence import Checked, Missing, check_subset, missing
from farther.datasets.sizes import bytes_of
from farther.errors import DataError, Finding
from farther.tables import Images


def check_dataset(
    name: str,
    params: Mapping[str, Any],
    used: Collection[str],
    source: str | None = None,
    found: MutableMapping[tuple[str, str], Checked] | None = None,
) -> Iterator[Finding]:
    """One finding per file or folder that a dataset lacks, or one for a complete dataset, and one for damaged images.

    Args:
        name: Its name.
        params: Its entry of the section `datasets`.
        used: Its subsets that benchmarks use.
        source: Where its files come from, if not from where its format says.
        found: Takes what is found in each (dataset, subset). None: neither annotations nor images
            are opened.
    """
    if lacking := missing({name: params}, {name: used}):
        yield from (_absent(one, params, source) for one in lacking)
        return
    read: dict[str, Checked] = {}
    problem = ""
    if found is not None:
        try:
            reader = create(**params)
            subsets = reader.subsets()
            if absent := sorted(set(used) - set(subsets)):
                raise DataError(
                    f"a benchmark uses the subset {absent[0]!r}, but only {', '.join(subsets)} are read"
                )
            read = {subset: check_subset(reader, subset) for subset in subsets}
            problem = next((one.problem for one in read.values() if one.problem), "")
        except DataError as error:
            problem = str(error)
        found.update({(name, subset): one for subset, one in read.items()})
    yield Finding("datasets", name, "wrong" if problem else "ok", problem or f"at {params['root']}")
    for subset, one in read.items():
        if one.not_images and not problem:
            yield Finding(
                "datasets",
                name,
                "note",
                f"{damage(one, subset, one.not_images)} `ingest` leaves them out",
            )


def damage(checked: Checked, subset: str, damaged: Mapping[Path, str]) -> str:
    """A sentence about damaged images of a subset: the first one, and how many there are."""
    path, reason = next(iter(damaged.items()))
    return f"{path}: {reason} ({len(damaged)} of {checked.looked_at} images of {subset} that were looked at)."


def as_table(dataset: str, checked: Checked) -> Images | None:
    """The images of a subset as annotated, of unknown size; None where the annotations were not opened."""
    if checked.annotations is None:
        return None
    images = checked.annotations.images
    size = np.zeros(len(images), np.int32)
    texts = {"dataset": [dataset] * len(size), "digest": [""] * len(size)}
    return Images(image_id=images.image_id, file=images.file, width=size, height=size, **texts)


def _absent(missing: Missing, params: Mapping[str, Any], source: str | None) -> Finding:
    inner = [Path(os.path.relpath(path, params["root"])).as_posix() for path in missing.paths]
    text = missing.what + (f" ({', '.join(missing.subsets)})" if missing.subsets else "")
    more = {
        "belongs at": " or ".join(map(str, missing.paths)),
        "comes from": source or missing.source,
    }
    size = bytes_of(str(params["format"]), inner, missing.subsets)
    return Finding("datasets", missing.dataset, "missing", text, more, size)
