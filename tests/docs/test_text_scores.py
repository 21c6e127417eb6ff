"""Text scores as docs/methods.md explains them, with boxes alone and an untrained CLIP."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from tests.docs.pages import Page
from tests.similarity.conftest import write_clip
from tests.stages.in_process import OF_RUN, run

from farther.command import main
from farther.evaluation.paired import StoredEvaluation
from farther.tables import Images, Objects

ROOT = Path(__file__).parents[2]
PAGE = Page("methods.md")
KINDS = "thing: {animal: [cat, dog, fox], scenery: [cloud, hill, lake], tool: [hammer, saw]}"


def split(
    root: Path, name: str, seed: int, categories: tuple[str, ...], count: int = 8
) -> list[dict[str, Any]]:
    """Writes a split of images with one object each; returns what a detector finds in them."""
    rng = np.random.default_rng(seed)
    names = [f"{name}{n}" for n in range(count)]
    (root / "images").mkdir(exist_ok=True)
    for one in names:
        Image.fromarray(rng.integers(0, 256, (40, 60, 3), np.uint8)).save(
            root / f"images/{one}.png"
        )
    folder = root / "artifacts/splits/pets" / name
    columns = {
        "file": [f"{one}.png" for one in names],
        "width": [60] * count,
        "height": [40] * count,
        "digest": names,
    }
    Images(image_id=names, dataset=["photos"] * count, **columns).write(folder / "images.parquet")
    box, category = (
        np.tile([10.0, 5.0, 40.0, 30.0], (count, 1)),
        [categories[n % len(categories)] for n in range(count)],
    )
    objects = Objects(image_id=names, object_id=np.arange(count), box=box, category=category)
    objects.write(folder / "objects.parquet")
    known = [one if one in ("cat", "dog") else "cat" for one in category]
    return [
        {
            "image_id": names[n],
            "category_id": known[n],
            "bbox": [10, 5, 30, 25],
            "score": 0.5 + rng.uniform() / 3,
        }
        for n in range(count)
    ]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder as `curate` leaves it, with the page's parameters, the detections and a CLIP."""
    found = [
        split(tmp_path, name, seed, ("cat", "dog"))
        for seed, name in enumerate(("train", "val", "test"))
    ]
    found.append(split(tmp_path, "far", 3, ("fox", "cloud")))
    (tmp_path / "artifacts/splits/pets/id_classes.json").write_text('["cat", "dog"]')
    (tmp_path / "artifacts/splits/pets/roles.json").write_text('{"test": ["far"]}')
    (tmp_path / "detections").mkdir()
    (tmp_path / "detections/ours.json").write_text(
        json.dumps([row for of_split in found for row in of_split])
    )
    write_clip(tmp_path / "data/weights/clip")
    (tmp_path / "kinds.yaml").write_text(KINDS)
    (tmp_path / "rules.yaml").write_text("id_classes: {cat: {}, dog: {}}\nprotocols: {paper: {}}\n")
    params: dict[str, Any] = {
        "datasets": {"photos": {"format": "coco", "root": "images"}},
        "benchmarks": {
            "pets": {
                "id": "photos",
                "rules": "rules.yaml",
                "splits": {"far": {"dataset": "photos", "subset": "val", "distance": "far"}},
            }
        },
        "inference": {"workers": 0},
        "threshold": {"rule": 0.3},
        "fit": {},
        "scoring": {},
        "evaluate": {"replicates": 100, "kept": [0.95], "confidences": [0.5]},
        "deploy": {"max_false_alarms": 0.02},
    }
    for word in ("local-dir", "mcm_on_crops"):
        params |= yaml.safe_load(PAGE.block("yaml", word))
    params["methods"]["knn_on_crops"]["k"] = 3
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    of_methods = dict.fromkeys(("confidence", "mcm", "neg_label", "knn", "mahalanobis"), "-")
    files = {"methods": of_methods | dict.fromkeys(params["methods"], "-"), "evaluate": "-"}
    code = {"fit": of_methods, "score": of_methods, "evaluate": "-", "choose": "-"}
    (tmp_path / "artifacts/code.json").write_text(
        json.dumps({"kept": code, "files": files, "choose": "-"})
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_boxes_alone_get_text_scores_and_what_they_gain_over_the_confidence(project, capsys):
    (command,) = (
        line for text in PAGE.blocks("bash") for line in text.splitlines() if "negatives" in line
    )
    words = shlex.split(command.replace("data/wordnet/dict", "kinds.yaml"))[1:]
    assert main(words) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Leaks: 2 prompts name one of the 2 categories of the OOD test splits" in printed
    run(project, "infer ours", *(f"{stage} ours" for stage in OF_RUN))
    results = StoredEvaluation(project / "artifacts", "ours").results
    gains = results.table.frame.filter(part="minus=confidence", metric="auroc")
    on_crops = {f"{name}_on_crops" for name in ("knn", "mahalanobis", "mcm", "neg_label")}
    assert set(gains["method"]) == {"confidence", *on_crops}
    assert gains["value"].is_finite().all()
    fitted = results.description.fitted
    assert "test splits: cloud, fox" in fitted["neg_label_on_crops"].remarks[0]
    assert fitted["mcm_on_crops"].remarks == []
