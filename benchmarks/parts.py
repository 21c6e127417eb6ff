r"""Time of each part of inference, for batch sizes, precisions and ways to run the network.

    python benchmarks/parts.py --device cuda
    python benchmarks/parts.py yolo faster_rcnn --batch-size 1 8 16 32 \
        --precision float32 bfloat16 --device cuda
    python benchmarks/parts.py detr --full-size --score-threshold 0 --images artifacts/demo/voc \
        --count 32

Two tables in Markdown. The first has the milliseconds per image of each part of the stage `infer`,
each alone:

    decode      from the file to pixels, on one core
    prepare     what the detector does to the pixels on the CPU, on one core
    network     the bare network on batches that are in the device's memory
    forward     the call of the stage: transfer, network, pooling of features and latents,
                selection, back to the CPU
    write       the regions to Parquet
    stage       all of it together, by the engine with its worker processes

and the images per second of the stage beside those of the framework's own predict (see `infer.py`),
and the hours that the stage would take for the images that `--benchmark-images` names (by default
the eight runs of FMIYC, Table 2). The second has the network in the other memory layout
(`channels_last`) and compiled (`--compile`: minutes per shape), as speed over the first table's
network.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from farther.images import read as pictures
from farther.tables import Regions, RegionsWriter
from infer import LOOPS, Contest, FasterRCNNLoops, batches, checkpoint, drawn, found, seconds

#: Images of FMIYC's two ID datasets and six OOD splits, four detectors each.
FMIYC = 4 * (16_551 + 4_952 + 20_000 + 10_000 + 2 * (1_174 + 938 + 1_873 + 908 + 1_179 + 1_695))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "adapters", nargs="*", help=f"of {', '.join(sorted(LOOPS))}; all by default"
    )
    parser.add_argument("--weights", type=Path, help="a checkpoint; for one adapter only")
    parser.add_argument(
        "--full-size", action="store_true", help="untrained networks of the published size"
    )
    parser.add_argument("--images", type=Path, help="folder of images; drawn noise when left out")
    parser.add_argument("--width", type=int, default=1280, help="of the drawn images")
    parser.add_argument("--height", type=int, default=720, help="of the drawn images")
    parser.add_argument("--count", type=int, default=128, help="images in a timed pass")
    parser.add_argument("--batch-size", type=int, nargs="+", default=[1, 8, 16, 32])
    parser.add_argument("--precision", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--workers", type=int, help="of the stage; its own choice when left out")
    parser.add_argument("--threads", type=int, help="of PyTorch; its own choice when left out")
    parser.add_argument("--score-threshold", type=float, default=0.05)
    parser.add_argument("--max-detections", type=int, default=100)
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--rounds", type=int, default=3, help="timed passes of each; the median counts"
    )
    parser.add_argument("--compile", action="store_true", help="time the compiled network, too")
    parser.add_argument("--benchmark-images", type=int, default=FMIYC)
    options = parser.parse_args()
    options.adapters = options.adapters or sorted(LOOPS)
    unknown = set(options.adapters) - set(LOOPS)
    if unknown or (options.weights and len(options.adapters) > 1):
        parser.error(f"no adapter {min(unknown)!r}" if unknown else "--weights is for one adapter")
    return options


@dataclass
class Timer:
    """Milliseconds per image: the median of some passes, after one that does not count."""

    images: int
    rounds: int

    def __call__(self, run: Callable[[], Any]) -> float:
        seconds(run)
        return 1000 * statistics.median(seconds(run) for _ in range(self.rounds)) / self.images


def parts(contest: Contest, timer: Timer, batch_size: int) -> dict[str, float]:
    """Milliseconds per image of each part."""
    detector, files = contest.detector, contest.files
    images = [pictures.load(file) for file in files]
    prepared = [detector.prepare(image) for image in images]
    names = [file.stem for file in files]
    todo = list(zip(batches(prepared, batch_size), batches(names, batch_size), strict=True))
    regions = Regions.concatenate([detector.forward(*one) for one in todo])

    def write() -> None:
        writer = RegionsWriter(contest.scratch / "written", detector.header())
        writer.write_shard(0, regions, len(files))
        writer.close(1)

    return {
        "decode": timer(lambda: [pictures.load(file) for file in files]),
        "prepare": timer(lambda: [detector.prepare(image) for image in images]),
        "network": timer(contest.loops.bare_loop()),
        "forward": timer(lambda: [detector.forward(*one) for one in todo]),
        "write": timer(write),
        "stage": timer(lambda: contest.stage(len(files))),
        "framework": timer(contest.loops.framework()),
    }


def module_of(contest: Contest) -> torch.nn.Module:
    """The PyTorch module that the bare loop runs, from now on always the same one."""
    network = contest.detector.network
    if isinstance(
        contest.loops, FasterRCNNLoops
    ):  # torchvision's own model, which each loop would load again
        network = contest.loops.network()
        contest.loops.network = lambda: network  # type: ignore[method-assign]
    return network if isinstance(network, torch.nn.Module) else network.network


def layouts(contest: Contest, timer: Timer, plain: float, *, compiled: bool) -> dict[str, float]:
    """Speed of the bare network in other ways to run it, over its speed as it is."""
    module = module_of(contest)
    found = {}
    module.to(memory_format=torch.channels_last)
    found["channels_last"] = plain / timer(contest.loops.bare_loop())
    if compiled:
        module.compile()
        found["channels_last, compiled"] = plain / timer(contest.loops.bare_loop())
    return found


def rows(
    options: argparse.Namespace, files: list[Path], scratch: Path
) -> Iterator[tuple[str, dict[str, float], Any]]:
    """Yields a setting's name, parts and layouts, per adapter, precision and batch size."""
    timer = Timer(len(files), options.rounds)
    for adapter in options.adapters:
        weights = checkpoint(argparse.Namespace(**{**vars(options), "adapter": adapter}), scratch)
        for precision in options.precision:
            for size in options.batch_size:
                one = argparse.Namespace(
                    **{
                        **vars(options),
                        "adapter": adapter,
                        "batch_size": size,
                        "precision": precision,
                    }
                )
                contest = Contest(one, weights, files, scratch)
                spent = parts(contest, timer, size)
                others = layouts(contest, timer, spent["network"], compiled=options.compile)
                yield f"{adapter} | {precision} | {size}", spent, others


