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
from dataclasses import dataclass
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
from farther.monitor.passes_beside import PreparedImage
from farther.params import section
from farther.scoring.entries import read_entry
from farther.tables import Images, Regions
from farther.tables.files import inside

#: Methods that are timed, where they apply: scores of logits first.
METHODS = ("msp", "energy", "knn", "mahalanobis", "vim", "lard_mahalanobis")
RUNS = ("voc-vos", "voc-yolov8", "voc-rtdetr", "drawings-resnet-1")
#: Regions that `knn_100k` stores.
STORED = 100_000
#: Methods whose score depends on logits only.
OF_LOGITS = ("msp", "energy")

#: Libraries whose score alone is timed.
SCORED_BY = ("farther", "pytorch-ood")

Work = Callable[[], object]


@dataclass(frozen=True)
class Options:
    """Settings of the measurements; see `main`."""

    device: str
    image_count: int
    input_scale: float
    batch_sizes: list[int]
    rounds: int
    seconds: float


def stored_features(features: np.ndarray, count: int) -> np.ndarray:
    """Features between random pairs of training features, at unit length, shape (count, D)."""
    rng = np.random.default_rng(0)
    first = features[rng.integers(len(features), size=count)].astype(np.float64)
    second = features[rng.integers(len(features), size=count)].astype(np.float64)
    share = rng.uniform(0, 0.3, (count, 1))
    return normalised((1 - share) * first + share * second).astype(np.float32)


def bundles(run: str, folder: Path) -> dict[str, Path]:
    """A bundle of each method that applies to a run."""
    entry = section("detectors", run)
    files = RunFiles(run, entry["benchmark"])
    bundle_by_method = {}
    for name in METHODS:
        try:
            source = BundleSource(files, entry, read_entry(name, section("methods", name)))
            bundle_by_method[name] = write_bundle(source, folder / f"{run}-{name}", copy=False)
        except farther.errors.FartherError as error:
            print(f"{run}: {name}: {error}", file=sys.stderr)
    return bundle_by_method


def monitors(run: str, folder: Path, options: Options) -> dict[str, Monitor]:
    """Monitors of a run; `knn_100k` is the bundle's kNN with more stored regions."""
    bundle_by_method = bundles(run, folder)
    monitor_by_name = {}
    for name, path in bundle_by_method.items():
        monitor_by_name[name] = Monitor.load(path, options.device)
    if options.input_scale != 1.0:
        for monitor in monitor_by_name.values():
            monitor._detector = monitor._detector.scaled(options.input_scale)

    msp = monitor_by_name["msp"]
    if msp.bundle.info.proposals is not None:
        with_proposals = Monitor.load(bundle_by_method["msp"], options.device)
        with_proposals._detector = msp._detector
        monitor_by_name["msp, proposals"] = with_proposals
    for name in bundle_by_method:
        monitor_by_name[name]._selection = None

    if "knn" in bundle_by_method:
        monitor_by_name["knn_100k"] = large_knn(run, bundle_by_method["knn"], options.device)
    return monitor_by_name


def column(regions: Regions, name: str) -> np.ndarray:
    """A column that the regions have."""
    values = regions.array(name)
    assert values is not None, name
    return values


def large_knn(run: str, path: Path, device: str) -> Monitor:
    """A monitor with the kNN of a bundle and `STORED` random regions."""
    bundle = Bundle.load(path)
    train = training_regions(run, bundle.info.operating)
    method: Any = bundle.method
    method.stored_ = stored_features(column(train, "features"), STORED)
    monitor = Monitor(bundle, device)
    monitor._selection = None
    return monitor


def training_regions(run: str, operating: float) -> Regions:
    """Regions of the training split at or above t*."""
    return Regions.read(Path("artifacts/regions") / run / "train").above(operating)


# --------------------------------------------------------------------------------------------------
# the framework's own


def bare(detector: Any, prepared: list[Any]) -> Work:
    """The framework's network and its NMS on a batch of prepared images."""
    loops = {
        "faster_rcnn": _bare_faster_rcnn,
        "yolo": _bare_yolo,
        "detr": _bare_detr,
        "classifier": _bare_classifier,
    }
    return partial(loops[detector.name], detector, prepared)


def _bare_faster_rcnn(detector: Any, prepared: list[np.ndarray]) -> object:
    images = []
    for pixels in prepared:
        image = torch.from_numpy(pixels).to(detector.torch_device())
        images.append(image.permute(2, 0, 1).float() / 255)
    return [_as_arrays(detections) for detections in detector.network(images)]


def _as_arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {name: values.cpu().numpy() for name, values in tensors.items()}


def _bare_yolo(detector: Any, prepared: list[Any]) -> object:
    from ultralytics.utils.nms import non_max_suppression
    from ultralytics.utils.ops import scale_boxes

    detections = []
    for shape in {image.pixels.shape for image in prepared}:
        images = [image for image in prepared if image.pixels.shape == shape]
        batch = torch.from_numpy(np.stack([image.pixels for image in images]))
        batch = batch.to(detector.torch_device()).permute(0, 3, 1, 2).float() / 255
        detections_of_batch = non_max_suppression(
            detector.network(batch)[0],
            detector.score_threshold,
            detector.nms_iou,
            max_det=detector.max_detections,
            max_time_img=1e6,
        )
        for image, rows in zip(images, detections_of_batch, strict=True):
            rows[:, :4] = scale_boxes(batch.shape[2:], rows[:, :4], image.original)
            detections.append(rows.cpu().numpy())
    return detections


