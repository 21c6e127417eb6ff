"""Writes the dataset `voc_unknown`: `python training/stages/unknown.py`.

It has the scenes of `voc` with further objects, labelled "unknown". These are OpenMoji drawings
that the demo world uses nowhere, so that no OOD dataset shows them.
"""

import shutil
from pathlib import Path

from farther import datasets
from farther.curation import TablesFolder
from farther.datasets import image_roots
from farther.datasets.ingest import ingest
from farther.derived import Scenes, derived
from farther.errors import DataError
from farther.params import section
from farther.stage import run_stage
from farther.tables.documents import read_yaml
from farther.tables.writing import write_aside
from farther_demo.drawings import Drawing, Piece, catalogue, sprite

ARTIFACTS = Path("artifacts")
TRAINING = Path("training")
NAME = "voc_unknown"
SUBSETS = ("train", "val", "test")


def main() -> None:
    """Reads `unknown` of training/params.yaml and the tables of `voc`.

    Writes the dataset and its tables.
    """
    params = section("unknown", file=TRAINING / "params.yaml")
    out = ARTIFACTS / "train_data" / NAME
    cutouts = out.with_name("cutouts")
    write_cutouts(Path(params["drawings"]), params["cutout_size"], cutouts)
    tables = TablesFolder(ARTIFACTS / "tables")
    root = image_roots(section("datasets"), tables.path)["voc"]
    with write_aside(out) as aside:
        (aside / "annotations").mkdir(parents=True)
        for subset in SUBSETS:
            paste = derived("paste", NAME, {
                "images": {"dataset": "voc", "subset": subset},
                "rules": params["rules"],
                "vocabulary": "coco",
                "cutouts": {"source": "folder", "root": cutouts},
                "seed": params["seed"],
                "pasting": params["pasting"],
            })  # fmt: skip
            source, categories = paste.images.read(tables)
            dataset = aside / "made"
            paste.write(Scenes(source, root, categories), dataset)
            shutil.move(dataset / "pasted", aside / subset)
            shutil.move(
                dataset / "annotations/instances_pasted.json",
                aside / f"annotations/instances_{subset}.json",
            )
            shutil.rmtree(dataset)
    reader = datasets.create("coco", root=str(out), subset_names=list(SUBSETS))
    summary = ingest(reader, NAME, ARTIFACTS / "tables" / NAME)
    counts = [f"{subset} {objects}" for subset, objects in summary.items()]
    print(f"{NAME}: {', '.join(counts)}")


def write_cutouts(file: Path, size: int, folder: Path) -> None:
    """Writes the drawings that a file lists as cut-outs of one category.

    Their files are `folder/unknown/<name>.png`.

    Raises:
        DataError: the demo world uses a drawing, or has a concept of its name: test images would
            show it.
    """
    drawings = read_yaml(file)
    demo_art = _demo_art()
    in_demo = []
    for name, art in sorted(drawings.items()):
        if art in demo_art or name.replace(" ", "_") in catalogue():
            in_demo.append(name)
    if in_demo:
        raise DataError(f"the demo world shows {', '.join(in_demo)}: choose others", file=file)
    with write_aside(folder) as aside:
        (aside / "unknown").mkdir(parents=True)
        for name, art in drawings.items():
            drawing = Drawing("unknown", (Piece(art),))
            sprite(drawing, size).save(aside / "unknown" / f"{name}.png")


def _demo_art() -> set[str]:
    """Names of all OpenMoji drawings that the demo world uses."""
    art = set()
    for concept in catalogue().values():
        for drawing in concept.train + concept.test:
            art.update(piece.art for piece in drawing.pieces)
    return art


if __name__ == "__main__":
    run_stage(main, "artifacts/tables/voc_unknown")
