"""Processes that stages run in: their own, or one that runs a group's stages one by one."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psutil

from farther.pipeline.stages import stage_of

#: The module that runs stages on request: not imported here, which takes a third of a second.
SERVER = "farther.pipeline.stage_server"
#: The group whose stages come first and last, and what a process of it imports before it is needed:
#: the modules of these two.
PREPARED_GROUP = "tables"
PREPARED_MODULES = ("farther.pipeline.code_digests", "farther.pipeline.report")
#: Characters by which a shell does more than to start a program.
SHELL_CHARACTERS = frozenset("$`\\|&;<>(){}*?[]~#!\n")
#: A group, and the cores of the processes.
Kind = tuple[str, tuple[int, ...]]


@dataclass
class Started:
    """A process in which a stage runs.

    Args:
        process: The process.
        kind: The stages that it can run afterwards; None where it ends with this one.
        parent: The socket through which it gets requests, and answers them.
        is_idle: Whether its stage has ended, so that it can run another.
    """

    process: subprocess.Popen[bytes]
    kind: Kind | None = None
    parent: socket.socket | None = None
    is_idle: bool = False

    @property
    def ended(self) -> int | None:
        """A file that can be read once the stage has ended; None where its process ends, too."""
        return None if self.parent is None else self.parent.fileno()

    def wait(self) -> int:
        """The exit status of the stage."""
        if self.parent is None:
            return self.process.wait()
        answer = self.parent.recv(1)
        if answer:
            self.is_idle = True
            return answer[0]
        return self.process.wait() or 1  # it was killed

    def interrupt(self) -> None:
        """Interrupts the process, as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """Kills the process, and those that it has started."""
        try:
            process = psutil.Process(self.process.pid)
            others = process.children(recursive=True)
        except psutil.NoSuchProcess:
            return
        for other in (process, *others):
            with suppress(psutil.NoSuchProcess):
                other.kill()

    def dismiss(self) -> None:
        """Has the process end once it has nothing to do."""
        if self.parent is not None:
            self.parent.close()

    def close(self) -> None:
        """Ends the process."""
        self.dismiss()
        self.process.wait()


@dataclass
class Processes:
    """Starts processes for stages.

    Those of a group take one that is idle and has the same cores.
    """

    _idle: dict[Kind, list[Started]] = field(default_factory=dict)

    def prepare(self, environment: Mapping[str, str]) -> None:
        """Starts a process for stages of `PREPARED_GROUP` that run alone.

        It imports their packages while DVC finds out what changed.

        Args:
            environment: Environment variables of stages.
        """
        kind = _kind(PREPARED_GROUP)
        if kind is None:
            return
        nowhere = subprocess.DEVNULL
        started = _start_server(kind, environment, nowhere, nowhere, PREPARED_MODULES)
        self._idle.setdefault(kind, []).append(started)

    def start(
        self, stage: str, command: str | list[str], options: Mapping[str, Any], out: int, err: int
    ) -> Started:
        """Starts the command of a stage.

        Args:
            stage: Its name.
            command, options: Arguments of `subprocess.Popen`.
            out, err: File descriptors that it prints to.
        """
        known_stage = stage_of(stage)
        kind = None
        if known_stage is not None:
            kind = _kind(known_stage.process_group)
        arguments = _arguments(command)
        if kind is None or arguments is None:
            return Started(subprocess.Popen(command, stdout=out, stderr=err, **options))
        started = self._take_idle(kind)
        if started is None:
            started = _start_server(kind, options["env"], out, err)
        assert started.parent is not None
        request = json.dumps((arguments, options["cwd"], dict(options["env"]))).encode()
        socket.send_fds(started.parent, [len(request).to_bytes(8, "big")], [out, err])
        started.parent.sendall(request)
        return started

    def _take_idle(self, kind: Kind) -> Started | None:
        """The last idle process of a kind that still runs, which is then no longer idle."""
        idle = self._idle.get(kind, [])
        while idle:
            started = idle.pop()
            if started.process.poll() is None:  # else memory may have run out
                return started
        return None

    def give_back(self, started: Started) -> None:
        """Keeps a process for other stages, if it can run them; otherwise waits for its end."""
        if started.kind is not None and started.is_idle:
            started.is_idle = False
            self._idle.setdefault(started.kind, []).append(started)
        else:
            started.close()

    def close(self) -> None:
        """Ends those that are idle."""
        idle = [started for processes in self._idle.values() for started in processes]
        self._idle.clear()
        for started in idle:
            started.dismiss()
        for started in idle:
            started.close()


def _kind(group: str | None) -> Kind | None:
    """The kind of process for stages of a group that run on the cores of the calling thread.

    Returns:
        None where these have a process of their own each time.
    """
    if group is None or not hasattr(os, "sched_getaffinity"):
        return None
    return group, tuple(sorted(os.sched_getaffinity(0)))


def _start_server(
    kind: Kind, environment: Mapping[str, str], out: int, err: int, modules: Sequence[str] = ()
) -> Started:
    """Starts a process that runs stages of a kind on request, and imports modules before."""
    parent, child = socket.socketpair()
    with child:
        number = child.fileno()
        command = [sys.executable, "-m", SERVER, str(number), *modules]
        process = subprocess.Popen(
            command, stdout=out, stderr=err, env=environment, pass_fds=[number]
        )
    return Started(process, kind, parent)


def _arguments(command: str | list[str]) -> list[str] | None:
    """The arguments of `python` in a command that does nothing else; None for other commands."""
    text = command if isinstance(command, str) else command[-1]
    if set(text) & SHELL_CHARACTERS:
        return None
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a quotation without an end
        return None
    if len(words) < 2 or words[0] != "python" or words[1] == "-c":
        return None
    return words[1:]
