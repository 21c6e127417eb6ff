"""`farther choose`: which method and thresholds to deploy for a budget."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from farther.command.budget import (
    ChooseOn,
    Guarantee,
    MaxFalseAlarms,
    MaxMisclassified,
    MaxRecallLoss,
    budget_of,
)
from farther.command.output import as_json, coloured, next_step, paragraph, table
from farther.command.project import PARAMS, Json, Params, Project, argument, option
from farther.errors import choose as known_name
from farther.terminal import say

if TYPE_CHECKING:
    from farther.evaluation.deploy.results import Budget, DeployChoices


def choose(
    run: Annotated[str, argument("RUN", "A run that was evaluated.", "detectors")],
    max_misclassified: MaxMisclassified = None,
    max_false_alarms: MaxFalseAlarms = None,
    max_recall_loss: MaxRecallLoss = None,
    guarantee: Guarantee = None,
    choose_on: ChooseOn = None,
    method: Annotated[
        list[str] | None, option("METHOD", "Only this method; repeatable.", "methods")
    ] = None,
    json: Json = False,
    params: Params = PARAMS,
) -> None:
    """Choose what to deploy within a budget: method, t* and τ.

    Thresholds are chosen on the ID validation split and on OOD images, and measured on the ID test
    split and on other OOD images: by cross-fitting on halves of the OOD splits, or by --choose-on.
    Limits that are given replace those in section 'deploy' of params.yaml.

    \b
    Examples:
      farther choose voc-yolov8
      farther choose voc-yolov8 --max-misclassified 0.01
      farther choose voc-yolov8 --max-false-alarms 2 --max-recall-loss 0.01
      farther choose voc-yolov8 --max-false-alarms 2 --guarantee conformal --json
    """
    project = Project(params)
    given = {
        "max_misclassified": max_misclassified,
        "max_false_alarms": max_false_alarms,
        "max_recall_loss": max_recall_loss,
        "guarantee": guarantee,
        "choose_on": choose_on,
    }
    found = chosen(project, run, budget_of(project, **given), method or ())
    if json:
        say(as_json(found))
        return
    say(_shown(found))
    if found.choice is not None:
        # With a method and nothing of a budget, `bundle` takes the thresholds of `evaluate`.
        asked = {name: value for name, value in given.items() if value is not None}
        asked = asked or ({"guarantee": found.budget.guarantee} if method else {})
        limits = [f"--{name.replace('_', '-')}={value}" for name, value in asked.items()]
        next_step(
            shlex.join(
                [
                    "farther",
                    "bundle",
                    run,
                    *([found.choice.method] if method else []),
                    "deployed",
                    *limits,
                ]
            )
        )


def chosen(
    project: Project, run: str, budget: Budget, methods: Sequence[str] = ()
) -> DeployChoices:
    """What to deploy of a run: what the stage `choose` stored, or for another budget computed now.

    Args:
        project: The project.
        run: A run that was evaluated.
        budget: The limits.
        methods: The methods to choose from; all when empty.

    Raises:
        DataError: the run was not evaluated, or a file is damaged.
        ParameterError: a name is unknown.
    """
    from farther.evaluation.deploy.choose import choose_deployment
    from farther.evaluation.deploy.results import DeployChoices
    from farther.evaluation.files import RunFiles
    from farther.evaluation.inputs import RunInputs
    from farther.evaluation.settings import EvaluationSettings
    from farther.registry import build

    entry = project.section("detectors")[known_name("run", run, project.section("detectors"))]
    names = [known_name("method", name, project.section("methods")) for name in methods]
    files = RunFiles(run, entry["benchmark"], project.artifacts)
    if files.choice.is_file() and not names:
        stored = DeployChoices.read(files.choice)
        if stored.budget == budget:
            return stored
    settings = build(EvaluationSettings, "params.yaml: evaluate", project.section("evaluate"))
    return choose_deployment(RunInputs(files, files.roles, settings), budget, names or None)


def _shown(found: DeployChoices) -> str:
    from farther.report.pages import deploy

    parts = [coloured(found.run, "head") + "\n" + paragraph(deploy.answer(found))]
    if found.choice is not None:
        axes = [
            {_short(k): _short(v) for k, v in row.items() if k != "Chosen on"}
            for row in deploy.axis_rows(found)
        ]
        parts += [paragraph(deploy.held_out(found)), _table(axes, 5)]
        alone = {deploy.named_limit(axis, found.budget): one for axis, one in found.alone.items()}
        for title, first, named in (
            ("Each limit alone", "limit", alone),
            ("Each method", "method", found.methods),
        ):
            if named:
                parts.append(
                    f"{title}:\n{_table(deploy.short_rows(named, first), 5 if first == 'limit' else 6)}"
                )
        parts += [paragraph(remark) for remark in deploy.remarks(found)]
    return "\n\n".join(parts)


def _short(words: str) -> str:
    """Words of an axis for a table of 80 columns."""
    for long in (" objects", " ID images", "ID ", " limit"):
        words = words.replace(long, "")
    return words


def _table(rows: Sequence[dict[str, str]], numbers: int) -> str:
    return table(list(rows[0]), [list(row.values()) for row in rows], numbers)
