"""The RetinaNet adapter, beside torchvision's own model."""

import json
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torchvision.models.detection import retinanet_resnet50_fpn, retinanet_resnet50_fpn_v2
from torchvision.ops import FrozenBatchNorm2d, roi_align

from farther import detectors
from farther.errors import DataError, ParameterError

CLASSES = ("cat", "dog", "fox")
BUILDERS = {"resnet50_fpn": retinanet_resnet50_fpn, "resnet50_fpn_v2": retinanet_resnet50_fpn_v2}
SIZES = {"min_size": 64, "max_size": 96}


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(3)
    return [blotches(rng, 90, 120), blotches(rng, 130, 100)]


def blotches(rng, height, width):
    """An image with some structure: a few filled rectangles on noise."""
    pixels = rng.integers(0, 60, (height, width, 3), np.uint8)
    for _ in range(6):
        y, x = rng.integers(0, height - 20), rng.integers(0, width - 20)
        pixels[y : y + rng.integers(15, 60), x : x + rng.integers(15, 60)] = rng.integers(60, 255, 3)
    return pixels


def untrained(architecture, columns):
    """A network whose random scores differ enough to be ranked, as if it had learned something."""
    torch.manual_seed(5)
    model = BUILDERS[architecture](weights=None, weights_backbone=None, num_classes=columns, **SIZES).eval()
    with torch.no_grad():
        model.head.classification_head.cls_logits.weight.mul_(40)
        model.head.classification_head.cls_logits.bias.fill_(-2)
        model.head.regression_head.bbox_reg.weight.mul_(5)
    return model


@pytest.fixture(scope="module", params=sorted(BUILDERS))
def case(request, images, tmp_path_factory):
    """An adapter on a file, what it says about the images, and what torchvision's model says."""
    model = untrained(request.param, 4)
    path = tmp_path_factory.mktemp("weights") / "model.pth"
    torch.save(model.state_dict(), path)
    detector = create(path, architecture=request.param)
    regions = detector.forward(images, ["a", "b"])
    model.to(memory_format=torch.channels_last)
    model.score_thresh, model.detections_per_img = 0.3, 40
    with torch.inference_mode():
        # The column of the background, which this network was not taught to avoid.
        model.head.classification_head.cls_logits.bias.view(-1, 4)[:, 0] = -1e4
        answers = model([torch.from_numpy(image).permute(2, 0, 1) / 255 for image in images])
    return detector, regions, answers


def create(weights, **params):
    usual = {"classes": CLASSES, "score_threshold": 0.3, "max_detections": 40, "device": "cpu", **SIZES}
    return detectors.create("retinanet", weights=weights, **{**usual, **params})


def test_boxes_scores_and_labels_are_torchvisions(case):
    _, regions, answers = case
    assert len(regions) > 20
    for name, answer in zip("ab", answers, strict=True):
        mine = regions[regions.image_id == name]
        np.testing.assert_array_equal(mine.label, answer["labels"])
        np.testing.assert_allclose(mine.score, answer["scores"], rtol=1e-4)
        np.testing.assert_allclose(mine.box, answer["boxes"], rtol=1e-4, atol=1e-3)
    assert len(set(regions.label)) > 1


def test_score_is_the_sigmoid_of_the_row_at_its_label(case):
    _, regions, _ = case
    own = regions.logits[np.arange(len(regions)), regions.label]
    np.testing.assert_allclose(1 / (1 + np.exp(-own)), regions.score, rtol=1e-5)


def test_logits_are_those_of_the_anchor_that_gave_the_box(case, images):
    detector, *_ = case
    regions, network = detector.forward(images[:1], ["a"]), detector.network
    with torch.inference_mode():
        batch, _ = network.transform([torch.from_numpy(images[0]).permute(2, 0, 1) / 255])
        levels = list(network.backbone(batch.tensors).values())
        answer, anchors = network.head(levels), network.anchor_generator(batch, levels)[0]
        boxes = network.box_coder.decode_single(answer["bbox_regression"][0], anchors)
    height, width = batch.image_sizes[0]
    boxes = boxes.clamp(min=0).minimum(torch.tensor([width, height, width, height]))
    boxes = boxes * torch.tensor([120 / width, 90 / height] * 2)
    for row in range(len(regions)):
        same = np.abs(boxes - regions.box[row]).max(1).values < 1e-2
        rows = answer["cls_logits"][0][same].numpy()
        assert np.abs(rows - regions.logits[row]).max(1).min() < 1e-3


