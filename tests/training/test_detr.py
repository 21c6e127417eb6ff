import copy

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from safetensors import safe_open
from tests.training.tiny import CLASSES, CPU, RT_DETR, SQUARE, assert_same, log_rows, task

from farther.detectors.networks.detr import DetrBlueprint, class_head
from farther.errors import DataError, ParameterError
from farther.tables import Objects
from farther_training.job import run_job
from farther_training.recipe import DetrRecipe
from farther_training.samples import Samples
from farther_training.trainers import detr
from farther_training.trainers.detr import (
    DetrJob,
    DetrRun,
    evaluate,
    losses,
    make_batch,
    make_processor,
    one_to_many_loss,
    train,
    untrained,
)

DETR = {
    "model_type": "detr",
    "backbone_config": {
        **RT_DETR["backbone_config"],
        "model_type": "resnet",
        "out_features": ["stage4"],
    },
    "use_timm_backbone": False,
    **dict.fromkeys(("d_model", "encoder_ffn_dim", "decoder_ffn_dim"), 32),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "decoder_layers"), 2),
    "encoder_layers": 1,
    "num_queries": 10,
    "auxiliary_loss": True,
}
PADDED = {
    "image_processor_type": "DetrImageProcessor",
    "size": {"shortest_edge": 48, "longest_edge": 64},
}


@pytest.fixture
def blueprint():
    return DetrBlueprint(RT_DETR, SQUARE, CLASSES)


def recipe(**changes):
    """A short recipe."""
    params = {
        "epochs": 2,
        "batch_size": 4,
        "learning_rate": 0.003,
        "backbone_learning_rate": 0.003,
        "warmup_steps": 2,
        "average": 0.5,
        "workers": 0,
        "cache_images": True,
        "checkpoint_steps": 1,
        "patience": None,
        "clip_norm": 1.0,
        **changes,
    }
    return DetrRecipe(**params)


def run(folder, blueprint, samples, params):
    """Trains an untrained network."""
    network = untrained(blueprint, params.seed)
    return train(network, blueprint, task(folder, samples), params)


# --------------------------------------------------------------------------------------------------
# learning


@pytest.mark.slow
def test_shapes_on_noise_are_learned(tmp_path, blueprint, samples):
    how = recipe(
        epochs=45, batch_size=8, average=0.8, evaluate_epochs=45, one_to_many=1.0, warmup_steps=5
    )
    network = run(tmp_path, blueprint, samples, how)
    assert evaluate(network, blueprint, samples, how)["ap50"] > 0.3
    rows = log_rows(tmp_path)
    assert float(rows[-1]["loss"]) < 0.5 * float(rows[0]["loss"])
    assert float(rows[-1]["val_map50"]) > 0.3


@pytest.mark.parametrize(("config", "processor"), [(RT_DETR, SQUARE), (DETR, PADDED)])
def test_every_part_of_the_network_learns(config, processor, tmp_path, samples):
    blueprint = DetrBlueprint(config, processor, CLASSES)
    network = untrained(blueprint, 0)
    state = DetrRun(network, blueprint, recipe(warmup_steps=0), task(tmp_path, samples), "")
    before = copy.deepcopy(network.state_dict())
    for _ in range(2):
        state.learn([samples[row] for row in range(4)])
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            assert not torch.equal(parameter, before[name]), name


def test_images_without_objects_teach_that_there_is_nothing(tmp_path, blueprint, tables):
    images, objects = tables
    some = Samples(
        images,
        objects[np.isin(objects.image_id.astype(str), ["image 0"])],
        tmp_path / "pictures",
        CLASSES,
    )
    batch = make_batch(make_processor(SQUARE), [some[1], some[2]], CPU)
    network = untrained(blueprint, 0).train()
    terms = losses(network, batch, "float32", one_to_many=1.0)
    assert [len(labels["boxes"]) for labels in batch.labels] == [0, 0]
    assert terms["loss_bbox"].item() == terms["loss_giou"].item() == 0
    assert terms["loss_vfl"].item() > 0
    assert torch.isfinite(terms["loss"])


def test_objects_are_given_as_fractions_of_their_own_image(samples):
    # Of two sizes, so that the smaller one is padded: fractions are of the image, not of the frame.
    batch = make_batch(make_processor(PADDED), [samples[0], samples[1]], CPU)
    for row, label in enumerate(batch.labels):
        height, width = samples[row].pixels.shape[:2]
        centre, size = label["boxes"][0, :2].numpy(), label["boxes"][0, 2:].numpy()
        assert_allclose((centre - size / 2) * (width, height), samples[row].boxes[0, :2], atol=1e-4)
        assert_allclose((centre + size / 2) * (width, height), samples[row].boxes[0, 2:], atol=1e-4)
    assert batch.mask.min() == 0 and batch.pixels.shape[0] == 2


