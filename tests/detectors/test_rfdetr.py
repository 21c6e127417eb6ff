"""Checkpoints of the package rfdetr, written as by its trainer, compared with its outputs."""

import argparse
import os
import types
from dataclasses import replace
from pathlib import PosixPath

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from tests.support.messages import NOT_FINITE
from tests.support.rfdetr import (
    CLASSES,
    GROUPS,
    HIDDEN,
    ROWS,
    SETTINGS,
    WIDTH,
    content,
    state_of_rfdetr,
    weight,
)

from farther import detectors
from farther.detectors.networks.detr import DetrBlueprint, find_checkpoint, load_network
from farther.detectors.networks.rfdetr_import import (
    RENAMES,
    renamed_to_rfdetr,
    renamed_to_transformers,
)
from farther.detectors.networks.square_resize import SquareResizeImageProcessor
from farther.errors import DataError

#: Scores were recorded on a processor with AVX-512. On others, two proposals that score alike may
#: change places, which moves scores by 4e-5; another preprocessing moves them by more than 1e-3.
PROCESSOR = 2e-4

#: The best rows of `predict(image, threshold=0.3)` of rfdetr 1.11.2 with `weight` as its weights,
#: and the image of `picture`: row of the class head, score, box. The last row means no class, and
#: has no name there.
PREDICTED = [
    (3, 0.610483, [19.632, 6.697, 26.346, 8.172]),
    (3, 0.597553, [31.24, 41.692, 40.292, 43.128]),
    (0, 0.587187, [19.632, 6.697, 26.346, 8.172]),
    (3, 0.584937, [47.523, 27.066, 50.147, 33.189]),
    (0, 0.584438, [31.24, 41.692, 40.292, 43.128]),
    (0, 0.573583, [47.523, 27.066, 50.147, 33.189]),
    (0, 0.562869, [37.249, 67.127, 39.738, 70.0]),
    (3, 0.557229, [37.249, 67.127, 39.738, 70.0]),
    (1, 0.556118, [20.797, 46.622, 22.771, 52.699]),
    (1, 0.554358, [19.632, 6.697, 26.346, 8.172]),
    (2, 0.551088, [99.167, 47.492, 102.914, 49.42]),
    (3, 0.548918, [20.797, 46.622, 22.771, 52.699]),
    (1, 0.548672, [104.736, 54.138, 107.916, 59.601]),
    (0, 0.545292, [86.792, 64.646, 94.811, 66.343]),
]


def picture():
    """An image of 110 by 70 pixels."""
    pixels = np.fromfunction(
        lambda y, x, c: (x * 3 + y * (2 + c) + (x * y) % (17 + 5 * c)) % 256, (70, 110, 3)
    )
    return pixels.astype(np.uint8)


@pytest.fixture(scope="module")
def state():
    return state_of_rfdetr()


@pytest.fixture
def save(tmp_path, state):
    def write(name="checkpoint_best_total.pth", **changes):
        stored = {
            key: value for key, value in content(state, **changes).items() if value is not None
        }
        torch.save(stored, tmp_path / name)
        return tmp_path / name

    return write


def make_detector(path, **params):
    return detectors.create("detr", weights=path, device="cpu", **params)


def test_detections_are_those_that_predict_of_rfdetr_gives(save):
    regions = make_detector(save(), score_threshold=0.3).detect(picture())
    named = [row for row in PREDICTED if row[0] < len(CLASSES)]
    best = regions[: len(named)]
    assert best.label.tolist() == [label for label, _, _ in named]
    assert_allclose(best.score, [score for _, score, _ in named], atol=PROCESSOR)
    assert_allclose(best.box, [box for _, _, box in named], atol=0.01)
    assert regions.classes == tuple(CLASSES) and regions.activation == "sigmoid"


def test_features_through_the_last_layer_are_the_logits(save):
    regions = make_detector(save(), score_threshold=0.0).detect(picture())
    assert regions.weight.shape == (3, HIDDEN) and regions.has("latent")
    assert_allclose(regions.features @ regions.weight.T + regions.bias, regions.logits, atol=1e-4)


@pytest.mark.parametrize(
    "changes",
    [
        {"antialias": True},
        {"image_mean": (0.5, 0.5, 0.5)},
        {"image_std": (0.5, 0.5, 0.5)},
        {"size": {"height": 112, "width": 112}},
    ],
)
def test_another_preprocessing_is_noticed_by_the_comparison(changes, save):
    detector = make_detector(save(), score_threshold=0.3)
    fields = {**detector.processor.to_dict(), **changes}
    vars(detector)["processor"] = SquareResizeImageProcessor.from_dict(fields)
    regions = detector.detect(picture())
    expected = np.array([score for label, score, _ in PREDICTED if label < len(CLASSES)])
    assert np.abs(regions.score[: len(expected)] - expected).max() > 1e-3


