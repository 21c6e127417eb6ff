import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from numpy.testing import assert_allclose
from safetensors.torch import load_file, save_file
from scipy.optimize import linear_sum_assignment
from tests.support.cases import slow_but
from tests.support.messages import NOT_FINITE, NOT_WEIGHTS, OUTSIDE
from torch import nn

from farther import detectors
from farther.detectors.networks.detr import (
    FAMILIES,
    REFUSED,
    DetrBlueprint,
    build_network,
    class_head,
    save_checkpoint,
)
from farther.detectors.networks.detr_inference import decoder_parts, pool_latent, select
from farther.detectors.networks.replay import Dropout
from farther.detectors.settings import BoxSelection, Pooling
from farther.errors import DataError, FartherError, ParameterError
from farther.metrics.self_awareness import image_uncertainty
from farther.params import parse

ROOT = Path(__file__).parents[2]
CLASSES = ("cat", "dog", "bird", "cow")
WIDTHS = [8, 16, 24, 32]


def backbone(kind, stages):
    sizes = {
        "embedding_size": 8,
        "hidden_sizes": WIDTHS,
        "depths": [1, 1, 1, 1],
        "layer_type": "basic",
    }
    return {"model_type": kind, **sizes, "out_features": stages}


HYBRID = {
    "backbone_config": backbone("rt_detr_resnet", ["stage2", "stage3", "stage4"]),
    "encoder_in_channels": WIDTHS[1:],
    "encoder_hidden_dim": 16,
    "d_model": 16,
    "decoder_in_channels": [16, 16, 16],
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "decoder_layers": 2,
    "num_queries": 12,
}
PLAIN = {
    "backbone_config": backbone("resnet", ["stage4"]),
    "use_timm_backbone": False,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "num_queries": 12,
}
DEFORMABLE = {
    **PLAIN,
    "backbone_config": backbone("resnet", ["stage2", "stage3", "stage4"]),
    "d_model": 64,
    "num_feature_levels": 4,
    "encoder_n_points": 2,
    "decoder_n_points": 2,
}
DAB = {**{name: value for name, value in PLAIN.items() if name != "d_model"}, "hidden_size": 16}

GROUPED = {
    "c2f_num_blocks": 1,
    "d_model": 32,
    "decoder_layers": 2,
    "decoder_ffn_dim": 16,
    "decoder_self_attention_heads": 2,
    "decoder_cross_attention_heads": 2,
    "decoder_n_points": 2,
    "group_detr": 3,
    "num_queries": 12,
}
DINOV2 = {
    "model_type": "rf_detr_dinov2",
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "mlp_ratio": 2,
    "image_size": 96,
    "patch_size": 8,
    "num_windows": 2,
    "out_features": ["stage2", "stage4"],
}
VIT = {
    "model_type": "lw_detr_vit",
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "mlp_ratio": 2,
    "image_size": 64,
    "pretrain_image_size": 64,
    "patch_size": 8,
    "num_windows": 4,
    "window_block_indices": [0],
    "out_indices": [1, 3],
}
HGNET = {
    "model_type": "hgnet_v2",
    "embedding_size": 8,
    "hidden_sizes": WIDTHS,
    "depths": [1, 1, 1, 1],
    "stem_channels": [3, 8, 8],
    "stage_in_channels": [8, 8, 16, 24],
    "stage_mid_channels": [8, 8, 8, 8],
    "stage_out_channels": WIDTHS,
    "stage_num_blocks": [1, 1, 1, 1],
    "stage_numb_of_layers": [1, 1, 1, 1],
    "out_features": ["stage2", "stage3", "stage4"],
}
DEIM = {**HYBRID, "backbone_config": HGNET, "decoder_n_points": [2, 2, 2], "depth_mult": 0.3}
LITE = {
    "encoder_type": "lite",
    "backbone_config": {**HGNET, "out_features": ["stage4"]},
    "encoder_in_channels": [32],
    "decoder_in_channels": [16, 16],
    "feat_strides": [32, 64],
    "num_queries": 8,
    "num_feature_levels": 2,
    "decoder_n_points": [2, 2],
}
LAYOUT = {
    **HYBRID,
    "backbone_config": {**HGNET, "out_features": ["stage1", "stage2", "stage3", "stage4"]},
    "mask_feature_channels": [8, 8],
    "x4_feat_dim": 8,
    "num_prototypes": 4,
    "global_pointer_head_size": 8,
}
YOLOS = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "image_size": [64, 96],
    "patch_size": 16,
    "num_detection_tokens": 12,
    "use_mid_position_embeddings": True,
}

