"""The engine on a Ray cluster: one worker per GPU (or per core), the same shards, the same bytes.

A worker is a Ray actor that holds the network. It takes one shard after the other from the *queue*,
an actor beside the driver, and writes each shard itself, so that no rows travel. All machines must
therefore see the project's folder, the images and the checkpoint under the same paths. When a
worker is lost, with its process or its machine, its shards go back to the queue, and a new worker
is started as soon as the cluster has room for one. Machines that join are used from then on.
Workers wait for the next split of the same stage, so that only the first one pays for their start.

The workers are plain actors rather than an actor pool of Ray Data: with Ray 2.60 such a pool made
no further progress after a machine was lost.
"""

from __future__ import annotations

import os
import socket
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farther.code import digest_of
from farther.errors import FartherError, ParameterError, first_line

if TYPE_CHECKING:
    from farther.images.stream import Job

#: The run ends when this number of workers were lost over one shard: the shard itself is the cause.
LOSSES = 3


@dataclass(frozen=True)
class WorkerNeeds:
    """Cores, GPUs (1, or 0 for a network on the CPU) and worker processes of each worker."""

    cpus: int
    gpus: int
    processes: int

    def room(self, machines: Sequence[Mapping[str, float]]) -> int:
        """Number of workers for which machines have room; see `pool_for`."""
        needs = {"CPU": self.cpus, "GPU": self.gpus}
        return sum(
            min(int(machine.get(name, 0) // each) for name, each in needs.items() if each)
            for machine in machines
        )


def pool_for(
    machines: Sequence[Mapping[str, float]], device: str, processes: int | None
) -> WorkerNeeds:
    """What each worker of a cluster takes.

    Args:
        machines: Resources of each machine: numbers under "CPU" and "GPU".
        device: The model's. With "auto", machines with GPUs are used if there are any, or else all.
        processes: Worker processes of each; None takes what a GPU's share of its machine's cores
            allows, at most 8. On the CPU None is 0: each worker runs the network on one core, as a
            process of the local engine does.

    Raises:
        ParameterError: there is no such device, or no machine has room for one worker.
    """
    if ":" in device:
        raise ParameterError(
            f"device {device!r}: each worker on the cluster sees one GPU only; use 'cuda' or 'auto'"
        )
    with_gpu = [machine for machine in machines if machine.get("GPU", 0) >= 1]
    if device == "cuda" and not with_gpu:
        raise ParameterError(
            "device 'cuda': no machine of the cluster has a GPU; use 'auto' or 'cpu'"
        )
    if with_gpu and device in ("auto", "cuda"):
        share = min(int(machine.get("CPU", 0) // machine["GPU"]) for machine in with_gpu)
        processes = max(0, min(8, share - 1)) if processes is None else processes
        pool = WorkerNeeds(processes + 1, 1, processes)
    else:
        pool = WorkerNeeds(max(1, processes or 0), 0, processes or 0)
    if not pool.room(machines):
        found = (
            "; ".join(f"{m.get('CPU', 0):g} cores, {m.get('GPU', 0):g} GPUs" for m in machines)
            or "no machine"
        )
        raise ParameterError(
            f"a worker takes {pool.cpus} cores and {pool.gpus} GPUs, and no machine of the cluster has them ({found}). "
            "Set `workers` lower"
        )
    return pool


class Queue:
    """Hands out shards and records which worker has which."""

    def __init__(self, shards: Sequence[int]):
        self._waiting = deque(shards)
        self._held: dict[str, list[int]] = {}
        self._finished: list[int] = []

    def take(self, worker: str) -> int | None:
        """A shard for a worker; None when all are handed out."""
        if not self._waiting:
            return None
        shard = self._waiting.popleft()
        self._held.setdefault(worker, []).append(shard)
        return shard

    def finish(self, worker: str, shard: int) -> None:
        """A worker wrote a shard."""
        self._held[worker].remove(shard)
        self._finished.append(shard)

    def give_up(self, worker: str) -> list[int]:
        """Takes back the shards of a lost worker, in the order in which it took them; they are the next to be taken."""
        shards = self._held.pop(worker, [])
        self._waiting.extendleft(reversed(shards))
        return shards

    def finished(self, since: int) -> list[int]:
        """The shards that were finished, without the first `since`."""
        return self._finished[since:]

    def waiting(self) -> int:
        """Number of shards that no worker has."""
        return len(self._waiting)


class Worker:
    """Makes shards until there are no more, then waits for the next split."""

    def work(self, job: Job, queue: Any, name: str, processes: int, folder: Path) -> None:
        """Takes shards from the queue and writes them."""
        import ray

        _enter(folder)
        try:
            job.check()
        except FartherError as error:
            raise FartherError(f"machine {socket.gethostname()}: {error}") from None

        def taken() -> Iterator[int]:
            while (shard := ray.get(queue.take.remote(name))) is not None:
                yield shard

        with suppress(ray.exceptions.RayActorError):  # the queue ended: others finished all shards
            for shard in job.make(taken(), processes, lambda images: None):
                ray.get(queue.finish.remote(name, shard))


def make_on_cluster(job: Job, shards: Sequence[int], count: Callable[[int], Any]) -> None:
    """Makes shards on the cluster that this machine belongs to, or on this machine alone where there is none.

    The cluster is the one that `ray start` or the variable RAY_ADDRESS names. The connection stays
    until the process ends, and so do the workers with their cores and GPUs, for the next split.
    `count` takes the number of images of each finished shard.

    Raises:
        ParameterError: Ray is not installed, or see `pool_for`.
        FartherError: workers were lost again and again over one shard, or a machine does not see
            the project's folder or has another version of it.
    """
    if not shards:
        return
    ray = _connected()
    driver = _Driver(ray, job, shards)
    try:
        driver.run(count)
    except BaseException:
        driver.end_workers()
        raise
    finally:
        driver.end_queue()


#: Workers that wait for the next split, of one cluster and pool at a time: they keep the cores and
#: GPUs of that pool.
_kept: dict[tuple[str, str, WorkerNeeds], list[Any]] = {}


class _Driver:
    """Starts workers, and others in place of those that are lost."""

    def __init__(self, ray: Any, job: Job, shards: Sequence[int]):
        context = ray.get_runtime_context()
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            context.get_node_id(), soft=False
        )
        self._ray = ray
        self._job = job
        self._sent = ray.put(job)
        self._shards = shards
        self._pool = pool_for(self._machines(), job.model.device, job.plan.params.workers)
        self._kept = _kept_workers(ray, (context.get_node_id(), context.get_job_id(), self._pool))
        self._queue = (
            ray.remote(Queue).options(num_cpus=0, scheduling_strategy=here).remote(list(shards))
        )
        self._running: dict[Any, tuple[str, Any]] = {}
        self._started = 0
        self._losses: Counter[int | None] = Counter()
        self._most = 0

    def run(self, count: Callable[[int], Any]) -> None:
        """Waits for all shards."""
        done = 0
        while done < len(self._shards):
            self._start(len(self._shards) - done)
            ended, _ = self._ray.wait(list(self._running), timeout=1)
            for answer in ended:
                self._end(answer)
            finished = self._ray.get(self._queue.finished.remote(done))
            done += len(finished)
            for shard in finished:
                count(len(self._job.plan.rows(shard)))
        self._kept += [actor for _, actor in self._running.values()]

    def end_workers(self) -> None:
        """Ends all workers."""
        for actor in [*self._kept, *(actor for _, actor in self._running.values())]:
            self._ray.kill(actor)
        self._kept.clear()

    def end_queue(self) -> None:
        """Ends the queue."""
        self._ray.kill(self._queue)

    def _machines(self) -> list[dict[str, float]]:
        return [machine["Resources"] for machine in self._ray.nodes() if machine["Alive"]]

    def _start(self, unfinished: int) -> None:
        """Starts workers for which there are shards, and room: on machines that joined, too."""
        if not self._ray.get(self._queue.waiting.remote()):
            return
        options = {
            "num_cpus": self._pool.cpus,
            "num_gpus": self._pool.gpus,
            "max_restarts": 0,
            "max_task_retries": 0,
        }
        while len(self._running) < min(max(1, self._pool.room(self._machines())), unfinished):
            actor = (
                self._kept.pop(0)
                if self._kept
                else self._ray.remote(Worker).options(**options).remote()
            )
            name = str(self._started)
            self._started += 1
            answer = actor.work.remote(
                self._sent, self._queue, name, self._pool.processes, Path.cwd()
            )
            self._running[answer] = name, actor
        self._most = max(self._most, len(self._running) + len(self._kept))

    def _end(self, answer: Any) -> None:
        """Handles a worker that is done, raised an error, or is lost."""
        name, actor = self._running.pop(answer)
        try:
            self._ray.get(answer)
            self._kept.append(actor)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, FartherError) else error from None
        except self._ray.exceptions.RayError as error:
            self._ray.kill(actor)
            self._give_up(name, error)

    def _give_up(self, name: str, error: Exception) -> None:
        # The first of its shards is the one that it was making; the others it only had taken ahead.
        shards = self._ray.get(self._queue.give_up.remote(name))
        culprit = shards[0] if shards else None
        self._losses[culprit] += 1
        # A machine that is lost may take all workers with it that have no shard.
        if self._losses[culprit] == (LOSSES + self._most if culprit is None else LOSSES):
            what = "before they took a shard" if culprit is None else f"over shard {culprit}"
            raise FartherError(
                f"{self._losses[culprit]} workers were lost {what}, most likely for lack of memory: rerun with fewer "
                f"workers or smaller batches (finished work is kept). The last one: {first_line(error)}"
            )


def _kept_workers(ray: Any, key: tuple[str, str, WorkerNeeds]) -> list[Any]:
    """The workers that wait, after ending those that take other cores and GPUs."""
    for other in [other for other in _kept if other != key]:
        workers = _kept.pop(other)
        if other[:2] == key[:2]:  # or else they ended with their cluster
            for actor in workers:
                ray.kill(actor)
    return _kept.setdefault(key, [])


def _connected() -> Any:
    """Ray, connected to the existing cluster, or to a new one on this machine alone."""
    try:
        import ray
    except ImportError as error:
        raise ParameterError("engine 'ray' needs Ray: pip install 'farther[ray]'") from error
    import ray.util.scheduling_strategies

    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level="error")
    return ray


def call_on_cluster(
    module: str,
    name: str,
    *arguments: Any,
    gigabytes: float,
    variables: Mapping[str, str] | None = None,
) -> Any:
    """Calls a function on a machine of the cluster that has a core and memory left, in the same folder.

    A call whose process or machine is lost is made again, on another machine if need be, `LOSSES`
    times in all.

    Args:
        module, name: Of the function; what it writes must be such that another call can go on from
            there.
        arguments: Its arguments.
        gigabytes: Memory that is reserved for it.
        variables: Environment variables that it gets.

    Raises:
        ParameterError: Ray is not installed, or no machine has this memory.
        FartherError: raised by the function, or it was lost again and again, or see
            `make_on_cluster`.
    """
    ray = _connected()
    memory = int(gigabytes * 2**30)
    most = max(
        (machine["Resources"].get("memory", 0) for machine in ray.nodes() if machine["Alive"]),
        default=0,
    )
    if memory > most:
        found = f"the largest machine of the cluster has {most / 2**30:.1f}"
        raise ParameterError(f"evaluate.memory: {gigabytes:g} GiB are asked for, {found}")
    options: dict[str, Any] = {"num_cpus": 1, "memory": memory, "max_retries": LOSSES - 1}
    if variables:
        options["runtime_env"] = {"env_vars": dict(variables)}
    called = ray.remote(_called).options(**options)
    try:
        return ray.get(called.remote(module, name, arguments, Path.cwd(), digest_of(module)))
    except ray.exceptions.RayTaskError as error:
        raise error.cause if isinstance(error.cause, FartherError) else error from None
    except ray.exceptions.RayError as error:
        problem = "most likely for lack of memory: rerun with a larger evaluate.memory (finished work is kept)"
        raise FartherError(
            f"lost {LOSSES} times, {problem}. The last time: {first_line(error)}"
        ) from None


def _called(module: str, name: str, arguments: Sequence[Any], folder: Path, code: str) -> Any:
    _enter(folder)
    if digest_of(module) != code:
        problem = "has another version of farther. Give all machines the same environment and files"
        raise FartherError(f"machine {socket.gethostname()}: {problem}")
    return getattr(import_module(module), name)(*arguments)


def _enter(folder: Path) -> None:
    if not folder.is_dir():
        problem = f"the folder {folder}, where the run was started, does not exist on machine {socket.gethostname()}"
        raise FartherError(
            f"{problem}: all machines of the cluster must see it under the same path"
        )
    os.chdir(folder)
