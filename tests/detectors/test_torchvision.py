"""RetinaNet, FCOS and Mask R-CNN, beside torchvision's own models."""

import copy
import json
import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from safetensors.torch import save_file
from tests.detectors.test_faster_rcnn import blotches
from tests.support.cases import slow_but
from tests.support.messages import ABSENT
from torchvision.models import detection
from torchvision.ops import FrozenBatchNorm2d, MultiScaleRoIAlign, nms, roi_align

from farther import detectors
from farther.detectors.networks.architectures import FasterRCNNBlueprint, build_network
from farther.detectors.networks.feature_maps import salient_boxes
from farther.detectors.settings import MapSelection, ProposalSelection
from farther.errors import DataError, ParameterError

CLASSES = ("cat", "dog", "fox")
SIZES = {"min_size": 64, "max_size": 96}
DENSE = {"fcos": "fcos_resnet50_fpn"} | {
    f"retinanet {kind}": f"retinanet_{kind}" for kind in ("resnet50_fpn", "resnet50_fpn_v2")
}
# The second version of RetinaNet has another pyramid and is otherwise the first one.
DENSE_CASES = slow_but(("fcos", "retinanet resnet50_fpn"), DENSE)


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(3)
    return [blotches(rng, 90, 120), blotches(rng, 130, 100)]


def dense(name, columns):
    """A network whose random scores differ enough to be ranked, as if it had learned something."""
    torch.manual_seed(5)
    build = getattr(detection, DENSE[name])
    model = build(
        weights=None, weights_backbone=None, num_classes=columns, score_thresh=0.3, **SIZES
    ).eval()
    classes, boxes = model.head.classification_head, model.head.regression_head
    with torch.no_grad():
        classes.cls_logits.weight.mul_(40)
        classes.cls_logits.bias.fill_(-2)
        boxes.bbox_reg.weight.mul_(5)
        if name == "fcos":
            classes.cls_logits.bias.fill_(-1)
            boxes.bbox_ctrness.weight.mul_(30)
            boxes.bbox_reg.bias.fill_(2)
    model.detections_per_img = 40
    return model


def mask_rcnn():
    """torchvision's Mask R-CNN with the box branch of farther's small network; random weights."""
    torch.manual_seed(3)
    small = build_network(FasterRCNNBlueprint("small", CLASSES, *SIZES.values()))
    heads = small.roi_heads
    network = detection.MaskRCNN(
        small.backbone,
        **SIZES,
        rpn_anchor_generator=small.rpn.anchor_generator,
        rpn_head=small.rpn.head,
        rpn_pre_nms_top_n_test=200,
        rpn_post_nms_top_n_test=100,
        box_roi_pool=heads.box_roi_pool,
        box_head=heads.box_head,
        box_predictor=heads.box_predictor,
        box_score_thresh=0.3,
        box_detections_per_img=40,
        mask_roi_pool=MultiScaleRoIAlign(["0", "1", "2"], output_size=14, sampling_ratio=2),
        mask_predictor=torch.nn.Conv2d(256, len(CLASSES) + 1, 1),
    )
    with torch.no_grad():
        network.roi_heads.box_predictor.cls_score.weight.mul_(150)
        network.roi_heads.box_predictor.bbox_pred.weight.mul_(20)
    return network.eval()


def create(weights, name="retinanet", **params):
    adapter, _, architecture = name.partition(" ")
    usual = {
        "classes": CLASSES,
        "score_threshold": 0.3,
        "max_detections": 40,
        "device": "cpu",
        **SIZES,
    }
    usual |= (
        {"architecture": "small"}
        if "mask" in name
        else {"architecture": architecture}
        if architecture
        else {}
    )
    return detectors.create(adapter, weights=weights, **{**usual, **params})


@pytest.fixture(scope="module")
def models():
    """Networks of torchvision by name, each made once; a test gets a copy that it may change."""
    made = {}

    def network(name):
        if name not in made:
            made[name] = dense(name, 3 if name == "fcos" else 4)
        return copy.deepcopy(made[name])

    return network


