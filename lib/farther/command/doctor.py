"""`farther doctor`: what is missing to run what params.yaml asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from farther.command.project import PARAMS, Json, Params, Project, complete

if TYPE_CHECKING:
    from farther.command.needs import Finding

#: States of findings that keep something from running.
PROBLEMS = ("missing", "wrong")


def doctor(
    params: Params = PARAMS,
    json: Json = False,
    quick: Annotated[bool, typer.Option("--quick", help="Look for checkpoints without opening them.")] = False,
    estimate: Annotated[bool, typer.Option("--estimate", help="Measure a sample; estimate time and disk.")] = False,
    sample: Annotated[int, typer.Option(metavar="N", help="Number of images to measure.")] = 32,
    run: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN", help="Run to estimate, repeatable.", autocompletion=complete("detectors")),
    ] = None,
) -> int:
    """List what is missing to run; estimate time and disk.

    Checks the parameters; the Python packages behind the names in them; the files of datasets, where they belong,
    where they come from and about how large they are; checkpoints, which are opened as `infer` opens them; free disk
    space; the GPU; git and DVC. With --estimate, a sample of the images goes through the detectors and methods, to
    estimate how long the whole run takes and how much it writes.

    \b
    Examples:
      farther doctor
      farther doctor --params profiles/fmiyc.yaml    # before you switch to it
      farther doctor --quick --json                  # opens no checkpoint
      farther doctor --estimate --sample 64 --run voc-vos
    """
    project = Project(params)
    if estimate:
        from farther.command import estimate as costs

        found = costs.estimate(project, sample, run)
        print(costs.to_json(found) if json else costs.report(found))
        return 0
    return _look(project, quick=quick, json=json)


def _look(project: Project, *, quick: bool, json: bool) -> int:
    from farther.command import needs
    from farther.command.output import as_json

    data = needs.data(project)
    findings = [
        *needs.parameters(project),
        *needs.packages(project),
        *data,
        *needs.checkpoints(project, "look" if quick else "open"),
        *needs.disk(project, data),
        *([] if quick else needs.gpu(project)),
        *needs.repository(project),
    ]
    missing = [finding for finding in findings if finding.state in PROBLEMS]
    if json:
        print(as_json({"missing": len(missing), "findings": [vars_of(finding) for finding in findings]}))
    else:
        print(_shown(findings))
    return 1 if missing else 0


def vars_of(finding: Finding) -> dict[str, object]:
    """A finding, for programs."""
    return {
        "topic": finding.topic,
        "name": finding.name,
        "state": finding.state,
        "says": finding.says,
        **dict(finding.more),
        "bytes": finding.bytes,
    }


def _shown(findings: Sequence[Finding]) -> str:
    from farther.command.output import coloured, hanging, paragraph, size

    lines: list[str] = []
    for topic in dict.fromkeys(finding.topic for finding in findings):
        lines += ["", coloured(topic.capitalize() if topic.islower() else topic, "head")]
        for finding in (one for one in findings if one.topic == topic):
            about = f", about {size(finding.bytes)}" if finding.bytes else ""
            text = paragraph(f"{finding.name}: {finding.says}{about}", 10).strip()
            lines.append(f"  {coloured(finding.state.ljust(8), finding.state)}{text}")
            lines += [hanging(f"{name:<11} {value}", 12, 24) for name, value in finding.more.items()]
    missing = sum(finding.state in PROBLEMS for finding in findings)
    total = sum(finding.bytes for finding in findings)
    about = f", about {size(total)} to fetch" if total else ""
    verdict = f"{missing} missing or wrong{about}." if missing else "Nothing is missing."
    return "\n".join([*lines[1:], "", coloured(verdict, "missing" if missing else "ok")])
