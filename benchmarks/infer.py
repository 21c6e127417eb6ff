"""Speed and memory of the stage `infer`, beside the loops that a user would write instead.

    python benchmarks/infer.py --weights data/demo/voc-faster_rcnn.safetensors --images artifacts/demo/voc

Four ways to get detections from image files, in images per second:

    bare loop     torchvision's model on tensors that are in memory already: what the network alone takes
    torchvision   files decoded by torchvision.io, then the model: what a user of torchvision writes
    stage         farther's engine: files in, the whole regions folder out (logits, features, latent)
    torch.save    the same numbers, one image at a time, one file an image: what published code writes

And the peak memory of the stage for N and for ten times N images. Without --weights the network is untrained: then take
--score-threshold 0, and every image gets as many detections as there may be.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_image
from torchvision.models.detection import FasterRCNN
from tqdm import tqdm

from farther import detectors
from farther.detectors import Detector, pictures
from farther.detectors.inference import InferenceParams, infer
from farther.detectors.networks.architectures import Blueprint, build_network
from farther.detectors.networks.checkpoint import load_network, read_blueprint, save_checkpoint
from farther.tables import Images


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, help="a Faster R-CNN checkpoint of farther's; untrained when left out")
    parser.add_argument("--architecture", default="small", help="of the untrained network")
    parser.add_argument("--images", type=Path, help="folder of images; drawn noise when left out")
    parser.add_argument("--width", type=int, default=224, help="of the drawn images")
    parser.add_argument("--height", type=int, default=168, help="of the drawn images")
    parser.add_argument("--count", type=int, default=256, help="images in a timed pass")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, help="of the stage; its own choice when left out")
    parser.add_argument("--threads", type=int, help="of PyTorch; its own choice when left out")
    parser.add_argument("--score-threshold", type=float, default=0.05)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--rounds", type=int, default=3, help="timed passes of each; the median counts")
    parser.add_argument("--memory-images", type=int, default=512, help="N; 0 leaves the memory out")
    parser.add_argument("--json", type=Path, help="write the numbers there, too")
    parser.add_argument("--measure-memory", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def untrained(folder: Path, architecture: str) -> Path:
    """A checkpoint of a network that nobody trained."""
    classes = tuple(f"class {n}" for n in range(20))
    sides = {"small": (192, 256), "resnet50_fpn": (800, 1333)}[architecture]
    blueprint = Blueprint(architecture, classes, *sides)
    path = folder / "untrained.safetensors"
    save_checkpoint(path, build_network(blueprint).state_dict(), blueprint)
    return path


def found(folder: Path, count: int) -> list[Path]:
    """The first images below a folder."""
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in (".jpg", ".jpeg", ".png"))[:count]
    if not files:
        raise SystemExit(f"no .jpg, .jpeg or .png below {folder}")
    return files


def drawn(folder: Path, options: argparse.Namespace) -> list[Path]:
    """Smooth random pictures: noise that is enlarged eight times compresses about as well as photographs do."""
    rng = np.random.default_rng(0)
    files = []
    for number in range(options.count):
        noise = rng.integers(0, 256, (-(-options.height // 8), -(-options.width // 8), 3), np.uint8)
        files.append(folder / f"{number:06d}.jpg")
        Image.fromarray(noise).resize((options.width, options.height), Image.Resampling.BICUBIC).save(
            files[-1], quality=90
        )
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


class Contest:
    """The four ways, over the same files with the same checkpoint."""

    def __init__(self, options: argparse.Namespace, weights: Path, files: list[Path], scratch: Path):
        self.detector: Detector = detectors.create(
            "faster_rcnn",
            weights=weights,
            score_threshold=options.score_threshold,
            device=options.device,
            precision=options.precision,
            features_dtype="float16",
        )
        self.device = self.detector.torch_device()
        self.precision = options.precision
        self.params = InferenceParams(batch_size=options.batch_size, workers=options.workers)
        self.files = files
        self.scratch = scratch

    def network(self) -> FasterRCNN:
        """torchvision's own model, with the detector's thresholds."""
        weights = self.detector.weights
        network = load_network(weights, read_blueprint(weights)).to(self.device)
        network.roi_heads.score_thresh = self.detector.score_threshold
        network.roi_heads.detections_per_img = self.detector.max_detections
        network.roi_heads.nms_thresh = self.detector.nms_iou
        return network

    def autocast(self) -> torch.autocast:
        kind = torch.bfloat16 if self.precision == "bfloat16" else torch.float16
        return torch.autocast(self.device.type, kind, enabled=self.precision != "float32")

    def pixels(self, file: Path) -> torch.Tensor:
        return decode_image(str(file), ImageReadMode.RGB)

    def bare_loop(self) -> Callable[[], None]:
        network = self.network()
        ready = [self.pixels(file).to(self.device).float() / 255 for file in self.files]

        def run() -> None:
            with torch.inference_mode(), self.autocast():
                for batch in batches(ready, self.params.batch_size):
                    network(batch)

        return run

    def torchvision(self) -> Callable[[], None]:
        network = self.network()

        def run() -> None:
            with torch.inference_mode(), self.autocast():
                for files in batches(self.files, self.params.batch_size):
                    network([self.pixels(file).to(self.device).float() / 255 for file in files])

        return run

    def stage(self) -> Callable[[], None]:
        images, roots = table(self.files, len(self.files))

        def run() -> None:
            infer(
                self.detector,
                images,
                roots,
                self.scratch / "regions",
                self.scratch / "work",
                self.params,
                progress=False,
            )

        return run

    def torch_save(self) -> Callable[[], None]:
        folder = self.scratch / "saved"
        folder.mkdir(exist_ok=True)

        def run() -> None:
            for file in self.files:
                regions = self.detector.forward([self.detector.prepare(pictures.load(file))], [file.stem])
                numbers = {n: torch.from_numpy(v) for n, v in regions.columns().items() if n != "image_id"}
                torch.save(numbers, folder / f"{file.stem}.pt")

        return run


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def speeds(contest: Contest, rounds: int) -> dict[str, float]:
    """Images per second of each way: the median of rounds in which they take turns, after one that does not count."""
    ways = {
        "bare loop": contest.bare_loop(),
        "torchvision": contest.torchvision(),
        "stage": contest.stage(),
        "torch.save": contest.torch_save(),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in tqdm(range(rounds + 1), unit="round"):
        for name, run in ways.items():
            times[name].append(seconds(run))
    return {name: len(contest.files) / statistics.median(taken[1:]) for name, taken in times.items()}


def peak_memory(options: argparse.Namespace, weights: Path, count: int) -> dict[str, float]:
    """MiB at the most, of the stage's process and of its largest worker, measured in a process of their own."""
    handed_on = ("images", "width", "height", "count", "batch_size", "workers", "threads", "device", "precision")
    command = [sys.executable, __file__, "--measure-memory", str(count), "--weights", str(weights)]
    for name in (*handed_on, "score_threshold"):
        if getattr(options, name) is not None:
            command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def measured_memory(contest: Contest, count: int) -> dict[str, float]:
    images, roots = table(contest.files, count)
    infer(contest.detector, images, roots, contest.scratch / "regions", contest.scratch / "work", contest.params)
    kinds = {"process": resource.RUSAGE_SELF, "worker": resource.RUSAGE_CHILDREN}
    return {name: resource.getrusage(kind).ru_maxrss / 1024 for name, kind in kinds.items()}


