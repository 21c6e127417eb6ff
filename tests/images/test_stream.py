"""The engine that streams images: order of rows, resuming, and images that cannot be used."""

import signal
import subprocess
import sys
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from tests.images import speckles
from tests.images.speckles import (
    DEADLY,
    NOT_FINITE,
    SMALL,
    UNPREPARABLE,
    Speckles,
    WaitsToBeKilled,
    World,
    content,
    spoil,
)
from tests.support.messages import OUTSIDE

from farther.detectors.inference import DetectorModel
from farther.errors import DataError, FartherError, ParameterError
from farther.images.job import cache_key
from farther.images.plan import StreamParams
from farther.tables import Regions, RegionsFolder


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


# Rows


def test_rows_stand_in_the_order_of_the_table_whatever_shares_a_batch(world):
    regions = Regions.read(world.run("a").path)
    assert list(regions.image_id) == [f"image {row}" for row in range(13) for _ in range(row % 4)]


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


# Resuming


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
        lambda world: setattr(world, "images", world.images[::-1]) or {},
    ],
    ids=["detector", "shards", "images"],
)
def test_shards_of_another_detector_or_table_or_setting_are_thrown_away(world, change):
    with pytest.raises(KeyboardInterrupt):
        world.run("a", Speckles(stop_after=11))
    changed = {"detector": Speckles(), **change(world)}
    world.run("a", **changed)
    assert changed["detector"].seen == 13


@pytest.mark.parametrize("change", [{"workers": 1}, {"max_failures": 0.5}, {"max_pixels": 10**6}])
def test_settings_that_do_not_shape_the_rows_keep_the_shards(world, change):
    with pytest.raises(KeyboardInterrupt):
        world.run("a", Speckles(stop_after=11))
    detector = Speckles(on_cpu=False)
    world.run("a", detector, replace(SMALL, **change))
    assert detector.seen == 3


KILLED = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location(sys.argv[1], sys.argv[2])
sys.modules[sys.argv[1]] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.run_until_killed(*sys.argv[3:])
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["in a worker", "in the main process"])
def test_a_killed_process_leaves_whole_shards_and_no_workers_and_the_next_run_has_the_same_bytes(
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
    command = [sys.executable, "-c", KILLED, speckles.__name__, speckles.__file__]
    command += [str(path) for path in paths]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
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


def test_an_image_with_too_many_pixels_is_listed_with_the_parameter_that_allows_it(world):
    Image.new("RGB", (50, 40)).save(world.root / "6.png")
    params = replace(SMALL, max_failures=0.5, max_pixels=1_000)
    (failure,) = world.run("a", params=params).failures
    assert failure["reason"] == (
        "50 × 40 = 2,000 pixels, more than the limit of 1,000: raise inference.max_pixels in "
        "params.yaml, or cut it into tiles"
    )


def test_unusable_images_are_left_out_and_listed_with_reasons_in_the_order_of_the_table(world):
    spoil(world.root, 11, UNPREPARABLE)
    spoil(world.root, 3, NOT_FINITE)
    (world.root / "1.png").write_bytes(b"no image")
    (world.root / "7.png").unlink()
    Image.new("RGB", (5, 5)).save(world.root / "6.png")
    folder = world.run("a", params=replace(SMALL, max_failures=0.5))
    reasons = {failure["image_id"]: failure["reason"] for failure in folder.failures}
    assert list(reasons) == ["image 1", "image 3", "image 6", "image 7", "image 11"]
    assert reasons["image 1"].startswith("unknown image format")
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
        match=r"2 of 13 images .*max_failures = 0\.1 (.|\n)*image 2 \(.*2\.png\): the file does "
        r"not exist",
    ):
        world.run("a", params=replace(SMALL, max_failures=0.1))
    assert len(world.run("a", params=replace(SMALL, max_failures=0.2)).failures) == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_images_of_a_missing_folder_are_not_left_out(world, workers):
    away = world.root.with_name("away")
    world.root.rename(away)
    params = replace(SMALL, max_failures=1.0, workers=workers)
    with pytest.raises(FartherError, match=rf"the folder {world.root} of the image .* not exist"):
        world.run("unmounted", params=params)
    away.rename(world.root)
    assert len(world.run("unmounted", params=params).failures) == 0


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
    with pytest.raises(DataError, match=OUTSIDE):
        world.run("a")


# Models that yield wrong rows


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


# PyTorch


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


# The cache key


def test_a_limit_on_pixels_that_no_image_exceeds_keeps_the_output(world):
    model = DetectorModel(Speckles(), Speckles().header())
    images = world.images.with_columns(width=np.full(13, 30), height=np.full(13, 20))
    width = images.width.copy()
    width[4] = 50

    def key(limit, table=images):
        return cache_key(model, table, StreamParams(max_pixels=limit))

    assert key(600) == key(10_000)
    assert key(599) != key(600)
    with_a_large_image = images.with_columns(width=width)
    assert key(999, with_a_large_image) == key(600, with_a_large_image)
    assert key(999, with_a_large_image) != key(1000, with_a_large_image)


def test_the_limit_counts_where_the_size_of_an_image_is_not_known(world):
    model = DetectorModel(Speckles(), Speckles().header())
    images = world.images.with_columns(width=np.zeros(13, np.int64))
    keys = {cache_key(model, images, StreamParams(max_pixels=limit)) for limit in (10, 20)}
    assert len(keys) == 2
