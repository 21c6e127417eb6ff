import numpy as np
import pytest

from farther import datasets
from farther.errors import DataError, FartherError, ParameterError


def test_the_four_formats_of_the_benchmark_are_known():
    assert {"voc", "bdd", "coco", "openimages"} <= set(datasets.names())


def test_an_unknown_format_is_an_error_that_suggests_the_nearest():
    with pytest.raises(
        ParameterError,
        match=r"unknown dataset format 'coko'. Did you mean 'coco'\? All: `farther list datasets`",
    ):
        datasets.create("coko", root=".")


def test_a_section_without_a_format_is_an_error_that_says_how_to_list_them():
    with pytest.raises(ParameterError, match="`farther list datasets` lists"):
        datasets.create(root=".")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"rooot": "."},
            "dataset format 'coco': unknown parameter 'rooot'. Known: root, missing_images",
        ),
        (
            {"root": ".", "missing_images": "skip"},
            "'missing_images': Input should be 'error' or 'drop', found 'skip'",
        ),
        (
            {"root": ".", "max_warnings": 5},
            "'max_warnings': Input should be less than or equal to 1, found 5",
        ),
    ],
)
def test_a_wrong_parameter_is_named(params, message):
    with pytest.raises(ParameterError, match=message):
        datasets.create("coco", **params)


@pytest.mark.parametrize("name", ["voc", "bdd", "coco", "openimages"])
def test_a_root_that_does_not_exist_is_named(name, tmp_path):
    with pytest.raises(DataError, match="nowhere: the folder does not exist; parameter 'root'"):
        datasets.create(name, root=tmp_path / "nowhere").subsets()


@pytest.mark.parametrize(
    ("name", "looked_for"),
    [
        ("voc", "VOC2012/ImageSets/Main/train.txt"),
        ("bdd", "labels/det_20/det_train.json"),
        ("coco", "annotations/instances_val2017.json"),
        ("openimages", "validation-annotations-bbox.csv"),
    ],
)
def test_an_empty_root_is_an_error_that_says_what_was_looked_for(name, looked_for, tmp_path):
    with pytest.raises(DataError) as error:
        datasets.create(name, root=tmp_path).subsets()
    assert looked_for in str(error.value)


@pytest.mark.parametrize("name", ["voc", "bdd", "coco", "openimages"])
def test_no_subset_name_leads_out_of_the_root(name, tmp_path):
    (tmp_path / "root").mkdir()
    with pytest.raises(FartherError, match=r"leaves its folder|does not exist"):
        datasets.create(name, root=tmp_path / "root").read("../../../../etc")


def test_boxes_that_no_image_can_hold_are_refused_before_any_image_is_opened():
    collector = datasets.base.Collector(datasets.base.Path("."))
    image = collector.add_image(
        "a", "a.jpg", datasets.base.Location(datasets.base.Path("labels.json"))
    )
    collector.add_object(image, (1.0, 2.0, 3.0, float("inf")), 0, 7)
    with pytest.raises(
        DataError,
        match=r"labels.json: row items\[7\]: field 'box': expected finite numbers.*1, 2, 3, inf",
    ):
        collector.annotations(
            categories=["cat"], files=["labels.json"], row="items[{row}]", box_field="box"
        )


def test_a_subset_without_objects_has_columns_of_no_rows():
    collector = datasets.base.Collector(datasets.base.Path("."))
    objects = collector.annotations(categories=[], files=[], row="{row}", box_field="box").objects
    assert len(objects) == 0
    assert objects.box.shape == (0, 4)
    assert objects.is_crowd.dtype == np.bool_


def test_a_root_whose_name_is_too_long_is_refused():
    with pytest.raises(ParameterError, match="parameter 'root': the path is too long: '/data/xxx"):
        datasets.create("coco", root=f"/data/{'x' * 300}")