SQUARE = {
    "image_processor_type": "RTDetrImageProcessor",
    "size": {"height": 64, "width": 96},
    "do_pad": False,
}
PADDED = {"size": {"shortest_edge": 48, "longest_edge": 96}, "do_pad": True, "do_normalize": True}
#: Networks by name: configuration, and processor.
KINDS = {
    "rt_detr": (HYBRID, SQUARE),
    "rt_detr_v2": (HYBRID, SQUARE),
    "d_fine": ({**HYBRID, "decoder_n_points": [2, 2, 2]}, SQUARE),
    "detr": (PLAIN, {"image_processor_type": "DetrImageProcessor", **PADDED}),
    "table-transformer": (PLAIN, {"image_processor_type": "DetrImageProcessor", **PADDED}),
    "conditional_detr": (
        PLAIN,
        {"image_processor_type": "ConditionalDetrImageProcessor", **PADDED},
    ),
    "dab-detr": (DAB, {"image_processor_type": "ConditionalDetrImageProcessor", **PADDED}),
    "deformable_detr": (
        DEFORMABLE,
        {"image_processor_type": "DeformableDetrImageProcessor", **PADDED},
    ),
    "deformable_detr, two stages": (
        {**DEFORMABLE, "two_stage": True, "with_box_refine": True, "two_stage_num_proposals": 12},
        {"image_processor_type": "DeformableDetrImageProcessor", **PADDED},
    ),
}
KINDS |= {
    "rf_detr": (
        {**GROUPED, "backbone_config": DINOV2},
        {
            "image_processor_type": "RfDetrImageProcessor",
            "size": {"height": 96, "width": 96},
            "do_pad": False,
        },
    ),
    "lw_detr": (
        {**GROUPED, "backbone_config": VIT, "projector_scale_factors": [1.0]},
        {
            "image_processor_type": "DeformableDetrImageProcessor",
            "size": {"height": 96, "width": 96},
            "do_pad": False,
        },
    ),
    "lw_detr, two levels": (
        {**GROUPED, "backbone_config": VIT, "projector_scale_factors": [2.0, 0.5]},
        {
            "image_processor_type": "DeformableDetrImageProcessor",
            "size": {"height": 96, "width": 96},
            "do_pad": False,
        },
    ),
    "deimv2": (DEIM, SQUARE),
    "deimv2, lite": ({**DEIM, **LITE}, {**SQUARE, "size": {"height": 64, "width": 128}}),
    "pp_doclayout_v3": (
        LAYOUT,
        {
            "image_processor_type": "PPDocLayoutV3ImageProcessor",
            "size": {"height": 64, "width": 96},
        },
    ),
    "yolos": (
        YOLOS,
        {"image_processor_type": "YolosImageProcessor", "size": {"height": 64, "width": 96}},
    ),
}
#: Networks that share most of their code with another one.
SIBLINGS = (
    "rt_detr_v2",
    "table-transformer",
    "conditional_detr",
    "dab-detr",
    "deformable_detr, two stages",
    "lw_detr",
    "lw_detr, two levels",
    "deimv2",
    "deimv2, lite",
    "pp_doclayout_v3",
)
#: One network of each kind of encoder and decoder.
TYPICAL = ("rt_detr", "detr", "deformable_detr", "rf_detr", "yolos")
WITH_QUALITY = [kind for kind in KINDS if kind.startswith(("d_fine", "deimv2"))]
LINEAR = [kind for kind in KINDS if kind not in WITH_QUALITY]

#: Networks, of which siblings are slow.
ALL_KINDS = slow_but(set(KINDS).difference(SIBLINGS), KINDS, drawn=2)

#: Beginnings of the names of networks whose convolutions get weights that let scores depend on the
#: image.
SENSITIVE = ("rt_detr", "rf_detr", "lw_detr", "deimv2", "yolos")


def make_blueprint(kind):
    config, processor = KINDS[kind]
    return DetrBlueprint({"model_type": kind.split(",")[0], **config}, processor, CLASSES)


def make_network(kind, seed=0):
    """A network whose scores and boxes differ between queries, as those of a trained one do."""
    torch.manual_seed(seed)
    network = build_network(make_blueprint(kind)).eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
        elif isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.normal_(module.bias, std=0.3)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight)
        elif isinstance(module, nn.Conv2d) and kind.startswith(SENSITIVE):
            nn.init.kaiming_uniform_(module.weight)
    for name, parameter in network.named_parameters():
        if name.endswith(("_token", "_tokens", "position_embeddings")):
            nn.init.normal_(parameter)
    return network


