import importlib.util
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image

from farther.detectors.inference import InferenceParams, infer, infer_splits
from farther.errors import DataError, FartherError, ParameterError
from farther.keyed import record_path
from farther.registry import build
from farther.tables import Header, Images, Regions, RegionsFolder

#: What the upper left pixel of an image makes the detector below do.
UNPREPARABLE, NOT_FINITE, DEADLY = (255, 0, 0), (0, 255, 0), (0, 0, 255)


@dataclass
class Speckles:
    """A detector without a network: an image whose mean red is r has r mod 4 regions, whose values follow from it."""

    version: int = 1
    stop_after: int | None = None
    seen: int = 0
    on_cpu: bool = True
    network: None = None

    @property
    def code_modules(self):
        return (type(self).__module__,)

    def runs_on_cpu(self):
        return self.on_cpu

    def header(self):
        weight = np.arange(6, dtype=np.float32).reshape(2, 3)
        detector = {"name": "speckles", "version": self.version}
        return Header(
            classes=("dog", "cat"), detector=detector, weight=weight, bias=np.zeros(2, np.float32)
        )

    def prepare(self, image):
        corner = tuple(image[0, 0])
        if corner == UNPREPARABLE:
            raise ZeroDivisionError("no red at all")
        if corner == DEADLY:
            os.kill(os.getpid(), signal.SIGKILL)
        return image.mean(axis=(0, 1)) if corner != NOT_FINITE else np.full(3, np.nan)

    def forward(self, prepared, image_ids):
        self.interrupt(len(prepared))
        return Regions.concatenate(
            [self.answer(mean, i) for mean, i in zip(prepared, image_ids, strict=True)]
        )

    def interrupt(self, count):
        self.seen += count
        if self.stop_after is not None and self.seen > self.stop_after:
            raise KeyboardInterrupt

    def answer(self, mean, image_id):
        n = int(np.nan_to_num(mean[0])) % 4
        rank = np.arange(n)
        features = np.tile(mean, (n, 1)) + rank[:, None]
        if np.isnan(mean).any():
            n, rank, features = 1, np.arange(1), mean[None]
        return Regions(
            header=self.header(),
            image_id=[image_id] * n,
            region_id=rank,
            box=np.tile([0, 0, 1, 1], (n, 1)) + rank[:, None],
            score=0.9 - 0.1 * rank,
            label=rank % 2,
            logits=features @ self.header().weight.T,
            features=features.astype(np.float16),
        )


class WaitsToBeKilled(Speckles):
    def interrupt(self, count):
        self.seen += count
        if self.seen > self.stop_after:
            print("waiting", flush=True)
            signal.pause()


def draw(folder, count, sizes=((6, 4), (4, 6), (8, 8))):
    """An images table of `count` images, whose red is their row."""
    folder.mkdir(parents=True, exist_ok=True)
    for row in range(count):
        Image.new("RGB", sizes[row % len(sizes)], (row, 100, 50)).save(folder / f"{row}.png")
    return Images(
        image_id=[f"image {row}" for row in range(count)],
        dataset=["drawn"] * count,
        file=[f"{row}.png" for row in range(count)],
        width=[sizes[row % len(sizes)][0] for row in range(count)],
        height=[sizes[row % len(sizes)][1] for row in range(count)],
        digest=["-"] * count,
    )


def spoil(folder, row, corner):
    """Gives an image an upper left pixel that the detector cannot stand."""
    with Image.open(folder / f"{row}.png") as image:
        image.putpixel((0, 0), corner)
        image.save(folder / f"{row}.png")


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


SMALL = InferenceParams(batch_size=3, workers=0, shard_images=5)


@pytest.fixture
def world(tmp_path):
    """Runs the engine on 13 images: `run(out, detector, params)`."""

    class World:
        root = tmp_path / "drawn"
        images = draw(root, 13)
        work = tmp_path / "work"

        def run(self, name, detector=None, params=SMALL):
            out = tmp_path / "regions" / name
            return infer(
                detector or Speckles(),
                self.images,
                {"drawn": self.root},
                out,
                self.work,
                params,
                progress=False,
            )

    return World()


# Rows


def test_rows_stand_in_the_order_of_the_table_whatever_shares_a_batch(world):
    regions = Regions.read(world.run("a").path)
    assert list(regions.image_id) == [f"image {row}" for row in range(13) for _ in range(row % 4)]


