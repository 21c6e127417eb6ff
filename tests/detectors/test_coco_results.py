"""COCO results of another program: imported, refused, and assigned to images of splits."""

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.detectors.imported_world import World, detection

from farther.detectors.imported import BenchmarkImage
from farther.detectors.imported.base import check_last_layer
from farther.errors import DataError, ParameterError
from farther.tables import Header, Regions

CLASSES = ("background", "dog", "cat")


def softmax(logits):
    return (np.exp(logits) / np.exp(logits).sum()).tolist()


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


BOTH = [detection("2007_1"), detection(7)]


def test_other_names_of_the_classes_import_nothing_again(world):
    assert world.results(BOTH)["test"].classes == ("dog", "cat")
    imported = world.results(BOTH, names={"dog": "hound"})
    assert (imported["test"].classes, imported["far"].classes) == (
        ("hound", "cat"),
        ("hound", "cat"),
    )
    assert world.lines == ["far: unchanged", "test: unchanged"]
    assert world.results(BOTH)["test"].classes == ("dog", "cat")


# COCO results


def test_detections_go_to_the_split_that_shows_their_image_with_edges_and_class_indices(world):
    imported = world.results(
        [
            detection("2007_2", 2, (1, 2, 3, 4), 0.25),
            detection(9, 1, (0.5, 0, 2, 1), 0.75),
            detection("2007_1"),
        ]
    )
    assert imported["test"].image_id.tolist() == ["2007_1", "2007_2"]
    assert imported["test"].region_id.tolist() == [0, 65_536]
    assert imported["test"].box[1].tolist() == [1, 2, 4, 6]
    assert imported["test"].label.tolist() == [0, 1]
    assert imported["far"].image_id.tolist() == ["000000000009"]
    assert imported["far"].region_id.tolist() == [65_536]
    assert imported["far"].box.tolist() == [[0.5, 0, 2.5, 1]]
    assert imported["far"].score.tolist() == [0.75]


def test_detections_of_one_image_keep_the_order_of_the_file(world):
    scores = [0.1, 0.9, 0.4]
    imported = world.results(
        [d for s in scores for d in (detection("2007_1", score=s), detection(7, score=s))]
    )
    np.testing.assert_allclose(imported["test"].score, scores)
    assert imported["test"].region_id.tolist() == [0, 1, 2]


def test_optional_values_arrive_in_their_columns(world):
    logits = [0.0, 2.0, 1.0]
    values = {
        "logits": logits,
        "features": [1, 2],
        "latent": [3.5],
        "box_variance": [1, 4, 9, 2],
        "uncertainty": 0.25,
    }
    imported = world.results(
        [detection(i, score=softmax(logits)[1], **values) for i in ("2007_1", 7)],
        classes=CLASSES,
        background_index=0,
    )
    for column, value in values.items():
        np.testing.assert_array_equal(getattr(imported["far"], column), [value])
    assert imported["far"].label.tolist() == [1]
    assert (
        "read 2 detections, each with logits, features, latent, box_variance, uncertainty"
        in world.lines
    )


def test_without_logits_there_is_no_such_column_and_the_header_says_the_classes(world):
    imported = world.results(BOTH)
    assert not imported["test"].has("logits")
    assert imported["test"].classes == ("dog", "cat")


def test_images_without_detections_and_detections_of_other_images_are_counted(world):
    world.results([*BOTH, detection("elsewhere"), detection("elsewhere"), detection(8)])
    assert "test: 2 images, 1 regions; 1 images have no detections" in world.lines
    assert world.lines[-1] == "3 detections ignored: not in any split (images: 2, as 'elsewhere')"


