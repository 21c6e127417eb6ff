"""The engine on a Ray cluster: one worker per GPU (or per core), the same shards, the same bytes.

A worker is a Ray actor that holds the network. It takes one shard after the other from the *queue*,
an actor beside the driver, and writes each shard itself, so that no rows travel. All machines must
therefore see the project's folder, the images and the checkpoint under the same paths. When a
worker is lost, with its process or its machine, its shards go back to the queue, and a new worker
is started as soon as the cluster has room for one. Machines that join are used from then on. A
machine that lacks the project, the checkpoint or a folder of images, or has another version of
farther, is named and gets no more work of the split: other machines make its shards.
Workers wait for the next split of the same stage, so that only the first one pays for their start.

The workers are plain actors rather than an actor pool of Ray Data: with Ray 2.60 such a pool made
no further progress after a machine was lost.
"""

from __future__ import annotations

import os
import socket
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from farther.errors import DataError, FartherError, ParameterError, first_line
from farther.images.folders import AbsentFolderError
from farther.images.job import Job
from farther.incremental.code import version_digest
from farther.text.terminal import say

# Imported in functions: Ray, an optional package.

#: The run ends when this number of workers were lost over one shard: the shard itself is the cause.
LOSSES = 3

#: Most worker processes of a worker with a GPU, unless they are set.
MOST_PROCESSES = 8


