"""What a GPU changes: inference, scores, Monitor and pipeline, in one table of Markdown.

    python benchmarks/gpu.py
        on a machine with a GPU: inference and scores; about 6 minutes
    python benchmarks/gpu.py --project DIR
        with a finished demo in DIR: also the Monitor, and one run from images to scores
    python benchmarks/gpu.py --device cpu --smallest
        the same without a GPU, at the smallest size: that the script runs

The rows are

    inference   images per second of the stage, of the framework's own predict, and of the network
                alone (the bare loop), of untrained networks of the published sizes; see `infer.py`
    scores      milliseconds for the same regions: NumPy, the method's module on the device, and
                pytorch-ood there; the largest difference of the module's scores (float64) from
                NumPy's, in standard deviations of the scores
    monitor     what `monitor.py` prints
    pipeline    seconds of the stages `infer` and `score` of a run with cpu and with the device, and
                the largest difference of the scores

A part that fails, or takes longer than its share of --minutes, is a line on stderr; the others are
measured all the same.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

sys.path.insert(0, str(Path(__file__).parent))
import methods as method_benchmark
from farther.errors import FartherError
from farther.tables import Scores

HERE = Path(__file__).parent
ADAPTERS: tuple[str, ...] = ("faster_rcnn", "yolo", "detr", "classifier")
PRECISIONS: tuple[str, ...] = ("float32", "bfloat16", "float16")

#: Sizes of the regions that are scored: as many as the OOD splits of a published benchmark have.
LARGE = {"train": 20_000, "test": 100_000, "dimensions": 1024, "classes": 20}
SMALL = {"train": 300, "test": 60, "dimensions": 64, "classes": 3}

#: Options of `infer.py` and `monitor.py` for the smallest size.
SMALL_NETWORK = (
    "--width",
    "64",
    "--height",
    "48",
    "--count",
    "2",
    "--rounds",
    "1",
    "--workers",
    "0",
)
SMALL_MONITOR = ("--images", "2", "--batch-sizes", "1", "--rounds", "1", "--seconds", "0")

#: The run of the part `pipeline`.
RUN = "voc-faster_rcnn"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--smallest", action="store_true", help="tiny networks, a few regions")
    parser.add_argument("--project", type=Path, help="folder of a finished demo")
    parser.add_argument("--minutes", type=float, default=8, help="of all parts together")
    return parser.parse_args()


def run(command: list[str], folder: Path, end: float) -> str:
    """The output of a command; RuntimeError where it fails, or is not done in time."""
    left = end - time.monotonic()
    if left <= 0:
        raise RuntimeError("no time left")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=left,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"not done after {left:.0f} s") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise RuntimeError(lines[-1])
    return done.stdout


def measure_inference(args: argparse.Namespace, end: float) -> None:
    """Prints the speed of each adapter in each precision."""
    print("| adapter | precision | bare loop, images/s | framework | stage |")
    print("| --- | --- | ---: | ---: | ---: |")
    size = ["--full-size", "--width", "640", "--height", "480", "--count", "256"]
    if args.smallest:
        size = [*SMALL_NETWORK, "--max-detections", "5"]
    adapters = ADAPTERS
    precisions = PRECISIONS
    if args.smallest:
        adapters = ADAPTERS[:2]
        precisions = PRECISIONS[:1]
    for adapter in adapters:
        for precision in precisions:
            row = f"| {adapter} | {precision} "
            with tempfile.TemporaryDirectory() as scratch:
                file = Path(scratch) / "speed.json"
                command = [str(HERE / "infer.py"), adapter, *size, "--score-threshold", "0"]
                command += ["--device", args.device, "--precision", precision]
                try:
                    run([*command, "--json", str(file)], Path.cwd(), end)
                except RuntimeError as error:
                    print(f"inference, {adapter}, {precision}: {error}", file=sys.stderr)
                    continue
                speed = json.loads(file.read_text())["images_per_second"]
            bare = speed["bare loop"]
            framework = speed["framework"] / bare
            stage = speed["stage"] / bare
            print(f"{row}| {bare:.1f} | {framework:.2f} | {stage:.2f} |", flush=True)


def measure_scores(args: argparse.Namespace, end: float) -> None:
    """Prints the time and the difference of the scores of each method with a form in PyTorch."""
    sizes = SMALL if args.smallest else LARGE
    train = method_benchmark.make(sizes["train"], sizes["dimensions"], sizes["classes"], seed=1)
    test = method_benchmark.make(sizes["test"], sizes["dimensions"], sizes["classes"], seed=2)
    peers = {}
    with torch.no_grad():
        try:
            pairs = method_benchmark.modules(train, test, args.device, torch.float32)
            peers = {name: peer for name, (_, peer) in pairs.items()}
        except (RuntimeError, ImportError, AssertionError) as error:
            print(f"scores, pytorch-ood: {error!r}", file=sys.stderr)
        print("| method | NumPy, ms | module, ms | pytorch-ood, ms | largest difference |")
        print("| --- | ---: | ---: | ---: | ---: |")
        for name, method in method_benchmark.measured_methods(train, None).items():
            if method.no_torch_form():
                continue
            if time.monotonic() > end:
                print(f"scores, {name}: no time left", file=sys.stderr)
                continue
            try:
                print(
                    score_row(name, method, train, test, peers.get(name), args.device), flush=True
                )
            except (RuntimeError, FartherError) as error:
                print(f"scores, {name}: {error}", file=sys.stderr)


def score_row(
    name: str, method: Any, train: Any, test: Any, peer: Callable[[], object] | None, device: str
) -> str:
    """The row of a method."""
    method.fit(train)
    expected = method.score(test)
    exact = method.to_torch(device, torch.float64).score_regions(test)
    difference = np.abs(exact - expected).max() / max(expected.std(), 1e-300)

    module = method.to_torch(device, None if method.only_float64 else torch.float32)
    by_numpy = milliseconds(lambda: method.score(test), device)
    by_module = milliseconds(lambda: module.score_regions(test), device)
    by_peer = "–"
    if peer is not None:
        by_peer = f"{milliseconds(peer, device):.1f}"
    return f"| {name} | {by_numpy:.1f} | {by_module:.1f} | {by_peer} | {difference:.0e} |"


def milliseconds(work: Callable[[], object], device: str) -> float:
    """The shorter of two calls, after one that warms up."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return min(times[1:])


