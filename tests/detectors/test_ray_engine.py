"""The Ray engine: what it hands out, whom it hires, and a real cluster of this machine's whose workers are killed."""

import os
import secrets
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from farther.detectors import ray_engine
from farther.detectors.inference import InferenceParams, infer
from farther.detectors.ray_engine import Crew, Desk, crew_for
from farther.errors import DataError, FartherError, ParameterError
from farther.tables import Header, Images, Regions

ROOT = Path(__file__).parents[2]
DEADLY = 7
LOCAL = InferenceParams(batch_size=2, workers=0, shard_images=4)
ON_RAY = replace(LOCAL, engine="ray")


@dataclass
class Mortal:
    """A detector without a network: one region an image, with its mean red as feature.

    Where an image is that red, its process is killed, unless there is the file `mark`, which it leaves behind.
    """

    mark: Path
    network: None = None

    def runs_on_cpu(self):
        return True

    def header(self):
        return Header(classes=("dog",), weight=np.ones((1, 1), np.float32), bias=np.zeros(1, np.float32))

    def prepare(self, image):
        return image[..., 0].mean(dtype=np.float32)

    def forward(self, prepared, image_ids):
        if DEADLY in prepared and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
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


@pytest.fixture(scope="module")
def cluster():
    """Ray on this machine, with room for two workers; they find this file as the tests do."""
    variables = {"PYTHONPATH": str(ROOT), "RAY_worker_niceness": "0", "OMP_NUM_THREADS": "1"}
    # A token of the test's own: Ray would write one to the user's home.
    variables |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.delenv("RAY_ADDRESS", raising=False)
        import ray  # it reads the variables when it is imported

        options = {"include_dashboard": False, "log_to_driver": False, "logging_level": "critical"}
        ray.init("local", num_cpus=2, num_gpus=0, object_store_memory=80 * 2**20, **options)
        yield
        ray.shutdown()


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# On a cluster


def test_shards_of_a_killed_worker_are_made_by_others_and_not_a_byte_differs_from_the_local_engine(world, cluster):
    world.mark.touch()
    local = world.run("local", Mortal(world.mark), LOCAL)
    world.mark.unlink()
    on_ray = world.run("ray", Mortal(world.mark), ON_RAY)
    assert world.mark.exists()  # a worker was killed
    assert content(on_ray.path) == content(local.path)
    assert Regions.read(on_ray.path).features[:, 0].tolist() == list(range(18))


def test_a_shard_that_ends_every_worker_ends_the_run(world, cluster, monkeypatch):
    monkeypatch.setattr(ray_engine, "LOSSES", 1)
    with pytest.raises(FartherError, match=r"1 workers were lost over shard 0, most likely for memory"):
        world.run("deadly", Deadly(world.mark), ON_RAY, world.images[4:8])


def test_an_error_in_a_worker_is_the_error_of_the_run(world, cluster):
    with pytest.raises(DataError, match=r"the detector answered for 'image 99', which it was not given") as error:
        world.run("confused", Confused(world.mark), ON_RAY, world.images[:4])
    assert error.value.field == "image_id"


# The desk


def test_shards_are_handed_out_once_and_in_order():
    desk = Desk([3, 4, 7])
    assert [desk.take("a"), desk.take("b"), desk.take("a"), desk.take("b")] == [3, 4, 7, None]


def test_unfinished_shards_of_a_lost_worker_are_the_next_to_be_handed_out():
    desk = Desk([0, 1, 2, 3, 4])
    for worker in "aaba":
        desk.take(worker)
    desk.finish("a", 0)
    assert desk.give_up("a") == [1, 3]
    assert [desk.take("b") for _ in range(4)] == [1, 3, 4, None]


def test_a_worker_that_was_given_up_can_finish_nothing():
    desk = Desk([0, 1])
    desk.take("a")
    desk.give_up("a")
    with pytest.raises(KeyError):
        desk.finish("a", 0)
    assert desk.finished(0) == []


