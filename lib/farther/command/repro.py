"""`farther repro`: what `dvc repro` would run, stages side by side, with one line per stage."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Annotated, Any

import typer

from farther.command.before_run import refuse
from farther.command.exit_status import FINE, WRONG_INPUT
from farther.command.output import next_step
from farther.command.project import Project, argument, option
from farther.command.repro_progress import Progress, with_python
from farther.cores import count_cores, free_memory
from farther.dvc_internals import unsupported
from farther.errors import ParameterError, choose
from farther.terminal import say, working

EVALUATE = "evaluate@"
#: The stage that runs before all others.
FIRST_STAGE = "code"
#: Bytes of memory for each stage beside others: an evaluation of the published benchmark takes
#: three quarters of it.
MEMORY = 4 << 30


def stage_names(project: Project, *_: Any) -> list[str]:
    """The stages of dvc.yaml, one per entry of `foreach`; [] where dvc.yaml is not valid."""
    from farther.tables.documents import read_yaml

    names = []
    try:
        # Not `project.params`, whose datasets include the derived ones: `ingest` has no stage for
        # these.
        params = read_yaml(project.file)
        stages = read_yaml(project.folder / "dvc.yaml")["stages"]
        for name, stage in stages.items():
            if "foreach" not in stage:
                names.append(name)
                continue
            for entry in _entries(params, stage["foreach"]):
                names.append(f"{name}@{entry}")
    except (KeyError, TypeError):
        return []
    return names


def _entries(params: Any, foreach: Any) -> list[Any]:
    """The entries of a `foreach`: those that it lists, or those of the section that it names."""
    if not isinstance(foreach, str):
        return list(foreach)
    section = params
    for name in foreach.strip("${}").split("."):
        section = section[name]
    return list(section)


def repro(
    targets: Annotated[
        list[str] | None, argument("STAGE", "Stages to run; by default all.", stage_names)
    ] = None,
    first: Annotated[
        str | None, option("RUN", "Evaluate this run before others.", "detectors")
    ] = None,
    jobs: Annotated[
        int | None, option("N", "Most stages at the same time; by default one per core.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Compute STAGE again even if nothing changed.")
    ] = False,
) -> int:
    """Run the stages that changed, side by side, one line each.

    Runs what `dvc repro` would run, as many stages at the same time as there are cores and 4 GiB of
    free memory; on a GPU, inference runs one stage at a time. Prints a line for each stage that
    ran: its number, the time since the start, and its duration. Errors are printed in full;
    everything that a stage prints is in artifacts/.work/logs/STAGE.log. Before it starts, it checks
    the parameters as `farther doctor` does. With --force, the stages that are named, or all where
    none is, compute everything again, also what they kept from earlier runs.

    \b
    Examples:
      farther repro
      farther repro evaluate@voc-vos
      farther repro --first voc-vos    # its table comes before the other runs
      farther repro --jobs 1           # one stage after the other
      farther repro --force fit@voc-vos
    """
    project = Project()
    if jobs is not None and jobs < 1:
        raise ParameterError(f"--jobs: expected 1 or more, found {jobs}")
    if first is not None:
        choose("run", first, project.section("detectors"))
    targets = targets or []
    with working("checking params.yaml"):
        refuse(project, targets)
    problem = unsupported()
    if problem is not None:
        return _repro_by_dvc(problem, targets, force=force)

    after: dict[str, Callable[[], str]] = {}
    if first is not None:
        after[f"{EVALUATE}{first}"] = partial(_first_result, project, first)
    names = stage_names(project)
    count = 0  # not known for some of the stages
    if not targets:
        count = len(names)
    with closing(Progress(count, after)) as progress:
        if FIRST_STAGE in names:
            progress.prepare()
        status = progress.follow(targets, list(after), jobs or usual_jobs(), force=force)
    if status:
        return status

    progress.finish()
    if targets and "report" not in targets:
        next_step("farther repro")
    else:
        next_step("farther summary")
    return status


def _repro_by_dvc(problem: str, targets: Sequence[str], *, force: bool) -> int:
    """Runs `dvc repro`; returns the exit status.

    Args:
        problem: Why this DVC cannot run stages side by side.
        targets: Names of stages; all where there are none.
        force: Whether these run even if nothing changed.
    """
    from farther.keyed import FORCE

    usual = ["repro", *targets]
    forced = ["repro", "--force", *targets]
    if not force:
        steps = [usual]
    elif not targets:
        steps = [forced]
    else:  # `dvc repro --force` alone would also force what the targets depend on
        steps = [usual, [*forced, "--single-item"]]
    commands = "; ".join(shlex.join(["dvc", *arguments]) for arguments in steps)
    say(f"{problem}: stages run one after the other, by {commands}", file=sys.stderr)
    for arguments in steps:
        environment = with_python(os.environ)
        if "--force" in arguments:
            environment[FORCE] = "1"
        command = [sys.executable, "-m", "dvc", *arguments]
        status = subprocess.run(command, env=environment, check=False).returncode
        if status:
            return WRONG_INPUT
    return FINE


def usual_jobs() -> int:
    """Stages that run at the same time: one per core, where the free memory suffices."""
    return max(1, min(count_cores(), free_memory() // MEMORY))


def _first_result(project: Project, run: str) -> str:
    """The first table of a run, of its first two splits."""
    from farther.report.results import read_runs
    from farther.report.tables import run_tables, to_text

    params = {**project.params, "detectors": {run: project.section("detectors")[run]}}
    runs = read_runs(params, project.artifacts)[0]
    table = run_tables(runs)[0]
    return f"{table.caption} * marks the best.\n\n{to_text(table.select(table.splits[:2]))}"
