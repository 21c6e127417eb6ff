"""The demo world: its annotations describe its images exactly."""

from __future__ import annotations

import csv
import hashlib
import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from farther import datasets
from farther.curation import TablesFolder
from farther.datasets.hierarchy import HierarchyFile
from farther.datasets.ingest import ingest
from farther.errors import DataError, FartherError, ParameterError
from farther.registry import build
from farther_demo import NAMES, DemoWorld, Subsets, generate, generate_all
from farther_demo.canvas import Canvas, Look, transformed
from farther_demo.drawings import OPAQUE, Drawing, Piece, catalogue, sprite
from farther_demo.placing import SceneObject
from farther_demo.recipes import categories, shown_by
from farther_demo.scene import scene
from farther_demo.writers import FORMATS, coco_id

BENCHMARKS = Path(__file__).parents[2] / "data" / "benchmarks"
FEW = Subsets(train=5, val=2, test=8)
WORLD = DemoWorld(
    size=96,
    voc=FEW,
    bdd=Subsets(train=2, val=2, test=110),
    coco=130,
    openimages=130,
    drawings=Subsets(train=40, val=20, test=20),
    drawings_unknown=34,
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """A small world, written once."""
    root = tmp_path_factory.mktemp("demo")
    for name in NAMES:
        generate(name, root / name, WORLD)
    return {name: root / name for name in NAMES}


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def extent(owner: np.ndarray, sprites: tuple[int, ...]) -> tuple[int, int, int, int]:
    """First and last column and row of some sprites' pixels: xmin, ymin, xmax, ymax, both ends included."""
    places = np.concatenate([np.argwhere(owner == number) for number in sprites])
    (ymin, xmin), (ymax, xmax) = places.min(axis=0), places.max(axis=0)
    return int(xmin), int(ymin), int(xmax), int(ymax)


def expected(name: str, subset: str, index: int) -> list[tuple[str, tuple[int, int, int, int]]]:
    """Category and extent of all that must be annotated in a scene, from its masks."""
    one = scene(WORLD, name, subset, index)
    return [
        (thing.category, extent(one.owner, thing.sprites))
        for thing in one.objects
        if thing.annotated
    ]


# --------------------------------------------------------------------------------------------
# determinism, safety


def test_the_number_of_processes_changes_no_byte(folders, tmp_path, monkeypatch):
    monkeypatch.setattr("farther_demo.world.count_cores", lambda: 2)
    generate_all(tmp_path, WORLD)
    assert {name: digests(tmp_path / name) for name in NAMES} == {
        name: digests(folders[name]) for name in NAMES
    }


def test_a_scene_does_not_depend_on_how_many_there_are(folders, tmp_path):
    fewer = build(DemoWorld, "demo", {"size": 96, "voc": {"train": 2, "val": 0, "test": 0}})
    generate("voc", tmp_path / "voc", fewer)
    images = {
        path: digest
        for path, digest in digests(tmp_path / "voc").items()
        if path.endswith((".jpg", ".xml"))
    }
    assert len(images) == 4
    assert images.items() <= digests(folders["voc"]).items()


@pytest.mark.parametrize("name", ["voc", "bdd", "drawings"])
def test_a_benchmark_selects_the_same_images_from_those_that_are_written_as_from_all(
    folders, tmp_path, name
):
    few = Subsets(train=4, val=1, test=6)
    written = generate(name, tmp_path / "demo", replace(WORLD, most=few))
    assert written["test"] == 6
    for number, root in enumerate((folders[name], tmp_path / "demo")):
        formats = {"drawings": "image_folder"}
        ingest(
            datasets.create(formats.get(name, name), root=str(root)),
            name,
            tmp_path / f"tables{number}" / name,
        )
    for subset in ("train", "val", "test"):
        whole, part = (TablesFolder(tmp_path / f"tables{n}").source(name, subset) for n in (0, 1))
        count = getattr(few, subset)
        assert part.images.image_id.tolist() == whole.at_most(count).images.image_id.tolist()
        assert part.at_most(1).images.digest.tolist() == whole.at_most(1).images.digest.tolist()


def test_another_seed_gives_other_pictures():
    pictures = [
        np.asarray(scene(DemoWorld(size=96, seed=seed), "voc", "train", 0).image) for seed in (0, 1)
    ]
    assert pictures[0].shape != pictures[1].shape or (pictures[0] != pictures[1]).any()


def test_subsets_and_datasets_share_no_picture(folders):
    seen = [
        digest
        for name in NAMES
        for path, digest in digests(folders[name]).items()
        if path.endswith(".jpg")
    ]
    assert len(seen) == 15 + 114 + 130 + 130 + 80 + 34
    assert len(set(seen)) == len(seen)


def test_a_run_that_fails_leaves_no_dataset(tmp_path, monkeypatch):
    def broken(world, dataset, subset, index):
        if index == 3:
            raise OSError("disk full")
        return scene(world, dataset, subset, index)

    monkeypatch.setattr("farther_demo.world.scene", broken)
    with pytest.raises(OSError, match="disk full"):
        generate("voc", tmp_path / "voc", WORLD)
    assert not (tmp_path / "voc").exists()


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("all of it")
    with pytest.raises(FartherError, match="other than a demo dataset"):
        generate("voc", tmp_path, WORLD)
    assert (tmp_path / "thesis.txt").read_text() == "all of it"


def test_unknown_names_and_parameters_are_refused_with_the_known_ones(tmp_path):
    with pytest.raises(ParameterError, match=r"'lvis'\. Known: voc, bdd, coco, openimages"):
        generate("lvis", tmp_path / "lvis", WORLD)
    with pytest.raises(ParameterError, match=r"unknown parameter 'sizes'.*jpeg_quality"):
        build(DemoWorld, "demo", {"sizes": 96})
    with pytest.raises(ParameterError, match="held_out"):
        build(DemoWorld, "demo", {"held_out": 1.5})


def test_every_dataset_names_whose_drawings_it_shows(folders):
    for folder in folders.values():
        text = (folder / "ATTRIBUTION.txt").read_text()
        assert "OpenMoji" in text
        assert "CC BY-SA 4.0" in text


# --------------------------------------------------------------------------------------------------
# exact boxes


def square(side: int, colour: str) -> Image.Image:
    return Image.new("RGBA", (side, side), colour)


def test_what_is_covered_or_outside_is_not_visible():
    canvas = Canvas(Image.new("RGB", (30, 20), "white"))
    red = canvas.paste(square(10, "red"), 5, 5)
    # Covers columns 12 to 14 of the red square's 5 to 14, and loses its lower half to the edge of
    # the picture.
    blue = canvas.paste(square(10, "blue"), 12, 10)
    canvas.obstruct(square(4, "grey"), 5, 5)
    assert extent(canvas.owner, (red,)) == (5, 5, 14, 14)
    assert canvas.visible_fraction([red]) == (100 - 3 * 5 - 16) / 100
    assert extent(canvas.owner, (blue,)) == (12, 10, 21, 19)
    canvas.paste(square(10, "green"), 12, 15)
    assert canvas.visible_fraction([blue]) == 0.5


def test_the_owner_of_a_pixel_is_the_sprite_that_is_seen_there():
    canvas = Canvas(Image.new("RGB", (60, 50), "white"))
    rng = np.random.default_rng(0)
    colours = ["#ff0000", "#00ff00", "#0000ff", "#ffff00", "#00ffff"]
    for colour in colours:
        canvas.paste(square(int(rng.integers(5, 30)), colour), *rng.integers(-10, 50, 2).tolist())
    picture = np.asarray(canvas.image)
    for number, colour in enumerate(colours):
        rgb = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
        assert ((picture == rgb).all(axis=-1) == (canvas.owner == number)).all()


def test_the_forecast_of_what_stays_visible_comes_true():
    canvas = Canvas(Image.new("RGB", (40, 40), "white"))
    rng = np.random.default_rng(1)
    for _ in range(12):
        sprite_, place = square(int(rng.integers(6, 20)), "red"), rng.integers(-8, 36, 2).tolist()
        before = [canvas.visible_fraction([number]) for number in range(len(canvas.sizes))]
        forecast = canvas.least_visible_after(sprite_, *place)
        canvas.paste(sprite_, *place)
        after = [canvas.visible_fraction([number]) for number in range(len(canvas.sizes))]
        touched = [
            now for number, now in enumerate(after) if number >= len(before) or now < before[number]
        ]
        assert forecast == pytest.approx(min(touched))


def test_a_turned_and_stretched_sprite_still_fills_its_box():
    for degrees in (0.0, 17.0, -33.0):
        look = Look(size=60, degrees=degrees, mirrored=True, stretch=1.1, hue=20)
        shown = (
            np.asarray(transformed(sprite(catalogue()["giraffe"].train[0], 96), look))[..., 3]
            >= OPAQUE
        )
        assert shown[0].any() and shown[-1].any() and shown[:, 0].any() and shown[:, -1].any()


def test_an_object_is_annotated_from_three_tenths_on():
    seen = SceneObject(
        "dog",
        "dog",
        ("1F415",),
        (0,),
        (0, 0, 9, 9),
        81,
        visible=0.3,
        truncated=False,
        labelled=True,
    )
    assert seen.annotated
    assert not replace(seen, visible=0.29).annotated
    assert not replace(seen, visible=1.0, labelled=False).annotated


@pytest.mark.parametrize(
    ("name", "subset", "count"),
    [
        ("voc", "train", 5),
        ("voc", "val", 2),
        ("voc", "test", 8),
        ("bdd", "test", 110),
        ("coco", "val", 130),
        ("openimages", "validation", 130),
    ],
)
def test_the_annotated_boxes_are_the_extents_of_the_masks(folders, name, subset, count):
    annotations = datasets.create(name, root=folders[name]).read(
        {"coco": "val2017"}.get(name, subset)
    )
    objects, files = annotations.objects, FORMATS[name]
    rows = {image_id: row for row, image_id in enumerate(annotations.images.image_id)}
    assert len(rows) == count
    for index in range(count):
        row = rows[files.image_id(Path(files.image_file(subset, index)))]
        with Image.open(annotations.image_path(row)) as image:
            scale = image.size * 2 if objects.unit == "image" else 1
        shown = objects.image == row
        edges = np.round(objects.box[shown] * scale).astype(int) - [0, 0, 1, 1]
        names = [annotations.categories[category] for category in objects.category[shown]]
        assert list(zip(names, map(tuple, edges.tolist()), strict=True)) == expected(
            name, subset, index
        )
    if name != "voc":
        assert len(set(objects.image.tolist())) < count  # some show nothing
        assert objects.is_crowd.any() == (name != "bdd")


def test_pycocotools_reads_coco_and_sees_the_same_masks(folders, capsys):
    coco_tools = pytest.importorskip("pycocotools.coco")
    coco = coco_tools.COCO(str(folders["coco"] / "annotations/instances_val2017.json"))
    assert len(coco.getCatIds()) == 80 and coco.cats[90]["name"] == "toothbrush"
    crowds = 0
    for index in range(130):
        one = scene(WORLD, "coco", "val", index)
        rows = coco.loadAnns(coco.getAnnIds(imgIds=[coco_id(index)]))
        things = [thing for thing in one.objects if thing.annotated]
        for row, thing in zip(rows, things, strict=True):
            mask = np.isin(one.owner, thing.sprites)
            assert row["area"] == mask.sum()
            drawn = coco.annToMask(row).astype(bool)
            if row["iscrowd"]:
                crowds += 1
                assert (drawn == mask).all()
            else:
                # The polygon takes in what lies between a row's first and last pixel.
                assert (drawn & mask).sum() > 0.7 * mask.sum()
    assert crowds > 0


def read_rows(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_every_openimages_category_stands_in_the_hierarchy(folders):
    described = {
        label for label, _ in read_rows(folders["openimages"] / "class-descriptions-boxable.csv")
    }
    root = json.loads((folders["openimages"] / "bbox_labels_600_hierarchy.json").read_text())

    def labels(node: dict) -> set[str]:
        below = [*node.get("Subcategory", []), *node.get("Part", [])]
        return {node["LabelName"]}.union(*(labels(one) for one in below))

    assert root["LabelName"] == "/m/0bl9f"
    assert labels(root) - {"/m/0bl9f"} == described


# ---------------------------------------------------------------------------------- what the
# benchmark rests on


def test_drawings_held_out_for_test_are_never_trained_on():
    for name in ("voc", "bdd", "drawings"):
        held_out = {
            (concept, drawing.key)
            for concepts in categories()[name].values()
            for concept in concepts
            for drawing in catalogue()[concept].test
        }
        used = {
            subset: {
                (thing.concept, key)
                for index in range(60)
                for thing in scene(WORLD, name, subset, index).objects
                for key in thing.drawings
            }
            for subset in ("train", "val", "test")
        }
        assert not held_out & (used["train"] | used["val"])
        assert len(held_out & used["test"]) > 10
        assert used["test"] - held_out


def test_no_drawing_is_both_trained_on_and_held_out():
    for drawings in catalogue().values():
        keys = [drawing.key for drawing in (*drawings.train, *drawings.test)]
        assert len(set(keys)) == len(keys)


def test_id_classes_are_the_originals_and_each_has_several_drawings():
    assert len(categories()["voc"]) == 20 and next(iter(categories()["voc"])) == "aeroplane"
    assert len(categories()["bdd"]) == 10 and "traffic light" in categories()["bdd"]
    for name in ("voc", "bdd"):
        for concepts in categories()[name].values():
            drawings = [catalogue()[concept] for concept in concepts]
            assert sum(len(one.train) for one in drawings) >= 4
            assert sum(len(one.test) for one in drawings) >= 2


# FMIYC, Table 6.
NEAR = {
    "coco": "zebra, bench, spoon, fork, carrot, orange, apple, cup, bowl, laptop, bed, bear, vase",
    "openimages": "Jaguar, Leopard, Cheetah, Clothing, Zucchini, Food, Knife, Tablet computer, Laptop, Fox, Raccoon, "
    "Harbor seal, Hedgehog, Otter, Sea lion",
}


def test_unknown_objects_cover_the_papers_near_list_and_many_far_ones_and_near_ones_show_no_id_class():
    unknown = set()
    for source, near in NEAR.items():
        table = categories()[source]
        assert set(near.split(", ")) <= set(table["near"])
        assert not set(table["near"]) & set(table["far"])
        assert not [
            concept
            for concepts in table["near"].values()
            for concept in concepts
            if shown_by().get(concept)
        ]
        unknown |= {name.lower() for name in (*table["near"], *table["far"])}
    assert len(unknown) >= 60


def test_crops_are_labelled_by_their_folder_with_equally_many_per_class(folders):
    for subset, count in (("train", 2), ("unknown", 1)):
        found = {
            path.name: list(path.iterdir()) for path in (folders["drawings"] / subset).iterdir()
        }
        assert {len(files) for files in found.values()} == {count}
        for category, files in found.items():
            assert Image.open(files[0]).size == (64, 64)
            (shown,) = scene(WORLD, "drawings", subset, int(files[0].stem)).objects
            assert shown.category == category
            assert shown.visible > 0.3


def test_classes_of_crops_are_known_or_unknown_and_near_or_far():
    known, unknown = categories()["drawings"], categories()["drawings_unknown"]
    concepts = [
        one
        for table in (known, unknown["near"], unknown["far"])
        for each in table.values()
        for one in each
    ]
    assert len(known) == 20
    assert len(unknown["near"]) == len(unknown["far"]) == 17
    assert len(set(concepts)) == len(concepts)


def test_near_and_far_classes_of_crops_are_those_of_the_rules_by_wordnets_hypernyms():
    rules = yaml.safe_load((BENCHMARKS / "drawings.yaml").read_text())
    by = rules["protocols"]["paper"]["classes_by"]
    hierarchy = HierarchyFile(BENCHMARKS / by["hierarchy"])
    assert set(rules["id_classes"]) == set(categories()["drawings"])
    for distance, names in categories()["drawings_unknown"].items():
        for name in names:
            similarity = hierarchy.nearest(name, rules["id_classes"])
            assert (similarity.mean >= by["near_above"]) == (distance == "near"), name
            assert abs(similarity.mean - by["near_above"]) > 0.05, name


def test_every_drawing_shows_something():
    for drawings in catalogue().values():
        for drawing in (*drawings.train, *drawings.test):
            assert min(sprite(drawing, 48).size) >= 2


def annotated_categories(folder: Path, source: str) -> dict[str, set[str]]:
    """Categories annotated in each image, read without our own readers."""
    found: dict[str, set[str]] = defaultdict(set)
    if source == "coco":
        table = json.loads((folder / "annotations/instances_val2017.json").read_text())
        names = {row["id"]: row["name"] for row in table["categories"]}
        for row in table["annotations"]:
            found[f"{row['image_id']:012d}"].add(names[row["category_id"]])
    else:
        names = dict(read_rows(folder / "class-descriptions-boxable.csv"))
        for row in read_rows(folder / "validation-annotations-bbox.csv")[1:]:
            found[row[0]].add(names[row[2]])
    return found


PARTS = ("face", "hand", "arm", "ear", "nose", "mouth", "eye")
PEOPLE = {"person", "Person", "Man", "Woman", *(f"Human {part}" for part in PARTS)}
TABLES = {"dining table", "Kitchen & dining room table"}
DOGS = {"dog", "Dog"}


@pytest.mark.parametrize("source", ["coco", "openimages"])
def test_planted_overlaps_agree_with_the_annotations(folders, source):
    annotated = annotated_categories(folders[source], source)
    rows = read_rows(folders[source] / "planted.csv")
    assert rows[0] == ["image_id", "category", "labelled"]
    planted = {(image, category): labelled == "1" for image, category, labelled in rows[1:]}
    assert len(planted) == len(rows) - 1
    for id_class, shows in (
        ("person", PEOPLE),
        ("pedestrian", PEOPLE),
        ("diningtable", TABLES),
        ("dog", DOGS),
    ):
        labelled = {
            image
            for (image, category), is_labelled in planted.items()
            if category == id_class and is_labelled
        }
        assert labelled == {image for image, names in annotated.items() if names & shows}
    for id_class in ("person", "diningtable"):
        assert [
            image
            for (image, category), labelled in planted.items()
            if category == id_class and not labelled
        ]


def test_tableware_lies_on_tables_that_nobody_labelled(folders):
    annotated = annotated_categories(folders["coco"], "coco")
    hidden = [
        row[0]
        for row in read_rows(folders["coco"] / "planted.csv")
        if row[1:] == ["diningtable", "0"]
    ]
    assert any(
        annotated[image] & {"spoon", "fork", "pizza", "sandwich", "cake", "hot dog"}
        for image in hidden
    )


def test_some_openimages_objects_are_nowhere_labelled_and_all_of_cocos_unknown_ones_are():
    def unlabelled(source: str, subset: str) -> set[str]:
        things = [
            thing for index in range(60) for thing in scene(WORLD, source, subset, index).objects
        ]
        return {thing.category for thing in things if not thing.labelled}

    assert unlabelled("coco", "val") <= {"person", "dining table"}
    assert unlabelled("openimages", "validation") - {"Person", "Kitchen & dining room table"}


# -----------------------------------------------------------------------------------------------------
# drawings


def test_swapping_a_colour_leaves_nothing_of_it():
    def colours(swap: tuple[tuple[str, str], ...]) -> set[tuple[int, ...]]:
        pixels = np.asarray(sprite(Drawing("board", (Piece("surfboard", swap),)), 96))
        return {tuple(pixel[:3].tolist()) for pixel in pixels.reshape(-1, 4) if pixel[3] == 255}

    blue, red = (0x92, 0xD3, 0xF5), (0xEA, 0x5A, 0x47)
    assert {blue, red} <= colours(())
    swapped = colours((("blue", "red"), ("red", "green")))
    assert blue not in swapped and red in swapped and (0xB1, 0xCC, 0x33) in swapped


def test_a_cut_keeps_its_part_of_the_grid():
    whole = sprite(Drawing("fork", (Piece("1F374"),)), 144)
    right = sprite(Drawing("fork", (Piece("1F374", cut=(36, 4, 50, 68)),)), 28)
    # 14 of 72 columns at two pixels each; the right half of fork and knife, and no more.
    assert right.width <= 28
    assert right.width < whole.width <= 144
    assert right.height > 2 * right.width


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"art": 2708}, "expected the name of an art in quotes"),
        ({"art": "1F40E", "colour": "red"}, "expected the name of an art"),
        ({"art": "1F40E", "swap": {"mauve": "red"}}, "field 'swap': colours are white, grey"),
    ],
)
def test_a_wrong_row_of_the_catalogue_is_named(monkeypatch, row, problem):
    monkeypatch.setattr(
        "farther_demo.drawings.demo_table", lambda name: {"horse": {"train": [row]}}
    )
    catalogue.cache_clear()
    with pytest.raises(DataError, match=rf"^drawings\.yaml: row horse: .*{problem}"):
        catalogue()


@pytest.mark.parametrize(
    ("art", "problem"), [("1F8FF", "OpenMoji has no drawing"), ("chair_lift", "unknown shape")]
)
def test_art_that_does_not_exist_is_named(art, problem):
    with pytest.raises(DataError, match=f"{problem}.*{art}"):
        sprite(Drawing("horse", (Piece(art),)), 48)


def test_no_scene_shows_a_drawing_that_the_open_world_detector_was_taught_as_unknown():
    file = Path(__file__).parents[2] / "training/unknown_drawings.yaml"
    taught = yaml.safe_load(file.read_text(encoding="utf-8"))
    shown = {
        piece.art
        for one in catalogue().values()
        for drawing in one.train + one.test
        for piece in drawing.pieces
    }
    table = categories()
    named = {
        name.lower()
        for source in ("coco", "openimages")
        for of in table[source].values()
        for name in of
    }
    assert len(set(taught.values())) == len(taught) > 100
    assert not shown & set(taught.values())
    assert not (named | {name.lower() for name in shown_by()}) & set(taught)
