"""Builders of `torchvision.models.detection`: recognised, and compared with torchvision."""

import copy
import dataclasses
import hashlib
from functools import lru_cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from tests.detectors.test_faster_rcnn import blotches
from tests.detectors.torchvision_models import (
    BUILT,
    CLASSES,
    MAX_DETECTIONS,
    SCORE_THRESHOLD,
    model,
    of_classifier,
    untrained,
)
from tests.support.cases import slow_but
from torchvision.models import detection
from torchvision.ops import nms, roi_align

from farther import detectors
from farther.detectors.networks import torchvision_builders
from farther.detectors.networks.torchvision_builders import (
    BUILDERS,
    closest_builders,
    epsilon_of,
    published_builder,
)
from farther.detectors.settings import ProposalSelection
from farther.errors import DataError, ParameterError

#: Most proposals of a region-based network: with all of them its heads take long.
PROPOSALS = {"training": 150, "testing": 150}
MOBILE = ("mobilenet_v3_large_fpn", "mobilenet_v3_large_320_fpn")


def by_size(cases, drawn=None):
    """Cases of a parameter; those of large networks and of large images are slow."""
    small = ("fasterrcnn_mobilenet_v3_large_320_fpn", "ssdlite320_mobilenet_v3_large")
    return slow_but(small, cases, drawn)


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(3)
    return [blotches(rng, 90, 120), blotches(rng, 130, 100)]


@pytest.fixture(scope="module")
def networks():
    """Networks of `model` by case, each made once; a test gets a copy that it may change."""
    made = {}

    def network(case):
        if case not in made:
            made[case] = model(case)
        return copy.deepcopy(made[case])

    return network


@pytest.fixture(scope="module")
def made(networks, tmp_path_factory):
    """Detectors of the weights of `networks` by case, each made once."""
    detector_by_case = {}

    def detector(case):
        if case not in detector_by_case:
            path = saved(networks(case).state_dict(), tmp_path_factory.mktemp("made"))
            detector_by_case[case] = create(case, path)
        return detector_by_case[case]

    return detector


def as_input(image):
    return torch.from_numpy(image).permute(2, 0, 1) / 255


def name_of(case):
    """torchvision's name of the builder of a case."""
    return "ssdlite320_mobilenet_v3_large" if case == "ssdlite320 of a classifier" else case


def create(case, path, **params):
    usual = {
        "classes": CLASSES,
        "device": "cpu",
        "score_threshold": SCORE_THRESHOLD,
        "max_detections": MAX_DETECTIONS,
        **BUILT.get(case, {}),
    }
    if "mobilenet" in case and "rcnn" in case:
        usual["architecture"] = case.removeprefix("fasterrcnn_")
    return detectors.create(BUILDERS[name_of(case)].adapter, weights=path, **{**usual, **params})


def saved(state, folder):
    path = folder / "model.pth"
    torch.save(state, path)
    return path


def hollow(network):
    """A state dict of zeros: shapes without memory."""
    state = {}
    for name, tensor in network.state_dict().items():
        state[name] = torch.zeros((), dtype=tensor.dtype, device="cpu").expand(tensor.shape)
    return state


def without_memory(case, columns=4):
    """Its own state dict for each caller, which may change it."""
    return dict(shapes_of(case, columns))


@lru_cache
def shapes_of(case, columns):
    with torch.device("meta"):
        return hollow(untrained(case, columns))


# -------------------------------------------------------------------------------------------
# numbers


@pytest.mark.parametrize("case", by_size(BUILT, drawn=4))
def test_detections_are_torchvisions_and_logits_are_of_the_row_that_gave_them(
    case, networks, made, images
):
    network = networks(case)
    detector = made(case)
    if "rcnn" in case:
        assert detector.network.rpn._post_nms_top_n == network.rpn._post_nms_top_n
        for each in (detector.network, network):
            each.rpn._post_nms_top_n = PROPOSALS
    regions = detector.detect(images, ["a", "b"])
    network.to(memory_format=torch.channels_last)
    if detector.name in (
        "retinanet",
        "fcos",
    ):  # the column of the background, which is never detected
        with torch.no_grad():
            network.head.classification_head.cls_logits.bias.view(-1, 4)[:, 0] = -1e4
    with torch.inference_mode():
        answers = network([as_input(image) for image in images])
    for image_id, answer in zip("ab", answers, strict=True):
        own = regions[regions.image_id == image_id]
        assert len(own) > 5
        assert_array_equal(own.label, answer["labels"])
        assert_allclose(own.box, answer["boxes"], atol=0.01)
        assert_allclose(own.score, answer["scores"], atol=1e-5)
    assert len(set(regions.label)) > 1
    assert regions.latent.shape == (len(regions), latent_width(case))
    assert np.isfinite(regions.latent).all()

    z = torch.from_numpy(regions.logits)
    rows, labels = np.arange(len(regions)), regions.label.astype(int)
    if detector.name == "fcos":
        return  # its scores have the centerness as a factor; see test_torchvision.py
    of_columns = z.sigmoid() if detector.name == "retinanet" else z.softmax(1)
    assert_allclose(of_columns[rows, labels], regions.score, atol=1e-5)
    assert regions.classes == ("background", *CLASSES)
    if "rcnn" in case:
        assert_allclose(
            regions.features @ regions.weight.T + regions.bias, regions.logits, atol=1e-4
        )