def test_an_image_is_divided_by_255_before_it_is_resized(save):
    detector = make_detector(save())
    image = picture()
    resized = torch.nn.functional.interpolate(
        torch.from_numpy(image / 255).permute(2, 0, 1)[None].float(), (96, 96), mode="bilinear"
    )[0]
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    expected = (resized - mean[:, None, None]) / std[:, None, None]
    assert_allclose(detector.prepare(image).pixels.numpy(), expected.numpy(), atol=1e-5)


def test_each_name_of_a_weight_is_translated_and_back(state):
    for name in state:
        if "in_proj" in name or name == "_kp_active_mask":
            continue
        assert renamed_to_transformers(name) != name or name.startswith(
            ("class_embed", "bbox_embed")
        )
        assert renamed_to_rfdetr(renamed_to_transformers(name)) == name
    assert renamed_to_rfdetr("model.decoder.layers.1.self_attn.q_proj.bias") == (
        "transformer.decoder.layers.1.self_attn.in_proj_bias"
    )
    assert len({ours for _, ours, _ in RENAMES}) == len(RENAMES)


def test_proposals_and_passes_with_dropout_are_those_of_the_same_queries(save):
    detector = make_detector(save(), score_threshold=0.0, per_query="one")
    replay = detector.replay([detector.prepare(picture())])
    regions = replay.regions(["a"])
    answer = replay.recompute([image.clone() for image in replay.images])
    np.testing.assert_array_equal(answer.logits, regions.logits)
    assert (regions.box >= 0).all() and (regions.box <= [110, 70, 110, 70]).all()
    assert detector.PROPOSALS == "queries"


@pytest.mark.parametrize("name", ["last.ckpt", "checkpoint.pth"])
def test_lightnings_file_has_the_weights_under_another_name(name, save, state):
    prefix = "model._orig_mod." if name == "last.ckpt" else "model."
    lightning = {f"{prefix}{key}": tensor for key, tensor in state.items()}
    regions = make_detector(
        save(name, model=None, state_dict=lightning), score_threshold=0.3
    ).detect(picture())
    assert_allclose(regions.score[0], 0.587187, atol=PROCESSOR)


def test_a_segmentation_network_is_read_for_its_boxes(save, state):
    masks = {
        "segmentation_head.bias": torch.zeros(1),
        "segmentation_head.blocks.0.norm.weight": torch.ones(HIDDEN),
    }
    path = save(model={**state, **masks}, model_config={**SETTINGS, "segmentation_head": True})
    assert_allclose(
        make_detector(path, score_threshold=0.3).detect(picture()).score[0],
        0.587187,
        atol=PROCESSOR,
    )


def test_until_version_1_5_settings_were_in_a_namespace_and_classes_counted_from_1(save):
    args = argparse.Namespace(**SETTINGS, class_names=CLASSES, output_dir=PosixPath("/out/rfdetr"))
    detector = make_detector(
        save(args=args, model_config=None, rfdetr_version=None), score_threshold=0.0
    )
    assert detector.header().classes == tuple(CLASSES)
    assert (
        detector.assumed == "its classes are assumed to be numbered from 1, as by rfdetr before 1.6"
    )
    assert detector.processor.antialias
    first = make_detector(save(), score_threshold=0.0)
    assert_allclose(detector.header().weight[:2], first.header().weight[1:])
    # As many rows as classes leave no other choice.
    args.class_names = [*CLASSES, "fox"]
    assert make_detector(save(args=args, model_config=None)).assumed == ""
    # A parameter says which rows are meant.
    named = make_detector(save(args=args, model_config=None), classes=("other", *CLASSES))
    assert named.header().classes == ("other", *CLASSES) and named.assumed == ""


def test_a_simple_namespace_is_read_too(save):
    args = types.SimpleNamespace(**SETTINGS, class_names=CLASSES)
    assert make_detector(save(args=args, model_config=None)).header().classes == tuple(CLASSES)


