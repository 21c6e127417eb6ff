"""Detectors and detections that are recognised, and files that are refused."""

import argparse
import json
import re
from pathlib import Path

import pytest
import torch
from tests.detectors.test_detectron2 import layout
from tests.detectors.test_open_vocabulary import write_folder
from tests.projects.files import results
from tests.support.rfdetr import SETTINGS, content, state_of_rfdetr
from torchvision.models import densenet121, mobilenet_v3_small
from transformers import (
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
    YolosConfig,
    YolosForObjectDetection,
    YolosImageProcessor,
)
from ultralytics import YOLO

from farther.errors import DataError
from farther.projects import recognise, recognise_detector

ROOT = Path(__file__).parents[2]


def test_a_checkpoint_is_opened_by_the_adapter_that_fits(pets):
    found = recognise_detector(ROOT / "data/demo/bdd-vos.safetensors", recognise(pets))
    assert (found.entry["adapter"], found.assumed) == ("faster_rcnn", "")
    assert "pedestrian" in found.header.known_classes


@pytest.mark.parametrize(
    ("content", "seems"),
    [
        (b"nothing", "text"),
        (b"\x89HDF\r\n", "a file of Keras (HDF5)"),
        (
            b"PK\x03\x04 and no more",
            "a damaged or incomplete file of `torch.save`: copy or fetch it again",
        ),
        (b"\x80\x04K\x01.", "a pickle"),
        (b"\x20" + b"\0" * 7 + b'{"x": 1}', "a safetensors file written by another program"),
        (bytes(range(200, 216)), "something else"),
        ({"bbox_head.fc.weight": torch.ones(1)}, "weights of MMDetection: give the JSON files"),
        (
            {"model": {"backbone.bottom_up.x": torch.ones(1)}},
            "weights of Detectron2 of another network",
        ),
        ({"visual.proj": torch.ones(1)}, "weights of a CLIP: name their architecture by hand"),
        (
            {"model.0.conv.weight": torch.ones(1)},
            "a state dict of Ultralytics: give the .pt file that training wrote",
        ),
        ({"a": torch.ones(1)}, "a state dict of a network that is not known, with 'a'"),
    ],
)
def test_a_file_that_is_not_a_detector_comes_with_what_it_seems_to_be(
    pets, tmp_path, content, seems
):
    if isinstance(content, bytes):
        (tmp_path / "x.pt").write_bytes(content)
    else:
        torch.save(content, tmp_path / "x.pt")
    with pytest.raises(
        DataError, match=re.escape(f"no adapter opens it: it seems to be {seems}")
    ) as error:
        recognise_detector(tmp_path / "x.pt", recognise(pets))
    assert "Supported are checkpoints of Ultralytics" in str(error.value)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("pose", "estimates poses: let Ultralytics write its boxes"),
        ("cls", "classifies: classifiers are read from"),
    ],
)
def test_networks_of_ultralytics_for_other_tasks_are_refused_with_what_to_do(
    pets, tmp_path, head, said
):
    YOLO(f"yolov8n-{head}.yaml", verbose=False).save(tmp_path / "x.pt")
    with pytest.raises(DataError, match=f"a network of Ultralytics without an adapter: it {said}"):
        recognise_detector(tmp_path / "x.pt", recognise(pets))


def test_a_checkpoint_of_detectron2_and_open_vocabulary_are_recognised(pets, tmp_path):
    weights = layout(classes=2)
    torch.save(
        {"model": {name: torch.zeros(shape) for name, shape in weights.items()}, "iteration": 9},
        tmp_path / "d.pth",
    )
    found = recognise_detector(tmp_path / "d.pth", recognise(pets))
    assert (found.entry["adapter"], found.header.known_classes) == ("faster_rcnn", ("cat", "dog"))
    found = recognise_detector(write_folder(tmp_path / "owl", "owlv2"), recognise(pets))
    assert (found.entry["adapter"], found.header.known_classes) == (
        "open_vocabulary",
        ("cat", "dog"),
    )


def test_detection_transformers_are_recognised_in_folders_and_files_of_rfdetr(pets, tmp_path):
    config = YolosConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    config.image_size, config.num_detection_tokens, config.id2label = (
        [32, 32],
        5,
        {0: "cat", 1: "dog"},
    )
    YolosForObjectDetection(config).save_pretrained(tmp_path / "yolos")
    YolosImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path / "yolos")
    found = recognise_detector(tmp_path / "yolos", recognise(pets))
    assert (found.entry["adapter"], found.header.known_classes) == ("detr", ("cat", "dog"))

    state, args = state_of_rfdetr(), {"class_names": ["dog", "cat", "fox"]}
    torch.save(content(state, args=args), tmp_path / "checkpoint_best_total.pth")
    found = recognise_detector(tmp_path / "checkpoint_best_total.pth", recognise(pets))
    assert (found.entry["adapter"], found.header.known_classes) == ("detr", ("dog", "cat", "fox"))
    assert "params" not in found.entry and found.assumed == ""

    old = argparse.Namespace(**SETTINGS, **args)
    torch.save(content(state, args=old, model_config=None), tmp_path / "old.pth")
    assert "numbered from 1" in recognise_detector(tmp_path / "old.pth", recognise(pets)).assumed


