"""Examples of images that a self-aware detector accepts and rejects.

The figures are those of SAOD, Figures A.9 and A.17 to A.20. The images are those that the
evaluation names: per split the first accepted and the first rejected one. Detections of an accepted
image are drawn as the self-aware detector gives them: above the thresholds of their classes, with
calibrated confidences. A rejected image has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from farther.evaluation.files import RunFiles
from farther.evaluation.results import DecidedImages as ImagesOfSplit
from farther.evaluation.results import ExampleImage
from farther.evaluation.self_aware_run import MAY_REJECT
from farther.metrics.self_awareness.detector import SelfAwareDetector
from farther.metrics.self_awareness.image_uncertainty import NO_DETECTION
from farther.report.gallery.examples import Example, Mark, ReadImages, mark_of, thumbnail, truth
from farther.report.results import Run, title_of_split
from farther.tables import Images, Objects, Regions, RegionsFolder
from farther.tables.parquet import collected

#: Longest side of a picture, in pixels.
SIDE = 176

#: Columns of regions that a detection is drawn from.
DRAWN = ("image_id", "region_id", "box", "score", "label")


@dataclass(frozen=True)
class Expectation:
    """The decisions that are right for some images.

    Args:
        text: What is expected of a detector.
        if_accepted: How accepting such an image counts, in a word.
        if_rejected: How rejecting it counts.
    """

    text: str
    if_accepted: str
    if_rejected: str


KNOWN = Expectation("To be accepted: the objects of a rejected image are missed.", "right", "wrong")
SEVERE = Expectation(
    f"From severity {MAY_REJECT} on an image may be rejected: then neither it nor its objects "
    "count.",
    "counts",
    "allowed",
)
OOD = Expectation("To be rejected.", "wrong", "right")


@dataclass(frozen=True)
class Decision:
    """An image with a self-aware detector's decision about it.

    Args:
        example: The picture.
        is_rejected: Whether the image is rejected.
        uncertainty: The image's uncertainty beside the threshold, in words.
        verdict: Whether the decision is right, in words.
    """

    example: Example
    is_rejected: bool
    uncertainty: str
    verdict: str

    @property
    def title(self) -> str:
        """The decision in one word."""
        if self.is_rejected:
            return "rejected"
        return "accepted"


@dataclass(frozen=True)
class DecidedImages:
    """The examples of one split.

    Args:
        title: The split, and the kind of its images.
        rule: The decisions that are right for such images.
        decisions: The examples.
    """

    title: str
    rule: str
    decisions: tuple[Decision, ...]


def decided_images(run: Run, artifacts: Path, pictures: ReadImages) -> list[DecidedImages]:
    """The examples of an evaluated run.

    They are of the ID test split, of shifted ones by severity, and of OOD splits.

    Args:
        run: The run.
        artifacts: The artifacts folder.
        pictures: Reads the images. Those that are not on this machine are skipped.

    Returns:
        One entry per split with an example; empty where the run's detections are not on this
        machine.

    Raises:
        DataError: a table or an image is damaged.
    """
    if run.description is None:
        return []
    files = RunFiles(run.name, run.benchmark, artifacts)
    aware = run.description.self_awareness
    groups = []
    for split, accepted in aware.images.items():
        if not files.regions(split).is_dir():
            continue
        decisions = tuple(_decisions(files, split, accepted, aware.detector, pictures))
        if decisions:
            title = _title(split, accepted)
            groups.append(DecidedImages(title, expectation_of(accepted).text, decisions))
    return groups


def _title(split: str, accepted: ImagesOfSplit) -> str:
    if accepted.severity is None:
        return f"OOD images: {title_of_split(split)}"
    if accepted.severity == 0:
        return f"ID test images: {title_of_split(split)}"
    return f"Shifted ID images: {title_of_split(split)}, severity {accepted.severity}"


def expectation_of(accepted: ImagesOfSplit) -> Expectation:
    """The decisions that are right for the images of a split."""
    if accepted.severity is None:
        return OOD
    if accepted.severity >= MAY_REJECT:
        return SEVERE
    return KNOWN


def _decisions(
    files: RunFiles,
    split: str,
    accepted: ImagesOfSplit,
    detector: SelfAwareDetector,
    pictures: ReadImages,
) -> Iterator[Decision]:
    is_example = pl.col("image_id").is_in([example.image_id for example in accepted.examples])
    images = Images.read(files.images(split)).frame.filter(is_example)
    image_by_id = {image["image_id"]: image for image in images.to_dicts()}
    objects = Objects.read(files.objects(split)).frame.filter(is_example)
    folder = RegionsFolder(files.regions(split))
    detections = collected(folder.scan().filter(is_example).select(DRAWN))

    expectation = expectation_of(accepted)
    for example in accepted.examples:
        image = image_by_id.get(example.image_id)
        if image is None:
            continue
        picture = thumbnail(image, pictures, SIDE)
        if picture is None:
            continue
        is_of_image = pl.col("image_id") == example.image_id
        marks = list(truth(objects.filter(is_of_image)))
        if example.is_rejected:
            verdict = expectation.if_rejected
        else:
            verdict = expectation.if_accepted
            marks += _accepted_detections(detections.filter(is_of_image), folder, detector)
        yield Decision(
            Example(example.image_id, image["width"], image["height"], picture, tuple(marks)),
            example.is_rejected,
            _compare(example, detector.image_threshold),
            verdict,
        )


def _accepted_detections(
    detections: pl.DataFrame, folder: RegionsFolder, detector: SelfAwareDetector
) -> list[Mark]:
    """Marks of the detections of an accepted image, the least confident first."""
    calibrated = detector.detections(Regions.empty(folder.header).with_frame(detections))
    marks = []
    for row in calibrated.frame.sort("score", maintain_order=True).iter_rows(named=True):
        text = f"{folder.header.classes[row['label']]} {100 * row['score']:.0f}%"
        marks.append(mark_of("known", row["box"], text))
    return marks


def _compare(example: ExampleImage, threshold: float | None) -> str:
    """The uncertainty beside the threshold: "0.312 ≤ 0.520"."""
    if threshold is None:
        return "no threshold"
    limit = f"{threshold:.3f}"
    if threshold >= NO_DETECTION:
        limit = "that of no detection"
    if example.uncertainty >= NO_DETECTION:
        return f"no detection, threshold {limit}"
    sign = ">" if example.is_rejected else "≤"
    return f"uncertainty {example.uncertainty:.3f} {sign} {limit}"