def test_there_is_no_last_linear_layer_and_no_features(case):
    _, regions, _ = case
    assert (regions.features, regions.weight) == (None, None)
    assert regions.header.activation == "sigmoid"
    json.dumps(regions.header.to_json())


def test_latent_is_the_mean_of_the_pyramid_in_the_box(case):
    detector, regions, _ = case
    rng = np.random.default_rng(1)
    image = blotches(rng, 64, 64)  # of the network's own size: the boxes need no scaling
    levels = []
    hook = detector.network.backbone.register_forward_hook(lambda module, given, out: levels.extend(out.values()))
    regions = detector.forward([image], ["a"])
    hook.remove()
    for row in range(0, len(regions), 7):
        box = regions.box[row]
        side = max(np.sqrt((box[2] - box[0]) * (box[3] - box[1])), 1e-3)
        level = int(np.clip(np.floor(4 + np.log2(side / 224) + 1e-6), 3, 7))
        pooled = roi_align(levels[level - 3], [torch.tensor(box[None])], 9, 1 / 2**level, 2, aligned=True)
        np.testing.assert_allclose(regions.latent[row], pooled.mean((2, 3))[0], rtol=1e-3, atol=1e-5)


# -------------------------------------------------------------------------------------------------- the file


def test_a_column_more_than_classes_is_the_backgrounds_and_never_detected(case):
    _, regions, _ = case
    assert regions.classes == ("background", *CLASSES)
    assert regions.background_index == 0
    assert regions.label.min() == 1
    # It scores above the threshold all the same.
    assert (1 / (1 + np.exp(-regions.logits[:, 0])) > 0.3).any()


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    """A safetensors file of three columns, from a network whose normalisations are frozen, as torchvision's files."""
    state = untrained("resnet50_fpn", 3).state_dict()
    path = tmp_path_factory.mktemp("frozen") / "model.safetensors"
    save_file({name: t.contiguous() for name, t in state.items() if "num_batches_tracked" not in name}, path)
    return path


def test_as_many_columns_as_classes_leave_no_background(frozen):
    detector = create(frozen, norm_epsilon=0.0)
    header = detector.header()
    assert (header.classes, header.background_index) == (CLASSES, None)
    norms = [m for m in detector.network.modules() if hasattr(m, "running_var")]
    assert len(norms) == 53
    assert {m.eps for m in norms} == {0.0}
    assert not any(isinstance(m, FrozenBatchNorm2d) for m in norms)
    with pytest.raises(DataError, match="5 classes are named, but the logits have 3 columns"):
        create(frozen, classes=tuple("abcde")).header()


def test_weights_that_do_not_fit_are_listed(frozen):
    with pytest.raises(DataError, match=r"shape: .*p6\.weight \(256, 256, 3, 3\) instead of \(256, 2048, 3, 3\)"):
        create(frozen, architecture="resnet50_fpn_v2").header()


def test_a_file_of_something_else_is_refused(tmp_path):
    torch.save({"weight": torch.zeros(3)}, tmp_path / "other.pth")
    with pytest.raises(DataError, match=r"cls_logits\.weight': expected 9 rows for each class.* found 0"):
        create(tmp_path / "other.pth").header()
    with pytest.raises(DataError, match="does not exist"):
        create(tmp_path / "absent.pth").header()


def test_classes_must_be_named(tmp_path):
    with pytest.raises(ParameterError, match="classes"):
        detectors.create("retinanet", weights=tmp_path / "model.pth")


def test_a_pickled_detector_prepares_without_the_network(tmp_path, images):
    packed = pickle.dumps(create(tmp_path / "model.pth"))
    assert len(packed) < 2000
    np.testing.assert_array_equal(pickle.loads(packed).prepare(images[0]), images[0])