def latent_width(case):
    if "ssd" not in case:
        return 256
    return {"ssd300_vgg16": 1024, "ssdlite320_mobilenet_v3_large": 480}.get(case, 960)


SSD = [case for case in BUILT if "ssd" in case]


@pytest.mark.parametrize("case", by_size(SSD))
def test_proposals_of_an_ssd_are_its_anchors_suppressed_without_classes(
    case, networks, made, images
):
    network = networks(case)
    detector = made(case)
    selection = ProposalSelection(
        most=50, smallest=2, objectness="class_score", size=0, candidates=10**6
    )
    _, proposals = detector.forward_proposals([images[0]], ["a"], {"every": selection})
    network.to(memory_format=torch.channels_last)
    (
        network.score_thresh,
        network.nms_thresh,
        network.detections_per_img,
        network.topk_candidates,
    ) = 0, 1.0, 10**6, 10**6
    with torch.inference_mode():
        (answer,) = network([as_input(images[0])])
    large = (answer["boxes"][:, 2:] - answer["boxes"][:, :2]).amin(dim=1) >= 2
    boxes, scores = answer["boxes"][large], answer["scores"][large]
    order = nms(boxes, scores, 0.5)[:50]
    assert len(proposals) == len(order) > 5
    assert_allclose(proposals.score, scores[order], atol=1e-5)
    assert_allclose(proposals.box, boxes[order], atol=0.01)


