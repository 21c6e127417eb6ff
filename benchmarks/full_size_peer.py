"""A program without farther that measures a run of `benchmarks/full_size.py`, to compare with.

Plain NumPy, scikit-learn, SciPy, FAISS and pycocotools, once through, all in memory; nothing is
stored.

    python benchmarks/full_size_peer.py DIR RUN [--replicates 10]
        a run with features, such as bdd-faster_rcnn

The same methods but DDU, and of farther's metrics a few only: AUROC, FPR95 and average precision of
each method and OOD split with 200 replicates by image, average precision of unknown objects, and
the detector's mAP with 200 replicates. Of the replicates `--replicates` are measured and multiplied
to 200. Reading the tables is not counted.

Prints seconds by the clock, processor seconds and the peak of memory; beside them those of
farther's stage and the largest difference in AUROC, where `full_size.py` evaluated that run before.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import yaml
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from scipy.special import logsumexp, softmax
from scipy.stats import multivariate_normal
from sklearn.covariance import EmpiricalCovariance
from sklearn.decomposition import PCA
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.preprocessing import normalize

from farther.tables import Objects, Regions

REPLICATES = 200
#: Rows whose features are looked at together.
ROWS = 8_192

Score = Callable[[Regions], np.ndarray]


def main() -> None:
    """Prints a table in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("project", type=Path)
    parser.add_argument("run")
    parser.add_argument(
        "--replicates", type=int, default=10, help=f"that are measured, of {REPLICATES}"
    )
    asked = parser.parse_args()
    params = yaml.safe_load((asked.project / "all.yaml").read_text())["detectors"][asked.run]
    splits = asked.project / "artifacts/splits" / params["benchmark"]
    folder = asked.project / "artifacts/regions" / asked.run
    threshold = params["threshold"]["rule"]
    train, val, test = (
        Regions.read(folder / name).above(threshold) for name in ("train", "val", "test")
    )
    odd = {
        path.name: Regions.read(path).above(threshold)
        for path in sorted(folder.iterdir())
        if path.is_dir() and path.name not in ("train", "val", "test")
    }
    objects = {name: Objects.read(splits / name / "objects.parquet") for name in ("test", *odd)}
    spent = Spent()
    share = REPLICATES / asked.replicates
    scores, draws = {}, np.random.default_rng(0)
    for name, fitted in fits(train):
        score = fitted()
        of = {
            split: by_rows(score, regions)
            for split, regions in {"val": val, "test": test, **odd}.items()
        }
        np.percentile(of["val"], 5)
        scores[name] = of
        spent.add("fit and score", name)
    auroc = {}
    images = {name: Rows(regions) for name, regions in {"test": test, **odd}.items()}
    for name, of in scores.items():
        for split in odd:
            auroc[name, split] = separated(of["test"], of[split])[0]
        spent.add("OOD metrics")
        for _ in range(asked.replicates):
            inside = of["test"][images["test"].drawn(draws)]
            for split in odd:
                separated(inside, of[split][images[split].drawn(draws)])
        spent.add("replicates of OOD metrics", times=share)
    for of in scores.values():
        for split, regions in odd.items():
            precision(objects[split], regions, of[split])
    spent.add("average precision of unknown objects")
    every = Regions.read(folder / "test")
    matched = precision(objects["test"], every, None)
    spent.add("mAP")
    for _ in range(asked.replicates):
        resampled(matched, draws)
    spent.add("replicates of mAP", times=share)
    print(*spent.lines(asked.project, asked.run), sep="\n")
    if differences := list(differences_to_farther(asked.project, asked.run, auroc)):
        print(
            "\nlargest difference in AUROC:",
            ", ".join(f"{name} {value:.1g}" for name, value in differences),
        )


