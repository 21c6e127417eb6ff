"""Time to write and to open the report's gallery, with random detections in one split.

    python benchmarks/gallery.py [--detections 100000] [--methods 12] [--repeat 5]

Writes the data, prints their size and the CPU time, then opens the page from disk in headless
Chromium (it must be installed) until the first images are laid out. Prints the
shortest and the longest wall time of the repeats: where they are far apart, the machine is busy.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

from farther.evaluation.stored_results import StoredResults
from farther.report.gallery.outcomes import read_run_outcomes, read_run_summaries
from farther.report.pages.gallery import Gallery
from farther.report.results import OodTestSplit, Run
from farther.report.settings import GallerySettings
from farther.report.site import Site
from farther.tables import Header, Images, ObjectOutcomes, Objects, RegionOutcomes, Regions, Scores
from farther.tables.annotations import OBJECT_OUTCOMES

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.conftest import CHROMIUM
from tests.support.evaluations import evaluation_of

CLASSES, CATEGORIES, WIDTH, HEIGHT = 20, 300, 640, 480


def main() -> None:
    """Makes the split, writes the gallery, opens it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("detections", 100_000), ("methods", 12), ("repeat", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = made_up(Path(folder), asked.detections, asked.methods)
        file = write(Path(folder), run)
        open_often(file, asked.repeat)


def made_up(artifacts: Path, detections: int, methods: int) -> Run:
    """Writes random tables of a run: 5 detections and 3 objects per image.

    Half of the detections lie on an object.
    """
    rng = np.random.default_rng(0)
    count, objects = detections // 5, detections * 3 // 5
    names = np.array([f"{number:012d}" for number in range(count)], dtype=object)
    corner = rng.uniform(0, 1, (objects, 2)) * [WIDTH - 140, HEIGHT - 140]
    box = np.hstack([corner, corner + rng.uniform(20, 140, (objects, 2))])
    shown = np.sort(rng.integers(0, count, objects))
    lies_on = np.sort(rng.integers(0, objects, detections))
    # Half of them are moved so far that they lie beside it.
    moved = rng.uniform(-5, 5, (detections, 4)) + 120 * rng.integers(0, 2, (detections, 1))
    files = [f"val/{name}.jpg" for name in names]
    sizes = {"width": [WIDTH] * count, "height": [HEIGHT] * count}
    images = Images(
        image_id=names, dataset=["photos"] * count, file=files, digest=["0"] * count, **sizes
    )
    images.write(artifacts / "splits" / "made" / "up" / "images.parquet")
    category = np.array([f"category {number}" for number in range(CATEGORIES)], dtype=object)
    truth = {
        "image_id": names[shown],
        "box": box,
        "category": category[rng.integers(0, CATEGORIES, objects)],
    }
    Objects(object_id=np.arange(objects), **truth).write(
        artifacts / "splits" / "made" / "up" / "objects.parquet"
    )
    image_id, region_id = names[shown[lies_on]], np.arange(detections)
    Regions(
        image_id=image_id,
        region_id=region_id,
        box=box[lies_on] + moved,
        score=rng.uniform(0.5, 1, detections),
        label=rng.integers(0, CLASSES, detections),
        header=Header(classes=tuple(f"class {number}" for number in range(CLASSES))),
    ).write(artifacts / "regions" / "net" / "up")
    applied = tuple(f"method {number}" for number in range(methods))
    for method in applied:
        score = rng.normal(size=detections)
        scores = Scores(image_id=image_id, region_id=region_id, score=score)
        scores.write(artifacts / "scores" / "net" / method / "up.parquet")
        # Every other detection is on an object; which object plays no part here.
        on_object = region_id % 2 == 0
        outcome = np.where(
            score < 0,
            np.where(on_object, "found", "false_unknown"),
            np.where(on_object, "misclassified", "known"),
        )
        folder = artifacts / "outcomes" / "net" / method
        nothing = {"object_id": np.full(detections, -1), "iou": np.zeros(detections)}
        RegionOutcomes(
            image_id=image_id, region_id=region_id, outcome=outcome.astype(object), **nothing
        ).write(folder / "up.parquet")
        ObjectOutcomes(
            image_id=truth["image_id"],
            object_id=np.arange(objects),
            category=truth["category"],
            outcome=np.array(OBJECT_OUTCOMES[:3], dtype=object)[rng.integers(0, 3, objects)],
            region_id=np.full(objects, -1),
        ).write(folder / "up.objects.parquet")
    return evaluated(applied)


def evaluated(methods: tuple[str, ...]) -> Run:
    """The run, as far as the gallery reads it."""
    splits = (OodTestSplit("up", "photos", "near"),)
    evaluation = evaluation_of(splits={"up": {}}, methods={method: {} for method in methods})
    return Run("net", "made", "", "", splits, StoredResults.of(evaluation))


def write(artifacts: Path, run: Run) -> Path:
    """Writes the gallery, and prints what that took; returns its page."""
    report = artifacts / "report"
    start = time.process_time()
    with Site(report) as site:
        gallery = Gallery(
            site, {"photos": artifacts / "photos"}, report, GallerySettings(images=10**9)
        )
        gallery.add(run, read_run_outcomes(run, artifacts))
        gallery.list_run(run, read_run_summaries(run, artifacts), run.methods[0])
        gallery.write()
    seconds = time.process_time() - start
    data = report / "gallery"
    whole = sum(file.stat().st_size for file in data.rglob("*.js"))
    loaded = sum((data / "net" / name).stat().st_size for name in ("up.js", "up/method 0.js"))
    print(
        f"written in {seconds:.2f} s CPU: {whole / 1e6:.1f} MB, of which {loaded / 1e6:.1f} MB are "
        "loaded at first"
    )
    return report / "gallery.html"


def open_often(file: Path, repeat: int) -> None:
    """Opens the page `repeat` times; prints the least time."""
    seconds = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        for _ in range(repeat):
            page.goto("about:blank")
            page.goto(file.as_uri())
            page.wait_for_selector("#cards li")
            seconds.append(page.evaluate("performance.now()") / 1000)
        status = page.evaluate("document.getElementById('status').textContent")
        browser.close()
    print(f"opened in {min(seconds):.2f} s (the most: {max(seconds):.2f} s): {status}")


if __name__ == "__main__":
    main()
