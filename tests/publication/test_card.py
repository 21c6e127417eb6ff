"""The dataset card: its metadata, counts and answers."""

import json
import re
import shutil
from dataclasses import replace

import pyarrow.parquet as pq
from huggingface_hub import DatasetCard
from tests.publication.conftest import SPLITS, collect_publication, shard_files

from farther.publication import publish
from farther.tables.documents import write_json


def test_the_card_names_each_configuration_and_its_files_and_their_schema_names_the_classes(hub):
    card = DatasetCard.load(hub / "README.md")
    front = card.data.to_dict()
    assert (front["pretty_name"], front["license"]) == ("Not cats", "cc-by-4.0")
    assert front["size_categories"] == ["n<1K"]
    assert card.text.lstrip().startswith("# Not cats")
    assert [config["config_name"] for config in front["configs"]] == list(SPLITS)
    for config in front["configs"]:
        (files,) = config["data_files"]
        assert sorted(hub.glob(files["path"])) == shard_files(hub, config["config_name"])
    features = json.loads(pq.read_schema(shard_files(hub, "open_far")[0]).metadata[b"huggingface"])[
        "info"
    ]["features"]
    assert features["objects"][0]["category_id"] == {
        "names": ["Animal", "Goat"],
        "_type": "ClassLabel",
    }
    assert features["objects"][0]["bbox"] == [{"dtype": "float64", "_type": "Value"}]


def test_the_card_has_counts_and_marks_open_questions(hub):
    text = (hub / "README.md").read_text()
    assert "| `pool_far` | pool (val2017) | far | 1 | 2 | 1 |" in text
    assert "| pool (val2017) | removed | an ID class is labelled | 1 |" in text
    assert "Of 4 images there, 1 was removed." in text
    assert "2 objects are marked as groups (`iscrowd`) and 1 as difficult" in text
    assert "**Who paid for it?**\n\nA grant." in text
    assert "*Not answered yet (`contact`).*" in text
    assert not re.search(r"\{\w+\}", text)
    assert (
        "| a&#124;&lt;b&gt; | 2 | 1 |" in text
    )  # names from datasets neither end a cell nor become markup


def test_the_card_says_which_licences_are_known_and_which_are_not(project, hub, tmp_path):
    known = (hub / "README.md").read_text()
    assert "CC BY 2.0 (2 images), https://example.org/by (1 image)." in known
    assert "is not known" not in known
    publication = collect_publication(project)
    near, far, goats = publication.splits
    partly = replace(publication, splits=(near, far, replace(goats, credits={})))
    text = (publish(partly, tmp_path / "out", "huggingface") / "README.md").read_text()
    assert "The licence of 1 image is not known" in text


def test_similarity_is_told_where_it_was_measured(project, hub, tmp_path):
    assert "Similarity" not in (hub / "README.md").read_text()
    root = tmp_path / "project"
    shutil.copytree(project, root)
    figures = {
        "images": 1,
        "similarity": 0.75,
        "median": 0.7,
        "low": 0.5,
        "high": 0.9,
        "elsewhere": 0,
    }
    write_json(root / "artifacts/counts/similarity/pets.json", {"pool_near": figures})
    text = (
        publish(collect_publication(root), tmp_path / "out", "huggingface") / "README.md"
    ).read_text()
    assert "| `pool_near` | 0.750 | 0.700 | 0.500 | 0.900 |" in text
