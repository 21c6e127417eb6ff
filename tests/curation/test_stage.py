"""The stage script, run as the pipeline runs it."""

import os
import subprocess
from pathlib import Path

import yaml
from tests.support.labelled import labelled, write_tables

from farther.tables import Images, Objects
from farther.tables.documents import read_json, write_json

ROOT = Path(__file__).parents[2]


def ingest(folder: Path, dataset: str, subset: str, categories: list[str]) -> None:
    """One image for each category."""
    shown = {f"{dataset}-{subset}-{i}": [category] for i, category in enumerate(categories)}
    write_tables(folder / dataset / subset, labelled(dataset, shown))
    write_json(
        folder / dataset / "categories.json", {"categories": sorted(set(categories)), "parents": {}}
    )


def test_the_stage_writes_the_splits_and_flat_counts(tmp_path, commands):
    tables = tmp_path / "artifacts" / "tables"
    for subset in ("train", "val", "test"):
        ingest(tables, "voc", subset, ["dog", "person"])
    ingest(tables, "coco", "val2017", ["dog", "zebra", "kite", "kite", "spoon"])
    splits = {
        f"coco_{d}": {"dataset": "coco", "subset": "val2017", "distance": d}
        for d in ("near", "far")
    }
    section = {"id": "voc", "rules": str(ROOT / "data/benchmarks/voc.yaml"), "splits": splits}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"benchmarks": {"voc": section}}))
    command = [commands / "python", ROOT / "stages" / "curate.py"]
    subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "lib")}, check=True
    )
    written = tmp_path / "artifacts" / "splits" / "voc"
    assert list(Images.read(written / "coco_near" / "images.parquet").image_id) == [
        "coco-val2017-1"
    ]
    assert list(Objects.read(written / "coco_far" / "objects.parquet").category) == ["kite", "kite"]
    assert len(Images.read(written / "test" / "images.parquet")) == 2
    counts = read_json(tmp_path / "artifacts" / "counts" / "curate" / "voc.json")
    assert (counts["coco_near.images"], counts["coco_far.images"], counts["removed.images"]) == (
        1,
        2,
        2,
    )
    assert all(isinstance(count, int) for count in counts.values())
    roles = read_json(written / "roles.json")
    assert ["aeroplane", "bird"] in roles["similar"]


def test_wild_images_of_the_elephant_show_none_of_vocs_classes(tmp_path, commands):
    tables = tmp_path / "artifacts" / "tables"
    for subset in ("train", "test"):
        ingest(tables, "voc", subset, ["dog", "person"])
    ingest(tables, "coco", "train2017", ["couch", "zebra", "spoon", "tv", "fire hydrant"])
    (tmp_path / "params.yaml").write_text((ROOT / "profiles/elephant.yaml").read_text())
    (tmp_path / "data").symlink_to(ROOT / "data")
    command = [commands / "python", ROOT / "stages" / "curate.py"]
    subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "lib")}, check=True
    )
    objects = Objects.read(tmp_path / "artifacts/splits/voc/coco_wild/objects.parquet")
    assert list(objects.category) == ["zebra", "spoon", "fire hydrant"]
