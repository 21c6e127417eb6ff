"""Time after inference on the published benchmark at its true size, from tables, not images.

    python benchmarks/full_size.py DIR                 makes the project in DIR, then measures; 21
                                                       GB of disk
    python benchmarks/full_size.py DIR --scale 0.1     with a tenth of the images
    python benchmarks/full_size.py DIR --jobs 2        two runs at the same time, as `farther repro
                                                       --jobs 2`

A project that an earlier call finished is measured again with the code of now; `--make-only` ends
before that.

FMIYC's ID datasets and six OOD splits (Table 2) with its eight runs, whose detections are drawn at
random around the objects and imported: features of 1,024 values for the four Faster R-CNN, of 256
for the two RT-DETR, none for the two YOLO; latents of 256. Methods and τ are those of the profile
`fmiyc`; t* leaves 47,000 training regions per run of VOC.

Prints a table of the stages: seconds by the clock, processor seconds, largest memory of a process,
and DVC's own share, for the whole of `dvc repro`, for one more method, and when nothing changed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

from farther.tables import Header, Images, Objects, Regions, RegionsWriter, scan_regions

ROOT = Path(__file__).parents[1]
WIDTH, HEIGHT = 500, 375

#: Images of each subset of each dataset, and the objects of an image.
SUBSETS = {
    "voc": {"train": (16_551, 2.8), "test": (4_952, 2.4)},
    "bdd": {"train": (20_000, 12.0), "val": (10_000, 12.0)},
    "coco": {"near": (1_174, 4.0), "far": (938, 4.0), "farther": (1_873, 4.0)},
    "openimages": {"near": (908, 3.0), "far": (1_179, 3.0), "farther": (1_695, 3.0)},
}
#: Categories of OOD subsets, as the rules files sort them.
OOD = {"near": "laptop", "far": "kite", "farther": "kite"}
#: Width of the features of each detector; None where it has no last linear layer.
DETECTORS = {"faster_rcnn": 1_024, "vos": 1_024, "yolov8": None, "rtdetr": 256}
LATENT = 256
#: Detections of an image that lie on nothing, most of them below t*.
CLUTTER = 4.0
SHARD = 4_096
#: Training regions at or above t*, of each run: the published number of VOC, and ten per image of
#: BDD.
LEARNED_FROM = {"voc": 47_000, "bdd": 200_000}
#: Stages that make images, look at them, or run networks.
LEFT_OUT = ("demo", "paste", "corrupt", "blank", "embed", "stratify", "cost")
#: Outputs of the stages that are measured, deleted before they are.
MEASURED = (
    "choices", "evaluation", "fitted", "metrics", "outcomes", "plots", "recovered", "report",
    "scores", "thresholds", "truth",
)  # fmt: skip
#: Starts a stage, and appends what it took to the file that FARTHER_TIMES names.
TIMED = """import json, os, resource, runpy, sys, time
def used():
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in both), max(u.ru_maxrss for u in both) / 1024
start, before, status = time.monotonic(), used()[0], 0
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name='__main__')
except SystemExit as end:
    status = end.code
