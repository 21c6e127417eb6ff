"""More of what is fuzzed: a whole project that was evaluated, and what its commands, its report and its tools read."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from hashlib import md5
from pathlib import Path
from zlib import crc32

import yaml
from mutate import files_in
from targets import (
    CODE,
    PARAMS,
    ROOT,
    TARGETS,
    VOC,
    changed,
    parquet,
    project,
    stage,
    target,
    write,
)

__all__ = ["TARGETS", "changed", "parquet"]

sys.path.insert(1, str(ROOT))

#: Files of an evaluated project that commands and report read, and that other targets do not
#: damage.
EVALUATED = (
    "artifacts/evaluation/*.json", "artifacts/choices/*.json", "artifacts/dials/*.json", "artifacts/metrics/*/*.json", "artifacts/metrics/*/*/m*.json",
    "artifacts/thresholds/*", "artifacts/fitted/*/knn/*.json", "artifacts/tables/*/*.json", "artifacts/splits/*/*.json", "artifacts/cost.json", "artifacts/times.json",
    "artifacts/counts/**/*", "artifacts/plots/similarity/**/*",
)  # fmt: skip

COMMANDS = (
    "summary", "explain number theirs msp wild_near auroc", "explain number theirs - - map", "explain number theirs knn wild_far fpr95",
    "explain image all0", "choose theirs", "choose theirs --max-misclassified 0.5", "explain uncertainty theirs", "compare --methods msp knn --run theirs",
    "compare earlier workspace", "doctor", "benchmark publish pets published --format coco",
)  # fmt: skip


def run(*words: str) -> None:
    """Runs a command of farther; its errors are raised."""
    from farther import params
    from farther.command import main

    params._cached_parse.cache_clear()
    assert main(["--traceback", *words]) in (0, 1), words


def evaluated() -> None:
    """A project whose stages have run, with what the stage `stratify` counts, and an earlier copy of its metrics."""
    project("report")
    split = {
        "images": 6,
        "similarity": 0.9,
        "median": 0.9,
        "low": 0.8,
        "high": 0.95,
        "elsewhere": 0,
    }
    counts = {"similarity": {"ID": 0.9, "near_duplicates": 0}, "wild_near": split}
    write({"artifacts/counts/similarity/pets.json": counts})
    write(
        {"artifacts/plots/similarity/pets.csv": "split,similarity,fraction\nwild_near,0.5,0.25\n"}
    )
    one = {"passes": {}, "bytes": 40.0}
    cost = {"passes": {}, "methods": {"msp": one, "knn": one}}
    times = {
        "keys": {"": "x"},
        "detector": 9.5,
        "passes": {},
        "proposals": {},
        "methods": {"msp": 0.1, "knn": 0.1},
    }
    write({"artifacts/cost.json": {"images": 4, "runs": {"theirs": cost}}})
    write(
        {
            "artifacts/times.json": {
                "machine": {"processor": "x", "gpu": None},
                "runs": {"theirs": times},
            }
        }
    )
    for file in sorted(Path("artifacts/metrics").rglob("*.json")):
        write({str(Path("earlier", file)): file.read_bytes()})


@target("commands", evaluated, *EVALUATED, "earlier/**/*", "params.yaml", share=0.3)
def commands() -> None:
    """The commands in an order that the damage chooses, up to the first that refuses it."""
    files = sorted(
        p for p in files_in(Path()) if p.is_file() and not p.is_symlink() and p.stat().st_nlink == 1
    )
    files = [p for p in files if p.stat().st_size < 10**8]
    first = crc32(b"".join(file.read_bytes() for file in files)) % len(COMMANDS)
    for command in (*COMMANDS[first:], *COMMANDS[:first]):
        run(*command.split())


@target("report_files", evaluated, *EVALUATED, share=0.15)
def report_files() -> None:
    stage("report")


def leaderboard_files() -> None:
    from tests.report.test_leaderboard import BEST, WORSE, write_project

    write_project(Path("theirs"), {"msp": BEST, "knn": WORSE})


@target(
    "leaderboard", leaderboard_files, "theirs/dvc.lock", "theirs/artifacts/metrics/**/*", share=0.3
)
def leaderboard() -> None:
    """Metrics and dvc.lock of a project. Metrics that do not have the digest in dvc.lock are seldom read on, so it is corrected."""
    metrics, lock = Path("theirs/artifacts/metrics/voc-a"), Path("theirs/dvc.lock")
    files = [file for file in files_in(metrics) if file.suffix == ".json" and file.is_file()]
    texts = {file.relative_to(metrics).as_posix(): file for file in files if not file.is_symlink()}
    listed = [
        {"md5": md5(file.read_bytes()).hexdigest(), "relpath": name}
        for name, file in sorted(texts.items())
    ]
    found = md5(json.dumps(listed).encode()).hexdigest().encode()
    if lock.is_file() and not lock.is_symlink():
        lock.write_bytes(
            re.sub(rb'(metrics/voc-a", "md5": ")[0-9a-f]{32}', rb"\g<1>" + found, lock.read_bytes())
        )
    run("benchmark", "leaderboard", "theirs")


def wordnet_files() -> None:
    from tests.similarity.tiny_wordnet import write as write_wordnet

    write_wordnet(Path("dict"))


@target("wordnet", wordnet_files, share=0.7, links=False)
def wordnet() -> None:
    from farther.datasets.wordnet import WordNet

    names = WordNet("dict")
    names.nearest("couch", ["dog", "zebra", "television set"])
    names.nearest("oxen", ["fox", "n00000123", "light.n.01"])
    names.similarity("entity", "frank")


def init_files() -> None:
    project("ingest")
    Path("dvc.yaml").unlink()
    write({"made/dvc.yaml": ""})


def init_folders_files() -> None:
    """The same with YOLO and VOC folders."""
    rows = [
        {
            "image_id": "a",
            "category_id": 0,
            "bbox": [1, 2, 3, 4],
            "score": 0.5,
            "logits": [0.1, 0.2],
        }
    ]
    write({
        "pets/data.yaml": "path: .\ntrain: images/train\nval: images/val\nnames: {0: cat, 1: dog}\n", "pets/labels/train/a.txt": "0 0.5 0.5 0.2 0.2\n",
        "pets/labels/val/b.txt": "1 0.4 0.4 0.2 0.1\n", "pets/images/train/a.jpg": (40, 30), "pets/images/val/b.jpg": (40, 30),
        "wild/Annotations/a.xml": VOC, "wild/JPEGImages/a.jpg": (40, 30), "results.json": rows, "made/dvc.yaml": "",
    })  # fmt: skip


@target("init", init_files, "pets/**/*", "wild/**/*", "results.json", share=0.5)
@target("init_folders", init_folders_files, share=0.5)
def init() -> None:
    """A new project for folders that are recognised."""
    from farther.projects import Lookup, init

    init("made", "pets", ["wild"], ["results.json"], Lookup.open(ROOT / "data")).write()


NAMED = "tv: {coco: [tv]}\n"
PROJECT = {
    "params.yaml": "datasets: {}\n",
    "dvc.yaml": "stages: {}\n",
    "data/names/classes.yaml": NAMED,
}


@target("profile", lambda: write(PROJECT), "params.yaml", "dvc.yaml", "data/**/*", share=0.2)
def profile() -> None:
    run("benchmark", "profile")
    run("benchmark", "profile", "fmiyc", "--force")


DERIVED = {
    "paste": {"pasted": {
        "images": {"dataset": "pets", "subset": "test"}, "rules": "rules.yaml", "vocabulary": "wild",
        "cutouts": {"source": "masks", "root": "wild", "annotations": "annotations/instances_all.json", "images": "all", "smallest": 1},
    }},
    "corrupt": {"shifted": {"images": {"dataset": "pets", "subset": "test"}, "corruptions": ["contrast"], "severities": [1]}},
    "blank": {},
}  # fmt: skip


def derive_files() -> None:
    import json

    project("curate")
    path = Path("wild/annotations/instances_all.json")
    content = json.loads(path.read_text())
    for number, row in enumerate(content["annotations"]):
        row |= {"area": 300.0, "iscrowd": 0, "segmentation": [[5, 6, 22, 7, 20, 19, 6, 18]]}
        if number % 3 == 1:
            row["segmentation"] = {"size": [30, 40], "counts": [250, 10, 300, 10, 630]}
    for image in content["images"]:
        image |= {"width": 40, "height": 30}
    write({str(path): content})
    write({"params.yaml": yaml.safe_dump({**PARAMS, "derived": DERIVED}, sort_keys=False)})


@target(
    "derive",
    derive_files,
    "artifacts/tables/pets/**/*",
    "wild/**/*",
    "pets/test/*",
    "rules.yaml",
    share=0.7,
)
def derive() -> None:
    """Objects cut out by their outlines and pasted; corrupted images."""
    stage("derive", "paste", "pasted")


def candidates_files() -> None:
    project("curate")
    enrich = {"pets": {"pools": [{"dataset": "wild", "subset": "all"}]}}
    benchmark = PARAMS["benchmarks"]["pets"]
    splits = {
        name: {**split, "candidates": "data/candidates/c.csv"}
        for name, split in benchmark["splits"].items()
    }
    other = {"enrich": enrich, "benchmarks": {"pets": {**benchmark, "splits": splits}}}
    heads = "dataset,subset,image_id,distance,category,shown,neighbour,similarity\n"
    write({"params.yaml": yaml.safe_dump({**PARAMS, **other}, sort_keys=False)})
    write(
        {
            "data/candidates/c.csv": heads
            + "wild,all,all0,near,lynx,1,,\nwild,all,all1,far,kite,1,,\n"
        }
    )


@target(
    "candidates",
    candidates_files,
    "artifacts/tables/**/*",
    "data/candidates/c.csv",
    "rules.yaml",
    "params.yaml",
    share=0.5,
)
def candidates() -> None:
    """Pools that candidates are chosen from, and the list of those that are used."""
    stage("curate")
    stage("enrich", "pets")


def csv_files() -> None:
    lines = ["file,xmin,ymin,xmax,ymax,class,score"]
    for file, label, score, (x, y, w, h) in _found():
        lines.append(f"{file},{x},{y},{x + w},{y + h},{label},{score:.4f}")
    write({"found/all.csv": "\n".join(lines)})


def yolo_text_files() -> None:
    lines: dict[str, str] = {}
    for file, label, score, (x, y, w, h) in _found():
        place = [f"{v:.6f}" for v in ((x + w / 2) / 40, (y + h / 2) / 30, w / 40, h / 30)]
        name = f"found/{Path(file).stem}.txt"
        lines[name] = (
            lines.get(name, "") + f"{('cat', 'dog').index(label)} {' '.join(place)} {score:.4f}\n"
        )
    write({"found/classes.txt": "cat\ndog\n", **lines})


def fiftyone_files() -> None:
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


def scored_files() -> None:
    write({"found/all.json": _as_coco()})


def numbered_files() -> None:
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


def _of_other_formats(name: str, build: Callable[[], None], run: str) -> None:
    target(name, build, "found/*", "annotations.json", share=0.5, compared=True)(
        lambda: stage("infer", run)
    )


_of_other_formats("detections_csv", csv_files, "pixels")
_of_other_formats("detections_text", yolo_text_files, "fractions")
_of_other_formats("detections_fiftyone", fiftyone_files, "fractions")
_of_other_formats("detections_scored", scored_files, "pixels")
_of_other_formats("detections_numbered", numbered_files, "pixels")