def test_images_that_make_no_batch_are_an_error(samples):
    ragged = {**PADDED, "do_pad": False}
    with pytest.raises(ParameterError, match="Let it resize to one size, or pad"):
        make_batch(make_processor(ragged), [samples[0], samples[1]], CPU)


def test_a_signal_gets_through_an_untrained_network(blueprint, samples):
    network = untrained(blueprint, 0).train()
    batch = make_batch(make_processor(SQUARE), [samples[row] for row in range(4)], CPU)
    with torch.no_grad():
        levels = [level for level, _ in network.model.backbone(batch.pixels, batch.mask)]
    assert all(level.std() > 0.1 for level in levels)
    # A class starts as likely as its share: 1 / (classes + 1).
    assert_allclose(class_head(network).bias.sigmoid().detach().numpy(), [1 / 3, 1 / 3], rtol=1e-5)


def test_weights_are_decided_by_the_seed(blueprint):
    assert_same(untrained(blueprint, 3), untrained(blueprint, 3))
    assert not torch.equal(
        class_head(untrained(blueprint, 3)).weight, class_head(untrained(blueprint, 4)).weight
    )


def test_losses_have_all_their_digits_in_low_precision(tmp_path, blueprint, samples):
    batch = [samples[row] for row in range(4)]
    loss = {}
    for precision in ("float32", "bfloat16"):
        params = recipe(precision=precision)
        state = DetrRun(untrained(blueprint, 0), blueprint, params, task(tmp_path, samples), "")
        state.learn(batch)
        loss[precision] = state.losses["loss"][0]
    assert loss["bfloat16"] == pytest.approx(loss["float32"], rel=0.1)
    # A number of bfloat16 has 8 significant bits: this one has more.
    assert loss["bfloat16"] != torch.tensor(loss["bfloat16"]).bfloat16().item()


# --------------------------------------------------------------------------------------------------
# the recipe


def test_the_defaults_are_the_published_ones():
    how = DetrRecipe()
    assert (how.epochs, how.batch_size, how.seed, how.patience) == (60, 8, 40, 16)
    assert (how.learning_rate, how.backbone_learning_rate, how.optimizer) == (2e-5, 2e-6, "adamw")


def test_the_backbone_learns_at_its_own_rate_and_biases_do_not_decay(tmp_path, blueprint, samples):
    network = untrained(blueprint, 0)
    how = recipe(learning_rate=1e-3, backbone_learning_rate=1e-4)
    groups = DetrRun(network, blueprint, how, task(tmp_path, samples), "").optimizer.param_groups
    group_by_parameter = {}
    for group in groups:
        for parameter in group["params"]:
            group_by_parameter[id(parameter)] = group
    for name, parameter in network.named_parameters():
        group = group_by_parameter[id(parameter)]
        assert group["ratio"] == pytest.approx(0.1 if "backbone" in name else 1.0), name
        assert group["weight_decay"] == (1e-4 if parameter.ndim > 1 else 0.0), name


def test_the_second_matching_fades():
    how = recipe(one_to_many=2.0, one_to_many_until=0.5)
    assert [how.one_to_many_at(progress) for progress in (0, 0.25, 0.5, 0.9)] == [
        2.0,
        1.0,
        0.0,
        0.0,
    ]
    assert recipe(one_to_many_until=0.0, one_to_many=1.0).one_to_many_at(0) == 0


@pytest.mark.slow
def test_patience_keeps_the_best_weights_and_without_it_the_last_ones_are_kept(
    tmp_path, blueprint, samples, monkeypatch
):
    evaluated = []
    values = iter([0.2, 0.5, 0.4, 0.9, 0.1])

    def evaluate_as_given(network, *_):
        evaluated.append(copy.deepcopy(network))
        return {"ap50": next(values)}

    monkeypatch.setattr(detr, "evaluate", evaluate_as_given)
    network = run(tmp_path, blueprint, samples, recipe(epochs=4, batch_size=8, patience=1))
    assert [float(row["val_map50"]) for row in log_rows(tmp_path)] == [0.2, 0.5, 0.4]
    assert_same(network, evaluated[1])
    # The best weights of the first run still lie there.
    network = run(tmp_path, blueprint, samples, recipe(epochs=2, batch_size=8, patience=None))
    assert_same(network, evaluated[-1])


# --------------------------------------------------------------------------------------------------
# one to many


def labels(boxes, classes):
    """Labels of a batch of one image."""
    labels_of_image = {
        "boxes": torch.tensor(boxes).reshape(-1, 4),
        "class_labels": torch.tensor(classes, dtype=torch.int64),
    }
    return [labels_of_image]