seconds, memory = used()
name, end = '@'.join([os.path.basename(sys.argv[0])[:-3], *sys.argv[1:2]]), time.monotonic()
line = [name, end - start, seconds - before, memory, start, end]
open(os.environ['FARTHER_TIMES'], 'a').write(json.dumps(line) + '\\n')
sys.exit(status)
"""


def write_datasets(folder: Path, scale: float) -> None:
    """All datasets in COCO's format; their image files are links to one."""
    names = yaml.safe_load((ROOT / "data/benchmarks/voc.yaml").read_text())["id_classes"]
    known = {
        "voc": names,
        "bdd": yaml.safe_load((ROOT / "data/benchmarks/bdd.yaml").read_text())["id_classes"],
    }
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    noise = Image.fromarray(rng.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8))
    for dataset, subsets in SUBSETS.items():
        (folder / dataset / "annotations").mkdir(parents=True)
        start = 0
        for subset, (count, objects) in subsets.items():
            (folder / dataset / subset).mkdir()
            picture = folder / dataset / "picture.jpg"
            noise.save(picture)
            count = max(40, round(count * scale))
            categories = known.get(dataset) or [OOD[subset]]
            images = [
                {"id": n, "file_name": f"{n:06d}.jpg", "width": WIDTH, "height": HEIGHT}
                for n in range(start, start + count)
            ]
            for image in images:
                os.link(picture, folder / dataset / subset / image["file_name"])
            picture.unlink()
            of = np.repeat(np.arange(start, start + count), 1 + rng.poisson(objects - 1, count))
            corner = rng.uniform(0, [WIDTH - 120, HEIGHT - 120], (len(of), 2)).round(1)
            size = rng.uniform(20, 120, (len(of), 2)).round(1)
            category = rng.integers(len(categories), size=len(of))
            annotations = [
                {
                    "id": n,
                    "image_id": int(i),
                    "bbox": [*xy, *wh],
                    "category_id": int(c),
                    "area": wh[0] * wh[1],
                    "iscrowd": 0,
                }
                for n, (i, xy, wh, c) in enumerate(
                    zip(of, corner.tolist(), size.tolist(), category, strict=True)
                )
            ]
            listed = [{"id": k, "name": name} for k, name in enumerate(categories)]
            text = json.dumps({"images": images, "annotations": annotations, "categories": listed})
            (folder / dataset / "annotations" / f"instances_{subset}.json").write_text(text)
            start += count


def copy_code(project: Path) -> None:
    """Copies the library and the stages that need no images, each started through `timed.py`."""
    for name in ("stages", "lib", "data", "extensions"):
        shutil.rmtree(project / name, ignore_errors=True)
        shutil.copytree(
            ROOT / name, project / name, ignore=shutil.ignore_patterns("demo", "__pycache__")
        )
    pipeline = yaml.safe_load((ROOT / "dvc.yaml").read_text())
    for name in LEFT_OUT:
        del pipeline["stages"][name]
    for made in ("artifacts/cost.json", "artifacts/similarity"):
        pipeline["stages"]["report"]["deps"].remove(made)
    text = yaml.safe_dump(pipeline, sort_keys=False)
    (project / "dvc.yaml").write_text(
        re.sub(r"cmd: python stages/", "cmd: python timed.py stages/", text)
    )
    (project / "timed.py").write_text(TIMED)


def write_params(project: Path, params: dict[str, Any]) -> None:
    """The project's params.yaml."""
    (project / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))


def write_project(project: Path, scale: float) -> dict[str, Any]:
    """Writes the stages that need no images, and the parameters, which are returned.

    The parameters are those of the profile `fmiyc` with imported runs.
    """
    copy_code(project)
    params = yaml.safe_load((ROOT / "params.yaml").read_text()) | yaml.safe_load(
        (ROOT / "profiles/fmiyc.yaml").read_text()
    )
    params["datasets"] = {
        name: {"format": "coco", "root": f"images/{name}", "subset_names": list(subsets)}
        for name, subsets in SUBSETS.items()
    }
    for benchmark in params["benchmarks"].values():
        benchmark["most"] = {
            name: max(40, round(count * scale)) for name, count in benchmark["most"].items()
        }
        benchmark.pop("decisions")
        for split in benchmark["splits"].values():
            subset = split["distance"]
            split.update(dataset=split["subset"].split("_")[0], subset=subset, distance=subset)
            split.pop("assigned")
    params["detectors"] = {
        f"{benchmark}-{detector}": {
            "adapter": "parquet",
            "benchmark": benchmark,
            "weights": f"detections/{benchmark}-{detector}",
            "params": {"score_threshold": 0.05},
        }
        for benchmark in params["benchmarks"]
        for detector in DETECTORS
    }
    params["inference"] = {**params["inference"], "shard_images": SHARD}
    params["report"] = {**params["report"], "published": {}}
    params["embed"]["weights"] = "data/names/classes.yaml"  # of no network: nothing is embedded
    write_params(project, params)
    for command in (
        ["git", "init", "--quiet"],
        ["dvc", "init", "--quiet"],
        ["dvc", "config", "core.analytics", "false"],
    ):
        subprocess.run(command, cwd=project, check=True)
    return params


