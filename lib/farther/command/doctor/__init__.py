"""`farther doctor`: what is missing to run what params.yaml asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import typer

from farther.command.doctor.inspection import Inspection
from farther.command.output import as_json, coloured, hanging, next_step, paragraph, size
from farther.command.project import PARAMS, Json, Params, Project, option
from farther.errors import PROBLEMS, FartherError, Finding
from farther.pipeline.stages import STAGES
from farther.text.terminal import say, working

#: Topics that are printed first, in this order.
FIRST_TOPICS = ("pipeline", "parameters", "packages", "datasets", "checkpoints")


def doctor(
    params: Params = PARAMS,
    json: Json = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Do not open annotations, images or checkpoints.")
    ] = False,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Measure a sample; estimate time and disk.")
    ] = False,
    sample: Annotated[int, option("N", "Number of images to measure.")] = 32,
    run: Annotated[
        list[str] | None, option("RUN", "Run to estimate, repeatable.", "detectors")
    ] = None,
) -> int:
    """Check what is missing before a run; estimate time and disk.

    Checks the parameters; the Python packages behind the names in them; the files of datasets,
    where they belong, where they come from and about how large they are; annotations and image
    files; checkpoints and imported detections, which are opened as `infer` opens them; the versions
    of packages that made stored results; free disk space; the GPU; git and DVC. With --estimate, a
    sample of the images goes through the detectors and methods, to estimate how long the whole run
    takes and how much it writes.

    \b
    Examples:
      farther doctor
      farther doctor --params profiles/fmiyc.yaml    # before you switch to it
      farther doctor --quick --json                  # opens no checkpoint
      farther doctor --estimate --sample 64 --run voc-vos
    """
    project = Project(params)
    if estimate:
        _estimate(project, sample, run, json=json)
        return 0
    with working("checking"):
        findings = examine(project, quick=quick)
    problems = sum(finding.state in PROBLEMS for finding in findings)
    if json:
        say(
            as_json({"missing": problems, "findings": [_to_entry(finding) for finding in findings]})
        )
        return 1 if problems else 0
    say(_to_text(findings, problems))
    if problems:
        next_step("correct what is missing or wrong, then farther doctor again")
        return 1
    next_step("farther repro")
    return 0


def _estimate(project: Project, sample: int, runs: list[str] | None, *, json: bool) -> None:
    """Prints the cost of each stage."""
    from farther.command.doctor import estimate

    costs = estimate.estimate(project, sample, runs)
    if json:
        stages = [vars(cost) for cost in costs]
        say(as_json({**estimate.totals(costs), "stages": stages}))
    else:
        say(estimate.report(costs))
        next_step("farther repro")


def examine(project: Project, *, quick: bool = False) -> list[Finding]:
    """All findings about a project.

    Args:
        project: The project.
        quick: Open neither annotations nor checkpoints, and test no GPU.

    Raises:
        FartherError: a check failed on a project in which nothing else is wrong.
    """
    from farther.command.doctor import machine
    from farther.command.doctor.pipeline import pipeline

    findings = pipeline(project)
    failures: dict[str, Exception] = {}
    for name, check in _checks(project, quick=quick).items():
        try:
            for finding in check():
                if finding not in findings:
                    findings.append(finding)
        except (FartherError, AttributeError, KeyError, TypeError, ValueError) as error:
            failures[name] = error
    if failures and not any(finding.state in PROBLEMS for finding in findings):
        raise next(iter(failures.values()))
    if not any(finding.topic == "parameters" for finding in findings):
        text = "all names and values are valid"
        findings.append(Finding("parameters", str(project.file), "ok", text))
    for name in failures:
        findings.append(Finding(name, "not checked", "note", "correct what is wrong first"))
    findings += list(machine.disk(project, findings))
    if not quick:
        findings += machine.gpu()
    findings += machine.repository(project)
    return sorted(findings, key=_order)


def _checks(project: Project, *, quick: bool) -> dict[str, Callable[[], Iterable[Finding]]]:
    """{topic: check} of packages, versions, and stages in their order."""
    from farther.command.doctor.packages import packages
    from farther.command.doctor.versions import versions

    inspection = Inspection(project.params, quick)
    checks: dict[str, Callable[[], Iterable[Finding]]] = {
        "packages": partial(packages, project),
        "versions": partial(versions, project.artifacts),
    }
    for name in [name for stage in STAGES for name in stage.checks]:
        module = import_module(f"farther.command.doctor.{name}")
        checks[name] = partial(module.check, inspection)
    return checks


def _order(finding: Finding) -> int:
    """Position of a finding's topic; the other topics follow in the order of the checks."""
    if finding.topic in FIRST_TOPICS:
        return FIRST_TOPICS.index(finding.topic)
    return len(FIRST_TOPICS)


def _to_entry(finding: Finding) -> dict[str, Any]:
    """A finding for JSON."""
    entry = {**vars(finding), **finding.more}
    del entry["more"]
    return entry


def _to_text(findings: Sequence[Finding], problems: int) -> str:
    """The findings by topic, and a sentence on how many are problems."""
    findings_by_topic: dict[str, list[Finding]] = {}
    for finding in findings:
        findings_by_topic.setdefault(finding.topic, []).append(finding)
    lines: list[str] = []
    for topic, of_topic in findings_by_topic.items():
        title = topic.capitalize() if topic.islower() else topic
        lines.append(coloured(title, "head"))
        for finding in of_topic:
            lines += _lines(finding)
        lines.append("")
    if problems:
        result = f"{problems} missing or wrong"
        total = sum(finding.bytes for finding in findings)
        if total:
            result += f", about {size(total)} to fetch"
        lines.append(coloured(f"{result}.", "missing"))
    else:
        lines.append(coloured("Nothing is missing.", "ok"))
    return "\n".join(lines)


def _lines(finding: Finding) -> list[str]:
    """The state and text of a finding, and a line for each further fact."""
    text = f"{finding.name}: {finding.text}"
    if finding.bytes:
        text += f", about {size(finding.bytes)}"
    state = coloured(finding.state.ljust(8), finding.state)
    lines = [f"  {state}{paragraph(text, 10).strip()}"]
    for name, value in finding.more.items():
        lines.append(hanging(f"{name:<11} {value}", 12, 24))
    return lines
