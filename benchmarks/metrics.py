"""Our metrics beside the libraries that users would pick instead, on made-up detections.

    python benchmarks/metrics.py [--images 5000] [--regions 40] [--classes 20] [--objects 6] [--repeat 1]

Prints seconds, the ratio to the other library, and how far the figures are apart.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from sklearn.metrics import average_precision_score, roc_auc_score

from farther.metrics import bootstrap, closed_set, ood, open_set, operating_threshold
from farther.tables import Objects, Regions

STATS = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large")
STATS += ("ar_1", "ar_10", "ar", "ar_small", "ar_medium", "ar_large")


def main() -> None:
    """Makes the world, runs both sides, prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("images", 5000), ("regions", 40), ("classes", 20), ("objects", 6), ("repeat", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    objects, regions = world(asked.images, asked.objects, asked.regions, asked.classes)
    print(f"{asked.images} images, {len(objects)} objects, {len(regions)} regions, {asked.classes} classes\n")
    print(f"{'':34}{'farther':>10}{'peer':>10}{'ratio':>8}  largest difference")
    closed_set_beside_pycocotools(objects, regions, asked.repeat)
    areas_beside_scikit_learn(len(regions), asked.repeat)
    others(objects, regions, asked.repeat)


def closed_set_beside_pycocotools(objects: Objects, regions: Regions, repeat: int) -> None:
    """COCO's twelve figures; the peer's time is without that for building its index."""
    ours, figures = timed(lambda: closed_set.evaluate(objects, regions), repeat)
    truth, detections = as_coco(objects, regions)
    theirs, stats = timed(lambda: by_pycocotools(truth, detections), repeat)
    difference = max(abs(figures[name] - value) for name, value in zip(STATS, stats, strict=True))
    row("COCO mAP (pycocotools)", ours, theirs, difference)


def areas_beside_scikit_learn(count: int, repeat: int) -> None:
    """AUROC and both AUPR of half as many ID as OOD scores, with ties."""
    random = np.random.default_rng(0)
    inside, outside = random.normal(1, 1, count // 3).round(4), random.normal(0, 1, count - count // 3).round(4)
    truth, together = np.repeat([1, 0], [len(inside), len(outside)]), np.concatenate([inside, outside])

    def peer() -> list[float]:
        auroc = roc_auc_score(truth, together)
        return [auroc, average_precision_score(truth, together), average_precision_score(1 - truth, -together)]

    ours, figures = timed(lambda: ood.evaluate(inside, outside), repeat)
    theirs, expected = timed(peer, repeat)
    found = [figures["auroc"], figures["aupr_in"], figures["aupr_out"]]
    row("AUROC, AUPR (scikit-learn)", ours, theirs, max(abs(a - b) for a, b in zip(found, expected, strict=True)))


def others(objects: Objects, regions: Regions, repeat: int) -> None:
    """What has no peer."""
    random = np.random.default_rng(1)
    scores = random.random(len(regions))
    row("open set, all regions", timed(lambda: open_set.evaluate(objects, regions, scores < 0.5), repeat)[0])
    split = open_set.Split(objects, regions)
    row("  one more method on it", timed(lambda: split.judge(scores < 0.3).figures(-scores), repeat)[0])
    row("operating threshold", timed(lambda: operating_threshold.choose(objects, regions), repeat)[0])
    draws = bootstrap.ImageDraws(set(objects.image_id) | set(regions.image_id), 200)
    outcome = split.judge(scores < 0.5)
    row("open set, 200 replicates", timed(lambda: bootstrap.open_set_figures(draws, outcome, -scores), repeat)[0])
    known = closed_set.Labelled(objects, regions)
    row("COCO mAP, 200 replicates", timed(lambda: bootstrap.closed_set_figures(draws, known), repeat)[0])
    row(
        "AUROC …, 200 replicates",
        timed(
            lambda: bootstrap.ood_figures(draws, regions.image_id, scores, draws, regions.image_id, scores**2), repeat
        )[0],
    )


def timed(run: Callable[[], Any], repeat: int) -> tuple[float, Any]:
    """The shortest of some runs in seconds, and the last result."""
    shortest, result = np.inf, None
    for _ in range(repeat):
        start = time.perf_counter()
        result = run()
        shortest = min(shortest, time.perf_counter() - start)
    return float(shortest), result


def row(what: str, ours: float, theirs: float | None = None, difference: float | None = None) -> None:
    beside = "" if theirs is None else f"{theirs:9.2f}s{theirs / ours:7.1f}×  {difference:.1e}"
    print(f"{what:34}{ours:9.2f}s{beside}", flush=True)


def world(images: int, objects: int, regions: int, classes: int) -> tuple[Objects, Regions]:
    """Random objects, 5% of them crowds, and random regions around them."""
    random = np.random.default_rng(0)
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
    moved = np.concatenate([np.minimum(moved[:, :2], moved[:, 2:]), np.maximum(moved[:, :2], moved[:, 2:])], axis=1)
    elsewhere = random.random(total) < 0.3
    truth = Objects(
        image_id=names[image],
        object_id=np.arange(count),
        box=box,
        category=labels[category],
        is_crowd=random.random(count) < 0.05,
    )
    detections = Regions(
        image_id=names[np.where(elsewhere, random.integers(0, images, total), image[source])],
        region_id=np.arange(total),
        box=moved,
        score=random.random(total),
        label=np.where(random.random(total) < 0.8, category[source], random.integers(0, classes, total)),
        logits=np.zeros((total, classes), np.float32),
        classes=tuple(labels),
    )
    return truth, detections


def as_coco(objects: Objects, regions: Regions) -> tuple[COCO, COCO]:
    """The same tables as pycocotools wants them."""
    images = {name: number + 1 for number, name in enumerate(sorted({*objects.image_id, *regions.image_id}))}
    classes = {name: number + 1 for number, name in enumerate(regions.classes)}

    def xywh(boxes: np.ndarray) -> list[list[float]]:
        boxes = boxes.astype(np.float64)
        return np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1).tolist()

    truth = COCO()
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
