r"""farther's metrics beside other libraries, on random detections.

    python benchmarks/metrics.py [--images 5000] [--regions 40] [--classes 20] [--objects 6] \
        [--repeat 1]
    python benchmarks/metrics.py --only unknowns
        12 methods × 4 splits × 7,000 detections, and the bootstrap
    python benchmarks/metrics.py --only scale
        100,000, 1 million, 10 million detections, each in a process

Prints seconds of CPU time, the ratio to the other library, and the largest difference. CPU time
changes little on a busy machine, and is the wall time of a single thread on an idle one. Lines with
"wall" have wall time.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import faster_coco_eval
import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from sklearn.metrics import average_precision_score, roc_auc_score

from farther.metrics import closed_set, ood, open_set
from farther.metrics.closed_set import operating_threshold
from farther.metrics.open_set import known_classes
from farther.metrics.open_set.outcomes import MatchingRules, OpenSetSplit
from farther.metrics.statistics import bootstrap
from farther.tables import Objects, Regions

#: The task of a benchmark run: methods, splits, images per split, and detections and objects per
#: image.
METHODS = 12
SPLITS = 4
IMAGES = 1000
DETECTIONS = 7
OBJECTS = 3
REPLICATES = 1000

#: Rows of the runs that show how cost grows.
SCALES = (100_000, 1_000_000, 10_000_000)

STATS = (
    *("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large"),
    *("ar_1", "ar_10", "ar", "ar_small", "ar_medium", "ar_large"),
)


def main() -> None:
    """Makes the world, runs both sides, prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (
        ("images", 5000),
        ("regions", 40),
        ("classes", 20),
        ("objects", 6),
        ("repeat", 1),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--only", choices=("tables", "unknowns", "scale", "one-scale"))
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of the sizes and replicates but those of 'tables'"
    )
    asked = parser.parse_args()
    if asked.only == "one-scale":
        at_scale(asked.regions)
        return
    if asked.only in (None, "tables"):
        tables(asked)
    if asked.only in (None, "unknowns"):
        unknowns(asked.repeat, asked.scale)
    if asked.only in (None, "scale"):
        for rows in SCALES:
            count = round(rows * asked.scale)
            here = [sys.executable, __file__, "--only", "one-scale", "--regions", str(count)]
            subprocess.run(here, check=True)


def tables(asked: argparse.Namespace) -> None:
    """One large table of detections."""
    objects, regions = world(asked.images, asked.objects, asked.regions, asked.classes)
    print(
        f"{asked.images} images, {len(objects)} objects, {len(regions)} regions, "
        f"{asked.classes} classes\n"
    )
    print(f"{'':34}{'farther':>10}{'peer':>10}{'ratio':>8}  largest difference")
    closed_set_beside_pycocotools(objects, regions, asked.repeat)
    areas_beside_scikit_learn(len(regions), asked.repeat)
    others(objects, regions, asked.repeat)


def unknowns(repeat: int, scale: float) -> None:
    """Measures the detection of unknown objects by all methods and splits, and one bootstrap."""
    images = max(10, round(IMAGES * scale))
    replicates = max(10, round(REPLICATES * scale))
    detections = images * DETECTIONS
    print(
        f"\n{METHODS} methods × {SPLITS} splits × {detections} detections, "
        f"{images * OBJECTS} objects, {images} images\n"
    )
    splits = [world(images, OBJECTS, DETECTIONS, 1, seed) for seed in range(SPLITS)]
    # As stored: what a table holds in double precision is rounded for the others too.
    scores = np.random.default_rng(0).random((SPLITS, METHODS, detections)).astype(np.float32)
    ours, found = timed(
        lambda: [by_farther(*tables, scores[k]) for k, tables in enumerate(splits)], repeat
    )
    peers = {
        "pycocotools": (COCO, COCOeval),
        "faster-coco-eval": (faster_coco_eval.COCO, faster_coco_eval.COCOeval_faster),
    }
    for name, (table, evaluation) in peers.items():
        theirs, expected = by_peer(table, evaluation, splits, scores)
        row(
            f"AP and recall ({name})", ours, theirs, float(np.abs(np.array(found) - expected).max())
        )
    shares = np.linspace(0.05, 0.95, 19)
    matched = [OpenSetSplit.of(*tables) for tables in splits]

    def sweep() -> None:
        for k, split in enumerate(matched):
            for score in scores[k]:
                for share in shares:
                    open_set.metrics(split.match(score > share), score)

    row(f"all metrics at {len(shares)} thresholds each", timed(sweep, repeat)[0])
    resampled(splits[0], splits[1], scores[:2], replicates)


