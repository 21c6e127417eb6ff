"""`farther choose`: which method and thresholds to deploy for a budget."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from farther.command.budget import (
    ChooseOn,
    Guarantee,
    MaxFalseAlarms,
    MaxMisclassified,
    MaxRecallLoss,
    budget_of,
)
from farther.command.output import as_json, coloured, next_step, paragraph, table
from farther.command.project import PARAMS, Json, OptionalRun, Params, Project, option
from farther.errors import choose as known_name
from farther.terminal import say

if TYPE_CHECKING:
    from farther.evaluation.deploy.results import Budget, DeployChoices


def choose(
    run: OptionalRun = None,
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
    run = project.run(run)
    options = {
        "max_misclassified": max_misclassified,
        "max_false_alarms": max_false_alarms,
        "max_recall_loss": max_recall_loss,
        "guarantee": guarantee,
        "choose_on": choose_on,
    }
    choices = deploy_choices(project, run, budget_of(project, **options), method or ())
    if json:
        say(as_json(choices))
        return
    say(_to_text(choices))
    if choices.choice is not None:
        next_step(_bundle_command(choices, choices.choice.method if method else None, options))


def _bundle_command(choices: DeployChoices, method: str | None, options: dict[str, Any]) -> str:
    """The command that bundles what was chosen.

    Args:
        choices: The answer.
        method: The method, if only some methods were to be chosen from.
        options: The budget's options; None for those that were not given.
    """
    limits = {name: value for name, value in options.items() if value is not None}
    words = ["farther", "bundle", choices.run]
    if method is not None:
        words.append(method)
        # With a method and without a budget, `bundle` takes the thresholds of `evaluate`.
        limits = limits or {"guarantee": choices.budget.guarantee}
    words.append("deployed")
    for name, value in limits.items():
        words.append(f"--{name.replace('_', '-')}={value}")
    return shlex.join(words)


def deploy_choices(
    project: Project, run: str, budget: Budget, methods: Sequence[str] = ()
) -> DeployChoices:
    """Method and thresholds to deploy: as the stage `choose` stored them, else computed now.

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

    detectors = project.section("detectors")
    entry = detectors[known_name("run", run, detectors)]
    names = [project.method(name) for name in methods]
    files = RunFiles(run, entry["benchmark"], project.artifacts)
    if files.choice.is_file() and not names:
        stored = DeployChoices.read(files.choice)
        if stored.budget == budget:
            return stored
    settings = build(EvaluationSettings, "params.yaml: evaluate", project.section("evaluate"))
    return choose_deployment(RunInputs(files, files.roles, settings), budget, names or None)


def _to_text(choices: DeployChoices) -> str:
    """The answer, and tables of its limits and of other methods."""
    from farther.report.pages import deploy

    blocks = [f"{coloured(choices.run, 'head')}\n{paragraph(deploy.answer(choices))}"]
    if choices.choice is None:
        return blocks[0]
    blocks.append(paragraph(deploy.held_out(choices)))
    blocks.append(_axis_table(choices))
    choice_by_limit = {}
    for axis, choice in choices.alone.items():
        choice_by_limit[deploy.named_limit(axis, choices.budget)] = choice
    if choice_by_limit:
        rows = deploy.short_rows(choice_by_limit, "limit")
        blocks.append(f"Each limit alone:\n{_table(rows, 5)}")
    if choices.methods:
        rows = deploy.short_rows(choices.methods, "method")
        blocks.append(f"Each method:\n{_table(rows, 6)}")
    for remark in deploy.remarks(choices):
        blocks.append(paragraph(remark))
    return "\n\n".join(blocks)


def _axis_table(choices: DeployChoices) -> str:
    """The table of axes, narrowed to 80 columns."""
    from farther.report.pages import deploy

    rows = []
    for axis in deploy.axis_rows(choices):
        del axis["Chosen on"]
        rows.append({_narrow(name): _narrow(text) for name, text in axis.items()})
    return _table(rows, 5)


def _narrow(text: str) -> str:
    """A text of an axis without words that its table can do without."""
    for words in (" objects", " ID images", "ID ", " limit"):
        text = text.replace(words, "")
    return text


def _table(rows: Sequence[dict[str, str]], numbers: int) -> str:
    return table(list(rows[0]), [list(row.values()) for row in rows], numbers)