@pytest.fixture(scope="module")
def cases(models, images, tmp_path_factory):
    """By name: an adapter on a file, its regions of the images, and torchvision's detections."""
    cases = {}

    def case(name):
        if name not in cases:
            model = mask_rcnn() if name == "mask_rcnn" else models(name)
            path = tmp_path_factory.mktemp("weights") / "model.pth"
            torch.save(
                {"model": model.state_dict(), "epoch": 3} if name == "fcos" else model.state_dict(),
                path,
            )
            detector = create(path, name)
            model.to(memory_format=torch.channels_last)
            with torch.inference_mode():
                if (
                    "retinanet" in name
                ):  # the column of the background, which the network was not taught to avoid
                    model.head.classification_head.cls_logits.bias.view(-1, 4)[:, 0] = -1e4
                answers = model(
                    [torch.from_numpy(image).permute(2, 0, 1) / 255 for image in images]
                )
            cases[name] = detector, detector.detect(images, ["a", "b"]), answers
        return cases[name]

    return case


@pytest.mark.parametrize("name", [*DENSE_CASES, "mask_rcnn"])
def test_boxes_scores_and_labels_are_torchvisions(name, cases):
    _, regions, answers = cases(name)
    assert len(regions) > 20 and len(set(regions.label)) > 1
    for image_id, answer in zip("ab", answers, strict=True):
        mine = regions[regions.image_id == image_id]
        assert ("masks" in answer) == (name == "mask_rcnn")
        assert_array_equal(mine.label, answer["labels"])
        assert_allclose(mine.score, answer["scores"], rtol=1e-4)
        assert_allclose(mine.box, answer["boxes"], rtol=1e-4, atol=1e-3)


# ------------------------------------------------------------------------------------- RetinaNet
# and FCOS