def fits(train: Regions) -> Iterator[tuple[str, Callable[[], Score]]]:
    """Each method, fitted when it is called: it then gives the score of regions."""
    known = len(train.header.known_classes)
    assert train.header.weight is not None
    assert train.header.bias is not None
    weight = train.header.weight[:known].astype(np.float64)
    bias = train.header.bias[:known].astype(np.float64)
    labels = train.label

    def z(regions: Regions) -> np.ndarray:
        return column(regions, "logits")[:, :known].astype(np.float64)

    def h(regions: Regions) -> np.ndarray:
        return column(regions, "features").astype(np.float32)

    def clipped(level: float, of: np.ndarray = weight) -> Score:
        return lambda regions: logsumexp(np.minimum(h(regions), level) @ of.T + bias, axis=1)

    def gen(regions: Regions) -> np.ndarray:
        p = softmax(z(regions), axis=1)
        return -np.sqrt(p * (1 - p)).sum(axis=1)

    def level() -> float:
        return float(np.percentile(h(train), 90))

    def ash() -> Score:
        least = level()

        def score(regions: Regions) -> np.ndarray:
            every = h(regions)
            kept = np.where(every >= least, every, 0)
            scale = np.exp(every.sum(axis=1) / kept.sum(axis=1))
            return logsumexp((kept * scale[:, None]) @ weight.T + bias, axis=1)

        return score

    def sparse() -> np.ndarray:
        contributions = weight * h(train).mean(axis=0, dtype=np.float64)
        return np.where(contributions > np.percentile(contributions, 90), weight, 0)

    def vim() -> Score:
        origin = -np.linalg.pinv(weight) @ bias
        covariance = EmpiricalCovariance(assume_centered=True).fit(h(train) - origin).covariance_
        dim = 1000 if len(covariance) > 1000 else len(covariance) // 2
        residual = np.linalg.eigh(covariance)[1][:, : len(covariance) - dim]

        def left(regions: Regions) -> np.ndarray:
            return np.linalg.norm((h(regions) - origin) @ residual, axis=1)

        alpha = z(train).max(axis=1).sum() / by_rows(left, train).sum()
        return lambda regions: logsumexp(z(regions), axis=1) - alpha * left(regions)

    def mahalanobis(of: Score, train: Regions) -> Score:
        vectors = of(train)
        means = np.stack([vectors[labels == k].mean(axis=0) for k in np.unique(labels)])
        place = np.searchsorted(np.unique(labels), labels)
        precise = EmpiricalCovariance(assume_centered=True).fit(vectors - means[place]).precision_
        white = np.linalg.cholesky(precise)
        return lambda regions: (
            -(euclidean_distances(of(regions) @ white, means @ white, squared=True).min(axis=1))
        )

    def neighbours(of: Score) -> Score:
        stored = of(train).astype(np.float32)
        cells = round(len(stored) ** 0.5)
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(stored.shape[1]), stored.shape[1], cells)
        index.train(stored)
        index.add(stored)
        index.nprobe = 16
        return lambda regions: -np.sqrt(index.search(of(regions).astype(np.float32), 10)[0][:, 9])

    def components() -> Score:
        fitted = PCA(32, svd_solver="covariance_eigh").fit(
            column(train, "latent").astype(np.float64)
        )
        return lambda regions: fitted.transform(column(regions, "latent").astype(np.float64))

    def mixture() -> Score:
        of = components()
        v = of(train)
        each = [(np.mean(labels == k), v[labels == k]) for k in np.unique(labels)]
        densities = [
            (np.log(p), multivariate_normal(x.mean(axis=0), np.cov(x.T, bias=True)))
            for p, x in each
        ]

        def score(regions: Regions) -> np.ndarray:
            u = of(regions)
            return logsumexp([p + density.logpdf(u) for p, density in densities], axis=0)

        return score

    yield "confidence", lambda: lambda regions: regions.score
    yield "msp", lambda: lambda regions: softmax(z(regions), axis=1).max(axis=1)
    yield "energy", lambda: lambda regions: logsumexp(z(regions), axis=1)
    yield "gen", lambda: gen
    yield "vos", lambda: lambda regions: logsumexp(z(regions), axis=1)
    yield "knn", lambda: neighbours(lambda regions: normalize(h(regions)))
    yield (
        "mahalanobis",
        lambda: mahalanobis(lambda regions: column(regions, "features").astype(np.float64), train),
    )
    yield "vim", vim
    yield "ash", ash
    yield "dice", lambda: clipped(np.inf, sparse())
    yield "react", lambda: clipped(level())
    yield "dice_react", lambda: clipped(level(), sparse())
    yield "lard_mahalanobis", lambda: mahalanobis(components(), train)
    yield "lard_knn", lambda: neighbours(components())
    yield "lard_gmm", mixture


def column(regions: Regions, name: str) -> np.ndarray:
    """A column that the regions have."""
    values = regions.array(name)
    assert values is not None, name
    return values


def by_rows(score: Score, regions: Regions) -> np.ndarray:
    """A score in batches: whole splits in float64 would not fit."""
    return np.concatenate(
        [score(regions[start : start + ROWS]) for start in range(0, len(regions), ROWS)]
    )


def separated(inside: np.ndarray, outside: np.ndarray) -> tuple[float, float, float]:
    """AUROC, FPR95 and average precision with ID as the positive class."""
    truth, score = np.repeat([1, 0], [len(inside), len(outside)]), np.concatenate([inside, outside])
    false, true, _ = roc_curve(truth, score, drop_intermediate=False)
    fpr95 = false[np.searchsorted(true, 0.95)]
    return roc_auc_score(truth, score), fpr95, average_precision_score(truth, score)


