"""The Faster R-CNN adapter, beside torchvision's own model."""

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from scipy.special import softmax
from tests.support.cases import slow_but
from tests.support.messages import ABSENT, NOT_WEIGHTS
from torchvision.models.detection import fasterrcnn_resnet50_fpn
from torchvision.ops import roi_align

from farther import detectors
from farther.datasets.base import FORMATS
from farther.detectors.base import registry
from farther.detectors.networks.architectures import (
    FasterRCNNBlueprint,
    build_network,
    load_network,
    save_checkpoint,
)
from farther.errors import DataError, ParameterError
from farther.images.orientation import BACK, turned
from farther.methods.base import METHODS
from farther.text.documentation import describe

CLASSES = ("cat", "dog", "fox", "owl")
BLUEPRINTS = {
    "small": FasterRCNNBlueprint("small", CLASSES, 96, 128),
    "resnet50_fpn": FasterRCNNBlueprint("resnet50_fpn", CLASSES, 48, 64),
}
SIZES = ((90, 120), (128, 96), (64, 64), (201, 150))


@pytest.fixture(scope="session")
def images():
    rng = np.random.default_rng(3)
    return [blotches(rng, height, width) for height, width in SIZES]


def blotches(rng, height, width):
    """An image with some structure: a few filled rectangles on noise."""
    pixels = rng.integers(0, 60, (height, width, 3), np.uint8)
    for _ in range(6):
        y, x = rng.integers(0, height - 20), rng.integers(0, width - 20)
        pixels[y : y + rng.integers(15, 60), x : x + rng.integers(15, 60)] = rng.integers(
            60, 255, 3
        )
    return pixels


def untrained(blueprint):
    """A network whose random scores differ enough to be ranked, as if it had learned something."""
    torch.manual_seed(5)
    network = build_network(blueprint).eval()
    with torch.no_grad():
        network.roi_heads.box_predictor.cls_score.weight.mul_(150)
        network.roi_heads.box_predictor.bbox_pred.weight.mul_(20)
    return network


@pytest.fixture(scope="session", params=slow_but(("small",), sorted(BLUEPRINTS)))
def weights(request, tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("weights"), BLUEPRINTS[request.param])


@pytest.fixture(scope="session")
def small_weights(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("small"), BLUEPRINTS["small"])


def write_checkpoint(folder, blueprint):
    path = folder / "network.safetensors"
    save_checkpoint(path, untrained(blueprint).state_dict(), blueprint)
    return path


@pytest.fixture(scope="session")
def regions(weights, images):
    """What the adapter says about all images."""
    return create(weights).forward(images, ["a", "b", "c", "d"])


def create(weights, **params):
    return detectors.create(
        "faster_rcnn", weights=weights, **{"score_threshold": 0.2, "device": "cpu", **params}
    )


def own_answer(weights, images, score_threshold=0.2):
    """torchvision's detections, in the memory layout of the adapter.

    Rounding differs between layouts, and random weights amplify it.
    """
    network = load_network(weights, FasterRCNNBlueprint.read(weights)).to(
        memory_format=torch.channels_last
    )
    network.roi_heads.score_thresh = score_threshold
    with torch.inference_mode():
        return network([torch.from_numpy(image).permute(2, 0, 1) / 255 for image in images])


def of_image(regions, name):
    return regions[regions.image_id == name]


# -------------------------------------------------------------------------------------------
# numbers


def test_boxes_scores_and_labels_are_torchvisions(weights, regions, images):
    expected = own_answer(weights, images)
    assert len(regions) > 20
    for name, answer in zip("abcd", expected, strict=True):
        mine = of_image(regions, name)
        np.testing.assert_array_equal(mine.label, answer["labels"])
        np.testing.assert_allclose(mine.score, answer["scores"], rtol=1e-4)
        np.testing.assert_allclose(mine.box, answer["boxes"], rtol=1e-4, atol=1e-3)


