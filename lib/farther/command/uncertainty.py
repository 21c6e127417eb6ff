"""`farther explain uncertainty`: how well the uncertainty of whole images tells ID from OOD images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from farther.command.output import as_json, next_step, table
from farther.command.project import PARAMS, Json, Params, Project, argument, option, splits
from farther.errors import ParameterError, choose
from farther.terminal import say

if TYPE_CHECKING:
    import numpy as np

    from farther.evaluation.files import RunFiles, RunSplit


def uncertainty(
    run: Annotated[str, argument("RUN", "A run; it need not be evaluated.", "detectors")],
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
    import numpy as np

    from farther.evaluation.files import RunFiles, RunSplit
    from farther.metrics import ood
    from farther.metrics.self_awareness import image_uncertainty

    project = Project(params)
    entry = project.section("detectors")[choose("run", run, project.section("detectors"))]
    files = RunFiles(run, entry["benchmark"], project.artifacts)
    id_split = (project.section("evaluate") or {}).get("id_split", "test")
    asked = [
        RunSplit(files, choose("split", name, files.roles.test))
        for name in split or files.roles.test
    ]
    unknown = [each for each in asked if split or not each.shows_known]
    if not unknown:
        tested = ", ".join(files.roles.test) or "none"
        raise ParameterError(
            f"{run}: no OOD split has unknown objects only; name one with --split. Known: {tested}"
        )
    names = [each.name for each in unknown]
    splits = [RunSplit(files, id_split), *unknown]
    ways = aggregate or list(image_uncertainty.AGGREGATES)
    rows = []
    held_out = (project.section("evaluate") or {}).get("calibration_split", "val")
    for name, doubts in _uncertainties(files, splits, list(project.section("methods")), held_out):
        row: dict[str, float | str | None] = {"uncertainty": name}
        for how in ways[:1] if by_split else ways:
            known, *others = (
                image_uncertainty.aggregate(
                    doubt, each.regions().image_id, sorted(each.images), how
                )
                for doubt, each in zip(doubts, splits, strict=True)
            )
            if by_split:
                row |= {
                    name: ood.auroc(-known, -other)
                    for name, other in zip(names, others, strict=True)
                }
            row["all" if by_split else how] = ood.auroc(-known, -np.concatenate(others))
        rows.append(row)
    if json:
        say(as_json({"run": run, "rows": rows}))
        return
    say(f"{run}: AUROC of image uncertainty, {id_split} against {', '.join(names)}")
    heads = list(rows[0])
    say(
        table(
            heads, [[_shown(row[head]) for head in heads] for row in rows], numbers=len(heads) - 1
        )
    )
    next_step(f"farther choose {run}")


def _uncertainties(
    files: RunFiles, splits: Sequence[RunSplit], methods: Sequence[str], held_out: str
) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Name, and uncertainty of each stored detection of each split."""
    from farther.evaluation.files import RunSplit, aligned_scores
    from farther.evaluation.image_uncertainties import detection_uncertainties

    yield from detection_uncertainties(splits, lambda: RunSplit(files, held_out))
    for name in methods:
        paths = [files.scores(name, split.name) for split in splits]
        if all(path.is_file() for path in paths):
            stored = zip(splits, paths, strict=True)
            yield (
                name,
                [
                    -aligned_scores(split.regions(), path, len(split.folder))
                    for split, path in stored
                ],
            )


def _shown(value: float | str | None) -> str:
    return value if isinstance(value, str) else "—" if value is None else f"{value:.3f}"
