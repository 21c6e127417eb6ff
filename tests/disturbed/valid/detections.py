"""Projects of a run of imported detections, in formats of others."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from tests.disturbed.valid.files import write
from tests.disturbed.valid.projects import CODE, PARAMS, project


def csv() -> None:
    lines = ["file,xmin,ymin,xmax,ymax,class,score"]
    for file, label, score, (x, y, w, h) in _found():
        lines.append(f"{file},{x},{y},{x + w},{y + h},{label},{score:.4f}")
    write({"found/all.csv": "\n".join(lines)})


def yolo_text() -> None:
    lines: dict[str, str] = {}
    for file, label, score, (x, y, w, h) in _found():
        place = [f"{v:.6f}" for v in ((x + w / 2) / 40, (y + h / 2) / 30, w / 40, h / 30)]
        name = f"found/{Path(file).stem}.txt"
        lines[name] = (
            lines.get(name, "") + f"{('cat', 'dog').index(label)} {' '.join(place)} {score:.4f}\n"
        )
    write({"found/classes.txt": "cat\ndog\n", **lines})


def fiftyone() -> None:
    samples: dict[str, list] = {}
    for file, label, score, (x, y, w, h) in _found():
        box = [x / 40, y / 30, w / 40, h / 30]
        samples.setdefault(file, []).append(
            {"label": label, "bounding_box": box, "confidence": score}
        )
    made = [
        {"filepath": f"data/{file}", "model": {"detections": rows}}
        for file, rows in samples.items()
    ]
    write({"found/samples.json": {"samples": made}})


def scored() -> None:
    write({"found/all.json": _as_coco()})


def numbered() -> None:
    """COCO results whose numbers a COCO file explains."""
    made = _as_coco()
    write(
        {
            "found/results.json": made.pop("annotations"),
            "annotations.json": {**made, "annotations": []},
        }
    )
    params = {"classes": ["cat", "dog"], "annotations": "annotations.json", "score_tolerance": None}
    entry = {
        "adapter": "coco_results",
        "benchmark": "pets",
        "weights": "found/results.json",
        "params": params,
    }
    write({"params.yaml": yaml.safe_dump({**PARAMS, "detectors": {"pixels": entry}})})
    write({"artifacts/code.json": CODE})


def _as_coco() -> dict[str, list]:
    rows = _found()
    files = list(dict.fromkeys(file for file, *_ in rows))
    found = [
        {
            "id": n,
            "image_id": files.index(file),
            "category_id": ("cat", "dog").index(label),
            "bbox": box,
            "score": score,
        }
        for n, (file, label, score, box) in enumerate(rows)
    ]
    classes = [{"id": k, "name": name} for k, name in enumerate(("cat", "dog"))]
    described = [{"id": k, "file_name": file} for k, file in enumerate(files)]
    return {"images": described, "annotations": found, "categories": classes}


def _found() -> list[tuple[str, str, float, list[int]]]:
    """A project with a run of the adapter `detections`; file, class, score and box of each detection."""
    project("infer")
    rows = json.loads(Path("results.json").read_text())
    Path("results.json").unlink()
    params = {
        "classes": ["cat", "dog"],
        "categories": {0: "cat", 1: "dog"},
        "score_tolerance": None,
    }
    entry = {"adapter": "detections", "benchmark": "pets", "weights": "found", "params": params}
    fractional = {**entry, "params": {**params, "fractions": True}}
    write(
        {
            "params.yaml": yaml.safe_dump(
                {**PARAMS, "detectors": {"pixels": entry, "fractions": fractional}}
            )
        }
    )
    write({"artifacts/code.json": {**CODE, "infer": {"detections": "x"}}})
    return [(f"{r['image_id']}.png", r["category_id"], r["score"], r["bbox"]) for r in rows]
