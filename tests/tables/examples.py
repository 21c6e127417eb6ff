"""Small tables for the tests of several modules."""

from farther.tables import Objects


def objects(**changes) -> Objects:
    """Three objects in two images, with some columns changed."""
    columns = {
        "image_id": ["a", "a", "b"],
        "object_id": [1, 2, 3],
        "box": [[0, 0, 1, 1], [0, 0, 2, 2], [1, 1, 3, 4]],
        "category": ["cat", "dog", "cat"],
    }
    return Objects(**{**columns, **changes})
