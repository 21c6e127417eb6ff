"""Makes a dataset from images of another one, and its tables."""

from __future__ import annotations

from pathlib import Path

from farther.curation import TablesFolder
from farther.datasets import image_roots
from farther.datasets.coco import COCO
from farther.derived import Scenes, derived
from farther.incremental.keyed import write_record
from farther.params import DERIVED, section
from farther.pipeline.ingest import store
from farther.stage import run_stage
from farther.tables.documents import write_json
from farther.tables.folders import refuse_linked_folders

ARTIFACTS = Path("artifacts")
OUTPUT = DERIVED


def main(kind: str, name: str) -> None:
    """Reads `derived.KIND.NAME` and its images.

    Writes artifacts/derived/KIND/NAME and the tables of this dataset.
    """
    entry = section("derived", kind, name)
    cutouts = entry.get("cutouts") or {}
    if "root" in cutouts:
        refuse_linked_folders(cutouts["root"])
    params = derived(kind, name, entry)
    tables = TablesFolder(ARTIFACTS / "tables")
    dataset = params.images.dataset
    source, categories = params.images.read(tables)
    root = image_roots(section("datasets"), tables.path)[dataset]
    out = Path(DERIVED.format(kind, name))
    counts = params.write(Scenes(source, root, categories), out)
    write_json(ARTIFACTS / "counts" / kind / f"{name}.json", counts)

    annotations = (out / "annotations").iterdir()
    subsets = sorted(file.stem.removeprefix("instances_") for file in annotations)
    store(COCO(root=out, subset_names=tuple(subsets)), name)
    write_record(out)


if __name__ == "__main__":
    run_stage(main, OUTPUT)