def by_farther(objects: Objects, regions: Regions, scores: np.ndarray) -> list[tuple[float, float]]:
    """AP and recall of each method's score."""
    all_regions = np.ones(len(regions), dtype=bool)
    each = [
        open_set.evaluate(objects, regions.with_columns(score=score), all_regions)
        for score in scores
    ]
    return [(found["ap_u"], found["r_u"]) for found in each]


def by_peer(
    table: Any, evaluation: Any, splits: list[Any], scores: np.ndarray
) -> tuple[float, np.ndarray]:
    """AP and recall by another library, and its CPU seconds without those for its tables."""
    total, metrics = 0.0, np.zeros((SPLITS, METHODS, 2))
    for k, (objects, regions) in enumerate(splits):
        positives = int(np.sum(~objects.is_crowd))
        for method, score in enumerate(scores[k]):
            scored = Regions(**{**regions.columns(), "score": score}, header=regions.header)
            run = evaluation(*as_coco(objects, scored, table), "bbox")
            run.params.iouThrs, run.params.recThrs = (
                np.array([0.5]),
                np.arange(1, positives + 1) / positives,
            )
            run.params.areaRng, run.params.areaRngLbl, run.params.maxDets = (
                [[0, 1e10]],
                ["all"],
                [len(regions)],
            )

            def evaluate(run: Any = run) -> None:
                with contextlib.redirect_stdout(io.StringIO()):
                    run.evaluate()
                    run.accumulate()

            total += timed(evaluate, 1)[0]
            metrics[k, method] = np.mean(run.eval["precision"]), run.eval["recall"].reshape(())
    return total, metrics


def resampled(
    inside: tuple[Objects, Regions],
    outside: tuple[Objects, Regions],
    scores: np.ndarray,
    replicates: int,
) -> None:
    """Replicates of all metrics of one OOD split, for one method and for all."""
    draws = [
        bootstrap.ImageDraws({*o.image_id, *r.image_id}, replicates, seed)
        for seed, (o, r) in enumerate((inside, outside))
    ]
    split, known = OpenSetSplit.of(*outside), closed_set.ClosedSet.of(*inside)
    weights = draws[1].of(split.images)
    images = [regions.image_id for _, regions in (inside, outside)]

    def one(method: int) -> None:
        first, second = scores[:, method]
        ood.evaluate(first, second, draws[0].rows(images[0]), draws[1].rows(images[1]))
        sides = [
            ood.per_image(image, score)
            for image, score in zip(images, (first, second), strict=True)
        ]
        id_rows = draws[0].rows(sides[0][0])
        ood_rows = draws[1].rows(sides[1][0])
        ood.evaluate(sides[0][1], sides[1][1], id_rows, ood_rows)
        outcome = split.match(second < 0.5)
        open_set.metrics(outcome, -second, weights)
        open_set.metrics_over(split, closed_set.COCO_IOUS, second < 0.5, -second, weights)
        for group in (split.objects.category, split.sizes()):
            open_set.by_group(outcome, group, weights)

    def every() -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(one, range(METHODS)))

    for what, run in (
        ("one method", lambda: one(0)),
        (f"{METHODS} methods, two threads", every),
        (
            "COCO’s metrics of the ID split",
            lambda: closed_set.Matches.of(known).metrics(draws[0].of(known.images)),
        ),
        ("known classes of a mixed split", lambda: of_known(draws[1], outside, scores[1, 0])),
    ):
        start = time.perf_counter()
        cpu = timed(run, 1)[0]
        row(f"{replicates:,} replicates: {what}", cpu)
        print(f"{'':34}{time.perf_counter() - start:9.2f}s wall")


