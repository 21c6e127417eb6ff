"""A benchmark of photos, small enough to work out by hand, for the tests of several modules."""

from pathlib import Path
from typing import Any

from tests.support.labelled import labelled

from farther.curation import Categories, Curation, LabelledImages, benchmark, curate

RULES = """
id_classes:
  cat: {photos: [Cat]}
  table: {photos: [Dining table]}
  person: {photos: [Person]}
protocols:
  paper:
    overlap:
      photos: {table: [Plate, Tableware]}
    near:
      photos: {cat: [Leopard], table: [Food, Knife], various: [Otter]}
  published-code:
    extends: paper
    near:
      photos: {cat: [Lynx]}
    overlap: {}
"""


CATEGORIES = [
    "Cat",
    "Person",
    "Human hand",
    "Plate",
    "Spoon",
    "Knife",
    "Leopard",
    "Lynx",
    "Carrot",
    "Otter",
    "Kite",
]


PARENTS = {
    "Human hand": ["Human body", "Person"],
    "Human body": ["Person"],
    "Spoon": ["Tableware", "Thing"],
    "Knife": ["Tableware", "Thing"],
    "Tableware": ["Thing"],
    "Carrot": ["Food"],
}


class InMemory:
    """Tables without files: an ID dataset `id`, and sources with the objects of each image."""

    def __init__(self, **sources: dict[str, list[str]]):
        self.sources = sources

    def source(self, dataset: str, subset: str) -> LabelledImages:
        return labelled(dataset, self.sources.get(dataset, {f"{subset}-image": ["cat"]}))

    def categories(self, dataset: str) -> Categories:
        if dataset not in self.sources:
            return Categories(("cat", "table", "person"))
        parents = {name: tuple(ancestors) for name, ancestors in PARENTS.items()}
        return Categories(tuple(CATEGORIES), parents)


def curate_photos(
    rules: Path, categories_by_image: dict[str, list[str]], **params: Any
) -> Curation:
    """A benchmark with a near and a far split of photos, curated.

    Args:
        rules: The class mapping.
        categories_by_image: The categories of the objects of each photo.
        params: Further parameters of the benchmark.
    """
    splits = {}
    for distance in ("near", "far"):
        split = {"dataset": "photos", "subset": "val", "distance": distance}
        splits[f"photos_{distance}"] = split
    checked = benchmark("b", {"id": "id", "rules": rules, "splits": splits, **params})
    return curate(checked, InMemory(photos=categories_by_image))


def fates(curation: Curation) -> dict[str, str]:
    return dict(zip(curation.fates.image_id, curation.fates.fate, strict=True))


def reasons(curation: Curation) -> dict[str, str]:
    return dict(zip(curation.fates.image_id, curation.fates.rule, strict=True))
