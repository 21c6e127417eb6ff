"""Makes a dataset from images of another one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from farther.curation import TablesFolder
from farther.datasets import image_roots
from farther.derived import Scenes, derived
from farther.errors import Finding, refused
from farther.params import section
from farther.stage import run_stage
from farther.tables.documents import write_json

if TYPE_CHECKING:
    from farther.pipeline.inspection import Inspection

ARTIFACTS = Path("artifacts")
OUTPUT = "artifacts/derived/{}/{}"


def main(kind: str, name: str) -> None:
    """Reads `derived.KIND.NAME` and the images that it names; writes artifacts/derived/KIND/NAME."""
    params = derived(kind, name, section("derived", kind, name))
    tables, dataset = TablesFolder(ARTIFACTS / "tables"), params.images.dataset
    source, categories = params.images.read(tables)
    root = image_roots({dataset: section("datasets", dataset)}, tables.path)[dataset]
    scenes = Scenes(source, root, categories)
    summary = params.write(scenes, ARTIFACTS / "derived" / kind / name)
    write_json(ARTIFACTS / "counts" / kind / f"{name}.json", summary)
    print(f"{name}: {summary['images']} images")


def check(project: Inspection) -> Iterator[Finding]:
    """Entries of `derived`."""
    for kind, entries in project.section("derived").items():
        for name, values in (entries or {}).items():
            yield from refused(f"derived.{kind}.{name}", partial(derived, kind, name, values))


if __name__ == "__main__":
    run_stage(main, OUTPUT)
