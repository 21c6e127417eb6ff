"""`farther repro`: what `dvc repro` would run, several stages at the same time, with one line per stage."""

from __future__ import annotations

import logging
import os
import re
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Annotated, Any

import typer

from farther.command.doctor.machine import dvc_locks
from farther.command.output import coloured, next_step, width
from farther.command.processes import Processes, Started
from farther.command.project import Project, argument, option
from farther.cores import count_cores, free_memory
from farther.dvc_internals import unsupported
from farther.dvc_repro import FAILED, UNCHANGED, Pipeline
from farther.errors import ParameterError, choose
from farther.printable import printable
from farther.terminal import say

LOGS = Path("artifacts/.work/logs")
EVALUATE = "evaluate@"
#: Bytes of memory for each stage beside others: an evaluation of the published benchmark takes
#: three quarters of it.
MEMORY = 4 << 30
#: Columns of a stage's line.
COLUMNS = 100


def _stages(project: Project, *_: Any) -> list[str]:
    """The stages of dvc.yaml, those of `foreach` included; [] where they cannot be told."""
    from farther.tables.documents import read_yaml

    def entries(foreach: Any) -> list[Any]:
        value: Any = foreach
        if isinstance(foreach, str):
            value = params
            for name in foreach.strip("${}").split("."):
                value = value[name]
        return list(value)

    try:
        # Not `project.params`, whose datasets include the derived ones: `ingest` has no stage for
        # these.
        params = read_yaml(project.file)
        stages = read_yaml(project.folder / "dvc.yaml")["stages"]
        each = {
            name: entries(of["foreach"]) if "foreach" in of else None for name, of in stages.items()
        }
    except (KeyError, TypeError):
        return []
    return [
        stage
        for name, of in each.items()
        for stage in ([name] if of is None else [f"{name}@{one}" for one in of])
    ]


