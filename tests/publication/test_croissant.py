"""The description in Croissant, as `mlcroissant` reads it."""

import hashlib
import json

import pyarrow.parquet as pq
from tests.publication.conftest import SPLITS, shard_files


def test_croissant_names_every_file_with_its_size_and_content(hub):
    content = json.loads((hub / "croissant.json").read_text())
    assert content["conformsTo"] == "http://mlcommons.org/croissant/1.0"
    listed = [part for part in content["distribution"] if part["@type"] == "cr:FileObject"]
    assert {part["contentUrl"] for part in listed} == {
        path.relative_to(hub).as_posix() for path in hub.rglob("*.parquet")
    }
    for part in listed:
        held = (hub / part["contentUrl"]).read_bytes()
        assert part["sha256"] == hashlib.sha256(held).hexdigest()
        assert part["contentSize"] == f"{len(held)} B"


def test_mlcroissant_accepts_the_description_and_reads_the_records(hub, monkeypatch):
    import mlcroissant

    warnings = []
    monkeypatch.setattr("absl.logging.warning", lambda text, *_: warnings.append(text))
    dataset = mlcroissant.Dataset(jsonld=hub / "croissant.json")
    assert dataset.metadata.issues.errors == set()
    assert not [text for text in warnings if "not standard" in text]
    for split in SPLITS:
        (row,) = dataset.records(split)
        assert list(row) == [
            f"{split}/{column}" for column in pq.read_schema(shard_files(hub, split)[0]).names
        ]
        assert (row[f"{split}/image"].size, row[f"{split}/width"]) == ((64, 48), 64)
    names = [one["open_far-categories/name"] for one in dataset.records("open_far-categories")]
    assert names == ["Animal", "Goat"]
