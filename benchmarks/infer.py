r"""Speed and memory of the stage `infer`, beside the loops that a user would write instead.

    python benchmarks/infer.py --weights data/demo/voc-faster_rcnn.safetensors --images \
        artifacts/demo/voc
    python benchmarks/infer.py yolo --weights data/demo/voc-yolov8.safetensors --images \
        artifacts/demo/voc
    python benchmarks/infer.py classifier --images /data/imagenet/val --device cuda
    python benchmarks/infer.py detr --full-size --score-threshold 0 --device cuda

Four ways to get detections from image files, in images per second:

    bare loop     the network on batches that are in memory already: the network alone
    framework     the framework's own predict: files decoded by torchvision.io (classifiers: Pillow,
                  torchvision's preset) and torchvision's model; Ultralytics' `YOLO.predict`; the
                  image processor, the network and `post_process_object_detection` of transformers
    stage         farther's engine: from files to a regions folder (logits, features, latent)
    torch.save    the same numbers, one image at a time, one file per image, as in published code

All at one batch size but the last. `--memory-images 1000 20000` adds the stage's peak memory for
each of these numbers of images, measured in separate processes. Without --weights the network is
untrained, as small as the demo's or with --full-size as large as the published ones (`full_size` of
each class below): then take --score-threshold 0, so that every image gets the maximum number of
detections.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torchvision import models
from torchvision.io import ImageReadMode, decode_image
from tqdm import tqdm

from farther import detectors
from farther.detectors import classifier as classifiers
from farther.detectors.inference import InferenceParams, infer
from farther.detectors.networks.architectures import (
    FasterRCNNBlueprint,
    build_network,
    load_network,
    save_checkpoint,
)
from farther.detectors.networks.detection import autocast
from farther.images import read as pictures
from farther.images.device import float32_products
from farther.tables import Images

Way = Callable[[], None]

#: Of untrained networks.
CLASSES = tuple(f"class {n}" for n in range(20))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("adapter", nargs="?", choices=sorted(LOOPS), default="faster_rcnn")
    parser.add_argument(
        "--weights", type=Path, help="a checkpoint that the adapter reads; untrained when left out"
    )
    parser.add_argument(
        "--full-size", action="store_true", help="an untrained network of the published size"
    )
    parser.add_argument("--images", type=Path, help="folder of images; drawn noise when left out")
    parser.add_argument("--width", type=int, default=224, help="of the drawn images")
    parser.add_argument("--height", type=int, default=168, help="of the drawn images")
    parser.add_argument("--count", type=int, default=256, help="images in a timed pass")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, help="of the stage; its own choice when left out")
    parser.add_argument("--threads", type=int, help="of PyTorch; its own choice when left out")
    parser.add_argument("--score-threshold", type=float, default=0.05)
    parser.add_argument("--max-detections", type=int, default=100)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="float32")
    parser.add_argument(
        "--rounds", type=int, default=3, help="timed passes of each; the median counts"
    )
    parser.add_argument(
        "--memory-images", type=int, nargs="*", default=[], help="numbers of images; left out: none"
    )
    parser.add_argument("--json", type=Path, help="write the numbers there, too")
    parser.add_argument("--measure-memory", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def found(folder: Path, count: int) -> list[Path]:
    """The first images below a folder."""
    files = sorted(
        file for file in folder.rglob("*") if file.suffix.lower() in (".jpg", ".jpeg", ".png")
    )[:count]
    if not files:
        raise SystemExit(f"no .jpg, .jpeg or .png below {folder}")
    return files


def drawn(folder: Path, options: argparse.Namespace) -> list[Path]:
    """Smooth random images: noise enlarged eight times, which compresses as well as photographs."""
    rng = np.random.default_rng(0)
    files = []
    for number in range(options.count):
        noise = rng.integers(0, 256, (-(-options.height // 8), -(-options.width // 8), 3), np.uint8)
        files.append(folder / f"{number:06d}.jpg")
        Image.fromarray(noise).resize(
            (options.width, options.height), Image.Resampling.BICUBIC
        ).save(files[-1], quality=90)
    return files


def table(files: list[Path], count: int) -> tuple[Images, dict[str, Path]]:
    """An images table of `count` rows over the files, again and again."""
    sizes = []
    for file in files:
        with Image.open(file) as image:
            sizes.append(image.size)
    rows = [n % len(files) for n in range(count)]
    images = Images(
        image_id=[f"{n:09d}" for n in range(count)],
        dataset=["files"] * count,
        file=[str(files[row].resolve().relative_to("/")) for row in rows],
        width=[sizes[row][0] for row in rows],
        height=[sizes[row][1] for row in rows],
        digest=[""] * count,
    )
    return images, {"files": Path("/")}


def batches(items: list, size: int) -> Iterator[list]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


class Loops(ABC):
    """The two ways that know a framework, beside a detector with the same checkpoint."""

    def __init__(self, detector: Any, files: list[Path], batch_size: int, scratch: Path):
        self.detector: Any = detector
        self.device = detector.torch_device()
        self.files = files
        self.batch_size = batch_size
        self.scratch = scratch

    @staticmethod
    @abstractmethod
    def untrained(path: Path, *, full_size: bool) -> None:
        """Writes a checkpoint of an untrained network."""

    @abstractmethod
    def bare_loop(self) -> Way: ...

    @abstractmethod
    def framework(self) -> Way: ...

    def over(self, ready: list[Any], call: Callable[[Any], Any]) -> Way:
        """Calls the network with one batch after the other."""

        def run() -> None:
            with torch.inference_mode(), autocast(self.device, self.detector.precision):
                for batch in ready:
                    call(batch)

        return run


class FasterRCNNLoops(Loops):
    @staticmethod
    def untrained(path: Path, *, full_size: bool) -> None:
        size = ("resnet50_fpn", CLASSES, 800, 1333) if full_size else ("small", CLASSES, 192, 256)
        blueprint = FasterRCNNBlueprint(*size)
        save_checkpoint(path, build_network(blueprint).state_dict(), blueprint)

    def network(self) -> torch.nn.Module:
        """torchvision's own model, with the detector's thresholds."""
        weights = self.detector.weights
        network = load_network(weights, FasterRCNNBlueprint.read(weights)).to(self.device)
        network.roi_heads.score_thresh = self.detector.score_threshold
        network.roi_heads.detections_per_img = self.detector.max_detections
        network.roi_heads.nms_thresh = self.detector.nms_iou
        return network

    def pixels(self, file: Path) -> torch.Tensor:
        return decode_image(str(file), ImageReadMode.RGB).to(self.device).float() / 255

    def bare_loop(self) -> Way:
        ready = [self.pixels(file) for file in self.files]
        return self.over(list(batches(ready, self.batch_size)), self.network())

    def framework(self) -> Way:
        network = self.network()
        todo = list(batches(self.files, self.batch_size))
        return self.over(todo, lambda files: network([self.pixels(file) for file in files]))


class YoloLoops(Loops):
    @staticmethod
    def untrained(path: Path, *, full_size: bool) -> None:
        from farther.detectors.networks.yolo import YoloBlueprint, build_network, save_checkpoint

        name, side = ("yolov8l", 640) if full_size else ("yolov8n", 224)
        blueprint = YoloBlueprint.shipped(name, CLASSES, side)
        save_checkpoint(path, build_network(blueprint), blueprint)

    def bare_loop(self) -> Way:
        """Images of one shape share a batch, as in the stage."""
        by_shape: dict[tuple[int, ...], list[torch.Tensor]] = {}
        for file in self.files:
            pixels = self.detector.prepare(pictures.load(file)).pixels
            by_shape.setdefault(pixels.shape, []).append(torch.from_numpy(pixels))
        ready = [
            torch.stack(part).to(self.device).permute(0, 3, 1, 2).float() / 255
            for group in by_shape.values()
            for part in batches(group, self.batch_size)
        ]
        return self.over(ready, self.detector.network)

    def framework(self) -> Way:
        from ultralytics import YOLO

        from farther.detectors.networks.yolo import load_network

        weights = self.scratch / "network.pt"
        network = load_network(self.detector.weights, self.detector.checkpoint)
        torch.save({"model": network, "train_args": {"task": "detect"}}, weights)
        (self.scratch / "files.txt").write_text(
            "\n".join(str(file.resolve()) for file in self.files)
        )
        model = YOLO(weights)
        asked = {
            "conf": self.detector.score_threshold,
            "iou": self.detector.nms_iou,
            "max_det": self.detector.max_detections,
            "imgsz": self.detector.image_size or self.detector.checkpoint.blueprint.image_size,
            "half": self.detector.precision == "float16",
            "device": str(self.device),
            "batch": self.batch_size,
        }

        def run() -> None:
            with float32_products(tf32=self.detector.precision == "tf32"):
                for _ in model.predict(
                    self.scratch / "files.txt", stream=True, verbose=False, **asked
                ):
                    pass

        return run


class DetrLoops(Loops):
    @staticmethod
    def untrained(path: Path, *, full_size: bool) -> None:
        """RT-DETR: the configuration that transformers takes for itself is that of ResNet-50."""
        from farther.detectors.networks.detr import DetrBlueprint, build_network, save_checkpoint

        side = 640 if full_size else 192
        processor = {
            "image_processor_type": "RTDetrImageProcessor",
            "size": {"height": side, "width": side},
        }
        config = {
            "model_type": "rt_detr",
            **({} if full_size else {"decoder_layers": 3, "num_queries": 40}),
        }
        blueprint = DetrBlueprint(config, processor, CLASSES)
        save_checkpoint(path, build_network(blueprint).state_dict(), blueprint)

    def inputs(self, files: list[Path]) -> tuple[dict[str, torch.Tensor], list[tuple[int, int]]]:
        """Inputs of the network by the checkpoint's processor, and (height, width) per image."""
        images = [Image.open(file).convert("RGB") for file in files]
        made = self.detector.processor(images=images, return_tensors="pt").to(self.device)
        return dict(made), [image.size[::-1] for image in images]

    def bare_loop(self) -> Way:
        ready = [self.inputs(files)[0] for files in batches(self.files, self.batch_size)]
        network = self.detector.network
        return self.over(ready, lambda batch: network(**batch))

    def framework(self) -> Way:
        network, processor = self.detector.network, self.detector.processor
        threshold = self.detector.score_threshold

        def call(files: list[Path]) -> None:
            batch, sizes = self.inputs(files)
            processor.post_process_object_detection(
                network(**batch), threshold=threshold, target_sizes=sizes
            )

        return self.over(list(batches(self.files, self.batch_size)), call)