def test_region_ids_are_the_row_of_the_image_times_65536_plus_the_rank(world):
    regions = Regions.read(world.run("a").path)
    assert regions.region_id[regions.image_id == "image 6"].tolist() == [6 * 65_536, 6 * 65_536 + 1]
    assert regions.region_id[regions.image_id == "image 7"].tolist() == [458_752, 458_753, 458_754]


def test_every_row_holds_what_the_detector_said_of_its_image(world):
    regions = Regions.read(world.run("a").path)
    rows = np.array([int(name.split()[1]) for name in regions.image_id])
    rank = regions.region_id & 0xFFFF
    np.testing.assert_array_equal(
        regions.features, np.stack([rows, 0 * rows + 100, 0 * rows + 50], 1) + rank[:, None]
    )
    assert regions.features.dtype == np.float16
    np.testing.assert_allclose(regions.score, 0.9 - 0.1 * rank, rtol=1e-6)
    np.testing.assert_allclose(regions.features @ regions.weight.T, regions.logits)


def test_shards_hold_as_many_images_as_asked_for(world):
    folder = world.run("a")
    assert [shard["images"] for shard in folder.info["shards"]] == [5, 5, 3]
    assert folder.info["images"] == 13


@pytest.mark.parametrize("on_cpu", [True, False])
@pytest.mark.parametrize("workers", [1, 2])
def test_worker_processes_do_not_change_a_byte(world, workers, on_cpu):
    alone = world.run("alone")
    together = world.run("together", Speckles(on_cpu=on_cpu), replace(SMALL, workers=workers))
    assert content(together.path) == content(alone.path)


@pytest.mark.parametrize("batch_size", [1, 4, 100])
@pytest.mark.parametrize("batches", ["similar shape", "table"])
def test_batches_do_not_change_a_byte_of_the_rows(world, batch_size, batches):
    usual = world.run("usual")
    other = world.run("other", params=replace(SMALL, batch_size=batch_size, batches=batches))
    assert [path.read_bytes() for path in other.shards] == [
        path.read_bytes() for path in usual.shards
    ]


def test_images_of_similar_shape_share_a_batch(world):
    seen = []

    class Watched(Speckles):
        def forward(self, prepared, image_ids):
            seen.append(sorted(int(i.split()[1]) for i in image_ids))
            return super().forward(prepared, image_ids)

    world.run("a", Watched(), replace(SMALL, shard_images=12, batch_size=4))
    upright, square, wide = [1, 4, 7, 10], [2, 5, 8, 11], [0, 3, 6, 9]
    assert seen[:3] == [upright, square, wide]


def test_a_split_where_nothing_is_found_still_has_its_columns(world, tmp_path):
    for row in range(13):
        Image.new(
            "RGB", (int(world.images.width[row]), int(world.images.height[row])), (0, 9, 9)
        ).save(world.root / f"{row}.png")
    folder = world.run("a")
    assert len(folder) == 0
    assert folder.has("features")
    assert Regions.read(folder.path).features.shape == (0, 3)


def test_a_table_without_images_gives_a_folder_without_rows(world):
    world.images = world.images[:0]
    folder = world.run("a")
    assert (len(folder), folder.info["images"], folder.failures) == (0, 0, [])
    assert len(Regions.read(folder.path)) == 0


def test_what_stood_there_is_replaced_as_a_whole(world):
    first = world.run("a", params=replace(SMALL, shard_images=1))
    assert len(first.shards) == 13
    second = world.run("a")
    assert sorted(content(second.path)) == [
        "last_layer.safetensors",
        "part-00000.parquet",
        "part-00001.parquet",
        "part-00002.parquet",
        "regions.json",
    ]
    assert not world.work.exists()


# Going on after a kill


@pytest.mark.parametrize("stop_after", [0, 4, 5, 9, 12])
def test_an_interrupted_run_ends_in_the_same_bytes(world, stop_after):
    whole = world.run("whole")
    with pytest.raises(KeyboardInterrupt):
        world.run("resumed", Speckles(stop_after=stop_after))
    assert content(world.run("resumed").path) == content(whole.path)


