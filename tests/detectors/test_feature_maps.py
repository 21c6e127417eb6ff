"""Boxes of parts of a feature map, compared with OpenCV's Otsu and connected components."""

import cv2
import numpy as np
import pytest
import torch
from tests.detectors.demo import IDS, create, scene

from farther.detectors.networks.feature_maps import otsu, salient_boxes
from farther.detectors.proposal_sources import read_sources, selections
from farther.errors import ParameterError
from farther.tables import Regions


@pytest.fixture
def level():
    """A map of noise with a rectangle raised by 3, and a smaller one at its corner raised by 8."""
    random = np.random.default_rng(3)
    values = random.normal(0, 0.1, (16, 20, 30))
    values[:, 4:9, 5:12] += 3 * np.sign(random.normal(size=(16, 1, 1)))
    values[:, 9:12, 12:15] += 8 * np.sign(random.normal(size=(16, 1, 1)))
    return torch.tensor(values).float()


def test_parts_of_a_map_are_found_at_every_threshold(level):
    boxes, contrasts = salient_boxes(level, 2)
    contrast_by_box = {
        tuple(box): contrast
        for box, contrast in zip(boxes.int().tolist(), contrasts.tolist(), strict=True)
    }
    assert (12, 9, 15, 12) in contrast_by_box
    assert (5, 4, 15, 12) in contrast_by_box or (5, 4, 12, 9) in contrast_by_box
    assert max(contrast_by_box, key=contrast_by_box.get) == (12, 9, 15, 12)
    assert ((contrasts > 0) & (contrasts < 1)).all()
    assert len(salient_boxes(torch.ones(3, 4, 5), 3)[0]) == 0  # nothing stands out


def test_thresholds_and_parts_are_those_of_opencv(level):
    saliency = (level - level.mean(dim=(1, 2), keepdim=True)).abs().mean(dim=0).numpy()
    grey = np.round(255 * (saliency - saliency.min()) / np.ptp(saliency)).astype(np.uint8)
    chosen = (
        cv2.threshold(grey, 0, 255, cv2.THRESH_OTSU)[0] / 255 * np.ptp(saliency) + saliency.min()
    )
    mine = otsu(saliency.astype(float).ravel())
    assert abs(((saliency > mine) != (saliency > chosen)).sum()) <= 1
    _, _, parts, _ = cv2.connectedComponentsWithStats(
        (saliency > mine).astype(np.uint8), connectivity=8
    )
    expected = {(x, y, x + w, y + h) for x, y, w, h, _ in parts[1:]}
    assert set(map(tuple, salient_boxes(level, 1)[0].int().tolist())) == expected


@pytest.mark.parametrize("adapter", ["faster_rcnn", "yolo"])
def test_a_drawing_on_a_plain_background_is_found_and_detections_stay(adapter):
    detector = create(adapter)
    image = np.full((120, 160, 3), 128, np.uint8)
    image[20:90, 30:100] = scene(0)[20:90, 30:100]
    wanted = selections(
        "run", read_sources("run", {"feature_map": {"objectness": "network", "size": 0}}), detector
    )
    regions, proposals = detector.forward_proposals([detector.prepare(image)] * 2, IDS[:2], wanted)
    assert proposals.header.detector["proposals"]["thresholds"] == 3
    left, top, right, bottom = proposals.box.T
    assert (left >= 0).all()
    assert (right <= 160).all()
    assert (bottom <= 120).all()
    x, y = (left + right)[0] / 2, (top + bottom)[0] / 2  # of the one that stands out most
    assert 30 < x < 100
    assert 20 < y < 90
    first, second = (proposals[proposals.image_id == name] for name in IDS[:2])
    np.testing.assert_allclose(first.box, second.box, atol=1e-3)
    assert len(Regions.concatenate([regions])) == len(
        detector.forward([detector.prepare(image)] * 2, IDS[:2])
    )


def test_a_transformer_s_feature_map_is_refused():
    with pytest.raises(
        ParameterError, match=r"run\.proposals\.feature_map: .*'detr' gives no feature map"
    ):
        selections("run", read_sources("run", {"feature_map": {}}), create("detr"))
