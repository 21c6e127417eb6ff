"""Stored results of other versions of packages than those installed, for `farther doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from farther.errors import FartherError, Finding
from farther.incremental.keyed import RECORDS, Record, package_versions, read_record
from farther.tables.folders import files_below

#: Most outputs that a finding names.
LISTED = 3


def versions(artifacts: Path) -> Iterator[Finding]:
    """One finding per package of which another version made a stored result.

    An upgrade reruns nothing by itself.

    Args:
        artifacts: The project's folder of artifacts.
    """
    folder = artifacts / RECORDS
    if not folder.is_dir():
        return
    outputs_by_change: dict[tuple[str, str, str], list[str]] = {}
    for file in sorted(files_below(folder)):
        # DVC writes a .gitignore where git would keep outputs, Finder a .DS_Store.
        if file.suffix != ".json":
            continue
        output = file.relative_to(folder).with_suffix("").as_posix().removesuffix("/.network")
        try:
            record = read_record(file)
        except FartherError as error:
            yield Finding("warnings", output, "wrong", str(error))
            continue
        for change in _changes(record, package_versions(output)):
            outputs_by_change.setdefault(change, []).append(output)
    for (package, before, now), outputs in outputs_by_change.items():
        listed = ", ".join(outputs[:LISTED])
        if len(outputs) > LISTED:
            listed += f" and {len(outputs) - LISTED} more"
        text = f"{before} made {listed}; {now}. `farther repro --force STAGE` computes them again"
        yield Finding("warnings", package, "note", text)


def _changes(record: Record, installed: dict[str, str]) -> list[tuple[str, str, str]]:
    """Package, version that made an item, and a text on the installed one, without repetitions."""
    changes: dict[tuple[str, str, str], None] = {}
    for environment in record.environments:
        for package, version in environment.items():
            now = installed.get(package)
            if now is None:
                changes[package, version, "it is not installed now"] = None
            elif now != version:
                changes[package, version, f"{now} is installed"] = None
    return list(changes)
