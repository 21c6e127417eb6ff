"""Works on the runs of a stage side by side: in processes here, or on the machines of a cluster."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass

from farther.errors import FartherError, choose
from farther.incremental.keyed import FORCE, is_forced, write_empty
from farther.naming.registry import STRICT, Parameters, build
from farther.params import read_params, section, snapshot, use_snapshot
from farther.processes import count_cores, follow_parent, free_memory
from farther.stage import explained, shows_tracebacks
from farther.tables.folders import files_below
from farther.text.terminal import say

GIB = 2**30
REGIONS = Path("artifacts/regions")

#: Memory that a run takes: for the libraries, and per byte of its stored regions. An evaluation of
#: 20,000 images with 30 detections each takes 3 GiB.
LIBRARIES = 1.0
PER_BYTE = 4

#: Environment variables by which libraries take the number of their threads.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")

#: Environment variable: the number of jobs, in the place of that in section `resources`.
JOBS = "FARTHER_JOBS"

#: Endings of the outputs of a run: of a folder, and of files.
ENDINGS = ("", ".json", ".parquet", ".csv")


@checked_dataclass(config=STRICT, kw_only=True)
class Resources(Parameters):
    """Where the stages that work on all runs do so. No result depends on it.

    Args:
        jobs: Runs that are worked on at the same time; by default, one per core where their memory
            suffices.
        engine: "local", or "ray": each run is worked on by a machine of a Ray cluster.
        memory: Memory in GiB that a run takes; by default, it is estimated from the size of its
            regions. A cluster reserves it.
    """

    jobs: int | None = Field(default=None, ge=1)
    engine: Literal["local", "ray"] = "local"
    memory: float | None = Field(default=None, gt=0)


@dataclass(frozen=True)
class RunResult:
    """What working on a run gave.

    Args:
        run: Name of the run.
        summary: A line for the user.
        problem: Why it failed; None where it did not.
        trace: The traceback of an unexpected error.
    """

    run: str
    summary: str = ""
    problem: str | None = None
    trace: str = ""


def work_on_runs(
    module: str, names: Sequence[str], outputs: Collection[str], *, one_at_a_time: bool = False
) -> None:
    """Calls the function `work` of a module for runs, and prints a line for each.

    A run that fails does not keep others from being finished.

    Args:
        module: One of `farther.pipeline.runs`.
        names: Names of the runs; all of params.yaml where there are none. Then what is stored of
            other runs is deleted.
        outputs: Folders with a file or folder per run, which are made.
        one_at_a_time: Whether runs share something that suffices for one of them: a GPU.

    Raises:
        FartherError: a run failed; names all that did.
        ParameterError: section `resources` is wrong, or params.yaml has no run of a name.
    """
    resources = read_resources()
    for name in names:
        choose("run", name, section("detectors"))
    runs = list(names) or list(section("detectors"))
    for output in outputs:
        Path(output).mkdir(parents=True, exist_ok=True)
        if not names:
            delete_others(Path(output), runs)

    jobs = 1
    if not one_at_a_time:
        jobs = usual_jobs(runs, resources)
    failed = {}
    for result in _results(module, runs, jobs, resources):
        if result.problem is None:
            say(f"{result.run}: {result.summary}", flush=True)
        else:
            failed[result.run] = result

    for output in outputs:
        folder = Path(output)
        if not any(folder.iterdir()):
            write_empty(folder)
    if failed:
        raise FartherError(_problem(failed, len(runs)))


def read_resources() -> Resources:
    """Section `resources` of params.yaml.

    Raises:
        ParameterError: it is wrong.
    """
    return build(Resources, "params.yaml: resources", read_params().get("resources") or {})


def _problem(failed: Mapping[str, RunResult], number: int) -> str:
    """What is wrong with the runs that failed, and how many did not."""
    lines = []
    for run, result in sorted(failed.items()):
        lines.append(f"{run}: {result.problem}{result.trace}")
    others = number - len(failed)
    if others:
        lines.append(f"What was made of the other runs ({others}) is kept")
    return "\n".join(lines)


def delete_others(folder: Path, runs: Collection[str]) -> None:
    """Deletes the files and folders of runs that params.yaml no longer has."""
    kept = {f"{run}{ending}" for run in runs for ending in ENDINGS}
    for entry in folder.iterdir():
        if entry.name in kept:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def usual_jobs(runs: Sequence[str], resources: Resources) -> int:
    """Number of runs to work on at the same time, at least 1."""
    jobs = os.environ.get(JOBS) or resources.jobs
    if jobs is not None:
        return max(1, min(int(jobs), len(runs)))
    memory = max((memory_of(run, resources) for run in runs), default=LIBRARIES)
    of_memory = int(free_memory() / GIB / memory)
    return max(1, min(count_cores(), of_memory, len(runs)))


def memory_of(run: str, resources: Resources) -> float:
    """Memory in GiB that a run takes: that of the section `resources`, or an estimate."""
    if resources.memory is not None:
        return resources.memory
    folder = REGIONS / run
    size = 0
    if folder.is_dir():
        size = sum(file.stat().st_size for file in files_below(folder))
    return LIBRARIES + PER_BYTE * size / GIB


def _results(
    module: str, runs: Sequence[str], jobs: int, resources: Resources
) -> Iterator[RunResult]:
    """The result of each run, in the order in which they end."""
    if resources.engine == "ray":
        yield from _on_cluster(module, runs, resources)
    elif jobs == 1:
        for run in runs:
            yield call(module, run)
    else:
        yield from _in_processes(module, runs, jobs)


def call(module: str, run: str) -> RunResult:
    """Calls the function `work` of a module for a run; errors become a part of the result."""
    try:
        return RunResult(run, import_module(module).work(run))
    except Exception as error:
        problem = explained(error) or "an unexpected error"
        trace = ""
        if explained(error) is None or shows_tracebacks():
            trace = f"\n{traceback.format_exc()}"
        return RunResult(run, problem=problem, trace=trace)


def _in_processes(module: str, runs: Sequence[str], jobs: int) -> Iterator[RunResult]:
    """Results by processes that share the cores of this machine."""
    variables = dict.fromkeys(THREADS, str(max(1, count_cores() // jobs)))
    earlier = {name: os.environ.get(name) for name in variables}
    for name, value in variables.items():
        os.environ.setdefault(name, value)
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=(snapshot(),))
    try:
        futures = {pool.submit(call, module, run): run for run in runs}
        for future in as_completed(futures):
            yield _result(future, futures[future])
    except BaseException:  # Ctrl-C, too
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown()
        for name in variables:
            if earlier[name] is None:
                del os.environ[name]


def _begin(text: str) -> None:
    """Prepares a process of the pool.

    Args:
        text: The text of params.yaml that the stage works with.
    """
    follow_parent()
    use_snapshot(text)


def _result(future: Future[RunResult], run: str) -> RunResult:
    """The result of a run, whose process may have been killed."""
    try:
        return future.result()
    except BrokenProcessPool:
        problem = (
            "a process was killed, most likely for lack of memory: set a smaller `jobs`, or a "
            "larger `memory`, in section `resources` of params.yaml, and run it again"
        )
        return RunResult(run, problem=problem)


def _on_cluster(module: str, runs: Sequence[str], resources: Resources) -> Iterator[RunResult]:
    """Results by the machines of a Ray cluster, which has one task per run."""
    variables = {}
    if is_forced():
        variables[FORCE] = "1"
    with ThreadPoolExecutor(max(1, len(runs))) as pool:
        on_cluster = partial(_call_on_cluster, module, resources=resources, variables=variables)
        futures = {pool.submit(on_cluster, run): run for run in runs}
        for future in as_completed(futures):
            yield future.result()


def _call_on_cluster(
    module: str, run: str, *, resources: Resources, variables: Mapping[str, str]
) -> RunResult:
    """The result of a run by a machine of the cluster, which may be lost."""
    # It imports NumPy and Polars, which other executors do not need.
    from farther.images.ray import call_on_cluster

    memory = memory_of(run, resources)
    try:
        summary = call_on_cluster(module, "work", run, gigabytes=memory, variables=variables)
    except FartherError as error:
        return RunResult(run, problem=str(error))
    return RunResult(run, summary)
