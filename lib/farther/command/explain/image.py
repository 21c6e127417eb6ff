"""`farther explain image`: annotations, the rule or decision that placed an image, similarity, file."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

from farther.command.output import as_json, coloured, next_step, paragraph, table
from farther.command.project import PARAMS, Json, Params, Project, argument, option
from farther.errors import DataError, ParameterError, choose
from farther.escaping import of_spreadsheet
from farther.printable import printable_line
from farther.terminal import say

if TYPE_CHECKING:
    import polars as pl

#: Most names that are searched for one that is nearly right.
SEARCHED = 20_000


def image(
    name: Annotated[str, argument("IMAGE", "Image id, file name, or path (its end is enough).")],
    benchmark: Annotated[str | None, option("NAME", "Only this benchmark.", "benchmarks")] = None,
    run: Annotated[str | None, option("RUN", "With --method: show outcomes.", "detectors")] = None,
    method: Annotated[str | None, option("METHOD", "With --run: show outcomes.", "methods")] = None,
    json: Json = False,
    params: Params = PARAMS,
) -> None:
    """Explain why an image is in a split, or in none.

    Shows the file, every annotated object, and for each benchmark the split, the rule and the
    object that decided, people's decisions, and the similarity to ID images where `stratify` ran.
    With --run and --method, also which objects the run found, misclassified or missed, as the stage
    `evaluate` wrote it.

    \b
    Examples:
      farther explain image 000000000139
      farther explain image val2017/000000000139.jpg --benchmark voc
      farther explain image 000000000139 --run voc-vos --method knn
    """
    if (run is None) != (method is None):
        raise ParameterError("outcomes belong to a run and a method: give both --run and --method")
    project = Project(params)
    if run is not None:
        benchmark = project.entry("detectors", choose("run", run, project.section("detectors")))[
            "benchmark"
        ]
    found = explain_image(project, name, benchmark)
    if run is not None and method is not None:
        _add_outcomes(found, project, run, method)
    if json:
        say(as_json(found))
        return
    say("\n".join(_shown(found)))
    reviewed = [
        name
        for name, places in found["benchmarks"].items()
        if any("fate" in place for place in places)
    ]
    next_step(*(f"farther benchmark review {name}" for name in reviewed), "farther open")


def explain_image(project: Project, image: str, wanted: str | None = None) -> dict[str, Any]:
    """All that is known about an image: `sources` with its annotations, and its place in `benchmarks`.

    Args:
        project: Its tables and splits are read from `artifacts`.
        image: The image's id in its dataset, its file name, or the end of its path. Several images
            may match.
        wanted: The benchmark to look at; all of them where None.
    """
    benchmarks = project.section("benchmarks")
    names = list(benchmarks) if wanted is None else [choose("benchmark", wanted, benchmarks)]
    sources = list(_sources(project, image))
    dropped = list(_dropped(project, image))
    if not sources and not dropped:
        raise ParameterError(f"no ingested dataset has an image {image!r}.{_hint(project, image)}")
    found = {name: list(_fates(project, name, sources)) for name in names}
    for name, places in found.items():
        for place in places:
            place["failures"] = list(_failures(project, name, place))
    in_some = {k: v for k, v in found.items() if v}
    return {"image": image, "sources": sources, "dropped": dropped, "benchmarks": in_some}


def _dropped(project: Project, image: str) -> Iterator[dict[str, Any]]:
    """The images of that file name, or path, that `ingest` could not read and left out."""
    from farther.tables.stored import ingest_warnings

    for name in project.section("datasets"):
        for warning in ingest_warnings(project.artifacts / "tables" / name)["warnings"]:
            path = PurePath(warning["file"])
            named = (
                path.parts[-len(PurePath(image).parts) :] == PurePath(image).parts
                or path.stem == image
            )
            if warning["kind"] in ("image missing", "image unreadable") and named:
                yield {"dataset": name, **warning}


def _failures(project: Project, benchmark: str, place: dict[str, Any]) -> Iterator[dict[str, str]]:
    """The runs that could not use an image in one of its splits, with the reason."""
    from farther.tables import RegionsFolder

    for run, entry in project.section("detectors").items():
        for split in place["splits"] if entry.get("benchmark") == benchmark else ():
            folder = project.artifacts / "regions" / run / split
            for failure in (
                RegionsFolder(folder).failures if (folder / "regions.json").is_file() else ()
            ):
                if failure["image_id"] == place["image_id"]:
                    yield {"run": run, "split": split, "reason": failure["reason"]}


def _sources(project: Project, image: str) -> Iterator[dict[str, Any]]:
    """The images of that id, file name or path, each with the subset that has it."""
    import polars as pl

    from farther.datasets import image_roots
    from farther.tables.folders import listed

    tables = project.artifacts / "tables"
    roots = image_roots(project.section("datasets"), tables, project.folder)
    name = PurePath(image).name
    for file in listed(tables, "*/*/images.parquet"):
        dataset = file.parts[-3]
        for row in _rows(file, (pl.col("image_id") == image) | pl.col("file").str.ends_with(name)):
            path = roots[dataset] / row["file"] if dataset in roots else Path(row["file"])
            if image != row["image_id"] and not _is_path(image, path):
                continue
            yield {
                **{name: row[name] for name in ("image_id", "width", "height", "digest")},
                "dataset": dataset,
                "subset": file.parts[-2],
                "file": str(path),
                "there": path.is_file(),
                "objects": _of_image(file.with_name("objects.parquet"), row["image_id"]),
            }


def _is_path(named: str, path: Path) -> bool:
    """Whether a user may mean a file by this name: its path, or the last parts of it."""
    parts = PurePath(named).parts
    return path.parts[-len(parts) :] == parts or Path(named).absolute() == path.absolute()


def _fates(project: Project, name: str, sources: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Split and reason for each of the image's sources that a benchmark draws from."""
    checked = project.benchmark(name)
    folder = project.artifacts / "splits" / name
    for source in sources:
        image_id = source["image_id"]
        place = (source["dataset"], source["subset"])
        head = {"image_id": image_id, "dataset": place[0], "subset": place[1]}
        drawing = [
            split
            for split, params in checked.splits.items()
            if place == (params.dataset, params.subset)
        ]
        for split, source in checked.id_sources.items():
            if place == source:
                by_rules = not isinstance(checked.subsets[split], str)
                yield {
                    **head,
                    **_of_id(folder / split, image_id, checked.most.get(split), by_rules=by_rules),
                }
        if drawing:
            yield {
                **head,
                **_of_ood(folder, drawing, image_id, place),
                "decisions": _decisions(checked.decisions, project, place, image_id),
                "similarity": _similarity(
                    project.artifacts / "similarity" / name, drawing, image_id, place[0]
                ),
            }