def test_features_through_the_last_layer_give_the_logits(regions):
    again = regions.features @ regions.weight.T + regions.bias
    np.testing.assert_allclose(again, regions.logits, rtol=1e-4, atol=1e-4)


def test_score_is_the_softmax_of_the_row_at_its_label(regions):
    probabilities = softmax(regions.logits, axis=1)
    np.testing.assert_allclose(
        probabilities[np.arange(len(regions)), regions.label], regions.score, rtol=1e-4
    )


def test_latent_is_the_mean_of_the_rpns_activations_in_the_box(weights, images):
    detector = create(weights, latent_size=5, latent_sampling=2)
    levels = []
    hook = detector.network.rpn.head.conv.register_forward_hook(
        lambda module, args, out: levels.append(out)
    )
    # A square image of the network's own size: the boxes need no scaling and the strides follow
    # from the shapes.
    side = detector.blueprint.min_size
    image = np.ascontiguousarray(images[3][-side:, -side:])
    regions = detector.forward([image], ["a"])
    hook.remove()
    for row in range(0, len(regions), 5):
        box = regions.box[row]
        scale = np.sqrt((box[2] - box[0]) * (box[3] - box[1]))
        # Lin et al. 2017, Equation 1, with the levels counted from the first one's stride.
        first = int(np.log2(-(-image.shape[0] // 32) * 32 / levels[0].shape[-1]))
        level = (
            int(np.clip(np.floor(4 + np.log2(scale / 224) + 1e-6), first, first + len(levels) - 1))
            - first
        )
        pooled = roi_align(
            levels[level], [torch.tensor(box[None])], 5, 1 / 2 ** (first + level), 2, aligned=True
        )
        np.testing.assert_allclose(
            regions.latent[row], pooled.mean((2, 3))[0].numpy(), rtol=1e-3, atol=1e-5
        )


def test_rows_are_ordered_by_image_then_score(small_weights, images):
    regions = create(small_weights).detect(images, ["d", "c", "b", "a"], batch_size=3)
    assert list(dict.fromkeys(regions.image_id)) == ["d", "c", "b", "a"]
    np.testing.assert_array_equal(regions.region_id, np.arange(len(regions)))
    for name in "abcd":
        assert (np.diff(of_image(regions, name).score) <= 0).all()


def test_batches_of_one_size_change_nothing_but_rounding(small_weights):
    rng = np.random.default_rng(0)
    images = [blotches(rng, 96, 128) for _ in range(4)]
    detector = create(small_weights)
    in_one_batch = detector.detect(images, batch_size=4)
    separately = detector.detect(images, batch_size=1)
    np.testing.assert_array_equal(in_one_batch.label, separately.label)
    np.testing.assert_allclose(in_one_batch.box, separately.box, rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(in_one_batch.features, separately.features, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_a_large_image_takes_little_more_than_its_floats(small_weights):
    """Of 12 million pixels: floats take 12 bytes per pixel, of which there is one copy."""
    code = (
        "import resource, sys, numpy as np\n"
        "from farther import detectors\n"
        "detector = detectors.create('faster_rcnn', weights=sys.argv[1])\n"
        "detector.detect(np.zeros((90, 120, 3), np.uint8))\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "detector.detect(np.zeros((3000, 4000, 3), np.uint8))\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / 12e6)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, small_weights], capture_output=True, text=True, check=True
    )
    assert float(told.stdout) < 24


def test_a_long_narrow_image_seen_first_changes_nothing(small_weights, images):
    undisturbed = create(small_weights).forward(images[:1], ["a"])
    detector = create(small_weights)
    detector.forward([np.ascontiguousarray(images[0][:20, :])], ["narrow"])
    np.testing.assert_array_equal(detector.forward(images[:1], ["a"]).box, undisturbed.box)


def test_half_precision_moves_scores_a_little_and_breaks_no_identity(small_weights, images):
    exact = create(small_weights).detect(images[:1])
    rough = create(small_weights, precision="bfloat16").detect(images[:1])
    assert 0 < abs(rough.score[:10] - exact.score[:10]).max() < 0.1
    again = rough.features @ rough.weight.T + rough.bias
    np.testing.assert_allclose(again, rough.logits, rtol=1e-4, atol=1e-4)


def test_thresholds_are_honoured(small_weights, images):
    regions = create(small_weights, score_threshold=0.5, max_detections=7).detect(images)
    assert regions.score.min() > 0.5
    assert np.unique(regions.image_id, return_counts=True)[1].max() == 7
    all_boxes = create(small_weights, nms_iou=1.0, max_detections=1000).detect(images)
    fewer_boxes = create(small_weights, nms_iou=0.3, max_detections=1000).detect(images)
    assert len(all_boxes) > len(fewer_boxes)


def test_an_image_without_detections_gives_no_rows_but_all_columns(small_weights, images):
    detector = create(small_weights, score_threshold=1.0)
    regions = detector.detect(images)
    assert len(regions) == 0
    assert regions.features.shape == (0, 256)
    assert regions.latent.shape == (0, 64)


# ------------------------------------------------------------------------------- what stands beside
# the rows


def test_header_says_where_the_rows_come_from(small_weights):
    header = create(small_weights, max_detections=30).header()
    assert header.classes == ("background", *CLASSES)
    assert (header.background_index, header.activation, header.score_threshold) == (
        0,
        "softmax",
        0.2,
    )
    assert header.weight.shape == (5, 256)
    assert header.detector["name"] == "faster_rcnn"
    assert header.detector["params"]["max_detections"] == 30
    json.dumps(header.to_json())


def test_identity_follows_the_checkpoints_content_and_not_its_place_or_the_device(
    small_weights, tmp_path
):
    moved = tmp_path / "elsewhere.safetensors"
    moved.write_bytes(small_weights.read_bytes())
    assert create(moved, device="auto").identity == create(small_weights).identity
    changed = write_checkpoint(tmp_path, FasterRCNNBlueprint("small", CLASSES, 64, 64))
    assert create(changed).identity != create(small_weights).identity


def test_features_can_be_stored_in_half_precision(small_weights, images):
    regions = create(small_weights, features_dtype="float16").detect(images[:1])
    assert regions.features.dtype == regions.latent.dtype == np.float16
    assert regions.logits.dtype == np.float32


# ------------------------------------------------------------------------------------------- images
# in


def test_files_and_arrays_are_the_same_to_a_detector(small_weights, images, tmp_path):
    path = tmp_path / "scene.png"
    Image.fromarray(images[0]).save(path)
    detector = create(small_weights)
    from_file, from_array = detector.detect([path]), detector.detect(images[:1])
    assert set(from_file.image_id) == {str(path)}
    assert set(from_array.image_id) == {"0"}
    np.testing.assert_array_equal(from_file.box, from_array.box)


@pytest.mark.parametrize("orientation", range(2, 9))
def test_boxes_in_a_file_with_an_exif_orientation_are_those_of_the_displayed_image(
    small_weights, images, tmp_path, orientation
):
    stored, exif = (
        turned(Image.fromarray(images[0]), BACK.get(orientation, orientation)),
        Image.Exif(),
    )
    exif[0x0112] = orientation
    stored.save(tmp_path / "scene.png", exif=exif)
    detector = create(small_weights)
    from_file = detector.detect([tmp_path / "scene.png"])
    upright = detector.detect(images[:1])
    np.testing.assert_array_equal(from_file.box, upright.box)
    np.testing.assert_array_equal(from_file.logits, upright.logits)


def test_no_images_give_an_empty_table(small_weights):
    assert len(create(small_weights).detect([])) == 0


@pytest.mark.parametrize("image", [None, b"a", np.zeros((8, 8, 3)), np.zeros((0, 8, 3), np.uint8)])
def test_what_is_no_image_is_refused(small_weights, image):
    with pytest.raises(DataError, match=r"image '0': expected a path.*, found "):
        create(small_weights).detect([image])


def test_names_must_match_images(small_weights, images):
    with pytest.raises(ParameterError, match="4 images, but 1 image_ids"):
        create(small_weights).detect(images, ["a"])


# -------------------------------------------------------------------------------------------
# checkpoints


def test_weights_that_do_not_fit_are_listed(small_weights, tmp_path):
    state = load_file(small_weights)
    state["rpn.head.extra.weight"] = state.pop("rpn.head.cls_logits.weight")
    bad = tmp_path / "bad.safetensors"
    blueprint = FasterRCNNBlueprint.read(small_weights)
    save_checkpoint(bad, state, blueprint)
    with pytest.raises(
        DataError, match=r"missing: rpn.head.cls_logits.weight; unexpected: rpn.head.extra.weight"
    ):
        create(bad).header()
    save_checkpoint(
        bad, load_file(small_weights), FasterRCNNBlueprint("small", (*CLASSES, "one more"), 96, 128)
    )
    with pytest.raises(
        DataError, match=r"box_predictor.cls_score.weight \(5, 256\) instead of \(6, 256\)"
    ):
        create(bad).header()


def test_weights_that_are_not_finite_are_refused(small_weights, tmp_path):
    state = load_file(small_weights)
    state["rpn.head.cls_logits.bias"][1] = float("nan")
    save_checkpoint(tmp_path / "bad.safetensors", state, FasterRCNNBlueprint.read(small_weights))
    with pytest.raises(
        DataError, match=r"field 'rpn.head.cls_logits.bias': holds numbers that are not finite"
    ):
        create(tmp_path / "bad.safetensors").header()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("format", "other", "not a checkpoint that farther wrote"),
        (
            "architecture",
            "huge",
            "unknown architecture 'huge'. Known: resnet50_fpn, resnet50_fpn_v2, mobile.*, small",
        ),
        ("classes", "cat", "field 'classes': not JSON"),
        ("classes", "[1]", "expected a list of names"),
        ("min_size", "-3", "expected a number of pixels, 1 to 4,096, found -3"),
    ],
)
def test_a_wrong_field_of_the_metadata_is_named(small_weights, tmp_path, field, value, message):
    metadata = {
        "format": "farther.faster_rcnn",
        "architecture": "small",
        "classes": json.dumps(CLASSES),
    }
    metadata |= {"min_size": "96", "max_size": "128", field: value}
    bad = tmp_path / "bad.safetensors"
    save_file(load_file(small_weights), bad, metadata)
    with pytest.raises(DataError, match=message):
        create(bad).header()


def test_what_is_no_checkpoint_is_refused(tmp_path):
    absent, broken, code = (
        tmp_path / name for name in ("absent.safetensors", "broken.safetensors", "code.pt")
    )
    broken.write_bytes(b"not at all")
    code.write_bytes(pickle.dumps(print, protocol=2))
    with pytest.raises(DataError, match=ABSENT):
        create(absent).header()
    with pytest.raises(DataError, match="not a readable safetensors file"):
        create(broken).header()
    with pytest.raises(DataError, match=NOT_WEIGHTS):
        create(code, classes=CLASSES).header()


def test_a_pytorch_file_needs_its_classes_and_a_safetensors_file_none(small_weights, tmp_path):
    with pytest.raises(ParameterError, match="list them in its order"):
        create(tmp_path / "weights.pt")
    with pytest.raises(ParameterError, match=r"'min_size'.*says so itself"):
        create(small_weights, min_size=100)


@pytest.mark.slow
def test_a_state_dict_that_torchvision_wrote_gives_torchvisions_answer(images, tmp_path):
    torch.manual_seed(1)
    model = fasterrcnn_resnet50_fpn(
        weights=None,
        weights_backbone=None,
        num_classes=5,
        min_size=48,
        max_size=64,
        box_score_thresh=0.1,
    ).eval()
    with torch.no_grad():
        model.roi_heads.box_predictor.cls_score.weight.mul_(60)
    torch.save({"model": model.state_dict(), "epoch": 3}, tmp_path / "model.pth")
    model.to(memory_format=torch.channels_last)
    with torch.inference_mode():
        (expected,) = model([torch.from_numpy(images[0]).permute(2, 0, 1) / 255])
    detector = create(
        tmp_path / "model.pth", classes=CLASSES, min_size=48, max_size=64, score_threshold=0.1
    )
    regions = detector.forward(images[:1], ["a"])
    assert len(regions) > 5
    np.testing.assert_allclose(regions.box, expected["boxes"], rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(regions.score, expected["scores"], rtol=1e-4)
    # What torchvision's COCO_V1 was trained with, and what no file of weights can say.
    fine_tuned = create(tmp_path / "model.pth", classes=CLASSES, norm_epsilon=0.0)
    assert fine_tuned.network.backbone.body.bn1.eps == 0.0


def test_half_precision_keeps_numbers_that_are_too_large_for_it(tmp_path):
    blueprint = BLUEPRINTS["small"]
    state = untrained(blueprint).state_dict()
    state["backbone.stem.1.running_var"] = torch.full_like(
        state["backbone.stem.1.running_var"], 1e6
    )
    save_checkpoint(tmp_path / "w.safetensors", state, blueprint)
    loaded = load_network(tmp_path / "w.safetensors", blueprint).state_dict()
    assert loaded["backbone.stem.1.running_var"][0] == 1e6
    torch.testing.assert_close(
        loaded["rpn.head.bbox_pred.weight"],
        state["rpn.head.bbox_pred.weight"],
        atol=1e-3,
        rtol=1e-3,
    )


def test_the_small_network_is_small():
    network = build_network(FasterRCNNBlueprint("small", tuple(map(str, range(20))), 224, 224))
    assert 2 * sum(t.numel() for t in network.state_dict().values()) < 8e6


def test_a_class_cannot_be_called_background():
    with pytest.raises(ParameterError, match="'background'"):
        build_network(FasterRCNNBlueprint("small", ("background",), 96, 128))


# ------------------------------------------------------------------------------------------- as a
# library


def test_a_pickled_detector_prepares_without_the_network(small_weights, images):
    detector = create(small_weights)
    assert len(detector.detect(images[:1]))
    packed = pickle.dumps(detector)
    assert len(packed) < 2000
    np.testing.assert_array_equal(pickle.loads(packed).prepare(images[0]), images[0])


def test_listing_detectors_and_passes_costs_no_framework():
    code = """
import sys
from farther.detectors.base import registry
from farther.detectors.passes import PASSES
for kinds in (registry, PASSES):
    for name in kinds.names():
        kinds.summaries[name]
print('torch' in sys.modules)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


@pytest.mark.parametrize("kinds", [registry, METHODS, FORMATS], ids=lambda kinds: kinds.kind)
def test_descriptions_read_as_text_are_those_of_the_classes(kinds):
    assert kinds.summaries == {name: describe(kinds.get(name)).summary for name in kinds.modules}


def test_unknown_names_parameters_and_devices_are_named(small_weights):
    with pytest.raises(ParameterError, match="Did you mean 'faster_rcnn'"):
        detectors.create("faster_rcn", weights=small_weights)
    with pytest.raises(ParameterError, match="unknown parameter 'treshold'"):
        create(small_weights, treshold=0.1)
    with pytest.raises(ParameterError, match=r"'nms_iou'.*less than or equal to 1"):
        create(small_weights, nms_iou=1.5)
    with pytest.raises(ParameterError, match="device 'tpu0' cannot be used here"):
        create(small_weights, device="tpu0").header()
