"""`farther try`: a detector on a folder of images, without a project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from farther.command.output import hanging, next_step
from farther.command.project import argument, option
from farther.command.summary import show_page
from farther.pipeline import ROOT
from farther.text.terminal import say, working


def try_(
    detector: Annotated[Path, argument("DETECTOR", "A checkpoint.")],
    images: Annotated[Path, argument("IMAGES", "A folder of images, annotated or not.")],
    labels: Annotated[
        Path | None, option("DIR", "Folder with their annotations, if it is another one.")
    ] = None,
    out: Annotated[Path, option("DIR", "Folder of the page.")] = Path("tried"),
    limit: Annotated[
        int, typer.Option("--images", metavar="N", help="Most images, evenly spread.")
    ] = 100,
    confidence: Annotated[float, option("T", "Smallest confidence.")] = 0.25,
) -> None:
    """Try a detector on a folder of images: one page, no project.

    The page shows each image with its detections and their scores, the least in-distribution ones
    first, and what would be flagged at a threshold that one moves. Where the images are annotated,
    it counts what the detector misses, and what it takes for something it knows. Thresholds that
    hold on other images need a project: the last line has the command.

    \b
    Examples:
      farther try best.pt photos
      farther try best.pt photos --labels labels --images 50
    """
    with working("starting"):  # which imports much
        from farther.projects.class_matching import Lookup
        from farther.projects.trial import try_detector, write_page

    lookup = Lookup.open(ROOT / "data")
    trial = try_detector(
        detector, images, labels, limit=limit, confidence=confidence, lookup=lookup
    )
    page = write_page(trial, out)
    for sentence in trial.sentences():
        say(hanging(f"- {sentence}", 0, 2))
    show_page(page)
    next_step(trial.command())
