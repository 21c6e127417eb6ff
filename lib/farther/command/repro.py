"""`farther repro`: `dvc repro` with one line per stage."""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from farther import dvc_repro
from farther.command.doctor.machine import dvc_locks
from farther.command.output import coloured, next_step, width
from farther.command.project import Project, argument, option
from farther.cores import keep_to_share
from farther.errors import ParameterError, choose
from farther.terminal import printable, say

LOGS = Path("artifacts/.work/logs")
EVALUATE = "evaluate@"
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
        # Not `project.params`, whose datasets include the derived ones: `ingest` has no stage for these.
        params, stages = read_yaml(project.file), read_yaml(project.folder / "dvc.yaml")["stages"]
        each = {name: entries(of["foreach"]) if "foreach" in of else None for name, of in stages.items()}
    except (KeyError, TypeError):
        return []
    return [stage for name, of in each.items() for stage in ([name] if of is None else [f"{name}@{one}" for one in of])]


def repro(
    targets: Annotated[list[str] | None, argument("STAGE", "Stages to run; by default all.", _stages)] = None,
    first: Annotated[str | None, option("RUN", "Evaluate this run before all others.", "detectors")] = None,
    jobs: Annotated[int, option("N", "Evaluate N runs in parallel; each needs its own memory.")] = 1,
) -> int:
    """Run the stages that changed, one line each.

    Runs `dvc repro` and prints a line for each stage that ran: its number, the time since the start, and its duration.
    Errors are printed in full; everything that a stage prints is in artifacts/.work/logs/STAGE.log. The exit status is
    that of `dvc repro`.

    \b
    Examples:
      farther repro
      farther repro evaluate@voc-vos
      farther repro --first voc-vos    # its table comes before the other runs
      farther repro --jobs 4
    """
    project = Project()
    if jobs < 1:
        raise ParameterError(f"--jobs: expected 1 or more, found {jobs}")
    shown = Progress(stages=0 if targets else len(_stages(project)))
    if first is not None:
        choose("run", first, project.section("detectors"))
        status = shown.follow([f"{EVALUATE}{first}"])
        if status:
            return status
        if f"{EVALUATE}{first}" in shown.ran:
            say(f"\n{_first_result(project, first)}\n\nThe other runs follow.\n", flush=True)
    status = _side_by_side(project, shown, _runs(project, targets, shown), jobs) if jobs > 1 else 0
    status = status or shown.follow(targets or [])
    if not status:
        shown.end()
        next_step("farther repro" if targets and "report" not in targets else "farther summary")
    return status


def _runs(project: Project, targets: list[str] | None, shown: Progress) -> list[str]:
    """The runs that are to be evaluated."""
    runs = project.section("detectors")
    asked = runs if not targets else [name.removeprefix(EVALUATE) for name in targets if name.startswith(EVALUATE)]
    return [run for run in asked if run in runs and f"{EVALUATE}{run}" not in {*shown.ran, *shown.unchanged}]


def _side_by_side(project: Project, shown: Progress, runs: list[str], jobs: int) -> int:
    """Evaluates runs, some at the same time, each under a DVC of its own; the exit status of the first that failed.

    What they share is brought up to date before: one DVC refuses to write what another one reads.
    """
    if len(runs) < 2:
        return 0
    if status := shown.follow([f"infer@{run}" for run in runs]):
        return status
    # The largest first: none of them is left to run alone at the end.
    waiting, failed = iter(sorted(runs, key=partial(_bytes_of_regions, project), reverse=True)), [0]
    jobs = min(jobs, len(runs))

    def work(number: int) -> None:
        keep_to_share(number, jobs)
        for run in waiting:
            # Without a bar: there is one terminal.
            beside = Progress(
                shown.stages, shown.ran, shown.unchanged, shown.start, on_terminal=False, warnings=shown.warnings
            )
            if not failed[0]:
                failed[0] = beside.follow([f"{EVALUATE}{run}"], alone=True)

    try:
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(work, range(jobs)))
    except KeyboardInterrupt:
        return _stopped()
    return failed[0]


def _bytes_of_regions(project: Project, run: str) -> int:
    from farther.tables.folders import files_below

    return sum(file.stat().st_size for file in files_below(project.artifacts / "regions" / run))


def _stopped() -> int:
    say("Stopped. Finished stages are kept: run it again to continue.", file=sys.stderr)
    return 130


def _first_result(project: Project, run: str) -> str:
    """The first table of a run, of its first two splits."""
    from farther.report.results import read_runs
    from farther.report.tables import run_tables, to_text

    alone = {**project.params, "detectors": {run: project.section("detectors")[run]}}
    (table, *_) = run_tables(read_runs(alone, project.artifacts)[0])
    return f"{table.caption} * marks the best.\n\n{to_text(table.select(table.splits[:2]))}"


