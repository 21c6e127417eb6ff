"""The FCOS adapter, beside torchvision's own model."""

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.models.detection import fcos_resnet50_fpn

from farther import detectors
from farther.errors import DataError

CLASSES = ("cat", "dog", "fox")
SIZES = {"min_size": 64, "max_size": 96}


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(6)
    made = [rng.integers(0, 255, (h, w, 3), np.uint8) for h, w in ((90, 120), (130, 100))]
    for pixels in made:
        pixels[20:70, 30:90] = (250, 40, 40)
    return made


@pytest.fixture(scope="module")
def case(images, tmp_path_factory):
    """An adapter on a file, what it says about the images, and what torchvision's model says."""
    torch.manual_seed(5)
    model = fcos_resnet50_fpn(weights=None, weights_backbone=None, num_classes=3, score_thresh=0.3, **SIZES).eval()
    with torch.no_grad():
        model.head.classification_head.cls_logits.weight.mul_(30)
        model.head.classification_head.cls_logits.bias.fill_(-1)
        model.head.regression_head.bbox_ctrness.weight.mul_(30)
        model.head.regression_head.bbox_reg.weight.mul_(20)
        model.head.regression_head.bbox_reg.bias.fill_(2)
    path = tmp_path_factory.mktemp("weights") / "model.pth"
    torch.save({"model": model.state_dict(), "epoch": 3}, path)
    detector = detectors.create("fcos", weights=path, classes=CLASSES, score_threshold=0.3, device="cpu", **SIZES)
    regions = detector.forward(images, ["a", "b"])
    model.to(memory_format=torch.channels_last)
    with torch.inference_mode():
        answers = model([torch.from_numpy(image).permute(2, 0, 1) / 255 for image in images])
    return detector, regions, answers


def test_boxes_scores_and_labels_are_torchvisions(case):
    _, regions, answers = case
    assert len(regions) > 20
    for name, answer in zip("ab", answers, strict=True):
        mine = regions[regions.image_id == name]
        np.testing.assert_array_equal(mine.label, answer["labels"])
        np.testing.assert_allclose(mine.score, answer["scores"], rtol=1e-4)
        np.testing.assert_allclose(mine.box, answer["boxes"], rtol=1e-4, atol=1e-3)
    assert set(regions.label) == {0, 1, 2}


def test_score_is_below_the_root_of_the_logits_sigmoid_by_the_centerness(case, images):
    detector, *_ = case
    mine, network = detector.forward(images[:1], ["a"]), detector.network
    with torch.inference_mode():
        batch, _ = network.transform([torch.from_numpy(images[0]).permute(2, 0, 1) / 255])
        answer = network.head(list(network.backbone(batch.tensors).values()))
    centerness = answer["bbox_ctrness"][0].sigmoid()
    logits = answer["cls_logits"][0].numpy()
    assert len(mine) > 10
    for row in range(len(mine)):
        # The anchor is found by its whole row of logits, which no other has.
        anchor = np.abs(logits - mine.logits[row]).max(1).argmin()
        np.testing.assert_allclose(logits[anchor], mine.logits[row], atol=1e-3)
        own = 1 / (1 + np.exp(-mine.logits[row, mine.label[row]]))
        assert mine.score[row] == pytest.approx(np.sqrt(own * centerness[anchor].item()), rel=1e-3)


def test_what_is_stored_is_said(case):
    detector, regions, _ = case
    assert (regions.features, regions.weight, regions.background_index) == (None, None, None)
    assert regions.header.activation == "sigmoid"
    assert regions.latent.shape == (len(regions), 256)
    assert (detector.identity["name"], detector.nms_iou) == ("fcos", 0.6)


def test_one_image_is_detected_as_one_of_many_whether_path_picture_or_array(case, images, tmp_path):
    detector = case[0]
    Image.fromarray(images[0]).save(tmp_path / "a.png")
    expected = detector.detect([images[0]])
    path = tmp_path / "a.png"
    for given, name in ((images[0], "0"), (Image.fromarray(images[0]), "0"), (path, str(path)), (str(path), str(path))):
        found = detector.detect(given)
        assert set(found.image_id) == {name}
        np.testing.assert_array_equal(found.box, expected.box)
    assert set(detector.detect(images[0], "mine").image_id) == {"mine"}
    with pytest.raises(DataError, match=r"image '0': expected a path, a PIL image or an array, found int"):
        detector.detect([7])
