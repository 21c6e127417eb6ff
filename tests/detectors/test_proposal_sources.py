"""Proposals of networks, compared with torchvision's RPN and the output of transformers."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from tests.detectors.demo import IDS, LOW, create, detected, scene
from torchvision.models.detection.transform import resize_boxes

from farther.detectors.imported import import_splits
from farther.detectors.proposal_sources import SOURCES, network_source, read_sources, selections
from farther.detectors.settings import ProposalSelection
from farther.detectors.split_inference import ProposalFolders, infer_splits
from farther.errors import ParameterError
from farther.tables import Images, Regions, RegionsFolder

OWN = {"faster_rcnn": "rpn", "yolo": "anchors", "detr": "queries"}
EVERY = {"most": 1000, "iou": 1.0, "smallest": 0.0, "size": 0.0}
PICTURES = [scene(0), scene(1)[:, 20:], scene(2)]


def proposed(detector, images, **selection):
    """The proposals of one batch of images, which have the first names of `IDS`."""
    prepared = [detector.prepare(image) for image in images]
    selections = {"all": ProposalSelection(**selection)}
    _, proposals = detector.forward_proposals(prepared, IDS[: len(images)], selections)
    return proposals


def test_proposals_of_a_faster_rcnn_are_those_of_torchvisions_rpn():
    detector = create("faster_rcnn")
    network = detector.network
    proposals = proposed(detector, PICTURES[:2], **EVERY, objectness="network")
    tensors = [torch.from_numpy(np.ascontiguousarray(picture)) for picture in PICTURES[:2]]
    pixels = [tensor.permute(2, 0, 1) / 255 for tensor in tensors]
    with torch.inference_mode():
        batch, _ = network.transform(pixels)
        levels = network.backbone(batch.tensors)
        boxes, _ = network.rpn(batch, levels)
        pooled = network.roi_heads.box_head(
            network.roi_heads.box_roi_pool(levels, boxes, batch.image_sizes)
        )
        logits, _ = network.roi_heads.box_predictor(pooled)
    image_boxes = []
    for resized_boxes, size, image in zip(boxes, batch.image_sizes, PICTURES[:2], strict=True):
        image_boxes.append(resize_boxes(resized_boxes, size, image.shape[:2]))
    assert len(proposals) == sum(map(len, boxes)) > 20
    np.testing.assert_allclose(proposals.box, torch.cat(image_boxes), atol=1e-3)
    np.testing.assert_allclose(proposals.logits, logits, atol=1e-3)
    np.testing.assert_allclose(proposals.features, pooled, atol=1e-3)
    for image in IDS[:2]:
        assert (np.diff(proposals.score[proposals.image_id == image]) <= 0).all()


def test_proposals_of_a_transformer_are_its_queries():
    detector = create("detr")
    proposals = proposed(detector, PICTURES[:1], **EVERY, objectness="class_score")
    pixels = detector.processor(images=[PICTURES[0]], return_tensors="pt")["pixel_values"]
    with torch.inference_mode():
        answer = detector.network(pixel_values=pixels)
    scores = answer.logits[0].sigmoid().amax(dim=1).sort(descending=True)
    x, y, w, h = answer.pred_boxes[0][scores.indices].unbind(dim=1)
    corners = torch.stack(
        [(x - w / 2) * 160, (y - h / 2) * 120, (x + w / 2) * 160, (y + h / 2) * 120], dim=1
    )
    np.testing.assert_allclose(proposals.score, scores.values, atol=1e-4)
    np.testing.assert_allclose(proposals.box, corners, atol=0.05)


@pytest.mark.parametrize("adapter", OWN)
def test_proposals_depend_neither_on_the_batch_nor_change_a_detection(adapter):
    detector = create(adapter)
    batch = proposed(detector, PICTURES)
    assert len(batch)
    assert (batch.score <= 1).all()
    for image_id, picture in zip(IDS, PICTURES, strict=True):
        in_batch = batch[batch.image_id == image_id]
        single = proposed(detector, [picture])
        np.testing.assert_allclose(in_batch.box, single.box, atol=1e-2)
        np.testing.assert_allclose(in_batch.score, single.score, atol=1e-4)
    prepared = [detector.prepare(image) for image in PICTURES]
    regions, _ = detector.forward_proposals(prepared, IDS, {"all": ProposalSelection()})
    assert regions.frame.equals(detected(detector, PICTURES).frame)


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


class Project:
    """Splits of which two have the same image."""

    def __init__(self, folder):
        self.folder = folder
        self.proposals = folder / "proposals"
        for number, pixels in enumerate(PICTURES):
            Image.fromarray(pixels).save(folder / f"{number}.png")
        for split, number in {"train": 2, "val": 0, "test": 1, "again": 0}.items():
            height, width, _ = PICTURES[number].shape
            table = Images(
                image_id=[str(number)],
                dataset=["d"],
                file=[f"{number}.png"],
                digest=[f"{number:032}"],
                width=[width],
                height=[height],
            )
            table.write(folder / "splits" / split / "images.parquet")
        self.detector = create("yolo", score_threshold=LOW["yolo"])

    def run(self, **selection):
        """Runs inference over the splits and returns the log."""
        lines = []
        infer_splits(
            self.detector,
            self.folder / "splits",
            {"d": self.folder},
            self.folder / "regions",
            self.folder / "work",
            proposals=(self.proposals, {"anchors": ProposalSelection(**selection)}),
            progress=False,
            log=lines.append,
        )
        return lines


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def folder_names(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


def test_proposals_are_made_with_the_detections_and_again_where_their_selection_changed(project):
    assert not any("unchanged" in line for line in project.run())
    anchors = project.proposals / "anchors"
    assert folder_names(anchors) == ["again", "test", "val"]
    assert len(RegionsFolder(anchors / "val")) == len(RegionsFolder(anchors / "again")) > 0

    files = [file for file in (project.folder / "regions").rglob("*") if file.is_file()]
    regions = {file: file.read_bytes() for file in files}
    assert all("unchanged" in line for line in project.run())
    unchanged = [line for line in project.run(most=3) if "unchanged" in line]
    assert len(unchanged) == 1  # the training images, which have no proposals
    assert len(RegionsFolder(anchors / "val")) == 3
    assert {file: file.read_bytes() for file in regions} == regions


def test_boxes_of_another_program_are_imported_for_all_splits_but_the_training_s(project):
    project.run()
    records = []
    for image_id in ("0", "1"):
        record = {"image_id": image_id, "category_id": "thing", "bbox": [4, 5, 20, 30]}
        records.append({**record, "score": 0.5})
    boxes = project.folder / "boxes.json"
    boxes.write_text(json.dumps(records))
    entry = {"kind": "imported", "file": boxes, "adapter": "coco_results"}
    sources = read_sources("run", {"sam": {**entry, "params": {"classes": ["thing"]}}})
    assert selections("run", sources, project.detector) == {"sam": None}
    import_splits(
        sources["sam"].reader,
        project.folder / "splits",
        project.proposals / "sam",
        project.folder / "work/sam",
        without=["train"],
        log=str,
    )
    assert folder_names(project.proposals / "sam") == ["again", "test", "val"]
    imported = Regions.read(project.proposals / "sam/val")
    np.testing.assert_array_equal(imported.box, [[4, 5, 24, 35]])
    # Kinds that are no longer selected are deleted, imported ones are not.
    ProposalFolders(project.proposals, {"sam": None}, {}).delete_removed()
    assert folder_names(project.proposals) == ["sam"]


def test_imported_proposals_need_a_reader_of_detections():
    entry = {"kind": "imported", "file": "boxes.json", "adapter": "yolo"}
    sources = read_sources("run", {"sam": entry})
    with pytest.raises(ParameterError, match="'yolo' runs a network"):
        sources["sam"].check(create("faster_rcnn"))


def test_the_first_source_of_the_network_shares_a_limit_and_others_are_refused():
    entries = {"rpn": {}, "anchors": {}, "a": {"kind": "second_detector", "run": "x"}}
    assert network_source("r", entries) == "anchors"
    assert network_source("r", entries, "rpn") == "rpn"
    assert network_source("r", {"a": entries["a"]}) is None
    assert network_source("r", None) is None
    with pytest.raises(ParameterError, match="'a' cannot be deployed: their kind is 'second_det"):
        network_source("r", entries, "a")
    with pytest.raises(ParameterError, match="unknown source of proposals 'boxes'"):
        network_source("r", entries, "boxes")
