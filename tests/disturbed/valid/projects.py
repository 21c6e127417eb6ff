"""Projects of two datasets and imported detections, and the stages and commands that read them."""

from __future__ import annotations

import json
import re
import runpy
from hashlib import md5
from pathlib import Path
from typing import Any
from zlib import crc32

import yaml
from tests.disturbed.damages import files_in
from tests.disturbed.valid.datasets import VOC
from tests.disturbed.valid.files import parquet, write
from tests.stages.in_process import OF_RUN

ROOT = Path(__file__).parents[3]

RULES = {
    "id_classes": {"cat": {"pets": ["cat"]}, "dog": {"pets": ["dog"]}},
    "protocols": {
        "paper": {"near": {"wild": {"cat": ["lynx"]}}},
        "strict": {"extends": "paper", "far": {"wild": ["kite"]}},
    },
}
PARAMS: dict[str, Any] = {
    "datasets": {
        "pets": {"format": "coco", "root": "pets", "subset_names": ["train", "val", "test"]},
        "wild": {"format": "coco", "root": "wild", "subset_names": ["all"]},
    },
    "benchmarks": {
        "pets": {
            "id": "pets", "rules": "rules.yaml", "decisions": "decisions.csv",
            "splits": {"wild_near": {"dataset": "wild", "subset": "all", "distance": "near"}, "wild_far": {"dataset": "wild", "subset": "all", "distance": "far"}},
        }
    },
    "derived": {"paste": {}, "corrupt": {}, "blank": {}},
    "enrich": {},
    "detectors": {
        "theirs": {"adapter": "coco_results", "benchmark": "pets", "weights": "results.json", "params": {"classes": ["cat", "dog"], "score_tolerance": None}},
        "rows": {"adapter": "parquet", "benchmark": "pets", "weights": "rows", "params": {"classes": ["cat", "dog"], "score_tolerance": None}},
    },
    "inference": {}, "threshold": {"rule": "best_f1"}, "fit": {}, "methods": {"confidence": {}, "msp": {}, "knn": {"k": 3}}, "scoring": {}, "embed": {}, "stratify": {}, "demo": {}, "cost": {}, "deploy": {"max_misclassified": 0.01},
    "evaluate": {"replicates": 100, "kept": [0.95], "confidences": [0.5]}, "report": {"examples": 0},
}  # fmt: skip
DECISIONS = """time,reviewer,dataset,subset,image_id,decision,id_class,note
2026-11-21T09:30:02.114Z,ann,wild,all,all0,remove,cat,behind the bus
2026-11-21T09:30:05.870Z,ann,wild,all,all1,near,,
2026-11-21T09:30:07.002Z,ann,wild,all,all1,undo,,
"""
SIMILARITY = {
    "animal": {"feline": {"cat": None, "lynx": None}, "dog": None, "bird": {"kite": None}}
}


def _photos(
    folder: str, subset: str, classes: tuple[str, ...], size: tuple[int, int]
) -> list[dict[str, Any]]:
    """A COCO subset of six images of one object each; returns detections of the objects."""
    boxes = {n: [4 + n, 5, 20, 15] for n in range(6)}
    described = [{"id": k, "name": name} for k, name in enumerate(classes)]
    name = f"{folder}/annotations/instances_{subset}.json"
    rows = [
        {"id": n, "image_id": f"{subset}{n}", "category_id": n % len(classes), "bbox": box}
        for n, box in boxes.items()
    ]
    pictures = [{"id": f"{subset}{n}", "file_name": f"{subset}{n}.png"} for n in boxes]
    write({name: {"images": pictures, "annotations": rows, "categories": described}})
    write({f"{folder}/{subset}/{subset}{n}.png": size for n in boxes})
    return [
        {"image_id": f"{subset}{n}", "category_id": ("cat", "dog")[(n + wrong) % 2], "bbox": box, "score": 0.9 - n / 20 - wrong / 2, "logits": [n / 3, 1.0 - wrong], "features": [n, 1.0, 2.0]}
        for n, box in boxes.items() for wrong in (0, 1)
    ]  # fmt: skip


def stage(name: str, *arguments: str) -> None:
    """Runs a stage's `main` in the current folder."""
    from farther import params

    params._cached_parse.cache_clear()
    runpy.run_path(str(ROOT / "stages" / f"{name}.py"))["main"](*arguments)


def project(until: str = "", size: tuple[int, int] = (40, 30)) -> None:
    """A project of two datasets and a run; its stages are run before the one named `until`.

    Args:
        until: The stage; all stages are run by default.
        size: Width and height of the images of `pets`.
    """
    found = [
        row
        for subset in ("train", "val", "test")
        for row in _photos("pets", subset, ("cat", "dog"), size)
    ]
    found += _photos("wild", "all", ("lynx", "kite"), (40, 30))
    rows = [{name: r[name] for name in ("image_id", "score", "logits")} for r in found]
    for row, r in zip(rows, found, strict=True):
        x, y = r["bbox"][:2]
        row |= {
            "box": [float(v) for v in (x, y, x + 20, y + 15)],
            "label": int(r["category_id"] == "dog"),
        }
    write({
        "results.json": found, "rows/a.parquet": parquet(rows), "rules.yaml": yaml.safe_dump(RULES), "decisions.csv": DECISIONS, "params.yaml": yaml.safe_dump(PARAMS, sort_keys=False),
        "names.yaml": "tv: {voc: [tvmonitor], coco: [tv], openimages: [Television, Computer monitor]}\ncat: {voc: [cat]}\n", "similarity.yaml": yaml.safe_dump(SIMILARITY),
    })  # fmt: skip
    Path("dvc.yaml").symlink_to(ROOT / "dvc.yaml")
    steps = {
        "ingest": (["pets"], ["wild"]),
        "curate": ([],),
        "infer": (["theirs"], ["rows"]),
        **dict.fromkeys(OF_RUN, (["theirs"],)),
    }
    write({"artifacts/code.json": CODE})
    for step, names in steps.items():
        if step == until:
            return
        for name in names:
            stage(step, *name)


