"""Time and memory of fit, score, evaluate and the gallery, from 10⁴ to 10⁷ regions.

    python benchmarks/growth.py DIR
        10⁴, 10⁵, 10⁶, 10⁷ regions; 6 GB of disk in DIR, deleted afterwards
    python benchmarks/growth.py DIR --rows 1000000
        one size
    python benchmarks/growth.py DIR --draw benchmarks/growth.svg
        the chart of the sizes that were measured last

Detections are drawn, 10 per image, with features of 64 values in float16 and 11 logits. N regions
are fitted, N are scored, N are evaluated with 1,000 replicates (half of them ID, half OOD), and
those of the OOD split are written to the gallery. τ and t* are taken from N / 10 further ones, at
most 10⁵. Each step is a process of its own: `fit` is t* and 12 methods, `score` 12 methods,
`evaluate` all metrics with intervals. Prints a table, and appends the measurements to
DIR/growth.csv.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from farther.evaluation.evaluate import EvaluationCode, evaluate_run
from farther.evaluation.files import Roles, RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.settings import EvaluationSettings
from farther.evaluation.stored_results import StoredResults
from farther.evaluation.threshold import ThresholdSettings, choose_threshold
from farther.report.gallery.outcomes import read_run_outcomes, read_run_summaries
from farther.report.pages.gallery import Gallery
from farther.report.results import OodTestSplit, Run
from farther.report.settings import GallerySettings
from farther.report.site import Site
from farther.scoring.entries import read_entry
from farther.scoring.fit import fit_run
from farther.scoring.inputs import RunRegions, TauSettings
from farther.scoring.score import score_run
from farther.tables import Header, Images, Objects, Regions, RegionsWriter
from farther.tables.documents import write_json

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
METHODS = (
    *("msp", "mls", "energy", "entropy", "gen", "react"),
    *("dice", "ash", "she", "vim", "mahalanobis", "ddu"),
)
REPLICATES = 1_000
#: Values of the features, known classes, and regions and objects per image.
WIDTH, CLASSES, PER_IMAGE, OBJECTS = 64, 10, 10, 5
#: Images per shard.
SHARD = 10_000
SIDE = 640
RUN, BENCHMARK = "drawn", "grown"
STEPS = ("fit", "score", "evaluate", "gallery")
#: GiB that no step may exceed.
LIMIT = 4.0


def write(folder: Path, rows: int) -> None:
    """The tables of a benchmark and a run: splits train, val, test and ood."""
    counts = {"train": rows, "val": min(rows // 10, 100_000), "test": rows // 2, "ood": rows // 2}
    files = RunFiles(RUN, BENCHMARK, folder)
    write_json(
        folder / "splits" / BENCHMARK / "roles.json",
        vars(Roles(test=("ood",), distance={"ood": "near"}))
        | {"shifted": {}, "pairs": {}, "similar": []},
    )
    rng = np.random.default_rng(0)
    weight = rng.normal(0, 0.35, (CLASSES + 1, WIDTH)).astype(np.float32)
    names = [f"class {k}" for k in range(CLASSES)]
    header = Header(
        (*names, "background"),
        CLASSES,
        score_threshold=0.05,
        detector={"name": "drawn"},
        weight=weight,
        bias=np.zeros(CLASSES + 1, np.float32),
    )
    for split, count in counts.items():
        images = max(20, count // PER_IMAGE)
        image_id = np.array([f"{split}{number:07d}" for number in range(images)], dtype=object)
        constant = {"dataset": [split] * images, "digest": ["0"] * images}
        sides = {"width": np.full(images, SIDE), "height": np.full(images, SIDE)}
        Images(
            image_id=image_id, file=[f"{name}.jpg" for name in image_id], **constant, **sides
        ).write(files.images(split))
        rng = np.random.default_rng(sum(split.encode()))
        corner = rng.uniform(0, SIDE - 150, (images * OBJECTS, 2)).astype(np.float32)
        box = np.hstack([corner, corner + rng.uniform(20, 150, corner.shape).astype(np.float32)])
        category = rng.integers(0, CLASSES, len(box))
        words = np.array(
            [f"unknown {k}" for k in range(CLASSES)] if split == "ood" else names, dtype=object
        )
        Objects(
            image_id=np.repeat(image_id, OBJECTS),
            object_id=np.arange(len(box)),
            box=box,
            category=words[category],
        ).write(files.objects(split))
        writer = RegionsWriter(files.regions(split), header)
        shards = range(0, images, SHARD)
        for number, start in enumerate(shards):
            part = slice(start, min(start + SHARD, images))
            of_part = slice(part.start * OBJECTS, part.stop * OBJECTS)
            drawn = draw(
                image_id[part], box[of_part], category[of_part], header, rng, known=split != "ood"
            )
            writer.write_shard(number, drawn, part.stop - part.start)
        writer.close(len(shards))


def draw(
    image_id: np.ndarray,
    box: np.ndarray,
    category: np.ndarray,
    header: Header,
    rng: np.random.Generator,
    *,
    known: bool,
) -> Regions:
    """Random detections of images: one on most objects, the others on no object.

    Features lie near those of the detection's class.
    """
    shape = (len(image_id), PER_IMAGE)
    corner = rng.uniform(0, SIDE - 150, (*shape, 2)).astype(np.float32)
    boxes = np.concatenate(
        [corner, corner + rng.uniform(20, 150, corner.shape).astype(np.float32)], axis=2
    )
    boxes[:, :OBJECTS] = box.reshape(len(image_id), OBJECTS, 4) + rng.normal(
        0, 3, (len(image_id), OBJECTS, 4)
    )
    boxes = boxes.reshape(-1, 4)
    boxes = np.hstack(
        [np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:]) + 1]
    )
    label = rng.integers(0, CLASSES, shape)
    if known:
        label[:, :OBJECTS] = category.reshape(-1, OBJECTS)
    share = rng.beta(2, 4, shape).astype(np.float32)
    share[:, :OBJECTS] = rng.beta(*((6, 2) if known else (4, 3)), (len(image_id), OBJECTS))
    weight = header.weight
    assert weight is not None
    mixed = (
        share.reshape(-1, 1) * weight[label.reshape(-1)] + (1 - share.reshape(-1, 1)) * weight[-1]
    )
    features = np.maximum(mixed + rng.normal(0, 0.25, mixed.shape).astype(np.float32), 0).astype(
        np.float16
    )
    logits = features.astype(np.float32) @ weight.T
    exponential = np.exp(logits - logits.max(axis=1, keepdims=True))
    probability = (exponential / exponential.sum(axis=1, keepdims=True))[:, :CLASSES]
    best = probability.argmax(axis=1)
    return Regions(
        header=header,
        image_id=np.repeat(image_id, PER_IMAGE),
        region_id=np.tile(np.arange(PER_IMAGE), len(image_id)),
        box=boxes,
        score=np.maximum(probability[np.arange(len(best)), best], 0.05),
        label=best,
        logits=logits,
        features=features,
    )


def fit(folder: Path) -> None:
    """t*, and all methods fitted to the training split."""
    files = RunFiles(RUN, BENCHMARK, folder)
    operating = choose_threshold(files, ThresholdSettings())
    shutil.rmtree(files.all_fitted, ignore_errors=True)
    entries = [read_entry(name, {}) for name in METHODS]
    run = RunRegions(files.all_regions, operating, truth=files.truth, test_splits=("ood",))
    print(fit_run(entries, run, files.all_fitted, dict.fromkeys(METHODS, "")))


def score(folder: Path) -> None:
    """The scores of all splits."""
    files = RunFiles(RUN, BENCHMARK, folder)
    print(
        score_run(
            files.all_regions,
            files.all_passes,
            files.all_fitted,
            folder / "scores" / RUN,
            lambda method: "",
        )
    )


def evaluate(folder: Path, replicates: int) -> None:
    """All metrics with intervals."""
    files = RunFiles(RUN, BENCHMARK, folder)
    inputs = RunInputs(files, files.roles, EvaluationSettings(replicates=replicates))
    _, computed = evaluate_run(inputs, TauSettings(), EvaluationCode(""))
    print(f"evaluated {', '.join(computed)}")


def gallery(folder: Path) -> None:
    """The gallery's page and data, of the images that it takes by default."""
    splits = (OodTestSplit("ood", "ood", "near"),)
    run = Run(RUN, BENCHMARK, "", "", splits, StoredResults(RunFiles(RUN, BENCHMARK, folder)))
    report = folder / "report"
    page = Gallery(Site(report), {"ood": folder / "photos"}, report, GallerySettings())
    page.add(run, read_run_outcomes(run, folder))
    page.list_run(run, read_run_summaries(run, folder), METHODS[0])
    page.write()