def save_folder(folder, kind, network=None):
    network = network or make_network(kind)
    network.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(make_blueprint(kind).processor))
    return folder


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Folders as transformers saves them, by kind, made when first asked for."""
    made = {}

    def folder(kind):
        if kind not in made:
            made[kind] = save_folder(tmp_path_factory.mktemp("detr"), kind)
        return made[kind]

    return folder


@pytest.fixture(scope="session")
def images():
    rng = np.random.default_rng(0)
    # One as high as there are channels: nothing but its position says which side the colours are
    # on.
    return [
        rng.integers(0, 256, size, dtype=np.uint8)
        for size in ((60, 80, 3), (90, 50, 3), (60, 80, 3), (3, 40, 3))
    ]


@pytest.fixture(scope="module")
def loaded(folders):
    """Adapters on the folders that give all detections, by kind, made when first asked for."""
    made = {}

    def detector(kind):
        if kind not in made:
            made[kind] = make_detector(folders(kind), score_threshold=0.0)
        return made[kind]

    return detector


def make_detector(weights, **params):
    return detectors.create("detr", weights=weights, device="cpu", **params)


def in_order_of(found, score, label, box):
    """The rows in the expected order; rounding may exchange rows of nearly equal scores."""
    assert len(found) == len(score) and (np.diff(found.score) <= 0).all()
    apart = np.abs(found.box[None] - box[:, None]).max(2) + np.abs(
        found.score[None] - score[:, None]
    )
    ordered = found[linear_sum_assignment(apart + 1e6 * (found.label[None] != label[:, None]))[1]]
    assert ordered.label.tolist() == label.tolist()
    assert_allclose(ordered.score, score, atol=1e-5)
    assert_allclose(ordered.box, box, atol=1e-3)
    return ordered


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_detections_are_those_of_the_checkpoints_own_processor(kind, folders, images):
    folder = folders(kind)
    found = make_detector(folder, score_threshold=0.3, max_detections=100).detect(
        images, batch_size=3
    )
    network = transformers.AutoModelForObjectDetection.from_pretrained(folder).eval()
    processor = getattr(transformers, KINDS[kind][1]["image_processor_type"]).from_pretrained(
        folder
    )
    for number, image in enumerate(images):
        given = processor(images=image, input_data_format="channels_last", return_tensors="pt")
        with torch.no_grad():
            output = network(**given)
        # Most processors give at most as many detections as there are queries, others 100 or one
        # per query.
        limit = None
        if processor.__class__.__name__.startswith(("RTDetr", "RfDetr", "PP")):
            limit = network.config.num_queries
        expected = processor.post_process_object_detection(
            output, 0.3, target_sizes=[image.shape[:2]]
        )[0]
        rows = found[found.image_id == str(number)][:limit]
        assert len(rows) > 0
        in_order_of(rows, *(expected[name].numpy() for name in ("scores", "labels", "boxes")))


@pytest.mark.parametrize("kind", slow_but(TYPICAL, LINEAR))
def test_features_through_the_last_layer_are_the_logits(kind, loaded, images):
    found = loaded(kind).detect(images)
    assert_allclose(found.features @ found.weight.T + found.bias, found.logits, atol=1e-4)


def test_a_head_that_adds_box_quality_has_features_but_no_last_layer(loaded, images):
    found = loaded("d_fine").detect(images)
    head = class_head(make_network("d_fine"))
    added = found.logits - (
        found.features @ head.weight.detach().numpy().T + head.bias.detach().numpy()
    )
    assert not found.has("last_layer")
    assert np.abs(added).max() > 0.1
    assert_allclose(added, np.repeat(added[:, :1], len(CLASSES), axis=1), atol=1e-4)


@pytest.mark.parametrize("kind", ["rt_detr", "conditional_detr"])
def test_a_score_is_the_sigmoid_of_its_own_logit(kind, folders, images):
    found = make_detector(folders(kind), score_threshold=0.2).detect(images)
    own = found.logits[np.arange(len(found)), found.label]
    assert (
        found.activation == "sigmoid"
        and found.background_index is None
        and found.classes == CLASSES
    )
    assert_allclose(found.score, 1 / (1 + np.exp(-own)), rtol=1e-5)


def test_detr_keeps_no_object_as_the_last_column(loaded, images):
    found = loaded("detr").detect(images)
    exponentials = np.exp(found.logits.astype(np.float64))
    assert (
        found.classes == (*CLASSES, "no object")
        and found.background_index == 4
        and found.activation == "softmax"
    )
    assert_allclose(
        found.score, (exponentials / exponentials.sum(1, keepdims=True))[:, :4].max(1), rtol=1e-5
    )
    assert len(found) == 12 * len(images)


def test_a_query_may_count_for_several_classes_or_for_its_best_one(folders, images):
    several = make_detector(folders("rt_detr"), score_threshold=0.2).detect(images[:1])
    one = make_detector(folders("rt_detr"), score_threshold=0.2, per_query="one").detect(images[:1])
    assert len(np.unique(several.box, axis=0)) < len(several)
    assert len(np.unique(one.box, axis=0)) == len(one) == len(np.unique(several.box, axis=0))
    assert (one.label == one.logits.argmax(1)).all()


def test_the_saod_profile_has_100_detections_of_deformable_detr_in_each_image(tmp_path, images):
    profile = parse((ROOT / "profiles/saod.yaml").read_text())
    params = dict(profile["detectors"]["gen-d_detr"]["params"])
    del params["classes"]  # those of COCO; these networks have four
    torch.manual_seed(0)
    blueprint = make_blueprint("deformable_detr")
    config = {**blueprint.config, "num_queries": 30}  # 30 queries of 4 classes: 120 candidates
    network = build_network(DetrBlueprint(config, blueprint.processor, CLASSES)).eval()
    for module in network.class_embed:
        nn.init.constant_(module.bias, -6.0)  # scores about 0.002
    folder = save_folder(tmp_path, "deformable_detr", network)

    found = make_detector(folder, **params).detect(images)
    _, counts = np.unique(found.image_id, return_counts=True)
    assert counts.tolist() == [100] * len(images)
    assert found.score.max() < 0.05  # the default threshold leaves none of them
    assert len(make_detector(folder).detect(images)) == 0

    # So sum and mean of the uncertainties differ by the factor 100, and rank images alike.
    names = sorted(set(found.image_id))
    total = image_uncertainty.of_confidence(found, names, "sum")
    assert_allclose(total, 100 * image_uncertainty.of_confidence(found, names, "mean"))


def test_suppression_and_limits_apply_when_asked_for():
    boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 9], [50, 50, 60, 60]])
    scores = torch.tensor([[0.9, 0.0], [0.8, 0.7], [0.3, 0.1]])
    keep = BoxSelection(score_threshold=0.2, iou=1.0, max_detections=100, per_query="several")
    pairs = select(scores, boxes, keep)
    assert pairs.queries.tolist() == [0, 1, 1, 2] and pairs.labels.tolist() == [0, 0, 1, 0]
    # The second box loses its first class to the first box (they overlap by 0.9), and keeps its
    # second.
    suppressed = select(scores, boxes, BoxSelection(0.2, 0.5, 100, "several"))
    assert suppressed.queries.tolist() == [0, 1, 2] and suppressed.labels.tolist() == [0, 1, 0]
    assert select(
        scores, boxes, BoxSelection(0.2, 1.0, 2, "several")
    ).scores.tolist() == pytest.approx([0.9, 0.8])


@pytest.mark.parametrize("kind", ["rt_detr", "detr"])
def test_pixels_are_those_of_the_processor(kind, folders, images):
    detector = make_detector(folders(kind))
    processor = getattr(transformers, KINDS[kind][1]["image_processor_type"]).from_pretrained(
        folders(kind)
    )
    for image in images:
        expected = processor(images=image, input_data_format="channels_last", return_tensors="pt")[
            "pixel_values"
        ]
        assert torch.equal(detector.prepare(image).pixels, expected[0])


@pytest.mark.parametrize(
    "kind", slow_but(("lw_detr", "yolos"), ["rt_detr", "rf_detr", "lw_detr", "deimv2", "yolos"])
)
@pytest.mark.parametrize(
    "changes",
    [
        {"size": {"height": 64, "width": 192}},
        {"do_normalize": True, "image_mean": [0.1, 0.5, 0.9]},
        {"do_normalize": True, "image_std": [0.5, 0.1, 0.2]},
        {"do_rescale": True, "rescale_factor": 0.002},
        {"resample": 0},
    ],
)
def test_another_preprocessing_is_noticed_by_the_comparison(
    kind, changes, tmp_path, folders, loaded, images
):
    folder = shutil.copytree(folders(kind), tmp_path / "folder")
    processor = make_detector(folder).processor.to_dict()
    (folder / "preprocessor_config.json").write_text(json.dumps({**processor, **changes}))
    expected = loaded(kind).detect(images[:1])
    found = make_detector(folder, score_threshold=0.0).detect(images[:1])
    assert np.abs(found.score - expected.score).max() > 1e-4


@pytest.mark.parametrize("kind", ["rf_detr", "lw_detr"])
def test_of_the_groups_of_queries_only_the_first_one_detects(kind, tmp_path, loaded, images):
    network = make_network(kind)
    queries = network.config.num_queries
    for name in ("enc_output", "enc_output_norm", "enc_out_bbox_embed", "enc_out_class_embed"):
        for weights in network.get_submodule(f"model.{name}.1").parameters():
            weights.data += 1
    network.model.query_feat.weight.data[queries:] += 1
    network.model.reference_point_embed.weight.data[queries:] += 1
    found = make_detector(save_folder(tmp_path, kind, network), score_threshold=0.0).detect(images)
    expected = loaded(kind).detect(images)
    np.testing.assert_array_equal(found.logits, expected.logits)
    np.testing.assert_array_equal(found.box, expected.box)


@pytest.mark.parametrize(
    "kind",
    slow_but(("detr", "lw_detr", "yolos"), ["detr", "rf_detr", "lw_detr", "deimv2", "yolos"]),
)
def test_outputs_of_further_layers_change_nothing(kind, tmp_path, loaded, images):
    """`auxiliary_loss` lets a network give the logits of each decoder layer, for training."""
    network = make_network(kind)
    network.config.auxiliary_loss = not network.config.auxiliary_loss
    found = make_detector(save_folder(tmp_path, kind, network), score_threshold=0.0).detect(images)
    expected = loaded(kind).detect(images)
    assert_allclose(found.logits, expected.logits, atol=1e-4)


def test_the_boxes_of_a_segmentation_network_of_rf_detr_are_read(tmp_path, loaded, images):
    torch.manual_seed(0)
    config = make_network("rf_detr").config
    network = transformers.RfDetrForInstanceSegmentation(config)
    network.model.load_state_dict(make_network("rf_detr").state_dict())
    folder = save_folder(tmp_path, "rf_detr", network)
    assert json.loads((folder / "config.json").read_text())["architectures"] == [
        "RfDetrForInstanceSegmentation"
    ]
    found = make_detector(folder, score_threshold=0.0).detect(images)
    expected = loaded("rf_detr").detect(images)
    np.testing.assert_array_equal(found.logits, expected.logits)


@pytest.mark.parametrize("kind", slow_but(TYPICAL, KINDS, drawn=4))
def test_an_image_is_seen_the_same_beside_any_other(kind, loaded, images):
    detector = loaded(kind)
    together = detector.detect(images, batch_size=4)
    for number, image in enumerate(images):
        alone = detector.detect([image])
        rows = in_order_of(
            together[together.image_id == str(number)], alone.score, alone.label, alone.box
        )
        assert_allclose(rows.logits, alone.logits, atol=1e-4)
        assert_allclose(rows.latent, alone.latent, atol=1e-4)


def test_latent_is_the_mean_over_the_box():
    # A map whose value at each place is the place itself: the mean over a box is its centre.
    y, x = torch.meshgrid(torch.arange(20) + 0.5, torch.arange(30) + 0.5, indexing="ij")
    boxes = torch.tensor([[0.2, 0.1, 0.6, 0.5], [0.5, 0.5, 0.9, 0.9]])
    latent = pool_latent(torch.stack([x, y]), boxes, Pooling(9, 2))
    assert_allclose(latent.numpy(), [[0.4 * 30, 0.3 * 20], [0.7 * 30, 0.7 * 20]], rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "module", "tokens", "stride"),
    [
        ("rt_detr", "model.encoder.aifi.0", slice(None), 32),
        ("detr", "model.encoder.layers.0", slice(0, 16), 32),
        # Maps of strides 8, 16 and 32 come one after the other: 256, 64 and then 16 tokens.
        ("deformable_detr", "model.encoder.layers.0", slice(320, 336), 32),
        ("rf_detr", "model.backbone.projector", slice(None), 8),
        # The coarser one of two maps, of strides 4 and 16.
        ("lw_detr, two levels", "model.backbone.projector", slice(None), 16),
        # The first token is the class token, those of the queries come last.
        ("yolos", "vit.encoder.layer.0", slice(1, 65), 16),
    ],
)
def test_latent_is_the_first_encoder_modules_output_inside_the_box(
    kind, module, tokens, stride, tmp_path, folders
):
    # An image of 64 pixels in a frame of 128: its boxes lie in the first half of a square map.
    folder = shutil.copytree(folders(kind), tmp_path / "padded")
    frame = {"do_resize": False, "do_pad": True, "pad_size": {"height": 128, "width": 128}}
    (folder / "preprocessor_config.json").write_text(json.dumps({**KINDS[kind][1], **frame}))
    detector = make_detector(folder, score_threshold=0.0, latent_size=1, latent_sampling=1)
    kept = []
    detector.network.get_submodule(module).register_forward_hook(
        lambda module, given, output: kept.append(output)
    )
    found = detector.detect([np.random.default_rng(1).integers(0, 256, (64, 64, 3), np.uint8)])
    output = (kept[0][1] if kind.startswith("lw_detr") else kept[0])[0].numpy()
    cells = 128 // stride
    latent = output if output.ndim == 3 else output[tokens].T.reshape(-1, cells, cells)
    # One sample, in the middle of the box: bilinear interpolation by hand.
    centre = (found.box[:, :2] + found.box[:, 2:]) / 2 / stride - 0.5
    inside = ((centre > 0) & (centre < cells - 1)).all(1)
    (x, y), (fx, fy) = np.floor(centre[inside]).astype(int).T, (centre[inside] % 1).T
    upper = latent[:, y, x] * (1 - fx) + latent[:, y, x + 1] * fx
    lower = latent[:, y + 1, x] * (1 - fx) + latent[:, y + 1, x + 1] * fx
    assert inside.sum() > 3
    assert_allclose(found.latent[inside], (upper * (1 - fy) + lower * fy).T, atol=1e-4)


@pytest.fixture(scope="session")
def reference(folders, images):
    return make_detector(folders("rt_detr"), score_threshold=0.2).detect(images)


def assert_same_detections(weights, reference, images, tolerance=1e-4, **params):
    found = make_detector(weights, score_threshold=0.2, **params).detect(images)
    assert_allclose(found.logits, reference.logits, atol=tolerance)
    assert_allclose(found.box, reference.box, atol=100 * tolerance)
    return found


def test_a_folder_may_be_named_by_its_file_of_weights(folders, reference, images):
    assert_same_detections(folders("rt_detr") / "model.safetensors", reference, images)


def test_weights_may_lie_in_shards(tmp_path, folders, reference, images):
    folder = shutil.copytree(folders("rt_detr"), tmp_path / "sharded")
    make_network("rt_detr").save_pretrained(folder, max_shard_size="100KB")
    (folder / "model.safetensors").unlink()
    assert len(list(folder.glob("*.safetensors"))) > 1
    assert_same_detections(folder, reference, images)


def test_a_shard_outside_its_folder_is_not_read(tmp_path, folders):
    folder = shutil.copytree(folders("rt_detr"), tmp_path / "folder")
    (folder / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "../model.safetensors"}}'
    )
    with pytest.raises(DataError, match=OUTSIDE):
        make_detector(folder).header()


@pytest.mark.parametrize("kind", slow_but((*TYPICAL, "d_fine"), KINDS, drawn=4))
def test_our_own_file_holds_everything_in_half_precision(kind, tmp_path, loaded, images):
    path = tmp_path / "one.safetensors"
    save_checkpoint(
        path, make_network(kind).state_dict(), make_blueprint(kind), {"dataset": "demo"}
    )
    assert {t.dtype for t in load_file(path).values() if t.is_floating_point()} == {torch.float16}
    found = make_detector(path, score_threshold=0.0, max_detections=5).detect(images[:1])
    expected = loaded(kind).detect(images[:1])[:5]
    assert found.header.to_json()["classes"] == expected.header.to_json()["classes"] and found.has(
        "latent"
    )
    assert found.has("last_layer") == expected.has("last_layer")
    assert_allclose(found.score, expected.score, atol=0.01)


def test_a_lightning_checkpoint_is_read_beside_a_configuration(
    tmp_path, folders, reference, images
):
    state = {f"model.{name}": t for name, t in make_network("rt_detr").state_dict().items()}
    # What it keeps besides the network is left alone, and so are the heads that older releases
    # wrote twice.
    state["criterion.empty_weight"] = torch.ones(5)
    state |= {
        n.replace("model.decoder.", ""): t for n, t in state.items() if "decoder.class_embed" in n
    }
    held = {
        "state_dict": state,
        "epoch": 3,
        "hyper_parameters": {"lr": 2e-5},
        "pytorch-lightning_version": "2.4.0",
    }
    torch.save(held, tmp_path / "last.ckpt")
    assert_same_detections(tmp_path / "last.ckpt", reference, images, config=folders("rt_detr"))


def test_names_of_older_releases_are_understood(tmp_path, folders, reference, images):
    def older(name):
        name = name.replace(".mlp.fc", ".fc").replace("encoder.aifi.", "encoder.encoder.")
        return name.replace("self_attn.o_proj", "self_attn.out_proj")

    folder = shutil.copytree(folders("rt_detr"), tmp_path / "older")
    state = {older(name): t for name, t in make_network("rt_detr").state_dict().items()}
    assert "model.encoder.encoder.0.layers.0.self_attn.out_proj.weight" in state
    save_file(state, folder / "model.safetensors")
    assert_same_detections(folder, reference, images)


def test_a_model_of_the_hub_is_found_where_it_was_fetched_to(
    tmp_path, monkeypatch, folders, reference, images
):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    model = tmp_path / "models--someone--tiny"
    shutil.copytree(folders("rt_detr"), model / "snapshots" / "0123abcd")
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("0123abcd")
    assert_same_detections("someone/tiny", reference, images, local_files_only=True)
    with pytest.raises(
        DataError, match=r"someone/other: no such file or folder, and no such model"
    ):
        make_detector("someone/other", local_files_only=True).header()


def test_classes_can_be_named_anew(folders):
    names = ("a", "b", "c", "d")
    assert make_detector(folders("rt_detr"), classes=names).header().classes == names
    with pytest.raises(DataError, match=r"rt_detr with 2 classes.*of another shape: .*class_embed"):
        make_detector(folders("rt_detr"), classes=("a", "b")).header()


def test_classes_that_share_a_name_get_their_numbers(tmp_path, folders):
    folder = shutil.copytree(folders("rt_detr"), tmp_path / "folder")
    config = json.loads((folder / "config.json").read_text())
    config["id2label"] = {"0": "N/A", "1": "dog", "2": "N/A", "3": "cow"}
    (folder / "config.json").write_text(json.dumps(config))
    assert make_detector(folder).header().classes == ("N/A 0", "dog", "N/A 2", "cow")


def test_weights_that_do_not_fit_are_listed(tmp_path, folders):
    folder = shutil.copytree(folders("rt_detr"), tmp_path / "folder")
    state = load_file(folder / "model.safetensors")
    bias = state.pop("model.enc_score_head.bias")
    state["model.enc_score_head.colour"] = bias
    state["model.enc_output.0.bias"] = torch.zeros(7)
    save_file(state, folder / "model.safetensors")
    with pytest.raises(DataError) as error:
        make_detector(folder).header()
    assert "missing: model.enc_score_head.bias" in str(error.value)
    assert "unexpected: model.enc_score_head.colour" in str(error.value)
    assert "model.enc_output.0.bias (7,) instead of (16,)" in str(error.value)


def test_weights_of_another_kind_are_refused(tmp_path, folders):
    folder = shutil.copytree(folders("rt_detr"), tmp_path / "folder")
    shutil.copy(folders("detr") / "model.safetensors", folder)
    with pytest.raises(DataError, match=r"not a checkpoint of rt_detr"):
        make_detector(folder).header()


def test_two_networks_in_one_file_are_refused(tmp_path, folders):
    state = make_network("rt_detr").state_dict()
    both = {f"{name}.{key}": t for name in ("student", "teacher") for key, t in state.items()}
    torch.save({"state_dict": both}, tmp_path / "both.ckpt")
    with pytest.raises(DataError, match=r"several networks: under 'student\.', 'teacher\.'"):
        make_detector(tmp_path / "both.ckpt", config=folders("rt_detr")).header()


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("pp_ocrv5_mobile_det", "without classes, boxes and scores"),
        ("pp_doclayout_v2", "another order"),
        ("pp_doclayout_v4", "quadrilaterals"),
        ("grounding-dino", "take the adapter 'open_vocabulary'"),
        ("vit", "not a linear layer on a decoder's output"),
        (None, "not a linear layer on a decoder's output"),
    ],
)
def test_other_kinds_of_network_are_refused_by_name(kind, reason, tmp_path, folders):
    folder = shutil.copytree(folders("rt_detr"), tmp_path / "folder")
    (folder / "config.json").write_text(json.dumps({"model_type": kind, "id2label": {"0": "cat"}}))
    refusal = f"config.json: field 'model_type': model type {kind!r} is none of rt_detr.*{reason}"
    with pytest.raises(DataError, match=refusal):
        make_detector(folder).header()


def test_each_detector_of_transformers_is_read_or_has_a_reason():
    from transformers.models.auto import modeling_auto

    for kind in modeling_auto.MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES:
        assert (kind in FAMILIES) != kind.startswith(tuple(REFUSED)), kind


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", None, r"config.json: the file does not exist"),
        ("config.json", "[]", r"field 'id2label': expected names for the numbers"),
        ("config.json", "{", r"config.json: row 1: not JSON"),
        ("config.json", '{"model_type": "rt_detr", "id2label": {"1": "cat"}}', r"field 'id2label'"),
        ("preprocessor_config.json", None, r"preprocessor_config.json: the file does not exist"),
        ("preprocessor_config.json", "{}", r"image_processor_type None is not one of transformers"),
        (
            "preprocessor_config.json",
            '{"image_processor_type": "AutoModel"}',
            r"image_processor_type 'AutoModel'",
        ),
        ("model.safetensors", None, r"model.safetensors: the file does not exist"),
        ("model.safetensors", "weights", r"not a readable safetensors file"),
    ],
)
def test_a_damaged_folder_is_named(name, content, message, tmp_path, folders, images):
    folder = shutil.copytree(folders("rt_detr"), tmp_path / "folder")
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(FartherError, match=message):
        make_detector(folder).detect(images[:1])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("classes", None, r"field 'classes': the field is missing"),
        ("classes", '"cat"', r"field 'classes': expected a list of names, found 'cat'"),
        ("config", "{", r"field 'config': not JSON"),
        ("processor", "3", r"field 'processor': expected an object, found 3"),
    ],
)
def test_a_damaged_file_of_our_own_is_named(field, value, message, tmp_path):
    blueprint = make_blueprint("rt_detr")
    metadata = {
        "format": "farther.detr",
        "config": json.dumps(blueprint.config),
        "processor": json.dumps(blueprint.processor),
        "classes": json.dumps(CLASSES),
        field: value,
    }
    path = tmp_path / "one.safetensors"
    save_file(
        {"a": torch.zeros(1)},
        path,
        {name: text for name, text in metadata.items() if text is not None},
    )
    with pytest.raises(DataError, match=message):
        make_detector(path).header()


def test_a_configuration_that_transformers_refuses_is_an_error(tmp_path, folders):
    folder = shutil.copytree(folders("rt_detr"), tmp_path / "folder")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "d_model": "wide"}))
    with pytest.raises(DataError, match="d_model"):
        make_detector(folder).header()


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_file_that_would_run_code_runs_none(tmp_path, folders):
    with (tmp_path / "evil.ckpt").open("wb") as file:
        pickle.dump(Payload(str(tmp_path / "ran")), file, protocol=2)
    torch.save({"state_dict": {"a": Payload(str(tmp_path / "ran"))}}, tmp_path / "evil.pt")
    for name in ("evil.ckpt", "evil.pt"):
        with pytest.raises(DataError, match=NOT_WEIGHTS):
            make_detector(tmp_path / name, config=folders("rt_detr")).header()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "name", ["none.safetensors", "demo/none.safetensors", "demo/last.ckpt", "a/b/c"]
)
def test_a_checkpoint_that_is_nowhere_is_an_error(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=f"{name}: the checkpoint does not exist"):
        make_detector(name).header()


def test_numbers_that_are_not_finite_are_an_error(tmp_path, images):
    network = make_network("rt_detr")
    class_head(network).weight.data[0, 0] = float("nan")
    detector = make_detector(save_folder(tmp_path, "rt_detr", network))
    with pytest.raises(DataError, match=NOT_FINITE):
        detector.detect(images)


@pytest.mark.parametrize("kind", ["rt_detr", "rf_detr", "lw_detr"])
def test_lower_precision_keeps_logits_exact_for_their_features(kind, folders, images):
    found = make_detector(folders(kind), score_threshold=0.0, precision="bfloat16").detect(images)
    assert_allclose(found.features @ found.weight.T + found.bias, found.logits, atol=1e-4)
    own = found.logits[np.arange(len(found)), found.label]
    assert_allclose(found.score, 1 / (1 + np.exp(-own)), rtol=1e-5)


def test_identity_is_the_content_and_not_the_place(tmp_path, folders):
    folder = shutil.copytree(folders("rt_detr"), tmp_path / "copy")
    one, other = make_detector(folders("rt_detr")), make_detector(folder, revision="main")
    assert one.identity == other.identity
    json.dumps(one.identity)
    (folder / "preprocessor_config.json").write_text(json.dumps({**SQUARE, "do_normalize": True}))
    assert make_detector(folder).identity["weights_digest"] != one.identity["weights_digest"]


def test_every_family_was_tried():
    assert {kind.split(",")[0] for kind in KINDS} == set(FAMILIES)


def test_a_class_cannot_be_called_as_the_networks_own_column(folders):
    with pytest.raises(FartherError, match="a class occurs twice"):
        make_detector(folders("detr"), classes=("cat", "dog", "cow", "no object")).header()


def test_an_unknown_way_to_count_queries_lists_the_known():
    with pytest.raises(ParameterError, match="several"):
        make_detector("model.safetensors", per_query="two")


# ------------------------------------------------------------------------------------- looking
# again


@pytest.mark.parametrize("kind", slow_but(TYPICAL, KINDS, drawn=4))
def test_rows_are_computed_again_for_the_same_queries(kind, folders, images):
    """Another image would change the best proposals of a two-stage network, which are kept."""
    detector = make_detector(folders(kind), score_threshold=0.0, per_query="one")
    prepared = [detector.prepare(image) for image in images[:2]]
    replay = detector.replay(prepared)
    regions = replay.regions(["a", "b"])
    for answer in (
        replay.recompute(),
        replay.recompute([image.clone() for image in replay.images]),
    ):
        np.testing.assert_array_equal(answer.logits, regions.logits)
        np.testing.assert_array_equal(answer.boxes, regions.box)
        np.testing.assert_array_equal(answer.features, regions.features)
    torch.manual_seed(0)
    slightly = [image + 1e-4 * torch.randn_like(image) for image in replay.images]
    assert_allclose(replay.recompute(slightly).logits, regions.logits, atol=0.1)
    dropped = replay.recompute(dropout=Dropout(0.0, 0, 0, ["a", "b"]))
    assert_allclose(dropped.logits, regions.logits, atol=1e-4)
    dropped = [
        replay.recompute(dropout=Dropout(0.3, 0, number, ["a", "b"])).logits for number in (0, 0, 1)
    ]
    assert torch.equal(*dropped[:2]) and not torch.allclose(*dropped[1:], atol=0.01)


def test_dropout_is_behind_attention_and_the_last_linear_layer_of_each_decoder_layer():
    assert decoder_parts(make_network("rt_detr"))[:3] == [
        f"model.decoder.layers.0.{name}" for name in ("self_attn", "encoder_attn", "mlp.fc2")
    ]
    assert decoder_parts(make_network("yolos"))[:2] == [
        f"vit.encoder.layer.0.{name}" for name in ("attention.output.dense", "output.dense")
    ]
    for kind in KINDS:
        per_layer = 2 if kind == "yolos" else 3
        assert len(decoder_parts(make_network(kind))) == 2 * per_layer
