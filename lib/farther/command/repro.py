"""`farther repro`: checks parameters, then runs `dvc repro`; new inference goes side by side."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread
from typing import Annotated, Any

import psutil
import typer

from farther.command.before_run import refuse
from farther.command.doctor.machine import dvc_locks
from farther.command.exit_status import FINE, INTERRUPTED, WRONG_INPUT
from farther.command.interruption import answering_interrupts
from farther.command.output import next_step
from farther.command.project import Project, argument, option
from farther.errors import ParameterError, choose
from farther.processes import count_cores, has_gpu
from farther.text.terminal import say, working

#: What DVC prints of its own work, which is left out. Another DVC may print more: it is shown.
OF_DVC = re.compile(
    r"|Running stage '.+':|> .+|Stage '.+' didn't change, skipping"
    r"|(?:Generating|Updating) lock file '.+'"
    r"|To track the changes with git, run:|git add .+|To enable auto staging, run:"
    r"|dvc config core.autostage true|Use `dvc push` to send your updates to remote storage."
    r"|Data and pipelines are up to date."
)
#: Seconds that stages have to end after Ctrl-C before they are told again.
PATIENCE = 3.0


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
        int | None, option("N", "Most runs at the same time; by default one per core.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Compute STAGE again even if nothing changed.")
    ] = False,
) -> int:
    """Run the stages that changed.

    Checks the parameters as `farther doctor` does, then runs `dvc repro`. Before that, networks run
    for new runs side by side, one per core; on a GPU, one after the other. With
    --force, the stages that are named, or all where none is, compute everything again, also what
    they kept from earlier runs.

    \b
    Examples:
      farther repro
      farther repro evaluate
      farther repro --first voc-vos    # its table comes before the other runs
      farther repro --jobs 1           # one run after the other
      farther repro --force fit
    """
    project = Project()
    if jobs is not None and jobs < 1:
        raise ParameterError(f"--jobs: expected 1 or more, found {jobs}")
    if first is not None:
        choose("run", first, project.section("detectors"))
    targets = targets or []
    with working("checking params.yaml"):
        refuse(project, targets)

    start = time.monotonic()
    commands = Commands(jobs, force=force)
    try:
        with answering_interrupts(commands.stopping.set):
            status = _run(project, commands, targets, first)
    except KeyboardInterrupt:
        commands.stop()
        say("Stopped. Finished work is kept: run it again to continue.", file=sys.stderr)
        return INTERRUPTED
    if status:
        _advise()
        return WRONG_INPUT
    minutes, seconds = divmod(int(time.monotonic() - start), 60)
    say(f"Finished in {minutes}:{seconds:02}.")
    if targets and "report" not in targets:
        next_step("farther repro")
    else:
        next_step("farther summary")
    return FINE


def _run(project: Project, commands: Commands, targets: Sequence[str], first: str | None) -> int:
    """Runs stages; returns the exit status of the first command that fails, or 0."""
    if targets:
        if not commands.is_forced:
            return commands.repro(*targets)
        # `dvc repro --force` alone would also force what the targets depend on.
        return commands.repro(*targets, forced=False) or commands.repro("--single-item", *targets)

    if first is not None:
        status = commands.repro(f"infer@{first}") or _evaluate_first(project, commands, first)
        if status:
            return status
    names = stage_names(project)
    new_stages = [stage for stage in _new_stages(project) if stage in names]
    if len(new_stages) > 1 and commands.jobs > 1 and "curate" in names:
        status = commands.repro("curate") or commands.side_by_side(new_stages)
        if status:
            return status
    return commands.repro()


def _new_stages(project: Project) -> list[str]:
    """Stages that run networks and have stored nothing yet; none waits for another."""
    stages = []
    if not (project.artifacts / "embeddings").is_dir():
        stages.append("embed")
    for run in project.section("detectors"):
        if not (project.artifacts / "regions" / run).is_dir():
            stages.append(f"infer@{run}")
    return stages


def _evaluate_first(project: Project, commands: Commands, run: str) -> int:
    """Evaluates a run before the others and prints its first table; the stages keep its results."""
    status = commands.call([sys.executable, "-m", "farther.pipeline.first", run])
    if status:
        return status
    say(f"\n{_first_table(project, run)}\n", flush=True)
    return FINE


def _first_table(project: Project, run: str) -> str:
    """The first table of a run, of its first two splits."""
    from farther.report.results import read_runs
    from farther.report.tables import run_tables, to_text

    params = {**project.params, "detectors": {run: project.section("detectors")[run]}}
    runs = read_runs(params, project.artifacts)[0]
    table = run_tables(runs)[0]
    return f"{table.caption} * marks the best.\n\n{to_text(table.select(table.splits[:2]))}"


class Commands:
    """Commands of DVC and of stages, which print to the terminal of this process.

    Args:
        jobs: Most runs at the same time; by default one per core, and one on a GPU.
        force: Whether stages compute everything again.

    Attributes:
        stopping: Whether Ctrl-C was pressed: what DVC and stages say of it is left out.
    """

    def __init__(self, jobs: int | None, *, force: bool):
        self.is_forced = force
        self.stopping = Event()
        self.jobs = jobs or (1 if has_gpu() else count_cores())
        self._environment = {**with_python(os.environ), "PYTHONUNBUFFERED": "1"}
        if sys.stderr.isatty():
            self._environment["FARTHER_TERMINAL"] = os.ttyname(sys.stderr.fileno())
        if jobs is not None:
            self._environment["FARTHER_JOBS"] = str(jobs)

    def repro(
        self,
        *arguments: str,
        forced: bool | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> int:
        """Runs `dvc repro`; returns its exit status.

        Args:
            arguments: Further arguments.
            forced: Whether stages compute everything again; as the user wants it by default.
            variables: Further environment variables.
        """
        command = [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", *arguments]
        environment = dict(variables or {})
        if self.is_forced if forced is None else forced:
            command.append("--force")
            environment["FARTHER_FORCE"] = "1"
        return self.call(command, environment)

    def side_by_side(self, stages: Sequence[str]) -> int:
        """Runs each stage by a command of its own; returns the first failure, or 0.

        As many run at the same time as there are jobs. What they depend on must be up to date.
        """
        count = min(self.jobs, len(stages))
        threads = {"OMP_NUM_THREADS": str(max(1, count_cores() // count))}
        # Not in a `with` block, which would wait for their ends before it tells them of Ctrl-C.
        pool = ThreadPoolExecutor(count)
        futures = []
        for stage in stages:
            futures.append(pool.submit(self.repro, "--single-item", stage, variables=threads))
        pool.shutdown(wait=False)
        statuses = [future.result() for future in futures]
        return next((status for status in statuses if status), FINE)

    def call(self, command: Sequence[str], variables: Mapping[str, str] | None = None) -> int:
        """Runs a command; returns its exit status. What it prints is passed on: see `OF_DVC`.

        After Ctrl-C none is started.
        """
        if self.stopping.is_set():
            return INTERRUPTED
        environment = {**self._environment, **(variables or {})}
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        errors = Thread(target=self._pass_on, args=(process.stderr, sys.stderr), daemon=True)
        errors.start()
        self._pass_on(process.stdout, sys.stdout)
        errors.join()
        return process.wait()

    def _pass_on(self, source: Any, target: Any) -> None:
        """Prints the lines of a command, but for what DVC says of its own work."""
        for content in source:
            line = content.decode(errors="replace").rstrip("\r\n")
            if not self.stopping.is_set() and not OF_DVC.fullmatch(line.strip()):
                say(line, file=target, flush=True)

    def stop(self) -> None:
        """Waits for the commands that run to end.

        The terminal's Ctrl-C reaches them, too. Where they were not told, they are; a second Ctrl-C
        kills them.
        """
        started = psutil.Process().children(recursive=True)
        try:
            _, running = psutil.wait_procs(started, timeout=PATIENCE)
            for process in running:
                process.send_signal(signal.SIGINT)
            psutil.wait_procs(running)
        except KeyboardInterrupt:
            for process in started:
                if process.is_running():
                    process.kill()


def with_python(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables with the folder of this Python first in PATH: stages run `python`."""
    folder = str(Path(sys.executable).parent)
    return {**environment, "PATH": os.pathsep.join([folder, environment.get("PATH", os.defpath)])}


def _advise() -> None:
    """Prints what to do after a failure, and which of DVC's files are damaged."""
    damaged = [finding for finding in dvc_locks(Path()) if finding.state == "wrong"]
    for finding in damaged:
        say(finding.text, file=sys.stderr)
    if damaged:
        next_step(*(str(finding.more["remedy"]) for finding in damaged))
    else:
        next_step("correct it, then farther repro again; finished work is kept")
