"""The regions folders of a benchmark's splits: which are computed, copied, kept and deleted."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.images import speckles
from tests.images.speckles import SMALL, Speckles, content, draw

from farther.detectors.split_inference import infer_splits
from farther.errors import DataError
from farther.incremental.keyed import record_path
from farther.tables import Images, Regions


@pytest.fixture
def benchmark(tmp_path):
    """Runs the engine on the splits `near` and `test`: `run(detector, params)` returns its log."""

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
    ],
    ids=["detector", "batch size"],
)
def test_another_detector_or_setting_infers_all_splits_again(benchmark, change):
    benchmark.run()
    assert not set(benchmark.run(**change)) & set(UNCHANGED)


@pytest.mark.parametrize("change", [{"workers": 1}, {"max_failures": 0.3}])
def test_settings_that_do_not_shape_the_rows_leave_the_splits_alone(benchmark, change):
    benchmark.run()
    assert benchmark.run(params=replace(SMALL, **change)) == UNCHANGED


def test_a_changed_adapter_infers_all_splits_again(benchmark, tmp_path):
    source = Path(speckles.__file__).read_text()

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
