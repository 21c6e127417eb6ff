"""The known image that an image repeats, and the list of near-duplicates, on 2-D vectors."""

import csv
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.support.labelled import labelled, on_circle, write_embeddings, write_tables

from farther.errors import DataError
from farther.similarity import Lookalikes, not_embedded

ROOT = Path(__file__).parents[2]


def embed(
    folder: Path, dataset: str, subset: str, degrees: dict[str, float], model: str = "m"
) -> None:
    """Embeddings that point in the given directions."""
    write_embeddings(
        folder / dataset / subset, list(degrees), on_circle(list(degrees.values())), model
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    embed(tmp_path, "id", "train", {"id 0": 0, "id 90": 90})
    embed(tmp_path, "photos", "val", {"old 45": 45, "never drawn": 20})
    embed(tmp_path, "pool", "train", {"a 44": 44, "b 1": 1, "c 20": 20, "d 21": 21})
    return tmp_path


def lookalikes(folder: Path, degrees: float) -> Lookalikes:
    threshold = float(np.cos(np.deg2rad(degrees)))
    return Lookalikes(folder, [("id", "train")], {("photos", "val"): {"old 45"}}, threshold)


def test_an_image_repeats_what_lies_within_the_threshold_and_its_neighbour_is_an_id_image(folder):
    looks = lookalikes(folder, 3)
    near_split, near_id, alone = (
        looks.compare("pool", "train", name) for name in ("a 44", "b 1", "c 20")
    )
    assert (near_split.neighbour, near_split.repeats) == ("id 0", "photos val old 45")
    assert near_split.cosine == pytest.approx(np.cos(np.deg2rad(44)), abs=1e-6)
    assert near_id.repeats == "id train id 0"
    assert alone.repeats == ""


def test_an_image_that_was_taken_is_not_repeated(folder):
    looks = lookalikes(folder, 3)
    assert looks.compare("pool", "train", "d 21").repeats == ""
    looks.take("pool", "train", "c 20")
    assert looks.compare("pool", "train", "d 21").repeats == "pool train c 20"
    assert looks.compare("pool", "train", "d 21").neighbour == "id 0"


def test_of_equal_neighbours_the_first_by_name_counts_in_any_order_of_the_subsets(folder):
    embed(folder, "id", "more", {"copy": 0})
    for subsets in ([("id", "train"), ("id", "more")], [("id", "more"), ("id", "train")]):
        looks = Lookalikes(folder, subsets, {}, 0.9)
        assert looks.compare("pool", "train", "b 1").neighbour == "copy"


def test_an_image_without_an_embedding_looks_like_nothing(folder):
    looks = lookalikes(folder, 3)
    looks.take("pool", "train", "unreadable")
    assert looks.compare("pool", "train", "unreadable") is None


def test_embeddings_of_two_models_are_refused(folder):
    embed(folder, "pool", "train", {"a": 1}, model="other")
    with pytest.raises(DataError, match="run `embed` again"):
        lookalikes(folder, 3).compare("pool", "train", "a")


def test_what_is_not_embedded_is_named_once(folder):
    asked = [("id", "train"), ("id", "test"), ("moon", "val"), ("id", "test")]
    assert not_embedded(folder, asked) == ["id test", "moon val"]


def write_subset(folder: Path, dataset: str, names: list[str]) -> None:
    digests = [name.split()[-1] for name in names]
    write_tables(folder, labelled(dataset, {name: ["x"] for name in names}, digest=digests))


def test_the_command_lists_pairs_with_id_images_that_the_benchmark_leaves_out(folder, commands):
    artifacts = folder / "artifacts"
    embed(artifacts / "embeddings", "id", "train", {"used 0": 0, "unused 45": 45})
    embed(artifacts / "embeddings", "photos", "val", {"twin 45": 46, "copy 45": 45, "other 9": 80})
    write_subset(artifacts / "tables" / "id" / "train", "id", ["used 0", "unused 45"])
    write_subset(artifacts / "splits" / "b" / "train", "id", ["used 0"])
    write_subset(
        artifacts / "splits" / "b" / "photos_far", "photos", ["twin 45", "copy 45", "other 9"]
    )
    splits = {"photos_far": {"dataset": "photos", "subset": "val", "distance": "far"}}
    benchmark = {"id": "id", "rules": "r.yaml", "subsets": {"train": "train"}, "splits": splits}
    params = {"benchmarks": {"b": benchmark}, "stratify": {"duplicate": 0.9999, "wordnet": None}}
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    command = [commands / "farther", "benchmark", "duplicates", "b", "--cosine", "0.99"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lib")}
    done = subprocess.run(
        command, cwd=folder, env=environment, check=True, capture_output=True, text=True
    )
    rows = list(csv.DictReader(done.stdout.splitlines()))
    pairs = [
        (row["split"], row["image_id"], row["other_image_id"], row["same_file"]) for row in rows
    ]
    assert pairs[0] == ("train", "unused 45", "copy 45", "yes")
    assert sorted(pairs[1:]) == [
        ("photos_far", "twin 45", "copy 45", "yes"),
        ("train", "unused 45", "twin 45", "yes"),
    ]
    assert "3 pairs with a cosine of at least 0.99" in done.stderr