@pytest.mark.parametrize(
    ("box", "problem"),
    [
        (
            (100, 200, 300, 400),
            r"1 of 1 boxes lie outside .* as \[100\.0, 200\.0, 400\.0, 600\.0\].* of '2007_1' "
            r"\(10 x 10",
        ),
        (
            (0.1, 0.2, 0.3, 0.4),
            r"1 of 1 boxes lie within the first pixel.*: are they in pixels of the image\?",
        ),
    ],
)
def test_boxes_in_another_unit_are_refused_and_few_such_boxes_are_named(world, box, problem):
    with pytest.raises(DataError, match=rf"results\.json: field 'box': {problem}"):
        world.results([detection("2007_1", bbox=box), detection(7)])
    world.results([*[detection("2007_1")] * 4, detection("2007_1", bbox=box), detection(7)])
    assert [
        line
        for line in world.lines
        if line.startswith("test: 1 of 5 boxes lie ") and line.endswith("image?")
    ]


def test_an_image_that_a_coco_file_has_twice_is_refused(world):
    images = [{"id": 1, "file_name": "2007_1.jpg"}, {"id": 2, "file_name": "2007_1.jpg"}]
    content = {
        "images": images,
        "annotations": [detection(1)],
        "categories": [{"id": 1, "name": "dog"}],
    }
    file = world.write("instances.json", content)
    twice = r"instances\.json: row images\[1\]: field 'file_name': .*'2007_1\.jpg' occurs twice"
    with pytest.raises(DataError, match=twice):
        world.run(weights=world.write("r.json", [detection(1)]), annotations=file, classes=CLASSES)
    with pytest.raises(DataError, match=twice):
        world.run("detections", weights=file, classes=CLASSES)


def test_annotations_say_which_file_a_number_stands_for(world):
    images = [
        {"id": 1, "file_name": "2007_1.jpg"},
        {"id": 2, "file_name": "val2017/000000000009.jpg"},
    ]
    categories = [{"id": 4, "name": "cat"}, {"id": 3, "name": "dog"}]
    file = world.write(
        "instances.json", {"images": images, "annotations": [{}] * 3, "categories": categories}
    )
    imported = world.run(
        weights=world.write("r.json", [detection(2, 4), detection(1, 3), detection(1, 4)]),
        annotations=file,
    )
    assert imported["far"].image_id.tolist() == ["000000000009"]
    assert imported["test"].image_id.tolist() == ["2007_1", "2007_1"]
    assert [imported["test"].classes[k] for k in imported["test"].label] == ["dog", "cat"]


def test_a_split_may_have_no_detection_at_all_if_annotations_name_its_images(world):
    images = [{"id": 1, "file_name": "2007_1.jpg"}, {"id": 2, "file_name": "000000000009.jpg"}]
    file = world.write(
        "instances.json", {"images": images, "categories": [{"id": 1, "name": "dog"}]}
    )
    imported = world.run(weights=world.write("r.json", [detection(1)]), annotations=file)
    assert (len(imported["test"]), len(imported["far"])) == (1, 0)


def test_a_file_name_that_fits_two_images_is_refused(world):
    world.add_split("far", "coco", ["a", "b"], "{}/1.jpg")
    file = world.write(
        "i.json",
        {"images": [{"id": 1, "file_name": "1.jpg"}], "categories": [{"id": 1, "name": "dog"}]},
    )
    with pytest.raises(
        DataError, match=r"'1.jpg' may be 'a/1.jpg' or 'b/1.jpg': give its folders too"
    ):
        world.run(weights=world.write("r.json", [detection(1)]), annotations=file)


def test_files_called_after_a_split_or_a_dataset_serve_only_that(world):
    world.add_split("other", "voc", ["000000000007"], "JPEGImages/{}.jpg")
    world.write("results/far.json", [detection(7, score=0.1)])
    world.write("results/voc.json", [detection(i, score=0.2) for i in (7, "2007_1")])
    imported = world.run(weights=world.root / "results", categories={1: "dog"})
    np.testing.assert_allclose(imported["far"].score, [0.1])
    np.testing.assert_allclose(imported["test"].score, [0.2])
    np.testing.assert_allclose(Regions.read(world.root / "regions" / "other").score, [0.2])