def test_a_file_of_rfdetr_without_names_has_the_classes_of_the_id_dataset_if_their_number_fits(
    pets, tmp_path
):
    state = state_of_rfdetr()
    torch.save(content(state, args={}), tmp_path / "four.pth")
    with pytest.raises(
        DataError, match="class head of 4 rows is not that of the 2 of the ID dataset"
    ):
        recognise_detector(tmp_path / "four.pth", recognise(pets))
    for name, tensor in state.items():
        if "class_embed" in name:
            state[name] = tensor[:3]
    torch.save(content(state, args={}), tmp_path / "three.pth")
    found = recognise_detector(tmp_path / "three.pth", recognise(pets))
    assert (
        found.entry["params"] == {"classes": ["cat", "dog"]}
        and "farther doctor compares" in found.assumed
    )
    state["transformer.level_embed"] = torch.zeros(3)
    torch.save(content(state, args={}), tmp_path / "strange.pth")
    with pytest.raises(DataError, match=r"unexpected: transformer\.level_embed"):
        recognise_detector(tmp_path / "strange.pth", recognise(pets))


def test_a_clip_of_open_clip_classifies_the_id_classes(pets):
    found = recognise_detector(ROOT / "data/demo/clip", recognise(pets))
    assert (found.entry["adapter"], found.header.known_classes) == (
        "open_clip_classifier",
        ("cat", "dog"),
    )


@pytest.mark.slow
def test_classifiers_of_torchvision_and_transformers_are_recognised(pets, tmp_path):
    torch.save(mobilenet_v3_small(num_classes=2).state_dict(), tmp_path / "mobile.pth")
    found = recognise_detector(tmp_path / "mobile.pth", recognise(pets))
    assert (found.entry["adapter"], found.entry["params"]["architecture"]) == (
        "classifier",
        "mobilenet_v3_small",
    )
    assert found.header.known_classes == ("cat", "dog")
    assert found.assumed.startswith("it names no classes")
    # Names beside the file are those of its outputs.
    (tmp_path / "other").mkdir()
    # Architectures are tried in alphabetical order: this is one of the first.
    torch.save(densenet121(num_classes=3).state_dict(), tmp_path / "other/dense.pth")
    with pytest.raises(
        DataError,
        match=r"its 3 cannot be the 2 of the ID dataset: write the names .* into classes\.txt",
    ):
        recognise_detector(tmp_path / "other/dense.pth", recognise(pets))
    (tmp_path / "other/classes.txt").write_text("cat\ndog\nfox\n")
    assert recognise_detector(tmp_path / "other/dense.pth", recognise(pets)).header.classes == (
        "cat",
        "dog",
        "fox",
    )
    size = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    config = ViTConfig(
        **size,
        image_size=16,
        patch_size=8,
        id2label={0: "cat", 1: "dog"},
        label2id={"cat": 0, "dog": 1},
    )
    ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(tmp_path / "vit")
    found = recognise_detector(tmp_path / "vit", recognise(pets))
    assert (found.entry["adapter"], found.header.known_classes) == (
        "transformers_classifier",
        ("cat", "dog"),
    )
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert/config.json").write_text(
        '{"model_type": "bert", "architectures": ["BertModel"]}'
    )
    with pytest.raises(
        DataError, match="'BertModel' is not a transformers network for detection or classification"
    ):
        recognise_detector(tmp_path / "bert", recognise(pets))
    (tmp_path / "bert/config.json").write_text('{"model_type": {"a": 1}, "architectures": 5}')
    with pytest.raises(
        DataError, match="'' is not a transformers network for detection or classification"
    ):
        recognise_detector(tmp_path / "bert", recognise(pets))


def test_numbers_of_results_are_those_of_the_id_dataset(pets, tmp_path):
    found = recognise_detector(results(tmp_path / "r.json", 4, 3), recognise(pets))
    assert found.header.known_classes == ("cat", "dog")
    assert found.entry["params"] == {
        "score_threshold": 0.3,
        "classes": ["cat", "dog"],
        "categories": {3: "cat", 4: "dog"},
    }
    with pytest.raises(DataError, match="category_id 9 is not a class of the ID dataset"):
        recognise_detector(results(tmp_path / "r.json", 9), recognise(pets))


def test_results_with_names_have_the_classes_of_the_id_dataset_and_all_names_of_the_file(
    pets, tmp_path
):
    def record(name: str, **more) -> dict:
        return {"image_id": 1, "category_id": name, "bbox": [1, 2, 3, 4], "score": 0.5, **more}

    file = tmp_path / "r.json"
    file.write_text(json.dumps([record("dog")] * 2_500 + [record("zebra")]))
    assert recognise_detector(file, recognise(pets)).header.known_classes == ("cat", "dog", "zebra")
    file.write_text(
        json.dumps([record("dog", logits=[1.0, 2.0]), record("zebra", logits=[2.0, 1.0])])
    )
    assert recognise_detector(file, recognise(pets)).header.known_classes == ("dog", "zebra")