def test_finished_shards_are_not_made_again(world):
    with pytest.raises(KeyboardInterrupt):
        world.run("a", Speckles(stop_after=11))
    detector = Speckles()
    world.run("a", detector)
    assert detector.seen == 3


def test_until_all_is_done_the_old_folder_stands(world):
    before = content(world.run("a").path)
    with pytest.raises(KeyboardInterrupt):
        world.run("a", Speckles(version=2, stop_after=11))
    assert content(RegionsFolder(world.work.parent / "regions/a").path) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda world: {"detector": Speckles(version=2)},
        lambda world: {"params": replace(SMALL, shard_images=6)},
        lambda world: {"params": replace(SMALL, max_pixels=10**6)},
        lambda world: setattr(world, "images", world.images[::-1]) or {},
    ],
    ids=["detector", "shards", "pixels", "images"],
)
def test_shards_of_another_detector_or_table_or_setting_are_thrown_away(world, change):
    with pytest.raises(KeyboardInterrupt):
        world.run("a", Speckles(stop_after=11))
    changed = {"detector": Speckles(), **change(world)}
    world.run("a", **changed)
    assert changed["detector"].seen == 13


@pytest.mark.parametrize("change", [{"workers": 1}, {"max_failures": 0.5}])
def test_settings_that_do_not_shape_the_rows_keep_the_shards(world, change):
    with pytest.raises(KeyboardInterrupt):
        world.run("a", Speckles(stop_after=11))
    detector = Speckles(on_cpu=False)
    world.run("a", detector, replace(SMALL, **change))
    assert detector.seen == 3


def run_until_killed(root, out, work, images, where):
    """What the process does that the next test kills: it, or its one worker, waits in the third shard."""
    detector = WaitsToBeKilled(stop_after=10, on_cpu=where == "in a worker")
    params = replace(SMALL, workers=1 if detector.on_cpu else 2)
    infer(detector, Images.read(images), {"drawn": Path(root)}, out, work, params, progress=False)


