"""Properties of the demo world that benchmarks rely on."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import yaml
from tests.demo.conftest import WORLD

from farther.datasets.hierarchy import HierarchyFile
from farther_demo.drawings import catalogue
from farther_demo.recipes import categories, shown_by
from farther_demo.scene import scene

ROOT = Path(__file__).parents[2]


def test_held_out_drawings_are_in_validation_and_test_images_and_never_trained_on():
    for name in ("voc", "bdd", "drawings"):
        held_out = set()
        for concept in chain(*categories()[name].values()):
            held_out |= {(concept, drawing.key) for drawing in catalogue()[concept].test}
        assert not held_out & used_drawings(name, "train")
        for subset in ("val", "test"):
            used = used_drawings(name, subset)
            assert len(held_out & used) > 10
            assert used - held_out


def used_drawings(name: str, subset: str) -> set[tuple[str, str]]:
    """Concept and drawing of each object in some scenes of a subset."""
    drawings = set()
    for index in range(30):
        for thing in scene(WORLD, name, subset, index).objects:
            drawings |= {(thing.concept, key) for key in thing.drawings}
    return drawings


def test_id_classes_are_the_originals_and_each_has_several_drawings():
    assert len(categories()["voc"]) == 20
    assert next(iter(categories()["voc"])) == "aeroplane"
    assert len(categories()["bdd"]) == 10
    assert "traffic light" in categories()["bdd"]
    for name in ("voc", "bdd"):
        for concepts in categories()[name].values():
            drawings = [catalogue()[concept] for concept in concepts]
            assert sum(len(pool.train) for pool in drawings) >= 4
            assert sum(len(pool.test) for pool in drawings) >= 2


# FMIYC, Table 6.
NEAR = {
    "coco": "zebra, bench, spoon, fork, carrot, orange, apple, cup, bowl, laptop, bed, bear, vase",
    "openimages": (
        "Jaguar, Leopard, Cheetah, Clothing, Zucchini, Food, Knife, Tablet computer, Laptop, Fox, "
        "Raccoon, Harbor seal, Hedgehog, Otter, Sea lion"
    ),
}


def test_near_classes_include_those_of_the_paper_and_show_no_id_class():
    unknown = set()
    for source, near in NEAR.items():
        table = categories()[source]
        assert set(near.split(", ")) <= set(table["near"])
        assert not set(table["near"]) & set(table["far"])
        for concept in chain(*table["near"].values()):
            assert not shown_by().get(concept)
        unknown |= {name.lower() for name in (*table["near"], *table["far"])}
    assert len(unknown) >= 60


def test_classes_of_crops_are_known_or_unknown_and_near_or_far():
    known = categories()["drawings"]
    unknown = categories()["drawings_unknown"]
    concepts = []
    for table in (known, unknown["near"], unknown["far"]):
        concepts += chain(*table.values())
    assert len(known) == 20
    assert len(unknown["near"]) == len(unknown["far"]) == 17
    assert len(set(concepts)) == len(concepts)


def test_near_and_far_classes_of_crops_are_those_of_the_rules_by_wordnets_hypernyms():
    rules = yaml.safe_load((ROOT / "data/benchmarks" / "drawings.yaml").read_text())
    by = rules["protocols"]["paper"]["classes_by"]
    hierarchy = HierarchyFile(ROOT / "data/benchmarks" / by["hierarchy"])
    assert set(rules["id_classes"]) == set(categories()["drawings"])
    for distance, names in categories()["drawings_unknown"].items():
        for name in names:
            similarity = hierarchy.nearest(name, rules["id_classes"])
            assert (similarity.mean >= by["near_above"]) == (distance == "near"), name
            assert abs(similarity.mean - by["near_above"]) > 0.05, name


def test_some_openimages_objects_are_nowhere_labelled_and_all_of_cocos_unknown_ones_are():
    def unlabelled(source: str, subset: str) -> set[str]:
        unlabelled_categories = set()
        for index in range(60):
            for thing in scene(WORLD, source, subset, index).objects:
                if not thing.labelled:
                    unlabelled_categories.add(thing.category)
        return unlabelled_categories

    assert unlabelled("coco", "val") <= {"person", "dining table"}
    assert unlabelled("openimages", "validation") - {"Person", "Kitchen & dining room table"}


def test_no_scene_shows_a_drawing_that_the_open_world_detector_learned_as_unknown():
    file = ROOT / "training/unknown_drawings.yaml"
    art_by_name = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert len(set(art_by_name.values())) == len(art_by_name) > 100

    art_of_scenes = set()
    for pool in catalogue().values():
        for drawing in pool.train + pool.test:
            art_of_scenes |= {piece.art for piece in drawing.pieces}
    assert not art_of_scenes & set(art_by_name.values())

    names = {concept.lower() for concept in shown_by()}
    for source in ("coco", "openimages"):
        names |= {name.lower() for name in chain(*categories()[source].values())}
    assert not names & set(art_by_name)