def of_known(
    draws: bootstrap.ImageDraws, tables: tuple[Objects, Regions], scores: np.ndarray
) -> None:
    """Replicates of the metrics of known classes, where all objects are known."""
    objects, regions = tables
    split = OpenSetSplit.of(
        objects, regions, MatchingRules(known_classes=regions.header.known_classes)
    )
    weights = draws.of(split.images)
    known_classes.metrics(
        split.match(scores < 0.5), regions, unknown_score=-scores, weights=weights
    )


def at_scale(rows: int) -> None:
    """CPU seconds and peak memory of one table of detections."""
    objects, regions = world(rows // 7, 3, 7, 2)
    score = np.random.default_rng(0).random(len(regions))

    def everything() -> None:
        split = OpenSetSplit.of(objects, regions)
        open_set.metrics(split.match(score < 0.5), -score)
        ood.evaluate(score, score**2)

    cpu = timed(everything, 1)[0]
    # Linux counts in KiB.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{len(regions):12,} detections {cpu:9.2f}s {1e6 * cpu / len(regions):6.2f}s a million "
        f"{peak:6.2f} GiB",
        flush=True,
    )


def closed_set_beside_pycocotools(objects: Objects, regions: Regions, repeat: int) -> None:
    """COCO's twelve metrics; the peer's time is without that for building its index."""
    ours, metrics = timed(lambda: closed_set.evaluate(objects, regions), repeat)
    truth, detections = as_coco(objects, regions)
    theirs, stats = timed(lambda: by_pycocotools(truth, detections), repeat)
    difference = max(abs(metrics[name] - value) for name, value in zip(STATS, stats, strict=True))
    row("COCO mAP (pycocotools)", ours, theirs, difference)


