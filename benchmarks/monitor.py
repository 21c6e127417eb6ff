"""CPU milliseconds per image of the monitor, beside the bare network, on the demo's checkpoints.

    python benchmarks/monitor.py
        in the folder of a finished demo; at most 8 minutes
    python benchmarks/monitor.py --project DIR --device cuda
        with the demo in another folder, on a GPU (wall time)

All variants get the same prepared images, take turns in every round, and are compared within a
round; the median of the rounds' ratios counts, so other load on the machine matters little. PyTorch
and BLAS use one thread.

    bare        the framework's network and its own NMS, boxes and scores as arrays: the loop of a
                user
    framework   the framework's own prediction from the same pixels: torchvision's model,
                Ultralytics' `predict`, transformers' processor, network and
                `post_process_object_detection`
    monitor     `farther.Monitor` with each method of its bundle, without proposals; knn_100k has
                100,000 stored regions; `msp, proposals` yields also the boxes of objects that are
                not detected

The last two columns are the score alone, by farther and by pytorch-ood's detector of the same name,
for the same detections. What cannot be measured is a line on stderr; the rest is measured all the
same.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

import farther
from farther.datasets import image_roots
from farther.evaluation.files import RunFiles
from farther.images.read import load
from farther.methods.linear_algebra import normalised
from farther.monitor import Bundle, BundleSource, Monitor, write_bundle
from farther.params import section
from farther.scoring.entries import read_entry
from farther.tables import Images, Regions
from farther.tables.files import inside

#: Methods that are timed, where they apply: scores of logits first.
METHODS = ("msp", "energy", "knn", "mahalanobis", "vim", "lard_mahalanobis")
RUNS = ("voc-vos", "voc-yolov8", "voc-rtdetr", "drawings-resnet-1")
STORED = 100_000

#: Libraries whose score alone is timed.
SCORED_BY = ("farther", "pytorch-ood")

Work = Callable[[], object]


def stored(features: np.ndarray, count: int) -> np.ndarray:
    """Features between pairs of training features: as many as asked for, at unit length."""
    rng = np.random.default_rng(0)
    one, other = (
        features[rng.integers(len(features), size=count)].astype(np.float64) for _ in range(2)
    )
    share = rng.uniform(0, 0.3, (count, 1))
    return normalised((1 - share) * one + share * other).astype(np.float32)


def bundles(run: str, folder: Path) -> dict[str, Path]:
    """A bundle of each method that applies to a run."""
    entry, found = section("detectors", run), {}
    for name in METHODS:
        source = BundleSource(
            RunFiles(run, entry["benchmark"]), entry, read_entry(name, section("methods", name))
        )
        try:
            found[name] = write_bundle(source, folder / f"{run}-{name}", copy=False)
        except farther.errors.FartherError as error:
            print(f"{run}: {name}: {error}", file=sys.stderr)
    return found


def monitors(run: str, folder: Path, device: str, scale: float = 1.0) -> dict[str, Monitor]:
    """Monitors of a run; `knn_100k` is the bundle's kNN with more stored regions."""
    made = bundles(run, folder)
    found = {name: Monitor.load(path, device) for name, path in made.items()}
    if scale != 1.0:
        for monitor in found.values():
            monitor._detector = monitor._detector.scaled(scale)
    if (first := found["msp"]).bundle.info.proposals is not None:
        found["msp, proposals"] = Monitor.load(made["msp"], device)
        found["msp, proposals"]._detector = first._detector
    for name in made:
        found[name]._selection = None
    if "knn" in found:
        bundle = Bundle.load(made["knn"])
        method: Any = bundle.method
        train = Regions.read(Path("artifacts/regions") / run / "train")
        method.stored_ = stored(
            train.features[train.score >= found["knn"].bundle.info.operating], STORED
        )
        found["knn_100k"] = Monitor(bundle, device)
        found["knn_100k"]._selection = None
    return found


