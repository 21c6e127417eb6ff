"""`farther explain image`: an image's file, annotations, splits with the reason, and similarity."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import polars as pl

from farther.command.output import coloured, paragraph, table
from farther.command.project import Project
from farther.curation.fates import Fates, reason_of
from farther.datasets import image_roots
from farther.errors import DataError, ParameterError, choose
from farther.evaluation.files import RunFiles
from farther.tables import RegionsFolder
from farther.tables.annotations import UNLABELLED
from farther.tables.files import csv_rows
from farther.tables.folders import listed
from farther.tables.parquet import collected, scan_parquet
from farther.tables.stored import ingest_warnings
from farther.text.escaping import of_spreadsheet
from farther.text.printable import printable_line

#: Maximum number of names that are searched for a similar one.
SEARCHED = 20_000
#: Maximum number of similar names that a message suggests.
SUGGESTED = 3


class Subset(NamedTuple):
    """A subset of a dataset."""

    dataset: str
    subset: str


def explain_image(project: Project, image: str, benchmark: str | None = None) -> dict[str, Any]:
    """An image's annotations, and its place in the benchmarks.

    Args:
        project: Its tables and splits are read from `artifacts`.
        image: The image's id in its dataset, its file name, or the end of its path. Several images
            may match.
        benchmark: The only benchmark to read; all where None.

    Returns:
        `sources`, one entry per image with its annotations; `dropped`, images that `ingest` left
        out; `benchmarks`, {benchmark: splits and reasons, one entry per source}.

    Raises:
        ParameterError: no dataset has such an image, or the benchmark is unknown.
    """
    known = project.section("benchmarks")
    names = list(known)
    if benchmark is not None:
        names = [choose("benchmark", benchmark, known)]
    sources = list(_sources(project, image))
    dropped = list(_dropped(project, image))
    if not sources and not dropped:
        raise ParameterError(f"no ingested dataset has an image {image!r}.{_hint(project, image)}")
    places_by_benchmark = {}
    for name in names:
        places = list(_places(project, name, sources))
        for place in places:
            place["failures"] = list(_failures(project, name, place))
        if places:
            places_by_benchmark[name] = places
    return {
        "image": image,
        "sources": sources,
        "dropped": dropped,
        "benchmarks": places_by_benchmark,
    }


def _dropped(project: Project, image: str) -> Iterator[dict[str, Any]]:
    """The images of that id, file name or path that `ingest` could not read and left out."""
    for dataset in project.section("datasets"):
        for warning in ingest_warnings(project.artifacts / "tables" / dataset)["warnings"]:
            if warning["kind"] not in ("image missing", "image unreadable"):
                continue
            path = PurePath(warning["file"])
            if _ends_with(path, image) or path.stem == image:
                yield {"dataset": dataset, **warning}


def _failures(project: Project, benchmark: str, place: dict[str, Any]) -> Iterator[dict[str, str]]:
    """The runs that could not use an image in one of its splits, with the reason."""
    for run, entry in project.section("detectors").items():
        if entry.get("benchmark") != benchmark:
            continue
        for split in place["splits"]:
            folder = project.artifacts / "regions" / run / split
            if not (folder / "regions.json").is_file():
                continue
            for failure in RegionsFolder(folder).failures:
                if failure["image_id"] == place["image_id"]:
                    yield {"run": run, "split": split, "reason": failure["reason"]}


def _sources(project: Project, image: str) -> Iterator[dict[str, Any]]:
    """The images of that id, file name or path, one entry per subset that has them."""
    tables = project.artifacts / "tables"
    roots = image_roots(project.section("datasets"), tables, project.folder)
    is_candidate = (pl.col("image_id") == image) | pl.col("file").str.ends_with(
        PurePath(image).name
    )
    for table_file in listed(tables, "*/*/images.parquet"):
        dataset, subset = table_file.parts[-3:-1]
        for row in _rows(table_file, is_candidate):
            path = Path(row["file"])
            if dataset in roots:
                path = roots[dataset] / row["file"]
            if image != row["image_id"] and not _names_file(image, path):
                continue
            objects = _rows_of_image(table_file.with_name("objects.parquet"), row["image_id"])
            yield {
                "image_id": row["image_id"],
                "width": row["width"],
                "height": row["height"],
                "digest": row["digest"],
                "dataset": dataset,
                "subset": subset,
                "file": str(path),
                "there": path.is_file(),
                "objects": objects,
            }


def _names_file(name: str, path: Path) -> bool:
    """Whether a user may mean a file by this name: its path, or the last parts of it."""
    return _ends_with(path, name) or Path(name).absolute() == path.absolute()


def _ends_with(path: PurePath, name: str) -> bool:
    """Whether the last parts of a path are those of a name."""
    parts = PurePath(name).parts
    return path.parts[-len(parts) :] == parts


def _places(
    project: Project, benchmark: str, sources: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Splits and reason for each of the image's sources that a benchmark draws from."""
    checked = project.benchmark(benchmark)
    folder = project.artifacts / "splits" / benchmark
    for source in sources:
        image_id = source["image_id"]
        subset = Subset(source["dataset"], source["subset"])
        head = {"image_id": image_id, "dataset": subset.dataset, "subset": subset.subset}
        for split, id_source in checked.id_sources.items():
            if subset == id_source:
                by_rules = not isinstance(checked.subsets[split], str)
                limit = checked.most.get(split)
                yield {**head, **_in_id_split(folder / split, image_id, limit, by_rules=by_rules)}
        ood_splits = []
        for split, params in checked.splits.items():
            if subset == (params.dataset, params.subset):
                ood_splits.append(split)
        if ood_splits:
            similarity = project.artifacts / "similarity" / benchmark
            yield {
                **head,
                **_in_ood_splits(folder, ood_splits, image_id, subset),
                "decisions": _decisions(checked.decisions, project, subset, image_id),
                "similarity": _similarity(similarity, ood_splits, image_id, subset.dataset),
            }


