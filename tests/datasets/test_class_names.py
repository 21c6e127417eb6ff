from pathlib import Path

import pytest
import yaml

import farther_demo as demo
from farther.datasets import ClassNames, bdd, voc
from farther.errors import DataError

FILE = Path(__file__).parents[2] / "data/names/classes.yaml"
COCO = Path(demo.__file__).parent / "coco_categories.yaml"


def test_one_class_has_many_names():
    names = ClassNames(FILE)
    assert names.same("tvmonitor", "voc", "coco") == ("tv",)
    assert names.same("tv", "coco", "openimages") == ("Television", "Computer monitor")
    assert names.same("television", "openimages", "voc") == ("tvmonitor",)
    assert names.same("motorbike", "voc", "bdd") == ("motorcycle",)


def test_every_class_of_the_two_id_datasets_and_of_coco_is_there():
    names = ClassNames(FILE)
    coco_classes: set[str] = set()
    for group in yaml.safe_load(COCO.read_text()).values():
        coco_classes.update(group.values())
    assert len(coco_classes) == 80

    classes_by_dataset = {"voc": voc.CLASSES, "bdd": bdd.CLASSES, "coco": coco_classes}
    for dataset, classes in classes_by_dataset.items():
        for name in classes:
            assert names.same(name, dataset, dataset) == (name,)
    for name in coco_classes:
        assert names.same(name, "coco", "objects365")
        assert names.same(name, "coco", "openimages")
    for names_by_dataset in yaml.safe_load(FILE.read_text()).values():
        assert set(names_by_dataset.get("coco", ())) <= coco_classes


def test_a_class_without_a_name_elsewhere_has_none_and_an_unknown_class_is_an_error():
    assert ClassNames(FILE).same("rider", "bdd", "coco") == ()
    with pytest.raises(DataError, match=r"classes.yaml: voc has no class called 'unicorn'; add it"):
        ClassNames(FILE).same("unicorn", "voc", "coco")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tv: [", "not YAML"),
        ("- tv", "expected a mapping from classes to names"),
        ("tv: {coco: tv}", "field 'tv': expected {dataset: \\[names\\]}, found {'coco': 'tv'}"),
        ("tv: [tv]", "field 'tv': expected {dataset: \\[names\\]}, found \\['tv'\\]"),
        (
            "{tv: {coco: [tv]}, screen: {coco: [TV]}}",
            "field 'screen': 'TV' of coco is 'tv' as well",
        ),
    ],
)
def test_a_wrong_file_is_an_error_that_names_the_class(tmp_path, text, problem):
    file = tmp_path / "names.yaml"
    file.write_text(text)
    with pytest.raises(DataError, match=rf"names.yaml: {problem}"):
        ClassNames(file)


def test_an_absent_file_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"names.yaml: the file does not exist"):
        ClassNames(tmp_path / "names.yaml")