class ClassifierLoops(Loops):
    @staticmethod
    def untrained(path: Path, *, full_size: bool) -> None:
        name = "resnet50" if full_size else "resnet18"
        blueprint = classifiers.ClassifierBlueprint(name, **classifiers.describe(name))
        classifiers.save_checkpoint(path, models.get_model(name).state_dict(), blueprint)

    def bare_loop(self) -> Way:
        classifier, size = self.detector.network, self.batch_size
        ready = batches([self.detector.prepare(pictures.load(file)) for file in self.files], size)
        return self.over(list(map(classifier.inputs, ready)), classifier.network)

    def framework(self) -> Way:
        transform = models.get_model_weights(
            self.detector.blueprint.architecture
        ).DEFAULT.transforms()

        def call(files: list[Path]) -> None:
            images = torch.stack([transform(Image.open(file).convert("RGB")) for file in files])
            self.detector.network.network(images.to(self.device)).softmax(1).cpu()

        return self.over(list(batches(self.files, self.batch_size)), call)


LOOPS: dict[str, type[Loops]] = {
    "faster_rcnn": FasterRCNNLoops,
    "yolo": YoloLoops,
    "detr": DetrLoops,
    "classifier": ClassifierLoops,
}


class Contest:
    """The four ways, over the same files with the same checkpoint."""

    def __init__(
        self, options: argparse.Namespace, weights: Path, files: list[Path], scratch: Path
    ):
        selection = {
            "score_threshold": options.score_threshold,
            "max_detections": options.max_detections,
        }
        self.detector: Any = detectors.create(
            options.adapter,
            weights=weights,
            **({} if options.adapter == "classifier" else selection),
            device=options.device,
            precision=options.precision,
            features_dtype="float16",
        )
        self.loops = LOOPS[options.adapter](self.detector, files, options.batch_size, scratch)
        self.params = InferenceParams(batch_size=options.batch_size, workers=options.workers)
        self.files = files
        self.scratch = scratch

    def ways(self) -> dict[str, Way]:
        return {
            "bare loop": self.loops.bare_loop(),
            "framework": self.loops.framework(),
            "stage": lambda: self.stage(len(self.files)),
            "torch.save": self.torch_save,
        }

    def stage(self, count: int) -> None:
        images, roots = table(self.files, count)
        out, work = self.scratch / "regions", self.scratch / "work"
        infer(self.detector, images, roots, out, work, self.params, progress=False)

    def torch_save(self) -> None:
        folder = self.scratch / "saved"
        folder.mkdir(exist_ok=True)
        for file in self.files:
            regions = self.detector.forward(
                [self.detector.prepare(pictures.load(file))], [file.stem]
            )
            numbers = {n: torch.tensor(v) for n, v in regions.columns().items() if n != "image_id"}
            torch.save(numbers, folder / f"{file.stem}.pt")


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def speeds(contest: Contest, rounds: int) -> dict[str, float]:
    """Images per second of each way: median of alternating rounds, without the first round."""
    ways = contest.ways()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in tqdm(range(rounds + 1), unit="round"):
        for name, run in ways.items():
            times[name].append(seconds(run))
    return {
        name: len(contest.files) / statistics.median(taken[1:]) for name, taken in times.items()
    }


