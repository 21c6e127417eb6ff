"""Class prototypes, and the ID classes nearest to categories."""

import numpy as np
import pytest
from tests.similarity.embedded import REFERENCE, objects, split

from farther.errors import DataError
from farther.similarity.categories import IdClasses, category_similarities, prototypes
from farther.similarity.stratify import stratify


def test_prototypes_are_mean_directions_and_name_the_nearest_class():
    shown = objects(
        [
            ("train 0", "cat"),
            ("train 0", "cat"),
            ("train 1", "dog"),
            ("train 1", "cat"),
            ("gone", "dog"),
        ]
    )
    known = prototypes([(REFERENCE, shown)], ["dog", "cat", "cow"])
    assert known.classes == ("dog", "cat")
    assert known.images.tolist() == [1, 2]
    np.testing.assert_allclose(known.vectors, [[0, 1], [0.5**0.5, 0.5**0.5]], atol=1e-6)
    images, _ = stratify(REFERENCE, [split("n", "near", [80, 50])], known)
    assert images.id_class.tolist() == ["dog", "cat"]
    np.testing.assert_allclose(images.class_similarity, np.cos(np.deg2rad([10, 5])), atol=1e-6)


def test_categories_are_compared_with_id_classes_by_name_and_by_image():
    names = {"dog": np.array([1, 0], np.float32), "cat": np.array([0, 1], np.float32)}
    known = prototypes(
        [(REFERENCE, objects([("train 0", "dog"), ("train 1", "cat")]))], list(names)
    )
    shown = prototypes(
        [(split("n", "near", [80, 70]), objects([("n 0", "wolf"), ("n 1", "wolf")]))]
    )
    categories = {"wolf": np.array([0.8, 0.6], np.float32), "yak": np.array([0.6, 0.8], np.float32)}
    found = category_similarities("coco", categories, shown, IdClasses(names, known)).frame
    assert found.select("category", "images", "name_class", "image_class").rows() == [
        ("wolf", 2, "dog", "cat"),
        ("yak", 0, "cat", ""),
    ]
    np.testing.assert_allclose(found["name_similarity"], [0.8, 0.8], atol=1e-6)
    np.testing.assert_allclose(found["image_similarity"], [np.cos(np.deg2rad(15)), -1], atol=1e-6)
    of_another_model = {name: np.ones(3, np.float32) for name in categories}
    with pytest.raises(DataError, match="embeddings of 3 and of 2 dimensions are from two models"):
        category_similarities("coco", of_another_model, shown, IdClasses(names, known))