def test_a_worker_that_took_nothing_gives_nothing_back():
    assert Desk([0]).give_up("a") == []


def test_only_what_was_finished_since_is_told():
    desk = Desk([0, 1, 2])
    assert [desk.take("a") for _ in range(3)] == [0, 1, 2]
    for shard in (1, 0):
        desk.finish("a", shard)
    assert (desk.finished(0), desk.finished(1), desk.finished(2)) == ([1, 0], [0], [])


# The crew


def test_there_is_one_worker_for_each_gpu_and_it_gets_its_share_of_the_cores():
    machines = [{"CPU": 32, "GPU": 4}, {"CPU": 16, "GPU": 2}, {"CPU": 64}]
    assert crew_for(machines, "auto", None) == Crew(workers=6, cpus=8, gpus=1, processes=7)
    assert crew_for(machines, "cuda", 3) == Crew(workers=6, cpus=4, gpus=1, processes=3)


def test_no_gpu_has_more_than_eight_processes_beside_it():
    assert crew_for([{"CPU": 96, "GPU": 1}], "auto", None).processes == 8


def test_gpus_without_enough_cores_stay_idle():
    assert crew_for([{"CPU": 8, "GPU": 4}, {"CPU": 4, "GPU": 4}], "auto", 3).workers == 3


def test_a_network_on_the_cpu_gets_one_core_or_one_for_each_process():
    machines = [{"CPU": 8, "GPU": 1}, {"CPU": 10}]
    assert crew_for(machines, "cpu", None) == Crew(workers=18, cpus=1, gpus=0, processes=0)
    assert crew_for(machines, "cpu", 4) == Crew(workers=4, cpus=4, gpus=0, processes=4)


@pytest.mark.parametrize(
    ("machines", "device", "processes", "problem"),
    [
        ([{"CPU": 8}], "cuda", None, "no machine of the cluster has a GPU"),
        ([{"CPU": 8, "GPU": 2}], "cuda:1", None, "'cuda:1': each worker on the cluster sees one GPU only"),
        ([{"CPU": 4, "GPU": 1}], "cuda", 4, r"takes 5 cores and 1 GPUs.*\(4 cores, 1 GPUs\).*inference\.workers lower"),
        ([{"CPU": 2}], "auto", 4, r"takes 4 cores and 0 GPUs.*\(2 cores, 0 GPUs\).*inference\.workers lower"),
        ([], "auto", 0, "no machine"),
    ],
)
def test_a_cluster_without_room_for_a_worker_is_an_error_that_says_what_to_change(machines, device, processes, problem):
    with pytest.raises(ParameterError, match=problem):
        crew_for(machines, device, processes)


# Without a cluster


def test_without_ray_the_error_names_the_extra(world, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ParameterError, match=r"pip install 'farther\[ray\]'"):
        world.run("none", Mortal(world.mark), ON_RAY)


def test_the_engine_is_not_among_what_shapes_the_rows():
    assert ON_RAY.shaping() == LOCAL.shaping()


def test_a_machine_that_does_not_see_the_projects_folder_is_refused(tmp_path):
    with pytest.raises(FartherError, match="elsewhere, where the run was started, does not exist on machine"):
        ray_engine.Worker().work(None, None, "a", None, tmp_path / "elsewhere")


def test_a_machine_with_another_checkpoint_or_version_is_refused(world, monkeypatch):
    jobs = []
    monkeypatch.setattr(ray_engine, "make_on_cluster", lambda job, shards, count: jobs.append(job))
    with pytest.raises(DataError, match=r"not finished|does not exist"):
        world.run("never", Mortal(world.mark), ON_RAY)
    jobs[0].writer.key = "another"
    with pytest.raises(FartherError, match="would make other rows than the machine that started the run"):
        ray_engine.Worker().work(jobs[0], None, "a", None, Path.cwd())
