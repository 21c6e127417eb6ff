"""What weakens the results: warnings of `ingest` and `curate`, doubts about splits and thresholds, unusable images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from farther.report.listing import Listing
from farther.report.results import Run
from farther.tables import RegionsFolder
from farther.tables.folders import listed
from farther.tables.stored import SimilaritySummary, curate_warnings, ingest_warnings, similarities

#: Most images that a page lists.
LISTED = 100

#: AUROC of CLIP similarity to ID training images: from the first on, ID and OOD images differ as
#: images; below the second, near and far images do not.
SHIFTED, SEPARATED = 0.95, 0.6


def warnings(artifacts: Path, params: Mapping[str, Any]) -> Listing:
    """Warnings of `ingest`, counted by kind, and of `curate`, one row each."""
    rows: list[dict[str, Any]] = []
    for name in params["datasets"]:
        for kind, count in ingest_warnings(artifacts / "tables" / name)["counts"].items():
            rows.append({"Source": f"dataset {name}", "Warning": kind, "Number": count})
    for name in params["benchmarks"]:
        texts = curate_warnings(artifacts / "splits" / name)
        rows += [{"Source": f"benchmark {name}", "Warning": text, "Number": 1} for text in texts]
    return Listing.of("Warnings about the data.", rows)


def doubts(artifacts: Path, params: Mapping[str, Any], runs: Iterable[Run]) -> list[str]:
    """What the values do not show by themselves: one sentence each.

    A split whose images are told from ID images by CLIP alone (covariate shift), near and far
    splits that are not, splits without images, images that a run failed on, and thresholds or
    parameters that were chosen on test images.
    """
    found: list[str] = []
    for name in params["benchmarks"]:
        found += _similarity_doubts(
            name, similarities(artifacts / "counts" / "similarity" / f"{name}.json").similarity
        )
    for run in runs:
        if empty := [split for split, counts in run.counts.items() if not counts.images]:
            found.append(f"{run.full_title}: no image in {_and(empty)}.")
        if failed := {
            split: counts.failed_images
            for split, counts in run.counts.items()
            if counts.failed_images
        }:
            parts = [f"{count:,} in {split}" for split, count in failed.items()]
            found.append(f"{run.full_title}: images that could not be used: {_and(parts)}.")
        found += _chosen_on_test(run, params)
    return found


def _similarity_doubts(benchmark: str, summary: SimilaritySummary) -> Iterator[str]:
    shifted = {split: auroc for split, auroc in summary.auroc_from_id.items() if auroc >= SHIFTED}
    if shifted:
        parts = [f"{split} (AUROC {100 * auroc:.1f}%)" for split, auroc in shifted.items()]
        yield (
            f"{benchmark}: covariate shift suspected. CLIP alone, without any detector, tells ID images from those of "
            f"{_and(parts)}: there, a method's score may only reflect the source of an image."
        )
    near = summary.auroc_of_near
    if near is not None and near < SEPARATED:
        yield (
            f"{benchmark}: near and far images are not separated by their similarity to ID images (AUROC "
            f"{100 * near:.1f}%; 50% is chance): near need not be harder than far."
        )


def _chosen_on_test(run: Run, params: Mapping[str, Any]) -> Iterator[str]:
    tested = {run.id_split, *(split.name for split in run.splits)}
    of_run = params["detectors"].get(run.name, {}).get("threshold") or {}
    chosen = {
        "t*": {**(params.get("threshold") or {}), **of_run}.get("split"),
        "τ": (params.get("fit") or {}).get("calibration_split"),
        "the thresholds of self-awareness": run.evaluation
        and run.evaluation.settings.calibration_split,
    }
    for name, split in chosen.items():
        if split is not None and split in tested:
            yield f"{run.full_title}: {name} was chosen on {split}, test images that results are reported on."
    oracles = [run.label(method) for method in run.methods if run.fitted(method).is_oracle]
    if oracles:
        where = "test images that results are reported on"
        yield f"{run.full_title}: parameters of {_and(oracles)} were chosen on {where}."


def _and(parts: Sequence[str]) -> str:
    """Parts joined by commas and a last "and"."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def unusable_images(artifacts: Path, params: Mapping[str, Any], runs: Iterable[str]) -> Listing:
    """Images that `ingest` dropped and images that runs could not use, with the reason: one row per image."""
    rows = [*_dropped(artifacts, params), *_failed(artifacts, runs)]
    more = f" The first {LISTED} of {len(rows)}." if len(rows) > LISTED else ""
    return Listing.of(f"Images that could not be used.{more}", rows[:LISTED])


def _dropped(artifacts: Path, params: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name in params["datasets"]:
        for warning in ingest_warnings(artifacts / "tables" / name)["warnings"]:
            if warning["kind"] in ("image missing", "image unreadable"):
                where = f"dataset {name}, {warning['subset']}"
                yield {
                    "Image": warning["file"],
                    "Where": where,
                    "Reason": warning["found"],
                    "Left out by": "ingest",
                }


def _failed(artifacts: Path, runs: Iterable[str]) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for run in runs:
        for file in listed(artifacts / "regions" / run, "*/regions.json"):
            for failure in RegionsFolder(file.parent).failures:
                image, where, reason = (
                    failure["image_id"],
                    f"split {file.parent.name}",
                    failure["reason"],
                )
                row = rows.setdefault(
                    (image, where, reason), {"Image": image, "Where": where, "Reason": reason}
                )
                row["Left out by"] = ", ".join(filter(None, [row.get("Left out by"), run]))
    return list(rows.values())
