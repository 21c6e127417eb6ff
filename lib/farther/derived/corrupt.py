"""Images under common corruptions, for shifted ID splits."""

from __future__ import annotations

import csv
import multiprocessing
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator
from pydantic.dataclasses import dataclass as checked
from tqdm import tqdm

from farther.cores import count_cores
from farther.derived.base import KINDS, CocoFile, Derived, Scenes, refuse_failures, write_summary
from farther.errors import DataError, ParameterError, choose
from farther.images import corruptions
from farther.images.read import load
from farther.registry import STRICT
from farther.tables.writing import write_aside

#: Columns of `corruptions.csv`.
COLUMNS = ("subset", "image_id", "corruption", "severity")

#: Images per process below which starting another one does not pay.
PER_PROCESS = 500


@KINDS.register("corrupt")
@checked(config=STRICT, kw_only=True)
class Corrupt(Derived):
    """ID images with one corruption each, at several severities: one subset per severity, named c1 to c5.

    Which corruption an image has is drawn from its name and the seed, the same one at all severities. So subsets grow
    without changing, and severities differ in nothing else.

    Args:
        severities: From 1 to 5.
        corruptions: The corruptions to draw from; the 15 of ImageNet-C by default.

    References:
        Oksuz et al., "Towards Building Self-Aware Object Detectors via Reliable Uncertainty Quantification and
        Calibration" (SAOD), 2023, Section 3, arXiv:2307.00934: severities 1, 3 and 5. Hendrycks and Dietterich,
        "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations", 2019, arXiv:1903.12261.
    """

    severities: Annotated[tuple[int, ...], Field(min_length=1)] = (1, 3, 5)
    corruptions: Annotated[tuple[str, ...], Field(min_length=1)] = corruptions.KINDS

    @field_validator("severities")
    @classmethod
    def _known_severities(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if set(value) - set(corruptions.SEVERITIES) or len(set(value)) < len(value):
            raise ValueError(f"each is one of {', '.join(map(str, corruptions.SEVERITIES))}, and listed once")
        return value

    @field_validator("corruptions")
    @classmethod
    def _known_corruptions(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            try:
                choose("corruption", name, corruptions.KINDS)
            except ParameterError as error:
                raise ValueError(str(error)) from None
        return value

    def write(self, scenes: Scenes, out: Path) -> dict[str, Any]:
        """Writes the dataset and returns counts; see `Derived.write`. `corruptions.csv` lists those of the images."""
        images, failures = scenes.source.images, []
        jobs = [
            (severity, row, *corruptions.draw(images.image_id[row], self.seed, self.corruptions))
            for severity in self.severities
            for row in range(len(scenes))
        ]
        with write_aside(out) as aside:
            files = {
                severity: CocoFile(scenes.categories, f"ID images, severity {severity}") for severity in self.severities
            }
            rows = []
            for severity in self.severities:
                (aside / f"c{severity}").mkdir(parents=True)
            work = [
                (self, scenes.file(row), kind, severity, seed, aside / f"c{severity}" / f"{row + 1:06d}{self.suffix}")
                for severity, row, kind, seed in jobs
            ]
            done = tqdm(_run(work), desc="corrupt", unit="image", total=len(work), leave=False, disable=None)
            for (severity, row, kind, _), (*_, file), found in zip(jobs, work, done, strict=True):
                image_id = images.image_id[row]
                if isinstance(found, str):
                    reason = f"{images.file[row]}: {found}"
                    failures.append({"name": f"{image_id}, severity {severity}", "reason": reason})
                    continue
                files[severity].add_image(image_id, file.name, *found)
                files[severity].add_objects(scenes.objects(row))
                rows.append({"subset": f"c{severity}", "image_id": image_id, "corruption": kind, "severity": severity})
            refuse_failures(scenes.root, failures, len(work), self.max_failures, "images")
            for severity, coco in files.items():
                coco.write(aside, f"c{severity}")
            with (aside / "corruptions.csv").open("w", encoding="utf-8", newline="") as listed:
                writer = csv.DictWriter(listed, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
            counts = {
                "images": {f"c{severity}": len(coco.images) for severity, coco in files.items()},
                "corruptions": dict(sorted(Counter(row["corruption"] for row in rows).items())),
            }
            return write_summary(aside, counts, failures)


Work = tuple[Corrupt, Path, str, int, int, Path]


def _run(work: list[Work]) -> Iterator[tuple[int, int] | str]:
    """Width and height of each image written, in order, or why it was not; in several processes where it pays."""
    processes = min(count_cores(), len(work) // PER_PROCESS)
    if processes < 2:
        yield from map(_one, work)
        return
    with multiprocessing.get_context("forkserver").Pool(processes) as pool:
        yield from pool.imap(_one, work, chunksize=8)


def _one(work: Work) -> tuple[int, int] | str:
    params, source, kind, severity, seed, out = work
    try:
        pixels = corruptions.corrupt(load(source), kind, severity, seed)
    except DataError as error:
        return error.problem
    params.save(pixels, out)
    return pixels.shape[1], pixels.shape[0]
