"""What went wrong with the data: warnings of `ingest` and `curate`, and images that could not be used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from farther.report.listing import Listing
from farther.tables import RegionsFolder
from farther.tables.files import listed, read_json

#: Most images that a page lists.
LISTED = 100


def warnings(artifacts: Path, params: Mapping[str, Any]) -> Listing:
    """Warnings of `ingest`, counted by kind, and of `curate`, one row each."""
    rows: list[dict[str, Any]] = []
    for name in params["datasets"]:
        for kind, count in _read(artifacts / "tables" / name / "warnings.json").get("counts", {}).items():
            rows.append({"Source": f"dataset {name}", "Warning": kind, "Number": count})
    for name in params["benchmarks"]:
        texts = _read(artifacts / "splits" / name / "warnings.json").get("warnings", [])
        rows += [{"Source": f"benchmark {name}", "Warning": text, "Number": 1} for text in texts]
    return Listing.of("Warnings about the data.", rows)


def unusable_images(artifacts: Path, params: Mapping[str, Any], runs: Iterable[str]) -> Listing:
    """Images that `ingest` dropped and images that runs could not use, with the reason: one row per image."""
    rows = [*_dropped(artifacts, params), *_failed(artifacts, runs)]
    more = f" The first {LISTED} of {len(rows)}." if len(rows) > LISTED else ""
    return Listing.of(f"Images that could not be used.{more}", rows[:LISTED])


def _dropped(artifacts: Path, params: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name in params["datasets"]:
        for warning in _read(artifacts / "tables" / name / "warnings.json").get("warnings", []):
            if warning["kind"] in ("image missing", "image unreadable"):
                where = f"dataset {name}, {warning['subset']}"
                yield {"Image": warning["file"], "Where": where, "Reason": warning["found"], "Left out by": "ingest"}


def _failed(artifacts: Path, runs: Iterable[str]) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for run in runs:
        for file in listed(artifacts / "regions" / run, "*/regions.json"):
            for failure in RegionsFolder(file.parent).failures:
                image, where, reason = failure["image_id"], f"split {file.parent.name}", failure["reason"]
                row = rows.setdefault((image, where, reason), {"Image": image, "Where": where, "Reason": reason})
                row["Left out by"] = ", ".join(filter(None, [row.get("Left out by"), run]))
    return list(rows.values())


def _read(file: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = read_json(file) if file.is_file() else {}
    return found
