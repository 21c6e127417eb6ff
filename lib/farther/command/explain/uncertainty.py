"""`farther explain uncertainty`: how well image uncertainty separates ID from OOD."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from farther.command.output import paragraph, table
from farther.command.project import Project
from farther.errors import DataError, ParameterError, choose, known_names
from farther.evaluation.files import RunFiles, RunSplit, aligned_scores
from farther.evaluation.image_uncertainties import detection_uncertainties
from farther.evaluation.self_aware_run import ALL_OOD
from farther.metrics import ood
from farther.metrics.self_awareness.image_uncertainty import AGGREGATES, aggregate


def explain_uncertainty(
    project: Project,
    run: str,
    splits: Sequence[str],
    aggregates: Sequence[str] = (),
    *,
    by_split: bool = False,
) -> dict[str, Any]:
    """AUROC of each kind of image uncertainty, ID test images against OOD images.

    Args:
        project: Its detections are read from `artifacts`.
        run: Name of the run.
        splits: Names of OOD splits; none for all whose images show no known objects.
        aggregates: How uncertainties of an image's detections are aggregated; none for each way.
        by_split: One column per OOD split, for the first aggregate; else one per aggregate.

    Returns:
        `run`; `id_split` and `splits`, names; `rows`, one per kind: `uncertainty`, its name, and
        `auroc`, {column: value}.

    Raises:
        DataError: the run has no detections.
        ParameterError: a split is unknown, or there is none.
    """
    files = RunFiles(run, project.section("detectors")[run]["benchmark"], project.artifacts)
    settings = project.section("evaluate")
    id_name = settings.get("id_split", "test")
    if not files.regions(id_name).is_dir():
        advice = f"run `farther repro infer@{run}`"
        raise DataError(f"{run} has no detections yet: {advice}", file=files.regions(id_name))
    id_split = RunSplit(files, id_name)
    ood_splits = _ood_splits(files, splits)
    held_out = settings.get("calibration_split", "val")
    methods = list(project.section("methods"))
    aggregates = aggregates or list(AGGREGATES)
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
    return {
        "run": run,
        "id_split": id_split.name,
        "splits": [ood_split.name for ood_split in ood_splits],
        "rows": rows,
    }


def to_text(explanation: Mapping[str, Any]) -> str:
    """What `explain_uncertainty` returns, as a table with a sentence above it."""
    against = ", ".join(explanation["splits"])
    heading = f"{explanation['run']}: AUROC of image uncertainty"
    heads = list(explanation["rows"][0]["auroc"])
    cells = []
    for row in explanation["rows"]:
        printed = [_cell(row["auroc"][head]) for head in heads]
        cells.append([row["uncertainty"], *printed])
    return "\n".join(
        [
            paragraph(f"{heading}, {explanation['id_split']} against {against}"),
            table(["uncertainty", *heads], cells, numbers=len(heads)),
        ]
    )


def _ood_splits(files: RunFiles, names: Sequence[str]) -> list[RunSplit]:
    """The named OOD splits; without names, all whose images show no known objects.

    Raises:
        ParameterError: a name is unknown, or there is no such split.
    """
    known = files.roles.test
    if names:
        return [RunSplit(files, choose("split", name, known)) for name in names]
    splits = []
    for name in known:
        split = RunSplit(files, name)
        if not split.shows_known:
            splits.append(split)
    if not splits:
        raise ParameterError(
            f"{files.run}: no OOD split has unknown objects only; name one with --split. "
            f"{known_names(known)}"
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
    images = []
    for uncertainties, split in zip(per_split, splits, strict=True):
        image_ids = sorted(split.images)
        images.append(aggregate(uncertainties, split.regions().image_id, image_ids, kind))
    return images


def _auroc(id_images: np.ndarray, ood_images: Sequence[np.ndarray]) -> float | None:
    """AUROC of image uncertainty, ID images against those of OOD splits together."""
    return ood.auroc(-id_images, -np.concatenate(ood_images))


def _cell(value: float | None) -> str:
    if value is None:
        return "—"
    return f"{value:.3f}"