def _in_id_split(
    folder: Path, image_id: str, limit: int | None, *, by_rules: bool
) -> dict[str, Any]:
    """Whether an image is in the ID split of a folder, and why.

    Args:
        folder: The split's folder.
        image_id: The image.
        limit: Maximum number of images of the split; None for all.
        by_rules: Whether rules choose the images of the split.
    """
    criterion = "an ID class and nothing that overlaps with one"
    if _rows_of_image(folder / "images.parquet", image_id):
        reason = "its subset is this ID split; rules are for OOD images"
        if by_rules:
            reason = f"by the rules it shows {criterion}"
        return {"splits": [folder.name], "why": reason}
    if limit:
        images = f"{limit:,} images of its subset, and not this one"
    elif by_rules:
        images = f"images that show {criterion}"
    else:
        images = "all; rerun curate"
    return {"splits": [], "why": f"not in ID split {folder.name}: the split takes {images}"}


def _in_ood_splits(
    folder: Path, candidates: list[str], image_id: str, subset: Subset
) -> dict[str, Any]:
    """The OOD splits that an image is in, and why.

    Args:
        folder: The benchmark's folder of splits.
        candidates: The OOD splits of the image's subset.
        image_id: The image.
        subset: Its subset.
    """
    splits = []
    for split in candidates:
        if _rows_of_image(folder / split / "images.parquet", image_id):
            splits.append(split)
    fates = Fates.read(folder / "fates.parquet")
    is_image = fates.image_id == image_id
    is_subset = (fates.dataset == subset.dataset) & (fates.subset == subset.subset)
    rows = (is_image & is_subset).nonzero()[0]
    if not len(rows):
        reason = "the benchmark was curated before the image was ingested: rerun curate"
        return {"splits": splits, "why": reason}
    row = int(rows[0])
    object_id = int(fates.object_id[row])
    return {
        "splits": splits,
        "fate": str(fates.fate[row]),
        "why": reason_of(fates, row),
        "object_id": object_id if object_id >= 0 else None,
        "by_rules": str(fates.by_rules[row]),
    }


