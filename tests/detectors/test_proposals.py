"""Proposals of networks, compared with torchvision's RPN and the output of transformers."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from tests.detectors.demo import IDS, LOW, create, detected, scene
from torchvision.models.detection.transform import resize_boxes

from farther.detectors.imported import import_splits
from farther.detectors.inference import ProposalFolders, infer_splits
from farther.detectors.proposals import SOURCES, read_sources, selections
from farther.detectors.settings import ProposalSelection
from farther.errors import ParameterError
from farther.tables import Images, Regions, RegionsFolder

OWN = {"faster_rcnn": "rpn", "yolo": "anchors", "detr": "queries"}
EVERY = {"most": 1000, "iou": 1.0, "smallest": 0.0, "size": 0.0}
PICTURES = [scene(0), scene(1)[:, 20:], scene(2)]


def proposed(detector, images, **selection):
    """The proposals of one batch of images, which are called as `IDS`."""
    prepared = [detector.prepare(image) for image in images]
    return detector.forward_proposals(
        prepared, IDS[: len(images)], {"all": ProposalSelection(**selection)}
    )[1]


def test_proposals_of_a_faster_rcnn_are_those_of_torchvisions_rpn():
    detector = create("faster_rcnn")
    network = detector.network
    found = proposed(detector, PICTURES[:2], **EVERY, objectness="network")
    pixels = [
        torch.from_numpy(np.ascontiguousarray(one)).permute(2, 0, 1) / 255 for one in PICTURES[:2]
    ]
    with torch.inference_mode():
        batch, _ = network.transform(pixels)
        levels = network.backbone(batch.tensors)
        boxes, _ = network.rpn(batch, levels)
        pooled = network.roi_heads.box_head(
            network.roi_heads.box_roi_pool(levels, boxes, batch.image_sizes)
        )
        logits, _ = network.roi_heads.box_predictor(pooled)
    image_boxes = []
    for resized_boxes, size, image in zip(boxes, batch.image_sizes, PICTURES, strict=True):
        image_boxes.append(resize_boxes(resized_boxes, size, image.shape[:2]))
    assert len(found) == sum(map(len, boxes)) > 20
    np.testing.assert_allclose(found.box, torch.cat(image_boxes), atol=1e-3)
    np.testing.assert_allclose(found.logits, logits, atol=1e-3)
    np.testing.assert_allclose(found.features, pooled, atol=1e-3)
    for image in IDS[:2]:
        assert (np.diff(found.score[found.image_id == image]) <= 0).all()


def test_proposals_of_a_transformer_are_its_queries():
    detector = create("detr")
    found = proposed(detector, PICTURES[:1], **EVERY, objectness="class_score")
    pixels = detector.processor(images=[PICTURES[0]], return_tensors="pt")["pixel_values"]
    with torch.inference_mode():
        answer = detector.network(pixel_values=pixels)
    scores = answer.logits[0].sigmoid().amax(dim=1).sort(descending=True)
    x, y, w, h = answer.pred_boxes[0][scores.indices].unbind(dim=1)
    corners = torch.stack(
        [(x - w / 2) * 160, (y - h / 2) * 120, (x + w / 2) * 160, (y + h / 2) * 120], dim=1
    )
    np.testing.assert_allclose(found.score, scores.values, atol=1e-4)
    np.testing.assert_allclose(found.box, corners, atol=0.05)


@pytest.mark.parametrize("adapter", OWN)
def test_proposals_depend_neither_on_the_batch_nor_change_a_detection(adapter):
    detector = create(adapter)
    together = proposed(detector, PICTURES)
    assert len(together)
    assert (together.score <= 1).all()
    alone = [proposed(detector, [image]) for image in PICTURES]
    for name, one in zip(IDS, alone, strict=True):
        own = together[together.image_id == name]
        np.testing.assert_allclose(own.box, one.box, atol=1e-2)
        np.testing.assert_allclose(own.score, one.score, atol=1e-4)
    prepared = [detector.prepare(image) for image in PICTURES]
    beside = detector.forward_proposals(prepared, IDS, {"all": ProposalSelection()})[0]
    assert beside.frame.equals(detected(detector, PICTURES).frame)


def test_a_network_gives_its_own_kind_of_proposals_only():
    sources = read_sources("run", {"boxes": {"kind": "rpn"}})
    assert list(selections("run", sources, create("faster_rcnn"))) == ["boxes"]
    with pytest.raises(
        ParameterError, match=r"run\.proposals\.boxes: .*'yolo' has proposals of kind 'anchors'"
    ):
        selections("run", sources, create("yolo"))
    with pytest.raises(
        ParameterError, match=r"run\.proposals\.rpm: unknown source of proposals 'rpm'.*rpn"
    ):
        read_sources("run", {"rpm": {}})
    with pytest.raises(ParameterError, match="most"):
        read_sources("run", {"rpn": {"most": 0}})
    assert {"rpn", "anchors", "queries", "second_detector"} <= set(SOURCES.names())


@pytest.fixture
def project(tmp_path):
    """Splits of which two have the same image, and a function that runs inference over them."""
    for number, pixels in enumerate(PICTURES):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    for split, numbers in {"train": [2], "val": [0], "test": [1], "again": [0]}.items():
        sizes = [PICTURES[n].shape for n in numbers]
        table = Images(
            image_id=[str(n) for n in numbers],
            dataset=["d"] * len(numbers),
            file=[f"{n}.png" for n in numbers],
            digest=[f"{n:032}" for n in numbers],
            width=[size[1] for size in sizes],
            height=[size[0] for size in sizes],
        )
        table.write(tmp_path / "splits" / split / "images.parquet")
    detector = create("yolo", score_threshold=LOW["yolo"])

    def run(**selection):
        said = []
        proposals = tmp_path / "proposals", {"anchors": ProposalSelection(**selection)}
        places = tmp_path / "splits", {"d": tmp_path}, tmp_path / "regions", tmp_path / "work"
        infer_splits(detector, *places, proposals=proposals, progress=False, log=said.append)
        return said

    return tmp_path, run


def test_proposals_are_made_with_the_detections_and_again_where_their_selection_changed(project):
    folder, run = project
    assert not any("unchanged" in line for line in run())
    names = sorted(path.name for path in (folder / "proposals/anchors").iterdir())
    assert names == ["again", "test", "val"]
    first, second = (
        RegionsFolder(folder / "proposals/anchors" / split) for split in ("val", "again")
    )
    assert len(first) == len(second) > 0
    regions = {
        file: file.read_bytes() for file in (folder / "regions").rglob("*") if file.is_file()
    }
    assert all("unchanged" in line for line in run())
    assert (
        sum("unchanged" in line for line in run(most=3)) == 1
    )  # of the training images, which have none
    assert len(RegionsFolder(folder / "proposals/anchors/val")) == 3
    assert {file: file.read_bytes() for file in regions} == regions


def test_boxes_of_another_program_are_imported_for_all_splits_but_the_training_s(project):
    folder, run = project
    run()
    rows = [
        {"image_id": str(n), "category_id": "thing", "bbox": [4, 5, 20, 30], "score": 0.5}
        for n in (0, 1)
    ]
    (folder / "boxes.json").write_text(json.dumps(rows))
    entry = {"kind": "imported", "file": folder / "boxes.json", "adapter": "coco_results"}
    sources = read_sources("run", {"sam": {**entry, "params": {"classes": ["thing"]}}})
    detector = create("yolo")
    assert selections("run", sources, detector) == {"sam": None}
    place = folder / "proposals/sam"
    import_splits(
        sources["sam"].reader,
        folder / "splits",
        place,
        folder / "work/sam",
        without=["train"],
        log=str,
    )
    assert sorted(path.name for path in place.iterdir() if path.is_dir()) == [
        "again",
        "test",
        "val",
    ]
    np.testing.assert_array_equal(Regions.read(place / "val").box, [[4, 5, 24, 35]])
    # Kinds that are no longer selected are deleted, imported ones are not.
    ProposalFolders(folder / "proposals", {"sam": None}, {}).delete_removed()
    assert [path.name for path in (folder / "proposals").iterdir() if path.is_dir()] == ["sam"]
    with pytest.raises(ParameterError, match="'yolo' runs a network"):
        read_sources("run", {"sam": {**entry, "adapter": "yolo"}})["sam"].check(detector)
