"""Ray: the queue of shards, the size of the worker pool, and a cluster with killed workers."""

import itertools
import os
import random
import shutil
import signal
import socket
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from farther.detectors.inference import InferenceParams, infer
from farther.errors import DataError, FartherError, ParameterError
from farther.images import ray as engine
from farther.images import stream
from farther.images.folders import AbsentFolderError
from farther.images.ray import Queue, WorkerNeeds, needs_of_workers
from farther.tables import Header, Images, Regions

pytestmark = pytest.mark.slow

DEADLY = 7
#: Number of workers that are killed, and the seed of when.
KILLS, SEED = (
    int(os.environ.get(f"FARTHER_TEST_{name}", usual))
    for name, usual in (("RAY_KILLS", 1), ("SEED", 0))
)
LOCAL = InferenceParams(batch_size=2, workers=0, shard_images=4)
ON_RAY = replace(LOCAL, engine="ray")


@dataclass
class Mortal:
    """A detector without a network: one region per image, with its mean red as feature.

    Where an image is as red as `deadly`, its process is killed, unless there is the file `mark`,
    which it leaves behind: while the image is prepared, or when the network gets it.
    """

    mark: Path
    network: None = None
    device: str = "cpu"
    deadly: int = DEADLY
    when: str = "forward"

    @property
    def code_modules(self):
        return (type(self).__module__,)

    def runs_on_cpu(self):
        return True

    def header(self):
        return Header(
            classes=("dog",), weight=np.ones((1, 1), np.float32), bias=np.zeros(1, np.float32)
        )

    def prepare(self, image):
        red = image[..., 0].mean(dtype=np.float32)
        self.kill("prepare", [red])
        return red

    def kill(self, when, prepared):
        if when == self.when and self.deadly in prepared and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def forward(self, prepared, image_ids):
        self.kill("forward", prepared)
        count = len(prepared)
        return Regions(
            header=self.header(),
            image_id=image_ids,
            region_id=np.arange(count),
            box=np.tile([0, 0, 1, 1], (count, 1)),
            score=np.full(count, 0.5),
            label=np.zeros(count),
            logits=np.reshape(prepared, (-1, 1)),
            features=np.reshape(prepared, (-1, 1)),
        )


class Deadly(Mortal):
    """Kills its process each time."""

    def forward(self, prepared, image_ids):
        self.mark.unlink(missing_ok=True)
        return super().forward(prepared, image_ids)


class Confused(Mortal):
    """Answers for an image that it was not shown."""

    def forward(self, prepared, image_ids):
        return super().forward(prepared, ["image 99" for _ in image_ids])