def report(result: dict[str, dict[str, Any]]) -> None:
    print("| way | images/s | of the bare loop |\n| --- | --- | --- |")
    bare = result["images_per_second"]["bare loop"]
    for name, speed in result["images_per_second"].items():
        print(f"| {name} | {speed:.1f} | {speed / bare:.0%} |")
    if result["peak_memory_mib"]:
        print("\n| images | process, MiB | largest worker, MiB |\n| --- | --- | --- |")
    for count, peak in result["peak_memory_mib"].items():
        print(f"| {count} | {peak['process']:.0f} | {peak['worker']:.0f} |")


def main() -> None:
    options = arguments()
    if options.threads:
        torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        weights = options.weights or untrained(scratch, options.architecture)
        files = found(options.images, options.count) if options.images else drawn(scratch, options)
        contest = Contest(options, weights, files, scratch)
        if options.measure_memory:
            print(json.dumps(measured_memory(contest, options.measure_memory)))
            return
        counts = [options.memory_images, 10 * options.memory_images] if options.memory_images else []
        result = {
            "images_per_second": speeds(contest, options.rounds),
            "peak_memory_mib": {count: peak_memory(options, weights, count) for count in counts},
        }
    report(result)
    if options.json:
        options.json.write_text(
            json.dumps({"options": {k: str(v) for k, v in vars(options).items()}, **result}, indent=2)
        )


if __name__ == "__main__":
    main()
