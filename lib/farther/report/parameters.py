"""The parameters of a report: section `report` of params.yaml."""

from __future__ import annotations

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.registry import STRICT
from farther.report.gallery.parameters import GallerySettings
from farther.report.published import Counterpart


@dataclass(config=STRICT, kw_only=True)
class ReportSettings:
    """What a report shows.

    Args:
        title: Heading of the first page.
        examples: Example images a run and OOD split.
        method: The method whose decisions are drawn; each run's method with the highest mean AP_U when None.
        image_side: Longest side of an example image in pixels.
        curves: Methods a figure of curves shows, those with the highest mean AUROC.
        curve_points: Points a curve keeps.
        categories: Categories a figure of a split shows, the most frequent ones.
        gallery: What the gallery shows; see `farther.report.gallery.parameters`.
        published: {run: the published detector it is put beside}; none are when empty.
    """

    title: str = "What detectors do with objects they were never taught"
    examples: int = Field(default=6, ge=0)
    method: str | None = None
    image_side: int = Field(default=320, ge=16)
    curves: int = Field(default=6, ge=1)
    curve_points: int = Field(default=80, ge=2)
    categories: int = Field(default=20, ge=1)
    gallery: GallerySettings = Field(default_factory=GallerySettings)
    published: dict[str, Counterpart] = Field(default_factory=dict)
