import csv

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from safetensors import safe_open

from farther.detectors.networks.detr import DetrBlueprint, class_head
from farther.errors import DataError, ParameterError
from farther.tables import Objects
from farther_training.job import run_job
from farther_training.recipe import Augmentation, DetrRecipe
from farther_training.run import TrainingError
from farther_training.samples import Samples
from farther_training.trainers import Task, detr
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

CPU = torch.device("cpu")
CLASSES = ("square", "disc")
WIDTHS = [16, 24, 32]


def backbone(kind, stages):
    sizes = {"embedding_size": 8, "hidden_sizes": [8, *WIDTHS], "depths": [1, 1, 1, 1], "layer_type": "basic"}
    return {"model_type": kind, **sizes, "out_features": stages}


RT_DETR = {
    "model_type": "rt_detr",
    "backbone_config": backbone("rt_detr_resnet", ["stage2", "stage3", "stage4"]),
    "freeze_backbone_batch_norms": False,
    "encoder_in_channels": WIDTHS,
    "encoder_hidden_dim": 32,
    "d_model": 32,
    "decoder_in_channels": [32, 32, 32],
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "decoder_layers": 2,
    "decoder_n_points": 2,
    "num_queries": 10,
    "num_denoising": 10,
}
DETR = {
    "model_type": "detr",
    "backbone_config": backbone("resnet", ["stage4"]),
    "use_timm_backbone": False,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "num_queries": 10,
    "auxiliary_loss": True,
}
SQUARE = {"image_processor_type": "RTDetrImageProcessor", "size": {"height": 64, "width": 64}, "do_pad": False}
PADDED = {"image_processor_type": "DetrImageProcessor", "size": {"shortest_edge": 48, "longest_edge": 64}}


@pytest.fixture
def blueprint():
    return DetrBlueprint(RT_DETR, SQUARE, CLASSES)


def recipe(**changes):
    return DetrRecipe(
        **{
            "epochs": 2,
            "batch_size": 4,
            "learning_rate": 0.003,
            "backbone_learning_rate": 0.003,
            "warmup_steps": 2,
            "clip_norm": 1.0,
            "average": 0.5,
            "workers": 0,
            "cache_images": True,
            "checkpoint_steps": 1,
            "patience": None,
            "augmentation": Augmentation(),
            **changes,
        }
    )


def task(folder, samples):
    return Task(samples, samples, torch.device("cpu"), folder, folder / "log.csv", {})


def run(folder, blueprint, samples, how):
    network = untrained(blueprint, how.seed)
    return train(network, blueprint, task(folder, samples), how)


def weights(network):
    return {name: t.clone() for name, t in network.state_dict().items()}


def assert_equal_weights(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


# ------------------------------------------------------------------------------------------- learning


def test_shapes_on_noise_are_learned(tmp_path, blueprint, samples):
    how = recipe(epochs=45, batch_size=8, average=0.8, evaluate_epochs=45, one_to_many=1.0, warmup_steps=5)
    network = run(tmp_path, blueprint, samples, how)
    assert evaluate(network, blueprint, samples, how)["ap50"] > 0.3
    rows = list(csv.DictReader((tmp_path / "log.csv").open()))
    assert float(rows[-1]["loss"]) < 0.5 * float(rows[0]["loss"])
    assert float(rows[-1]["val_map50"]) > 0.3


@pytest.mark.parametrize(("config", "processor"), [(RT_DETR, SQUARE), (DETR, PADDED)])
def test_every_part_of_the_network_learns(config, processor, tmp_path, samples):
    blueprint = DetrBlueprint(config, processor, CLASSES)
    network = untrained(blueprint, 0)
    state = DetrRun(network, blueprint, recipe(warmup_steps=0), task(tmp_path, samples), "")
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    for _ in range(2):
        state.learn([samples[row] for row in range(4)])
    # The embedding of "no class" pads denoising groups and has no gradient.
    idle = [name for name, p in network.named_parameters() if p.requires_grad and torch.equal(p, before[name])]
    assert idle == []


def test_images_without_objects_teach_that_there_is_nothing(tmp_path, blueprint, tables):
    images, objects = tables
    some = Samples(images, objects[np.isin(objects.image_id.astype(str), ["image 0"])], tmp_path / "pictures", CLASSES)
    batch = make_batch(make_processor(SQUARE), [some[1], some[2]], CPU)
    network = untrained(blueprint, 0).train()
    found = losses(network, batch, "float32", one_to_many=1.0)
    assert [len(one["boxes"]) for one in batch.labels] == [0, 0]
    assert found["loss_bbox"].item() == found["loss_giou"].item() == 0
    assert found["loss_vfl"].item() > 0 and torch.isfinite(found["loss"])


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
    assert_equal_weights(weights(untrained(blueprint, 3)), weights(untrained(blueprint, 3)))
    assert not torch.equal(class_head(untrained(blueprint, 3)).weight, class_head(untrained(blueprint, 4)).weight)


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path, blueprint, samples):
    network = untrained(blueprint, 0)
    class_head(network).bias.data[0] = float("nan")
    with pytest.raises(TrainingError, match=r"step 0: the loss is not finite: .*'loss_vfl': nan"):
        train(network, blueprint, task(tmp_path, samples), recipe())