def _bare_detr(detector: Any, prepared: list[Any]) -> object:
    pixels = torch.stack([image.pixels for image in prepared]).to(detector.torch_device())
    output = detector.network(pixel_values=pixels)
    sizes = [image.original for image in prepared]
    detections_by_image = detector.processor.post_process_object_detection(
        output, detector.score_threshold, sizes
    )
    return [_as_arrays(detections) for detections in detections_by_image]


def _bare_classifier(detector: Any, prepared: list[Any]) -> object:
    network = detector.network
    best = network.network(network.inputs(prepared)).softmax(1).max(1)
    return best.values.cpu().numpy(), best.indices.cpu().numpy()


def framework(detector: Any, pixels: list[np.ndarray], scratch: Path) -> Work:
    """The framework's own prediction of a batch of images, preparation included."""
    if detector.name == "yolo":
        return _ultralytics(detector, pixels, scratch)
    if detector.name == "faster_rcnn":
        return bare(detector, pixels)

    def prepare_and_predict() -> object:
        prepared = [detector.prepare(image) for image in pixels]
        return bare(detector, prepared)()

    return prepare_and_predict


def _ultralytics(detector: Any, pixels: list[np.ndarray], scratch: Path) -> Work:
    """Ultralytics' `predict`, from a checkpoint that is written to a folder."""
    from ultralytics import YOLO

    from farther.detectors.networks.yolo import load_network

    weights = scratch / "network.pt"
    network = load_network(detector.weights, detector.checkpoint)
    torch.save({"model": network, "train_args": {}}, weights)
    model = YOLO(weights, task="detect")
    images = [np.ascontiguousarray(image[..., ::-1]) for image in pixels]
    return partial(
        model.predict,
        images,
        verbose=False,
        imgsz=detector.checkpoint.blueprint.image_size,
        device=str(detector.torch_device()),
        batch=len(images),
        conf=detector.score_threshold,
        iou=detector.nms_iou,
        max_det=detector.max_detections,
    )


# --------------------------------------------------------------------------------------------------
# measurements


def rounds(
    works: Mapping[str, list[Work]], count: int, seconds: float, *, wall: bool
) -> dict[str, list[float]]:
    """Seconds of each variant in each round but the first; variants take turns batch by batch.

    There are fewer rounds than `count`, but at least three, where they would take more than
    `seconds`.
    """
    clock = time.perf_counter if wall else time.process_time
    names = list(works)
    batch_count = len(works[names[0]])
    seconds_by_variant: dict[str, list[float]] = {name: [] for name in names}
    start = time.monotonic()
    for number in range(count + 1):
        if number > 3 and time.monotonic() - start > seconds:
            break
        first = number % len(names)
        order = names[first:] + names[:first]
        sums = dict.fromkeys(names, 0.0)
        for batch in range(batch_count):
            for name in order:
                before = clock()
                works[name][batch]()
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                sums[name] += clock() - before
        if number == 0:
            continue
        for name, value in sums.items():
            seconds_by_variant[name].append(value)
    return seconds_by_variant


def compare(
    run: str,
    monitor_by_name: Mapping[str, Monitor],
    pixels: list[np.ndarray],
    options: Options,
    folder: Path,
) -> None:
    """Prints one line per variant for each batch size."""
    detector: Any = next(iter(monitor_by_name.values()))._detector
    for size in options.batch_sizes:
        starts = range(0, len(pixels) - size + 1, size)
        batches = [pixels[start : start + size] for start in starts]
        works = variants(detector, monitor_by_name, batches, folder)
        with torch.inference_mode():
            seconds = rounds(works, options.rounds, options.seconds, wall=options.device != "cpu")

        image_count = len(batches) * size
        for name, values in seconds.items():
            milliseconds = 1000 * statistics.median(values) / image_count
            ratios = np.array(values) / np.array(seconds["bare"])
            columns = [run, size, name, f"{milliseconds:.2f}", f"{np.median(ratios):.3f}"]
            if name in monitor_by_name:
                columns += scores(run, name, monitor_by_name[name], batches, options)
            else:
                columns += ["", ""]
            print("| " + " | ".join(map(str, columns)) + " |", flush=True)


def variants(
    detector: Any,
    monitor_by_name: Mapping[str, Monitor],
    batches: list[list[np.ndarray]],
    folder: Path,
) -> dict[str, list[Work]]:
    """The work of each variant on each batch."""
    names = [str(number) for number in range(len(batches[0]))]
    works: dict[str, list[Work]] = {"bare": [], "framework": []}
    for monitor_name in monitor_by_name:
        works[monitor_name] = []
    for batch in batches:
        inputs = [detector.prepare(image) for image in batch]
        works["bare"].append(bare(detector, inputs))
        works["framework"].append(framework(detector, batch, folder))
        prepared = [PreparedImage(*pair) for pair in zip(inputs, batch, strict=True)]
        for monitor_name, monitor in monitor_by_name.items():
            works[monitor_name].append(partial(monitor._monitored, prepared, names))
    return works


