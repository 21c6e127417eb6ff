"""What to deploy of a run for a budget: the choice of `farther choose`, and its text."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from farther import detectors
from farther.command.output import coloured, paragraph, table
from farther.command.project import Project
from farther.detectors.imported import Imported
from farther.detectors.proposal_sources import network_source
from farther.errors import DataError, ParameterError
from farther.errors import choose as known_name
from farther.evaluation.deploy.choose import choose_deployment
from farther.evaluation.deploy.results import Budget, DeployChoices
from farther.evaluation.files import RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.methods import FittedRun
from farther.evaluation.settings import EvaluationSettings
from farther.naming.registry import build
from farther.report import deploy_words


def next_command(
    project: Project, choices: DeployChoices, methods: Sequence[str], options: dict[str, Any]
) -> str:
    """The command to run next: it bundles what was chosen, or tries another budget; may be "".

    Imported detections have no network that could be bundled.

    Args:
        project: The project.
        choices: The answer.
        methods: The methods that were to be chosen from; all when empty.
        options: The budget's options; None for those that were not given.
    """
    if choices.choice is None:
        return ""
    if deploy_words.is_within(choices):
        if _has_imported_detections(project.section("detectors")[choices.run]):
            return ""
        return _bundle_command(choices, choices.choice.method if methods else None, options)
    limits = deploy_words.next_budget(choices)
    if not limits:
        return ""
    words = ["farther", "choose", choices.run]
    words += [f"--method={name}" for name in methods]
    words += _options(limits)
    if choices.budget.guarantee != "none":
        words.append(f"--guarantee={choices.budget.guarantee}")
    if choices.budget.choose_on is not None:
        words.append(f"--choose-on={choices.budget.choose_on}")
    return shlex.join(words)


def _has_imported_detections(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of section `detectors` reads detections of another program."""
    try:
        return isinstance(detectors.of_entry(entry), Imported)
    except (ModuleNotFoundError, ParameterError):  # of a network, whose packages are not needed
        return False


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
    words += _options(limits)
    return shlex.join(words)


def _options(limits: Mapping[str, Any]) -> list[str]:
    """Options of the command line that set parameters of a budget."""
    words = []
    for name, value in limits.items():
        text = f"{value:g}" if isinstance(value, float) else value
        words.append(f"--{name.replace('_', '-')}={text}")
    return words


def deploy_choices(
    project: Project,
    run: str,
    budget: Budget,
    methods: Sequence[str] = (),
    source: str | None = None,
) -> DeployChoices:
    """Method and thresholds to deploy: as the stage `choose` stored them, else computed now.

    Args:
        project: The project.
        run: A run that was evaluated.
        budget: The limits.
        methods: The methods to choose from; all when empty.
        source: Name of the source of proposals; the network's first when None.

    Raises:
        DataError: the run was not evaluated, or a file is damaged.
        ParameterError: a name is unknown.
    """
    detectors = project.section("detectors")
    entry = detectors[known_name("run", run, detectors)]
    names = list(dict.fromkeys(project.method(name) for name in methods))
    files = RunFiles(run, entry["benchmark"], project.artifacts)
    _check_fitted(files, names)
    if files.choice.is_file() and not names and source is None:
        stored = DeployChoices.read(files.choice)
        if stored.budget == budget:
            return stored
    settings = build(EvaluationSettings, "params.yaml: evaluate", project.section("evaluate"))
    source = network_source(run, entry.get("proposals"), source)
    inputs = RunInputs(files, files.roles, settings)
    return choose_deployment(inputs, budget, names or None, source=source)


def _check_fitted(files: RunFiles, methods: Sequence[str]) -> None:
    """Checks that a run is fitted, and that it can be chosen from some methods.

    Args:
        files: The run's files.
        methods: The methods; empty for all of the run.

    Raises:
        DataError: the run is not fitted yet, or one of the methods is not.
        ParameterError: none of the methods applies to the run.
    """
    advice = "run `farther repro choose`"
    if not files.threshold.is_file():
        raise DataError(f"{files.run} has no t* yet: {advice}", file=files.threshold)
    if not methods:
        return
    fitted = FittedRun.read(files)
    for name in methods:
        if name not in fitted.applicable and name not in fitted.refused:
            raise DataError(f"{name} is not fitted for {files.run} yet: {advice}")
    if fitted.applicable.keys().isdisjoint(methods):
        reason = fitted.refused[methods[0]]
        raise ParameterError(f"{methods[0]} does not apply to {files.run}: {reason}")


def to_text(choices: DeployChoices) -> str:
    """The answer, its reasons, and tables of limits, values and other methods."""
    blocks = [f"{coloured(choices.run, 'head')}\n{paragraph(deploy_words.answer(choices))}"]
    if choices.choice is None:
        return blocks[0]
    for text in [*deploy_words.reasons(choices), *deploy_words.remarks(choices)]:
        blocks.append(paragraph(text))
    blocks.append(_limit_table(choices))
    blocks.append(_value_table(choices))
    blocks.append(paragraph(deploy_words.held_out(choices)))
    choice_by_limit = {}
    for axis, choice in choices.alone.items():
        choice_by_limit[deploy_words.named_limit(axis, choices.budget)] = choice
    if choice_by_limit:
        rows = deploy_words.short_rows(choice_by_limit, "limit")
        blocks.append(f"Each limit alone, on held-out images:\n{_table(rows, 4)}")
    if choices.methods:
        rows = deploy_words.short_rows(choices.methods, "method")
        blocks.append(f"Each method, on held-out images:\n{_table(rows, 6)}")
    return "\n\n".join(blocks)


def _limit_table(choices: DeployChoices) -> str:
    """The table of limits: whether they are met where they were chosen, and on held-out images."""
    rows = []
    for row in deploy_words.axis_rows(choices):
        if not row["Limit"]:
            continue
        where_chosen = row[deploy_words.WHERE_CHOSEN]
        if row["Where chosen"]:
            where_chosen += f", {row['Where chosen']}"
        limit = {
            "": _narrow(row["Measure"]),
            "Limit": row["Limit"],
            deploy_words.WHERE_CHOSEN: where_chosen,
            deploy_words.HELD_OUT: f"{row[deploy_words.HELD_OUT]}, {row['Held-out']}",
        }
        rows.append(limit)
    return _table(rows, 3)


def _value_table(choices: DeployChoices) -> str:
    """The table of values on held-out images, with their intervals."""
    rows = []
    for row in deploy_words.axis_rows(choices):
        value = {
            "": _narrow(row["Measure"]),
            "Held-out": row["Held-out"],
            "95% interval": row["95% interval"],
            "n": row["n"],
        }
        rows.append(value)
    return _table(rows, 3)


def _narrow(text: str) -> str:
    """The name of a measure without words that a table of 80 columns can do without."""
    return text.replace(" objects", "")


def _table(rows: Sequence[dict[str, str]], numbers: int) -> str:
    return table(list(rows[0]), [list(row.values()) for row in rows], numbers)