class Unmounted(Mortal):
    """Lacks a folder in the first process that runs it."""

    def forward(self, prepared, image_ids):
        if not self.mark.exists():
            self.mark.write_text(str(os.getpid()))
            raise AbsentFolderError("the folder /data does not exist")
        assert self.mark.read_text() != str(os.getpid()), "this machine gets work again"
        return super().forward(prepared, image_ids)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Runs the engine on 18 images, whose red is their row: `run(out, detector, params)`."""
    folder = tmp_path_factory.mktemp("world")
    for row in range(18):
        Image.new("RGB", (8, 6), (row, 0, 0)).save(folder / f"{row}.png")

    class World:
        mark = folder / "mark"
        images = Images(
            image_id=[f"image {row}" for row in range(18)],
            dataset=["drawn"] * 18,
            file=[f"{row}.png" for row in range(18)],
            width=[8] * 18,
            height=[6] * 18,
            digest=[""] * 18,
        )

        def run(self, name, detector, params, images=images):
            out, work = folder / "regions" / name, folder / "work" / name
            return infer(detector, images, {"drawn": folder}, out, work, params, progress=False)

    return World()


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# On a cluster


def test_machines_that_join_are_used_and_workers_are_kept_for_the_next_split(
    world, ray_cluster, monkeypatch
):
    import ray

    for actor in itertools.chain.from_iterable(engine._idle_workers.values()):
        ray.kill(actor)
    engine._idle_workers.clear()
    machines = itertools.chain(
        [[{"CPU": 1}]] * 2, itertools.repeat([{"CPU": 1}] * 2)
    )  # the second one joins
    monkeypatch.setattr(engine._Driver, "_machines", lambda driver: next(machines))
    world.mark.touch()
    first = world.run("first", Mortal(world.mark), ON_RAY)
    workers = set(itertools.chain.from_iterable(engine._idle_workers.values()))
    assert len(workers) == 2
    second = world.run("second", Mortal(world.mark), ON_RAY)
    assert set(itertools.chain.from_iterable(engine._idle_workers.values())) == workers
    assert content(first.path) == content(second.path)


def test_a_machine_that_is_lost_with_idle_workers_does_not_end_the_run(
    world, ray_cluster, monkeypatch
):
    import ray

    world.mark.touch()
    local = world.run("without a loss", Mortal(world.mark), LOCAL)
    monkeypatch.setattr(engine._Driver, "_machines", lambda driver: [{"CPU": 1}])
    world.run("before the loss", Mortal(world.mark), ON_RAY)
    (workers,) = engine._idle_workers.values()
    lost = [ray.remote(engine.Worker).options(num_cpus=0).remote() for _ in range(5)]
    for actor in lost:
        ray.kill(actor)
    workers[:0] = lost
    after = world.run("after the loss", Mortal(world.mark), ON_RAY)
    assert content(after.path) == content(local.path)
    assert not set(lost) & set(workers)


def test_shards_of_a_killed_worker_are_made_by_others_and_not_a_byte_differs_from_the_local_engine(
    world, ray_cluster
):
    world.mark.touch()
    local = world.run("local", Mortal(world.mark), LOCAL)
    drawn = random.Random(SEED)
    for trial in range(KILLS):
        world.mark.unlink()
        mortal = Mortal(
            world.mark, deadly=drawn.randrange(18), when=drawn.choice(["prepare", "forward"])
        )
        on_ray = world.run(f"ray {trial}", mortal, ON_RAY)
        assert world.mark.exists()  # a worker was killed
        assert content(on_ray.path) == content(local.path)
        assert Regions.read(on_ray.path).features[:, 0].tolist() == list(range(18))


def test_a_shard_that_ends_every_worker_ends_the_run(world, ray_cluster, monkeypatch):
    monkeypatch.setattr(engine, "LOSSES", 1)
    with pytest.raises(
        FartherError, match=r"1 workers were lost over shard 0, most likely for lack of memory"
    ):
        world.run("deadly", Deadly(world.mark), ON_RAY, world.images[4:8])


def test_an_error_in_a_worker_is_the_error_of_the_run(world, ray_cluster):
    with pytest.raises(
        DataError, match=r"machine .*: the model yielded rows of 'image 99', which it was not given"
    ) as error:
        world.run("confused", Confused(world.mark), ON_RAY, world.images[:4])
    assert error.value.field == "image_id"


def test_a_folder_of_images_that_a_machine_lacks_ends_the_run_with_both_names(
    world, ray_cluster, tmp_path
):
    roots = {"drawn": tmp_path / "unmounted"}
    arguments = (world.images[:4], roots, tmp_path / "out", tmp_path / "work", ON_RAY)
    with pytest.raises(FartherError, match=r"machine .*: the folder .*unmounted of .* not exist"):
        infer(Mortal(world.mark), *arguments, progress=False)


def test_a_machine_that_lacks_a_folder_is_named_and_others_make_its_shards(
    world, ray_cluster, monkeypatch, capsys
):
    world.mark.touch()
    local = world.run("mounted", Mortal(world.mark), LOCAL)
    monkeypatch.setattr(engine._Driver, "_machines", lambda driver: [{"CPU": 1}] * 2)
    world.mark.unlink()
    on_ray = world.run("unmounted", Unmounted(world.mark), ON_RAY)
    assert content(on_ray.path) == content(local.path)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gets no more work: machine ")
    assert line.endswith("the folder /data does not exist")


def test_where_no_machine_has_the_folder_the_run_ends(world, ray_cluster, monkeypatch):
    monkeypatch.setattr(engine._Driver, "_machines", lambda driver: [{"CPU": 1}])
    world.mark.unlink(missing_ok=True)
    with pytest.raises(FartherError, match="the folder /data does not exist"):
        world.run("on none", Unmounted(world.mark), ON_RAY)


def test_images_that_only_another_machine_lacks_are_not_left_out(world, tmp_path, monkeypatch):
    shutil.copytree(world.mark.parent, tmp_path / "drawn")

    def on_another_machine(job, shards, count):
        """Makes all shards where an image is absent that is here."""
        picture = (tmp_path / "drawn/2.png").read_bytes()
        (tmp_path / "drawn/2.png").unlink()
        list(job.make(shards, 0, lambda images: None))
        (tmp_path / "drawn/2.png").write_bytes(picture)
        return dict.fromkeys(shards, "node7")

    monkeypatch.setattr(stream, "make_on_cluster", on_another_machine)
    roots = {"drawn": tmp_path / "drawn"}
    params = replace(ON_RAY, max_failures=1.0)
    arguments = (world.images[:6], roots, tmp_path / "out", tmp_path / "work", params)
    world.mark.touch()
    with pytest.raises(FartherError, match=r"machine node7 cannot read images .*2\.png: the file"):
        infer(Mortal(world.mark), *arguments, progress=False)


# The queue


def test_shards_are_handed_out_once_and_in_order():
    queue = Queue([3, 4, 7])
    assert [queue.take("a"), queue.take("b"), queue.take("a"), queue.take("b")] == [3, 4, 7, None]


def test_unfinished_shards_of_a_lost_worker_are_the_next_to_be_handed_out():
    queue = Queue([0, 1, 2, 3, 4])
    for worker in "aaba":
        queue.take(worker)
    queue.finish("a", 0)
    assert queue.give_up("a") == [1, 3]
    assert [queue.take("b") for _ in range(4)] == [1, 3, 4, None]


def test_a_worker_that_was_given_up_can_finish_nothing():
    queue = Queue([0, 1])
    queue.take("a")
    queue.give_up("a")
    with pytest.raises(KeyError):
        queue.finish("a", 0)
    assert queue.finished(0) == []


def test_the_queue_knows_the_machines_of_workers_and_shards():
    queue = Queue([4, 5])
    queue.start("a", "node1")
    queue.take("a")
    queue.finish("a", 4)
    assert (queue.machine("a"), queue.machine("b")) == ("node1", "")
    assert queue.machines() == {4: "node1"}


def test_a_worker_that_took_nothing_gives_nothing_back():
    assert Queue([0]).give_up("a") == []


def test_only_what_was_finished_since_is_told():
    queue = Queue([0, 1, 2])
    assert [queue.take("a") for _ in range(3)] == [0, 1, 2]
    for shard in (1, 0):
        queue.finish("a", shard)
    assert (queue.finished(0), queue.finished(1), queue.finished(2)) == ([1, 0], [0], [])


# The head


def test_a_head_that_answers_is_not_lost():
    with socket.create_server(("127.0.0.1", 0)) as server:
        engine._refuse_lost_head(f"127.0.0.1:{server.getsockname()[1]}")


def test_a_head_that_does_not_answer_is_named_with_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    problem = (
        rf"head of the Ray cluster, 127\.0\.0\.1:{port}, does not answer.*start it .*and rerun"
    )
    with pytest.raises(engine.LostHeadError, match=problem):
        engine._refuse_lost_head(f"127.0.0.1:{port}")


# The worker pool


def test_there_is_one_worker_for_each_gpu_and_it_gets_its_share_of_the_cores():
    machines = [{"CPU": 32, "GPU": 4}, {"CPU": 16, "GPU": 2}, {"CPU": 64}]
    assert needs_of_workers(machines, "auto", None) == WorkerNeeds(cpus=8, gpus=1, processes=7)
    assert needs_of_workers(machines, "auto", None).room(machines) == 6
    assert needs_of_workers(machines, "cuda", 3) == WorkerNeeds(cpus=4, gpus=1, processes=3)


def test_no_gpu_has_more_than_eight_processes_beside_it():
    assert needs_of_workers([{"CPU": 96, "GPU": 1}], "auto", None).processes == 8


def test_gpus_without_enough_cores_stay_idle():
    machines = [{"CPU": 8, "GPU": 4}, {"CPU": 4, "GPU": 4}]
    assert needs_of_workers(machines, "auto", 3).room(machines) == 3


def test_a_network_on_the_cpu_gets_one_core_or_one_for_each_process():
    machines = [{"CPU": 8, "GPU": 1}, {"CPU": 10}]
    assert needs_of_workers(machines, "cpu", None) == WorkerNeeds(cpus=1, gpus=0, processes=0)
    assert WorkerNeeds(cpus=1, gpus=0, processes=0).room(machines) == 18
    assert needs_of_workers(machines, "cpu", 4) == WorkerNeeds(cpus=4, gpus=0, processes=4)
    assert WorkerNeeds(cpus=4, gpus=0, processes=4).room(machines) == 4


@pytest.mark.parametrize(
    ("machines", "device", "processes", "problem"),
    [
        ([{"CPU": 8}], "cuda", None, "no machine of the cluster has a GPU"),
        (
            [{"CPU": 8, "GPU": 2}],
            "cuda:1",
            None,
            "'cuda:1': each worker on the cluster sees one GPU only",
        ),
        (
            [{"CPU": 4, "GPU": 1}],
            "cuda",
            4,
            r"takes 5 cores and 1 GPUs.*\(4 cores, 1 GPUs\).*Set `workers` lower",
        ),
        (
            [{"CPU": 2}],
            "auto",
            4,
            r"takes 4 cores and 0 GPUs.*\(2 cores, 0 GPUs\).*Set `workers` lower",
        ),
        ([], "auto", 0, "no machine"),
    ],
)
def test_a_cluster_without_room_for_a_worker_is_an_error_that_says_what_to_change(
    machines, device, processes, problem
):
    with pytest.raises(ParameterError, match=problem):
        needs_of_workers(machines, device, processes)


# Without a cluster


def test_without_ray_the_error_names_the_extra(world, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ParameterError, match=r"pip install 'farther\[ray\]'"):
        world.run("none", Mortal(world.mark), ON_RAY)


def test_the_engine_is_not_among_what_shapes_the_rows():
    assert ON_RAY.params_of_output() == LOCAL.params_of_output()


def test_a_machine_that_does_not_see_the_projects_folder_is_refused(tmp_path):
    with pytest.raises(
        FartherError,
        match=r"machine .*: the folder .*elsewhere, where the run was started, does not exist",
    ):
        engine.Worker().work(None, None, "a", 0, tmp_path / "elsewhere")


def test_a_machine_with_another_checkpoint_or_version_is_refused(world, monkeypatch):
    jobs = []
    monkeypatch.setattr(
        stream, "make_on_cluster", lambda job, shards, count: jobs.append(job) or {}
    )
    with pytest.raises(DataError, match=r"not finished|does not exist"):
        world.run("never", Mortal(world.mark), ON_RAY)
    jobs[0].writer.key = "another"
    with pytest.raises(
        FartherError,
        match=r"machine .*: would make other rows than the machine that started the run",
    ):
        engine.Worker().work(jobs[0], None, "a", 0, Path.cwd())


def once(mark, answer):
    """Kills its process the first time; a number below 0 is an error of the caller."""
    if answer < 0:
        raise DataError("below 0", file=mark)
    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return Path.cwd(), os.getpid(), answer + 1


def test_a_call_is_made_again_where_its_process_is_lost(ray_cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call = partial(engine.call_on_cluster, once.__module__, "once", str(tmp_path / "mark"))
    folder, process, answer = call(41, gigabytes=0.1)
    assert (tmp_path / "mark").exists()
    assert (folder, answer) == (tmp_path, 42)
    assert process != os.getpid()
    with pytest.raises(DataError, match=r"mark: machine .*: below 0"):
        call(-1, gigabytes=0.1)
    with pytest.raises(
        ParameterError, match=r"resources\.memory: 1e\+06 GiB are asked for, the largest machine"
    ):
        call(1, gigabytes=1e6)


def lost():
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_call_that_is_lost_again_and_again_ends_with_a_message(ray_cluster):
    with pytest.raises(FartherError, match=r"lost 3 times, .*resources\.memory"):
        engine.call_on_cluster(lost.__module__, "lost", gigabytes=0.1)


def test_another_version_on_the_machine_is_refused(ray_cluster, monkeypatch):
    monkeypatch.setattr(engine, "version_digest", lambda: "other")
    with pytest.raises(FartherError, match="has another version of farther"):
        engine.call_on_cluster(once.__module__, "once", "", 1, gigabytes=0.1)