def measure_monitor(args: argparse.Namespace, end: float) -> None:
    """Prints the table of `monitor.py`."""
    command = [str(HERE / "monitor.py"), "--project", str(args.project), "--device", args.device]
    if args.smallest:
        command += ["--runs", RUN, *SMALL_MONITOR]
    try:
        print(run(command, args.project, end))
    except RuntimeError as error:
        print(f"monitor: {error}", file=sys.stderr)


def measure_pipeline(args: argparse.Namespace, end: float) -> None:
    """Prints the seconds of `infer` and `score` of a run on both devices."""
    print("| device | infer, s | score, s |\n| --- | ---: | ---: |")
    scores_of_runs = []
    for device in ("cpu", args.device):
        with tempfile.TemporaryDirectory() as scratch:
            project = Path(scratch) / "project"
            shutil.copytree(args.project, project, symlinks=True)
            file = project / "params.yaml"
            params = yaml.safe_load(file.read_text())
            params["detectors"][RUN].setdefault("params", {})["device"] = device
            params["scoring"]["device"] = device
            file.write_text(yaml.safe_dump(params, sort_keys=False))
            shutil.rmtree(project / "artifacts/regions" / RUN)
            try:
                run(["-m", "farther.pipeline.code_digests"], project, end)
                seconds = []
                for stage in ("infer", "score"):
                    start = time.monotonic()
                    run(["-m", f"farther.pipeline.{stage}", RUN], project, end)
                    seconds.append(time.monotonic() - start)
            except RuntimeError as error:
                print(f"pipeline, {device}: {error}", file=sys.stderr)
                return
            scores_of_runs.append(stored_scores(project))
        print(f"| {device} | {seconds[0]:.1f} | {seconds[1]:.1f} |", flush=True)
    print(f"\nLargest difference of a method's mean score: {largest_difference(*scores_of_runs)}")


def stored_scores(project: Path) -> dict[str, np.ndarray]:
    """Method and split → the stored scores of the run."""
    scores = {}
    for file in sorted((project / "artifacts/scores" / RUN).glob("*/*.parquet")):
        scores[f"{file.parent.name}, {file.stem}"] = Scores.read(file).score
    return scores


def largest_difference(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> str:
    """The largest difference of mean scores, in standard deviations, and where it is."""
    differences = {}
    for name, scores in first.items():
        if len(scores):
            spread = max(float(scores.std()), 1e-300)
            differences[name] = abs(second[name].mean() - scores.mean()) / spread
    name = max(differences, key=differences.__getitem__)
    return f"{differences[name]:.0e} ({name})"


def main() -> None:
    args = arguments()
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit("no GPU here: --device cpu --smallest tries the script without one")
    end = time.monotonic() + 60 * args.minutes
    name = args.device
    if args.device.startswith("cuda"):
        name = torch.cuda.get_device_name()
    print(f"{name}, PyTorch {torch.__version__}\n\n## Inference\n")
    measure_inference(args, end)
    print("\n## Scores\n")
    measure_scores(args, end)
    if args.project is not None:
        args.project = args.project.resolve()
        print("\n## Monitor\n")
        measure_monitor(args, end)
        print("\n## Pipeline\n")
        measure_pipeline(args, end)


if __name__ == "__main__":
    main()
