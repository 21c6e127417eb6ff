"""`dvc repro` with several stages at the same time: those whose dependencies are up to date.

DVC determines what changed, and stores what stages make, for one stage at a time. The commands of
stages run side by side.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from farther.cores import has_gpu, keep_to_share
from farther.dvc_internals import (
    commands,
    make_command,
    named_stages,
    planned_stages,
    process_options,
)
from farther.dvc_lock import write_lock
from farther.dvc_path_locks import PathLocks
from farther.dvc_reads import Reads
from farther.pipeline.stages import stage_of

#: Outcomes of a stage.
MADE = "made"
UNCHANGED = "unchanged"
FAILED = "failed"
#: Seconds between two versions of dvc.lock.
PAUSE = 5.0
#: Seconds that stages have to end after an interruption, before the next one.
PATIENCE = 5.0
#: Interruptions after which stages that still run are killed.
INTERRUPTIONS = 2
#: Seconds between two looks for Ctrl-C: with Polars, which tables import, it does not interrupt
#: waits.
LOOK = 0.1
#: Name of the copy that DVC makes beside a file before it replaces a link by it.
COPY_OF_DVC = re.compile(r"\.[\w-]{22}\.tmp")


class Watcher(Protocol):
    """Runs the commands of stages, and is told their outcomes; several threads call it."""

    def execute(self, stage: str, command: str | list[str], options: Mapping[str, Any]) -> int:
        """Runs a command with options of `subprocess.Popen`; returns its exit status."""

    def stop(self) -> None:
        """Interrupts the commands that run, and starts no other."""

    def kill(self) -> None:
        """Kills the commands that run, with the processes that they have started."""

    def end(self, stage: str, outcome: str) -> None:
        """A stage ended: its outputs were made, also by taking them from DVC's cache.

        Or see `UNCHANGED`, `FAILED`.
        """


class ThreadSafeRepoLock:
    """DVC's lock of a project, made safe for threads: DVC's own excludes only other processes.

    Args:
        lock: DVC's.
    """

    def __init__(self, lock: Any):
        self._lock = lock
        self._thread_lock = threading.Lock()
        self._holder: int | None = None

    @property
    def is_locked(self) -> bool:
        """Whether the calling thread holds it."""
        return self._holder == threading.get_ident()

    def lock(self) -> None:
        """Waits until no other thread holds it.

        Raises:
            dvc.lock.LockError: another process holds it for some seconds.
        """
        self._thread_lock.acquire()
        try:
            self._lock.lock()
        except BaseException:
            self._thread_lock.release()
            raise
        self._holder = threading.get_ident()

    def unlock(self) -> None:
        """Releases it, if the calling thread holds it."""
        if self.is_locked:
            self._holder = None
            self._lock.unlock()
            self._thread_lock.release()

    def __enter__(self) -> None:
        self.lock()

    def __exit__(self, *_: object) -> None:
        self.unlock()


class Pipeline:
    """Stages of the project in the working directory, and those that they depend on.

    Args:
        targets: Names of stages; all where there are none.
        first: Names of stages that come, with what they depend on, before others that could run.
        force: Whether the targets run even if nothing changed; what they depend on runs only if it
            changed.

    Raises:
        dvc.exceptions.DvcException: dvc.yaml, dvc.lock or a target is wrong.
    """

    def __init__(
        self, targets: Sequence[str] = (), first: Sequence[str] = (), *, force: bool = False
    ):
        from dvc.repo import Repo

        # The lines and progress bars of DVC would mix with those of stages.
        logging.getLogger("dvc").setLevel(logging.WARNING)
        self._repo = Repo()
        planned = planned_stages(self._repo, targets)
        self._forced: set[Any] = set()
        if force and targets:
            self._forced.update(named_stages(self._repo, targets))
        elif force:
            self._forced.update(planned)
        #: Stages that have not begun, in the order in which they begin, each with the stages that
        #: it waits for.
        self._waiting: dict[Any, set[Any]] = {}
        for stage in _ordered(planned, first):
            self._waiting[stage] = set(planned[stage])
        self._lock = ThreadSafeRepoLock(self._repo.lock)
        self._repo.lock = self._lock
        self._reads = Reads()
        self._path_locks = PathLocks()
        #: Stages that run, each with the number of its share of the cores.
        self._running: dict[Any, int] = {}
        self._threads: list[threading.Thread] = []
        self._ended: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._unwritten: list[Any] = []
        self._written = time.monotonic()

    def run(self, watcher: Watcher, jobs: int) -> None:
        """Runs what changed.

        Args:
            watcher: Runs the commands.
            jobs: Largest number of stages at the same time. Each keeps to its share of the cores
                while others could run.

        Raises:
            dvc.exceptions.DvcException: a stage failed; those beside it ran to their end, and no
                other one was started.
        """
        from dvc.repo import lock_repo

        with ExitStack() as stack:
            stack.enter_context(lock_repo(self._repo))
            stack.enter_context(self._repo.scm_context(quiet=True))
            stack.enter_context(commands(partial(self._execute, watcher)))
            stack.enter_context(self._reads.keep(self._repo))
            stack.enter_context(self._path_locks.keep())
            _remove_copies_of_dvc(self._waiting)
            self._lock.unlock()
            failure = None
            try:
                while self._running or (self._waiting and failure is None):
                    if failure is None:
                        self._begin(watcher, jobs)
                    failure = self._finish() or failure
            except KeyboardInterrupt:
                self._stop(watcher)
                raise
            finally:
                self._lock.lock()
                self._write_lock()
        if failure is not None:
            raise failure

    def _begin(self, watcher: Watcher, jobs: int) -> None:
        """Starts all stages that can run now."""
        ready = []
        for stage, upstream in self._waiting.items():
            if not upstream:
                ready.append(stage)
        for stage in ready:
            free_numbers = set(range(jobs)) - set(self._running.values())
            if not free_numbers or not self._may_begin(stage):
                continue
            number = min(free_numbers)
            is_alone = not self._running and (_runs_alone(stage) or len(ready) == 1)
            parts = jobs
            if is_alone or _is_on_gpu(stage):
                parts = 1
            self._running[stage] = number
            del self._waiting[stage]
            # A daemon: a command that goes on after it was killed does not keep this process.
            thread = threading.Thread(
                target=self._work, args=(stage, watcher, number % parts, parts), daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _may_begin(self, stage: Any) -> bool:
        """Whether a stage can run beside those that run now."""
        if self._running and _runs_alone(stage):
            return False
        if any(_runs_alone(running) for running in self._running):
            return False
        if not _is_on_gpu(stage):
            return True
        return not any(_is_on_gpu(running) for running in self._running)

    def _finish(self) -> Exception | None:
        """Waits until a stage has ended.

        Returns:
            The error of a stage that failed, else None.
        """
        from dvc.exceptions import ReproductionError

        ended = None
        while ended is None:
            with suppress(Empty):
                ended = self._ended.get(timeout=LOOK)
        stage, error = ended
        del self._running[stage]
        for upstream in self._waiting.values():
            upstream.discard(stage)
        if error is None:
            return None
        failure = ReproductionError(f"failed to reproduce '{stage.addressing}'")
        failure.__cause__ = error
        return failure

    def _stop(self, watcher: Watcher) -> None:
        """Stops the running stages.

        Those that go on are interrupted again, as Python loses a signal while it starts; then, or
        at another Ctrl-C, they are killed.
        """
        try:
            for _ in range(INTERRUPTIONS):
                watcher.stop()
                if self._have_ended():
                    return
        except KeyboardInterrupt:
            pass
        watcher.kill()
        self._have_ended()

    def _have_ended(self) -> bool:
        """Whether all stages have ended; waits for them, but no longer than `PATIENCE`."""
        for _ in range(round(PATIENCE / LOOK)):
            running = [thread for thread in self._threads if thread.is_alive()]
            if not running:
                return True
            running[0].join(LOOK)
        return False

    def _work(self, stage: Any, watcher: Watcher, number: int, parts: int) -> None:
        """Reproduces a stage on its share of the cores."""
        outcome = FAILED
        error = None
        try:
            keep_to_share(number, parts)
            outcome = self._reproduce(stage)
        except BaseException as caught:
            error = caught
        try:
            watcher.end(stage.addressing, outcome)
        except BaseException as caught:
            error = error or caught
        self._ended.put((stage, error))

    def _reproduce(self, stage: Any) -> str:
        """Reproduces a stage; returns its outcome."""
        with self._lock:
            self._reads.forget_hashes()
            if stage.reproduce(force=stage in self._forced) is None:
                return UNCHANGED
            self._unwritten.append(stage)
            if time.monotonic() - self._written > PAUSE:
                self._write_lock()
        return MADE

    def _write_lock(self) -> None:
        """Writes the outputs of all stages that are not in dvc.lock yet."""
        stages_by_file = defaultdict(list)
        for stage in self._unwritten:
            stages_by_file[stage.dvcfile].append(stage)
        self._unwritten = []
        for file, stages in stages_by_file.items():
            write_lock(file, stages)
        self._written = time.monotonic()

    def _execute(self, watcher: Watcher, stage: Any, **options: Any) -> None:
        """Runs the command of a stage without the lock, in the place of `dvc.stage.run.cmd_run`.

        DVC records dependencies as they are at the end. After a `git checkout` meanwhile, it would
        record outputs of the earlier dependencies as current.
        """
        from dvc.exceptions import DvcException
        from dvc.stage.exceptions import StageCmdFailedError

        from farther.keyed import FORCE

        states_before = _dependencies(stage)
        commands_of_stage = stage.cmd
        if isinstance(stage.cmd, str):
            commands_of_stage = stage.cmd.splitlines()
        with self._path_locks.in_file(), self._unlocked():
            for command in commands_of_stage:
                popen_options = process_options(stage, options.get("run_env"))
                if stage in self._forced:
                    popen_options["env"][FORCE] = "1"
                status = watcher.execute(stage.addressing, make_command(command), popen_options)
                if status != 0:
                    raise StageCmdFailedError(command, status)

        changed = []
        for name, state in _dependencies(stage).items():
            if state != states_before.get(name):
                changed.append(name)
        if changed:
            problem = "changed while the stage ran, so its results are not recorded; run it again"
            raise DvcException(f"{', '.join(changed)} {problem}")

    @contextmanager
    def _unlocked(self) -> Iterator[None]:
        """Releases DVC's lock of the project, and takes it again afterwards."""
        self._lock.unlock()
        try:
            yield
        finally:
            self._lock.lock()
            self._reads.forget_hashes()