def measured(folder: Path, rows: int, steps: tuple[str, ...], replicates: int) -> pl.DataFrame:
    """Wall and processor seconds and the peak memory (GiB) of each step, a process of its own."""
    found = []
    for step in steps:
        start = time.monotonic()
        command = [sys.executable, __file__, str(folder), "--step", step, "--rows", str(rows)]
        process = subprocess.Popen([*command, "--replicates", str(replicates)])
        _, status, used = os.wait4(process.pid, 0)
        if status:
            sys.exit(f"{step} failed at {rows:,} regions")
        spent = {"wall": time.monotonic() - start, "cpu": used.ru_utime + used.ru_stime}
        found.append({"rows": rows, "step": step, **spent, "memory": used.ru_maxrss / 2**20})
        print(
            f"{rows:12,} {step:10}{spent['wall']:9.1f} s{spent['cpu']:9.1f} s CPU"
            f"{found[-1]['memory']:7.2f} GiB"
        )
        sys.stdout.flush()
    return pl.DataFrame(found)


def exponent(rows: np.ndarray, values: np.ndarray) -> float:
    """Slope between the last two sizes on log-log axes; 1 is linear."""
    return float(np.diff(np.log(values[-2:]))[0] / np.diff(np.log(rows[-2:]))[0])


def summary(found: pl.DataFrame) -> str:
    """A Markdown table: processor seconds and memory of each step and size, and the exponents."""
    sizes = sorted(found["rows"].unique())
    heads = [
        f"10{str(len(str(size)) - 1).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
        for size in sizes
    ]
    lines = [
        "| step | " + " | ".join(heads) + " | exponents |",
        "| --- |" + " ---: |" * (len(sizes) + 1),
    ]
    for (step,), of in found.sort("rows").group_by("step", maintain_order=True):
        measured = {
            rows: f"{cpu:.1f} s, {memory:.2f} GiB"
            for rows, cpu, memory in of["rows", "cpu", "memory"].rows()
        }
        slopes = [
            exponent(of["rows"].to_numpy(), of[name].to_numpy()) for name in ("cpu", "memory")
        ]
        cells = [measured.get(size, "–") for size in sizes]
        lines.append(f"| {step} | " + " | ".join(cells) + f" | {slopes[0]:.2f}, {slopes[1]:.2f} |")
    return "\n".join(lines)