@dataclass(frozen=True)
class WorkerNeeds:
    """Resources of each worker.

    Args:
        cpus: Cores.
        gpus: 1, or 0 for a network on the CPU.
        processes: Worker processes.
    """

    cpus: int
    gpus: int
    processes: int

    def room(self, machines: Sequence[Mapping[str, float]]) -> int:
        """Number of workers for which machines have room.

        Args:
            machines: Resources of each machine: numbers under "CPU" and "GPU".
        """
        return sum(self._room_on(machine) for machine in machines)

    def _room_on(self, machine: Mapping[str, float]) -> int:
        """Number of workers for which one machine has room."""
        by_cpus = int(machine.get("CPU", 0) // self.cpus)
        if not self.gpus:
            return by_cpus
        by_gpus = int(machine.get("GPU", 0) // self.gpus)
        return min(by_cpus, by_gpus)


def needs_of_workers(
    machines: Sequence[Mapping[str, float]], device: str, processes: int | None
) -> WorkerNeeds:
    """Resources of each worker on a cluster.

    Args:
        machines: Resources of each machine: numbers under "CPU" and "GPU".
        device: The model's. With "auto", machines with GPUs are used if there are any, or else all.
        processes: Worker processes of each; None takes as many as a GPU's share of its machine's
            cores allows, at most 8. On the CPU None is 0: each worker runs the network on one core,
            as a process of the local engine does.

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
        if processes is None:
            cores_per_gpu = min(
                int(machine.get("CPU", 0) // machine["GPU"]) for machine in with_gpu
            )
            processes = max(0, min(MOST_PROCESSES, cores_per_gpu - 1))
        needs = WorkerNeeds(processes + 1, 1, processes)
    else:
        processes = processes or 0
        needs = WorkerNeeds(max(1, processes), 0, processes)

    if not needs.room(machines):
        described = [
            f"{machine.get('CPU', 0):g} cores, {machine.get('GPU', 0):g} GPUs"
            for machine in machines
        ]
        raise ParameterError(
            f"a worker takes {needs.cpus} cores and {needs.gpus} GPUs, and no machine of the "
            f"cluster has them ({'; '.join(described) or 'no machine'}). Set `workers` lower"
        )
    return needs


class Queue:
    """Hands out shards, and records the worker of each.

    Args:
        shards: Numbers of the shards.
    """

    def __init__(self, shards: Sequence[int]):
        self._waiting = deque(shards)
        self._shards_by_worker: dict[str, list[int]] = {}
        self._finished: list[int] = []
        self._machine_by_worker: dict[str, str] = {}
        self._machine_by_shard: dict[int, str] = {}

    def start(self, worker: str, machine: str) -> None:
        """Records the machine that a worker is on."""
        self._machine_by_worker[worker] = machine

    def machine(self, worker: str) -> str:
        """The machine that a worker is on; "" if it never started."""
        return self._machine_by_worker.get(worker, "")

    def machines(self) -> dict[int, str]:
        """The machine that made each finished shard."""
        return self._machine_by_shard

    def take(self, worker: str) -> int | None:
        """A shard for a worker; None when all are handed out."""
        if not self._waiting:
            return None
        shard = self._waiting.popleft()
        self._shards_by_worker.setdefault(worker, []).append(shard)
        return shard

    def finish(self, worker: str, shard: int) -> None:
        """Records that a worker wrote a shard."""
        self._shards_by_worker[worker].remove(shard)
        self._finished.append(shard)
        self._machine_by_shard[shard] = self.machine(worker)

    def give_up(self, worker: str) -> list[int]:
        """Takes back the shards of a lost worker; they are the next to be handed out.

        Returns:
            The shards, in the order in which the worker took them.
        """
        shards = self._shards_by_worker.pop(worker, [])
        self._waiting.extendleft(reversed(shards))
        return shards

    def finished(self, since: int) -> list[int]:
        """The finished shards in their order, without the first `since`."""
        return self._finished[since:]

    def waiting(self) -> int:
        """Number of shards that no worker has."""
        return len(self._waiting)


class Worker:
    """Makes shards until there are no more, then waits for the next split."""

    def work(self, job: Job, queue: Any, name: str, processes: int, folder: Path) -> None:
        """Takes shards from the queue and writes them, until the queue has no more.

        Args:
            job: Makes a shard.
            queue: Ray's handle of a `Queue`.
            name: Name of this worker in the queue.
            processes: Worker processes of this worker.
            folder: The project's folder.
        """
        import ray

        with _named_machine(unfit=(FartherError,)):
            _enter(folder)
            job.check()
        ray.get(queue.start.remote(name, socket.gethostname()))

        def take_shards() -> Iterator[int]:
            shard = ray.get(queue.take.remote(name))
            while shard is not None:
                yield shard
                shard = ray.get(queue.take.remote(name))

        # The queue ends when other workers have finished all shards.
        queue_ends = ray.exceptions.RayActorError
        with suppress(queue_ends), _named_machine(unfit=(AbsentFolderError,)):
            for shard in job.make(take_shards(), processes, _ignore):
                ray.get(queue.finish.remote(name, shard))


class LostHeadError(FartherError):
    """The first machine of the cluster, which knows all others, is lost."""


def _refuse_lost_head(address: str) -> None:
    """Checks that the head of the cluster answers.

    Ray itself waits a minute for it, then ends the process without an exception.

    Args:
        address: `HOST:PORT`.

    Raises:
        LostHeadError: it does not answer; says what to do.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except OSError as error:
        problem = (
            f"the head of the Ray cluster, {address}, does not answer ({error.strerror or error}): "
            "start it (`ray start --head`) and its machines again, and rerun (finished work is "
            "kept)"
        )
        raise LostHeadError(problem) from None


class UnfitMachineError(FartherError):
    """A machine of the cluster lacks files that the work needs, or has other code."""


@contextmanager
def _named_machine(unfit: tuple[type[FartherError], ...] = ()) -> Iterator[None]:
    """Names this machine in errors of the block: missing files, a full disk, other code.

    Args:
        unfit: Errors that become an `UnfitMachineError`: another machine may not have them.
    """
    try:
        yield
    except unfit as error:
        raise UnfitMachineError(f"machine {socket.gethostname()}: {error}") from None
    except DataError as error:
        problem = f"machine {socket.gethostname()}: {error.problem}"
        raise DataError(problem, file=error.file, row=error.row, field=error.field) from None
    except (FartherError, OSError) as error:
        raise FartherError(f"machine {socket.gethostname()}: {error}") from None


def _ignore(_images: Any) -> None:
    """Counts nothing: the driver counts the images of finished shards."""


def make_on_cluster(job: Job, shards: Sequence[int], count: Callable[[int], Any]) -> dict[int, str]:
    """Makes shards on the cluster of this machine, or on this machine alone without a cluster.

    The cluster is the one that `ray start` or the variable RAY_ADDRESS names. The connection stays
    until the process ends, and so do the workers with their cores and GPUs, for the next split.

    Args:
        job: Makes a shard.
        shards: Numbers of the shards.
        count: Called with the number of images of each finished shard.

    Returns:
        Name of the machine that made each shard.

    Raises:
        ParameterError: Ray is not installed, or see `needs_of_workers`.
        LostHeadError: the head of the cluster does not answer.
        FartherError: workers were lost again and again over one shard, or no machine sees the
            project's folder, has the same version of it and all folders of images.
    """
    if not shards:
        return {}
    ray = _connected()
    driver = _Driver(ray, job, shards)
    try:
        driver.run(count)
        machine_by_shard = driver.machines()
    except LostHeadError:  # no actor can be ended without it
        raise
    except BaseException:
        driver.end_workers()
        driver.end_queue()
        raise
    driver.end_queue()
    return machine_by_shard


@dataclass(frozen=True)
class _Pool:
    """Workers of one kind.

    Args:
        machine: Ray's name of the driver's machine, which tells clusters apart.
        ray_job: Ray's name of the driver.
        needs: Resources of each worker.
    """

    machine: str
    ray_job: str
    needs: WorkerNeeds


#: Workers that wait for the next split, of one pool at a time: they keep its cores and GPUs.
_idle_workers: dict[_Pool, list[Any]] = {}


@dataclass(frozen=True)
class _RunningWorker:
    """A worker that makes shards.

    Args:
        name: Its name in the queue.
        actor: Ray's handle of it.
    """

    name: str
    actor: Any


class _Driver:
    """Starts workers, and new ones in place of lost ones.

    Args:
        ray: The module, connected to a cluster.
        job: Makes a shard.
        shards: Numbers of the shards.
    """

    def __init__(self, ray: Any, job: Job, shards: Sequence[int]):
        context = ray.get_runtime_context()
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            context.get_node_id(), soft=False
        )
        self._ray = ray
        self._head = context.gcs_address
        self._job = job
        self._job_reference = ray.put(job)
        self._shards = shards
        self._needs = needs_of_workers(self._machines(), job.model.device, job.plan.params.workers)
        pool = _Pool(context.get_node_id(), context.get_job_id(), self._needs)
        self._idle = _idle_workers_of(ray, pool)
        queue_class = ray.remote(Queue).options(num_cpus=0, scheduling_strategy=here)
        self._queue = queue_class.remote(list(shards))
        self._running: dict[Any, _RunningWorker] = {}
        # These keep their cores: so no other worker is started in their place.
        self._unfit: list[Any] = []
        self._reasons: set[str] = set()
        self._started = 0
        self._losses: Counter[int | None] = Counter()
        self._most_workers = 0

    def run(self, count: Callable[[int], Any]) -> None:
        """Waits for all shards."""
        finished_count = 0
        while finished_count < len(self._shards):
            self._start(len(self._shards) - finished_count)
            ended, _ = self._ray.wait(list(self._running), timeout=1)
            _refuse_lost_head(self._head)
            for call in ended:
                self._end(call)
            finished = self._ray.get(self._queue.finished.remote(finished_count))
            finished_count += len(finished)
            for shard in finished:
                count(len(self._job.plan.rows(shard)))
        self._idle += [worker.actor for worker in self._running.values()]
        for actor in self._unfit:
            self._ray.kill(actor)

    def machines(self) -> dict[int, str]:
        """Name of the machine that made each shard."""
        machine_by_shard: dict[int, str] = self._ray.get(self._queue.machines.remote())
        return machine_by_shard

    def end_workers(self) -> None:
        """Ends all workers."""
        running = [worker.actor for worker in self._running.values()]
        for actor in (*self._idle, *self._unfit, *running):
            self._ray.kill(actor)
        self._idle.clear()

    def end_queue(self) -> None:
        """Ends the queue."""
        self._ray.kill(self._queue)

    def _machines(self) -> list[dict[str, float]]:
        return _resources(self._ray)

    def _start(self, unfinished: int) -> None:
        """Starts workers for which there are shards, and room: on machines that joined, too."""
        if not self._ray.get(self._queue.waiting.remote()):
            return
        while len(self._running) < min(max(1, self._room()), unfinished):
            actor = self._idle.pop(0) if self._idle else self._new_worker()
            name = str(self._started)
            self._started += 1
            call = actor.work.remote(
                self._job_reference, self._queue, name, self._needs.processes, Path.cwd()
            )
            self._running[call] = _RunningWorker(name, actor)
        self._most_workers = max(self._most_workers, len(self._running) + len(self._idle))

    def _room(self) -> int:
        """Number of workers for which machines that are fit have room."""
        return self._needs.room(self._machines()) - len(self._unfit)

    def _new_worker(self) -> Any:
        options = {
            "num_cpus": self._needs.cpus,
            "num_gpus": self._needs.gpus,
            "max_restarts": 0,
            "max_task_retries": 0,
        }
        return self._ray.remote(Worker).options(**options).remote()

    def _end(self, call: Any) -> None:
        """Handles a worker that is done, raised an error, or is lost."""
        worker = self._running.pop(call)
        try:
            self._ray.get(call)
            self._idle.append(worker.actor)
        except self._ray.exceptions.RayTaskError as error:
            cause = _cause(error)
            if not isinstance(cause, UnfitMachineError):
                raise cause from None
            self._refuse(worker, cause)
        except self._ray.exceptions.RayError as error:
            self._ray.kill(worker.actor)
            self._give_up(worker.name, error)

    def _refuse(self, worker: _RunningWorker, reason: UnfitMachineError) -> None:
        """Returns the shards of a worker to the queue, and gives its machine no more work.

        Raises:
            UnfitMachineError: no other machine is left.
        """
        self._ray.get(self._queue.give_up.remote(worker.name))
        self._unfit.append(worker.actor)
        if not self._running and self._room() <= 0:
            raise reason
        if str(reason) not in self._reasons:
            self._reasons.add(str(reason))
            say(f"gets no more work: {reason}", file=sys.stderr, flush=True)

    def _give_up(self, name: str, error: Exception) -> None:
        """Returns the shards of a lost worker to the queue.

        Raises:
            FartherError: too many workers were lost over one shard.
        """
        # The worker was making the first of its shards; the others it only had taken ahead.
        shards = self._ray.get(self._queue.give_up.remote(name))
        culprit = shards[0] if shards else None
        self._losses[culprit] += 1
        occasion = f"over shard {culprit}"
        limit = LOSSES
        if culprit is None:
            # A machine that is lost may take all workers with it that have no shard.
            occasion = "before they took a shard"
            limit = LOSSES + self._most_workers
        if self._losses[culprit] == limit:
            machine = self._ray.get(self._queue.machine.remote(name))
            place = f", on machine {machine}" if machine else ""
            raise FartherError(
                f"{self._losses[culprit]} workers were lost {occasion}, most likely for lack of "
                "memory: rerun with fewer workers or smaller batches (finished work is kept). "
                f"The last one{place}: {first_line(error)}"
            )


def _idle_workers_of(ray: Any, pool: _Pool) -> list[Any]:
    """The workers of a pool that wait, after ending those of other pools."""
    for idle_pool in list(_idle_workers):
        if idle_pool == pool:
            continue
        actors = _idle_workers.pop(idle_pool)
        is_connected = (idle_pool.machine, idle_pool.ray_job) == (pool.machine, pool.ray_job)
        if is_connected:  # or else the workers ended with their cluster
            for actor in actors:
                ray.kill(actor)
    return _idle_workers.setdefault(pool, [])


def _resources(ray: Any) -> list[dict[str, float]]:
    """Resources of each machine of the cluster."""
    return [machine["Resources"] for machine in ray.nodes() if machine["Alive"]]


def _cause(error: Any) -> BaseException:
    """The error that a task raised, if it is one of farther's, or else Ray's error."""
    return error.cause if isinstance(error.cause, FartherError) else error


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
    """Calls a function on a machine of the cluster with a free core and memory, in the same folder.

    A call whose process or machine is lost is repeated, on another machine if necessary, `LOSSES`
    times in all.

    Args:
        module: The function's module.
        name: The function's name; another call must be able to resume from the files that a lost
            one wrote.
        arguments: Its arguments.
        gigabytes: Memory that is reserved for it.
        variables: Environment variables of its process.

    Raises:
        ParameterError: Ray is not installed, or no machine has this memory.
        FartherError: raised by the function, or it was lost again and again, or see
            `make_on_cluster`.
    """
    ray = _connected()
    memory = int(gigabytes * 2**30)
    largest = max((machine.get("memory", 0) for machine in _resources(ray)), default=0)
    if memory > largest:
        problem = f"the largest machine of the cluster has {largest / 2**30:.1f}"
        raise ParameterError(f"resources.memory: {gigabytes:g} GiB are asked for, {problem}")
    options: dict[str, Any] = {"num_cpus": 1, "memory": memory, "max_retries": LOSSES - 1}
    if variables:
        options["runtime_env"] = {"env_vars": dict(variables)}
    remote_call = ray.remote(_call).options(**options)
    head = ray.get_runtime_context().gcs_address
    call = remote_call.remote(module, name, arguments, Path.cwd(), version_digest())
    try:
        while not ray.wait([call], timeout=5)[0]:
            _refuse_lost_head(head)
        return ray.get(call)
    except ray.exceptions.RayTaskError as error:
        raise _cause(error) from None
    except ray.exceptions.RayError as error:
        problem = (
            "most likely for lack of memory: "
            "rerun with a larger resources.memory (finished work is kept)"
        )
        raise FartherError(
            f"lost {LOSSES} times, {problem}. The last time: {first_line(error)}"
        ) from None


def _call(module: str, name: str, arguments: Sequence[Any], folder: Path, code: str) -> Any:
    """Calls a function on this machine, whose code must be the driver's."""
    with _named_machine():
        _enter(folder)
        if version_digest() != code:
            raise FartherError(
                "has another version of farther. Give all machines the same environment and files"
            )
        return getattr(import_module(module), name)(*arguments)


def _enter(folder: Path) -> None:
    """Makes the project's folder the current working directory."""
    if not folder.is_dir():
        raise FartherError(
            f"the folder {folder}, where the run was started, does not exist: all machines of the "
            "cluster must see it under the same path"
        )
    os.chdir(folder)