@pytest.mark.parametrize("name", slow_but(("fcos",), DENSE))
def test_proposals_are_torchvisions_boxes_of_all_scores_suppressed_without_classes(
    name, models, images, tmp_path
):
    model = models(name)
    with torch.no_grad():  # else many scores are 1, and their order is open
        model.head.classification_head.cls_logits.weight.mul_(0.02)
    torch.save(model.state_dict(), tmp_path / "model.pth")
    detector = create(tmp_path / "model.pth", name)
    selection = ProposalSelection(
        most=50, smallest=2, objectness="class_score", size=0, candidates=10**6
    )
    prepared = [detector.prepare(image) for image in images]
    proposals = detector.forward_proposals(prepared, ["a", "b"], {"every": selection})[1]
    model.score_thresh, model.nms_thresh, model.detections_per_img, model.topk_candidates = (
        0,
        1.0,
        10**6,
        10**6,
    )
    with torch.inference_mode():
        if "retinanet" in name:
            model.head.classification_head.cls_logits.bias.view(-1, 4)[:, 0] = -1e4
        answers = model([torch.from_numpy(image).permute(2, 0, 1) / 255 for image in images])
    for image_id, answer in zip("ab", answers, strict=True):
        image_proposals = proposals[proposals.image_id == image_id]
        large = (answer["boxes"][:, 2:] - answer["boxes"][:, :2]).amin(dim=1) >= 2
        boxes, scores = answer["boxes"][large], answer["scores"][large]
        order = nms(boxes, scores, 0.5)[:50]
        assert len(image_proposals) == len(order) > 5
        assert_allclose(image_proposals.score, scores[order], rtol=1e-3)
        assert_allclose(image_proposals.box, boxes[order], rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("name", DENSE_CASES)
def test_boxes_of_the_feature_map_are_cells_of_the_finest_level(name, cases):
    detector, *_ = cases(name)
    image = blotches(
        np.random.default_rng(1), 64, 64
    )  # of the network's own size: the boxes need no scaling
    selection = MapSelection(most=1000, iou=1.0, smallest=0.0, objectness="network", size=0.0)
    proposals = detector.forward_proposals([image], ["a"], {"map": selection})[1]
    with torch.inference_mode():
        batch, _ = detector.network.transform([torch.from_numpy(image).permute(2, 0, 1) / 255])
        finest = next(iter(detector.network.backbone(batch.tensors).values()))[0]
    boxes, contrasts = salient_boxes(finest, 3)
    order = np.argsort(-contrasts.numpy(), kind="stable")
    assert_allclose(proposals.box, 8 * boxes[order], atol=1e-3)
    assert_allclose(proposals.score, contrasts[order], rtol=1e-4)


@pytest.mark.parametrize("name", DENSE_CASES)
def test_logits_are_those_of_the_anchor_that_gave_the_box_and_make_the_score(name, cases, images):
    detector, *_ = cases(name)
    network, regions = (
        detector.network,
        detector.detect(images[:1]),
    )  # alone, so that nothing is padded
    with torch.inference_mode():
        batch, _ = network.transform([torch.from_numpy(images[0]).permute(2, 0, 1) / 255])
        levels = list(network.backbone(batch.tensors).values())
        answer, anchors = network.head(levels), network.anchor_generator(batch, levels)[0]
        decode = network.box_coder.decode if name == "fcos" else network.box_coder.decode_single
        boxes = decode(answer["bbox_regression"][0], anchors)
    height, width = batch.image_sizes[0]
    boxes = boxes.clamp(min=0).minimum(torch.tensor([width, height, width, height]))
    boxes = (boxes * torch.tensor([120 / width, 90 / height] * 2)).numpy()
    logits = answer["cls_logits"][0].numpy()
    for box, row, label, score in zip(
        regions.box, regions.logits, regions.label, regions.score, strict=True
    ):
        apart = np.abs(boxes - box).max(1) + np.abs(logits - row).max(1)
        assert apart.min() < 1e-2
        own = 1 / (1 + np.exp(-row[label]))
        if name == "fcos":
            own = np.sqrt(own * answer["bbox_ctrness"][0, apart.argmin()].sigmoid().item())
        assert score == pytest.approx(own, rel=1e-3)


@pytest.mark.parametrize("name", DENSE_CASES)
def test_there_is_no_last_linear_layer_and_no_features(name, cases):
    detector, regions, _ = cases(name)
    assert (regions.features, regions.weight, regions.header.activation) == (None, None, "sigmoid")
    assert detector.identity["name"] == name.partition(" ")[0]
    json.dumps(regions.header.to_json())


@pytest.mark.parametrize("name", DENSE_CASES)
def test_latent_is_the_mean_of_the_pyramid_in_the_box(name, cases):
    detector, *_ = cases(name)
    image = blotches(
        np.random.default_rng(1), 64, 64
    )  # of the network's own size: the boxes need no scaling
    levels = []
    hook = detector.network.backbone.register_forward_hook(
        lambda module, args, out: levels.extend(out.values())
    )
    regions = detector.forward([image], ["a"])
    hook.remove()
    for row in range(0, len(regions), 7):
        box = regions.box[row]
        side = max(np.sqrt((box[2] - box[0]) * (box[3] - box[1])), 1e-3)
        level = int(np.clip(np.floor(4 + np.log2(side / 224) + 1e-6), 3, 7))
        pooled = roi_align(
            levels[level - 3], [torch.tensor(box[None])], 9, 1 / 2**level, 2, aligned=True
        )
        assert_allclose(regions.latent[row], pooled.mean((2, 3))[0], rtol=1e-3, atol=1e-5)


def test_a_column_more_than_classes_is_the_backgrounds_and_never_detected(cases):
    _, regions, _ = cases("retinanet resnet50_fpn")
    assert (regions.classes, regions.background_index) == (("background", *CLASSES), 0)
    assert regions.label.min() == 1
    # It scores above the threshold all the same.
    assert (1 / (1 + np.exp(-regions.logits[:, 0])) > 0.3).any()
    assert cases("fcos")[1].background_index is None


@pytest.fixture(scope="module")
def frozen(models, tmp_path_factory):
    """A safetensors file of three columns, of a network with frozen normalisations."""
    state = models("retinanet resnet50_fpn").state_dict()
    for part in ("weight", "bias"):  # of four columns per anchor, the last ones are left out
        name = f"head.classification_head.cls_logits.{part}"
        state[name] = state[name].unflatten(0, (-1, 4))[:, :3].flatten(0, 1)
    path = tmp_path_factory.mktemp("frozen") / "model.safetensors"
    save_file(
        {name: t.contiguous() for name, t in state.items() if "num_batches_tracked" not in name},
        path,
    )
    return path


def test_as_many_columns_as_classes_leave_no_background(frozen):
    detector = create(frozen, norm_epsilon=0.0)
    header = detector.header()
    assert (header.classes, header.background_index) == (CLASSES, None)
    norms = [m for m in detector.network.modules() if hasattr(m, "running_var")]
    assert (len(norms), {m.eps for m in norms}) == (53, {0.0})
    assert not any(isinstance(m, FrozenBatchNorm2d) for m in norms)
    with pytest.raises(DataError, match="5 classes are named, but the logits have 3 columns"):
        create(frozen, classes=tuple("abcde")).header()


def test_files_that_do_not_fit_are_refused(frozen, tmp_path):
    with pytest.raises(
        DataError, match=r"shape: .*p6\.weight \(256, 256, 3, 3\) instead of \(256, 2048, 3, 3\)"
    ):
        create(frozen, architecture="resnet50_fpn_v2").header()
    torch.save({"weight": torch.zeros(3)}, tmp_path / "other.pth")
    with pytest.raises(DataError, match=r"cls_logits\.weight': the weight is missing"):
        create(tmp_path / "other.pth").header()
    torch.save(
        {"head.classification_head.cls_logits.weight": torch.zeros(10, 256, 3, 3)},
        tmp_path / "other.pth",
    )
    with pytest.raises(
        DataError, match=r"cls_logits\.weight': expected 9 rows for each class.* found 10"
    ):
        create(tmp_path / "other.pth", architecture="resnet50_fpn").header()
    with pytest.raises(DataError, match=ABSENT):
        create(tmp_path / "absent.pth").header()
    with pytest.raises(ParameterError, match="classes"):
        detectors.create("retinanet", weights=tmp_path / "model.pth")


def test_a_pickled_detector_prepares_without_the_network(tmp_path, images):
    packed = pickle.dumps(create(tmp_path / "model.pth"))
    assert len(packed) < 2000
    assert_array_equal(pickle.loads(packed).prepare(images[0]), images[0])


def test_one_image_is_detected_as_one_of_many_whether_path_picture_or_array(
    cases, images, tmp_path
):
    detector, path = cases("fcos")[0], tmp_path / "a.png"
    Image.fromarray(images[0]).save(path)
    expected = detector.detect([images[0]])
    for image, name in (
        (images[0], "0"),
        (Image.fromarray(images[0]), "0"),
        (path, str(path)),
        (str(path), str(path)),
    ):
        regions = detector.detect(image)
        assert set(regions.image_id) == {name}
        assert_array_equal(regions.box, expected.box)
    assert set(detector.detect(images[0], "mine").image_id) == {"mine"}
    with pytest.raises(
        DataError, match=r"image '0': expected a path, a PIL image or an array .*, found int"
    ):
        detector.detect([7])


# --------------------------------------------------------------------------------------------- Mask
# R-CNN


def test_mask_rcnn_has_the_last_layer_and_latents_of_its_box_branch(cases):
    _, regions, _ = cases("mask_rcnn")
    assert_allclose(
        regions.features @ regions.weight.T + regions.bias, regions.logits, rtol=1e-4, atol=1e-4
    )
    assert regions.latent.shape == (len(regions), 64)
    assert (regions.classes, regions.header.detector["name"]) == (
        ("background", *CLASSES),
        "mask_rcnn",
    )


def test_only_this_adapter_leaves_the_mask_branch_out(cases):
    with pytest.raises(DataError, match=r"unexpected: roi_heads.mask_head"):
        create(cases("mask_rcnn")[0].weights, "faster_rcnn", architecture="small").header()


def test_all_other_weights_of_torchvisions_mask_rcnn_are_those_of_the_faster_rcnn():
    adapter = detectors.get("mask_rcnn")
    with torch.device("meta"):
        theirs = detection.maskrcnn_resnet50_fpn(
            weights=None, weights_backbone=None, num_classes=4
        ).state_dict()
    ours = build_network(FasterRCNNBlueprint("resnet50_fpn", CLASSES, 800, 1333)).state_dict()
    used = {
        name: t.shape for name, t in theirs.items() if not name.startswith(adapter.unused_weights)
    }
    # torchvision counts batches in normalisations that it freezes only with pretrained weights.
    used = {name: shape for name, shape in used.items() if not name.endswith("num_batches_tracked")}
    assert used == {name: t.shape for name, t in ours.items()}