def _of_id(folder: Path, image_id: str, most: int | None, *, by_rules: bool) -> dict[str, Any]:
    """Whether an image is in the ID split of a folder, and why."""
    shows = "an ID class and nothing that overlaps with one"
    if _of_image(folder / "images.parquet", image_id):
        why = (
            f"by the rules it shows {shows}"
            if by_rules
            else "its subset is this ID split; rules are for OOD images"
        )
        return {"splits": [folder.name], "why": why}
    taken = f"images that show {shows}" if by_rules else "all; rerun curate"
    why = f"{most:,} images of its subset, and not this one" if most else taken
    return {"splits": [], "why": f"not in ID split {folder.name}: the split takes {why}"}


def _of_ood(
    folder: Path, drawing: list[str], image_id: str, place: tuple[str, str]
) -> dict[str, Any]:
    from farther.curation.fates import Fates, reason_of

    fates = Fates.read(folder / "fates.parquet")
    (rows,) = (
        (fates.image_id == image_id) & (fates.dataset == place[0]) & (fates.subset == place[1])
    ).nonzero()
    inside = [split for split in drawing if _of_image(folder / split / "images.parquet", image_id)]
    if not len(rows):
        return {
            "splits": inside,
            "why": "the benchmark was curated before the image was ingested: rerun curate",
        }
    row = int(rows[0])
    decider = int(fates.object_id[row])
    return {
        "splits": inside,
        "fate": str(fates.fate[row]),
        "why": reason_of(fates, row),
        "object_id": decider if decider >= 0 else None,
        "by_rules": str(fates.by_rules[row]),
    }


def _decisions(
    file: Path | None, project: Project, place: tuple[str, str], image_id: str
) -> list[dict[str, str]]:
    """The rows of the decisions file about the image."""
    from farther.tables.files import csv_rows

    path = None if file is None else project.folder / file
    if path is None or not path.is_file():
        return []
    header, *lines = [*csv_rows(path)] or [[]]
    rows = [dict(zip(header, map(of_spreadsheet, line), strict=False)) for line in lines]
    return [
        row
        for row in rows
        if (row.get("dataset"), row.get("subset"), row.get("image_id")) == (*place, image_id)
    ]


def _similarity(
    folder: Path, drawing: list[str], image_id: str, dataset: str
) -> dict[str, Any] | None:
    """The image's row in the similarity table; ids are unique within one dataset and split only."""
    import polars as pl

    own = (
        (pl.col("image_id") == image_id)
        & (pl.col("dataset") == dataset)
        & pl.col("split").is_in(drawing)
    )
    rows = _rows(folder / "images.parquet", own)
    return rows[0] if rows else None


def _add_outcomes(found: dict[str, Any], project: Project, run: str, method: str) -> None:
    """Adds to each place of an OOD image the outcomes of its objects and detections."""
    from farther.evaluation.files import RunFiles

    there = False
    for name, places in found["benchmarks"].items():
        files = RunFiles(run, name, project.artifacts)
        for place, split in ((one, split) for one in places for split in one["splits"]):
            if (objects := files.object_outcomes(method, split)).is_file():
                there = True
                place["outcomes"] = {
                    "objects": _of_image(objects, place["image_id"]),
                    "detections": _of_image(
                        files.region_outcomes(method, split), place["image_id"]
                    ),
                }
    if not there:
        why = "it is in no evaluated split, or the method does not apply"
        problem = f"no outcomes of {found['image']!r} for {run} with {method}: {why}"
        raise DataError(problem, file=project.artifacts / "outcomes" / run)