OF_METHODS = dict.fromkeys(["confidence", "msp", "knn"], "x")
CODE = {
    "kept": {
        "fit": OF_METHODS,
        "score": OF_METHODS,
        "evaluate": "x",
        "search": "x",
        "user_defined": {},
    },
    "files": {"methods": OF_METHODS, "evaluate": "x"},
    **{
        "infer": {"coco_results": "x", "parquet": "x"},
        "curate": "x",
        "report": "x",
        "with_proposals": "x",
        "choose": "x",
    },
}


def read_names() -> None:
    from farther.datasets.class_names import ClassNames
    from farther.datasets.hierarchy import HierarchyFile

    names = ClassNames("names.yaml")
    names.same("tvmonitor", "voc", "coco")
    HierarchyFile("similarity.yaml").nearest("cat", ["dog", "kite"])


def read_params() -> None:
    """What reads `params.yaml` before anything runs: `farther doctor`, and each stage's own section."""
    from farther import params
    from farther.command.doctor import examine
    from farther.command.project import Project

    params._cached_parse.cache_clear()
    list(examine(Project()))
    for step, *name in (("ingest", "pets"), ("curate",), ("infer", "theirs")):
        stage(step, *name)


def run_methods() -> None:
    for name in OF_RUN:
        stage(name, "theirs")


COMMANDS = (
    "summary", "explain number theirs msp wild_near auroc", "explain number theirs - - map", "explain number theirs knn wild_far fpr95",
    "explain image all0", "choose theirs", "choose theirs --max-misclassified 0.5", "explain uncertainty theirs", "compare --methods msp knn --run theirs",
    "compare earlier workspace", "doctor", "benchmark publish pets published --format coco",
)  # fmt: skip


def farther(*words: str) -> None:
    """Runs a command of farther; its errors are raised."""
    from farther import params
    from farther.command import main

    params._cached_parse.cache_clear()
    assert main(["--traceback", *words]) in (0, 1), words


def evaluated_project() -> None:
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


def run_commands() -> None:
    """The commands in an order that the damage chooses, up to the first that refuses it."""
    files = sorted(
        p for p in files_in(Path()) if p.is_file() and not p.is_symlink() and p.stat().st_nlink == 1
    )
    files = [p for p in files if p.stat().st_size < 10**8]
    first = crc32(b"".join(file.read_bytes() for file in files)) % len(COMMANDS)
    for command in (*COMMANDS[first:], *COMMANDS[:first]):
        farther(*command.split())


def write_leaderboard() -> None:
    from tests.report.test_leaderboard import BEST, WORSE, write_project

    write_project(Path("theirs"), {"msp": BEST, "knn": WORSE})


def read_leaderboard() -> None:
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
    farther("benchmark", "leaderboard", "theirs")


def write_wordnet_files() -> None:
    from tests.similarity.tiny_wordnet import write as write_wordnet

    write_wordnet(Path("dict"))


def read_wordnet() -> None:
    from farther.datasets.wordnet import WordNet

    names = WordNet("dict")
    names.nearest("couch", ["dog", "zebra", "television set"])
    names.nearest("oxen", ["fox", "n00000123", "light.n.01"])
    names.similarity("entity", "frank")


def write_unknown_project() -> None:
    project("ingest")
    Path("dvc.yaml").unlink()
    write({"made/dvc.yaml": ""})


def write_folders() -> None:
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


def init_project() -> None:
    """A new project for folders that are recognised."""
    from farther.projects import Lookup, init

    init("made", "pets", ["wild"], ["results.json"], Lookup.open(ROOT / "data")).write()


#: A project without datasets.
EMPTY = {
    "params.yaml": "datasets: {}\n",
    "dvc.yaml": "stages: {}\n",
    "data/names/classes.yaml": "tv: {coco: [tv]}\n",
}


def profile_projects() -> None:
    farther("benchmark", "profile")
    farther("benchmark", "profile", "fmiyc", "--force")


DERIVED = {
    "paste": {"pasted": {
        "images": {"dataset": "pets", "subset": "test"}, "rules": "rules.yaml", "vocabulary": "wild",
        "cutouts": {"source": "masks", "root": "wild", "annotations": "annotations/instances_all.json", "images": "all", "smallest": 1},
    }},
    "corrupt": {"shifted": {"images": {"dataset": "pets", "subset": "test"}, "corruptions": ["contrast"], "severities": [1]}},
    "blank": {},
}  # fmt: skip


def derived_project() -> None:
    """Objects with outlines, and images that are large enough to be corrupted."""
    project("curate", size=(64, 48))
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


def project_with_pools() -> None:
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


def choose_candidates() -> None:
    """Pools that candidates are chosen from, and the list of those that are used."""
    stage("curate")
    stage("enrich", "pets")
