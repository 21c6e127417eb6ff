"""Time after inference on the published benchmark at its true size, from tables, not images.

    python benchmarks/full_size.py DIR
        makes the project in DIR, then measures; 21 GB of disk
    python benchmarks/full_size.py DIR --scale 0.1
        with a tenth of the images
    python benchmarks/full_size.py DIR --jobs 2
        two runs at the same time, as `farther repro --jobs 2`

A project that an earlier call finished is measured again with the current code; `--make-only` ends
before the measurements.

The benchmark has FMIYC's ID datasets, six OOD splits (Table 2) and eight runs. Detections are
random boxes around the objects, which are imported: features have 1,024 values for the four Faster
R-CNN, 256 for the two RT-DETR and none for the two YOLO; latents have 256. Methods and τ are those
of the profile `fmiyc`; t* leaves 47,000 training regions per run of VOC.

Prints tables of the stages: seconds of wall time, processor seconds, largest memory of a process,
and DVC's own share, for the whole of `dvc repro`, for one more method, and when nothing changed.
"""

from __future__ import annotations

import argparse
import json
import os
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
#: Detections per image that lie on no object, most of them below t*.
CLUTTER = 4.0
SHARD = 4_096
#: Training regions at or above t*, of each run: the published number of VOC, and ten per image of
#: BDD.
LEARNED_FROM = {"voc": 47_000, "bdd": 200_000}
#: Stages that make images, look at them, or run networks.
LEFT_OUT = ("demo", "paste", "corrupt", "blank", "embed", "stratify")
#: Outputs of the stages that are measured, deleted before they are.
MEASURED = (
    "choices", "evaluation", "fitted", "metrics", "outcomes", "plots", "recovered", "report",
    "scores", "thresholds", "truth",
)  # fmt: skip
#: Starts a stage, and appends the resources it used to the file that FARTHER_TIMES names.
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
    """Writes all datasets in COCO's format; the image files of a subset are links to one."""
    voc_classes = _id_classes("voc")
    bdd_classes = _id_classes("bdd")
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    noise = Image.fromarray(rng.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8))
    for dataset, subsets in SUBSETS.items():
        (folder / dataset / "annotations").mkdir(parents=True)
        first_id = 0
        for subset, (published_count, objects_per_image) in subsets.items():
            if dataset == "voc":
                categories = voc_classes
            elif dataset == "bdd":
                categories = bdd_classes
            else:
                categories = [OOD[subset]]
            count = scaled_count(published_count, scale)
            image_ids = np.arange(first_id, first_id + count)
            write_images(folder / dataset / subset, image_ids, noise)
            document = annotation_document(image_ids, objects_per_image, categories, rng)
            file = folder / dataset / "annotations" / f"instances_{subset}.json"
            file.write_text(json.dumps(document))
            first_id += count


def _id_classes(benchmark: str) -> list[str]:
    rules = yaml.safe_load((ROOT / f"data/benchmarks/{benchmark}.yaml").read_text())
    return rules["id_classes"]


def scaled_count(count: int, scale: float) -> int:
    """A number of images at a scale, at least 40."""
    return max(40, round(count * scale))


def file_name(image_id: int) -> str:
    """Name of an image's file."""
    return f"{image_id:06d}.jpg"


def write_images(folder: Path, image_ids: np.ndarray, picture: Image.Image) -> None:
    """Writes a picture once, as the file of each image."""
    folder.mkdir()
    original = folder.parent / "picture.jpg"
    picture.save(original)
    for image_id in image_ids:
        os.link(original, folder / file_name(image_id))
    original.unlink()