def test_losses_have_all_their_digits_in_low_precision(tmp_path, blueprint, samples):
    batch = [samples[row] for row in range(4)]
    found = {}
    for precision in ("float32", "bfloat16"):
        how = recipe(precision=precision)
        state = DetrRun(untrained(blueprint, 0), blueprint, how, task(tmp_path, samples), "")
        state.learn(batch)
        found[precision] = state.losses["loss"][0]
    assert found["bfloat16"] == pytest.approx(found["float32"], rel=0.1)
    # A number of bfloat16 has 8 significant bits: this one has more.
    assert found["bfloat16"] != torch.tensor(found["bfloat16"]).bfloat16().item()


# ------------------------------------------------------------------------------------------- the recipe


def test_the_defaults_are_the_published_ones():
    how = DetrRecipe()
    assert (how.epochs, how.batch_size, how.seed, how.patience) == (60, 8, 40, 16)
    assert (how.learning_rate, how.backbone_learning_rate, how.optimizer) == (2e-5, 2e-6, "adamw")


def test_the_backbone_learns_at_its_own_rate_and_biases_do_not_decay(tmp_path, blueprint, samples):
    network = untrained(blueprint, 0)
    how = recipe(learning_rate=1e-3, backbone_learning_rate=1e-4)
    groups = DetrRun(network, blueprint, how, task(tmp_path, samples), "").optimizer.param_groups
    of = {id(p): group for group in groups for p in group["params"]}
    slow = {name: of[id(p)]["ratio"] for name, p in network.named_parameters()}
    assert {ratio for name, ratio in slow.items() if "backbone" in name} == {0.1}
    assert {ratio for name, ratio in slow.items() if "backbone" not in name} == {1.0}
    decays = {p.ndim > 1: of[id(p)]["weight_decay"] for p in network.parameters()}
    assert decays == {True: 1e-4, False: 0.0}


def test_the_second_matching_fades():
    how = recipe(one_to_many=2.0, one_to_many_until=0.5)
    assert [how.one_to_many_at(progress) for progress in (0, 0.25, 0.5, 0.9)] == [2.0, 1.0, 0.0, 0.0]
    assert recipe(one_to_many_until=0.0, one_to_many=1.0).one_to_many_at(0) == 0


def test_training_ends_when_patience_does_and_keeps_the_best(tmp_path, blueprint, samples, monkeypatch):
    figures = iter([0.2, 0.5, 0.4, 0.3, 0.9])
    seen = []

    def watched(network, *rest):
        seen.append(weights(network))
        return {"ap50": next(figures)}

    monkeypatch.setattr(detr, "evaluate", watched)
    network = run(tmp_path, blueprint, samples, recipe(epochs=5, patience=2))
    rows = list(csv.DictReader((tmp_path / "log.csv").open()))
    assert [float(row["val_map50"]) for row in rows] == [0.2, 0.5, 0.4, 0.3]
    assert_equal_weights(weights(network), seen[1])


def test_without_patience_the_last_weights_are_kept(tmp_path, blueprint, samples, monkeypatch):
    figures = iter([0.9, 0.1, 0.8, 0.2])
    seen = []

    def watched(network, *rest):
        seen.append(weights(network))
        return {"ap50": next(figures)}

    monkeypatch.setattr(detr, "evaluate", watched)
    run(tmp_path, blueprint, samples, recipe(patience=5))
    # The best weights of the first run still lie there.
    network = run(tmp_path, blueprint, samples, recipe(patience=None))
    assert_equal_weights(weights(network), seen[3])


# ------------------------------------------------------------------------------------------- one to many


def labels(boxes, classes):
    return [{"boxes": torch.tensor(boxes).reshape(-1, 4), "class_labels": torch.tensor(classes, dtype=torch.int64)}]


