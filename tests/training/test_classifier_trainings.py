"""Training of classifiers for OOD detection: mixed images, confidence branch, G-ODIN, VOS."""

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.special import expit, log_softmax, softmax
from tests.training.tiny import CPU, KilledError, assert_same, log_rows, task

from farther import methods
from farther.detectors.classifier import Classifier
from farther.detectors.networks.classifier_heads import ConfidenceHead, GOdinHead
from farther.detectors.networks.heads import EnergyHead
from farther.errors import DataError, ParameterError
from farther.registry import build
from farther_training import pixmix
from farther_training.confidence_branch import ConfidenceBranch, interpolated_loss, price_of_hints
from farther_training.g_odin import GOdin
from farther_training.mixing import CutMix, Mixup
from farther_training.pixmix import PixMix
from farther_training.recipe import ClassifierRecipe, ImageVirtualOutliers
from farther_training.run import TrainingError
from farther_training.trainers import classifier
from farther_training.trainers.classifier import (
    ClassifierJob,
    ClassifierRun,
    build_network,
    to_tensor,
)
from farther_training.virtual_outliers import OutlierQueue, outlier_loss

SIMILARITIES = ("inner", "euclidean", "cosine")


def job(folder, **recipe):
    """A tiny job: two epochs of two steps."""
    small = {
        "epochs": 2,
        "batch_size": 4,
        "optimizer": "adamw",
        "learning_rate": 0.005,
        "workers": 0,
    }
    return ClassifierJob(
        dataset="shapes",
        weights=folder / "net.safetensors",
        image_size=32,
        widths=(8, 8, 16),
        blocks=(1, 1, 1),
        recipe=ClassifierRecipe(**{**small, "cache_images": True, "checkpoint_steps": 1, **recipe}),
    )


