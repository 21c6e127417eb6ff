"""Processes that stages run in: their own, or one that runs stages of a kind one after the other."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from farther.pipeline.stages import stage_of

#: Serves what is asked for: not imported here, as that takes a third of a second.
SERVER = "farther.pipeline.in_turn"
#: A group, and the cores of the processes.
Kind = tuple[str, tuple[int, ...]]


@dataclass
class Started:
    """A process in which a stage runs.

    Args:
        process: The process.
        kind: Which stages it could run afterwards; None where it ends with this one.
        parent: Where it is asked to, and answers.
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
        if answer := self.parent.recv(1):
            self.is_idle = True
            return answer[0]
        return self.process.wait() or 1  # it was killed

    def close(self) -> None:
        """Ends the process."""
        if self.parent is not None:
            self.parent.close()
        self.process.wait()


@dataclass
class Processes:
    """Starts processes for stages.

    Those of a group take one that is idle and has the same cores.
    """

    _idle: dict[Kind, list[Started]] = field(default_factory=dict)

    def start(
        self, stage: str, command: str | list[str], options: Mapping[str, Any], out: int, err: int
    ) -> Started:
        """Starts the command of a stage.

        Args:
            stage: Its name.
            command, options: What `subprocess.Popen` would take.
            out, err: Where it prints.
        """
        known_stage = stage_of(stage)
        group = None if known_stage is None else known_stage.process_group
        arguments = _arguments(command)
        if group is None or arguments is None or not hasattr(os, "sched_getaffinity"):
            return Started(subprocess.Popen(command, stdout=out, stderr=err, **options))
        kind = group, tuple(sorted(os.sched_getaffinity(0)))
        idle = [
            one for one in self._idle.pop(kind, []) if one.process.poll() is None
        ]  # memory may have run out
        started = idle.pop() if idle else _serving(kind, options["env"], out, err)
        self._idle[kind] = idle
        assert started.parent is not None
        said = json.dumps((arguments, options["cwd"], dict(options["env"]))).encode()
        socket.send_fds(started.parent, [len(said).to_bytes(8, "big")], [out, err])
        started.parent.sendall(said)
        return started

    def give_back(self, started: Started) -> None:
        """Keeps a process for other stages, if it can run them; otherwise waits for its end."""
        if started.kind is not None and started.is_idle:
            started.is_idle = False
            self._idle.setdefault(started.kind, []).append(started)
        else:
            started.close()

    def close(self) -> None:
        """Ends those that are idle."""
        for idle in self._idle.values():
            for started in idle:
                started.close()
        self._idle.clear()


def _serving(kind: Kind, environment: Mapping[str, str], out: int, err: int) -> Started:
    parent, child = socket.socketpair()
    with child:
        number = child.fileno()
        command = [sys.executable, "-m", SERVER, str(number)]
        process = subprocess.Popen(
            command, stdout=out, stderr=err, env=environment, pass_fds=[number]
        )
    return Started(process, kind, parent)


def _arguments(command: str | list[str]) -> list[str] | None:
    """What `python` is given by a command that does nothing else; None for others."""
    text = command if isinstance(command, str) else command[-1]
    words = shlex.shlex(text, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    try:
        python, *arguments = list(words)
    except ValueError:  # a quotation without an end, or nothing
        return None
    is_plain = python == "python" and arguments and not set(text) & set("$`\\|&;<>(){}*?[]~#!\n")
    return arguments if is_plain and arguments[0] != "-c" else None