def test_proposals_that_are_right_cost_nothing():
    box = [0.5, 0.5, 0.2, 0.2]
    logits = torch.tensor([[[20.0, -20.0], [-20.0, -20.0]]])
    boxes = torch.tensor([[box, [0.1, 0.1, 0.1, 0.1]]])
    assert one_to_many_loss(logits, boxes, labels([box], [0])).item() == pytest.approx(0, abs=1e-5)


def test_a_proposal_learns_the_object_that_it_overlaps():
    # Halves of equal width: an overlap of 1/2, so the score to learn is 1/2, and both costs can be worked out.
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
    assert one_to_many_loss(logits, boxes, both).item() == pytest.approx(one_to_many_loss(logits, boxes, first).item())


def test_networks_without_proposals_refuse_the_second_matching(samples):
    network = untrained(DetrBlueprint(DETR, PADDED, CLASSES), 0)
    batch = make_batch(make_processor(PADDED), [samples[0], samples[1]], CPU)
    with pytest.raises(ParameterError, match="detr has no proposals"):
        losses(network, batch, "float32", one_to_many=1.0)


# ------------------------------------------------------------------------------------------- resuming


class KilledError(Exception):
    pass


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_killed_run_ends_in_the_same_weights(steps, tmp_path, blueprint, samples, monkeypatch):
    how = recipe(epochs=2, one_to_many=0.5, augmentation=Augmentation(scale=(0.9, 1.1), flip=0.5))
    whole = run(tmp_path / "whole", blueprint, samples, how)
    learn, done = DetrRun.learn, []

    def learn_and_die(self, batch):
        if len(done) == steps:
            raise KilledError
        done.append(learn(self, batch))

    monkeypatch.setattr(DetrRun, "learn", learn_and_die)
    with pytest.raises(KilledError):
        run(tmp_path / "killed", blueprint, samples, how)
    monkeypatch.setattr(DetrRun, "learn", learn)
    resumed = run(tmp_path / "killed", blueprint, samples, how)
    assert_equal_weights(weights(resumed), weights(whole))


def test_a_state_of_another_run_is_not_continued(tmp_path, blueprint, samples):
    run(tmp_path, blueprint, samples, recipe(epochs=1))
    other = run(tmp_path, blueprint, samples, recipe(epochs=1, learning_rate=0.001))
    alone = run(tmp_path / "alone", blueprint, samples, recipe(epochs=1, learning_rate=0.001))
    assert_equal_weights(weights(other), weights(alone))


# ------------------------------------------------------------------------------------------- jobs


def job(folder, **changes):
    how = {"epochs": 1, "batch_size": 4, "workers": 0, "warmup_steps": 0, "patience": None}
    given = {"network": RT_DETR, "processor": SQUARE, **changes}
    return DetrJob(dataset="shapes", weights=folder / "shapes.safetensors", device="cpu", recipe=recipe(**how), **given)


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
    assert card["network"]["num_queries"] == 5 and card["classes"] == ["disc"] and card["left_out"] == {"square": 4}
    with (
        safe_open(tmp_path / "shapes.safetensors", framework="pt") as before,
        safe_open(tmp_path / "other" / "shapes.safetensors", framework="pt") as after,
    ):
        name = "model.backbone.model.encoder.stages.3.layers.0.layer.0.convolution.weight"
        assert torch.equal(before.get_tensor(name), after.get_tensor(name))
        assert after.get_tensor("model.decoder.class_embed.1.weight").shape == (1, 32)


def test_a_job_without_its_checkpoint_says_so(tmp_path, ingested):
    artifacts, root = ingested
    wrong = job(tmp_path, network=None, processor=None, initial_weights=tmp_path / "none.safetensors")
    with pytest.raises(DataError, match=r"none\.safetensors: the checkpoint does not exist"):
        run_job("wrong", wrong, root, artifacts)


def test_difficult_and_crowded_objects_do_not_break_a_look_at_the_figures(tmp_path, blueprint, tables):
    images, objects = tables
    marked = Objects(
        image_id=objects.image_id,
        object_id=objects.object_id,
        box=objects.box,
        category=objects.category,
        is_crowd=np.arange(8) == 3,
        is_difficult=np.arange(8) == 5,
    )
    samples = Samples(images, marked, tmp_path / "pictures", CLASSES)
    figures = evaluate(untrained(blueprint, 0).eval(), blueprint, samples, recipe())
    assert 0 <= figures["ap50"] <= 1