def _dependencies(stage: Any) -> dict[str, Any]:
    """Hash of each dependency of a stage; values of the parameters of a file of parameters."""
    stage.save_deps(allow_missing=True)
    states: dict[str, Any] = {}
    for dependency in stage.deps:
        value = None
        if dependency.hash_info:
            value = dependency.hash_info.value
        if not isinstance(value, dict):
            states[str(dependency)] = value
            continue
        for name, parameter in value.items():
            if name:
                states[f"{dependency}: {name}"] = parameter
            else:
                states[str(dependency)] = parameter
    return states


def _remove_copies_of_dvc(stages: Iterable[Any]) -> None:
    """Deletes the copies that a killed DVC left beside or in the outputs of stages.

    DVC itself never does.
    """
    folders: set[Path] = set()
    for stage in stages:
        for output in stage.outs:
            path = Path(output.fs_path)
            folders.add(path.parent)
            for name, _, _ in os.walk(path):
                folders.add(Path(name))
    for folder in folders:
        for file in folder.glob(".*.tmp"):
            if COPY_OF_DVC.fullmatch(file.name):
                file.unlink(missing_ok=True)


def _runs_alone(stage: Any) -> bool:
    """Whether no stage runs beside this one, because it measures a GPU's times by the clock."""
    known_stage = stage_of(stage.addressing)
    return known_stage is not None and known_stage.runs_alone and has_gpu()


