import numpy as np
import pytest
from PIL import Image
from tests.support.messages import OUTSIDE

from farther.errors import DataError
from farther.tables import Objects
from farther_training.samples import Samples

CLASSES = ("square", "disc")


def test_a_sample_is_an_image_with_its_own_boxes(tables, samples):
    images, objects = tables
    sample = samples[5]
    assert sample.pixels.shape == (images.height[5], images.width[5], 3)
    np.testing.assert_array_equal(sample.boxes, objects.box[5:6])
    assert CLASSES[sample.labels[0]] == objects.category[5]


def test_crowds_and_other_categories_are_not_learned_from(tables, tmp_path):
    images, objects = tables
    objects = Objects(**{**objects.columns(), "is_crowd": objects.object_id == 0})
    samples = Samples(images, objects, tmp_path / "pictures", ("disc",))
    assert len(samples[0].boxes) == len(samples[2].boxes) == 0
    assert len(samples[1].boxes) == 1
    assert samples.left_out == {"square": 4}
    assert samples.learned == 4


def test_a_subset_without_objects_of_the_classes_is_refused(tables, tmp_path):
    with pytest.raises(DataError, match=r"8 images with 0 objects of \['unicorn'\]"):
        Samples(*tables, tmp_path, ("unicorn",))


def test_an_image_that_changed_since_it_was_ingested_is_refused(samples, tmp_path):
    Image.new("RGB", (64, 48)).save(tmp_path / "pictures" / "0.png")
    with pytest.raises(DataError, match=r"0\.png: row 0: the file changed since it was ingested"):
        samples[0]


def test_a_file_name_cannot_leave_the_root(tables, tmp_path):
    images, objects = tables
    images = images.with_columns(file=["../secret.png", *images.file[1:]])
    with pytest.raises(DataError, match=OUTSIDE):
        Samples(images, objects, tmp_path / "pictures", CLASSES)[0]


def test_cached_images_are_the_images(samples, tmp_path):
    before = samples[3].pixels
    samples.cache()
    (tmp_path / "pictures" / "3.png").unlink()
    np.testing.assert_array_equal(samples[3].pixels, before)


def test_digest_follows_images_boxes_and_classes(tables, samples, tmp_path):
    images, objects = tables
    moved = Objects(**{**objects.columns(), "box": objects.box + 1})
    others = [
        Samples(images, moved, tmp_path, CLASSES),
        Samples(images, objects, tmp_path, CLASSES[::-1]),
    ]
    assert samples.digest() == Samples(images, objects, tmp_path / "elsewhere", CLASSES).digest()
    assert len({samples.digest(), *(other.digest() for other in others)}) == 3
