"""Datasets derived from ID images: pasted unknowns, corruptions, and blanked objects."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pycocotools.mask
import pytest
import yaml
from PIL import Image

from farther.curation import Categories, LabelledImages, Rules
from farther.datasets import create as reader
from farther.derived import (
    Canvas,
    CutOut,
    CutOuts,
    Pasting,
    Scenes,
    Shape,
    create,
    derived,
    generate,
    names,
    unknowns,
)
from farther.derived.boxes import fading
from farther.derived.corrupt import SETS
from farther.derived.pasting import matched, place, trimmed
from farther.errors import DataError, ParameterError
from farther.images.corruptions import corrupt, draw
from farther.images.orientation import turned
from farther.tables import Images, Objects
from farther.tables.files import digest

ROOT = Path(__file__).parents[2]

RULES = """
id_classes:
  cat: {photos: [Cat]}
  table: {photos: [Table]}
protocols:
  paper:
    overlap: {photos: {table: [Plate]}}
    near: {photos: {cat: [Lynx]}}
"""


def sprite(width: int, height: int, colour=(0, 0, 0), alpha: int = 255) -> Image.Image:
    return Image.new("RGBA", (width, height), (*colour, alpha))


def white(width: int = 40, height: int = 30) -> np.ndarray:
    return np.full((height, width, 3), 255, np.uint8)


# -----------------------------------------------------------------------------------------------------
# pasting


def test_a_pasted_object_has_the_tight_box_of_its_opaque_pixels():
    picture = sprite(8, 6, alpha=100)
    picture.paste(sprite(4, 3), (2, 1))
    canvas = Canvas(white(), np.zeros((0, 4)))
    number = canvas.paste(picture, 10, 5)
    assert canvas.visible_box(number).tolist() == [12, 6, 16, 9]
    assert canvas.area(number) == 12


def test_the_box_of_an_object_is_what_those_in_front_leave_of_it():
    canvas = Canvas(white(), np.zeros((0, 4)))
    behind, front = canvas.paste(sprite(10, 10), 0, 0), canvas.paste(sprite(4, 10), 0, 0)
    assert canvas.visible_box(behind).tolist() == [4, 0, 10, 10]
    assert canvas.visible_box(front).tolist() == [0, 0, 4, 10]
    canvas.paste(sprite(20, 20), 0, 0)
    assert canvas.visible_box(behind) is None


def test_a_known_box_moves_in_only_where_all_of_its_edge_is_covered():
    canvas = Canvas(white(), np.array([[10, 10, 20, 20], [30, 0, 36.5, 8.5]]))
    canvas.paste(sprite(13, 4), 9, 8)
    canvas.paste(sprite(3, 3), 13, 15)
    canvas.paste(sprite(3, 4), 30, 4)
    assert canvas.known_boxes().tolist() == [[10, 12, 20, 20], [30, 0, 36.5, 8.5]]


def test_pixels_are_blended_by_alpha():
    canvas = Canvas(white(), np.zeros((0, 4)))
    canvas.paste(sprite(2, 2, (0, 100, 200), alpha=51), 0, 0)
    assert canvas.pixels[0, 0].tolist() == [204, 224, 244]
    assert canvas.pixels[2, 2].tolist() == [255, 255, 255]


def test_what_several_objects_hide_of_one_adds_up():
    canvas = Canvas(white(), np.array([[0, 0, 10, 10]]))
    assert canvas.hides(sprite(3, 10), 0, 0) == pytest.approx(0.3)
    canvas.paste(sprite(3, 10), 0, 0)
    assert canvas.hides(sprite(2, 10), 5, 0) == pytest.approx(0.5)
    assert canvas.hides(sprite(2, 10), 2, 0) == pytest.approx(0.4)
    assert canvas.hides(sprite(5, 5), 30, 20) == pytest.approx(0.3)


@pytest.mark.parametrize("hidden", [0.0, 0.1, 0.5])
def test_no_object_is_hidden_more_than_allowed(hidden):
    rng = np.random.default_rng(1)
    params = Pasting(hidden=hidden, rotate=40, tries=5)
    for _ in range(30):
        corner = rng.uniform(0, 20, (3, 2))
        canvas = Canvas(white(), np.hstack([corner, corner + rng.uniform(1, 9, (3, 2))]))
        numbers = [place(canvas, sprite(9, 5), 12, params, rng) for _ in range(4)]
        for left, top, right, bottom in canvas.box:
            window = canvas.owner[int(top) : int(np.ceil(bottom)), int(left) : int(np.ceil(right))]
            assert (window >= 0).mean() <= hidden + 1e-9
        for number in (number for number in numbers if number is not None):
            assert canvas.area(number) >= (1 - hidden) * canvas.sizes[number] - 1e-9


def test_an_object_without_room_is_left_out():
    canvas = Canvas(white(), np.array([[0, 0, 40, 30]]))
    assert place(canvas, sprite(5, 5), 20, Pasting(hidden=0), np.random.default_rng(0)) is None
    assert (canvas.pixels == 255).all()


def test_a_shape_has_the_longest_side_asked_for_and_turning_keeps_its_area():
    picture = Shape(side=20).of(sprite(4, 8))
    assert picture.size == (10, 20)
    turned = np.asarray(Shape(side=20, degrees=90).of(sprite(4, 8)).getchannel("A")) >= 128
    assert turned.shape == (10, 20)
    slanted = np.asarray(Shape(side=20, degrees=30).of(sprite(4, 8)).getchannel("A")) >= 128
    assert slanted.sum() == pytest.approx(200, rel=0.05)


def test_a_feathered_edge_fades_inwards_only():
    hole = sprite(30, 30)
    hole.paste(sprite(10, 10, alpha=0), (10, 10))
    before = np.asarray(hole.getchannel("A"))
    after = np.asarray(Shape(side=30, feather=2).of(hole).getchannel("A"))
    inner = after[: before.shape[0], : before.shape[1]]
    assert after.shape == before.shape
    assert (inner <= before).all()
    assert inner[5, 5] > 230
    assert inner[5, 0] < 60


def test_what_feathering_leaves_nothing_of_is_no_cut_out():
    assert Shape(side=3, feather=10).of(sprite(3, 3)) is None
    assert trimmed(sprite(5, 5, alpha=20)) is None


def test_matched_colours_have_the_scenes_mean_and_share_zero_changes_nothing():
    rng = np.random.default_rng(0)
    picture = Image.fromarray(rng.integers(90, 130, (20, 20, 3), dtype=np.uint8))
    picture.putalpha(255)
    scene = rng.integers(60, 120, (30, 30, 3), dtype=np.uint8)
    assert np.array_equal(np.asarray(matched(picture, scene, 0)), np.asarray(picture))
    whole = np.asarray(matched(picture, scene, 1))[..., :3].reshape(-1, 3).astype(float)
    np.testing.assert_allclose(whole.mean(axis=0), scene.reshape(-1, 3).mean(axis=0), atol=0.5)
    np.testing.assert_allclose(whole.std(axis=0), scene.reshape(-1, 3).std(axis=0), rtol=0.03)


# ----------------------------------------------------------------------------------------------
# sources of cut-outs


def test_three_sources_are_known_and_another_name_is_refused():
    assert names() == ["boxes", "folder", "masks"]
    with pytest.raises(
        ParameterError, match=r"unknown source of cut-outs 'mask'\. Did you mean 'masks'"
    ):
        create(source="mask")


def coco(folder: Path, annotations: list[dict]) -> dict:
    """A COCO file with one 40 × 30 image, red on the left and blue on the right."""
    pixels = np.zeros((30, 40, 3), np.uint8)
    pixels[:, :20, 0], pixels[:, 20:, 2] = 255, 255
    folder.mkdir(exist_ok=True)
    Image.fromarray(pixels).save(folder / "1.png")
    full = [
        {"id": k, "image_id": 1, "category_id": 1, "iscrowd": 0, **one}
        for k, one in enumerate(annotations)
    ]
    content = {
        "images": [{"id": 1, "file_name": "1.png", "width": 40, "height": 30}],
        "annotations": full,
        "categories": [{"id": 1, "name": "Lynx"}],
    }
    (folder / "a.json").write_text(json.dumps(content))
    return {
        "source": "masks",
        "root": folder,
        "annotations": "a.json",
        "images": ".",
        "smallest": 4,
    }


def box(x: int, y: int, w: int, h: int) -> dict:
    return {"bbox": [x, y, w, h], "segmentation": [[x, y, x + w, y, x + w, y + h, x, y + h]]}


def test_a_polygon_is_cut_out_along_its_outline(tmp_path):
    triangle = {"bbox": [10, 5, 16, 16], "segmentation": [[10, 5, 26, 5, 10, 21]]}
    found = create(**coco(tmp_path, [triangle])).read()
    picture = np.asarray(trimmed(found.picture(found.entries[0])))
    assert picture[..., 3].sum() / 255 == pytest.approx(128, rel=0.05)
    assert picture[2, 2].tolist() == [255, 0, 0, 255]
    assert picture[1, 12].tolist() == [0, 0, 255, 255]
    assert picture[12, 12, 3] == 0


@pytest.mark.parametrize("compressed", [False, True])
def test_run_lengths_are_cut_out_pixel_by_pixel(tmp_path, compressed):
    mask = np.zeros((30, 40), np.uint8)
    mask[6:12, 5:15], mask[8, 8] = 1, 0
    edges = np.flatnonzero(np.diff(mask.flatten(order="F"), prepend=0, append=0))
    counts = np.diff(np.concatenate([[0], edges, [mask.size]])).tolist()
    if compressed:
        counts = pycocotools.mask.encode(np.asfortranarray(mask))["counts"].decode()
    annotation = {"bbox": [5, 6, 10, 6], "segmentation": {"size": [30, 40], "counts": counts}}
    found = create(**coco(tmp_path, [annotation])).read()
    alpha = np.asarray(trimmed(found.picture(found.entries[0])).getchannel("A"))
    assert np.array_equal(alpha > 0, mask[6:12, 5:15] > 0)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("outline", ["polygon", "runs"])
def test_an_outline_on_stored_pixels_is_cut_out_as_it_is_displayed(tmp_path, outline, orientation):
    mask = np.zeros((30, 40), np.uint8)
    mask[6:22, 15:20], mask[6:10, 15:30] = 1, 1
    runs = pycocotools.mask.encode(np.asfortranarray(mask))["counts"].decode()
    polygon = [[15, 6, 30, 6, 30, 10, 20, 10, 20, 22, 15, 22]]
    annotation = {
        "bbox": [15, 6, 15, 16],
        "segmentation": polygon if outline == "polygon" else {"counts": runs},
    }
    source = {**coco(tmp_path, [annotation]), "orientation": "stored"}
    upright = np.asarray(trimmed((found := create(**source).read()).picture(found.entries[0])))
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.open(tmp_path / "1.png").save(tmp_path / "1.png", exif=exif)
    shown = np.asarray(trimmed(found.picture(found.entries[0])))
    expected = np.asarray(turned(Image.fromarray(upright), orientation))
    np.testing.assert_array_equal(shown, expected)


def sideways(folder: Path, *annotations: dict) -> dict:
    """A source whose image is displayed as 30 × 40 pixels and stored, and annotated, as 40 × 30."""
    source = coco(folder, list(annotations))
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.open(folder / "1.png").save(folder / "1.png", exif=exif)
    return source


def test_an_outline_that_fits_one_picture_proves_it_and_others_are_asked_for(tmp_path):
    high = box(20, 5, 8, 34)  # ends at y = 39, where 30 are stored
    displayed = create(**sideways(tmp_path / "high", box(5, 5, 8, 12), high)).read()
    assert displayed.picture(displayed.entries[0]).size == (10, 14)
    both = sideways(tmp_path / "both", box(5, 5, 8, 12))
    asked = create(**both).read()
    with pytest.raises(
        DataError,
        match=r"1.png is displayed as 30×40 and stored as 40×30 .*Write orientation: displayed",
    ):
        asked.picture(asked.entries[0])
    for answer, size in {"displayed": (10, 14), "stored": (14, 10)}.items():
        answered = create(**both, orientation=answer).read()
        assert answered.picture(answered.entries[0]).size == size


def test_annotations_of_images_that_the_file_does_not_list_are_refused(tmp_path):
    annotations = [box(2, 2, 8, 8), {**box(20, 2, 8, 8), "image_id": 9}]
    with pytest.raises(
        DataError,
        match=r"annotations\[1\].*1 of 2 annotations are of an image or a category that the",
    ):
        create(**coco(tmp_path, annotations)).read()


def test_crowds_small_truncated_and_covered_objects_are_not_cut_out(tmp_path):
    annotations = [
        box(2, 2, 8, 8),
        {**box(30, 20, 8, 8), "iscrowd": 1},
        box(12, 2, 3, 9),
        box(0, 20, 8, 8),
        box(20, 2, 8, 8),
        box(26, 2, 8, 8),
    ]
    source = coco(tmp_path, annotations)
    assert [one.name for one in create(**source).read().entries] == ["1.png, object 0"]
    more = create(**{**source, "covered": 0.25}).read()
    assert [one.row for one in more.entries] == [0, 4, 5]


@pytest.mark.parametrize(
    ("segmentation", "problem"),
    [
        ([[1, 2, 3]], "expected run lengths, or polygons"),
        ([[1, 2, 3, 4, 5, "x"]], "finite number"),
        ({"size": [30, 40], "counts": [5, 5]}, r"found 10; the image has 40 × 30"),
        ({"size": [30, 40], "counts": [-5, 1205]}, r"expected run lengths of 1200 pixels"),
        ({"size": [30, 40], "counts": "P"}, "end with a number"),
        ({"size": [30, 40], "counts": "P" * 3_000_000 + "1"}, "end with a number"),
        (
            {"size": [30, 40], "counts": "0" * 3_000_000},
            "expected run lengths of 1200 pixels, found 0",
        ),
        ({"size": [30, 40], "counts": "0 1"}, "expected characters"),
        ({"size": [30, 40], "counts": ""}, "found 0; the image"),
        ({"size": [30, 40], "counts": "0PPPPP1"}, "expected run lengths of 1200 pixels"),
    ],
)
def test_a_damaged_outline_is_named(tmp_path, segmentation, problem):
    found = create(**coco(tmp_path, [{**box(2, 2, 8, 8), "segmentation": segmentation}])).read()
    with pytest.raises(DataError, match=problem) as error:
        found.picture(found.entries[0])
    assert "annotations[0]" in str(error.value)


def test_a_box_is_cut_out_with_an_edge_that_fades(tmp_path):
    alpha = fading(20, 10, 0.2)
    assert alpha.shape == (10, 20)
    assert alpha[5, 10] == 255
    assert alpha[0, 10] == alpha[5, 0] == alpha[9, 10] == round(255 * 0.25)
    assert (fading(4, 4, 0) == 255).all()


def test_a_folder_gives_a_category_a_sub_folder(tmp_path):
    for name in ("Lynx", "Kite"):
        (tmp_path / name).mkdir()
        sprite(30, 30).save(tmp_path / name / "1.png")
    sprite(5, 30).save(tmp_path / "Lynx" / "small.png")
    found = create(source="folder", root=tmp_path).read()
    assert [(one.category, one.name) for one in found.entries] == [
        ("Kite", "Kite/1.png"),
        ("Lynx", "Lynx/1.png"),
    ]
    Image.new("RGB", (30, 30)).save(tmp_path / "Kite" / "2.png")
    with pytest.raises(DataError, match="no alpha channel"):
        create(source="folder", root=tmp_path).read()


# -------------------------------------------------------------------------------------------------
# whole datasets


@pytest.fixture
def rules(tmp_path: Path) -> Rules:
    (tmp_path / "rules.yaml").write_text(RULES)
    return Rules(tmp_path / "rules.yaml")


def cutouts(*categories: str) -> CutOuts:
    found = [CutOut(name, f"{name} {n}", n) for n, name in enumerate(categories)]
    return CutOuts(Categories(tuple(dict.fromkeys(categories))), found, lambda one: sprite(16, 12))


def scenes(folder: Path, count: int) -> Scenes:
    """White pictures of 64 × 48 pixels with a cat in the upper left corner."""
    ids = [f"scene {n}" for n in range(count)]
    for name in ids:
        Image.fromarray(white(64, 48)).save(folder / f"{name}.png")
    images = Images(
        image_id=ids,
        dataset=["id"] * count,
        file=[f"{n}.png" for n in ids],
        width=[64] * count,
        height=[48] * count,
        digest=ids,
    )
    objects = Objects(
        image_id=ids,
        object_id=np.arange(count),
        box=np.tile([0, 0, 16, 12], (count, 1)),
        category=["cat"] * count,
    )
    return Scenes(LabelledImages(images, objects), folder, ("cat", "table"))


PASTE = {"rules": "r.yaml", "vocabulary": "photos", "cutouts": {}}
WRONG = {"objects": (3, 1), "size": (0.5, 0.1), "hidden": 2, "shadow": 1}


def params(**more):
    return derived("paste", "s", {"images": {"dataset": "id", "subset": "test"}, **PASTE, **more})


def test_an_image_that_is_too_large_for_jpeg_is_refused_and_written_as_png(tmp_path):
    wide = white(65_501, 1)
    params().save(wide[:, :-1], tmp_path / "1.jpg")
    with pytest.raises(DataError, match=r"1\.jpg: 65501 × 1 pixels: .*; write file_type: png"):
        params().save(wide, tmp_path / "1.jpg")
    params(file_type="png").save(wide, tmp_path / "1.png")
    assert Image.open(tmp_path / "1.png").size == (65_501, 1)


def test_id_classes_and_overlaps_are_never_pasted(rules):
    found = unknowns(cutouts("Cat", "Lynx", "Plate", "Kite", "Lynx"), rules, "photos")
    assert found.categories == ("Kite", "Lynx")
    assert [one.row for one in found.by_kind["near"]["Lynx"]] == [1, 4]
    assert list(found.by_kind["far"]) == ["Kite"]
    with pytest.raises(
        ParameterError, match="category 'Plate': the rules say 'overlap: Plate → table'"
    ):
        unknowns(cutouts("Plate", "Kite"), rules, "photos", ["Plate"])
    with pytest.raises(ParameterError, match="none of the 1 cut-outs shows an unknown class"):
        unknowns(cutouts("Cat"), rules, "photos")


def test_the_annotated_box_is_where_the_scene_changed(tmp_path, rules):
    settings = params(quality=100, pasting={"objects": (1, 1), "feather": 0})
    generate(
        settings, scenes(tmp_path, 12), unknowns(cutouts("Kite"), rules, "photos"), tmp_path / "out"
    )
    content = json.loads((tmp_path / "out" / "annotations" / "instances_pasted.json").read_text())
    files = {image["id"]: image["file_name"] for image in content["images"]}
    pasted = {
        one["image_id"]: one["bbox"] for one in content["annotations"] if one["category_id"] == 3
    }
    assert len(pasted) == 12
    for image_id, (x, y, w, h) in pasted.items():
        dark = (
            np.asarray(Image.open(tmp_path / "out" / "pasted" / files[image_id]).convert("L")) < 128
        )
        rows, columns = np.flatnonzero(dark.any(axis=1)), np.flatnonzero(dark.any(axis=0))
        assert [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1] == [x, y, x + w, y + h]


def files_of(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): digest(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_same_seed_gives_the_same_bytes_and_a_scene_does_not_depend_on_the_others(
    tmp_path, rules
):
    unknown = unknowns(cutouts("Kite", "Lynx"), rules, "photos")
    all_scenes = scenes(tmp_path, 8)
    first_half = Scenes(all_scenes.source.select(np.arange(8) < 4), tmp_path, all_scenes.categories)
    for name, seed, given in (
        ("a", 1, all_scenes),
        ("b", 1, all_scenes),
        ("c", 2, all_scenes),
        ("d", 1, first_half),
    ):
        generate(params(seed=seed), given, unknown, tmp_path / name)
    a, b, c, d = (files_of(tmp_path / name) for name in "abcd")
    assert a == b
    assert a["pasted/000001.jpg"] != c["pasted/000001.jpg"]
    assert [a[f"pasted/00000{n}.jpg"] for n in (1, 2, 3, 4)] == [
        d[f"pasted/00000{n}.jpg"] for n in (1, 2, 3, 4)
    ]


def test_a_scene_shows_near_objects_or_far_ones_and_all_categories_equally_often(tmp_path, rules):
    many = cutouts(*["Lynx"] * 30, "Otter", "Kite")
    settings = params(pasting={"objects": (2, 2), "hidden": 1})
    summary = generate(
        settings, scenes(tmp_path, 120), unknowns(many, rules, "photos"), tmp_path / "out"
    )
    rows = (tmp_path / "out" / "pasted.csv").read_text().splitlines()[1:]
    by_scene: dict[str, set[str]] = {}
    for row in rows:
        by_scene.setdefault(row.split(",")[0], set()).add("near" if ",Lynx," in row else "far")
    assert all(len(kinds) == 1 for kinds in by_scene.values())
    near = sum(kinds == {"near"} for kinds in by_scene.values())
    assert 40 < near < 80
    assert summary["categories"]["Kite"] + summary["categories"]["Otter"] + summary["categories"][
        "Lynx"
    ] == len(rows)
    assert 0.6 < summary["categories"]["Kite"] / summary["categories"]["Otter"] < 1.7


def test_sizes_are_those_of_id_objects_and_no_cut_out_is_enlarged_beyond_the_limit(tmp_path, rules):
    unknown = unknowns(cutouts("Kite"), rules, "photos")
    for name, pasting, longest in (
        ("like", {"enlarge": 10}, 16),
        ("given", {"enlarge": 10, "size": (0.5, 0.5)}, 32),
        ("limited", {"enlarge": 1.25, "size": (0.5, 0.5)}, 20),
    ):
        settings = params(pasting={"objects": (1, 1), "feather": 0, "tries": 50, **pasting})
        generate(settings, scenes(tmp_path, 3), unknown, tmp_path / name)
        content = json.loads(
            (tmp_path / name / "annotations" / "instances_pasted.json").read_text()
        )
        sides = [max(one["bbox"][2:]) for one in content["annotations"] if one["category_id"] == 3]
        assert sides == [longest] * 3


def test_unreadable_scenes_are_listed_and_many_are_an_error(tmp_path, rules):
    given, unknown = scenes(tmp_path, 10), unknowns(cutouts("Kite"), rules, "photos")
    (tmp_path / "scene 3.png").write_bytes(b"nothing")
    summary = generate(params(max_failures=0.2), given, unknown, tmp_path / "out")
    assert (summary["images"], summary["failures"]) == (9, 1)
    assert (
        json.loads((tmp_path / "out" / "summary.json").read_text())["failed"][0]["name"]
        == "scene 3"
    )
    with pytest.raises(DataError, match="more than max_failures = 0 allows"):
        generate(params(max_failures=0), given, unknown, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_name_cannot_be_known_and_unknown(tmp_path, rules):
    unknown = unknowns(cutouts("Kite"), rules, "photos")
    both = Scenes(scenes(tmp_path, 1).source, tmp_path, ("cat", "Kite"))
    with pytest.raises(
        DataError, match="'Kite' is a category of the ID dataset and the name of an unknown class"
    ):
        generate(params(), both, unknown, tmp_path / "out")


# ------------------------------------------------------------------------------------- corrupted
# and blanked images


def written(kind: str, given: Scenes, out: Path, **more) -> tuple[dict, dict[str, dict]]:
    """Counts of a derived dataset, and the annotations of each subset."""
    settings = derived(
        kind, "d", {"images": {"dataset": "id", "subset": "test"}, "file_type": "png", **more}
    )
    counts = settings.write(given, out)
    files = (out / "annotations").glob("*.json")
    return counts, {
        file.stem.removeprefix("instances_"): json.loads(file.read_text()) for file in files
    }


@pytest.mark.parametrize("draw_per", ["severity", "image"])
def test_each_severity_is_a_subset_with_the_same_images_and_objects(tmp_path, draw_per):
    given = scenes(tmp_path, 6)
    counts, subsets = written("corrupt", given, tmp_path / "out", seed=7, draw_per=draw_per)
    assert counts["images"] == {"c1": 6, "c3": 6, "c5": 6}
    assert sorted(subsets) == ["c1", "c3", "c5"]
    ids = given.source.images.image_id.tolist()
    for content in subsets.values():
        assert [image["id"] for image in content["images"]] == ids
        assert [one["bbox"] for one in content["annotations"]] == [[0, 0, 16, 12]] * 6
    rows = [
        row.split(",")
        for row in (tmp_path / "out" / "corruptions.csv").read_text().splitlines()[1:]
    ]
    kinds = {severity: [row[2] for row in rows if row[0] == severity] for severity in subsets}
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


def test_a_corrupted_file_holds_what_corrupting_its_image_gives(tmp_path):
    given = scenes(tmp_path, 4)
    written("corrupt", given, tmp_path / "out", severities=[4], seed=3)
    for row, name in enumerate(given.source.images.image_id):
        kind, seed = draw(f"{name} at severity 4", 3)
        found = np.asarray(Image.open(tmp_path / "out" / "c4" / f"{row + 1:06}.png"))
        np.testing.assert_array_equal(found, corrupt(given.pixels(row), kind, 4, seed))


def test_several_processes_write_the_same_bytes(tmp_path, monkeypatch):
    given = scenes(tmp_path, 3)
    written("corrupt", given, tmp_path / "one", corruptions=["fog", "contrast"])
    monkeypatch.setattr("farther.derived.changed.PER_PROCESS", 2)
    monkeypatch.setattr("farther.derived.changed.count_cores", lambda: 2)
    written("corrupt", given, tmp_path / "two", corruptions=["fog", "contrast"])
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")


def test_blanked_images_show_no_object_and_have_no_annotation(tmp_path):
    counts, subsets = written("blank", scenes(tmp_path, 3), tmp_path / "out")
    assert (counts["images"], counts["blanked"]) == (3, 3)
    assert subsets["blank"]["annotations"] == []
    assert len(subsets["blank"]["images"]) == 3
    found = np.asarray(Image.open(tmp_path / "out" / "blank" / "000001.png"))
    assert (found[:12, :16] == 0).all()
    assert (found[12:] == 255).all() and (found[:, 16:] == 255).all()


@pytest.mark.parametrize("kind", ["corrupt", "blank"])
def test_unreadable_images_of_any_kind_are_listed_and_many_are_an_error(tmp_path, kind):
    given = scenes(tmp_path, 5)
    (tmp_path / "scene 3.png").write_bytes(b"nothing")
    counts, _ = written(kind, given, tmp_path / "out", max_failures=0.5)
    assert counts["failures"] == (3 if kind == "corrupt" else 1)
    with pytest.raises(DataError, match=r"cannot be read, more than max_failures = 0\.01 allows"):
        written(kind, given, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [
        ("corrupt", {"severities": [1, 6]}, "each is one of 1, 2, 3, 4, 5"),
        ("corrupt", {"severities": [1, 1]}, "listed once"),
        ("corrupt", {"corruptions": ["fogg"]}, "Did you mean 'fog'"),
        (
            "corrupt",
            {"corruptions": "imagenet"},
            "expected saod, imagenet-c or a list of corruptions",
        ),
        ("corrupt", {"draw_per": "split"}, "draw_per"),
        ("blank", {"file_type": "gif"}, "file_type"),
        *(("paste", PASTE | {"pasting": {name: value}}, name) for name, value in WRONG.items()),
        ("blank", {"images": {"dataset": "id"}}, "'subset'"),
        ("blurr", {}, "unknown kind of derived dataset 'blurr'"),
    ],
)
def test_wrong_parameters_of_derived_datasets_are_refused(tmp_path, kind, wrong, message):
    with pytest.raises(ParameterError, match=message):
        derived(kind, "d", {"images": {"dataset": "id", "subset": "test"}, **wrong})


# ------------------------------------------------------------------------------------------------
# the stage script


def test_the_pasted_dataset_is_ingested_and_curated_like_any_other(tmp_path, commands):
    (tmp_path / "rules.yaml").write_text(RULES)
    folder = tmp_path / "artifacts" / "tables" / "id"
    given = scenes(tmp_path, 6)
    for subset in ("train", "val", "test"):
        given.source.images.write(folder / subset / "images.parquet")
        given.source.objects.write(folder / subset / "objects.parquet")
    (folder / "categories.json").write_text('{"categories": ["cat", "table"], "parents": {}}')
    for name in ("Lynx", "Kite", "Plate"):
        (tmp_path / "drawings" / name).mkdir(parents=True)
        sprite(30, 30, (200, 0, 0)).save(tmp_path / "drawings" / name / "1.png")
    shared = {"dataset": "id_pasted", "subset": "pasted", "vocabulary": "photos", "known": "keep"}
    written = {
        "datasets": {"id": {"format": "coco", "root": "."}},
        "benchmarks": {
            "b": {
                "id": "id",
                "rules": "rules.yaml",
                "splits": {f"pasted_{one}": {**shared, "distance": one} for one in ("near", "far")},
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
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(written))
    for stage, *arguments in (("derive", "paste", "id_pasted"), ("curate",)):
        command = [commands / "python", ROOT / "stages" / f"{stage}.py", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "lib")}
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    metrics = json.loads((tmp_path / "artifacts/counts/paste/id_pasted.json").read_text())
    assert metrics["images"] == 6
    assert "Plate" not in metrics["categories"]
    splits = tmp_path / "artifacts" / "splits" / "b"
    found = {
        name: Objects.read(splits / f"pasted_{name}" / "objects.parquet")
        for name in ("near", "far")
    }
    assert {name: set(objects.category) for name, objects in found.items()} == {
        "near": {"cat", "Lynx"},
        "far": {"cat", "Kite"},
    }
    both = Objects.concatenate(list(found.values()))
    assert int(np.sum(both.category == "cat")) == 6
    kept = [
        Images.read(splits / f"pasted_{name}" / "images.parquet").image_id.tolist()
        for name in ("near", "far")
    ]
    assert sorted(kept[0] + kept[1]) == given.source.images.image_id.tolist()
    expected = "id_pasted: vocabulary 'photos' does not have 'Kite': counted as unknown"
    first, *others = json.loads((splits / "warnings.json").read_text())["warnings"]
    assert first == expected
    assert len(others) == 3 and all(
        "in common" in text for text in others
    )  # one subset is train, val and test


def test_difficult_and_crowd_objects_stay_so(tmp_path, rules):
    given = scenes(tmp_path, 2)
    objects = given.source.objects.with_columns(is_crowd=[True, False], is_difficult=[False, True])
    source = LabelledImages(given.source.images, objects)
    unknown = unknowns(cutouts("Kite"), rules, "photos")
    generate(
        params(pasting={"size": (0.2, 0.2)}),
        Scenes(source, tmp_path, ("cat",)),
        unknown,
        tmp_path / "out",
    )
    read = reader("coco", root=tmp_path / "out", subset_names=["pasted"]).read("pasted")
    cats = np.array(read.categories)[read.objects.category] == "cat"
    assert read.objects.is_crowd[cats].tolist() == [True, False]
    assert read.objects.is_difficult[cats].tolist() == [False, True]
