"""Images under common corruptions, for shifted ID splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import polars as pl
from pydantic import Field, field_validator
from pydantic.dataclasses import dataclass as checked

from farther.derived.base import KINDS, Scenes
from farther.derived.changed import Change, ChangedImages
from farther.errors import ParameterError, choose
from farther.images import corruptions
from farther.naming.registry import STRICT
from farther.tables.files import write_csv

#: Columns of `corruptions.csv`.
COLUMNS = {
    "subset": pl.String,
    "image_id": pl.String,
    "corruption": pl.String,
    "severity": pl.Int64,
}

#: Sets of corruptions by name.
SETS: dict[str, tuple[str, ...]] = {"saod": corruptions.SAOD, "imagenet-c": corruptions.IMAGENET_C}


@KINDS.register("corrupt")
@checked(config=STRICT, kw_only=True)
class Corrupt(ChangedImages):
    """ID images with one corruption each, at several severities.

    There is one subset per severity, named c1 to c5. The corruption of an image is drawn from its
    name, the severity and the seed. So subsets grow without changing.

    Args:
        severities: Severities of the corruptions, from 1 to 5; one subset each.
        corruptions: "saod" or "imagenet-c", whose fifteen kinds differ in two (speckle noise and
            Gaussian blur; glass and zoom blur); or a list of the corruptions to draw from.
        draw_per: "severity" draws a corruption for each image and severity; "image" a single one
            for all severities of an image, which then differ in severity only.

    References:
        Oksuz et al., "Towards Building Self-Aware Object Detectors via Reliable Uncertainty
        Quantification and Calibration" (SAOD), 2023, Section 3 and Appendix A.2, arXiv:2307.00934:
        severities 1, 3 and 5.

        Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and
        Perturbations", 2019, arXiv:1903.12261.
    """

    TITLE: ClassVar[str] = "ID images, each with a corruption"
    KEEPS_OBJECTS: ClassVar[bool] = True

    severities: Annotated[tuple[int, ...], Field(min_length=1)] = (1, 3, 5)
    corruptions: Annotated[tuple[str, ...], Field(min_length=1)] | str = "saod"
    draw_per: Literal["severity", "image"] = "severity"

    @field_validator("severities")
    @classmethod
    def _known_severities(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if set(value) - set(corruptions.SEVERITIES) or len(set(value)) < len(value):
            known = ", ".join(str(severity) for severity in corruptions.SEVERITIES)
            raise ValueError(f"each is one of {known}, and listed once")
        return value

    @field_validator("corruptions")
    @classmethod
    def _known_corruptions(cls, value: tuple[str, ...] | str) -> tuple[str, ...] | str:
        if isinstance(value, str):
            if value not in SETS:
                known = ", ".join(SETS)
                raise ValueError(f"expected {known} or a list of corruptions, found {value!r}")
            return value
        for name in value:
            try:
                choose("corruption", name, corruptions.KINDS)
            except ParameterError as error:
                raise ValueError(str(error)) from None
        return value

    def subsets(self) -> list[str]:
        """Names of the subsets: c1, c3, c5."""
        return [f"c{severity}" for severity in self.severities]

    def changes(self, scenes: Scenes) -> list[Change]:
        """Each image at each severity."""
        changes = []
        for severity in self.severities:
            for row, image_id in enumerate(scenes.source.images.image_id):
                kind, seed = self._draw(image_id, severity)
                corrupt = partial(corruptions.corrupt, kind=kind, severity=severity, seed=seed)
                changes.append(Change(f"c{severity}", row, kind, corrupt))
        return changes

    def _draw(self, image_id: str, severity: int) -> tuple[str, int]:
        """Corruption of an image at a severity, and the seed of its random numbers."""
        if isinstance(self.corruptions, str):
            kinds = SETS[self.corruptions]
        else:
            kinds = self.corruptions
        if self.draw_per == "image":
            return corruptions.draw(image_id, self.seed, kinds)
        return corruptions.draw(f"{image_id} at severity {severity}", self.seed, kinds)

    def counts(self, scenes: Scenes, changes: Sequence[Change], folder: Path) -> dict[str, Any]:
        """Numbers of images by subset and by corruption.

        Writes `corruptions.csv`, the corruption of each image.
        """
        image_ids = scenes.source.images.image_id
        rows = [
            {
                "subset": change.subset,
                "image_id": image_ids[change.row],
                "corruption": change.kind,
                "severity": int(change.subset.removeprefix("c")),
            }
            for change in changes
        ]
        write_csv(folder / "corruptions.csv", pl.DataFrame(rows, schema=COLUMNS))

        images_by_subset = Counter(dict.fromkeys(self.subsets(), 0))
        images_by_subset.update(change.subset for change in changes)
        images_by_corruption = Counter(change.kind for change in changes)
        return {
            "images": dict(images_by_subset),
            "corruptions": dict(sorted(images_by_corruption.items())),
        }
