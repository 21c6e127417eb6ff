"""Splits whose embeddings lie on the unit circle, and objects of their images."""

import numpy as np

from farther.similarity.sources import EmbeddedSplit, SplitSource
from farther.tables import Objects


def split(name, distance, angles, dataset="coco"):
    """Images on the unit circle, at angles in degrees."""
    radians = np.deg2rad(np.asarray(angles, dtype=float))
    vectors = np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)
    image_id = np.array([f"{name} {number}" for number in range(len(angles))], dtype=object)
    source = SplitSource(name, dataset, "val", distance)
    return EmbeddedSplit(source, image_id, image_id.copy(), vectors)


def objects(pairs):
    """Objects of (image, category) pairs."""
    image_id = [image for image, _ in pairs]
    category = [name for _, name in pairs]
    return Objects(
        image_id=image_id,
        object_id=np.arange(len(pairs)),
        box=np.zeros((len(pairs), 4)),
        category=category,
    )


REFERENCE = split("train", "ID", [0, 90], "voc")
