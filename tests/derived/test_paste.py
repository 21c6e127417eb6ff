"""Datasets with pasted objects of unknown classes."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from farther import datasets
from farther.curation import Categories, LabelledImages
from farther.derived import CutOut, CutOuts, Scenes, derived, generate, unknowns
from farther.errors import DataError, ParameterError
from farther.tables import Images, Objects

ROOT = Path(__file__).parents[2]


def cutouts(*categories: str) -> CutOuts:
    """Cut-outs of 16 × 12 black pixels, one per category given."""
    entries = [CutOut(name, f"{name} {row}", row) for row, name in enumerate(categories)]
    names = tuple(dict.fromkeys(categories))
    return CutOuts(Categories(names), entries, lambda cutout: Image.new("RGBA", (16, 12), "black"))


PASTE = {"rules": "r.yaml", "vocabulary": "photos", "cutouts": {}}


def params(**changes):
    """Parameters of a pasted dataset."""
    images = {"dataset": "id", "subset": "test"}
    return derived("paste", "s", {"images": images, **PASTE, **changes})


def annotations(folder: Path) -> dict:
    return json.loads((folder / "annotations/instances_pasted.json").read_text())


def test_an_image_that_is_too_large_for_jpeg_is_refused_and_written_as_png(tmp_path):
    wide = np.full((1, 65_501, 3), 255, np.uint8)
    params().save(wide[:, :-1], tmp_path / "1.jpg")
    with pytest.raises(DataError, match=r"1\.jpg: 65501 × 1 pixels: .*; write file_type: png"):
        params().save(wide, tmp_path / "1.jpg")
    params(file_type="png").save(wide, tmp_path / "1.png")
    assert Image.open(tmp_path / "1.png").size == (65_501, 1)


def test_id_classes_and_overlaps_are_never_pasted(rules):
    unknown = unknowns(cutouts("Cat", "Lynx", "Plate", "Kite", "Lynx"), rules, "photos")
    assert unknown.categories == ("Kite", "Lynx")
    assert [cutout.row for cutout in unknown.by_kind["near"]["Lynx"]] == [1, 4]
    assert list(unknown.by_kind["far"]) == ["Kite"]
    with pytest.raises(
        ParameterError, match="category 'Plate': the rules say 'overlap: Plate → table'"
    ):
        unknowns(cutouts("Plate", "Kite"), rules, "photos", ["Plate"])
    with pytest.raises(ParameterError, match="none of the 1 cut-outs shows an unknown class"):
        unknowns(cutouts("Cat"), rules, "photos")


def test_the_annotated_box_is_where_the_scene_changed(scenes, tmp_path, rules):
    settings = params(quality=100, pasting={"objects": (1, 1), "feather": 0})
    unknown = unknowns(cutouts("Kite"), rules, "photos")
    generate(settings, scenes(tmp_path, 12), unknown, tmp_path / "out")
    content = annotations(tmp_path / "out")
    file_by_id = {image["id"]: image["file_name"] for image in content["images"]}
    pasted = [annotation for annotation in content["annotations"] if annotation["category_id"] == 3]
    assert len(pasted) == 12
    for annotation in pasted:
        picture = Image.open(tmp_path / "out/pasted" / file_by_id[annotation["image_id"]])
        is_dark = np.asarray(picture.convert("L")) < 128
        rows = np.flatnonzero(is_dark.any(axis=1))
        columns = np.flatnonzero(is_dark.any(axis=0))
        x, y, width, height = annotation["bbox"]
        assert [columns[0], rows[0]] == [x, y]
        assert [columns[-1] + 1, rows[-1] + 1] == [x + width, y + height]


def test_the_same_seed_gives_the_same_bytes_and_a_scene_does_not_depend_on_the_others(
    scenes, files_of, tmp_path, rules
):
    unknown = unknowns(cutouts("Kite", "Lynx"), rules, "photos")
    all_scenes = scenes(tmp_path, 8)
    first_half = Scenes(all_scenes.source.select(np.arange(8) < 4), tmp_path, all_scenes.categories)
    generate(params(seed=1), all_scenes, unknown, tmp_path / "first")
    generate(params(seed=1), all_scenes, unknown, tmp_path / "same seed")
    generate(params(seed=2), all_scenes, unknown, tmp_path / "other seed")
    generate(params(seed=1), first_half, unknown, tmp_path / "half")
    first = files_of(tmp_path / "first")
    assert files_of(tmp_path / "same seed") == first
    assert files_of(tmp_path / "other seed")["pasted/000001.jpg"] != first["pasted/000001.jpg"]
    half = files_of(tmp_path / "half")
    for number in (1, 2, 3, 4):
        file = f"pasted/00000{number}.jpg"
        assert half[file] == first[file]


def test_a_scene_shows_near_objects_or_far_ones_and_all_categories_equally_often(
    scenes, tmp_path, rules
):
    unknown = unknowns(cutouts(*["Lynx"] * 30, "Otter", "Kite"), rules, "photos")
    settings = params(pasting={"objects": (2, 2), "hidden": 1})
    counts = generate(settings, scenes(tmp_path, 120), unknown, tmp_path / "out")["categories"]
    rows = (tmp_path / "out/pasted.csv").read_text().splitlines()[1:]
    kinds_by_scene: dict[str, set[str]] = {}
    for row in rows:
        scene = row.split(",")[0]
        kinds_by_scene.setdefault(scene, set()).add("near" if ",Lynx," in row else "far")
    assert all(len(kinds) == 1 for kinds in kinds_by_scene.values())
    near_count = sum(kinds == {"near"} for kinds in kinds_by_scene.values())
    assert 40 < near_count < 80
    assert counts["Kite"] + counts["Otter"] + counts["Lynx"] == len(rows)
    assert 0.6 < counts["Kite"] / counts["Otter"] < 1.7


def test_sizes_are_those_of_id_objects_and_no_cut_out_is_enlarged_beyond_the_limit(
    scenes, tmp_path, rules
):
    unknown = unknowns(cutouts("Kite"), rules, "photos")
    for name, pasting, longest in (
        ("like", {"enlarge": 10}, 16),
        ("given", {"enlarge": 10, "size": (0.5, 0.5)}, 32),
        ("limited", {"enlarge": 1.25, "size": (0.5, 0.5)}, 20),
    ):
        settings = params(pasting={"objects": (1, 1), "feather": 0, "tries": 50, **pasting})
        generate(settings, scenes(tmp_path, 3), unknown, tmp_path / name)
        content = annotations(tmp_path / name)["annotations"]
        pasted = [annotation for annotation in content if annotation["category_id"] == 3]
        assert [max(annotation["bbox"][2:]) for annotation in pasted] == [longest] * 3


def test_unreadable_scenes_are_listed_and_many_are_an_error(scenes, tmp_path, rules):
    all_scenes = scenes(tmp_path, 10)
    unknown = unknowns(cutouts("Kite"), rules, "photos")
    (tmp_path / "scene 3.png").write_bytes(b"nothing")
    counts = generate(params(max_failures=0.2), all_scenes, unknown, tmp_path / "out")
    assert (counts["images"], counts["failures"]) == (9, 1)
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["failed"][0]["name"] == "scene 3"
    with pytest.raises(DataError, match="more than max_failures = 0 allows"):
        generate(params(max_failures=0), all_scenes, unknown, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_name_cannot_be_known_and_unknown(scenes, tmp_path, rules):
    unknown = unknowns(cutouts("Kite"), rules, "photos")
    both = Scenes(scenes(tmp_path, 1).source, tmp_path, ("cat", "Kite"))
    with pytest.raises(
        DataError, match="'Kite' is a category of the ID dataset and the name of an unknown class"
    ):
        generate(params(), both, unknown, tmp_path / "out")


def test_difficult_and_crowd_objects_stay_so(scenes, tmp_path, rules):
    source = scenes(tmp_path, 2).source
    objects = source.objects.with_columns(is_crowd=[True, False], is_difficult=[False, True])
    all_scenes = Scenes(LabelledImages(source.images, objects), tmp_path, ("cat",))
    unknown = unknowns(cutouts("Kite"), rules, "photos")
    generate(params(pasting={"size": (0.2, 0.2)}), all_scenes, unknown, tmp_path / "out")
    reader = datasets.create("coco", root=tmp_path / "out", subset_names=["pasted"])
    written = reader.read("pasted")
    is_cat = np.array(written.categories)[written.objects.category] == "cat"
    assert written.objects.is_crowd[is_cat].tolist() == [True, False]
    assert written.objects.is_difficult[is_cat].tolist() == [False, True]


def test_the_pasted_dataset_is_ingested_and_curated_like_any_other(
    scenes, rules, tmp_path, commands
):
    folder = tmp_path / "artifacts" / "tables" / "id"
    source = scenes(tmp_path, 6).source
    for subset in ("train", "val", "test"):
        source.images.write(folder / subset / "images.parquet")
        source.objects.write(folder / subset / "objects.parquet")
    (folder / "categories.json").write_text('{"categories": ["cat", "table"], "parents": {}}')
    for name in ("Lynx", "Kite", "Plate"):
        (tmp_path / "drawings" / name).mkdir(parents=True)
        drawing = Image.new("RGBA", (30, 30), (200, 0, 0, 255))
        drawing.save(tmp_path / "drawings" / name / "1.png")
    pasted = {"dataset": "id_pasted", "subset": "pasted", "vocabulary": "photos", "known": "keep"}
    params = {
        "datasets": {"id": {"format": "coco", "root": "."}},
        "benchmarks": {
            "b": {
                "id": "id",
                "rules": "rules.yaml",
                "splits": {
                    "pasted_near": {**pasted, "distance": "near"},
                    "pasted_far": {**pasted, "distance": "far"},
                },
            }
        },
        "derived": {
            "paste": {
                "id_pasted": {
                    "images": {"dataset": "id", "subset": "test"},
                    "rules": "rules.yaml",
                    "vocabulary": "photos",
                    "cutouts": {"source": "folder", "root": "drawings"},
                }
            }
        },
    }
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    for stage, *arguments in (("derive", "paste", "id_pasted"), ("curate",)):
        command = [commands / "python", ROOT / "stages" / f"{stage}.py", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "lib")}
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    metrics = json.loads((tmp_path / "artifacts/counts/paste/id_pasted.json").read_text())
    assert metrics["images"] == 6
    assert "Plate" not in metrics["categories"]
    splits = tmp_path / "artifacts" / "splits" / "b"
    near = Objects.read(splits / "pasted_near/objects.parquet")
    far = Objects.read(splits / "pasted_far/objects.parquet")
    assert set(near.category) == {"cat", "Lynx"}
    assert set(far.category) == {"cat", "Kite"}
    assert int(np.sum(Objects.concatenate([near, far]).category == "cat")) == 6
    near_images = Images.read(splits / "pasted_near/images.parquet").image_id.tolist()
    far_images = Images.read(splits / "pasted_far/images.parquet").image_id.tolist()
    assert sorted(near_images + far_images) == source.images.image_id.tolist()
    warnings = json.loads((splits / "warnings.json").read_text())["warnings"]
    vocabulary_warning, *split_warnings = warnings
    assert vocabulary_warning == (
        "id_pasted: vocabulary 'photos' does not have 'Kite': counted as unknown"
    )
    # Train, val and test are the same images here.
    assert len(split_warnings) == 3
    assert all("in common" in warning for warning in split_warnings)