@pytest.mark.parametrize("case", by_size(SSD))
def test_the_latent_of_an_ssd_is_the_mean_of_the_backbones_last_layer_in_the_box(
    case, made, images
):
    detector = made(case)
    side, stride = (300, 16) if "vgg" in case else (320, 32)
    image = np.resize(images[0], (side, side, 3))
    with torch.inference_mode():
        batch, _ = detector.network.transform([as_input(image)])
        level = detector.network.backbone(batch.tensors)["1"]
    regions = detector.detect(image)
    for row in range(0, len(regions), 7):
        box = torch.from_numpy(regions.box[row : row + 1])
        pooled = roi_align(level, [box], 9, 1 / stride, 2, aligned=True)
        assert_allclose(regions.latent[row], pooled.mean((2, 3))[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("case", "iou", "candidates"),
    [("ssd300_vgg16", 0.45, 400), ("ssdlite320_mobilenet_v3_large", 0.55, 300)],
)
def test_the_suppression_of_an_ssd_is_torchvisions_unless_another_is_asked_for(
    case, iou, candidates, tmp_path
):
    path = saved(without_memory(case), tmp_path)
    selection = create(case, path).selection()
    assert (selection.iou, selection.candidates) == (iou, candidates)
    with torch.device("meta"):
        own = getattr(detection, case)(weights=None, weights_backbone=None)
    assert (own.nms_thresh, own.topk_candidates) == (iou, candidates)
    assert create(case, path, nms_iou=0.3, candidates=7).selection().candidates == 7


def test_the_latent_of_a_mobilenet_is_of_the_levels_with_different_strides(
    networks, images, tmp_path
):
    case = "fasterrcnn_mobilenet_v3_large_320_fpn"
    detector = create(
        case, saved(networks(case).state_dict(), tmp_path), min_size=128, max_size=128
    )
    shared = []
    hook = detector.network.rpn.head.conv.register_forward_hook(
        lambda module, args, out: shared.append(out)
    )
    image = np.resize(images[1], (128, 128, 3))
    regions = detector.detect(image)
    hook.remove()
    assert [level.shape[-1] for level in shared] == [4, 4, 2]
    for row in range(0, len(regions), 5):
        box = torch.from_numpy(regions.box[row : row + 1])
        pooled = roi_align(shared[0], [box], 9, 1 / 32, 2, aligned=True)  # boxes below 224 pixels
        assert_allclose(regions.latent[row], pooled.mean((2, 3))[0], rtol=1e-3, atol=1e-5)


def test_architectures_have_the_sizes_of_their_builders(tmp_path):
    for architecture, sides in ((MOBILE[0], (800, 1333)), (MOBILE[1], (320, 640))):
        path = saved(without_memory(f"fasterrcnn_{architecture}"), tmp_path)
        detector = detectors.create(
            "faster_rcnn", weights=path, classes=CLASSES, architecture=architecture
        )
        with torch.device("meta"):
            build = getattr(detection, f"fasterrcnn_{architecture}")
            own = build(weights=None, weights_backbone=None)
        assert (detector.blueprint.min_size, detector.blueprint.max_size) == sides
        assert (own.transform.min_size, own.transform.max_size) == ((sides[0],), sides[1])
        rpn = detector.network.rpn
        for name in ("_pre_nms_top_n", "_post_nms_top_n", "score_thresh", "nms_thresh"):
            assert getattr(rpn, name) == getattr(own.rpn, name), name


# -------------------------------------------------------------------------------------------
# recognition


#: One builder of each kind that the next test has none of.
TYPICAL = ("fasterrcnn_mobilenet_v3_large_fpn", "fcos_resnet50_fpn", "ssd300_vgg16")


@pytest.mark.parametrize("case", slow_but(TYPICAL, BUILT))
def test_weights_are_told_apart_by_names_and_shapes(case):
    names = [fit.builder for fit in closest_builders(without_memory(case))]
    if "mobilenet" in case and "rcnn" in case:
        assert names == [f"fasterrcnn_{architecture}" for architecture in MOBILE]
    else:
        assert names == [
            "ssdlite320_mobilenet_v3_large, all channels" if "classifier" in case else case
        ]
    (fit, *_) = closest_builders(without_memory(case, columns=7))
    assert (fit.columns, fit.misfits) == (7, 0)


@pytest.mark.parametrize(
    "case", ["fasterrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn", "retinanet_resnet50_fpn", *SSD[2:]]
)
def test_weights_that_began_from_a_classifiers_are_told_apart_too(case):
    """Their normalisations are frozen: they count no batches."""
    with torch.device("meta"):
        state = hollow(of_classifier(name_of(case), 4))
    (fit,) = closest_builders(state)
    assert (fit.builder.partition(",")[0], fit.misfits) == (name_of(case), 0)


def old_names(state):
    """The names that torchvision gave layers before version 0.13."""
    renamed = {}
    for name, tensor in state.items():
        for level in range(4):
            for block in ("inner_blocks", "layer_blocks"):
                name = name.replace(f"fpn.{block}.{level}.0.", f"fpn.{block}.{level}.")
            name = name.replace(f"_head.conv.{level}.0.", f"_head.conv.{2 * level}.")
        renamed[name.replace("rpn.head.conv.0.0.", "rpn.head.conv.")] = tensor
    return renamed


@pytest.mark.parametrize(
    "case", ["fasterrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn", "retinanet_resnet50_fpn"]
)
def test_names_of_older_checkpoints_are_known(case):
    state = without_memory(case)
    older = old_names(state)
    assert set(older) != set(state)
    (fit,) = closest_builders(older)
    assert (fit.builder, fit.misfits) == (case, 0)


@pytest.mark.parametrize(
    "case",
    by_size(["fasterrcnn_resnet50_fpn", "retinanet_resnet50_fpn", "ssdlite320_mobilenet_v3_large"]),
)
def test_weights_that_a_file_replaces_are_not_drawn_first(case, networks, tmp_path):
    path = saved(networks(case).state_dict(), tmp_path)
    state = torch.get_rng_state()
    network = create(case, path).network
    assert torch.equal(torch.get_rng_state(), state)
    assert next(network.parameters()).any()


def test_weights_that_fit_none_are_refused_with_those_that_do_not_fit_the_closest(tmp_path):
    state = without_memory("fasterrcnn_resnet50_fpn_v2")
    del state["roi_heads.box_head.0.0.weight"]
    state["backbone.extra"] = torch.zeros(1)
    state["rpn.head.bbox_pred.bias"] = torch.zeros(16)
    with pytest.raises(DataError) as refused:
        create("fasterrcnn_resnet50_fpn_v2", saved(state, tmp_path)).header()
    message = str(refused.value)
    assert (
        "do not fit any of torchvision's detectors. "
        "The closest is fasterrcnn_resnet50_fpn_v2 with 4 outputs" in message
    )
    assert (
        "missing: roi_heads.box_head.0.0.weight; unexpected: backbone.extra; of another shape: rpn"
        in message
    )
    with pytest.raises(DataError, match=r"cls_logits\.weight': the weight is missing"):
        create("fcos_resnet50_fpn", saved({"weight": torch.zeros(3)}, tmp_path)).header()
    with pytest.raises(
        DataError, match=r"these are weights of ssd300_vgg16: take the adapter 'ssd'"
    ):
        create("fcos_resnet50_fpn", saved(without_memory("ssd300_vgg16"), tmp_path)).header()
    with pytest.raises(DataError, match=r"weights of fcos_resnet50_fpn: take the adapter 'fcos'"):
        create(
            "fasterrcnn_resnet50_fpn", saved(without_memory("fcos_resnet50_fpn"), tmp_path)
        ).header()
    with pytest.raises(
        DataError, match=r"weights of maskrcnn_resnet50_fpn: take the adapter 'mask_rcnn'"
    ):
        create(
            "fasterrcnn_resnet50_fpn", saved(without_memory("maskrcnn_resnet50_fpn"), tmp_path)
        ).header()
    with pytest.raises(
        DataError, match=r"cls_score\.weight': the weight is missing: .*not .* Faster R-CNN"
    ):
        create("fasterrcnn_resnet50_fpn", saved({"weight": torch.zeros(3)}, tmp_path)).header()


def test_two_architectures_of_one_shape_are_asked_for(tmp_path):
    path = saved(without_memory("fasterrcnn_mobilenet_v3_large_fpn"), tmp_path)
    detector = detectors.create("faster_rcnn", weights=path, classes=CLASSES)
    message = (
        r"'architecture': the weights fit 'mobilenet_v3_large_fpn' "
        r"and 'mobilenet_v3_large_320_fpn' alike"
    )
    with pytest.raises(ParameterError, match=message):
        _ = detector.blueprint


@pytest.mark.parametrize("case", ["fasterrcnn_resnet50_fpn", "ssd300_vgg16", "fcos_resnet50_fpn"])
def test_classes_that_are_not_as_many_as_the_outputs_are_refused_with_both_numbers(case, tmp_path):
    path = saved(without_memory(case), tmp_path)
    message = (
        "5 classes are named, but the logits have 4 columns: "
        "3 classes after the background, which is not named"
    )
    if case.startswith("fcos"):
        message += ", or 4 classes without one"
    with pytest.raises(DataError, match=message):
        create(case, path, classes=tuple("abcde")).header()


# -------------------------------------------------------------------------------------------
# torchvision's own files


def published_as(monkeypatch, builder, path):
    """Makes a file the one that torchvision publishes for a builder."""
    digits = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
    meta = BUILDERS[builder].published.meta
    published = SimpleNamespace(url=f"https://example.org/{builder}_coco-{digits}.pth", meta=meta)
    changed = dataclasses.replace(BUILDERS[builder], published=published)
    monkeypatch.setitem(torchvision_builders.BUILDERS, builder, changed)


def test_a_file_of_torchvision_is_known_by_its_checksum(monkeypatch, tmp_path):
    path = saved(without_memory("fasterrcnn_mobilenet_v3_large_320_fpn", 91), tmp_path)
    fits = closest_builders(torch.load(path))
    assert published_builder(path, fits) == ""
    published_as(monkeypatch, "fasterrcnn_mobilenet_v3_large_320_fpn", path)
    assert published_builder(path, fits) == "fasterrcnn_mobilenet_v3_large_320_fpn"
    detector = detectors.create("faster_rcnn", weights=path, classes=[str(k) for k in range(90)])
    assert (detector.found_architecture, detector.blueprint.min_size) == (MOBILE[1], 320)


@pytest.mark.parametrize(
    "case",
    slow_but(("fasterrcnn_resnet50_fpn",), ["fasterrcnn_resnet50_fpn", "retinanet_resnet50_fpn"]),
)
def test_files_that_torchvision_trained_without_an_epsilon_have_none(case, monkeypatch, tmp_path):
    path = saved(without_memory(case, 91), tmp_path)
    fits = closest_builders(torch.load(path))
    assert epsilon_of(path, fits) == 1e-5
    published_as(monkeypatch, case, path)
    assert epsilon_of(path, fits) == 0.0
    detector = create(case, path, classes=tuple(str(k) for k in range(90)))
    norms = [module for module in detector.network.modules() if hasattr(module, "running_var")]
    assert {module.eps for module in norms} == {0.0}


@pytest.mark.parametrize("builder", [name for name in BUILDERS if "keypoint" not in name])
def test_names_of_coco_are_torchvisions_and_numbered_where_there_is_none(builder):
    categories = BUILDERS[builder].categories
    assert len(categories) == len(set(categories)) == 90
    assert (categories[0], categories[17 - 1], categories[12 - 1], categories[89]) == (
        "person",
        "cat",
        "N/A 12",
        "toothbrush",
    )