def _decisions(
    file: Path | None, project: Project, subset: Subset, image_id: str
) -> list[dict[str, str]]:
    """The rows of the decisions file about the image."""
    if file is None or not (project.folder / file).is_file():
        return []
    lines = list(csv_rows(project.folder / file))
    if not lines:
        return []
    decisions = []
    for line in lines[1:]:
        cells = [of_spreadsheet(cell) for cell in line]
        row = dict(zip(lines[0], cells, strict=False))
        if (row.get("dataset"), row.get("subset"), row.get("image_id")) == (*subset, image_id):
            decisions.append(row)
    return decisions


def _similarity(
    folder: Path, splits: list[str], image_id: str, dataset: str
) -> dict[str, Any] | None:
    """The image's row in the similarity table; ids are unique within one dataset and split only."""
    is_image = (pl.col("image_id") == image_id) & (pl.col("dataset") == dataset)
    rows = _rows(folder / "images.parquet", is_image & pl.col("split").is_in(splits))
    if not rows:
        return None
    return rows[0]


def add_outcomes(explanation: dict[str, Any], project: Project, run: str, method: str) -> None:
    """Adds to each place of an OOD image the outcomes of its objects and detections.

    Raises:
        DataError: there are none for the image.
    """
    has_outcomes = False
    for benchmark, places in explanation["benchmarks"].items():
        files = RunFiles(run, benchmark, project.artifacts)
        for place in places:
            for split in place["splits"]:
                objects = files.object_outcomes(method, split)
                if not objects.is_file():
                    continue
                has_outcomes = True
                detections = files.region_outcomes(method, split)
                place["outcomes"] = {
                    "objects": _rows_of_image(objects, place["image_id"]),
                    "detections": _rows_of_image(detections, place["image_id"]),
                }
    if not has_outcomes:
        reason = "it is in no evaluated split, or the method does not apply"
        problem = f"no outcomes of {explanation['image']!r} for {run} with {method}: {reason}"
        raise DataError(problem, file=project.artifacts / "outcomes" / run)


def _rows_of_image(file: Path, image_id: str) -> list[dict[str, Any]]:
    """The rows of a table about an image; none where there is no such table."""
    return _rows(file, pl.col("image_id") == image_id)


def _rows(file: Path, condition: pl.Expr) -> list[dict[str, Any]]:
    """The rows of a table that meet a condition, read lazily; none where there is no such table."""
    if not file.is_file():
        return []
    return collected(scan_parquet([file]).filter(condition)).to_dicts()


def _hint(project: Project, image: str) -> str:
    """Similar names: file names for a file name, else ids; or where to begin without tables."""
    files = listed(project.artifacts / "tables", "*/*/images.parquet")
    if not files:
        return " No images are ingested yet: run `farther repro` first"
    column = "file" if PurePath(image).suffix else "image_id"
    frame = collected(scan_parquet(files).select(pl.col(column).unique()))
    names = frame[column].sort().to_list()
    if column == "file":
        image = PurePath(image).name
        names = list(dict.fromkeys(PurePath(name).name for name in names))
    similar = [name for name in names if image in name][:SUGGESTED]
    if not similar and len(names) <= SEARCHED:
        similar = difflib.get_close_matches(image, names, n=SUGGESTED, cutoff=0.8)
    if not similar:
        return ""
    return f" Did you mean {', '.join(repr(name) for name in similar)}?"


