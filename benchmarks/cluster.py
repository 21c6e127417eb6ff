"""Networks and evaluations on a Ray cluster of three machines, undisturbed and with failures.

Checks that a cluster writes the same bytes, also where a machine fails, and measures the cost of
Ray.

    sudo .venv/bin/python benchmarks/cluster.py DIR
        all stages and events; needs a finished `make demo`
    sudo .venv/bin/python benchmarks/cluster.py DIR --stages infer --events "machine lost"
    sudo .venv/bin/python benchmarks/cluster.py DIR --stages --cost 400
        only the cost of Ray, with 400 images

The machines are sets of Linux namespaces on this one, so it takes root, iproute2 and util-linux,
and changes nothing outside: each has its own address on a network of its own, its own processes and
Ray folder, and one core for Ray to give away; they share the file system. DIR holds the projects
and is deleted first. Events happen when a third of the shards are finished:

    nothing          three machines
    worker killed    `kill -9` of one worker
    driver killed    `kill -9` of the stage, then the command again
    machine killed   `kill -9` of all processes of the second machine: the others see closed
                     connections
    machine joins    two machines, and later the third
    machine lost     as `machine killed`, but without network, as when the power fails: the others
                     see silence

`evaluate` is three runs at the same time, one on each machine; the second machine fails while it
evaluates one.

Each run's outputs are compared with the local engine's, file by file. Prints tables in Markdown.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from farther.tables import Images

ROOT = Path(__file__).parents[1]
RUN, SPLITS = "voc-yolov8", Path("artifacts/splits/voc")
#: Runs that are evaluated at the same time, and the events that they meet.
RUNS, OF_EVALUATION = (
    ("voc-yolov8", "voc-rtdetr", "voc-vos"),
    ("nothing", "machine killed", "machine lost"),
)
#: Scripts of the stages that work on the cluster after inference.
EVALUATING = ("fit.py", "score.py", "evaluate.py")
RAY = Path("/run/ray")  # a disk in memory of each machine; short, as it holds sockets
EVENTS = (
    "nothing",
    "worker killed",
    "driver killed",
    "machine killed",
    "machine joins",
    "machine lost",
)
INSIDE = "FARTHER_CLUSTER"
GROUPS = [
    place for place in map(Path, ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")) if place.is_dir()
]
CORES = (
    GROUPS[0] / f"farther-{os.environ.get(INSIDE)}"
)  # processor seconds of each machine are counted here
#: Seconds after which a stage or machine counts as stuck.
PATIENCE = 280


def shell(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True)


# The machines


class Machine:
    """A Ray node in its own namespaces, or the first one, where drivers run."""

    def __init__(self, number: int):
        self.name = f"machine{number}"
        self.address = f"10.77.0.{number + 1}"
        self.cores = CORES / self.name
        self.cores.mkdir(parents=True)
        shell("ip", "netns", "add", self.name)
        shell(
            "ip",
            "link",
            "add",
            f"to{number}",
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            self.name,
        )
        shell("ip", "link", "set", f"to{number}", "master", "switch", "up")
        shell("ip", "-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            shell("ip", "-n", self.name, "link", "set", device, "up")
        options = [
            "--num-cpus=1",
            "--num-gpus=0",
            "--object-store-memory=80000000",
            "--disable-usage-stats",
            "--block",
        ]
        options.append(f"--node-ip-address={self.address}")
        if number:
            options.append("--address=10.77.0.1:6379")
        else:
            options += ["--head", "--port=6379", "--include-dashboard=false", f"--temp-dir={RAY}"]
        ray = " ".join([f"exec {Path(sys.executable).parent}/ray start", *options])
        disk = f"hostname {self.name}; mount -t tmpfs {self.name} {RAY}; " if number else ""
        apart = (
            ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--uts"]
            if number
            else []
        )
        with (Path.cwd() / f"{self.name}.log").open("w") as log:
            self.process = self.popen([*apart, "sh", "-c", disk + ray], stdout=log, stderr=log)

    def popen(self, command: Sequence[object], **options: Any) -> subprocess.Popen:
        """A process on this machine."""
        inside = ["ip", "netns", "exec", self.name, *map(str, command)]
        return subprocess.Popen(
            inside, preexec_fn=lambda: (self.cores / "cgroup.procs").write_text("0"), **options
        )

    def seconds(self) -> float:
        """Processor seconds of all its processes so far, those of drivers too."""
        return int((self.cores / "cpu.stat").read_text().split()[1]) / 1e6

    def processes(self, title: str) -> list[int]:
        """Its processes whose command line begins with `title`."""
        found = []
        for pid in (self.cores / "cgroup.procs").read_text().split():
            with suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_text().startswith(title):
                    found.append(int(pid))
        return found

    def kill(self) -> None:
        """Ends all of its processes at once."""
        for pid in self.processes(""):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def remove(self) -> None:
        """Ends it and deletes its network."""
        shell("ip", "netns", "del", self.name)
        while self.cores.exists():  # processes that end are still counted for a moment
            self.kill()
            with suppress(OSError):
                self.cores.rmdir()
            time.sleep(0.1)


class Cluster:
    """Machines that see each other; the first one is the head."""

    def __init__(self) -> None:
        self.machines: list[Machine] = []
        self._number = 0

    def add(self) -> None:
        """Starts another machine, without waiting for it."""
        self.machines.append(Machine(self._number))
        self._number += 1

    def resize(self, count: int) -> None:
        """Adds or removes machines, and waits until Ray lists these and no others."""
        while len(self.machines) > count:
            self.machines.pop().remove()
        while len(self.machines) < count:
            self.add()
            if len(self.machines) == 1:  # the others connect to it
                self._wait()
        self._wait()

    def _wait(self) -> None:
        addresses = {machine.address for machine in self.machines}
        program = f"""
