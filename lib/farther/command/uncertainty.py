"""`farther explain uncertainty`: how well image uncertainty separates ID from OOD."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farther.command.output import as_json, next_step, paragraph, table
from farther.command.project import PARAMS, Json, Params, Project, argument, option, splits
from farther.errors import DataError, ParameterError, choose
from farther.text.terminal import say

if TYPE_CHECKING:
    import numpy as np

    from farther.evaluation.files import RunFiles, RunSplit


def uncertainty(
    run: Annotated[
        str | None,
        argument("RUN", "A run, evaluated or not; by default the only one.", "detectors"),
    ] = None,
    split: Annotated[
        list[str] | None, option("SPLIT", "Only this OOD split; repeatable.", splits)
    ] = None,
    aggregate: Annotated[
        list[str] | None, option("HOW", "sum, mean, min or top-m; repeatable.")
    ] = None,
    by_split: Annotated[
        bool, typer.Option("--by-split", help="One column per OOD split, for the first aggregate.")
    ] = False,
    json: Json = False,
    params: Params = PARAMS,
) -> None:
    """Print how well image uncertainty separates ID from OOD.

    The values are AUROC, ID test images against OOD images.

    An image's uncertainty is an aggregate of those of its detections (Oksuz et al., 2023, Tables 2
    to 4 and A.9 to A.11): 1 − confidence, entropies of the class, Dempster-Shafer, the box's
    variance where the detector predicts it, and the negated score of every method that the run has
    scores for. Nothing is inferred or fitted. Splits whose images also show known objects are left
    out unless they are named.

    \b
    Examples:
      farther explain uncertainty voc-yolov8
      farther explain uncertainty voc-yolov8 --aggregate top-3 --by-split
      farther explain uncertainty voc-yolov8 --split coco_near --json
    """
    from farther.evaluation.files import RunFiles, RunSplit
    from farther.evaluation.self_aware_run import ALL_OOD
    from farther.metrics.self_awareness.image_uncertainty import AGGREGATES

    project = Project(params)
    detectors = project.section("detectors")
    run = project.run(run)
    entry = detectors[run]
    files = RunFiles(run, entry["benchmark"], project.artifacts)
    settings = project.section("evaluate")
    id_name = settings.get("id_split", "test")
    if not files.regions(id_name).is_dir():
        advice = f"run `farther repro infer@{run}`"
        raise DataError(f"{run} has no detections yet: {advice}", file=files.regions(id_name))
    id_split = RunSplit(files, id_name)
    ood_splits = _ood_splits(files, split or [])
    held_out = settings.get("calibration_split", "val")
    methods = list(project.section("methods"))
    aggregates = aggregate or list(AGGREGATES)
    rows: list[dict[str, Any]] = []
    for uncertainty_name, per_split in _uncertainties(
        files, [id_split, *ood_splits], methods, held_out
    ):
        aurocs: dict[str, float | None] = {}
        if by_split:
            images = _aggregate(per_split, [id_split, *ood_splits], aggregates[0])
            for ood_split, ood_images in zip(ood_splits, images[1:], strict=True):
                aurocs[ood_split.name] = _auroc(images[0], [ood_images])
            aurocs[ALL_OOD] = _auroc(images[0], images[1:])
        else:
            for kind in aggregates:
                images = _aggregate(per_split, [id_split, *ood_splits], kind)
                aurocs[kind] = _auroc(images[0], images[1:])
        rows.append({"uncertainty": uncertainty_name, "auroc": aurocs})
    if json:
        say(as_json({"run": run, "rows": rows}))
        return
    names = ", ".join(ood_split.name for ood_split in ood_splits)
    say(paragraph(f"{run}: AUROC of image uncertainty, {id_split.name} against {names}"))
    heads = list(rows[0]["auroc"])
    cells = []
    for row in rows:
        printed = [_cell(row["auroc"][head]) for head in heads]
        cells.append([row["uncertainty"], *printed])
    say(table(["uncertainty", *heads], cells, numbers=len(heads)))
    next_step(f"farther choose {run}")


def _ood_splits(files: RunFiles, names: Sequence[str]) -> list[RunSplit]:
    """The named OOD splits; without names, all whose images show no known objects.

    Raises:
        ParameterError: a name is unknown, or there is no such split.
    """
    from farther.evaluation.files import RunSplit

    known = files.roles.test
    if names:
        return [RunSplit(files, choose("split", name, known)) for name in names]
    splits = []
    for name in known:
        split = RunSplit(files, name)
        if not split.shows_known:
            splits.append(split)
    if not splits:
        listed = ", ".join(known) or "none"
        raise ParameterError(
            f"{files.run}: no OOD split has unknown objects only; name one with --split. "
            f"Known: {listed}"
        )
    return splits


def _uncertainties(
    files: RunFiles, splits: Sequence[RunSplit], methods: Sequence[str], held_out: str
) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Kinds of uncertainty: the name, and the values of the stored detections of each split.

    Args:
        files: The run's files.
        splits: The splits.
        methods: Names of methods; those without scores of all splits are left out.
        held_out: The ID split that statistics are computed on.
    """
    from farther.evaluation.files import RunSplit, aligned_scores
    from farther.evaluation.image_uncertainties import detection_uncertainties

    yield from detection_uncertainties(splits, lambda: RunSplit(files, held_out))
    for method in methods:
        paths = [files.scores(method, split.name) for split in splits]
        if not all(path.is_file() for path in paths):
            continue
        per_split = []
        for split, path in zip(splits, paths, strict=True):
            per_split.append(-aligned_scores(split.regions(), path, len(split.folder)))
        yield method, per_split


def _aggregate(
    per_split: Sequence[np.ndarray], splits: Sequence[RunSplit], kind: str
) -> list[np.ndarray]:
    """The uncertainty of each image, for each split.

    Args:
        per_split: The uncertainties of each split's detections.
        splits: The splits.
        kind: How those of an image are aggregated.
    """
    from farther.metrics.self_awareness.image_uncertainty import aggregate

    images = []
    for uncertainties, split in zip(per_split, splits, strict=True):
        image_ids = sorted(split.images)
        images.append(aggregate(uncertainties, split.regions().image_id, image_ids, kind))
    return images


def _auroc(id_images: np.ndarray, ood_images: Sequence[np.ndarray]) -> float | None:
    """AUROC of image uncertainty, ID images against those of OOD splits together."""
    import numpy as np

    from farther.metrics import ood

    return ood.auroc(-id_images, -np.concatenate(ood_images))


def _cell(value: float | None) -> str:
    if value is None:
        return "—"
    return f"{value:.3f}"
