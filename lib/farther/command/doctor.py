"""Says what is missing to run what params.yaml asks for.

Looked at: the parameters themselves; the Python packages behind the names in
them; files of datasets, where they belong, where they come from and about how
large they are; checkpoints, which are opened as `infer` opens them; room on
disk; the GPU; git and DVC. With --estimate, a sample of the images goes through
the detectors and methods, to tell how long the whole run takes, and how much it
writes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from farther.command.project import Project, add_params

if TYPE_CHECKING:
    from farther.command.needs import Finding

NAME = "doctor"
SUMMARY = "say what is missing to run; estimate time and disk"
EXAMPLES = """
farther doctor
farther doctor --params profiles/fmiyc.yaml    # before you switch to it
farther doctor --quick --json                  # opens no checkpoint
farther doctor --estimate --sample 64
"""

#: States of findings that keep something from running.
PROBLEMS = ("missing", "wrong")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this subcommand."""
    add_params(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help="look for checkpoints, but do not open them")
    parser.add_argument("--estimate", action="store_true", help="measure a sample, and estimate time and disk")
    parser.add_argument("--sample", type=int, default=32, metavar="N", help="about so many images to measure (32)")
    parser.add_argument("--run", action="append", metavar="RUN", help="estimate this run only; may be repeated")


def run(given: argparse.Namespace) -> int:
    """Looks, or measures; 1 where something is missing."""
    project = Project(given.params)
    if given.estimate:
        from farther.command.estimate import estimate, report, to_json

        costs = estimate(project, given.sample, given.run)
        print(to_json(costs) if given.json else report(costs))
        return 0
    return _look(project, given)


def _look(project: Project, given: argparse.Namespace) -> int:
    from farther.command import needs
    from farther.command.output import as_json

    data = needs.data(project)
    findings = [
        *needs.parameters(project),
        *needs.packages(project),
        *data,
        *needs.checkpoints(project, "look" if given.quick else "open"),
        *needs.disk(project, data),
        *([] if given.quick else needs.gpu(project)),
        *needs.repository(project),
    ]
    missing = [finding for finding in findings if finding.state in PROBLEMS]
    if given.json:
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