SAME_IDS = {
    "numbers": (
        ["7", "8"],
        r"'7' may be 'val2017/000000000007\.jpg' of dataset coco \(split far\) or 'own/7\.jpg' of "
        r"dataset own \(split other\): give one file of detections per dataset, called coco\.json "
        r"and own\.json, in one folder, or name the images by `file_name`",
    ),
    "texts": (
        ["2007_1", "8"],
        r"'2007_1' may be 'own/2007_1\.jpg' of dataset own \(split other\) or 'JPEGImages/2007_1",
    ),
}


@pytest.mark.parametrize(("image_ids", "message"), SAME_IDS.values(), ids=SAME_IDS)
def test_an_id_that_two_datasets_have_is_refused_with_both_images(world, image_ids, message):
    world.add_split("other", "own", image_ids, "own/{}.jpg")
    with pytest.raises(DataError, match=r"results\.json: field 'image_id': " + message):
        world.results([*BOTH, detection(8)])


def test_an_id_that_two_subsets_of_a_dataset_have_asks_for_a_file_of_each_split(world):
    world.add_split("other", "coco", ["000000000007"], "train2017/{}.jpg")
    with pytest.raises(
        DataError,
        match=r"give one file of detections per split, called far\.json and other\.json, in",
    ):
        world.results(BOTH)


def test_a_detection_of_an_image_of_two_splits_is_in_both(world):
    world.add_split("other", "coco", ["000000000007"], "val2017/{}.jpg")
    assert len(world.results(BOTH)["far"]) == 1
    assert len(Regions.read(world.root / "regions" / "other")) == 1


def test_detections_of_id_images_alone_serve_no_ood_images(world):
    world.add_split("far", "coco", ["1", "2"], "val2017/{}.jpg")
    world.add_split("test", "voc", ["1", "2"], "JPEGImages/{}.jpg")
    with pytest.raises(
        DataError,
        match=r"'1' may be 'val2017/1\.jpg' of dataset coco .* or 'JPEGImages/1\.jpg' of ",
    ):
        world.results([detection(1), detection(2)])
    world.add_split("test", "voc", ["101", "102"], "JPEGImages/{}.jpg")
    with pytest.raises(
        DataError, match=r"no image of split 'far' is in the detections\. They name '101', '102'"
    ):
        world.results([detection(101), detection(102)])


def test_a_name_that_an_image_has_which_the_rules_left_out_is_refused_too(world):
    left_out = [
        BenchmarkImage("5", "coco", "val2017/2007_1.jpg", "", ""),
        BenchmarkImage("6", "coco", "6.jpg", "", ""),
    ]
    with pytest.raises(
        DataError, match=r"may be .*'val2017/2007_1\.jpg' of dataset coco \(which is in no split\)"
    ):
        world.results([*BOTH, detection("2007_1.jpg")], left_out=left_out)
    imported = world.results([*BOTH, detection("2007_1"), detection(6)], left_out=left_out[1:])
    assert len(imported["test"]) == 2
    assert world.lines[-1] == "1 detection ignored: not in any split (images: 1, as '6')"


def test_one_image_in_two_files_is_refused(world):
    for name in ("a", "b"):
        world.write(f"results/{name}.json", BOTH)
    with pytest.raises(DataError, match=r"has detections in .*a\.json and in .*b\.json"):
        world.run(weights=world.root / "results", categories={1: "dog"})


def test_splits_that_share_an_image_have_the_detections_of_the_file_of_their_name(world):
    world.add_split("far", "voc", ["2007_1"], "JPEGImages/{}.jpg")
    both = [detection("2007_1", score=0.25), detection("2007_2", score=0.25)]
    world.write("results/test.json", both)
    world.write("results/far.json", [detection("2007_1", score=0.75)])
    imported = world.run(weights=world.root / "results", categories={1: "dog"})
    assert imported["test"].score.tolist() == [0.25, 0.25]
    assert imported["far"].score.tolist() == [0.75]
    assert not any("ignored" in line for line in world.lines)


def test_a_split_that_the_file_does_not_know_is_refused_with_names_of_both(world):
    with pytest.raises(
        DataError,
        match=r"no image of split 'far'.* They name '2007_1'; the split has '000000000007'",
    ):
        world.results([detection("2007_1")])
    with pytest.raises(DataError, match=r"\.json: no image of split 'far'.* They name none"):
        world.results([])