def repro(
    targets: Annotated[
        list[str] | None, argument("STAGE", "Stages to run; by default all.", _stages)
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
    everything that a stage prints is in artifacts/.work/logs/STAGE.log. The exit status is that of
    `dvc repro`. With --force, the stages that are named, or all where none is, compute everything
    again, also what they kept from earlier runs.

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
    problem = unsupported()
    if problem is not None:
        return _repro_by_dvc(problem, targets or [], force=force)
    early = {} if first is None else {f"{EVALUATE}{first}": partial(_first_result, project, first)}
    shown = Progress(0 if targets else len(_stages(project)), early)
    status = shown.follow(targets or [], list(early), jobs or usual_jobs(), force=force)
    if not status:
        shown.finish()
        next_step("farther repro" if targets and "report" not in targets else "farther summary")
    return status


def _repro_by_dvc(problem: str, targets: Sequence[str], *, force: bool) -> int:
    """Runs `dvc repro`; returns its exit status.

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
    shown = "; ".join(shlex.join(["dvc", *arguments]) for arguments in steps)
    say(f"{problem}: stages run one after the other, by {shown}", file=sys.stderr)
    for arguments in steps:
        environment = _with_python(os.environ)
        if "--force" in arguments:
            environment[FORCE] = "1"
        command = [sys.executable, "-m", "dvc", *arguments]
        status = subprocess.run(command, env=environment, check=False).returncode
        if status:
            return status
    return 0


def _with_python(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables with the folder of this Python first in PATH: stages run `python`."""
    folder = str(Path(sys.executable).parent)
    return {**environment, "PATH": os.pathsep.join([folder, environment.get("PATH", os.defpath)])}


def usual_jobs() -> int:
    """Stages that run at the same time: one per core, where the free memory suffices."""
    return max(1, min(count_cores(), free_memory() // MEMORY))


def _first_result(project: Project, run: str) -> str:
    """The first table of a run, of its first two splits."""
    from farther.report.results import read_runs
    from farther.report.tables import run_tables, to_text

    alone = {**project.params, "detectors": {run: project.section("detectors")[run]}}
    (table, *_) = run_tables(read_runs(alone, project.artifacts)[0])
    return f"{table.caption} * marks the best.\n\n{to_text(table.select(table.splits[:2]))}"


@dataclass
class _Running:
    """The process of a stage that runs, what it has printed, and its last progress bar."""

    started: Started | None = None
    start: float = field(default_factory=time.monotonic)
    printed: list[str] = field(default_factory=list)
    bar: str = ""


@dataclass
class Progress:
    """What is printed while stages run: the `Watcher` of `farther.dvc_repro`.

    Args:
        stages: Number of stages of the pipeline; 0 where it is not known.
        after: Stage → what is printed after its line.
        ran: Stages that ran, or were taken from the cache.
        unchanged: Stages that had nothing to do.
        start: When the first of them began, by `time.monotonic`.
        on_terminal: Whether progress bars are drawn.
        warnings: Those that were printed.
    """

    stages: int = 0
    after: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    unchanged: set[str] = field(default_factory=set)
    start: float = field(default_factory=time.monotonic)
    on_terminal: bool = field(default_factory=lambda: sys.stderr.isatty())
    warnings: list[str] = field(default_factory=list)
    _running: dict[str, _Running] = field(default_factory=dict)
    _processes: Processes = field(default_factory=Processes)
    _stopped: bool = False
    _turn: Lock = field(default_factory=Lock)

    def follow(
        self, targets: Sequence[str], first: Sequence[str], jobs: int, *, force: bool = False
    ) -> int:
        """Runs stages; returns the exit status of `dvc repro`, 130 after Ctrl-C.

        Args:
            targets, first, force: See `farther.dvc_repro.Pipeline`.
            jobs: Most stages at the same time.
        """
        log = logging.getLogger("dvc")
        try:
            Pipeline(targets, first, force=force).run(self, jobs)
            return 0
        except KeyboardInterrupt:
            self._clear()
            say("Stopped. Finished stages are kept: run it again to continue.", file=sys.stderr)
            return 130
        except Exception:
            self._clear()
            log.exception(
                ""
            )  # in DVC's form: without a traceback, unless DVC_SHOW_TRACEBACK is set
        finally:
            self._processes.close()
        damaged = [found for found in dvc_locks(Path()) if found.state == "wrong"]
        for found in damaged:
            say(found.text, file=sys.stderr)
        remedies = [str(found.more["remedy"]) for found in damaged]
        next_step(*remedies or ["correct it, then farther repro again; finished stages are kept"])
        return 255

    def finish(self) -> None:
        """Prints how many stages ran."""
        kept = len(self.unchanged - set(self.ran))
        ran = f"{len(self.ran)} stage{'' if len(self.ran) == 1 else 's'}"
        say(f"{ran} ran in {_clock(time.monotonic() - self.start)}; {kept} were up to date.")
        if self.warnings:
            say("`farther doctor` has the warnings in full, and so has the report's first page.")

    def execute(self, stage: str, command: str | list[str], options: Mapping[str, Any]) -> int:
        """See `farther.dvc_repro.Watcher`."""
        options = {**options, "env": _with_python(options["env"])}
        read, write = _terminal() if self.on_terminal else os.pipe()
        printed, out = os.pipe()
        LOGS.mkdir(parents=True, exist_ok=True)
        _log_of(stage).write_text("")
        try:
            with self._turn:
                if self._stopped:
                    raise KeyboardInterrupt
                started = self._processes.start(stage, command, options, out, write)
                self._running[stage] = _Running(started)
        finally:
            os.close(out)
            os.close(write)
        try:
            for source, line in _lines({printed: "out", read: "err"}, started.ended):
                with self._turn:
                    self._take(stage, source, line)
            status = started.wait()
        finally:
            os.close(printed)
            os.close(read)
        with self._turn:
            self._processes.give_back(started)
        return status

    def stop(self) -> None:
        """See `farther.dvc_repro.Watcher`."""
        with self._turn:
            self._stopped = True
            for running in self._running.values():
                if (
                    running.started is not None
                ):  # one that has just been started did not get the terminal's signal
                    running.started.process.send_signal(signal.SIGINT)

    def end(self, stage: str, outcome: str) -> None:
        """See `farther.dvc_repro.Watcher`."""
        with self._turn:
            self._clear()
            if outcome == UNCHANGED:
                self.unchanged.add(stage)
                return
            self.ran.append(stage)
            running = self._running.pop(stage, None) or _Running(printed=["taken from the cache"])
            took = f"{time.monotonic() - running.start:.0f} s"
            if outcome == FAILED:
                say(*running.printed, sep="\n", end="\n" if running.printed else "")
                say(
                    f"{self._position} {coloured(stage, 'wrong')}  failed after {took}; its output: {_log_of(stage)}"
                )
                return
            self._print_line(stage, took, running.printed)
            if (text := self.after.get(stage)) is not None:
                say(f"\n{text()}\n", flush=True)

    def _print_line(self, stage: str, took: str, printed: Sequence[str]) -> None:
        result = printed[0] if len(printed) == 1 else ""
        shown = re.sub(rf"^({re.escape(stage.partition('@')[2])}|Report): ", "", result)
        say(_cut(f"{self._position} {stage:<26} {took:>6}  {shown}".rstrip()), flush=True)
        for line in printed:
            if "warning:" in line.lower() and line != result and line not in self.warnings:
                self.warnings.append(line)
                say(_cut(f"    {line}"), flush=True)

    def _take(self, stage: str, source: str, line: str) -> None:
        """Takes a line of a stage.

        An empty source means that time passed, "bar" an unfinished line.
        """
        running = self._running[stage]
        if source in ("", "bar"):
            running.bar = line if source == "bar" else running.bar
            if self.on_terminal:
                self._draw(stage, running)
            return
        self._clear()
        with _log_of(stage).open("a", encoding="utf-8") as file:
            file.write(f"{printable(line)}\n")
        if source == "err":
            say(line, file=sys.stderr, flush=True)
        else:
            running.printed.append(line)

    @property
    def _position(self) -> str:
        of = f"/{self.stages}" if self.stages else ""
        return f"{len(self.ran):>3}{of}  {_clock(time.monotonic() - self.start):>5} "

    def _draw(self, stage: str, running: _Running) -> None:
        """Draws the bar of one of the stages that run, and the names of the others."""
        others = "".join(f" + {other}" for other in self._running if other != stage)
        bar = running.bar or f"{time.monotonic() - running.start:.0f} s"
        sys.stderr.write(
            f"\r\033[K{printable(f'{self._position} {stage}{others}  {bar}')[: width() - 1]}"
        )
        sys.stderr.flush()

    def _clear(self) -> None:
        if self.on_terminal:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


def _log_of(stage: str) -> Path:
    return LOGS / f"{stage.replace('/', '_')}.log"


def _cut(line: str) -> str:
    """A line of at most `COLUMNS` columns."""
    return line if len(line) <= COLUMNS else f"{line[: COLUMNS - 1]}…"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"


def _terminal() -> tuple[int, int]:
    """Both ends of a terminal, for progress bars are printed to terminals only.

    Of a pipe where there are none.
    """
    import fcntl
    import pty
    import struct
    import termios
    import tty

    try:
        read, write = pty.openpty()
    except OSError:  # a container without pseudo-terminals
        return os.pipe()
    tty.setraw(write)
    fcntl.ioctl(write, termios.TIOCSWINSZ, struct.pack("HHHH", 24, max(40, width() - 40), 0, 0))
    return read, write


def _lines(sources: dict[int, str], ended: int | None = None) -> Iterator[tuple[str, str]]:
    """Lines from several files, with the name of each.

    ("bar", text) for a bar, ("", "") where a second passed.

    They end where all files do, or once nothing more is to be read after `ended` can be: processes
    that a stage has started may keep its files open.
    """
    rest = dict.fromkeys(sources, b"")
    with (
        selectors.SelectSelector() as selector
    ):  # the default of macOS, kqueue, does not take every pseudo-terminal
        for number in (*sources, *([] if ended is None else [ended])):
            selector.register(number, selectors.EVENT_READ)
        is_over = False
        while set(selector.get_map()) - {ended}:
            ready = selector.select(timeout=0 if is_over else 1)
            if is_over and not ready:
                break
            for key, _ in ready:
                if key.fd == ended:
                    selector.unregister(ended)
                    is_over = True
                    continue
                try:
                    found = os.read(key.fd, 65536)
                except OSError:  # the end of a pseudo-terminal
                    found = b""
                if not found:
                    selector.unregister(key.fd)
                    found = b"\n" if rest[key.fd].strip() else b""
                *whole, rest[key.fd] = (rest[key.fd] + found).split(b"\n")
                yield from (
                    (sources[key.fd], text)
                    for line in whole
                    if (text := _message(line)) is not None
                )
                if bar := _plain(rest[key.fd].rstrip(b"\r").rpartition(b"\r")[2]):
                    yield "bar", bar
            if not ready:
                yield "", ""


def _message(line: bytes) -> str | None:
    """The text of a line; None where it was a progress bar, which carriage returns overwrite."""
    line = line.rstrip(b"\r")
    text = _plain(line.rpartition(b"\r")[2])
    return None if b"\r" in line and (not text or "%|" in text) else text


def _plain(line: bytes) -> str:
    """The text without escape codes."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line.decode(errors="replace")).rstrip()
