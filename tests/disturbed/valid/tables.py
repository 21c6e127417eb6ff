"""Tables and states of farther, and what reads them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np


def regions(count: int = 40, images: int = 10, **more: Any) -> Any:
    from farther.tables import Regions

    chance, rows = np.random.default_rng(5), np.arange(count)
    boxes = np.tile([1.0, 1, 12, 13], (count, 1)) + chance.random((count, 1))
    weight = chance.normal(size=(3, 4)).astype(np.float32)
    features = np.abs(chance.normal(size=(count, 4))).astype(np.float32)
    logits = features @ weight.T
    return Regions(
        image_id=[f"i{n * images // count}" for n in rows], region_id=rows, box=boxes, score=0.3 + 0.6 * chance.random(count), label=rows % 3, logits=logits,
        features=features, latent=chance.random((count, 3)), **{"latent.layer2": chance.random((count, 2)), "classes": ("cat", "dog", "fox"), "weight": weight, "bias": np.zeros(3)}, **more,
    )  # fmt: skip


def images(count: int = 10) -> Any:
    from farther.tables import Images

    names, files = (
        [f"{start}{n}{end}" for n in range(count)] for start, end in (("i", ""), ("", ".png"))
    )
    sizes = {"width": [40] * count, "height": [30] * count}
    return Images(image_id=names, dataset=["d"] * count, file=files, digest=["x"] * count, **sizes)


def objects(count: int = 10) -> Any:
    from farther.tables import Objects

    names, boxes = [f"i{n}" for n in range(count)], np.tile([1, 1, 12, 13], (count, 1))
    return Objects(
        image_id=names, object_id=range(count), box=boxes, category=["cat", "elk"] * (count // 2)
    )


def write_tables() -> None:
    images().write("images.parquet")
    objects().write("objects.parquet")


def read_tables() -> None:
    from farther.tables import Images, Objects

    found, rows = Images.read("images.parquet"), Objects.read("objects.parquet")
    assert len(found.columns()) == 6 and rows.box.shape == (len(rows), 4)


def write_regions() -> None:
    regions().write("r")


def read_regions() -> None:
    from farther.tables import Regions, RegionsFolder, scan_regions

    folder = RegionsFolder("r")
    list(folder.above(0.4).batches())
    Regions.read("r")
    scan_regions("r", min_score=0.5, columns=["image_id", "score"]).collect()


def write_embeddings() -> None:
    from farther.similarity.embeddings import Embeddings, EmbeddingsWriter, NameEmbeddings

    vectors = np.eye(8, dtype=np.float32)
    writer = EmbeddingsWriter("e", {"model": "x"}, ".work", "key")
    writer.write_shard(0, Embeddings(image_id=[f"i{n}" for n in range(8)], embedding=vectors), 8)
    writer.close(1)
    NameEmbeddings(name=[f"n{n}" for n in range(8)], embedding=vectors).write("names.parquet")


def read_embeddings() -> None:
    from farther.similarity.embeddings import EmbeddingsFolder, NameEmbeddings

    EmbeddingsFolder("e").read()
    NameEmbeddings.read("names.parquet")


def write_fitted() -> None:
    from farther.errors import FartherError
    from farther.methods.base import METHODS

    chance = np.random.default_rng(2)
    found = {
        name: chance.random(40)
        for name in ("uncertainty", "predictive_entropy", "mutual_information")
    }
    more = {**found, "box_variance": chance.random((40, 4)), "gram.layer2": chance.random((40, 10))}
    known = {
        "gram": {"layer": ("layer2",)},
        "temperature_scaling": {"temperature": 2.0},
        "imported": {"file": "a.csv"},
        "fused": {"of": ["energy", "knn"]},
        "cascade": {"first": "energy", "then": "knn"},
    }
    for name in METHODS.names():
        with suppress(FartherError):
            method = METHODS.create(name, **known.get(name, {})).fit(regions(**more))
            if method.wants_pass:
                method.learn_pass(regions(**more), regions(**more))
            method.save(name)
    regions(**more)[::4].write(".regions")


def read_fitted() -> None:
    """Fitted states; in half of the cases with the right digest, as of a folder that was changed on purpose."""
    from farther.methods import loading
    from farther.tables import Regions

    rows = Regions.read(".regions")
    for folder in changed():
        loading.not_applicable(folder)
        loading.load(folder).score(rows)


def changed() -> list[Path]:
    """The folders in the current one with a file that is not shared with the valid one."""
    found = (
        path
        for path in Path().glob("*/*")
        if path.is_symlink() or not path.is_file() or path.stat().st_nlink == 1
    )
    return sorted({path.parent for path in found})
