"""Datasets of corrupted images."""

import numpy as np
import polars as pl
import pytest
from PIL import Image

from farther.derived.corrupt import SETS
from farther.images.corruptions import corrupt, draw


@pytest.mark.parametrize("draw_per", ["severity", "image"])
def test_each_severity_is_a_subset_with_the_same_images_and_objects(
    scenes, write, tmp_path, draw_per
):
    all_scenes = scenes(tmp_path, 6)
    counts, subsets = write("corrupt", all_scenes, tmp_path / "out", seed=7, draw_per=draw_per)
    assert counts["images"] == {"c1": 6, "c3": 6, "c5": 6}
    assert sorted(subsets) == ["c1", "c3", "c5"]
    ids = all_scenes.source.images.image_id.tolist()
    for content in subsets.values():
        assert [image["id"] for image in content["images"]] == ids
        boxes = [annotation["bbox"] for annotation in content["annotations"]]
        assert boxes == [[0, 0, 16, 12]] * 6
    kinds: dict[str, list[str]] = {}
    for row in pl.read_csv(tmp_path / "out/corruptions.csv").iter_rows(named=True):
        kinds.setdefault(row["subset"], []).append(row["corruption"])
    if draw_per == "image":
        assert kinds["c1"] == kinds["c3"] == kinds["c5"] == [draw(name, 7)[0] for name in ids]
    else:
        # Each image is drawn anew at each severity (SAOD, Appendix A.2).
        for severity in (1, 3, 5):
            expected = [draw(f"{name} at severity {severity}", 7)[0] for name in ids]
            assert kinds[f"c{severity}"] == expected
        assert kinds["c1"] != kinds["c3"] != kinds["c5"]


@pytest.mark.parametrize(
    ("corruptions", "drawn", "not_drawn"),
    [
        (
            "saod",
            {"speckle_noise", "gaussian_blur"},
            {"glass_blur", "zoom_blur", "spatter", "saturate"},
        ),
        (
            "imagenet-c",
            {"glass_blur", "zoom_blur"},
            {"speckle_noise", "gaussian_blur", "spatter", "saturate"},
        ),
    ],
)
def test_both_sets_of_fifteen_corruptions_differ_in_two(corruptions, drawn, not_drawn):
    kinds = set(SETS[corruptions])
    assert len(kinds) == 15
    assert drawn <= kinds
    assert not not_drawn & kinds
    assert len(set(SETS["saod"]) & set(SETS["imagenet-c"])) == 13


def test_a_corrupted_file_has_the_pixels_of_its_corrupted_image(scenes, write, tmp_path):
    all_scenes = scenes(tmp_path, 4)
    write("corrupt", all_scenes, tmp_path / "out", severities=[4], seed=3)
    for row, name in enumerate(all_scenes.source.images.image_id):
        kind, seed = draw(f"{name} at severity 4", 3)
        pixels = np.asarray(Image.open(tmp_path / "out/c4" / f"{row + 1:06}.png"))
        np.testing.assert_array_equal(pixels, corrupt(all_scenes.pixels(row), kind, 4, seed))


@pytest.mark.slow
def test_several_processes_write_the_same_bytes(scenes, write, files_of, tmp_path, monkeypatch):
    all_scenes = scenes(tmp_path, 3)
    write("corrupt", all_scenes, tmp_path / "one", corruptions=["fog", "contrast"])
    monkeypatch.setattr("farther.derived.changed.PER_PROCESS", 2)
    monkeypatch.setattr("farther.derived.changed.count_cores", lambda: 2)
    write("corrupt", all_scenes, tmp_path / "two", corruptions=["fog", "contrast"])
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")