def to_text(explanation: dict[str, Any]) -> Iterator[str]:
    """The lines that are printed."""
    for source in explanation["sources"]:
        yield coloured(f"{source['dataset']} {source['subset']} {source['image_id']}", "head")
        size = f"{source['width']}×{source['height']}"
        absent = "" if source["there"] else " (file not found)"
        yield f"  {printable_line(source['file'])}, {size}{absent}"
        yield from _object_lines(source["objects"])
    for image in explanation["dropped"]:
        yield coloured(f"{image['dataset']} {image['subset']} {image['file']}", "head")
        text = f"{image['kind']}: {image['found']}. `ingest` dropped it with its objects"
        yield paragraph(text, 2)
    for benchmark, places in explanation["benchmarks"].items():
        for place in places:
            yield ""
            yield from _place_lines(benchmark, place)
    if explanation["sources"] and not explanation["benchmarks"]:
        yield ""
        yield "No benchmark draws from this subset."


def _object_lines(objects: list[dict[str, Any]]) -> Iterator[str]:
    """A table of annotated objects."""
    if not objects:
        yield "  no labelled objects"
        return
    rows = []
    for annotated in objects:
        box = ", ".join(f"{edge:.0f}" for edge in annotated["box"])
        rows.append((f"  {annotated['object_id']}", annotated["category"], box, _remark(annotated)))
    yield table(("  object", "category", "box", ""), rows)


def _remark(annotated: dict[str, Any]) -> str:
    """Flags of an object; an image without boxes has one object, a crowd without a category."""
    is_crowd = annotated["is_crowd"]
    is_difficult = annotated["is_difficult"]
    if is_crowd and not is_difficult and annotated["category"] == UNLABELLED:
        return "the image has no boxes"
    flags = []
    if is_crowd:
        flags.append("crowd")
    if is_difficult:
        flags.append("difficult")
    return " ".join(flags)


def _place_lines(benchmark: str, place: dict[str, Any]) -> Iterator[str]:
    """Splits, reason and everything else that is known of an image in a benchmark."""
    splits = ", ".join(place["splits"]) or "no split"
    image = f"{place['dataset']} {place['subset']} {place['image_id']}"
    yield coloured(f"benchmark {benchmark}, {image}: {splits}", "head")
    fate = f"{place['fate']}: " if "fate" in place else ""
    yield paragraph(f"{fate}{place['why']}", 2)
    if place.get("by_rules"):
        yield paragraph(f"by the rules alone: {place['by_rules']}", 2)
    for failure in place["failures"]:
        yield paragraph(f"{failure['run']} could not use it: {failure['reason']}", 2)
    for decision in place.get("decisions", ()):
        yield paragraph(_decision_text(decision), 2)
    if place.get("similarity"):
        yield paragraph(f"similarity: {_similarity_text(place['similarity'])}", 2)
    if "outcomes" in place:
        yield from _outcome_lines(place["outcomes"])


def _decision_text(decision: dict[str, str]) -> str:
    outcome = decision["decision"]
    if decision.get("id_class"):
        outcome = f"{outcome} → {decision['id_class']}" if outcome else decision["id_class"]
    note = f" ({decision['note']})" if decision.get("note") else ""
    return f"{decision['reviewer']} decided on {decision['time']}: {outcome}{note}"


def _similarity_text(row: dict[str, Any]) -> str:
    """Names and values of a row of the similarity table, without the image's id."""
    texts = []
    for name, value in row.items():
        if name.startswith("image_id"):
            continue
        if isinstance(value, float):
            texts.append(f"{name} {value:.3f}")
        else:
            texts.append(f"{name} {value}")
    return ", ".join(texts)


def _outcome_lines(outcomes: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """One line per object and per detection."""
    for annotated in outcomes["objects"]:
        outcome = annotated["outcome"].replace("_", " ")
        if annotated["region_id"] >= 0:
            outcome += f", detection {annotated['region_id']}"
        yield f"  object {annotated['object_id']}, {annotated['category']}: {outcome}"
    for detection in outcomes["detections"]:
        outcome = detection["outcome"].replace("_", " ")
        if detection["object_id"] >= 0:
            outcome += f", object {detection['object_id']} at IoU {detection['iou']:.2f}"
        yield f"  detection {detection['region_id']}: {outcome}"