import ray, time
ray.init(logging_level="error")
while {{node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}} != {addresses}:
    time.sleep(0.2)
"""
        with Path("connection.log").open("w") as log:
            if self.popen([sys.executable, "-c", program], stdout=log, stderr=log).wait(PATIENCE):
                raise SystemExit(f"the cluster did not start: see the logs in {Path.cwd()}")

    def popen(self, command: Sequence[object], **options: Any) -> subprocess.Popen:
        """A process on the first machine, connected to the cluster."""
        return self.machines[0].popen(
            command, env=os.environ | {"RAY_ADDRESS": "10.77.0.1:6379"}, **options
        )

    def processes(self, title: str) -> list[int]:
        """Processes of all machines whose command line begins with `title`."""
        return [pid for machine in self.machines for pid in machine.processes(title)]


# The projects


@dataclass(frozen=True)
class Task:
    """A stage: its script with arguments, and the passes that it makes."""

    script: tuple[str, ...]
    passes: tuple[str, ...] = ()


TASKS = {
    "embed": Task(("embed.py",)),
    "infer": Task(("infer.py", RUN)),
    "passes": Task(("infer.py", RUN), ("dropout",)),
    "crops": Task(("infer.py", RUN), ("crop",)),
}
EVALUATE = "evaluate"


def project(
    folder: Path, demo: Path, name: str, splits: dict[str, int], shard: int, **stream: Any
) -> Path:
    """A project whose splits hold the first images of the demo's."""
    task, params = TASKS[name], yaml.safe_load((demo / "params.yaml").read_text())
    (folder / SPLITS).mkdir(parents=True)
    (folder / "data").symlink_to(demo / "data")
    shutil.copy(demo / SPLITS / "id_classes.json", folder / SPLITS)
    for part in ("demo", "derived"):
        (folder / "artifacts" / part).symlink_to(demo / "artifacts" / part)
    for split, count in splits.items():
        source = split.partition("+")[0]
        Images.read(demo / SPLITS / source / "images.parquet")[:count].write(
            folder / SPLITS / split / "images.parquet"
        )
    tables = folder / "artifacts/tables/voc"
    tables.mkdir(parents=True)
    shutil.copy(demo / "artifacts/tables/voc/categories.json", tables)
    for split in splits:
        shutil.copytree(folder / SPLITS / split, tables / split)
    entry = params["detectors"][RUN]
    entry["passes"] = {one: entry["passes"][one] for one in task.passes}
    params["datasets"] = (
        {"voc": params["datasets"]["voc"]} if name == "embed" else params["datasets"]
    )
    for settings in (params["inference"], params["embed"]["images"]):
        settings.update(batch_size=8, shard_images=shard, **stream)
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    return folder


