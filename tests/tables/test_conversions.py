"""Results of other libraries as regions, and back."""

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
import supervision
import torch
from safetensors.torch import save_file
from torchvision.models.detection import FasterRCNN_ResNet50_FPN_Weights
from ultralytics.engine.results import Results

from farther.errors import DataError
from farther.tables import Objects, Regions
from farther.tables.arrays import read_arrays

BOXES = [[1.0, 2.0, 11.0, 22.0], [3.0, 4.0, 9.0, 8.0]]


def check(regions, image_ids):
    assert regions.image_id.tolist() == image_ids
    assert regions.region_id.tolist() == [0, 1]
    np.testing.assert_array_equal(regions.box, np.float32(BOXES))
    np.testing.assert_allclose(regions.score, [0.9, 0.4])
    assert [regions.classes[k] for k in regions.label] == ["dog", "cat"]
    assert not regions.has("logits")


def test_results_of_ultralytics():
    names, picture = {0: "cat", 1: "dog"}, np.zeros((30, 40, 3), np.uint8)
    rows = torch.tensor([[*BOXES[0], 0.9, 1], [*BOXES[1], 0.4, 0]])
    check(
        Regions.from_ultralytics(Results(picture, "a.jpg", names, boxes=rows)), ["a.jpg", "a.jpg"]
    )
    many = [Results(picture, f"{k}.jpg", names, boxes=rows[k : k + 1]) for k in range(2)]
    check(Regions.from_ultralytics(many, ["x", "y"]), ["x", "y"])


def test_outputs_of_torchvision_have_a_background():
    output = {
        "boxes": torch.tensor(BOXES, requires_grad=True),
        "scores": torch.tensor([0.9, 0.4]),
        "labels": torch.tensor([2, 1]),
    }
    regions = Regions.from_torchvision([output], ["a"], ["__background__", "cat", "dog"])
    check(regions, ["a", "a"])
    assert regions.header.known_classes == ("cat", "dog")


def test_outputs_of_transformers_have_named_labels():
    output = {
        "boxes": torch.tensor(BOXES),
        "scores": torch.tensor([0.9, 0.4]),
        "labels": torch.tensor([3, 1]),
    }
    regions = Regions.from_transformers([output], ["a"], {1: "cat", 3: "dog"})
    check(regions, ["a", "a"])
    assert regions.classes == ("0", "cat", "2", "dog")


def test_detections_of_supervision_there_and_back():
    made = supervision.Detections(
        xyxy=np.array(BOXES), confidence=np.array([0.9, 0.4]), class_id=np.array([1, 0])
    )
    regions = Regions.from_supervision(made, ["a"], ["cat", "dog"])
    check(regions, ["a", "a"])
    back = regions.to_supervision()["a"]
    assert isinstance(back, supervision.Detections)
    check(
        Regions.from_supervision(
            [back, supervision.Detections.empty()], ["a", "b"], ["cat", "dog"]
        ),
        ["a", "a"],
    )
    assert back.data["class_name"].tolist() == ["dog", "cat"]
    assert back[back.confidence > 0.5].data["region_id"].tolist() == [0]


def test_detections_of_supervision_without_confidence_are_refused():
    tracked = supervision.Detections(xyxy=np.array(BOXES), class_id=np.array([1, 0]))
    with pytest.raises(DataError, match=r"field 'detections\[0\].confidence': .* does not have it"):
        Regions.from_supervision(tracked, ["a"], ["cat", "dog"])


def test_boxes_for_fiftyone_are_fractions(monkeypatch):
    package = ModuleType("fiftyone")
    package.Detections = package.Detection = SimpleNamespace
    monkeypatch.setitem(sys.modules, "fiftyone", package)
    regions = Regions(
        image_id=["a"],
        region_id=[0],
        box=[[10, 40, 30, 60]],
        score=[0.5],
        label=[0],
        classes=["cat"],
    )
    (found,) = regions.to_fiftyone({"a": (100, 200)})["a"].detections
    assert found.label == "cat"
    np.testing.assert_allclose(found.bounding_box, [0.1, 0.2, 0.2, 0.1])
    with pytest.raises(DataError, match="no size of image 'a' is given"):
        regions.to_fiftyone({})


def test_results_and_names_of_images_must_be_as_many():
    with pytest.raises(DataError, match="1 results, but 2 names of images"):
        Regions.from_torchvision([{"boxes": [], "scores": [], "labels": []}], ["a", "b"], ["cat"])