def peak_memory(options: argparse.Namespace, weights: Path, count: int) -> dict[str, float]:
    """Peak MiB of the stage's process and of its largest worker, measured in a separate process."""
    handed_on = (
        "images",
        "width",
        "height",
        "count",
        "batch_size",
        "workers",
        "threads",
        "device",
        "precision",
    )
    command = [
        sys.executable,
        __file__,
        options.adapter,
        "--measure-memory",
        str(count),
        "--weights",
        str(weights),
    ]
    for name in (*handed_on, "score_threshold", "max_detections"):
        if getattr(options, name) is not None:
            command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def measured_memory(contest: Contest, count: int) -> dict[str, float]:
    contest.stage(count)
    kinds = {"process": resource.RUSAGE_SELF, "worker": resource.RUSAGE_CHILDREN}
    return {name: resource.getrusage(kind).ru_maxrss / 1024 for name, kind in kinds.items()}


def checkpoint(options: argparse.Namespace, scratch: Path) -> Path:
    """The one that was asked for, or one of an untrained network."""
    if options.weights:
        return options.weights
    path = scratch / f"{options.adapter}.safetensors"
    LOOPS[options.adapter].untrained(path, full_size=options.full_size)
    return path


def report(result: dict[str, Any]) -> None:
    speed = result["images_per_second"]
    print("| way | images/s | of the bare loop | of torch.save |\n| --- | --- | --- | --- |")
    for name, value in speed.items():
        print(
            f"| {name} | {value:.1f} | {value / speed['bare loop']:.2f} "
            f"| {value / speed['torch.save']:.2f} |"
        )
    peaks = result["peak_memory_mib"]
    if peaks:
        first = next(iter(peaks.values()))["process"]
        print(
            "\n| images | process, MiB | of the first | largest worker, MiB |\n"
            "| --- | --- | --- | --- |"
        )
        for count, peak in peaks.items():
            print(
                f"| {count} | {peak['process']:.0f} | {peak['process'] / first:.2f} "
                f"| {peak['worker']:.0f} |"
            )


def main() -> None:
    options = arguments()
    if options.threads:
        torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        weights = checkpoint(options, scratch)
        files = found(options.images, options.count) if options.images else drawn(scratch, options)
        contest = Contest(options, weights, files, scratch)
        if options.measure_memory:
            print(json.dumps(measured_memory(contest, options.measure_memory)))
            return
        result = {
            "images_per_second": speeds(contest, options.rounds),
            "peak_memory_mib": {
                count: peak_memory(options, weights, count) for count in options.memory_images
            },
        }
    report(result)
    if options.json:
        options.json.write_text(
            json.dumps(
                {"options": {k: str(v) for k, v in vars(options).items()}, **result}, indent=2
            )
        )


if __name__ == "__main__":
    main()
