"""Puts objects of unknown classes into ID scenes: `python stages/synthesize.py voc_pasted`."""

import sys
from pathlib import Path

from farther.curation import Rules, TablesFolder
from farther.datasets import image_roots
from farther.params import section
from farther.tables.files import write_json
from farther.tools.derived import ScenesOfID, create, generate, synthetic, unknowns

ARTIFACTS = Path("artifacts")


def main(name: str) -> None:
    """Reads `synthetic.NAME`, its scenes and cut-outs; writes artifacts/synthetic/NAME."""
    params = synthetic(name, section("synthetic", name))
    tables, dataset = TablesFolder(ARTIFACTS / "tables"), params.scenes.dataset
    source = tables.source(dataset, params.scenes.subset).at_most(params.scenes.most)
    root = image_roots({dataset: section("datasets", dataset)}, tables.path)[dataset]
    scenes = ScenesOfID(source, root, tables.categories(dataset).names)
    rules = Rules(params.rules, params.protocol)
    unknown = unknowns(create(**params.cutouts).read(), rules, params.vocabulary, params.categories)
    summary = generate(params, scenes, unknown, ARTIFACTS / "synthetic" / name)
    write_json(ARTIFACTS / "counts" / "synthetic" / f"{name}.json", summary)
    print(f"{name}: {summary['pasted']} objects in {summary['images']} of {summary['scenes']} scenes")


if __name__ == "__main__":
    main(*sys.argv[1:])
