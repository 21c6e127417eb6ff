"""Time of the stages, and size of the report, with many classes, OOD splits and methods.

    python benchmarks/wide.py DIR
        2,000 classes, 50 OOD splits, 60 methods and two runs; 2 GB of disk
    python benchmarks/wide.py DIR --classes 5 --splits 2 --methods 3 --images 40

The project is made in DIR, which must be empty. Its detections are drawn as those of
`full_size.py`, with features of 128 values and latents of 32, and imported.

Prints tables of the stages, of commands that read what is finished, and of the largest pages.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import full_size
import numpy as np
import yaml
from many import print_sizes
from PIL import Image

WIDTH = 128
LATENT = 32
#: The last layer's weights are so many times those of `full_size`: the largest of 2,000
#: probabilities would be small otherwise.
SHARPNESS = 4
#: Images of an OOD split, and categories of their objects.
OOD_IMAGES = 40
OOD_CATEGORIES = 4
#: Methods with their default parameters.
DEFAULTS = (
    *("confidence", "msp", "entropy", "gen", "mls", "energy", "ash", "cf_ood", "ddu"),
    *("dempster_shafer", "dice", "dice_react", "fdbd", "grad_uncertainty", "gradnorm", "grood"),
    *("kl_matching", "knn", "lard_gmm", "lard_kde", "lard_knn", "lard_mahalanobis", "lts"),
    *("mahalanobis", "nac_ue", "nci", "nnguide", "oodl", "openmax", "pnml", "react", "relation"),
    *("relative_mahalanobis", "residual", "scale", "she", "temperature_scaling", "vim", "vra"),
)


def class_names(count: int) -> list[str]:
    """Names of the known classes."""
    return [f"class {number}" for number in range(count)]


def split_names(count: int) -> list[str]:
    """Names of the OOD splits."""
    return [f"ood_{number}" for number in range(count)]


def methods(count: int) -> dict[str, dict[str, Any]]:
    """Entries of `count` methods: those of `DEFAULTS`, then kNN by its k."""
    entries: dict[str, dict[str, Any]] = {name: {} for name in DEFAULTS[:count]}
    for k in range(1, count - len(entries) + 1):
        entries[f"knn_{k}"] = {"method": "knn", "k": k}
    return entries


def write_datasets(folder: Path, options: argparse.Namespace) -> None:
    """Writes the ID dataset, and one whose subsets are the OOD splits."""
    known = class_names(options.classes)
    subsets = {
        ("known", "train"): (3 * options.images, known),
        ("known", "val"): (options.images, known),
        ("known", "test"): (options.images, known),
    }
    for name in split_names(options.splits):
        categories = [f"thing {name} {number}" for number in range(OOD_CATEGORIES)]
        subsets["unknown", name] = (OOD_IMAGES, categories)

    rng = np.random.default_rng(0)
    picture = Image.new("RGB", (full_size.WIDTH, full_size.HEIGHT), "gray")
    first_id = 1
    for (dataset, subset), (count, categories) in subsets.items():
        (folder / dataset / "annotations").mkdir(parents=True, exist_ok=True)
        image_ids = np.arange(first_id, first_id + count)
        full_size.write_images(folder / dataset / subset, image_ids, picture)
        document = full_size.annotation_document(image_ids, 4.0, categories, rng)
        file = folder / dataset / "annotations" / f"instances_{subset}.json"
        file.write_text(json.dumps(document))
        first_id += count


def write_project(project: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Writes stages, class mapping and parameters; returns the parameters."""
    params = full_size.write_project(project, scale=1)
    rules = {
        "id_classes": {name: {} for name in class_names(options.classes)},
        "protocols": {"paper": {"near": {"unknown": {}}}},
    }
    (project / "data/benchmarks/wide.yaml").write_text(yaml.safe_dump(rules))
    ood = split_names(options.splits)
    datasets = {}
    for name, subsets in {"known": ["train", "val", "test"], "unknown": ood}.items():
        datasets[name] = {"format": "coco", "root": f"images/{name}", "subset_names": subsets}
    splits = {name: {"dataset": "unknown", "subset": name, "distance": "far"} for name in ood}
    benchmark = {
        "id": "known",
        "rules": "data/benchmarks/wide.yaml",
        "subsets": {"train": "train", "val": "val", "test": "test"},
        "splits": splits,
    }
    detectors = {}
    for name in ("wide-a", "wide-b"):
        detectors[name] = {
            "adapter": "parquet",
            "benchmark": "wide",
            "weights": f"detections/{name}",
            "params": {"score_threshold": 0.05},
        }
    params |= {
        "datasets": datasets,
        "benchmarks": {"wide": benchmark},
        "review": {},
        "detectors": detectors,
        "methods": methods(options.methods),
        "report": {},
    }
    full_size.write_params(project, params)
    return params


def write_detections(project: Path, params: dict[str, Any], classes: list[str]) -> None:
    """Writes the regions of both runs."""
    full_size.LATENT = LATENT
    splits = project / "artifacts/splits/wide"
    for seed, entry in enumerate(params["detectors"].values()):
        network = full_size.Network.of(classes, WIDTH, seed)
        assert network.header.weight is not None
        weight = network.header.weight * np.float32(SHARPNESS)
        sharp = replace(network, header=replace(network.header, weight=weight))
        for folder in sorted(path for path in splits.iterdir() if path.is_dir()):
            full_size.write_split(folder, project / entry["weights"] / folder.name, sharp, seed)


def main() -> None:
    """Makes the project, runs its stages, and prints tables in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("project", type=Path)
    parser.add_argument("--classes", type=int, default=2000)
    parser.add_argument("--splits", type=int, default=50)
    parser.add_argument("--methods", type=int, default=60)
    parser.add_argument("--images", type=int, default=1000, help="in each of val and test")
    options = parser.parse_args()
    project = options.project.resolve()
    if project.exists() and any(project.iterdir()):
        sys.exit(f"{project}: not empty: delete it, or name another folder")

    write_datasets(project / "images", options)
    params = write_project(project, options)
    full_size.report(project, "Ingest and curate", "curate")
    write_detections(project, params, class_names(options.classes))
    full_size.report(project, "All stages", "report")
    print("\n| command | seconds | processor seconds |\n| --- | ---: | ---: |")
    for command in ("dvc repro report", "farther summary", "farther doctor --quick"):
        spent, _ = full_size.run(project, *command.split())
        print(f"| `{command}` | {spent.wall:.1f} | {spent.cpu:.1f} |", flush=True)
    print_sizes(project)


if __name__ == "__main__":
    main()