@dataclass(frozen=True)
class Network:
    """Draws detections: features around a centre per class, logits of a last linear layer.

    Args:
        header: Of the regions.
        centres: Of the classes' features, the background's last, shape (K + 1, D).
    """

    header: Header
    centres: np.ndarray

    @classmethod
    def of(cls, classes: list[str], width: int | None, seed: int) -> Network:
        """A network with background and softmax; where `width` is None, without a last layer."""
        rng = np.random.default_rng(seed)
        centres = np.maximum(rng.normal(0.3, 0.6, (len(classes) + 1, width or LATENT)), 0).astype(
            np.float32
        )
        made_by = {"name": "drawn", "seed": seed}
        if width is None:
            return cls(
                Header(
                    tuple(classes), activation="sigmoid", score_threshold=0.05, detector=made_by
                ),
                centres,
            )
        weight = (centres - centres.mean(axis=0)) * np.float32(12 / width)
        columns = (*classes, "background")
        layer = {"weight": weight, "bias": np.zeros(len(columns), np.float32)}
        return cls(
            Header(columns, len(classes), score_threshold=0.05, detector=made_by, **layer), centres
        )

    def regions(self, images: Images, objects: Objects, rng: np.random.Generator) -> Regions:
        """Detections on most of the objects, and some on nothing."""
        known = list(self.header.known_classes)
        found = rng.random(len(objects)) < 0.85
        category = np.array([known.index(c) if c in known else -1 for c in objects.category[found]])
        unknown = category < 0
        category[unknown] = rng.integers(len(known), size=unknown.sum())
        box = objects.box[found] + rng.normal(0, 3, (found.sum(), 4)).astype(np.float32)
        nothing = rng.poisson(CLUTTER, len(images))
        many = int(nothing.sum())
        corner = rng.uniform(0, [WIDTH - 120, HEIGHT - 120], (many, 2))
        box = np.concatenate(
            [box, np.concatenate([corner, corner + rng.uniform(20, 120, (many, 2))], axis=1)]
        )
        image_id = np.concatenate([objects.image_id[found], np.repeat(images.image_id, nothing)])
        category = np.concatenate([category, rng.integers(len(known), size=many)])
        # How far a region is towards its class: what lies on nothing is mostly background.
        share = np.concatenate(
            [
                np.where(unknown, rng.beta(4, 4, len(unknown)), rng.beta(9, 2, len(unknown))),
                rng.beta(2, 5, many),
            ]
        )
        order = np.argsort(image_id, kind="stable")
        image_id, category, share, box = (
            image_id[order],
            category[order],
            share[order, None].astype(np.float32),
            box[order],
        )
        rows = len(order)
        mixed = share * self.centres[category] + (1 - share) * self.centres[-1]
        vectors = np.maximum(mixed + rng.normal(0, 0.4, mixed.shape).astype(np.float32), 0)
        columns: dict[str, Any] = {"latent": rng.normal(mixed[:, :LATENT], 0.5).astype(np.float32)}
        if self.header.weight is not None and self.header.bias is not None:
            columns["features"] = vectors
            logits = vectors @ self.header.weight.T + self.header.bias
            probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
            probabilities /= probabilities.sum(axis=1, keepdims=True)
        else:
            logits = rng.normal(-6, 1, (rows, len(known))).astype(np.float32)
            logits[np.arange(rows), category] = 8 * share[:, 0] - 4 + rng.normal(0, 0.5, rows)
            probabilities = 1 / (1 + np.exp(-logits))
        label = probabilities[:, : len(known)].argmax(axis=1)
        score = probabilities[np.arange(rows), label]
        limits = np.array([WIDTH, HEIGHT, WIDTH, HEIGHT], np.float32)
        inside = np.sort(np.clip(box, 0, limits).reshape(-1, 2, 2), axis=1).reshape(-1, 4)
        kept = (score >= 0.05) & (inside[:, 2] > inside[:, 0]) & (inside[:, 3] > inside[:, 1])
        columns.update(box=inside, score=score, label=label, logits=logits)
        return Regions(
            header=self.header,
            image_id=image_id[kept],
            region_id=np.arange(kept.sum()),
            **{name: values[kept] for name, values in columns.items()},
        )