def test_proposals_that_are_right_cost_nothing():
    box = [0.5, 0.5, 0.2, 0.2]
    logits = torch.tensor([[[20.0, -20.0], [-20.0, -20.0]]])
    boxes = torch.tensor([[box, [0.1, 0.1, 0.1, 0.1]]])
    assert one_to_many_loss(logits, boxes, labels([box], [0])).item() == pytest.approx(0, abs=1e-5)


def test_a_proposal_learns_the_object_that_it_overlaps():
    # Halves of equal width: an overlap of 1/2, so the score to learn is 1/2, and both costs can be
    # worked out.
    boxes = torch.tensor([[[0.5, 0.5, 0.4, 0.2]]])
    logits = torch.zeros(1, 1, 2, requires_grad=True)
    loss = one_to_many_loss(logits, boxes, labels([[0.4, 0.5, 0.2, 0.2]], [1]))
    score = 0.5 * np.log(2) + 0.75 * 0.25 * np.log(2)
    assert loss.item() == pytest.approx(score + 5 * (0.1 + 0.2) + 2 * (1 - 0.5), rel=1e-4)
    loss.backward()
    assert logits.grad[0, 0, 0] > 0  # of the other class it is told that it is not there


def test_an_image_without_objects_only_lowers_scores():
    logits = torch.zeros(1, 3, 2, requires_grad=True)
    one_to_many_loss(logits, torch.full((1, 3, 4), 0.5), labels([], [])).backward()
    assert (logits.grad > 0).all()


def test_a_token_learns_one_object_only():
    boxes = torch.tensor([[[0.5, 0.5, 0.4, 0.4]]])
    both = labels([[0.5, 0.5, 0.4, 0.4], [0.5, 0.5, 0.3, 0.3]], [0, 1])
    first = labels([[0.5, 0.5, 0.4, 0.4]], [0])
    logits = torch.zeros(1, 1, 2)
    assert one_to_many_loss(logits, boxes, both).item() == pytest.approx(
        one_to_many_loss(logits, boxes, first).item()
    )


def test_networks_without_proposals_refuse_the_second_matching(samples):
    network = untrained(DetrBlueprint(DETR, PADDED, CLASSES), 0)
    batch = make_batch(make_processor(PADDED), [samples[0], samples[1]], CPU)
    with pytest.raises(ParameterError, match="detr has no proposals"):
        losses(network, batch, "float32", one_to_many=1.0)


# --------------------------------------------------------------------------------------------------
# jobs


def job(folder, **changes):
    """A job of one epoch."""
    params = {
        "dataset": "shapes",
        "weights": folder / "shapes.safetensors",
        "device": "cpu",
        "recipe": recipe(epochs=1, warmup_steps=0),
        "network": RT_DETR,
        "processor": SQUARE,
        **changes,
    }
    return DetrJob(**params)


@pytest.mark.slow
def test_fine_tuning_takes_over_all_but_what_knows_the_classes(tmp_path, ingested):
    artifacts, root = ingested
    run_job("first", job(tmp_path), root, artifacts)
    other = job(
        tmp_path / "other",
        network=None,
        processor=None,
        initial_weights=tmp_path / "shapes.safetensors",
        classes=("disc",),
        queries=5,
    )
    other.recipe.learning_rate = other.recipe.backbone_learning_rate = 1e-12
    card = run_job("second", other, root, artifacts)
    assert card["network"]["num_queries"] == 5
    assert card["classes"] == ["disc"]
    assert card["left_out"] == {"square": 4}
    with (
        safe_open(tmp_path / "shapes.safetensors", framework="pt") as before,
        safe_open(tmp_path / "other" / "shapes.safetensors", framework="pt") as after,
    ):
        name = "model.backbone.model.encoder.stages.3.layers.0.layer.0.convolution.weight"
        assert torch.equal(before.get_tensor(name), after.get_tensor(name))
        assert after.get_tensor("model.decoder.class_embed.1.weight").shape == (1, 32)


def test_a_job_without_its_checkpoint_says_so(tmp_path, ingested):
    artifacts, root = ingested
    wrong = job(
        tmp_path, network=None, processor=None, initial_weights=tmp_path / "none.safetensors"
    )
    with pytest.raises(DataError, match=r"none\.safetensors: the checkpoint does not exist"):
        run_job("wrong", wrong, root, artifacts)


def test_difficult_and_crowded_objects_do_not_break_a_look_at_the_figures(
    tmp_path, blueprint, tables
):
    images, objects = tables
    marked = Objects(
        **objects.columns() | {"is_crowd": np.arange(8) == 3, "is_difficult": np.arange(8) == 5}
    )
    samples = Samples(images, marked, tmp_path / "pictures", CLASSES)
    figures = evaluate(untrained(blueprint, 0).eval(), blueprint, samples, recipe())
    assert 0 <= figures["ap50"] <= 1