def scores(
    run: str,
    name: str,
    monitor: Monitor,
    batches: list[list[np.ndarray]],
    options: Options,
) -> list[str]:
    """Milliseconds per image of the score alone, by farther and, if it has it, by pytorch-ood."""
    regions_by_batch = []
    for batch in batches:
        monitored = monitor(batch, batch_size=len(batch))
        regions = Regions.concatenate([image.regions for image in monitored])  # type: ignore[union-attr]
        if len(regions):
            regions_by_batch.append(regions)

    score = monitor.bundle.method.score
    works: dict[str, list[Work]] = {
        "farther": [partial(score, regions) for regions in regions_by_batch]
    }
    try:
        works["pytorch-ood"] = published_works(run, name, monitor, regions_by_batch)
    except Exception as error:
        print(f"{run}: {name} of pytorch-ood: {error}", file=sys.stderr)

    with torch.inference_mode():
        seconds = rounds(works, options.rounds, 3, wall=False)
    image_count = sum(len(batch) for batch in batches)
    columns = []
    for library in SCORED_BY:
        if library in seconds:
            columns.append(f"{1000 * statistics.median(seconds[library]) / image_count:.3f}")
        else:
            columns.append("–")
    return columns


def published_works(
    run: str, name: str, monitor: Monitor, regions_by_batch: list[Regions]
) -> list[Work]:
    """pytorch-ood's score of each batch; the first is computed once, so that an error is raised."""
    predict = published(run, name, monitor)
    works: list[Work] = []
    for regions in regions_by_batch:
        inputs = regions.logits if name in OF_LOGITS else regions.features
        works.append(partial(predict, torch.from_numpy(np.array(inputs))))
    with torch.inference_mode():
        works[0]()
    return works


def published(run: str, name: str, monitor: Monitor) -> Callable[[torch.Tensor], object]:
    """pytorch-ood's score of logits or features, fitted to the run's training regions.

    Raises:
        KeyError: pytorch-ood has no such detector.
    """
    from pytorch_ood.detector import KNN, EnergyBased, Mahalanobis, MaxSoftmax, ViM

    if name == "msp":
        return MaxSoftmax.score
    if name == "energy":
        return EnergyBased.score

    train = training_regions(run, monitor.bundle.info.operating)
    features = torch.from_numpy(column(train, "features").copy())
    labels = torch.from_numpy(train.label.astype(np.int64))
    if name.startswith("knn"):
        method: Any = monitor.bundle.method
        memory = torch.from_numpy(method.stored_)
        knn = KNN(None, k=method.k)
        knn.fit_features(memory, torch.zeros(len(memory), dtype=torch.long))
        return knn.predict_features
    if name == "mahalanobis":
        mahalanobis = Mahalanobis(None)
        mahalanobis.fit_features(features, labels)
        return mahalanobis.predict_features
    if name == "vim":
        vim = ViM(
            None, d=min(64, features.shape[1] // 2), w=_tensor(train.weight), b=_tensor(train.bias)
        )
        vim.fit_features(features, labels)
        return vim.predict_features
    raise KeyError(name)


def _tensor(values: np.ndarray | None) -> torch.Tensor | None:
    if values is None:
        return None
    return torch.from_numpy(np.array(values))


def measure(run: str, options: Options, roots: Mapping[str, Path], folder: Path) -> None:
    """Prints the lines of a run."""
    monitor_by_name = monitors(run, folder, options)
    benchmark = section("detectors", run, "benchmark")
    images = Images.read(Path("artifacts/splits") / benchmark / "test/images.parquet")
    pixels = []
    for row in range(min(options.image_count, len(images))):
        root = roots[images.dataset[row]]
        pixels.append(load(inside(root, images.file[row])))
    compare(run, monitor_by_name, pixels, options, folder)


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
    arguments = parser.parse_args()
    options = Options(
        device=arguments.device,
        image_count=arguments.images,
        input_scale=arguments.scale,
        batch_sizes=arguments.batch_sizes,
        rounds=arguments.rounds,
        seconds=arguments.seconds,
    )
    torch.set_num_threads(1)
    os.chdir(arguments.project)
    roots = image_roots(section("datasets"), Path("artifacts/tables"))
    start = time.monotonic()
    print(f"Load of {os.cpu_count()} processors at the start: {os.getloadavg()[0]:.1f}\n")
    print("| run | batch | variant | ms per image | of bare | score alone, ms | pytorch-ood |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: |")
    for run in arguments.runs:
        with tempfile.TemporaryDirectory() as folder:
            try:
                measure(run, options, roots, Path(folder))
            except Exception as error:
                print(f"{run}: not measured: {type(error).__name__}: {error}", file=sys.stderr)
    print(f"\n{time.monotonic() - start:.0f} s; load at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