def bare(detector: Any, prepared: list[Any]) -> Work:
    """The framework's network and its suppression on a batch of prepared images."""
    network, device = detector.network, detector.torch_device()

    def faster_rcnn() -> object:
        images = [
            torch.from_numpy(image).to(device).permute(2, 0, 1).float() / 255 for image in prepared
        ]
        return [
            {name: values.cpu().numpy() for name, values in one.items()} for one in network(images)
        ]

    def yolo() -> object:
        from ultralytics.utils.nms import non_max_suppression
        from ultralytics.utils.ops import scale_boxes

        found = []
        for shape in {image.pixels.shape for image in prepared}:
            group = [image for image in prepared if image.pixels.shape == shape]
            batch = torch.from_numpy(np.stack([image.pixels for image in group])).to(device)
            batch = batch.permute(0, 3, 1, 2).float() / 255
            limits = detector.score_threshold, detector.nms_iou
            kept = non_max_suppression(
                network(batch)[0], *limits, max_det=detector.max_detections, max_time_img=1e6
            )
            for image, one in zip(group, kept, strict=True):
                one[:, :4] = scale_boxes(batch.shape[2:], one[:, :4], image.original)
                found.append(one.cpu().numpy())
        return found

    def detr() -> object:
        pixels = torch.stack([image.pixels for image in prepared]).to(device)
        seen, sizes = network(pixel_values=pixels), [image.original for image in prepared]
        found = detector.processor.post_process_object_detection(
            seen, detector.score_threshold, sizes
        )
        return [{name: values.cpu().numpy() for name, values in one.items()} for one in found]

    def classifier() -> object:
        best = network.network(network.inputs(prepared)).softmax(1).max(1)
        return best.values.cpu().numpy(), best.indices.cpu().numpy()

    return {"faster_rcnn": faster_rcnn, "yolo": yolo, "detr": detr, "classifier": classifier}[
        detector.name
    ]


def framework(detector: Any, pixels: list[np.ndarray], scratch: Path) -> Work:
    """The framework's own prediction of a batch of images, preparation included."""
    if detector.name == "yolo":
        from ultralytics import YOLO

        from farther.detectors.networks.yolo import load_network

        weights = scratch / "network.pt"
        torch.save(
            {"model": load_network(detector.weights, detector.checkpoint), "train_args": {}},
            weights,
        )
        model, size = YOLO(weights, task="detect"), detector.checkpoint.blueprint.image_size
        limits = {
            "conf": detector.score_threshold,
            "iou": detector.nms_iou,
            "max_det": detector.max_detections,
        }
        images = [np.ascontiguousarray(image[..., ::-1]) for image in pixels]
        where = str(detector.torch_device())
        return lambda: model.predict(
            images, verbose=False, imgsz=size, device=where, batch=len(images), **limits
        )
    if detector.name == "faster_rcnn":
        return bare(detector, pixels)
    return lambda: bare(detector, [detector.prepare(image) for image in pixels])()


def rounds(
    works: Mapping[str, list[Work]], count: int, seconds: float, *, wall: bool
) -> dict[str, list[float]]:
    """Seconds of each variant in each round but the first; variants take turns batch by batch.

    There are fewer rounds than `count`, but at least three, where they would take more seconds than
    that.
    """
    clock = time.perf_counter if wall else time.process_time
    taken: dict[str, list[float]] = {name: [] for name in works}
    names, start = list(works), time.monotonic()
    for number in range(count + 1):
        if number > 3 and time.monotonic() - start > seconds:
            break
        sums = dict.fromkeys(names, 0.0)
        for batch in range(len(works[names[0]])):
            for name in names[number % len(names) :] + names[: number % len(names)]:
                before = clock()
                works[name][batch]()
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                sums[name] += clock() - before
        if number:
            for name, value in sums.items():
                taken[name].append(value)
    return taken


def compare(
    run: str,
    made: Mapping[str, Monitor],
    pixels: list[np.ndarray],
    asked: argparse.Namespace,
    folder: Path,
) -> None:
    """Prints one line per variant for each batch size."""
    detector: Any = next(iter(made.values()))._detector
    for size in asked.batch_sizes:
        batches = [pixels[start : start + size] for start in range(0, len(pixels) - size + 1, size)]
        ids = [[str(number) for number in range(len(batch))] for batch in batches]
        ready = [[detector.prepare(image) for image in batch] for batch in batches]
        works: dict[str, list[Work]] = {"bare": [bare(detector, one) for one in ready]}
        works["framework"] = [framework(detector, batch, folder) for batch in batches]
        for name, monitor in made.items():
            works[name] = []
            for prepared, names in zip(ready, ids, strict=True):
                works[name].append(partial(monitor._monitored, prepared, names))
        with torch.inference_mode():
            taken = rounds(works, asked.rounds, asked.seconds, wall=asked.device != "cpu")
        images = len(batches) * size
        for name, values in taken.items():
            milliseconds = 1000 * statistics.median(values) / images
            ratio = statistics.median(
                one / base for one, base in zip(values, taken["bare"], strict=True)
            )
            alone = scores(run, name, made[name], batches, asked) if name in made else ["", ""]
            line = [run, size, name, f"{milliseconds:.2f}", f"{ratio:.3f}", *alone]
            print("| " + " | ".join(map(str, line)) + " |", flush=True)