def write_detections(project: Path, params: dict[str, Any]) -> None:
    """The regions of all runs on all splits of their benchmark, to be imported."""
    for seed, (run, entry) in enumerate(params["detectors"].items()):
        splits = project / "artifacts/splits" / entry["benchmark"]
        classes = json.loads((splits / "id_classes.json").read_text())
        network = Network.of(classes, DETECTORS[run.split("-")[1]], seed)
        for folder in sorted(path for path in splits.iterdir() if path.is_dir()):
            images, objects = (
                Images.read(folder / "images.parquet"),
                Objects.read(folder / "objects.parquet"),
            )
            writer = RegionsWriter(project / entry["weights"] / folder.name, network.header)
            shards = range(0, len(images), SHARD)
            for number, start in enumerate(shards):
                part = images[start : start + SHARD]
                chosen = np.isin(objects.image_id, part.image_id)
                rng = np.random.default_rng([seed, number, *folder.name.encode()])
                writer.write_shard(number, network.regions(part, objects[chosen], rng), len(part))
            writer.close(len(shards))


def set_thresholds(project: Path, params: dict[str, Any], scale: float) -> None:
    """Sets t* of each run so that `LEARNED_FROM` training regions remain.

    Random scores are not as far apart as a detector's, so that the t* of a detector would not do.
    """
    for entry in params["detectors"].values():
        scores = scan_regions(project / entry["weights"] / "train", columns=["score"]).collect()[
            "score"
        ]
        kept = min(round(LEARNED_FROM[entry["benchmark"]] * scale), len(scores))
        entry["threshold"] = {"rule": float(scores.sort(descending=True)[kept - 1])}
    (project / "all.yaml").write_text(yaml.safe_dump(params, sort_keys=False))


@dataclass(frozen=True)
class Spent:
    """Resources that a process used.

    Attributes:
        wall: Seconds of wall time.
        cpu: Processor seconds.
        memory: MiB of the largest process.
        start, end: Begin and end by the clock.
    """

    wall: float
    cpu: float
    memory: float
    start: float
    end: float


