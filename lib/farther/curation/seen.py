"""Unknown classes that a detector may have seen: OOD categories annotated in ID training images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from farther.curation.sources import LabelledImages

#: The ID split that methods, and usually detectors, learn from.
TRAINING = "train"


class Seen(TypedDict):
    """A category of unknown objects that ID training images show.

    Keys:
        category: Its name in the OOD splits.
        objects, images: Objects that the ID dataset annotates as this category in images of the training split, and
            these images.
        splits: The OOD splits that test it, with its objects there.
    """

    category: str
    objects: int
    images: int
    splits: dict[str, int]


def seen_unknowns(
    dataset: LabelledImages, training: LabelledImages, tested: Mapping[str, LabelledImages], id_classes: Collection[str]
) -> list[Seen]:
    """OOD categories that the ID dataset annotates in images of the training split, the most frequent first.

    A detector that was trained on these images has seen such objects, as background or under another label: they are
    unknown to it in name only. Objects that are not annotated cannot be found this way. Names are compared without
    regard to case and to spaces, underscores and hyphens.

    Args:
        dataset: The subset that the training split is made from, with all its labels.
        training: The training split; objects that it keeps with an ID class are known.
        tested: The OOD splits.
        id_classes: Names of the ID classes.
    """
    known = set(training.objects.object_id[np.isin(training.objects.category.astype(str), list(id_classes))].tolist())
    shown = set(training.images.image_id)
    objects: Counter[str] = Counter()
    images: dict[str, set[str]] = {}
    rows = zip(dataset.objects.image_id, dataset.objects.object_id.tolist(), dataset.objects.category, strict=True)
    for image_id, object_id, category in rows:
        if image_id in shown and object_id not in known:
            objects[_plain(category)] += 1
            images.setdefault(_plain(category), set()).add(image_id)
    titles: dict[str, str] = {}
    places: dict[str, dict[str, int]] = {}
    for name, split in tested.items():
        for category, count in sorted(Counter(split.objects.category).items()):
            key = _plain(category)
            if category not in id_classes and key in objects:
                titles.setdefault(key, category)
                places.setdefault(key, {})[name] = count
    order = sorted(titles, key=lambda key: (-objects[key], titles[key]))
    return [
        Seen(category=titles[key], objects=objects[key], images=len(images[key]), splits=places[key]) for key in order
    ]


def _plain(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter not in " _-")
