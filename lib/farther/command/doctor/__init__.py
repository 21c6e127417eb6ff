"""`farther doctor`: what is missing to run what params.yaml asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from typing import Annotated

import typer

from farther.command.output import as_json, coloured, hanging, next_step, paragraph, size
from farther.command.project import PARAMS, Json, Params, Project, option
from farther.errors import PROBLEMS, FartherError, Finding
from farther.terminal import say


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
        from farther.command.doctor import estimate as costs

        found = costs.estimate(project, sample, run)
        if json:
            say(as_json({**costs.totals(found), "stages": [vars(one) for one in found]}))
        else:
            say(costs.report(found))
            next_step("farther repro")
        return 0
    findings = examine(project, quick=quick)
    problems = sum(finding.state in PROBLEMS for finding in findings)
    if json:
        listed = [{**vars(one), **one.more} for one in findings]
        say(
            as_json(
                {
                    "missing": problems,
                    "findings": [{k: v for k, v in o.items() if k != "more"} for o in listed],
                }
            )
        )
    else:
        say(_shown(findings, problems))
        next_step(
            "correct what is missing or wrong, then farther doctor again"
            if problems
            else "farther repro"
        )
    return 1 if problems else 0


def examine(project: Project, *, quick: bool = False) -> list[Finding]:
    """All findings about a project.

    `quick` opens neither annotations nor checkpoints, and tests no GPU.
    """
    from farther.command.doctor import machine
    from farther.command.doctor.inspection import Inspection
    from farther.command.doctor.packages import packages
    from farther.command.doctor.pipeline import pipeline
    from farther.command.doctor.versions import versions
    from farther.pipeline.stages import STAGES

    inspection = Inspection(project.params, quick)
    checks: dict[str, Callable[[], Iterable[Finding]]] = {
        "packages": partial(packages, project),
        "versions": partial(versions, project.artifacts),
    }
    for stage in STAGES:
        if stage.has_check:
            module = import_module(f"farther.command.doctor.{stage.name}")
            checks[stage.name] = partial(module.check, inspection)
    findings = pipeline(project)
    stopped = {}
    for name, check in checks.items():
        try:
            findings += [one for one in check() if one not in findings]
        except (FartherError, AttributeError, KeyError, TypeError, ValueError) as error:
            stopped[name] = error
    if stopped and not any(finding.state in PROBLEMS for finding in findings):
        raise next(iter(stopped.values()))
    if not any(finding.topic == "parameters" for finding in findings):
        findings.append(
            Finding("parameters", str(project.file), "ok", "all names and values are valid")
        )
    findings += [
        Finding(name, "not checked", "note", "correct what is wrong first") for name in stopped
    ]
    findings += [
        *machine.disk(project, findings),
        *([] if quick else machine.gpu()),
        *machine.repository(project),
    ]
    order = ("pipeline", "parameters", "packages", "datasets", "checkpoints")
    return sorted(
        findings, key=lambda one: order.index(one.topic) if one.topic in order else len(order)
    )


def _shown(findings: Sequence[Finding], problems: int) -> str:
    lines: list[str] = []
    for topic in dict.fromkeys(finding.topic for finding in findings):
        lines += ["", coloured(topic.capitalize() if topic.islower() else topic, "head")]
        for finding in (one for one in findings if one.topic == topic):
            about = f", about {size(finding.bytes)}" if finding.bytes else ""
            text = paragraph(f"{finding.name}: {finding.text}{about}", 10).strip()
            lines.append(f"  {coloured(finding.state.ljust(8), finding.state)}{text}")
            lines += [
                hanging(f"{name:<11} {value}", 12, 24) for name, value in finding.more.items()
            ]
    total = sum(finding.bytes for finding in findings)
    about = f", about {size(total)} to fetch" if total else ""
    result = f"{problems} missing or wrong{about}." if problems else "Nothing is missing."
    return "\n".join([*lines[1:], "", coloured(result, "missing" if problems else "ok")])
