"""Training of image classifiers: cross-entropy, LogitNorm, outlier exposure."""

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.special import log_softmax
from tests.training.tiny import CPU, task

from farther.detectors.classifier import Classifier, ClassifierBlueprint
from farther.errors import DataError, ParameterError
from farther.naming.registry import build
from farther_training.logit_norm import LogitNorm
from farther_training.outlier_exposure import OutlierExposure
from farther_training.recipe import Augmentation, ClassifierRecipe
from farther_training.samples import Samples
from farther_training.trainers.classifier import ClassifierJob, evaluate, to_tensor, train

SHAPE = ((8, 8, 16), (1, 1, 1))
PREPROCESSING = {
    "resize": 32,
    "crop": 32,
    "interpolation": "bilinear",
    "mean": (0.5,) * 3,
    "std": (0.25,) * 3,
}
PLAN = ClassifierBlueprint("openood_resnet", ("square", "disc"), PREPROCESSING)


def recipe(**changes):
    small = {
        "epochs": 2,
        "batch_size": 4,
        "optimizer": "adamw",
        "learning_rate": 0.005,
        "workers": 0,
    }
    return ClassifierRecipe(**{**small, "cache_images": True, "checkpoint_steps": 1, **changes})


def run(folder, samples, how, **more):
    return train(PLAN, task(folder, samples), how, SHAPE, **more)


@pytest.fixture
def outliers(tmp_path):
    """A folder of stripes, which are neither squares nor discs."""
    folder = tmp_path / "outliers"
    folder.mkdir()
    for width in range(2, 6):
        stripes = np.where(np.arange(48) // width % 2, 250, 20).astype(np.uint8)
        Image.fromarray(np.broadcast_to(stripes[:, None, None], (48, 48, 3)).copy()).save(
            folder / f"{width}.png"
        )
    return folder


# --------------------------------------------------------------------------------------------------
# losses


def test_logit_norm_is_the_cross_entropy_of_logits_of_length_one_over_tau():
    logits, labels = np.array([[3.0, 4.0], [0.0, -2.0]]), [1, 0]
    unit = np.array([[0.6, 0.8], [0.0, -1.0]])
    expected = -np.mean(log_softmax(unit / 0.5, axis=1)[[0, 1], labels])
    found = LogitNorm(temperature=0.5).loss(torch.from_numpy(logits), torch.tensor(labels))
    assert found.item() == pytest.approx(expected)


def test_longer_logits_do_not_lower_logit_norm():
    logits, labels = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1])
    loss = LogitNorm().loss
    assert loss(100 * logits, labels).item() == pytest.approx(loss(logits, labels).item(), rel=1e-4)


def test_outliers_cost_least_where_all_classes_are_equally_likely(outliers):
    exposure = OutlierExposure(folder=outliers, weight=0.5)
    assert exposure.loss(torch.zeros(2, 4)).item() == pytest.approx(0.5 * np.log(4))
    logits = np.array([[2.0, 0.0, -1.0]])
    expected = -0.5 * log_softmax(logits, axis=1).mean()
    assert exposure.loss(torch.from_numpy(logits)).item() == pytest.approx(expected)
    assert expected > 0.5 * np.log(3)


def test_a_folder_without_images_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"no images here; known extensions: \.jpg, \.jpeg"):
        OutlierExposure(folder=tmp_path).images(1, np.random.default_rng(0))


# --------------------------------------------------------------------------------------------------
# training


@pytest.mark.parametrize("norm", [None, pytest.param(LogitNorm(), marks=pytest.mark.slow)])
def test_squares_and_discs_are_told_apart(tmp_path, samples, norm):
    how = recipe(epochs=30, batch_size=8, learning_rate=0.01, evaluate_epochs=30, logit_norm=norm)
    network = run(tmp_path, samples, how)
    found = evaluate(network, samples, how, PLAN)
    assert (
        found["accuracy"]
        == np.mean([found["per_class"][name]["accuracy"] for name in PLAN.classes])
        == 1
    )