class Rows:
    """The rows of each image, to be drawn with replacement."""

    def __init__(self, regions: Regions) -> None:
        self.order = np.argsort(regions.image_id, kind="stable")
        self.of = np.split(
            self.order,
            np.unique(np.asarray(regions.image_id)[self.order], return_index=True)[1][1:],
        )

    def drawn(self, rng: np.random.Generator) -> np.ndarray:
        """The rows of as many images, drawn."""
        return np.concatenate(
            [self.of[image] for image in rng.integers(len(self.of), size=len(self.of))]
        )


def precision(objects: Objects, regions: Regions, score: np.ndarray | None) -> COCOeval:
    """COCO's metrics of the detector, or class-agnostic AP of scores at an IoU of ½."""
    classes = {name: k + 1 for k, name in enumerate(regions.header.known_classes)}
    numbers = {name: k + 1 for k, name in enumerate(sorted({*objects.image_id, *regions.image_id}))}
    truth = COCO()
    truth.dataset = {
        "images": [{"id": number} for number in numbers.values()],
        "categories": [{"id": number} for number in (classes.values() if score is None else (1,))],
        "annotations": [
            {
                "id": number + 1,
                "image_id": numbers[image],
                "category_id": classes[category] if score is None else 1,
                "bbox": [x0, y0, x1 - x0, y1 - y0],
                "area": (x1 - x0) * (y1 - y0),
                "iscrowd": 0,
            }
            for number, (image, category, (x0, y0, x1, y1)) in enumerate(
                zip(objects.image_id, objects.category, objects.box.tolist(), strict=True)
            )
        ],
    }
    label = regions.label + 1 if score is None else np.ones(len(regions))
    value = regions.score if score is None else score
    boxes = np.concatenate([regions.box[:, :2], regions.box[:, 2:] - regions.box[:, :2]], axis=1)
    image = np.array([numbers[name] for name in regions.image_id])
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        found = truth.loadRes(np.column_stack([image, boxes, value, label]).astype(np.float64))
        run = COCOeval(truth, found, "bbox")
        if score is not None:
            run.params.iouThrs, run.params.areaRng, run.params.areaRngLbl = (
                np.array([0.5]),
                [[0, 1e10]],
                ["all"],
            )
        run.evaluate()
        run.accumulate()
    return run


def resampled(run: COCOeval, rng: np.random.Generator) -> None:
    """Metrics of a bootstrap resample of the images, whose matches are not computed again."""
    images, whole = len(run.params.imgIds), run.evalImgs
    chosen = rng.integers(images, size=images)
    run.evalImgs = [
        whole[start + image] for start in range(0, len(whole), images) for image in chosen
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        run.accumulate()
    run.evalImgs = whole


class Spent:
    """Seconds by the clock and of processors, part by part, and methods one by one."""

    def __init__(self) -> None:
        self.parts: dict[str, list[float]] = {}
        self.each: dict[str, float] = {}
        self._now = time.monotonic(), time.process_time()

    def add(self, part: str, method: str | None = None, times: float = 1) -> None:
        """What passed since the last call, as many times."""
        before, self._now = self._now, (time.monotonic(), time.process_time())
        passed = [times * (now - then) for now, then in zip(self._now, before, strict=True)]
        self.parts[part] = [
            a + b for a, b in zip(self.parts.get(part, [0, 0]), passed, strict=True)
        ]
        if method:
            self.each[method] = passed[1]

    def lines(self, project: Path, run: str) -> Iterator[str]:
        """A table."""
        yield f"\n{run}, the peer\n\n| part | seconds | processor seconds |\n| --- | ---: | ---: |"
        for name, (wall, cpu) in self.parts.items():
            yield f"| {name} | {wall:.1f} | {cpu:.1f} |"
        wall, cpu = np.sum(list(self.parts.values()), axis=0)
        yield f"| all | {wall:.1f} | {cpu:.1f} |"
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        yield f"\n{memory:,.0f} MiB. Processor seconds of methods: " + ", ".join(
            f"{name} {cpu:.1f}"
            for name, cpu in sorted(self.each.items(), key=lambda item: -item[1])
        )


def differences_to_farther(
    project: Path, run: str, auroc: dict[tuple[str, str], float]
) -> Iterator[tuple[str, float]]:
    """Each method, and its largest difference in AUROC to what farther's stage wrote, if it did."""
    largest: dict[str, float] = {}
    for (method, split), value in auroc.items():
        path = project / "artifacts/metrics" / run / split / f"{method}.json"
        if path.exists():
            metrics: dict[str, Any] = json.loads(path.read_text())
            largest[method] = max(largest.get(method, 0), abs(metrics["auroc"] - value))
    yield from largest.items()


if __name__ == "__main__":
    main()