def chart(found: pl.DataFrame) -> str:
    """Processor seconds and memory over regions on log-log axes, as SVG."""
    import vl_convert

    from farther.report.charts.vega import COLOURS

    panels = []
    for name, title, limit in (
        ("cpu", "Processor seconds", None),
        ("memory", "Peak memory, GiB", LIMIT),
    ):
        ends = []
        for (step,), of in found.sort("rows").group_by("step", maintain_order=True):
            slope = exponent(of["rows"].to_numpy(), of[name].to_numpy())
            ends += [{**row, "of": f"{step}: N^{slope:.2f}"} for row in of.iter_rows(named=True)]
        encoding: dict[str, dict[str, Any]] = {
            "x": {
                "field": "rows",
                "type": "quantitative",
                "scale": {"type": "log"},
                "title": "Regions, N",
            },
            "y": {"field": name, "type": "quantitative", "scale": {"type": "log"}, "title": title},
            "color": {
                "field": "of",
                "scale": {"range": list(COLOURS[:4])},
                "title": None,
                "sort": None,
            },
        }
        encoding["x"]["axis"] = {"format": "~e", "values": [float(10**k) for k in range(3, 9)]}
        encoding["y"]["axis"] = {"format": "~g", "values": [float(f"1e{k}") for k in range(-2, 5)]}
        lines = {"mark": {"type": "line", "point": True}, "encoding": encoding}
        rule = {"mark": {"type": "rule", "strokeDash": [4, 4]}, "encoding": {"y": {"datum": limit}}}
        layers = [lines] if limit is None else [lines, rule]
        panels.append({"data": {"values": ends}, "layer": layers, "width": 260, "height": 240})
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "background": "white",
        "config": {
            "font": "sans-serif",
            "legend": {"orient": "top", "columns": 2, "columnPadding": 24},
        },
        "hconcat": panels,
        "resolve": {"scale": {"color": "independent"}},
    }
    return str(vl_convert.vegalite_to_svg(spec))


def main() -> None:
    """Measures one step, or all of some sizes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=SIZES)
    parser.add_argument("--step", choices=("write", *STEPS), help="one step alone, in this process")
    parser.add_argument(
        "--steps", nargs="+", default=STEPS, choices=STEPS, help="only these, on tables kept before"
    )
    parser.add_argument("--replicates", type=int, default=REPLICATES, help="of each interval")
    parser.add_argument("--keep", action="store_true", help="keep the tables of each size")
    parser.add_argument("--draw", type=Path, help="write the chart of DIR/growth.csv to this file")
    asked = parser.parse_args()
    record = asked.folder / "growth.csv"
    if asked.draw is not None:
        found = pl.read_csv(record).unique(["rows", "step"], keep="last", maintain_order=True)
        asked.draw.write_text(chart(found))
        print(summary(found))
        return
    if asked.step is not None:
        folder = asked.folder / str(asked.rows[0])
        steps: dict[str, Callable[[Path], None]] = {
            **{"fit": fit, "score": score, "gallery": gallery},
            "evaluate": lambda folder: evaluate(folder, asked.replicates),
            "write": lambda folder: write(folder, asked.rows[0]),
        }
        steps[asked.step](folder)
        return
    for rows in asked.rows:
        folder = asked.folder / str(rows)
        if not folder.exists():
            measured(asked.folder, rows, ("write",), asked.replicates)
        found = measured(asked.folder, rows, tuple(asked.steps), asked.replicates)
        if record.exists():
            found = pl.concat([pl.read_csv(record), found])
        found.write_csv(record)
        if not asked.keep:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
