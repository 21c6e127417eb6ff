"""What users give as images."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.support.messages import ABSENT

from farther.errors import DataError
from farther.images.inputs import as_pixels, images_of, is_one

RAMP = np.arange(6 * 8, dtype=np.uint8).reshape(6, 8)
COLOURS = np.stack([RAMP, RAMP + 50, RAMP + 100], axis=2)


@pytest.mark.parametrize("image", [RAMP, RAMP[:, :, None], Image.fromarray(RAMP)])
def test_grey_is_the_same_in_all_channels(image):
    assert (as_pixels(image, "0") == RAMP[:, :, None]).all()
    assert as_pixels(image, "0").shape == (6, 8, 3)


def test_an_array_with_negative_steps_becomes_one_that_pytorch_takes():
    bgr = np.ascontiguousarray(COLOURS[:, :, ::-1])
    pixels = as_pixels(bgr[:, :, ::-1], "0")
    assert (torch.from_numpy(pixels).numpy() == COLOURS).all()


@pytest.mark.parametrize(
    ("image", "found"),
    [
        (None, "None, which cv2.imread returns"),
        (b"abc", "found bytes"),
        (7, "found int"),
        ([[1, 2], [3, 4]], "found list"),
        ({"image": RAMP}, "found dict"),
        (torch.zeros(3, 6, 8), r"found Tensor of shape \(3, 6, 8\)"),
        (COLOURS.transpose(2, 0, 1), r"uint8 of shape \(3, 6, 8\): channels come last"),
        (RAMP.reshape(1, 6, 8), r"uint8 of shape \(1, 6, 8\): channels come last"),
        (COLOURS / 255, r"float64 of shape \(6, 8, 3\): of 0 to 1, give"),
        (COLOURS.astype(np.int64), r"int64 of shape \(6, 8, 3\): of 0 to 255, give image.astype"),
        (RAMP > 5, r"bool of shape \(6, 8\): give 255 \* image.astype"),
        (np.concatenate([COLOURS, COLOURS[:, :, :1]], 2), r"\(6, 8, 4\): leave out the alpha"),
        (np.zeros((5, 6, 8), np.uint8), r"uint8 of shape \(5, 6, 8\)"),
        (np.zeros((1, 2, 6, 8, 3), np.uint8), r"shape \(1, 2, 6, 8, 3\)"),
        (np.zeros((0, 8, 3), np.uint8), r"shape \(0, 8, 3\): it has no pixels"),
        (np.zeros(0), r"float64 of shape \(0,\)"),
        (np.array(3), r"int64 of shape \(\)"),
        (Image.new("RGB", (0, 5)), "0 × 5 pixels: it has no pixels"),
    ],
)
def test_what_is_not_an_image_is_named_with_its_number_and_what_it_is(image, found):
    with pytest.raises(DataError, match=f"image '4': .*{found}"):
        as_pixels(image, "4")


def test_a_text_is_the_path_of_a_file(tmp_path):
    Image.fromarray(COLOURS).save(tmp_path / "a.png")
    assert (as_pixels(str(tmp_path / "a.png"), "a") == COLOURS).all()
    with pytest.raises(DataError, match=ABSENT):
        as_pixels("hello", "hello")


@pytest.mark.parametrize(
    "image", ["a.png", Path("a.png"), None, b"a", 3, RAMP, COLOURS, torch.zeros(2, 3, 6, 8), {}]
)
def test_one_image_and_what_is_none_are_not_taken_for_several(image):
    assert is_one(image)
    assert len(list(images_of(image))) == 1


@pytest.mark.parametrize(
    "images", [["a", "b"], (RAMP, RAMP), np.stack([COLOURS, COLOURS]), iter(["a", "b"])]
)
def test_several_images_are_taken_one_by_one(images):
    assert len(list(images_of(images))) == 2