KILLED = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location(sys.argv[1], sys.argv[2])
sys.modules[sys.argv[1]] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.run_until_killed(*sys.argv[3:])
"""


@pytest.mark.parametrize("where", ["in a worker", "in the main process"])
def test_a_killed_process_leaves_whole_shards_and_no_workers_and_the_next_run_finishes_the_same_bytes(
    world, tmp_path, where
):
    whole = content(world.run("whole").path)
    world.images.write(tmp_path / "images.parquet")
    paths = [
        world.root,
        tmp_path / "regions/killed",
        world.work,
        tmp_path / "images.parquet",
        where,
    ]
    pipes = {"stdout": subprocess.PIPE}
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, __name__, __file__, *map(str, paths)], **pipes
    ) as process:
        assert process.stdout.readline() == b"waiting\n"
        process.kill()
        # The workers hold the other end of the pipe too: it only ends when all of them are gone.
        assert process.stdout.read() == b""
    assert process.returncode == -signal.SIGKILL
    (world.work / ".work").mkdir(exist_ok=True)
    (world.work / ".work" / "a1.lock").write_text("4711")
    (world.work / ".work" / "a1.4711.0.part-00002.parquet").write_bytes(b"half a shard")
    detector = WaitsToBeKilled(stop_after=100)
    resumed = world.run("killed", detector)
    assert content(resumed.path) == whole
    # The shard before may still have been on its way to the disk; a worker may be one batch ahead.
    assert detector.seen in ([3, 8, 13] if where == "in a worker" else [3, 8])


# Images that cannot be used


def test_unusable_images_are_left_out_and_listed_with_reasons_in_the_order_of_the_table(world):
    spoil(world.root, 11, UNPREPARABLE)
    spoil(world.root, 3, NOT_FINITE)
    (world.root / "1.png").write_bytes(b"no image")
    (world.root / "7.png").unlink()
    Image.new("RGB", (5, 5)).save(world.root / "6.png")
    folder = world.run("a", params=replace(SMALL, max_failures=0.5))
    reasons = {failure["image_id"]: failure["reason"] for failure in folder.failures}
    assert list(reasons) == ["image 1", "image 3", "image 6", "image 7", "image 11"]
    assert reasons["image 1"].startswith("not an image")
    assert reasons["image 3"].startswith(
        "the model's output cannot be used: row 0: field 'logits': not a finite"
    )
    assert reasons["image 6"].startswith("5×5 pixels, but 6×4 in the images table")
    assert reasons["image 7"] == "the file does not exist"
    assert reasons["image 11"] == "cannot be prepared: ZeroDivisionError: no red at all"
    assert set(Regions.read(folder.path).image_id) == {"image 2", "image 5", "image 9", "image 10"}
    assert folder.info["images"] == 13


def test_the_other_images_of_a_batch_with_impossible_values_are_kept(world):
    usual = Regions.read(world.run("usual").path)
    spoil(world.root, 3, NOT_FINITE)
    kept = Regions.read(world.run("spoilt", params=replace(SMALL, max_failures=0.1)).path)
    assert kept.region_id.tolist() == usual.region_id[usual.image_id != "image 3"].tolist()


def test_a_shard_without_a_usable_image_has_no_rows_and_the_others_keep_their_columns(world):
    for row in range(5):
        (world.root / f"{row}.png").unlink()
    folder = world.run("a", params=replace(SMALL, max_failures=0.5))
    assert [shard["regions"] for shard in folder.info["shards"]] == [0, 7, 5]
    assert all(batch.features is not None for batch in folder.batches())
    assert len(Regions.read(folder.path)) == 12


def test_more_failures_than_allowed_are_an_error_that_names_the_first(world):
    for row in (2, 3):
        (world.root / f"{row}.png").unlink()
    with pytest.raises(
        DataError,
        match=r"2 of 13 images .*max_failures = 0\.1 (.|\n)*image 2 \(.*2\.png\): the file does not exist",
    ):
        world.run("a", params=replace(SMALL, max_failures=0.1))
    assert len(world.run("a", params=replace(SMALL, max_failures=0.2)).failures) == 2


def test_after_an_image_is_mended_only_its_shard_is_made_again(world):
    whole = content(world.run("whole").path)
    picture = (world.root / "6.png").read_bytes()
    (world.root / "6.png").unlink()
    with pytest.raises(DataError, match="image 6"):
        world.run("mended")
    (world.root / "6.png").write_bytes(picture)
    detector = Speckles()
    assert content(world.run("mended", detector).path) == whole
    assert detector.seen == 5


def test_an_image_that_is_stored_on_its_side_is_inferred_as_it_is_displayed(world):
    usual = content(world.run("usual").path)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (4, 6), (9, 100, 50)).save(world.root / "9.png", exif=exif)
    turned = world.run("turned")
    assert turned.failures == []
    assert content(turned.path) == usual


def test_a_worker_that_is_killed_is_an_error_that_says_what_to_do(world):
    spoil(world.root, 8, DEADLY)
    with pytest.raises(FartherError, match="fewer workers"):
        world.run("a", params=replace(SMALL, workers=2))


def test_an_unknown_dataset_is_refused_before_anything_is_done(world):
    world.images = world.images.with_columns(dataset=[*["drawn"] * 12, "elsewhere"])
    with pytest.raises(ParameterError, match=r"'elsewhere'.*Known: drawn"):
        world.run("a")


@pytest.mark.parametrize("name", ["../secret.png", "/etc/passwd"])
def test_files_outside_of_their_root_are_refused(world, name):
    world.images = world.images.with_columns(file=[*world.images.file[:12], name])
    with pytest.raises(DataError, match="leaves its folder"):
        world.run("a")


# Detectors that answer wrongly


def answers(change):
    class Wrong(Speckles):
        def forward(self, prepared, image_ids):
            return change(super().forward(prepared, image_ids))

    return Wrong()


def test_an_answer_for_another_image_is_refused(world):
    def renamed(regions):
        return Regions(
            header=regions.header, **{**regions.columns(), "image_id": ["image 99"] * len(regions)}
        )

    with pytest.raises(DataError, match="rows of 'image 99', which it was not given"):
        world.run("a", answers(renamed))


def test_answers_with_and_without_features_do_not_mix(world):
    def sometimes(regions):
        columns = regions.columns()
        return (
            regions
            if "image 1" in regions.image_id
            else Regions(
                header=regions.header,
                **{name: values for name, values in columns.items() if name != "features"},
            )
        )

    with pytest.raises(DataError, match="differ in their columns"):
        world.run("a", answers(sometimes))


def test_more_regions_than_can_be_numbered_are_refused(world):
    def many(regions):
        return regions[np.zeros(65_537, int)] if len(regions) else regions

    with pytest.raises(DataError, match="65537 regions in image 'image 1'"):
        world.run(
            "a",
            answers(many),
            replace(SMALL, batches="table", batch_size=1, shard_images=1, max_failures=1),
        )


# torch


def test_the_engine_needs_no_torch():
    code = "import sys, farther.detectors.inference; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Torch(Speckles):
    modes: ClassVar[set[bool]] = set()

    def prepare(self, image):
        return torch.from_numpy(image)

    def forward(self, prepared, image_ids):
        self.modes.add(torch.is_inference_mode_enabled())
        assert not any(image.is_shared() for image in prepared)
        return super().forward([image.numpy().mean(axis=(0, 1)) for image in prepared], image_ids)


def test_a_torch_detector_runs_in_inference_mode_and_gets_plain_tensors_from_its_workers(world):
    usual = world.run("usual")
    with_torch = world.run("torch", Torch(on_cpu=False), replace(SMALL, workers=1))
    assert Torch.modes == {True}
    assert not torch.is_inference_mode_enabled()
    assert [p.read_bytes() for p in with_torch.shards] == [p.read_bytes() for p in usual.shards]


# All splits of a benchmark


@pytest.fixture
def benchmark(tmp_path):
    """Runs the engine on the splits `near` and `test`: `run(detector, params)` gives the lines that it says."""

    class Benchmark:
        splits, out, work, root = (
            tmp_path / name for name in ("splits", "regions", "work", "drawn")
        )

        def split(self, name, count):
            draw(self.root, 13)[np.arange(count)].write(self.splits / name / "images.parquet")

        def run(self, detector=None, params=SMALL):
            lines = []
            detector = detector or Speckles()
            roots = {"drawn": self.root}
            infer_splits(
                detector,
                self.splits,
                roots,
                self.out,
                self.work,
                params,
                progress=False,
                log=lines.append,
            )
            return lines

    made = Benchmark()
    made.split("near", 7)
    made.split("test", 6)
    return made


UNCHANGED = ["near: unchanged", "test: unchanged"]


def test_each_split_gets_a_folder_and_a_line(benchmark):
    assert benchmark.run() == [
        "near: 7 images, 9 regions, 0 failures",
        "test: 6 images, 7 regions, 0 failures",
    ]
    assert len(Regions.read(benchmark.out / "near")) == 9
    assert not benchmark.work.exists()


def test_nothing_is_inferred_twice(benchmark):
    benchmark.run()
    before = content(benchmark.out)
    detector = Speckles()
    assert benchmark.run(detector) == UNCHANGED
    assert detector.seen == 0
    assert content(benchmark.out) == before


def test_a_new_split_does_not_infer_the_others_again(benchmark):
    benchmark.run()
    benchmark.split("far", 3)
    detector = Speckles()
    assert benchmark.run(detector) == ["far: 3 images, 3 regions, 0 failures", *UNCHANGED]
    assert detector.seen == 3


def test_splits_of_the_same_images_are_inferred_once(benchmark):
    benchmark.split("also_near", 7)
    detector = Speckles()
    assert benchmark.run(detector)[:2] == [
        "also_near: 7 images, 9 regions, 0 failures",
        "near: the images of also_near",
    ]
    benchmark.split("again_near", 7)
    assert benchmark.run(detector)[0].startswith("again_near: the images of ")
    assert detector.seen == 13
    np.testing.assert_array_equal(
        Regions.read(benchmark.out / "near").box, Regions.read(benchmark.out / "again_near").box
    )


def test_a_changed_split_is_inferred_again_alone(benchmark):
    benchmark.run()
    benchmark.split("near", 5)
    assert benchmark.run() == ["near: 5 images, 6 regions, 0 failures", "test: unchanged"]


def test_an_image_with_new_content_makes_its_split_a_changed_one(benchmark):
    benchmark.run()
    images = Images.read(benchmark.splits / "test/images.parquet")
    images.with_columns(digest=[*["-"] * 5, "another"]).write(
        benchmark.splits / "test/images.parquet"
    )
    assert benchmark.run()[1] == "test: 6 images, 7 regions, 0 failures"


@pytest.mark.parametrize(
    "change",
    [
        {"detector": Speckles(version=2)},
        {"params": replace(SMALL, batch_size=2)},
        {"params": replace(SMALL, max_pixels=10**6)},
    ],
    ids=["detector", "batch size", "pixels"],
)
def test_another_detector_or_setting_infers_all_splits_again(benchmark, change):
    benchmark.run()
    assert not set(benchmark.run(**change)) & set(UNCHANGED)


@pytest.mark.parametrize("change", [{"workers": 1}, {"max_failures": 0.3}])
def test_settings_that_do_not_shape_the_rows_leave_the_splits_alone(benchmark, change):
    benchmark.run()
    assert benchmark.run(params=replace(SMALL, **change)) == UNCHANGED


def test_a_changed_adapter_infers_all_splits_again(benchmark, tmp_path):
    source = Path(__file__).read_text()

    def from_file(text):
        (tmp_path / "adapter.py").write_text(text)
        spec = importlib.util.spec_from_file_location("adapter_of_a_user", tmp_path / "adapter.py")
        sys.modules["adapter_of_a_user"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.Speckles()

    try:
        benchmark.run(from_file(source))
        assert benchmark.run(from_file(source)) == UNCHANGED
        assert not set(benchmark.run(from_file(source + "\nCHANGED = True\n"))) & set(UNCHANGED)
    finally:
        del sys.modules["adapter_of_a_user"]


def test_a_folder_that_lost_a_shard_is_made_again(benchmark):
    benchmark.run()
    before = content(benchmark.out)
    (benchmark.out / "near/part-00001.parquet").unlink()
    assert benchmark.run() == ["near: 7 images, 9 regions, 0 failures", "test: unchanged"]
    assert content(benchmark.out) == before


def test_splits_that_are_gone_are_removed_with_their_unfinished_work(benchmark):
    benchmark.run()
    with pytest.raises(KeyboardInterrupt):
        benchmark.run(Speckles(version=2, stop_after=5))
    (benchmark.splits / "near/images.parquet").unlink()
    (benchmark.splits / "near").rmdir()
    assert benchmark.run() == ["near: removed", "test: unchanged"]
    assert sorted(path.name for path in benchmark.out.iterdir()) == ["test"]
    assert not benchmark.work.exists()


def test_leftovers_of_a_killed_run_are_removed(benchmark):
    (benchmark.out / ".4711.near").mkdir(parents=True)
    (benchmark.work / "far").mkdir(parents=True)
    benchmark.run()
    assert sorted(path.name for path in benchmark.out.iterdir()) == ["near", "test"]
    assert not benchmark.work.exists()


def test_a_folder_of_a_run_that_was_killed_before_its_key_was_stored_is_made_again(benchmark):
    benchmark.run()
    record_path(benchmark.out).unlink()
    assert not set(benchmark.run()) & set(UNCHANGED)


def test_a_folder_without_splits_is_refused(benchmark, tmp_path):
    benchmark.splits = tmp_path / "nowhere"
    with pytest.raises(DataError, match="nowhere: no split here"):
        benchmark.run()


def test_a_split_without_its_table_is_refused(benchmark):
    (benchmark.splits / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty/images\.parquet: the file does not exist"):
        benchmark.run()


# Parameters


@pytest.mark.parametrize(
    ("name", "value"),
    [("batch_size", 0), ("workers", -1), ("shard_images", 0), ("max_failures", 1.5)],
)
def test_impossible_settings_are_refused_by_name(name, value):
    with pytest.raises(ParameterError, match=f"inference: parameter '{name}'"):
        build(InferenceParams, "inference", {name: value})


def test_unknown_settings_are_refused_with_the_known_ones():
    with pytest.raises(ParameterError, match="Known: batch_size, workers"):
        build(InferenceParams, "inference", {"batchsize": 2})


def test_a_network_in_this_process_has_a_core_left_and_there_are_never_more_than_8_workers(
    monkeypatch,
):
    monkeypatch.setattr("farther.images.plan.count_cores", lambda: 4)
    assert InferenceParams().processes() == 3
    assert InferenceParams().processes(cores_left=0) == 4
    monkeypatch.setattr("farther.images.plan.count_cores", lambda: 64)
    assert InferenceParams().processes() == 8
    monkeypatch.setattr("farther.images.plan.count_cores", lambda: 1)
    assert InferenceParams().processes() == 0
