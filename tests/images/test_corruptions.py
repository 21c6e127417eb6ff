"""The corruptions of ImageNet-C: reproducible, growing, and equal to simple computations."""

import io

import numpy as np
import pytest
from PIL import Image
from tests.support.cases import slow_but

from farther.errors import DataError, ParameterError
from farther.images.corruptions import KINDS, SAOD, SEVERITIES, corrupt, draw

#: All corruptions. The package compiles glass_blur when it is first called, which takes seconds.
CASES = slow_but(set(KINDS) - {"glass_blur"}, KINDS)


@pytest.fixture(scope="module")
def photo():
    """A smooth image with a bright square, 64 × 48."""
    rows, columns = np.mgrid[0:48, 0:64]
    image = np.stack([rows * 4, columns * 3, 128 + 0 * rows], axis=2).astype(np.uint8)
    image[10:30, 20:40] = (250, 240, 30)
    return image


@pytest.mark.parametrize("kind", CASES)
def test_each_corruption_changes_the_image_and_is_reproducible(photo, kind):
    before = photo.copy()
    corrupted = corrupt(photo, kind, 3, seed=11)
    assert corrupted.shape == photo.shape and corrupted.dtype == np.uint8
    assert np.abs(corrupted.astype(int) - photo).mean() > 0.5
    np.testing.assert_array_equal(photo, before)
    np.testing.assert_array_equal(corrupt(photo, kind, 3, seed=11), corrupted)


# The first two severities of saturate take colour away, the others add it.
@pytest.mark.parametrize("kind", [case for case in CASES if case != "saturate"])
def test_the_strongest_severity_changes_more_than_the_mildest(photo, kind):
    mild, strong = (
        np.abs(corrupt(photo, kind, level, seed=2).astype(int) - photo).mean() for level in (1, 5)
    )
    assert strong > mild


@pytest.mark.parametrize("kind", CASES)
def test_the_seed_decides_about_random_corruptions_only(photo, kind):
    fixed = {
        "brightness",
        "contrast",
        "defocus_blur",
        "gaussian_blur",
        "zoom_blur",
        "pixelate",
        "saturate",
        "jpeg_compression",
    }
    same = np.array_equal(corrupt(photo, kind, 4, seed=1), corrupt(photo, kind, 4, seed=2))
    assert same == (kind in fixed)


def test_other_random_numbers_are_left_alone(photo):
    np.random.seed(5)  # noqa: NPY002
    expected = np.random.uniform(size=4)  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    corrupt(photo, "fog", 2, seed=9)
    np.testing.assert_array_equal(np.random.uniform(size=4), expected)  # noqa: NPY002


@pytest.mark.parametrize(("severity", "quality"), zip(SEVERITIES, (25, 18, 15, 10, 7), strict=True))
def test_jpeg_compression_is_what_pillow_writes_at_that_quality(photo, severity, quality):
    file = io.BytesIO()
    Image.fromarray(photo).save(file, "JPEG", quality=quality)
    np.testing.assert_array_equal(
        corrupt(photo, "jpeg_compression", severity), np.asarray(Image.open(file))
    )


@pytest.mark.parametrize(
    ("severity", "share"), zip(SEVERITIES, (0.4, 0.3, 0.2, 0.1, 0.05), strict=True)
)
def test_contrast_pulls_each_channel_towards_its_mean(photo, severity, share):
    values = photo / 255
    means = values.mean(axis=(0, 1))
    expected = np.clip(means + share * (values - means), 0, 1) * 255
    np.testing.assert_array_equal(corrupt(photo, "contrast", severity), expected.astype(np.uint8))


@pytest.mark.parametrize(
    ("severity", "deviation"), zip(SEVERITIES, (0.08, 0.12, 0.18, 0.26, 0.38), strict=True)
)
def test_gaussian_noise_has_the_deviation_of_its_severity(severity, deviation):
    noise = (
        corrupt(np.full((400, 400, 3), 128, np.uint8), "gaussian_noise", severity, seed=3) / 255
        - 128 / 255
    )
    inside = np.abs(noise) < 0.49  # not cut off at black and white
    # Of a normal distribution cut off at ±a, the deviation follows from its own.
    from scipy.stats import truncnorm

    assert noise[inside].std() == pytest.approx(
        truncnorm(-0.49 / deviation, 0.49 / deviation).std() * deviation, rel=0.01
    )


@pytest.mark.parametrize(
    ("severity", "share"), zip(SEVERITIES, (0.03, 0.06, 0.09, 0.17, 0.27), strict=True)
)
def test_impulse_noise_turns_that_share_of_the_values_black_or_white(severity, share):
    noisy = corrupt(np.full((300, 300, 3), 128, np.uint8), "impulse_noise", severity, seed=3)
    assert set(np.unique(noisy)) == {0, 128, 255}
    assert np.mean(noisy != 128) == pytest.approx(share, rel=0.03)
    assert np.mean(noisy == 255) == pytest.approx(share / 2, rel=0.05)


def test_an_image_keeps_its_corruption_when_its_split_grows():
    drawn = {name: draw(name, seed=7) for name in ("a.jpg", "b.jpg")}
    drawn_of_more = {
        name: draw(name, seed=7) for name in [f"{letter}.jpg" for letter in "abcdefgh"]
    }
    assert drawn.items() <= drawn_of_more.items()
    assert {draw(name, seed=8) for name in drawn_of_more} != set(drawn_of_more.values())


def test_all_corruptions_are_drawn_about_equally_often():
    kinds, counts = np.unique(
        [draw(f"{number:06}.jpg", seed=7)[0] for number in range(15_000)], return_counts=True
    )
    assert set(kinds) == set(SAOD)
    assert counts.min() > 850 and counts.max() < 1150  # 1,000 ± 5 deviations


@pytest.mark.parametrize(
    ("image", "kind", "severity", "error", "message"),
    [
        (np.zeros((40, 40, 3), np.uint8), "sharpen", 1, ParameterError, "'sharpen'"),
        (
            np.zeros((40, 40, 3), np.uint8),
            "fog",
            6,
            ParameterError,
            "severity is one of 1, 2, 3, 4, 5, found 6",
        ),
        (
            np.zeros((31, 40, 3), np.uint8),
            "fog",
            1,
            DataError,
            "at least 32 pixels, found uint8 of shape",
        ),
        (np.zeros((40, 40), np.uint8), "fog", 1, DataError, "found uint8 of shape (40, 40)"),
        (np.zeros((40, 40, 3)), "fog", 1, DataError, "found float64"),
    ],
)
def test_what_cannot_be_corrupted_is_refused(image, kind, severity, error, message):
    with pytest.raises(error) as caught:
        corrupt(image, kind, severity)
    assert message in str(caught.value)