def main() -> None:
    """Prints both tables."""
    options = arguments()
    if options.threads:
        torch.set_num_threads(options.threads)
    device = (
        torch.cuda.get_device_name()
        if torch.cuda.is_available() and options.device != "cpu"
        else "CPU"
    )
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        files = found(options.images, options.count) if options.images else drawn(scratch, options)
        second = []
        names = ("decode", "prepare", "network", "forward", "write", "stage")
        print(f"{device}, PyTorch {torch.__version__}, {len(files)} images\n")
        print(
            f"| adapter | precision | batch | {' | '.join(names)} | images/s | of the framework "
            "| hours |"
        )
        print(f"| --- | --- | ---: |{' ---: |' * (len(names) + 3)}")
        for row, spent, others in rows(options, files, scratch):
            hours = options.benchmark_images * spent["stage"] / 3.6e6
            values = [*(f"{spent[name]:.2f}" for name in names), f"{1000 / spent['stage']:.1f}"]
            print(
                f"| {row} | {' | '.join(values)} | {spent['framework'] / spent['stage']:.2f} "
                f"| {hours:.1f} |",
                flush=True,
            )
            second.append((row, others))
    names = tuple(second[0][1])
    print(f"\n| adapter | precision | batch | {' | '.join(names)} |")
    print(f"| --- | --- | ---: |{' ---: |' * len(names)}")
    for row, others in second:
        print(f"| {row} | {' | '.join(f'{value:.2f}' for value in others.values())} |")


if __name__ == "__main__":
    main()