def _of_image(file: Path, image_id: str) -> list[dict[str, Any]]:
    import polars as pl

    return _rows(file, pl.col("image_id") == image_id)


def _rows(file: Path, wanted: pl.Expr) -> list[dict[str, Any]]:
    """Rows of a table, read lazily; none where there is no such table."""

    from farther.tables.parquet import scan_parquet

    return scan_parquet([file]).filter(wanted).collect().to_dicts() if file.is_file() else []


def _hint(project: Project, image: str) -> str:
    """Where to begin, or names that are nearly the same: file names for a file name, else ids."""
    import polars as pl

    from farther.tables.folders import listed
    from farther.tables.parquet import scan_parquet

    files = listed(project.artifacts / "tables", "*/*/images.parquet")
    if not files:
        return " No images are ingested yet: run `dvc repro` first"
    column = "file" if PurePath(image).suffix else "image_id"
    names = scan_parquet(files).select(pl.col(column).unique()).collect()[column].sort().to_list()
    if column == "file":
        image = PurePath(image).name
        names = list(dict.fromkeys(PurePath(name).name for name in names))
    near = [name for name in names if image in name][:3]
    near = near or (
        difflib.get_close_matches(image, names, n=3, cutoff=0.8) if len(names) <= SEARCHED else []
    )
    return f" Did you mean {', '.join(map(repr, near))}?" if near else ""


def _shown(found: dict[str, Any]) -> Iterator[str]:
    for source in found["sources"]:
        size = f"{source['width']}×{source['height']}"
        there = "" if source["there"] else " (file not found)"
        yield coloured(f"{source['dataset']} {source['subset']} {source['image_id']}", "head")
        yield f"  {printable_line(source['file'])}, {size}{there}"
        yield from _objects(source["objects"])
    for one in found["dropped"]:
        yield coloured(f"{one['dataset']} {one['subset']} {one['file']}", "head")
        yield paragraph(f"{one['kind']}: {one['found']}. `ingest` dropped it with its objects", 2)
    for name, places in found["benchmarks"].items():
        for place in places:
            where = ", ".join(place["splits"]) or "no split"
            yield ""
            image = f"{place['dataset']} {place['subset']} {place['image_id']}"
            yield coloured(f"benchmark {name}, {image}: {where}", "head")
            fate = f"{place['fate']}: " if "fate" in place else ""
            yield paragraph(f"{fate}{place['why']}", 2)
            yield from _more(place)
    if found["sources"] and not found["benchmarks"]:
        yield ""
        yield "No benchmark draws from this subset."


def _objects(objects: list[dict[str, Any]]) -> Iterator[str]:
    from farther.tables.annotations import UNLABELLED

    if not objects:
        yield "  no labelled objects"
        return
    rows = []
    for one in objects:
        marks = " ".join(mark for mark in ("crowd", "difficult") if one[f"is_{mark}"])
        marks = (
            "the image has no boxes"
            if marks == "crowd" and one["category"] == UNLABELLED
            else marks
        )
        rows.append(
            (
                f"  {one['object_id']}",
                one["category"],
                ", ".join(f"{e:.0f}" for e in one["box"]),
                marks,
            )
        )
    yield table(("  object", "category", "box", ""), rows)


def _more(place: dict[str, Any]) -> Iterator[str]:
    if place.get("by_rules"):
        yield paragraph(f"by the rules alone: {place['by_rules']}", 2)
    for one in place["failures"]:
        yield paragraph(f"{one['run']} could not use it: {one['reason']}", 2)
    for line in place.get("decisions", ()):
        what = " → ".join(filter(None, (line["decision"], line.get("id_class"))))
        note = f" ({line['note']})" if line.get("note") else ""
        yield paragraph(f"{line['reviewer']} decided on {line['time']}: {what}{note}", 2)
    if place.get("similarity"):
        known = place["similarity"]
        shown = (
            f"{key} {value:.3f}" if isinstance(value, float) else f"{key} {value}"
            for key, value in known.items()
        )
        yield paragraph(
            "similarity: " + ", ".join(one for one in shown if not one.startswith("image_id")), 2
        )
    outcomes = place.get("outcomes") or {"objects": (), "detections": ()}
    for one in outcomes["objects"]:
        by = f", detection {one['region_id']}" if one["region_id"] >= 0 else ""
        yield f"  object {one['object_id']}, {one['category']}: {one['outcome'].replace('_', ' ')}{by}"
    for one in outcomes["detections"]:
        on = f", object {one['object_id']} at IoU {one['iou']:.2f}" if one["object_id"] >= 0 else ""
        yield f"  detection {one['region_id']}: {one['outcome'].replace('_', ' ')}{on}"