@pytest.mark.slow
def test_exposed_outliers_are_classified_with_less_confidence(tmp_path, samples, outliers):
    def confidence(exposure):
        how = recipe(
            epochs=20,
            batch_size=8,
            learning_rate=0.01,
            evaluate_epochs=20,
            outlier_exposure=exposure,
        )
        network = run(tmp_path / str(exposure is None), samples, how).eval()
        images = OutlierExposure(folder=outliers).images(8, np.random.default_rng(1))
        with torch.inference_mode():
            return (
                network(to_tensor(images, PLAN, CPU)).softmax(dim=1).max(dim=1).values.mean().item()
            )

    assert confidence(OutlierExposure(folder=outliers)) + 0.1 < confidence(None)


def test_a_changed_outlier_restarts_the_run(tmp_path, samples, outliers):
    how = recipe(epochs=1, outlier_exposure=OutlierExposure(folder=outliers))
    before = run(tmp_path, samples, how)
    for path in outliers.iterdir():
        Image.fromarray(np.zeros((48, 48, 3), np.uint8)).save(path)
    after = run(
        tmp_path, samples, recipe(epochs=1, outlier_exposure=OutlierExposure(folder=outliers))
    )
    assert not torch.equal(before.fc.weight, after.fc.weight)


def test_what_augmentation_cuts_off_keeps_its_label(tmp_path, samples):
    run(tmp_path, samples, recipe(augmentation=Augmentation(scale=(3.0, 3.0), min_visible=0.9)))


def test_training_starts_from_weights_that_fit(tmp_path, samples):
    named = {"dataset": "shapes", "weights": tmp_path / "net.safetensors", "image_size": 32}
    job = ClassifierJob(**named, widths=SHAPE[0], blocks=SHAPE[1], recipe=recipe())
    job.learn(task(tmp_path / "work", samples))
    again = run(
        tmp_path / "again", samples, recipe(learning_rate=1e-9), initial_weights=job.weights
    )
    learned = Classifier(weights=job.weights, device="cpu").network.network
    torch.testing.assert_close(again.conv1.weight, learned.conv1.weight, rtol=0, atol=1e-5)


def test_an_image_with_several_labels_is_refused(tmp_path, tables):
    images, objects = tables
    objects = objects.with_columns(
        image_id=np.where(objects.image_id == "image 1", "image 0", objects.image_id)
    )
    samples = Samples(images, objects, tmp_path / "pictures", PLAN.classes)
    with pytest.raises(
        DataError, match="image 'image 0' has 2 labels; a classifier learns from images with one"
    ):
        run(tmp_path, samples, recipe())


def test_widths_and_blocks_of_unequal_number_are_refused(tmp_path):
    entry = {"dataset": "x", "weights": "x.safetensors", "widths": [8, 8], "blocks": [1]}
    with pytest.raises(ParameterError, match="2 widths, but 1 numbers of blocks"):
        build(ClassifierJob, "training job 'x'", entry)


def test_lenet_is_learned_and_written_as_the_adapter_reads_it(tmp_path, samples):
    job = ClassifierJob(
        dataset="shapes",
        weights=tmp_path / "lenet.safetensors",
        architecture="LeNet",
        image_size=28,
        mean=(0.5,) * 3,
        std=(0.25,) * 3,
        recipe=recipe(epochs=40, batch_size=8, learning_rate=0.01, evaluate_epochs=40),
    )
    trained = job.learn(task(tmp_path / "work", samples))
    assert trained.evaluate(samples)["accuracy"] == 1
    assert trained.kind == "Image classifier, LeNet"
    detector = Classifier(weights=job.weights, device="cpu")
    found = detector.detect([samples.pixels(row) for row in range(len(samples))])
    assert [PLAN.classes[label] for label in found.label] == [
        PLAN.classes[labels[0]] for labels in samples.labels
    ]
    assert found.features.shape == (len(samples), 84)


def test_lenet_for_images_of_another_size_is_refused(tmp_path):
    entry = {"dataset": "x", "weights": "x.safetensors", "architecture": "LeNet"}
    with pytest.raises(
        ParameterError, match="LeNet takes images of 28 pixels; write image_size: 28"
    ):
        build(ClassifierJob, "training job 'x'", entry)