def run(project: Path, *command: str) -> tuple[Spent, dict[str, Spent]]:
    """What a command took, and what each of its stages took, by `TIMED`."""
    log = project / "stages.log"
    log.unlink(missing_ok=True)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": str(project / "lib"),
        "FARTHER_TIMES": str(log),
    }
    done = subprocess.run(
        command,
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.exit(done.stdout[-4000:])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    stages = (
        {name: Spent(*values) for name, *values in map(json.loads, log.read_text().splitlines())}
        if log.exists()
        else {}
    )
    end = time.monotonic()
    return Spent(end - start, cpu, after.ru_maxrss / 1024, start, end), stages


def lines(title: str, whole: Spent, stages: dict[str, Spent]) -> Iterator[str]:
    """The table of one command: a line per stage, and the rest, which is DVC's."""
    columns = "| stage | seconds | processor seconds | MiB |\n| --- | ---: | ---: | ---: |"
    yield f"\n{title}\n\n{columns}"
    for name, spent in stages.items():
        yield f"| {name} | {spent.wall:.1f} | {spent.cpu:.1f} | {spent.memory:,.0f} |"
    rest, now = whole.wall, whole.start
    for spent in sorted(stages.values(), key=lambda spent: spent.start):  # some at the same time
        rest -= max(0.0, spent.end - max(now, spent.start))
        now = max(now, spent.end)
    memory = max((spent.memory for spent in stages.values()), default=0)
    yield f"| DVC | {rest:.1f} ({rest / whole.wall:.0%}) | | |"
    yield f"| all | {whole.wall:.1f} | {whole.cpu:.1f} | {memory:,.0f} |"


def report(project: Path, title: str, *stages: str, jobs: int = 1) -> None:
    """Runs stages and prints their table."""
    command = ("dvc", "repro") if jobs == 1 else ("farther", "repro", "--jobs", str(jobs))
    print(*lines(title, *run(project, *command, *stages)), sep="\n", flush=True)


def make(project: Path, scale: float) -> None:
    """Datasets, splits and imported detections, unless an earlier call finished them."""
    finished = project / "finished"
    if not finished.exists():
        if project.exists() and any(project.iterdir()):
            sys.exit(
                f"{project}: not empty, and not a finished project: delete it, or name another "
                "folder"
            )
        write_datasets(project / "images", scale)
        params = write_project(project, scale)
        report(project, "Ingest and curate", "curate")
        write_detections(project, params)
        set_thresholds(project, params, scale)
        finished.touch()
    else:
        copy_code(project)


def main() -> None:
    """Prints tables in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("project", type=Path)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of images")
    parser.add_argument(
        "--make-only", action="store_true", help="end after the import of the detections"
    )
    parser.add_argument(
        "--runs",
        nargs="+",
        metavar="RUN",
        help="the runs to measure, such as bdd-yolov8; all by default",
    )
    parser.add_argument(
        "--without", nargs="+", default=[], metavar="METHOD", help="methods to leave out"
    )
    parser.add_argument(
        "--approximate",
        nargs="+",
        default=[],
        metavar="METHOD",
        help="nearest-neighbour searches to make approximate",
    )
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="runs to evaluate at the same time"
    )
    parser.add_argument(
        "--peer", action="store_true", help="then measure the peer: see full_size_peer.py"
    )
    parser.add_argument(
        "--last",
        default="ddu",
        metavar="METHOD",
        help="the method that is added last; ddu by default",
    )
    asked = parser.parse_args()
    project = asked.project.resolve()
    make(project, asked.scale)
    params: dict[str, Any] = yaml.safe_load((project / "all.yaml").read_text())
    write_params(project, params)
    report(project, "Import of the detections", *(f"infer@{name}" for name in params["detectors"]))
    if asked.make_only:
        return
    for name in MEASURED:
        shutil.rmtree(project / "artifacts" / name, ignore_errors=True)
    params["detectors"] = {
        name: params["detectors"][name] for name in asked.runs or params["detectors"]
    }
    runs = [f"evaluate@{name}" for name in params["detectors"]]
    methods = {
        name: values for name, values in params["methods"].items() if name not in asked.without
    }
    for name in asked.approximate:
        methods[name]["index"] = "approximate"
    last = {asked.last: methods.pop(asked.last)}
    params["methods"] = methods
    write_params(project, params)
    report(project, f"{len(methods)} methods", *runs, "report", jobs=asked.jobs)
    if asked.peer:
        for name in filter(lambda name: DETECTORS[name.split("-")[1]], params["detectors"]):
            subprocess.run(
                [sys.executable, str(ROOT / "benchmarks/full_size_peer.py"), str(project), name],
                check=True,
            )
    methods |= last
    write_params(project, params)
    report(project, "One more method", *runs, "report", jobs=asked.jobs)
    report(project, "Nothing changed", *runs, "report")


if __name__ == "__main__":
    main()