LOGITS = {"logits": [2.0, 1.0]}
RIGHT = softmax(LOGITS["logits"])[0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (detection(7, 18), r"field 'category_id': unknown category 18\. Known: dog, cat, 1, 2"),
        (detection(7, score=1.5), r"field 'score': expected 0 to 1, found 1\.5"),
        (detection(7, score="0.5"), r"field 'score': expected a number, found '0\.5'"),
        (detection(7, bbox=(0, 0, -1, 2)), r"field 'bbox': .*found \[0, 0, -1, 2\]"),
        (
            detection(7, bbox=(0, 0, 1)),
            r"field 'bbox': expected x, y, width, height, .*, found \[0, 0, 1\]",
        ),
        (detection(7, **LOGITS), r"field 'logits': .*the first detection does not have it"),
        ({"image_id": 7, "category_id": 1, "score": 0.5}, r"field 'bbox': the field is missing"),
        (detection(7.5), r"field 'image_id': expected an integer or text, found 7\.5"),
        (detection(7, 1.5), r"field 'category_id': expected an integer or text, found 1\.5"),
        (3, r"expected an object, found 3"),
    ],
)
def test_a_wrong_detection_is_named_by_file_row_and_field(world, wrong, message):
    with pytest.raises(DataError, match=r"results\.json: row 1: " + message):
        world.results([detection("2007_1"), wrong])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            detection(7, score=RIGHT, logits=[1.0, 2.0, 3.0]),
            r"field 'logits': expected 2 numbers, found 3",
        ),
        (
            detection(7, 2, score=RIGHT, **LOGITS),
            r"field 'score': 0\.7311, but the softmax of the logits gives 0\.2689",
        ),
        (detection(7, score=RIGHT), r"field 'logits': .*the first detection has it"),
    ],
)
def test_logits_that_do_not_fit_are_named_by_file_row_and_field(world, wrong, message):
    with pytest.raises(DataError, match=r"results\.json: row 1: " + message):
        world.results([detection("2007_1", score=RIGHT, **LOGITS), wrong])


def test_logits_of_another_number_than_classes_are_refused(world):
    with pytest.raises(DataError, match=r"row 0: field 'logits': 3 logits, but 2 classes"):
        world.results([detection("2007_1", logits=[1.0, 2.0, 3.0])])


def test_scores_that_are_made_in_another_way_than_from_logits_may_be_allowed(world):
    detections = [detection(i, score=0.99, **LOGITS) for i in ("2007_1", 7)]
    assert world.results(detections, score_tolerance=None)["far"].score[0] == np.float32(0.99)


def test_a_sigmoid_head_is_held_against_its_own_activation(world):
    detections = [detection(i, score=1 / (1 + np.exp(-2.0)), **LOGITS) for i in ("2007_1", 7)]
    assert world.results(detections, activation="sigmoid")["far"].activation == "sigmoid"
    with pytest.raises(DataError, match="the softmax of the logits"):
        world.results(detections)


def test_a_last_layer_that_does_not_give_the_logits_is_refused(world):
    detections = [detection(i, score=RIGHT, features=[1.0, 2.0], **LOGITS) for i in ("2007_1", 7)]
    file = world.root / "layer.safetensors"
    weight = np.array([[2.0, 0.0], [1.0, 0.0]], np.float32)
    save_file({"weight": weight, "bias": np.zeros(2, np.float32)}, file)
    np.testing.assert_array_equal(world.results(detections, last_layer=file)["test"].weight, weight)
    save_file({"weight": weight[::-1].copy(), "bias": np.zeros(2, np.float32)}, file)
    with pytest.raises(DataError, match=r"row 0: field 'features': .* not their last layer"):
        world.results(detections, last_layer=file)


