"""What `farther repro` prints while stages run: one line per stage, warnings, errors, and bars."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event as Flag
from threading import Lock
from typing import Any

from farther.command.doctor.machine import dvc_locks
from farther.command.exit_status import FINE, INTERRUPTED, WRONG_INPUT
from farther.command.interruption import answering_interrupts
from farther.command.output import coloured, next_step, width
from farther.command.process_output import Event, open_terminal, read_output
from farther.command.processes import Processes, Started
from farther.dvc_repro import FAILED, UNCHANGED, Pipeline
from farther.printable import printable
from farther.terminal import say, working

LOGS = Path("artifacts/.work/logs")
#: Columns of a stage's line on a terminal.
COLUMNS = 100
#: Exit statuses of a stage that Ctrl-C has ended.
INTERRUPTED_STATUSES = (-signal.SIGINT, 128 + signal.SIGINT)
#: Seconds in which this process notices Ctrl-C, too.
GRACE = 1.0
LOOK = 0.2


@dataclass
class _RunningStage:
    """The process of a stage that runs, what it has printed, and its last progress bar."""

    started: Started | None = None
    start: float = field(default_factory=time.monotonic)
    printed: list[str] = field(default_factory=list)
    bar: str = ""

    @property
    def seconds(self) -> str:
        """The time since its start, as text."""
        return f"{time.monotonic() - self.start:.0f} s"


@dataclass
class Progress:
    """What is printed while stages run: the `Watcher` of `farther.dvc_repro`.

    Args:
        stages: Number of stages of the pipeline; 0 where it is not known.
        after: {stage: returns what is printed after its line}.
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
    _running: dict[str, _RunningStage] = field(default_factory=dict)
    _processes: Processes = field(default_factory=Processes)
    _stopped: Flag = field(default_factory=Flag)
    _lock: Lock = field(default_factory=Lock)

    def prepare(self) -> None:
        """Starts a process for the first stage, which imports packages meanwhile."""
        self._processes.prepare(with_python(os.environ))

    def follow(
        self, targets: Sequence[str], first: Sequence[str], jobs: int, *, force: bool = False
    ) -> int:
        """Runs stages; returns the exit status: 2 where a stage failed, 130 after Ctrl-C.

        Args:
            targets, first, force: See `farther.dvc_repro.Pipeline`.
            jobs: Maximum number of stages at the same time.
        """
        try:
            with answering_interrupts(self._stopped.set):
                with working("looking for changes"):
                    pipeline = Pipeline(targets, first, force=force)
                pipeline.run(self, jobs)
            return FINE
        except KeyboardInterrupt:
            self._clear_bar()
            say("Stopped. Finished stages are kept: run it again to continue.", file=sys.stderr)
            return INTERRUPTED
        except Exception:
            self._clear_bar()
            # In DVC's form: without a traceback, unless DVC_SHOW_TRACEBACK is set.
            logging.getLogger("dvc").exception("")
        _advise()
        return WRONG_INPUT

    def close(self) -> None:
        """Ends the processes that wait for stages."""
        self._processes.close()

    def finish(self) -> None:
        """Prints how many stages ran."""
        unchanged = len(self.unchanged - set(self.ran))
        plural = "" if len(self.ran) == 1 else "s"
        duration = _clock(time.monotonic() - self.start)
        say(f"{len(self.ran)} stage{plural} ran in {duration}; {unchanged} were up to date.")
        if self.warnings:
            say("`farther doctor` has the warnings in full, and so has the report's first page.")

    def execute(self, stage: str, command: str | list[str], options: Mapping[str, Any]) -> int:
        """See `farther.dvc_repro.Watcher`."""
        options = {**options, "env": with_python(options["env"])}
        if self.on_terminal:
            err_read, err_write = open_terminal()
        else:
            err_read, err_write = os.pipe()
        out_read, out_write = os.pipe()
        LOGS.mkdir(parents=True, exist_ok=True)
        _log_file(stage).write_text("")

        try:
            with self._lock:
                if self._stopped.is_set():
                    raise KeyboardInterrupt
                started = self._processes.start(stage, command, options, out_write, err_write)
                self._running[stage] = _RunningStage(started)
        finally:
            os.close(out_write)
            os.close(err_write)

        try:
            for event in read_output({out_read: "out", err_read: "err"}, started.ended):
                with self._lock:
                    self._handle(stage, event)
            status = started.wait()
        finally:
            os.close(out_read)
            os.close(err_read)

        if status in INTERRUPTED_STATUSES:
            self._stopped.wait(GRACE)
        with self._lock:
            self._processes.give_back(started)
        return status

    def stop(self) -> None:
        """See `farther.dvc_repro.Watcher`."""
        self._stopped.set()
        with self._lock:
            for started in self._started():
                # A process that has just been started did not get the terminal's signal.
                started.interrupt()

    def kill(self) -> None:
        """See `farther.dvc_repro.Watcher`."""
        with self._lock:
            for started in self._started():
                started.kill()

    def _started(self) -> Iterator[Started]:
        """The processes of the stages that run."""
        for running in self._running.values():
            if running.started is not None:
                yield running.started

    def end(self, stage: str, outcome: str) -> None:
        """See `farther.dvc_repro.Watcher`."""
        with self._lock:
            self._clear_bar()
            if outcome == UNCHANGED:
                self.unchanged.add(stage)
                return
            self.ran.append(stage)
            running = self._running.pop(stage, None)
            if running is None:
                running = _RunningStage(printed=["taken from the cache"])
            if outcome == FAILED:
                if not self._stopped.is_set():  # else it was interrupted
                    self._print_failure(stage, running)
                return
            self._print_stage(stage, running)
            if stage in self.after:
                say(f"\n{self.after[stage]()}\n", flush=True)

    def _print_failure(self, stage: str, running: _RunningStage) -> None:
        for line in running.printed:
            say(line)
        title = f"{self._position()} {coloured(stage, 'wrong')}"
        say(f"{title}  failed after {running.seconds}; its output: {_log_file(stage)}")

    def _print_stage(self, stage: str, running: _RunningStage) -> None:
        """Prints the line of a stage, with its result if it printed one line, and its warnings."""
        result = ""
        if len(running.printed) == 1:
            result = running.printed[0]
        entry = stage.partition("@")[2]
        text = re.sub(rf"^({re.escape(entry)}|Report): ", "", result)
        line = f"{self._position()} {stage:<26} {running.seconds:>6}  {text}"
        say(_shorten(line.rstrip()), flush=True)
        for line in running.printed:
            if "warning:" in line.lower() and line != result and line not in self.warnings:
                self.warnings.append(line)
                say(_shorten(f"    {line}"), flush=True)

    def _handle(self, stage: str, event: Event) -> None:
        """Prints a line of a stage, stores it, or draws the stage's bar anew."""
        running = self._running[stage]
        if event.kind != "line":
            if event.kind == "bar":
                running.bar = event.text
            if self.on_terminal:
                self._draw_bar(stage, running)
            return
        self._clear_bar()
        with _log_file(stage).open("a", encoding="utf-8") as file:
            file.write(f"{printable(event.text)}\n")
        if event.text.startswith("Traceback"):  # it may be that of Ctrl-C
            self._stopped.wait(LOOK)
        if self._stopped.is_set():
            return
        if event.source == "err":
            say(event.text, file=sys.stderr, flush=True)
        else:
            running.printed.append(event.text)

    def _position(self) -> str:
        """Number of stages that ended, and the time since the start."""
        total = f"/{self.stages}" if self.stages else ""
        return f"{len(self.ran):>3}{total}  {_clock(time.monotonic() - self.start):>5} "

    def _draw_bar(self, stage: str, running: _RunningStage) -> None:
        """Draws the bar of one of the stages that run, and the names of the others."""
        names = [stage, *(name for name in self._running if name != stage)]
        line = f"{self._position()} {' + '.join(names)}  {running.bar or running.seconds}"
        sys.stderr.write(f"\r\033[K{printable(line)[: width() - 1]}")
        sys.stderr.flush()

    def _clear_bar(self) -> None:
        if self.on_terminal:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


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
        next_step("correct it, then farther repro again; finished stages are kept")


def _log_file(stage: str) -> Path:
    return LOGS / f"{stage.replace('/', '_')}.log"


def _shorten(line: str) -> str:
    """A line of at most `COLUMNS` columns on a terminal; elsewhere, as in files, the whole line."""
    if len(line) <= COLUMNS or not sys.stdout.isatty():
        return line
    return f"{line[: COLUMNS - 1]}…"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"
