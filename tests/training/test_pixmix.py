"""PixMix: its operations, its mixing, and training with it."""

import numpy as np
import pytest
from PIL import Image
from tests.training.tiny import assert_same, classifier_job, task

from farther import methods
from farther.detectors.classifier import Classifier
from farther.errors import DataError
from farther_training import pixmix
from farther_training.pixmix import PixMix


@pytest.fixture
def fractals(tmp_path):
    """A folder of pictures of complex structure: Julia sets."""
    folder = tmp_path / "fractals"
    folder.mkdir()
    y, x = np.mgrid[-1.5:1.5:40j, -1.5:1.5:50j]
    for number, constant in enumerate((-0.8 + 0.156j, -0.4 + 0.6j)):
        z = x + 1j * y
        steps = np.zeros(x.shape)
        for _ in range(20):
            inside = np.abs(z) < 2
            z[inside] = z[inside] ** 2 + constant
            steps += inside
        grey = (255 * steps / 20).astype(np.uint8)
        pixels = np.stack([grey, 255 - grey, grey // 2], axis=2)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def test_pixmix_adds_and_multiplies_as_in_the_paper():
    x = np.array([0.75, 0.5])
    y = np.array([0.25, 0.5])
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


@pytest.mark.slow
def test_pixmix_trains_on_mixed_images_and_msp_scores(tmp_path, samples, fractals):
    job = classifier_job(tmp_path / "a", pixmix=PixMix(folder=fractals))
    job.learn(task(tmp_path / "a", samples))
    job_with_worker = classifier_job(tmp_path / "b", pixmix=PixMix(folder=fractals), workers=1)
    job_with_worker.learn(task(tmp_path / "b", samples))
    detector = Classifier(weights=job.weights, device="cpu")
    detector_with_worker = Classifier(weights=job_with_worker.weights, device="cpu")
    assert_same(detector_with_worker.network.network, detector.network.network)
    regions = detector.detect([samples.pixels(0)])
    assert np.isfinite(methods.create("msp").score(regions)).all()


def test_a_folder_without_pictures_is_refused_before_training(tmp_path, samples):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match=r"empty: no images here; known extensions: \.jpg"):
        classifier_job(tmp_path, pixmix=PixMix(folder=empty)).learn(task(tmp_path, samples))