@dataclass
class Progress:
    """What is printed while DVC works.

    Args:
        stages: Number of stages of the pipeline; 0 where it is not known.
        ran: Stages that ran, or were taken from the cache.
        unchanged: Stages that had nothing to do.
        start: When the first of them began, by `time.monotonic`.
        on_terminal: Whether progress bars are drawn.
        warnings: Those that were printed.
    """

    stages: int = 0
    ran: list[str] = field(default_factory=list)
    unchanged: set[str] = field(default_factory=set)
    start: float = field(default_factory=time.monotonic)
    on_terminal: bool = field(default_factory=lambda: sys.stderr.isatty())
    warnings: list[str] = field(default_factory=list)
    _stage: str = ""
    _stage_start: float = 0.0
    _printed: list[str] = field(default_factory=list)
    _bar: str = ""

    def follow(self, targets: list[str], *, alone: bool = False) -> int:
        """Runs `dvc repro`; returns its exit status, 130 after Ctrl-C.

        Args:
            targets: Stages to run; by default all.
            alone: Without the stages that they depend on, beside others that run: DVC waits for its lock.
        """
        read, write = _terminal() if self.on_terminal else os.pipe()
        command = [sys.executable, "-m", dvc_repro.__name__, *([dvc_repro.ALONE] if alone else []), *targets]
        environment = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=write, env=environment) as process:
            os.close(write)
            assert process.stdout is not None
            lines = _lines({process.stdout.fileno(): "out", read: "err"})
            try:
                for source, line in lines:
                    self._take(source, line)
            except KeyboardInterrupt:  # DVC and the stage got it, too: wait until they have ended
                with suppress(KeyboardInterrupt):
                    process.wait()
                self._clear()
                return _stopped()
            finally:
                os.close(read)
        self._clear()
        self._finish(failed=process.returncode != 0)
        if process.returncode:
            damaged = [found for found in dvc_locks(Path()) if found.state == "wrong"]
            for found in damaged:
                say(found.text, file=sys.stderr)
            remedies = [str(found.more["remedy"]) for found in damaged]
            next_step(*remedies or ["correct it, then farther repro again; finished stages are kept"])
        return process.returncode

    def end(self) -> None:
        """Prints how many stages ran."""
        kept = len(self.unchanged - set(self.ran))
        ran = f"{len(self.ran)} stage{'' if len(self.ran) == 1 else 's'}"
        say(f"{ran} ran in {_clock(time.monotonic() - self.start)}; {kept} were up to date.")
        if self.warnings:
            say("`farther doctor` has the warnings in full, and so has the report's first page.")

    def _take(self, source: str, line: str) -> None:
        """Takes a line of DVC or of a stage; an empty source means that time passed, "bar" an unfinished line."""
        if source in ("", "bar"):
            self._bar = line if source == "bar" else self._bar
            if self.on_terminal and self._stage:
                self._draw()
            return
        self._clear()
        if source == "err":
            self._log(line)
            say(line, file=sys.stderr, flush=True)
        elif line.startswith(dvc_repro.MARK):
            self._begin(*line.removeprefix(dvc_repro.MARK).split(" ", 1))
        else:
            self._log(line)
            self._printed.append(line)

    def _begin(self, event: str, stage: str) -> None:
        """Takes what DVC says about the next stage."""
        self._finish()
        if event == dvc_repro.UNCHANGED:
            self.unchanged.add(stage)
            return
        self._stage, self._stage_start, self._bar = stage, time.monotonic(), ""
        self.ran.append(stage)
        if event == dvc_repro.CACHED:
            self._printed.append("taken from the cache")
        LOGS.mkdir(parents=True, exist_ok=True)
        _log_of(stage).write_text("")

    def _finish(self, *, failed: bool = False) -> None:
        """Ends the line of the current stage."""
        stage, printed = self._stage, self._printed
        self._stage, self._printed = "", []
        if not stage:
            return
        took = f"{time.monotonic() - self._stage_start:.0f} s"
        if failed:
            say(*printed, sep="\n", end="\n" if printed else "")
            say(f"{self._position} {coloured(stage, 'wrong')}  failed after {took}; its output: {_log_of(stage)}")
            return
        result = printed[0] if len(printed) == 1 else ""
        shown = re.sub(rf"^({re.escape(stage.partition('@')[2])}|Report): ", "", result)
        say(_cut(f"{self._position} {stage:<26} {took:>6}  {shown}".rstrip()), flush=True)
        for line in printed:
            if "warning:" in line.lower() and line != result and line not in self.warnings:
                self.warnings.append(line)
                say(_cut(f"    {line}"), flush=True)

    @property
    def _position(self) -> str:
        of = f"/{self.stages}" if self.stages else ""
        return f"{len(self.ran):>3}{of}  {_clock(time.monotonic() - self.start):>5} "

    def _draw(self) -> None:
        bar = self._bar or f"{time.monotonic() - self._stage_start:.0f} s"
        sys.stderr.write(f"\r\033[K{printable(f'{self._position} {self._stage}  {bar}')[: width() - 1]}")
        sys.stderr.flush()

    def _clear(self) -> None:
        if self.on_terminal:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def _log(self, line: str) -> None:
        if self._stage:
            with _log_of(self._stage).open("a", encoding="utf-8") as file:
                file.write(f"{printable(line)}\n")


def _log_of(stage: str) -> Path:
    return LOGS / f"{stage.replace('/', '_')}.log"


def _cut(line: str) -> str:
    """A line of at most `COLUMNS` columns."""
    return line if len(line) <= COLUMNS else f"{line[: COLUMNS - 1]}…"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"


def _terminal() -> tuple[int, int]:
    """Both ends of a terminal, for progress bars are printed to terminals only; of a pipe where there are none."""
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


def _lines(sources: dict[int, str]) -> Iterator[tuple[str, str]]:
    """Lines from several files, with the name of each; ("bar", text) for a bar, ("", "") where a second passed."""
    rest = dict.fromkeys(sources, b"")
    with selectors.SelectSelector() as selector:  # the default of macOS, kqueue, does not take every pseudo-terminal
        for number in sources:
            selector.register(number, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(timeout=1)
            for key, _ in ready:
                try:
                    found = os.read(key.fd, 65536)
                except OSError:  # the end of a pseudo-terminal
                    found = b""
                if not found:
                    selector.unregister(key.fd)
                    found = b"\n" if rest[key.fd].strip() else b""
                *whole, rest[key.fd] = (rest[key.fd] + found).split(b"\n")
                yield from ((sources[key.fd], text) for line in whole if (text := _message(line)) is not None)
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