def test_results_of_two_images_or_two_models_under_one_name_are_refused():
    names, picture = {0: "cat", 1: "dog"}, np.zeros((30, 40, 3), np.uint8)
    rows = torch.tensor([[*BOXES[0], 0.9, 1]])
    # Ultralytics calls the first array of each call image0.jpg.
    results = [Results(picture, "image0.jpg", names, boxes=rows) for _ in range(2)]
    with pytest.raises(
        DataError, match=r"2 results are of an image called 'image0\.jpg': give each image a name"
    ):
        Regions.from_ultralytics(results)
    assert Regions.from_ultralytics(results, ["a", "b"]).image_id.tolist() == ["a", "b"]
    other = Results(picture, "b.jpg", {0: "dog", 1: "cat"}, boxes=rows)
    with pytest.raises(DataError, match="results are of models with different classes"):
        Regions.from_ultralytics([results[0], other])


def test_dicts_of_arrays_name_or_number_their_labels():
    rows = [
        {
            "boxes": torch.tensor(BOXES[:1]),
            "scores": torch.tensor([0.9]),
            "labels": ["dog"],
            "logits": [[0.0, 1.0]],
        },
        {"boxes": [], "scores": [], "labels": [], "masks": None},
        {"boxes": BOXES[1:], "scores": [0.4], "labels": ["cat"], "logits": [[1.0, 0.0]]},
    ]
    regions = Regions.from_dicts(rows)
    assert regions.classes == ("cat", "dog")
    assert regions.logits.tolist() == [[0, 1], [1, 0]]
    assert regions.image_id.tolist() == ["0", "2"]
    numbers = [
        {**row, "labels": [("cat", "dog").index(name) for name in row["labels"]]} for row in rows
    ]
    assert Regions.from_dicts(numbers, ["cat", "dog"]).frame.equals(regions.frame)
    assert Regions.from_dicts(numbers, image_ids=["a", "b", "c"]).classes == ("0", "1")
    with pytest.raises(DataError, match="label 'dog' is not among the classes: cat, cow"):
        Regions.from_dicts(rows, ["cat", "cow"])
    with pytest.raises(DataError, match="label 1 is not among the classes: cat"):
        Regions.from_dicts(numbers, ["cat"])


def test_images_without_detections_name_no_classes():
    nothing = {"boxes": [], "scores": [], "labels": []}
    assert Regions.from_dicts([nothing]).classes == ()
    assert Regions.from_dicts([nothing], ["cat", "dog"]).classes == ("cat", "dog")
    assert Regions.from_dicts(
        [nothing, {"boxes": BOXES, "scores": [0.9, 0.4], "labels": [2, 0]}]
    ).classes == (*"012",)


def test_objects_are_made_of_the_same_dicts():
    objects = Objects.from_dicts(
        [
            {"boxes": BOXES, "labels": torch.tensor([1, 0]), "iscrowd": [0, 1], "area": None},
            {"boxes": [], "labels": []},
        ],
        ["cat", "dog"],
    )
    assert objects.image_id.tolist() == ["0", "0"]
    assert objects.category.tolist() == ["dog", "cat"]
    assert objects.is_crowd.tolist() == [False, True]
    assert len(Objects.from_dicts([])) == 0
    with pytest.raises(DataError, match=r"expected shape \(1, 4\), found \(2, 4\)"):
        Objects.from_dicts([{"boxes": BOXES, "labels": ["cat"]}])


def test_the_example_of_the_docs_has_the_values_in_its_comments():
    page = (Path(__file__).parents[2] / "docs/python.md").read_text()
    (example,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        if "from_dicts" in block
    )
    made: dict = {}
    exec(example, made)
    commented = re.findall(r"^(\w+\W.*?)\s+# ([\d.]+)", example, re.MULTILINE)
    assert len(commented) == 2
    for expression, value in commented:
        assert eval(expression, made) == float(value)


