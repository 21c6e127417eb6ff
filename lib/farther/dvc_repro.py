"""`dvc repro` with several stages at the same time: those that have all that they depend on.

DVC says what changed, and keeps what stages make. It does so for one stage at a time; their commands run side by side.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from farther.cores import has_gpu, keep_to_share

#: What became of a stage.
MADE, UNCHANGED, FAILED = "made", "unchanged", "failed"
#: Stages that use a GPU where there is one: then one of them at a time, on all cores.
ON_GPU = ("infer", "embed")
#: Stages that measure times: nothing runs beside them.
ALONE = ("cost",)
#: Seconds between two versions of dvc.lock: DVC takes half a second for each.
PAUSE = 5.0
#: Seconds that stages have for their end after an interruption, before the next.
PATIENCE = 5.0


class Watcher(Protocol):
    """Runs the commands of stages, and is told what became of these; several threads call it."""

    def execute(self, stage: str, command: str | list[str], options: Mapping[str, Any]) -> int:
        """Runs a command with options of `subprocess.Popen`; returns its exit status."""

    def stop(self) -> None:
        """Interrupts the commands that run, and starts no other."""

    def end(self, stage: str, outcome: str) -> None:
        """A stage ended: its outputs were made, also by taking them from DVC's cache; or see `UNCHANGED`, `FAILED`."""


class Turns:
    """DVC's lock of a project, which keeps other processes away, for the threads of this one.

    Args:
        lock: DVC's.
    """

    def __init__(self, lock: Any):
        self._lock = lock
        self._turn = threading.Lock()
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
        self._turn.acquire()
        try:
            self._lock.lock()
        except BaseException:
            self._turn.release()
            raise
        self._holder = threading.get_ident()

    def unlock(self) -> None:
        """Gives it back, if the calling thread holds it."""
        if self.is_locked:
            self._holder = None
            self._lock.unlock()
            self._turn.release()

    def __enter__(self) -> None:
        self.lock()

    def __exit__(self, *_: object) -> None:
        self.unlock()