def areas_beside_scikit_learn(count: int, repeat: int) -> None:
    """AUROC and both AUPR of half as many ID as OOD scores, with ties."""
    random = np.random.default_rng(0)
    inside, outside = (
        random.normal(1, 1, count // 3).round(4),
        random.normal(0, 1, count - count // 3).round(4),
    )
    truth, together = (
        np.repeat([1, 0], [len(inside), len(outside)]),
        np.concatenate([inside, outside]),
    )

    def peer() -> list[float]:
        auroc = roc_auc_score(truth, together)
        return [
            auroc,
            average_precision_score(truth, together),
            average_precision_score(1 - truth, -together),
        ]

    ours, metrics = timed(lambda: ood.evaluate(inside, outside), repeat)
    theirs, expected = timed(peer, repeat)
    found = [metrics["auroc"], metrics["aupr_in"], metrics["aupr_out"]]
    row(
        "AUROC, AUPR (scikit-learn)",
        ours,
        theirs,
        max(abs(a - b) for a, b in zip(found, expected, strict=True)),
    )


def others(objects: Objects, regions: Regions, repeat: int) -> None:
    """What has no peer."""
    random = np.random.default_rng(1)
    scores = random.random(len(regions))
    row(
        "open set, all regions",
        timed(lambda: open_set.evaluate(objects, regions, scores < 0.5), repeat)[0],
    )
    split = OpenSetSplit.of(objects, regions)
    row(
        "  one more method on it",
        timed(lambda: open_set.metrics(split.match(scores < 0.3), -scores), repeat)[0],
    )
    row(
        "operating threshold",
        timed(lambda: operating_threshold.choose(objects, regions), repeat)[0],
    )
    draws = bootstrap.ImageDraws(set(objects.image_id) | set(regions.image_id), 200)
    outcome, weights = split.match(scores < 0.5), draws.of(split.images)
    row(
        "open set, 200 replicates",
        timed(lambda: open_set.metrics(outcome, -scores, weights), repeat)[0],
    )
    known = closed_set.ClosedSet.of(objects, regions)
    row(
        "COCO’s metrics, 200 replicates",
        timed(lambda: closed_set.Matches.of(known).metrics(draws.of(known.images)), repeat)[0],
    )
    rows = draws.rows(regions.image_id)
    row(
        "AUROC …, 200 replicates",
        timed(lambda: ood.evaluate(scores, scores**2, rows, rows), repeat)[0],
    )


def timed(run: Callable[[], Any], repeat: int) -> tuple[float, Any]:
    """The shortest of some runs in seconds of CPU time, and the last result."""
    shortest, result = np.inf, None
    for _ in range(repeat):
        start = time.process_time()
        result = run()
        shortest = min(shortest, time.process_time() - start)
    return float(shortest), result


def row(
    what: str, ours: float, theirs: float | None = None, difference: float | None = None
) -> None:
    beside = "" if theirs is None else f"{theirs:9.2f}s{theirs / ours:7.1f}×  {difference:.1e}"
    print(f"{what:34}{ours:9.2f}s{beside}", flush=True)


def world(
    images: int, objects: int, regions: int, classes: int, seed: int = 0
) -> tuple[Objects, Regions]:
    """Random objects, 5% of them crowds, and random regions around them.

    Both are sorted by image, as stored tables are.
    """
    random = np.random.default_rng(seed)
    count, total = images * objects, images * regions
    image = np.sort(random.integers(0, images, count))
    corner = random.uniform(0, 400, (count, 2))
    size = np.exp(random.uniform(np.log(8), np.log(250), (count, 2)))
    box = np.concatenate([corner, corner + size], axis=1)
    names = np.array([f"{number:07d}" for number in range(images)], dtype=object)
    labels = np.array([f"class {number}" for number in range(classes)], dtype=object)
    category = random.integers(0, classes, count)
    source = random.integers(0, count, total)
    moved = box[source] + random.normal(0, 0.08, (total, 4)) * np.tile(size[source], 2)
    moved = np.concatenate(
        [np.minimum(moved[:, :2], moved[:, 2:]), np.maximum(moved[:, :2], moved[:, 2:])], axis=1
    )
    of_image = np.where(
        random.random(total) < 0.3, random.integers(0, images, total), image[source]
    )
    order = np.argsort(of_image, kind="stable")
    truth = Objects(
        image_id=names[image],
        object_id=np.arange(count),
        box=box,
        category=labels[category],
        is_crowd=random.random(count) < 0.05,
    )
    detections = Regions(
        image_id=names[of_image[order]],
        region_id=np.arange(total),
        box=moved[order],
        score=random.random(total),
        label=np.where(
            random.random(total) < 0.8, category[source], random.integers(0, classes, total)
        )[order],
        logits=np.zeros((total, classes), np.float32),
        classes=tuple(labels),
    )
    return truth, detections


def as_coco(objects: Objects, regions: Regions, table: Any = COCO) -> tuple[Any, Any]:
    """The same tables as pycocotools, or another library, wants them."""
    images = {
        name: number + 1
        for number, name in enumerate(sorted({*objects.image_id, *regions.image_id}))
    }
    classes = {name: number + 1 for number, name in enumerate(regions.classes)}

    def xywh(boxes: np.ndarray) -> list[list[float]]:
        boxes = boxes.astype(np.float64)
        return np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1).tolist()

    truth = table()
    truth.dataset = {
        "images": [{"id": number} for number in images.values()],
        "categories": [{"id": number} for number in classes.values()],
        "annotations": [
            {
                "id": number + 1,
                "image_id": images[objects.image_id[number]],
                "category_id": classes[objects.category[number]],
                "bbox": box,
                "area": box[2] * box[3],
                "iscrowd": int(objects.is_crowd[number]),
            }
            for number, box in enumerate(xywh(objects.box))
        ],
    }
    found = [
        {
            "image_id": images[regions.image_id[number]],
            "category_id": int(regions.label[number]) + 1,
            "bbox": box,
            "score": float(regions.score[number]),
        }
        for number, box in enumerate(xywh(regions.box))
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        return truth, truth.loadRes(found)


def by_pycocotools(truth: COCO, detections: COCO) -> list[float]:
    with contextlib.redirect_stdout(io.StringIO()):
        run = COCOeval(truth, detections, "bbox")
        run.evaluate()
        run.accumulate()
        run.summarize()
    return [float(value) for value in run.stats]


if __name__ == "__main__":
    main()