def annotation_document(
    image_ids: np.ndarray,
    objects_per_image: float,
    categories: list[str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Random boxes on each image, at least one, in COCO's format."""
    image_of_box = np.repeat(image_ids, 1 + rng.poisson(objects_per_image - 1, len(image_ids)))
    count = len(image_of_box)
    corners = rng.uniform(0, [WIDTH - 120, HEIGHT - 120], (count, 2)).round(1).tolist()
    sizes = rng.uniform(20, 120, (count, 2)).round(1).tolist()
    category_ids = rng.integers(len(categories), size=count)

    annotations = []
    for number in range(count):
        width, height = sizes[number]
        annotations.append(
            {
                "id": number,
                "image_id": int(image_of_box[number]),
                "bbox": [*corners[number], width, height],
                "category_id": int(category_ids[number]),
                "area": width * height,
                "iscrowd": 0,
            }
        )
    return {
        "images": [
            {"id": int(k), "file_name": file_name(k), "width": WIDTH, "height": HEIGHT}
            for k in image_ids
        ],
        "annotations": annotations,
        "categories": [{"id": k, "name": name} for k, name in enumerate(categories)],
    }


def copy_code(project: Path) -> None:
    """Copies the library and the stages that need no images, each started through `timed.py`."""
    ignored = shutil.ignore_patterns("demo", "__pycache__")
    for name in ("stages", "lib", "data", "extensions"):
        shutil.rmtree(project / name, ignore_errors=True)
        shutil.copytree(ROOT / name, project / name, ignore=ignored)

    shutil.copy(ROOT / ".dvcignore", project)

    pipeline = yaml.safe_load((ROOT / "dvc.yaml").read_text())
    for stage in LEFT_OUT:
        del pipeline["stages"][stage]
    pipeline["stages"]["report"]["deps"].remove("artifacts/similarity")
    text = yaml.safe_dump(pipeline, sort_keys=False)
    text = text.replace("cmd: python stages/", "cmd: python timed.py stages/")
    (project / "dvc.yaml").write_text(text)
    (project / "timed.py").write_text(TIMED)


def write_params(project: Path, params: dict[str, Any]) -> None:
    """Writes the project's params.yaml."""
    (project / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))


def write_project(project: Path, scale: float) -> dict[str, Any]:
    """Writes the stages that need no images, and the parameters, which are returned.

    The parameters are those of the profile `fmiyc` with imported runs.
    """
    copy_code(project)
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params |= yaml.safe_load((ROOT / "profiles/fmiyc.yaml").read_text())
    params["datasets"] = {
        name: {"format": "coco", "root": f"images/{name}", "subset_names": list(subsets)}
        for name, subsets in SUBSETS.items()
    }
    for benchmark in params["benchmarks"].values():
        benchmark["most"] = {
            name: scaled_count(count, scale) for name, count in benchmark["most"].items()
        }
        benchmark.pop("decisions")
        for split in benchmark["splits"].values():
            dataset = split["subset"].split("_")[0]
            split.update(dataset=dataset, subset=split["distance"])
            split.pop("assigned")

    params["detectors"] = {}
    for benchmark_name in params["benchmarks"]:
        for detector in DETECTORS:
            run_name = f"{benchmark_name}-{detector}"
            params["detectors"][run_name] = {
                "adapter": "parquet",
                "benchmark": benchmark_name,
                "weights": f"detections/{run_name}",
                "params": {"score_threshold": 0.05},
            }

    params["inference"]["shard_images"] = SHARD
    params["report"]["published"] = {}
    params["embed"]["weights"] = "data/names/classes.yaml"  # of no network: nothing is embedded
    write_params(project, params)

    for command in ("git init --quiet", "dvc init --quiet", "dvc config core.analytics false"):
        subprocess.run(command.split(), cwd=project, env=environment(), check=True)
    return params


def environment() -> dict[str, str]:
    """The environment of commands: with the programs that are installed beside this Python."""
    programs = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": os.pathsep.join([programs, os.environ["PATH"]])}


@dataclass(frozen=True)
class Candidates:
    """Random regions of images, sorted by image.

    Attributes:
        image_id: Shape (N,).
        category: Index of the class that the features lie near, shape (N,).
        class_share: Share of the class's centre in the features; the rest is the background's.
            Shape (N, 1), float32.
        box: Shape (N, 4); may lie partly outside of the image.
    """

    image_id: np.ndarray
    category: np.ndarray
    class_share: np.ndarray
    box: np.ndarray


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
        shape = (len(classes) + 1, width or LATENT)
        centres = np.maximum(rng.normal(0.3, 0.6, shape), 0).astype(np.float32)
        detector = {"name": "drawn", "seed": seed}
        if width is None:
            header = Header(
                tuple(classes), activation="sigmoid", score_threshold=0.05, detector=detector
            )
            return cls(header, centres)

        columns = (*classes, "background")
        header = Header(
            columns,
            len(classes),
            score_threshold=0.05,
            detector=detector,
            weight=(centres - centres.mean(axis=0)) * np.float32(12 / width),
            bias=np.zeros(len(columns), np.float32),
        )
        return cls(header, centres)

    def regions(self, images: Images, objects: Objects, rng: np.random.Generator) -> Regions:
        """Detections on most of the objects, and some on no object."""
        candidates = self._candidates(images, objects, rng)
        count = len(candidates.image_id)
        share = candidates.class_share
        mixed = share * self.centres[candidates.category] + (1 - share) * self.centres[-1]
        noise = rng.normal(0, 0.4, mixed.shape).astype(np.float32)
        features = np.maximum(mixed + noise, 0)
        latent = rng.normal(mixed[:, :LATENT], 0.5).astype(np.float32)

        columns: dict[str, Any] = {"latent": latent}
        if self.header.weight is not None and self.header.bias is not None:
            columns["features"] = features
            logits = features @ self.header.weight.T + self.header.bias
            probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
            probabilities /= probabilities.sum(axis=1, keepdims=True)
        else:
            class_count = len(self.header.known_classes)
            logits = rng.normal(-6, 1, (count, class_count)).astype(np.float32)
            class_logit = 8 * share[:, 0] - 4 + rng.normal(0, 0.5, count)
            logits[np.arange(count), candidates.category] = class_logit
            probabilities = 1 / (1 + np.exp(-logits))

        label = probabilities[:, : len(self.header.known_classes)].argmax(axis=1)
        score = probabilities[np.arange(count), label]
        box = boxes_inside(candidates.box)
        columns.update(box=box, score=score, label=label, logits=logits)

        has_area = (box[:, 2] > box[:, 0]) & (box[:, 3] > box[:, 1])
        is_detected = (score >= 0.05) & has_area
        return Regions(
            header=self.header,
            image_id=candidates.image_id[is_detected],
            region_id=np.arange(is_detected.sum()),
            **{name: values[is_detected] for name, values in columns.items()},
        )

    def _candidates(self, images: Images, objects: Objects, rng: np.random.Generator) -> Candidates:
        """Regions on 85% of the objects and on no object, before they are scored."""
        known = list(self.header.known_classes)
        is_found = rng.random(len(objects)) < 0.85
        found_objects = objects[is_found]
        index_by_class = {name: index for index, name in enumerate(known)}
        category = np.array([index_by_class.get(name, -1) for name in found_objects.category])
        is_unknown = category < 0
        category[is_unknown] = rng.integers(len(known), size=is_unknown.sum())
        object_box = found_objects.box + rng.normal(0, 3, (is_found.sum(), 4)).astype(np.float32)

        clutter_per_image = rng.poisson(CLUTTER, len(images))
        clutter_count = int(clutter_per_image.sum())
        corner = rng.uniform(0, [WIDTH - 120, HEIGHT - 120], (clutter_count, 2))
        size = rng.uniform(20, 120, (clutter_count, 2))
        clutter_box = np.concatenate([corner, corner + size], axis=1)
        clutter_category = rng.integers(len(known), size=clutter_count)

        object_share = np.where(
            is_unknown, rng.beta(4, 4, len(is_unknown)), rng.beta(9, 2, len(is_unknown))
        )
        clutter_share = rng.beta(2, 5, clutter_count)

        image_id = np.concatenate(
            [found_objects.image_id, np.repeat(images.image_id, clutter_per_image)]
        )
        by_image = np.argsort(image_id, kind="stable")
        class_share = np.concatenate([object_share, clutter_share])
        return Candidates(
            image_id=image_id[by_image],
            category=np.concatenate([category, clutter_category])[by_image],
            class_share=class_share[by_image, None].astype(np.float32),
            box=np.concatenate([object_box, clutter_box])[by_image],
        )


def boxes_inside(box: np.ndarray) -> np.ndarray:
    """Boxes clipped to the image, with their corners in order, shape (N, 4)."""
    limits = np.array([WIDTH, HEIGHT, WIDTH, HEIGHT], np.float32)
    corners = np.clip(box, 0, limits).reshape(-1, 2, 2)
    return np.sort(corners, axis=1).reshape(-1, 4)


def write_detections(project: Path, params: dict[str, Any]) -> None:
    """Writes the regions of all runs on all splits of their benchmark, to be imported."""
    for seed, (run_name, entry) in enumerate(params["detectors"].items()):
        splits = project / "artifacts/splits" / entry["benchmark"]
        classes = json.loads((splits / "id_classes.json").read_text())
        detector = run_name.split("-")[1]
        network = Network.of(classes, DETECTORS[detector], seed)
        for folder in sorted(path for path in splits.iterdir() if path.is_dir()):
            write_split(folder, project / entry["weights"] / folder.name, network, seed)


def write_split(split: Path, out: Path, network: Network, seed: int) -> None:
    """Writes the regions of a network on a split."""
    images = Images.read(split / "images.parquet")
    objects = Objects.read(split / "objects.parquet")
    writer = RegionsWriter(out, network.header)
    starts = range(0, len(images), SHARD)
    for number, start in enumerate(starts):
        shard_images = images[start : start + SHARD]
        shard_objects = objects[np.isin(objects.image_id, shard_images.image_id)]
        rng = np.random.default_rng([seed, number, *split.name.encode()])
        regions = network.regions(shard_images, shard_objects, rng)
        writer.write_shard(number, regions, len(shard_images))
    writer.close(len(starts))


def set_thresholds(project: Path, params: dict[str, Any], scale: float) -> None:
    """Sets t* of each run so that `LEARNED_FROM` training regions remain.

    Random scores are not as far apart as a detector's, so that the t* of a detector would not do.
    """
    for entry in params["detectors"].values():
        regions = scan_regions(project / entry["weights"] / "train", columns=["score"]).collect()
        scores = regions["score"].sort(descending=True)
        count = min(round(LEARNED_FROM[entry["benchmark"]] * scale), len(scores))
        entry["threshold"] = {"rule": float(scores[count - 1])}
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
    """Runs a command; returns the resources of the command and of each of its stages."""
    log = project / "stages.log"
    log.unlink(missing_ok=True)
    variables = {"PYTHONPATH": str(project / "lib"), "FARTHER_TIMES": str(log)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    process = subprocess.run(
        command,
        cwd=project,
        env={**environment(), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    end = time.monotonic()
    if process.returncode:
        sys.exit(process.stdout[-4000:])

    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(end - start, cpu, after.ru_maxrss / 1024, start, end), read_stages(log)


def read_stages(log: Path) -> dict[str, Spent]:
    """Resources of each stage that `TIMED` wrote to a file; empty if no stage ran."""
    if not log.exists():
        return {}
    stages = {}
    for line in log.read_text().splitlines():
        name, *values = json.loads(line)
        stages[name] = Spent(*values)
    return stages


def lines(title: str, total: Spent, stages: dict[str, Spent]) -> Iterator[str]:
    """The table of a command: one line per stage, and the rest, which is DVC's."""
    columns = "| stage | seconds | processor seconds | MiB |\n| --- | ---: | ---: | ---: |"
    yield f"\n{title}\n\n{columns}"
    for name, spent in stages.items():
        yield f"| {name} | {spent.wall:.1f} | {spent.cpu:.1f} | {spent.memory:,.0f} |"

    rest = seconds_outside(total, stages)
    memory = max((spent.memory for spent in stages.values()), default=0)
    yield f"| DVC | {rest:.1f} ({rest / total.wall:.0%}) | | |"
    yield f"| all | {total.wall:.1f} | {total.cpu:.1f} | {memory:,.0f} |"


def seconds_outside(total: Spent, stages: dict[str, Spent]) -> float:
    """Seconds of a command in which no stage ran; stages may run at the same time."""
    seconds = total.wall
    covered_until = total.start
    for spent in sorted(stages.values(), key=lambda spent: spent.start):
        seconds -= max(0.0, spent.end - max(covered_until, spent.start))
        covered_until = max(covered_until, spent.end)
    return seconds


def report(project: Path, title: str, *stages: str, jobs: int = 1) -> None:
    """Runs stages and prints their table."""
    command = ["dvc", "repro"]
    if jobs != 1:
        command = ["farther", "repro", "--jobs", str(jobs)]
    total, spent_by_stage = run(project, *command, *stages)
    for line in lines(title, total, spent_by_stage):
        print(line, flush=True)


def make(project: Path, scale: float) -> None:
    """Makes datasets, splits and detections, unless an earlier call finished them."""
    finished = project / "finished"
    if finished.exists():
        copy_code(project)
        return
    if project.exists() and any(project.iterdir()):
        sys.exit(
            f"{project}: not empty, and not a finished project: delete it, or name another folder"
        )
    write_datasets(project / "images", scale)
    params = write_project(project, scale)
    report(project, "Ingest and curate", "curate")
    write_detections(project, params)
    set_thresholds(project, params, scale)
    finished.touch()


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
        help="the runs to import and measure, such as bdd-yolov8; all by default",
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
    measure(parser.parse_args())


def measure(options: argparse.Namespace) -> None:
    """Makes the project, runs its stages and prints their tables."""
    project = options.project.resolve()
    make(project, options.scale)
    params: dict[str, Any] = yaml.safe_load((project / "all.yaml").read_text())
    write_params(project, params)
    imports = [f"infer@{name}" for name in options.runs or params["detectors"]]
    report(project, "Import of the detections", *imports)
    if options.make_only:
        return

    for output in MEASURED:
        shutil.rmtree(project / "artifacts" / output, ignore_errors=True)
    if options.runs:
        params["detectors"] = {name: params["detectors"][name] for name in options.runs}
    for method in options.without:
        params["methods"].pop(method, None)
    for method in options.approximate:
        params["methods"][method]["index"] = "approximate"
    last_method = params["methods"].pop(options.last)
    write_params(project, params)

    title = f"{len(params['methods'])} methods"
    report(project, title, "report", jobs=options.jobs)
    if options.peer:
        measure_peer(project, list(params["detectors"]))

    params["methods"][options.last] = last_method
    write_params(project, params)
    report(project, "One more method", "report", jobs=options.jobs)
    report(project, "Nothing changed", "report")


def measure_peer(project: Path, runs: list[str]) -> None:
    """Measures the peer on each run with features."""
    program = str(ROOT / "benchmarks/full_size_peer.py")
    for name in runs:
        detector = name.split("-")[1]
        if DETECTORS[detector] is not None:
            subprocess.run([sys.executable, program, str(project), name], check=True)


if __name__ == "__main__":
    main()