@pytest.mark.parametrize(
    ("largest", "difference", "is_refused"),
    [(0.5, 0.04, False), (0.5, 0.06, True), (100, 4, False), (100, 6, True)],
)
def test_a_last_layer_may_be_5_percent_of_the_largest_logit_away_or_of_1(
    largest, difference, is_refused
):
    logits = np.array([[largest, 0.0]], np.float32)
    layer = {
        "weight": np.array([[largest + difference], [0.0]], np.float32),
        "bias": np.zeros(2, np.float32),
    }
    regions = Regions(
        header=Header(classes=("dog", "cat"), activation="softmax", **layer),
        image_id=["a"],
        region_id=[0],
        box=[[0, 0, 9, 9]],
        score=[0.5],
        label=[0],
        logits=logits,
        features=[[1.0]],
    )
    if not is_refused:
        check_last_layer(regions)
        return
    with pytest.raises(DataError, match=r"row 0: field 'features': .* not their last layer"):
        check_last_layer(regions)


def test_detections_below_the_threshold_are_left_out_and_the_header_says_so(world):
    imported = world.results([*BOTH, detection(7, score=0.1)], score_threshold=0.2)
    assert len(imported["far"]) == 1
    assert imported["far"].header.score_threshold == 0.2


def test_unchanged_splits_are_left_alone_and_a_changed_file_is_read_again(world):
    world.results(BOTH)
    world.results(BOTH)
    assert world.lines == ["far: unchanged", "test: unchanged"]
    assert len(world.results([*BOTH, detection(9)])["far"]) == 2
    assert len(world.lines) == 3


def test_an_image_that_the_rules_leave_out_later_makes_a_kept_name_ambiguous_too(world):
    detections = [*BOTH, detection("2007_1.jpg")]
    world.results(detections)
    left_out = [BenchmarkImage("5", "coco", "val2017/2007_1.jpg", "", "")]
    with pytest.raises(DataError, match=r"may be .*which is in no split"):
        world.results(detections, left_out=left_out)


def test_numbers_without_names_ask_for_classes(world):
    with pytest.raises(ParameterError, match="give the parameter 'classes' or 'categories'"):
        world.run(weights=world.write("r.json", BOTH))


@pytest.mark.parametrize(
    ("image_id", "category_id"), [(7.0, 2.0), ("7", "2"), ("7.0", "2.0"), ("000000000007", 2)]
)
def test_numbers_of_images_and_classes_may_be_floats_or_texts(world, image_id, category_id):
    imported = world.results([detection("2007_1"), detection(image_id, category_id)])
    assert imported["far"].image_id.tolist() == ["000000000007"]
    assert imported["far"].label.tolist() == [1]


@pytest.mark.parametrize("number", [1, 1.0, "1"])
def test_numbers_of_annotations_may_be_floats_or_texts_on_either_side(world, number):
    images = [{"id": 1.0, "file_name": "2007_1.jpg"}, {"id": "2", "file_name": "000000000009.jpg"}]
    categories = [{"id": "1", "name": "dog"}, {"id": 2.0, "name": "cat"}]
    file = world.write(
        "instances.json", {"images": images, "annotations": [], "categories": categories}
    )
    results = world.write("r.json", [detection(number, 2), detection(2, number)])
    imported = world.run(weights=results, annotations=file)
    assert imported["test"].classes == ("dog", "cat")
    assert (imported["test"].label.tolist(), imported["far"].label.tolist()) == ([1], [0])


def test_file_names_name_the_images_as_in_the_predictions_of_ultralytics(world):
    named = [
        detection(i, file_name=name) for i, name in ((1, "2007_1.jpg"), (7, "000000000007.jpg"))
    ]
    imported = world.results(named)
    assert imported["test"].image_id.tolist() == ["2007_1"]
    assert imported["far"].image_id.tolist() == ["000000000007"]


def test_the_field_that_names_the_images_can_be_chosen(world):
    named = [{**one, "file_name": "x.jpg"} for one in BOTH]
    assert world.results(named, match="image_id")["far"].image_id.tolist() == ["000000000007"]
    with pytest.raises(DataError, match=r"row 1: field 'file_name': the field is missing"):
        world.results([named[0], BOTH[1]], match="file_name")