def scores(
    run: str,
    name: str,
    monitor: Monitor,
    batches: list[list[np.ndarray]],
    asked: argparse.Namespace,
) -> list[str]:
    """Milliseconds per image of the score alone, by farther and, if it has it, by pytorch-ood."""
    found = [
        Regions.concatenate([one.regions for one in monitor(batch, batch_size=len(batch))])
        for batch in batches
    ]  # type: ignore[union-attr]
    found = [one for one in found if len(one)]
    works: dict[str, list[Work]] = {
        "farther": [partial(monitor.bundle.method.score, one) for one in found]
    }
    try:
        other = published(run, name, monitor)
        columns = [one.logits if name in ("msp", "energy") else one.features for one in found]
        works["pytorch-ood"] = [
            partial(other, torch.from_numpy(np.array(values))) for values in columns
        ]
        with torch.inference_mode():
            works["pytorch-ood"][0]()
    except Exception as error:
        print(f"{run}: {name} of pytorch-ood: {error}", file=sys.stderr)
        works.pop("pytorch-ood", None)
    with torch.inference_mode():
        taken = rounds(works, asked.rounds, 3, wall=False)
    images = sum(len(batch) for batch in batches)
    return [
        f"{1000 * statistics.median(taken[one]) / images:.3f}" if one in taken else "–"
        for one in SCORED_BY
    ]


def published(run: str, name: str, monitor: Monitor) -> Callable[[torch.Tensor], object]:
    """pytorch-ood's score of logits or features, fitted to the run's training regions.

    Raises:
        KeyError: pytorch-ood has no such detector.
    """
    from pytorch_ood.detector import KNN, EnergyBased, Mahalanobis, MaxSoftmax, ViM

    if name in ("msp", "energy"):
        return {"msp": MaxSoftmax, "energy": EnergyBased}[name].score
    train = Regions.read(Path("artifacts/regions") / run / "train").above(
        monitor.bundle.info.operating
    )
    labels = torch.from_numpy(train.label.astype(np.int64))
    method: Any = monitor.bundle.method
    if name.startswith("knn"):
        memory = torch.from_numpy(method.stored_)
        other: Any = KNN(None, k=method.k)
        other.fit_features(memory, torch.zeros(len(memory), dtype=torch.long))
    else:
        weight, bias = (
            None if one is None else torch.from_numpy(np.array(one))
            for one in (train.weight, train.bias)
        )
        width = train.features.shape[1]
        other = {
            "mahalanobis": lambda: Mahalanobis(None),
            "vim": lambda: ViM(None, d=min(64, width // 2), w=weight, b=bias),
        }[name]()
        other.fit_features(torch.from_numpy(train.features.copy()), labels)
    return other.predict_features


def measure(run: str, asked: argparse.Namespace, roots: Mapping[str, Path], folder: Path) -> None:
    """Prints the lines of a run."""
    made = monitors(run, folder, asked.device, asked.scale)
    table = Images.read(
        Path("artifacts/splits") / section("detectors", run, "benchmark") / "test/images.parquet"
    )
    chosen = range(min(asked.images, len(table)))
    compare(
        run,
        made,
        [load(inside(roots[table.dataset[row]], table.file[row])) for row in chosen],
        asked,
        folder,
    )


def main() -> None:
    """Prints a table in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--project", type=Path, default=Path())
    parser.add_argument("--runs", nargs="*", default=list(RUNS))
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--seconds", type=float, default=25, help="of one table of rounds, which has at least three"
    )
    parser.add_argument("--batch-sizes", type=int, nargs="*", default=[1, 16])
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of the network's input; 640 pixels of YOLO: 2.86"
    )
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    os.chdir(asked.project)
    roots = image_roots(section("datasets"), Path("artifacts/tables"))
    start = time.monotonic()
    print(f"Load of {os.cpu_count()} processors at the start: {os.getloadavg()[0]:.1f}\n")
    print("| run | batch | variant | ms per image | of bare | score alone, ms | pytorch-ood |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: |")
    for run in asked.runs:
        with tempfile.TemporaryDirectory() as folder:
            try:
                measure(run, asked, roots, Path(folder))
            except Exception as error:
                print(f"{run}: not measured: {type(error).__name__}: {error}", file=sys.stderr)
    print(f"\n{time.monotonic() - start:.0f} s; load at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