def test_a_published_network_without_settings_is_known_by_its_shapes(save, state):
    """The input of 384 pixels of RFDETRNano, and the classes of COCO by their numbers there."""
    shapes = {
        "backbone.0.encoder.encoder.embeddings.patch_embeddings.projection.weight": (
            WIDTH,
            3,
            16,
            16,
        ),
        "backbone.0.encoder.encoder.embeddings.position_embeddings": (1, 577, WIDTH),
        "class_embed.weight": (91, HIDDEN),
        "class_embed.bias": (91,),
    }
    for group in range(GROUPS):
        shapes[f"transformer.enc_out_class_embed.{group}.weight"] = (91, HIDDEN)
        shapes[f"transformer.enc_out_class_embed.{group}.bias"] = (91,)
    named = {name: torch.from_numpy(weight(name, shape)).float() for name, shape in shapes.items()}
    path = save(model={**state, **named}, args=None, model_config=None, rfdetr_version=None)
    checkpoint = find_checkpoint(path)
    assert checkpoint.blueprint.processor["size"] == {"height": 384, "width": 384}
    assert checkpoint.blueprint.config["backbone_config"]["out_indices"] == [3, 6, 9, 12]
    assert len(checkpoint.blueprint.classes) == 80
    assert checkpoint.blueprint.classes[:2] == ("person", "bicycle") and checkpoint.class_rows.rows[
        :2
    ] == (
        1,
        2,
    )
    assert checkpoint.blueprint.classes[-1] == "toothbrush" and checkpoint.class_rows.rows[-1] == 90
    assert "an input of 384 pixels" in checkpoint.assumed and "COCO" in checkpoint.assumed


def test_training_with_other_classes_starts_from_all_weights_but_the_class_heads(save, state):
    checkpoint = find_checkpoint(save())
    blueprint = DetrBlueprint(
        checkpoint.blueprint.config, checkpoint.blueprint.processor, ("fox", "owl")
    )
    network = load_network(
        replace(checkpoint, blueprint=blueprint, class_rows=None), tolerated="class heads"
    )
    assert (
        network.class_embed.out_features == 2
        and network.model.enc_out_class_embed[0].out_features == 2
    )
    assert torch.equal(network.model.query_feat.weight, state["query_feat.weight"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"args": {"class_names": [*CLASSES, "fox", "owl"]}},
            r"'class_names': 5 classes do not fit .* of 4 rows",
        ),
        ({"args": {"class_names": ["dog", "dog"]}}, r"a class is listed twice"),
        ({"args": {"class_names": "dog"}}, r"expected a list of names, found 'dog'"),
        ({"args": {}}, r"names no classes, and its class head has 4 rows.*parameter 'classes'"),
        (
            {"model_config": None},
            r"'model_config': the file holds no resolution.*1\.11\.2.*checkpoint_best_ema\.pth",
        ),
        (
            {"model_config": {**SETTINGS, "resolution": 100}},
            r"'resolution': expected a multiple of 16 .*found 100",
        ),
        (
            {"model_config": {**SETTINGS, "num_windows": "2"}},
            r"'num_windows': expected a number from 1, found '2'",
        ),
        (
            {"model_config": {**SETTINGS, "two_stage": False}},
            r"'two_stage': .*not read: expected True, found False",
        ),
    ],
)
def test_a_setting_that_does_not_fit_is_named(changes, message, save):
    with pytest.raises(DataError, match=message):
        make_detector(save(**changes)).header()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("keypoint_embed.layers.0.weight", "it finds keypoints"),
        ("backbone.0.encoder.base_model.model.encoder.layer.0.weight", "LoRA"),
        ("backbone.0.projector.stages.1.0.cv1.conv.weight", "feature maps of several sizes"),
    ],
)
def test_a_network_that_transformers_does_not_have_is_refused(name, reason, save, state):
    with pytest.raises(DataError, match=f"a network of rfdetr that is not read: .*{reason}"):
        make_detector(save(model={**state, name: torch.zeros(1)})).header()


def test_weights_of_another_version_are_named_as_rfdetr_names_them(save, state):
    changed = dict(state)
    for number in (1, 2, 3):
        del changed[f"transformer.decoder.layers.1.norm{number}.weight"]
    del changed["transformer.decoder.layers.0.self_attn.in_proj_bias"]
    changed |= {
        "transformer.level_embed": torch.zeros(3),
        "bbox_embed.layers.0.bias": torch.zeros(7),
    }
    with pytest.raises(DataError) as error:
        make_detector(save(model=changed)).header()
    message = str(error.value)
    assert "rf_detr with 3 classes, written by rfdetr 1.11.2" in message
    assert (
        "missing: transformer.decoder.layers.0.self_attn.in_proj_bias, " in message
        and " and 1 more" in message
    )
    assert "unexpected: transformer.level_embed" in message
    assert "of another shape: bbox_embed.layers.0.bias (7,) instead of (32,)" in message


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_checkpoint_that_would_run_code_runs_none(save, tmp_path):
    path = save(args={"class_names": CLASSES, "notes": Payload(str(tmp_path / "ran"))})
    with pytest.raises(
        DataError, match=r"not a weights-only PyTorch file: it names posix\.mkdir, which is not run"
    ):
        make_detector(path).header()
    assert not (tmp_path / "ran").exists()


def test_numbers_that_are_not_finite_are_an_error(save, state):
    broken = {**state, "class_embed.bias": torch.full((ROWS,), float("nan"))}
    with pytest.raises(DataError, match=NOT_FINITE):
        make_detector(save(model=broken)).detect(picture())
