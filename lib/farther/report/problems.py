"""What weakens the results.

Warnings of `ingest` and `curate`, doubts about splits and thresholds, and unusable images.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from farther.report.listing import Listing, with_and
from farther.report.results import Run
from farther.tables import RegionsFolder
from farther.tables.folders import listed
from farther.tables.stored import SimilaritySummary, curate_warnings, ingest_warnings, similarities

#: Largest number of images that a page lists.
LISTED = 100

#: AUROC of CLIP similarity to ID training images from which on ID and OOD images differ as images.
SHIFTED = 0.95

#: The same AUROC of near against far images below which the two do not differ.
SEPARATED = 0.6

#: Kinds of warnings of `ingest` about images that it left out.
DROPPED = ("image missing", "image unreadable")


def warnings(artifacts: Path, params: Mapping[str, Any]) -> Listing:
    """Warnings of `ingest`, counted by kind, and of `curate`, one row each."""
    rows: list[dict[str, Any]] = []
    for name in params["datasets"]:
        counts = ingest_warnings(artifacts / "tables" / name)["counts"]
        for kind, count in counts.items():
            rows.append({"Source": f"dataset {name}", "Warning": kind, "Number": count})
    for name in params["benchmarks"]:
        texts = curate_warnings(artifacts / "splits" / name)
        rows += [{"Source": f"benchmark {name}", "Warning": text, "Number": 1} for text in texts]
    return Listing.from_rows("Warnings about the data.", rows)


def doubts(artifacts: Path, params: Mapping[str, Any], runs: Iterable[Run]) -> list[str]:
    """Limits of the results that the values do not show by themselves: one sentence each.

    They are splits whose images differ from ID images for CLIP alone (covariate shift), near and
    far splits that do not differ for it, splits without images, images that a run failed on, and
    thresholds or parameters that were chosen on test images.
    """
    sentences: list[str] = []
    for name in params["benchmarks"]:
        file = artifacts / "counts" / "similarity" / f"{name}.json"
        sentences += _similarity_doubts(name, similarities(file).similarity)
    for run in runs:
        sentences += _image_doubts(run)
        sentences += _chosen_on_test(run, params)
    return sentences


def _similarity_doubts(benchmark: str, summary: SimilaritySummary) -> Iterator[str]:
    """Doubts about the distances of a benchmark's splits."""
    shifted = []
    for split, auroc in summary.auroc_from_id.items():
        if auroc >= SHIFTED:
            shifted.append(f"{split} (AUROC {100 * auroc:.1f}%)")
    if shifted:
        yield (
            f"{benchmark}: covariate shift suspected. CLIP alone, without any detector, tells ID "
            f"images from those of {with_and(shifted)}: there, a method's score may only reflect "
            "the source of an image."
        )
    auroc_of_near = summary.auroc_of_near
    if auroc_of_near is not None and auroc_of_near < SEPARATED:
        yield (
            f"{benchmark}: near and far images are not separated by their similarity to ID images "
            f"(AUROC {100 * auroc_of_near:.1f}%; 50% is chance): near need not be harder than far."
        )


def _image_doubts(run: Run) -> Iterator[str]:
    """Splits without images, and images that a run failed on."""
    empty = []
    failed = []
    for split in run.tested_splits:
        if not run.images(split):
            empty.append(split)
        failed_images = run.count(split, "failed_images")
        if failed_images:
            failed.append(f"{failed_images:,} in {split}")
    if empty:
        yield f"{run.full_title}: no image in {with_and(empty)}."
    if failed:
        yield f"{run.full_title}: images that could not be used: {with_and(failed)}."


def _chosen_on_test(run: Run, params: Mapping[str, Any]) -> Iterator[str]:
    """Thresholds and parameters of methods that were chosen on test images."""
    detector_settings = params["detectors"].get(run.name, {}).get("threshold") or {}
    threshold_settings = {**(params.get("threshold") or {}), **detector_settings}
    split_of_choice = {
        "t*": threshold_settings.get("split"),
        "τ": (params.get("fit") or {}).get("calibration_split"),
    }
    if run.description is not None:
        calibration_split = run.description.settings.calibration_split
        split_of_choice["the thresholds of self-awareness"] = calibration_split

    tested = {run.id_split, *(split.name for split in run.splits)}
    for name, split in split_of_choice.items():
        if split is not None and split in tested:
            yield (
                f"{run.full_title}: {name} was chosen on {split}, "
                "test images that results are reported on."
            )
    oracles = [run.label(method) for method in run.methods if run.fitted(method).is_oracle]
    if oracles:
        yield (
            f"{run.full_title}: parameters of {with_and(oracles)} were chosen on "
            "test images that results are reported on."
        )


def unusable_images(artifacts: Path, params: Mapping[str, Any], runs: Iterable[str]) -> Listing:
    """Images that `ingest` left out, and images that runs could not use.

    One row per image, with the reason.
    """
    rows = [*_dropped(artifacts, params), *_failed(artifacts, runs)]
    caption = "Images that could not be used."
    if len(rows) > LISTED:
        caption += f" The first {LISTED} of {len(rows)}."
    return Listing.from_rows(caption, rows[:LISTED])


def _dropped(artifacts: Path, params: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One row per image that `ingest` left out."""
    for name in params["datasets"]:
        for warning in ingest_warnings(artifacts / "tables" / name)["warnings"]:
            if warning["kind"] in DROPPED:
                yield {
                    "Image": warning["file"],
                    "Where": f"dataset {name}, {warning['subset']}",
                    "Reason": warning["found"],
                    "Left out by": "ingest",
                }


def _failed(artifacts: Path, runs: Iterable[str]) -> list[dict[str, Any]]:
    """One row per image and reason that runs could not use it, with all of these runs."""
    runs_by_failure: dict[tuple[str, str, str], list[str]] = {}
    for run in runs:
        for file in listed(artifacts / "regions" / run, "*/regions.json"):
            split = file.parent.name
            for failure in RegionsFolder(file.parent).failures:
                key = (failure["image_id"], f"split {split}", failure["reason"])
                runs_by_failure.setdefault(key, []).append(run)
    rows = []
    for (image, place, reason), names in runs_by_failure.items():
        row = {"Image": image, "Where": place, "Reason": reason, "Left out by": ", ".join(names)}
        rows.append(row)
    return rows