def test_plain_arrays_and_tensors_become_regions_with_all_that_scores_read():
    rng = np.random.default_rng(0)
    features, weight, bias = rng.normal(size=(6, 4)), rng.normal(size=(3, 4)), rng.normal(size=3)
    logits = features @ weight.T + bias
    made = Regions.from_arrays(
        torch.tensor(logits), torch.tensor(features), last_layer=(torch.tensor(weight), bias)
    )
    np.testing.assert_array_equal(made.label, logits.argmax(axis=1))
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(made.score, softmax.max(axis=1), rtol=1e-5)
    np.testing.assert_allclose(made.features @ made.weight.T + made.bias, made.logits, atol=1e-5)
    assert len(set(made.image_id)) == 6
    np.testing.assert_array_equal(made.box, [[0, 0, 1, 1]] * 6)
    named = Regions.from_arrays(
        labels=[1, 0], scores=[0.5, 0.6], images=["a", "a"], boxes=[[0, 0, 2, 2]] * 2
    )
    assert (named.image_id.tolist(), named.classes, named.has("logits")) == (
        ["a", "a"],
        ("0", "1"),
        False,
    )
    with pytest.raises(DataError, match="expected logits, labels, or both"):
        Regions.from_arrays(features=features)


def test_names_that_occur_twice_get_their_number_as_in_the_adapter_detr():
    categories = FasterRCNN_ResNet50_FPN_Weights.COCO_V1.meta["categories"]
    output = {
        "boxes": torch.tensor(BOXES),
        "scores": torch.tensor([0.9, 0.4]),
        "labels": torch.tensor([18, 17]),
    }
    regions = Regions.from_torchvision([output], ["a"], categories)
    check(regions, ["a", "a"])
    assert len(regions.classes) == len(set(regions.classes)) == 91
    assert regions.classes[11:14] == ("fire hydrant", "N/A 12", "stop sign")
    id2label = dict(enumerate(["N/A", "cat", "dog", "N/A"]))
    output["labels"] = torch.tensor([2, 1])
    regions = Regions.from_transformers([output], ["a"], id2label)
    check(regions, ["a", "a"])
    assert regions.classes == ("N/A 0", "cat", "dog", "N/A 3")
    made = supervision.Detections(
        xyxy=np.array(BOXES), confidence=np.array([0.9, 0.4]), class_id=np.array([2, 1])
    )
    assert Regions.from_supervision(made, ["a"], list(id2label.values())).classes == regions.classes
    assert Regions.from_dicts([output], list(id2label.values())).classes == regions.classes
    assert (
        Regions.from_arrays(np.eye(4), classes=list(id2label.values())).classes == regions.classes
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_tensors_in_short_types_become_float32(dtype):
    logits = torch.tensor([[0.5, 2.0], [1.0, -4.0]], requires_grad=True).to(dtype)
    scores = torch.tensor([0.5, 0.25]).to(dtype)
    made = Regions.from_arrays(logits, logits, scores=scores, last_layer=(logits, logits[0]))
    assert made.logits.dtype == made.score.dtype == made.weight.dtype == np.float32
    assert made.logits.tolist() == made.features.tolist() == [[0.5, 2], [1, -4]]
    assert made.score.tolist() == [0.5, 0.25]
    output = {
        "boxes": torch.tensor([[0, 0, 16, 8.0]]).to(dtype),
        "scores": torch.tensor([0.5]).to(dtype),
        "labels": torch.tensor([0]),
        "logits": logits[:1],
    }
    of_dicts = Regions.from_dicts([output], ["cat", "dog"])
    assert (of_dicts.box.tolist(), of_dicts.logits.tolist()) == ([[0, 0, 16, 8]], [[0.5, 2]])
    columns = {
        "box": output["boxes"],
        "score": output["scores"],
        "label": output["labels"],
        "logits": logits[:1],
    }
    for made in (
        Regions.from_transformers([output], ["a"], {0: "cat"}),
        Regions(image_id=["a"], region_id=[0], **columns),
    ):
        assert (made.box.dtype, made.box.tolist(), made.score.tolist()) == (
            np.float32,
            [[0, 0, 16, 8]],
            [0.5],
        )


def test_arrays_of_jax_in_bfloat16_become_float32():
    logits = np.array([[0.5, 2.0]]).astype(ml_dtypes.bfloat16)
    assert Regions.from_arrays(logits).logits.tolist() == [[0.5, 2]]


def test_a_file_of_weights_in_bfloat16_is_read(tmp_path):
    weight = torch.tensor([[1.5, -2.0, 3.25]])
    file = tmp_path / "layer.safetensors"
    save_file(
        {"weight": weight.bfloat16(), "bias": weight[0].half(), "step": torch.tensor(7)}, file
    )
    arrays = read_arrays(file)
    assert arrays["weight"].tolist() == weight.tolist()
    assert (arrays["weight"].dtype, arrays["bias"].dtype) == (np.float32, np.float16)
    assert int(arrays["step"]) == 7