class Pipeline:
    """Stages of the project in the working directory, and those that they depend on.

    Args:
        targets: Names of stages; all where there are none.
        first: Names of stages that come, with what they depend on, before others that could run.

    Raises:
        dvc.exceptions.DvcException: dvc.yaml, dvc.lock or a target is wrong.
    """

    def __init__(self, targets: Sequence[str] = (), first: Sequence[str] = ()):
        from dvc.repo import Repo

        logging.getLogger("dvc").setLevel(logging.WARNING)  # its lines and bars would mix with those of stages
        self._repo = Repo()
        planned: dict[Any, list[Any]] = {}

        def plan(stage: Any, upstream: list[Any], **_: Any) -> None:
            planned[stage] = upstream

        self._repo.reproduce(list(targets) or None, repro_fn=plan)  # DVC's order; nothing runs
        early = _with_upstream((stage for stage in planned if stage.addressing in first), planned)
        self._waiting = {stage: set(planned[stage]) for stage in sorted(planned, key=lambda stage: stage not in early)}
        self._repo.lock = self._turns = Turns(self._repo.lock)
        self._running: dict[Any, int] = {}
        self._threads: list[threading.Thread] = []
        self._ended: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._unwritten: list[Any] = []
        self._written = time.monotonic()

    def run(self, watcher: Watcher, jobs: int) -> None:
        """Runs what changed.

        Args:
            watcher: Runs the commands.
            jobs: Most stages at the same time. Each keeps to its share of the cores while others could run.

        Raises:
            dvc.exceptions.DvcException: a stage failed; those beside it came to their end, and no other was begun.
        """
        from dvc.repo import lock_repo

        commands = _commands(partial(self._execute, watcher))
        with lock_repo(self._repo), self._repo.scm_context(quiet=True), commands:
            self._turns.unlock()
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
                self._turns.lock()
                self._write_lock()
        if failure is not None:
            raise failure

    def _begin(self, watcher: Watcher, jobs: int) -> None:
        """Starts all stages that can run now."""
        ready = [stage for stage, others in self._waiting.items() if not others]
        for stage in ready:
            free = sorted(set(range(jobs)) - set(self._running.values()))
            kind, beside = _kind(stage), {_kind(other) for other in self._running}
            on_gpu = kind in ON_GPU and has_gpu()
            waits = (beside and kind in ALONE) or beside.intersection(ALONE) or (on_gpu and beside.intersection(ON_GPU))
            if not free or waits:
                continue
            is_alone = not beside and (kind in ALONE or len(ready) == 1)
            self._running[stage] = free[0]
            del self._waiting[stage]
            parts = 1 if on_gpu or is_alone else jobs
            self._threads.append(threading.Thread(target=self._work, args=(stage, watcher, free[0] % parts, parts)))
            self._threads[-1].start()

    def _finish(self) -> Exception | None:
        """Waits until a stage ended; the error of one that failed."""
        from dvc.exceptions import ReproductionError

        ended = None
        while ended is None:
            with suppress(Empty):  # Polars, which a table imports, has waits without an end go on after Ctrl-C
                ended = self._ended.get(timeout=1.0)
        stage, error = ended
        del self._running[stage]
        for others in self._waiting.values():
            others.discard(stage)
        if error is None:
            return None
        failure = ReproductionError(f"failed to reproduce '{stage.addressing}'")
        failure.__cause__ = error
        return failure

    def _stop(self, watcher: Watcher) -> None:
        """Stops the stages that run, and asks again those that did not hear: Python loses a signal while it starts."""
        running = self._threads
        while running:
            watcher.stop()
            end = time.monotonic() + PATIENCE
            for thread in running:
                thread.join(max(0.0, end - time.monotonic()))
            running = [thread for thread in running if thread.is_alive()]

    def _work(self, stage: Any, watcher: Watcher, number: int, parts: int) -> None:
        """Reproduces a stage on some of the cores."""
        outcome, error = FAILED, None
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
        with self._turns:
            if stage.reproduce() is None:
                return UNCHANGED
            self._unwritten.append(stage)
            if time.monotonic() - self._written > PAUSE:
                self._write_lock()
        return MADE

    def _write_lock(self) -> None:
        """Writes what stages made into dvc.lock, of several at once."""
        unwritten, self._unwritten = self._unwritten, []
        for file in {stage.dvcfile for stage in unwritten}:
            file.dump_stages([stage for stage in unwritten if stage.dvcfile == file], update_pipeline=False)
        self._written = time.monotonic()

    def _execute(self, watcher: Watcher, stage: Any, **options: Any) -> None:
        """Runs the command of a stage, as `dvc.stage.run.cmd_run` does, while other stages have their turn.

        DVC records dependencies as they are at the end: after a `git checkout` meanwhile, it would take outputs of the
        earlier ones for current.
        """
        from dvc.exceptions import DvcException
        from dvc.stage.exceptions import StageCmdFailedError
        from dvc.stage.run import _make_cmd, get_executable, prepare_kwargs

        earlier = _dependencies(stage)
        self._turns.unlock()
        try:
            for command in stage.cmd if isinstance(stage.cmd, list) else stage.cmd.splitlines():
                started = prepare_kwargs(stage, run_env=options.get("run_env"))
                if status := watcher.execute(stage.addressing, _make_cmd(get_executable(), command), started):
                    raise StageCmdFailedError(command, status)
        finally:
            self._turns.lock()
        later = _dependencies(stage)
        if changed := [name for name in later if later[name] != earlier.get(name)]:
            problem = "changed while the stage ran, so its results are not recorded; run it again"
            raise DvcException(f"{', '.join(changed)} {problem}")


@contextmanager
def _commands(execute: Callable[..., None]) -> Iterator[None]:
    """Has DVC call a function in place of the one that runs a stage's command without the lock."""
    from dvc.stage import run

    usual = run.unlocked_repo
    run.unlocked_repo = lambda _: execute
    try:
        yield
    finally:
        run.unlocked_repo = usual


def _dependencies(stage: Any) -> dict[str, Any]:
    """State of each dependency; of a file of parameters, of each of those that the stage takes."""
    stage.save_deps(allow_missing=True)
    found: dict[str, Any] = {}
    for one in stage.deps:
        value = one.hash_info.value if one.hash_info else None
        parts = value if isinstance(value, dict) else {"": value}
        found |= {f"{one}: {name}" if name else str(one): part for name, part in parts.items()}
    return found


def _kind(stage: Any) -> str:
    return str(stage.addressing).partition("@")[0]


def _with_upstream(stages: Iterable[Any], planned: Mapping[Any, Sequence[Any]]) -> set[Any]:
    """Stages and all that they depend on."""
    found: set[Any] = set()
    queue = list(stages)
    while queue:
        if (stage := queue.pop()) not in found:
            found.add(stage)
            queue += planned[stage]
    return found