def content(folder: Path) -> dict[str, bytes]:
    """Each file of `artifacts`, unfinished work too."""
    files = (path for path in (folder / "artifacts").rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def run(
    folder: Path,
    task: Task,
    start: Callable[..., subprocess.Popen],
    meanwhile: Callable[[subprocess.Popen], None] = lambda process: None,
) -> float:
    """Runs the stage to its end, and returns seconds; `meanwhile` is called with its process."""
    command = [sys.executable, ROOT / "stages" / task.script[0], *task.script[1:]]
    with (folder / "log").open("a") as log:
        before = time.monotonic()
        process = start(command, cwd=folder, stdout=log, stderr=log)
        meanwhile(process)
        code = process.wait(PATIENCE)
    if code not in (0, -signal.SIGKILL):
        print(f"FAILED ({code}): {folder / 'log'}\n{(folder / 'log').read_text()[-2000:]}")
    return time.monotonic() - before


def locally(folder: Path, task: Task) -> tuple[float, float]:
    """Seconds, by the clock and of processors, of a stage with the local engine."""
    before = os.times()
    seconds = run(folder, task, subprocess.Popen)
    after = os.times()
    return seconds, sum(after[2:4]) - sum(before[2:4])


# Events


def wait_for(shards: int, folder: Path, process: subprocess.Popen) -> None:
    """Waits until the stage has written this number of shards, or ended."""
    seen: set[Path] = set()
    while len(seen) < shards and process.poll() is None:
        with suppress(OSError):
            seen.update((folder / "artifacts/.work").rglob("part-*.json"))
        time.sleep(0.02)


def happen(event: str, machines: Cluster, folder: Path, task: Task, shards: int) -> dict[str, Any]:
    """Runs a stage while an event happens."""
    machines.resize(2 if event == "machine joins" else 3)
    before: list[float] = []

    def meanwhile(process: subprocess.Popen) -> None:
        wait_for(shards // 3, folder, process)
        second = machines.machines[1]
        if event == "worker killed":
            os.kill(machines.processes("ray::Worker")[-1], signal.SIGKILL)
        elif event in ("machine killed", "machine lost"):
            if event == "machine lost":
                shell("ip", "-n", second.name, "link", "set", "eth0", "down")
            second.kill()
        elif event == "driver killed":
            process.kill()
        elif event == "machine joins":
            machines.add()
        before.extend(machine.seconds() for machine in machines.machines)

    seconds = run(folder, task, machines.popen, meanwhile)
    if event == "driver killed":
        seconds += run(folder, task, machines.popen)
    time.sleep(2)
    left = machines.processes("ray::Worker")
    after = [
        now - then
        for now, then in zip([m.seconds() for m in machines.machines], before, strict=True)
    ]
    if event in ("machine killed", "machine lost"):
        machines.machines.pop(1).remove()
    return {"seconds": seconds, "workers left": len(left), "afterwards": after}


def events(machines: Cluster, folder: Path, demo: Path, given: argparse.Namespace) -> None:
    """Prints one row per stage and event."""
    splits, shard = {"train": given.images * 2 // 3, "test": given.images // 3}, 4
    shards = sum(-(-count // shard) for count in splits.values())
    print(f"\n{sum(splits.values())} images in {len(splits)} splits, {shards} shards of {shard}.\n")
    print(
        "| stage | event | seconds | files that differ | leftovers "
        "| processor seconds of each machine afterwards |"
    )
    print("| --- | --- | ---: | ---: | ---: | --- |", flush=True)
    for name in given.stages:
        if name == EVALUATE:
            evaluations(
                machines, folder, demo, [event for event in OF_EVALUATION if event in given.events]
            )
            continue
        task = TASKS[name]

        def made(kind: str, engine: str, name: str = name, task: Task = task) -> Path:
            made = project(folder / f"{name} {kind}", demo, name, splits, shard, engine=engine)
            if task.passes:
                shutil.copytree(folder / "regions", made / "artifacts/regions")
            return made

        if task.passes and not (folder / "regions").exists():
            source = project(folder / "source", demo, "infer", splits, shard)
            locally(source, TASKS["infer"])
            shutil.copytree(source / "artifacts/regions", folder / "regions")
        local = made("local", "local")
        print(f"| {name} | local engine | {locally(local, task)[0]:.1f} | | | |", flush=True)
        expected = content(local)
        for event in given.events:
            there = made(event, "ray")
            result = happen(event, machines, there, task, shards)
            found = content(there)
            differ = (
                f"{sum(found.get(file) != expected[file] for file in expected)} of {len(expected)}"
            )
            left = len(found.keys() - expected.keys()) + result["workers left"]
            after = ", ".join(f"{seconds:.1f}" for seconds in result["afterwards"])
            print(
                f"| {name} | {event} | {result['seconds']:.1f} | {differ} | {left} | {after} |",
                flush=True,
            )


def evaluated(folder: Path, demo: Path, engine: str) -> Path:
    """A project with the regions of the demo's `RUNS`."""
    params = yaml.safe_load((demo / "params.yaml").read_text())
    params["detectors"] = {name: params["detectors"][name] for name in RUNS}
    params["evaluate"].update(engine=engine, memory=1)
    (folder / "artifacts").mkdir(parents=True)
    for part in ("regions", "passes", "splits", "tables"):
        (folder / "artifacts" / part).symlink_to(demo / "artifacts" / part)
    shutil.copy(demo / "artifacts/code.json", folder / "artifacts")
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    return folder


def evaluating(run: str) -> str:
    """Commands of the shell that evaluate a run."""
    commands = [
        shlex.join([sys.executable, str(ROOT / "stages" / stage), run]) for stage in EVALUATING
    ]
    return "\n".join(commands)


def evaluations(machines: Cluster, folder: Path, demo: Path, events: Sequence[str]) -> None:
    """Prints one row per event while `RUNS` are evaluated."""
    local = evaluated(folder / "evaluate local", demo, "local")
    seconds = sum(locally(local, Task((stage, name)))[0] for name in RUNS for stage in EVALUATING)
    print(f"| evaluate | local engine | {seconds:.1f} | | | |", flush=True)
    expected = content(local)
    for event in events:
        machines.resize(3)
        there, before = evaluated(folder / f"evaluate {event}", demo, "ray"), time.monotonic()
        with (there / "log").open("a") as log:
            options = {"cwd": there, "stdout": log, "stderr": log}
            stages = [machines.popen(["bash", "-ec", evaluating(name)], **options) for name in RUNS]
            if event != "nothing":
                second = machines.machines[1]
                while not second.processes("ray::_called"):
                    time.sleep(0.1)
                time.sleep(2)
                if event == "machine lost":
                    shell("ip", "-n", second.name, "link", "set", "eth0", "down")
                second.kill()
            failed = [stage.wait(PATIENCE) for stage in stages]
        seconds = time.monotonic() - before
        if any(failed):
            print(f"FAILED: {there / 'log'}\n{(there / 'log').read_text()[-2000:]}")
        found = content(there)
        differ = f"{sum(found.get(file) != expected[file] for file in expected)} of {len(expected)}"
        left = len(found.keys() - expected.keys())
        print(f"| evaluate | {event} | {seconds:.1f} | {differ} | {left} | |", flush=True)
        if event != "nothing":
            machines.machines.pop(1).remove()


# What Ray costs


def cost(machines: Cluster, folder: Path, demo: Path, images: int) -> None:
    """Prints what takes how long with the local engine and with one to three machines."""
    tasks = {
        "nothing but the start": ({"train": 1}, 512),
        "one shard": ({"train": images}, 512),
        f"{-(-images // 4)} shards": ({"train": images}, 4),
        "8 splits": ({f"train+{n}": images // 8 for n in range(8)}, 512),
    }
    print(f"\n`infer`, {images} images.\n")
    print("| work | engine | seconds | images/s | processor seconds | of the local engine |")
    print("| --- | --- | ---: | ---: | ---: | ---: |", flush=True)

    def row(work: str, engine: str, seconds: float, used: float, local: float) -> None:
        speed = sum(tasks[work][0].values()) / seconds
        print(
            f"| {work} | {engine} | {seconds:.1f} | {speed:.1f} | {used:.1f} "
            f"| × {used / local:.2f} |",
            flush=True,
        )

    def made(work: str, kind: str, **stream: Any) -> Path:
        return project(folder / f"cost {work} {kind}", demo, "infer", *tasks[work], **stream)

    locals_: dict[str, float] = {}
    for count in (1, 2, 3):
        machines.resize(count)
        for work in tasks:
            if count == 1:
                seconds, locals_[work] = locally(made(work, "local", workers=0), TASKS["infer"])
                row(work, "local, 1 process", seconds, locals_[work], locals_[work])
            elif "shards" not in work:
                continue
            before = sum(machine.seconds() for machine in machines.machines)
            seconds = run(made(work, f"ray {count}", engine="ray"), TASKS["infer"], machines.popen)
            used = sum(machine.seconds() for machine in machines.machines) - before
            row(work, f"Ray, {count} machine{'s' * (count > 1)}", seconds, used, locals_[work])
            if count == 2:
                seconds, used = locally(made(work, "local 2", workers=2), TASKS["infer"])
                row(work, "local, 2 processes", seconds, used, locals_[work])


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="scratch folder; it is deleted first")
    parser.add_argument("--demo", type=Path, default=ROOT, help="project with a finished demo")
    parser.add_argument(
        "--stages", nargs="*", choices=(*TASKS, EVALUATE), default=[*TASKS, EVALUATE]
    )
    parser.add_argument("--events", nargs="*", choices=EVENTS, default=EVENTS)
    parser.add_argument(
        "--images", type=int, default=96, help="of the runs that something happens to"
    )
    parser.add_argument(
        "--cost",
        type=int,
        default=400,
        metavar="IMAGES",
        help="of the runs that are timed; 0: none",
    )
    given = parser.parse_args()
    if INSIDE not in os.environ:
        apart = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
        os.environ |= {
            INSIDE: secrets.token_hex(4),
            "OMP_NUM_THREADS": "1",
            "POLARS_MAX_THREADS": "1",
            "RAY_worker_niceness": "0",
        }
        os.environ |= {
            "RAY_agent_register_timeout_ms": "200000"
        }  # on a busy machine 30 s are too few
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        os.execvp(apart[0], [*apart, sys.executable, *sys.argv])
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # or the first process of a namespace ignores it
    shell("mount", "-t", "tmpfs", "run", "/run")
    RAY.mkdir()
    shell("ip", "link", "add", "name", "switch", "up", "type", "bridge")
    folder = given.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.chdir(folder)
    CORES.mkdir(exist_ok=True)
    demo, machines = given.demo.resolve(), Cluster()
    try:
        if given.cost:
            cost(machines, folder, demo, given.cost)
        if given.stages:
            events(machines, folder, demo, given)
    finally:
        while machines.machines:
            machines.machines.pop().remove()
        CORES.rmdir()


if __name__ == "__main__":
    main()