def _is_on_gpu(stage: Any) -> bool:
    """Whether a stage uses a GPU of this machine: such stages run one at a time, on all cores."""
    known_stage = stage_of(stage.addressing)
    return known_stage is not None and known_stage.uses_gpu and has_gpu()


def _ordered(planned: Mapping[Any, Sequence[Any]], first: Sequence[str]) -> list[Any]:
    """Stages in the order in which they begin.

    Args:
        planned: The stages that each stage depends on.
        first: Names of stages that begin, with those that they depend on, before others.
    """
    named = [stage for stage in planned if stage.addressing in first]
    early_stages = _with_upstream(named, planned)
    first_stages = []
    long_stages = []
    others = []
    for stage in planned:
        known_stage = stage_of(stage.addressing)
        if stage in early_stages:
            first_stages.append(stage)
        elif known_stage is not None and known_stage.begins_early:
            long_stages.append(stage)
        else:
            others.append(stage)
    return [*first_stages, *long_stages, *others]


def _with_upstream(stages: Iterable[Any], planned: Mapping[Any, Sequence[Any]]) -> set[Any]:
    """Stages and all that they depend on."""
    with_upstream: set[Any] = set()
    queue = list(stages)
    while queue:
        stage = queue.pop()
        if stage not in with_upstream:
            with_upstream.add(stage)
            queue += planned[stage]
    return with_upstream