@pytest.fixture
def fractals(tmp_path):
    """A folder of pictures of complex structure: Julia sets."""
    folder = tmp_path / "fractals"
    folder.mkdir()
    y, x = np.mgrid[-1.5:1.5:40j, -1.5:1.5:50j]
    for number, constant in enumerate((-0.8 + 0.156j, -0.4 + 0.6j)):
        z, steps = x + 1j * y, np.zeros(x.shape)
        for _ in range(20):
            inside = np.abs(z) < 2
            z[inside] = z[inside] ** 2 + constant
            steps += inside
        grey = (255 * steps / 20).astype(np.uint8)
        Image.fromarray(np.stack([grey, 255 - grey, grey // 2], axis=2)).save(
            folder / f"{number}.png"
        )
    return folder


# ------------------------------------------------------------------------------------------- Mixup,
# CutMix


def test_mixup_mixes_labels_as_it_mixes_images():
    torch.manual_seed(0)
    values = torch.tensor([0.0, 1.0, 5.0])
    images = values[:, None, None, None].expand(3, 3, 4, 4).clone()
    mixed, labels = Mixup(alpha=1.0).mix(images, torch.tensor([0, 1, 2]), 3)
    share = mixed[
        1, 0, 0, 0
    ].item()  # of image 1, whose value is 1; that of image 0, its partner, is 0
    assert 0 < share < 1
    expected = [[share, 0, 1 - share], [1 - share, share, 0], [0, 1 - share, share]]
    torch.testing.assert_close(labels, torch.tensor(expected))
    torch.testing.assert_close(mixed, (labels @ values)[:, None, None, None].expand_as(mixed))


def test_the_loss_of_mixed_labels_is_the_mixture_of_their_losses(monkeypatch, samples, tmp_path):
    monkeypatch.setattr(
        Mixup, "mix", lambda self, images, labels, classes: (images, torch.tensor([[0.3, 0.7]] * 4))
    )
    learner = job(tmp_path, mixup=Mixup())
    logits = []
    whole = classifier.cross_entropy
    monkeypatch.setattr(
        classifier, "cross_entropy", lambda z, goals: logits.append(z.detach()) or whole(z, goals)
    )
    learner.learn(task(tmp_path, samples))
    costs = -log_softmax(np.concatenate(logits), axis=1)
    expected = (0.3 * costs[:, 0] + 0.7 * costs[:, 1]).reshape(2, -1).mean(axis=1)
    found = [float(row["loss_classifier"]) for row in log_rows(tmp_path)]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_cutmix_labels_are_shares_of_the_image():
    torch.manual_seed(3)
    images = torch.tensor([0.0, 1.0])[:, None, None, None].expand(2, 3, 8, 8).clone()
    mixed, labels = CutMix().mix(images, torch.tensor([0, 1]), 2)
    share = mixed[0].mean().item()
    assert 0 < share < 1
    torch.testing.assert_close(labels, torch.tensor([[1 - share, share], [share, 1 - share]]))


def test_cutmix_of_probability_zero_changes_nothing():
    images = torch.rand(2, 3, 8, 8)
    mixed, labels = CutMix(probability=0).mix(images, torch.tensor([1, 0]), 2)
    assert torch.equal(mixed, images)
    assert labels.tolist() == [[0, 1], [1, 0]]


# ------------------------------------------------------------------------------------------- PixMix


def test_pixmix_adds_and_multiplies_as_in_the_paper():
    x, y = np.array([0.75, 0.5]), np.array([0.25, 0.5])
    np.testing.assert_allclose(pixmix.add(x, y, 0.8, 0.4), [(0.8 * 0.5 - 0.4 * 0.5 + 1) / 2, 0.5])
    np.testing.assert_allclose(pixmix.multiply(x, y, 2.0, 0.5), [1.5**2 * 0.5**0.5 / 2, 0.5])


def test_exponents_mix_less_the_higher_beta_is():
    """E Beta(β, 1) = β / (β + 1), E Beta(1, β) = 1 / (β + 1); half of the pairs have b < 0."""
    random = np.random.default_rng(0)
    pairs = np.array([pixmix.exponents(3.0, random) for _ in range(4000)])
    positive = pairs[pairs[:, 1] > 0]
    negative = pairs[pairs[:, 1] <= 0]
    assert len(positive) / 4000 == pytest.approx(0.5, abs=0.05)
    np.testing.assert_allclose(positive.mean(axis=0), [0.75, 0.25], atol=0.02)
    np.testing.assert_allclose(negative.mean(axis=0), [1.25, -0.25], atol=0.02)


@pytest.mark.parametrize("operation", pixmix.OPERATIONS + pixmix.COLOUR_OPERATIONS)
def test_each_operation_keeps_the_size_and_changes_the_image(operation):
    pixels = np.random.default_rng(0).integers(30, 200, (20, 24, 3), np.uint8)
    changed = np.array(pixmix.change(Image.fromarray(pixels), operation, 0.8, 1))
    assert changed.shape == pixels.shape
    assert not np.array_equal(changed, pixels)


def test_a_shift_of_full_strength_moves_a_third_of_the_image():
    pixels = np.zeros((9, 30, 3), np.uint8)
    pixels[:, 15] = 255
    moved = np.array(pixmix.change(Image.fromarray(pixels), "shift_x", 1.0, 1))
    assert moved[0, :, 0].argmax() == 15 - 10


def test_pictures_are_mixed_in_by_the_seed_alone(fractals):
    mixer = PixMix(folder=fractals)
    pixels = np.full((32, 32, 3), 100, np.uint8)
    mixed = [mixer.mixed(pixels, np.random.default_rng(seed)) for seed in (0, 1, 0)]
    assert np.array_equal(mixed[0], mixed[2])
    assert not np.array_equal(mixed[0], mixed[1])
    assert mixed[0].shape == pixels.shape and mixed[0].dtype == np.uint8


def test_a_crop_of_a_picture_covers_the_image_whatever_its_shape():
    for shape in ((5, 80, 3), (80, 5, 3), (32, 32, 3)):
        crop = pixmix.random_crop(np.full(shape, 7, np.uint8), 32, 24, np.random.default_rng(0))
        assert crop.shape == (32, 24, 3)
        assert (crop == 7).all()


# -------------------------------------------------------------------------------------------
# confidence branch


def test_hints_move_probabilities_towards_the_label():
    logits = np.array([[1.0, 0.0], [0.0, 2.0], [0.5, 0.0]])
    confidence, labels, hinted = np.array([0.4, -1.0, 3.0]), [1, 0, 0], [True, True, False]
    p = softmax(logits, axis=1)[[0, 1, 2], labels]
    c = expit(confidence)
    expected = [c[0] * p[0] + 1 - c[0], c[1] * p[1] + 1 - c[1], p[2]]
    found = interpolated_loss(*map(torch.tensor, (logits, confidence, labels, hinted)))
    assert found.item() == pytest.approx(-np.log(expected).mean())
    assert price_of_hints(torch.from_numpy(confidence)).item() == pytest.approx(-np.log(c).mean())


def test_the_weight_of_hints_follows_the_budget():
    branch = ConfidenceBranch(budget=0.3)
    assert branch.adjusted(0.1, price=0.5) == pytest.approx(0.1 / 0.99)
    assert branch.adjusted(0.1, price=0.3) == pytest.approx(0.1 / 0.99)
    assert branch.adjusted(0.1, price=0.2) == pytest.approx(0.1 / 1.01)


def test_half_of_the_images_get_a_hint():
    torch.manual_seed(0)
    assert ConfidenceBranch().hinted(10_000).float().mean().item() == pytest.approx(0.5, abs=0.03)


def test_a_killed_run_goes_on_with_its_weight_of_hints(tmp_path, samples, monkeypatch):
    recipe = {"confidence_branch": ConfidenceBranch(weight=0.4)}
    job(tmp_path / "whole", **recipe).learn(task(tmp_path / "whole", samples))
    learn, steps = ClassifierRun.learn, []

    def until_killed(run, batch):
        if len(steps) == 3:
            raise KilledError
        steps.append(run.weight_of_hints)
        learn(run, batch)

    with monkeypatch.context() as patch:
        patch.setattr(ClassifierRun, "learn", until_killed)
        with pytest.raises(KilledError):
            job(tmp_path / "killed", **recipe).learn(task(tmp_path / "killed", samples))
    assert steps[0] == 0.4
    assert steps[1] in (pytest.approx(0.4 / 0.99), pytest.approx(0.4 / 1.01))
    job(tmp_path / "killed", **recipe).learn(task(tmp_path / "killed", samples))
    networks = [
        Classifier(weights=tmp_path / name / "net.safetensors", device="cpu")
        for name in ("whole", "killed")
    ]
    assert_same(*(one.network.network for one in networks))


# ------------------------------------------------------------------------------------------- G-ODIN


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_logits_are_similarities_over_the_probability_of_the_distribution(similarity):
    torch.manual_seed(0)
    head = GOdinHead(4, 3, similarity)
    with torch.no_grad():
        head.denominator[1].running_mean.fill_(0.2)
        head.denominator[1].running_var.fill_(2.0)
        head.denominator[1].weight.fill_(1.5)
    head.eval()
    x = np.array([[1.0, -2.0, 0.5, 3.0], [0.0, 1.0, 1.0, -1.0]], np.float32)
    w = head.numerator.weight.detach().numpy()
    h = {
        "inner": x @ w.T,
        "euclidean": -((x[:, None] - w) ** 2).mean(axis=2),
        "cosine": x @ w.T / np.linalg.norm(x, axis=1)[:, None] / np.linalg.norm(w, axis=1),
    }[similarity]
    linear = head.denominator[0]
    t = x @ linear.weight.detach().numpy().T + linear.bias.detach().numpy()
    g = expit(1.5 * (t - 0.2) / np.sqrt(2.0 + 1e-5))
    with torch.no_grad():
        found = head(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, h / g, rtol=1e-3)  # lengths have 1e-4 added


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_only_the_similarity_has_no_weight_decay(similarity, samples, tmp_path):
    learner = job(tmp_path, g_odin=GOdin(similarity=similarity), weight_decay=0.5)
    network = build_network("openood_resnet", learner.recipe, ((8, 8), (1, 1)), 2)
    run = ClassifierRun(network, learner.recipe, task(tmp_path, samples), "", None)
    decay = {
        id(p): group["weight_decay"]
        for group in run.optimizer.param_groups
        for p in group["params"]
    }
    assert len(decay) == len(list(network.parameters()))
    assert decay[id(network.fc.numerator.weight)] == 0
    assert decay[id(network.fc.denominator[0].weight)] == decay[id(network.conv1.weight)] == 0.5


# ------------------------------------------------------------------------------------------- VOS


def test_virtual_outliers_of_images_cost_the_logistic_loss_of_their_energy():
    torch.manual_seed(1)
    queue = OutlierQueue(ImageVirtualOutliers(queue=10, candidates=20, kept=2, weight=0.1), 2, 3)
    queue.push(torch.randn(10, 3), torch.zeros(10).long())
    last, head, logits = (
        torch.nn.Linear(3, 2),
        EnergyHead(2),
        torch.tensor([[2.0, -1.0], [0.5, 0.5]]),
    )
    torch.manual_seed(2)
    virtual = last(queue.outliers()).detach().numpy()
    torch.manual_seed(2)
    found = outlier_loss(queue, head, last, logits)
    costs = []
    for row, sign in [*((v, -1) for v in virtual), *((v, 1) for v in logits.numpy())]:
        energy = np.log(np.exp(row).sum())
        costs.append(np.log1p(np.exp(-sign * 0.2 * energy)))  # the odds are 0.1 E − (−0.1 E)
    assert found.item() == pytest.approx(0.1 * np.mean(costs), rel=1e-5)


def test_a_queue_that_no_class_fills_is_an_error(tmp_path, samples):
    with pytest.raises(
        TrainingError, match="no class ever filled its queue of 500 features: at most 8 were seen"
    ):
        job(tmp_path, virtual_outliers=ImageVirtualOutliers(queue=500)).learn(
            task(tmp_path, samples)
        )


# ------------------------------------------------------------------------------------------- from
# training to scores


TRAININGS = {
    "mixup": ({"mixup": Mixup()}, {"msp": {}}),
    "cutmix": ({"cutmix": CutMix()}, {"msp": {}}),
    "confidence_branch": (
        {"confidence_branch": ConfidenceBranch()},
        {"msp": {}, "conf_branch": {}},
    ),
    "virtual_outliers": (
        {"virtual_outliers": ImageVirtualOutliers(queue=3, candidates=20, start=0.5)},
        {"vos": {"output": "logistic"}},
    ),
} | {
    similarity: (
        {"g_odin": GOdin(similarity=similarity)},
        {
            "g_odin": {},
            "denominator": {"output": "denominator"},
            "published": {"protocol": "published-code"},
        },
    )
    for similarity in SIMILARITIES
}


@pytest.mark.parametrize("name", sorted(TRAININGS))
def test_each_training_ends_in_a_checkpoint_whose_method_scores(name, tmp_path, samples):
    recipe, scores = TRAININGS[name]
    learner = job(tmp_path, **recipe)
    trained = learner.learn(task(tmp_path, samples))
    assert trained.kind.endswith(f"trained with {classifier.TITLES[next(iter(recipe))]}")
    assert 0 <= trained.evaluate(samples)["accuracy"] <= 1
    detector = Classifier(weights=learner.weights, device="cpu")
    regions = detector.detect([samples.pixels(row) for row in range(4)])
    for entry, params in scores.items():
        method = entry if entry in methods.names() else "g_odin"
        found = methods.create(method, **params).fit(regions).score(regions)
        assert np.isfinite(found).all() and len(found) == 4


def test_pixmix_trains_on_mixed_images_and_msp_scores(tmp_path, samples, fractals):
    whole = job(tmp_path / "a", pixmix=PixMix(folder=fractals))
    whole.learn(task(tmp_path / "a", samples))
    helped = job(tmp_path / "b", pixmix=PixMix(folder=fractals), workers=1)
    helped.learn(task(tmp_path / "b", samples))
    detectors = [Classifier(weights=one.weights, device="cpu") for one in (whole, helped)]
    assert_same(*(one.network.network for one in detectors))
    regions = detectors[0].detect([samples.pixels(0)])
    assert np.isfinite(methods.create("msp").score(regions)).all()


def test_the_confidence_of_the_regions_is_that_of_the_network(tmp_path, samples):
    learner = job(tmp_path, confidence_branch=ConfidenceBranch())
    learner.learn(task(tmp_path, samples))
    detector = Classifier(weights=learner.weights, device="cpu")
    images = [samples.pixels(row) for row in range(3)]
    regions = detector.detect(images)
    network = detector.network.network
    assert isinstance(network.fc, ConfidenceHead)
    with torch.no_grad():
        logits, confidence = network.fc.both(torch.tensor(regions.features))
    np.testing.assert_allclose(regions.logits, logits.numpy(), atol=1e-5)
    np.testing.assert_allclose(
        methods.create("conf_branch").score(regions), expit(confidence.numpy()), rtol=1e-4
    )


def test_numerator_over_denominator_are_the_logits(tmp_path, samples):
    learner = job(tmp_path, g_odin=GOdin())
    learner.learn(task(tmp_path, samples))
    detector = Classifier(weights=learner.weights, device="cpu")
    regions = detector.detect([samples.pixels(row) for row in range(3)])
    numerator, denominator = regions.array("latent.numerator"), regions.array("latent.denominator")
    np.testing.assert_allclose(numerator / denominator, regions.logits, rtol=1e-4)
    with torch.no_grad():
        seen = detector.network.network(
            to_tensor(
                [samples.pixels(row) for row in range(3)], detector.blueprint, CPU
            ).contiguous()
        )
    np.testing.assert_allclose(regions.logits, seen.numpy(), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(
        methods.create("g_odin").score(regions), numerator.max(axis=1), rtol=1e-6
    )
    only = detector.only(["latent.denominator"]).detect([samples.pixels(0)])
    assert only.has("latent.denominator") and not only.has("latent.numerator")


# ------------------------------------------------------------------------------------------- what
# is refused


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"mixup": {"alpha": 0}}, r"'mixup.alpha'.*greater than 0, found 0"),
        ({"cutmix": {"alpha": -1}}, r"'cutmix.alpha'.*greater than 0, found -1"),
        (
            {"g_odin": {"similarity": "manhattan"}},
            r"'g_odin.similarity'.*'inner', 'euclidean' or 'cosine'",
        ),
        ({"g_odin": {}, "batch_size": 1}, "batch_size is at least 2"),
        ({"confidence_branch": {"budget": 0}}, r"'confidence_branch.budget'.*greater than 0"),
        ({"mixup": {}, "cutmix": {}}, "mixup and cutmix exclude each other: give one"),
        ({"logit_norm": {}, "g_odin": {}}, "logit_norm and g_odin exclude each other"),
        ({"pixmix": {}}, r"'pixmix.folder'"),
        (
            {"pixmix": {"folder": "x", "severity": 11}},
            r"'pixmix.severity'.*less than or equal to 10, found 11",
        ),
    ],
)
def test_bad_parameters_get_one_message(entry, message):
    with pytest.raises(ParameterError, match=message) as refused:
        build(ClassifierRecipe, "recipe", entry)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["confidence_branch", "g_odin", "virtual_outliers"])
def test_a_head_of_its_own_needs_a_resnet(name, tmp_path):
    weights = tmp_path / "net.safetensors"
    job_of_lenet = {
        "dataset": "drawings",
        "weights": weights,
        "architecture": "LeNet",
        "image_size": 28,
    }
    with pytest.raises(
        ParameterError, match=f"{name} needs architecture: openood_resnet, found LeNet"
    ):
        build(ClassifierJob, "train.net", {**job_of_lenet, "recipe": {name: {}}})


def test_a_folder_without_pictures_is_refused_before_training(tmp_path, samples):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match=r"empty: no images here; known extensions: \.jpg"):
        job(tmp_path, pixmix=PixMix(folder=empty)).learn(task(tmp_path, samples))
