"""The parameters of a report: section `report` of params.yaml."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.naming.registry import STRICT, Parameters


@dataclass(config=STRICT, kw_only=True)
class GallerySettings(Parameters):
    """Parameters of the gallery.

    Args:
        images: Largest number of images per run and split, evenly spread over the split; 0 for no
            gallery.
    """

    images: int = Field(default=5000, ge=0)


@dataclass(config=STRICT, kw_only=True)
class Counterpart(Parameters):
    """The published detector that a run is compared with.

    Args:
        detector: Its name in the tables of `data/published`.
        id: Its ID dataset in these tables.
        comparable: Whether the run has the published detector's weights and the benchmark's own
            images, so that a difference is meaningful: then the pages of papers have both.
    """

    detector: str
    id: str
    comparable: bool = False


@dataclass(config=STRICT, kw_only=True)
class ReportSettings(Parameters):
    """What the report shows: section `report` of params.yaml.

    Args:
        title: Heading of the first page; null takes the finding.
        examples: Example images per run and OOD split; of many splits fewer, some 60 in all.
        method: The method whose outcomes are drawn; null takes the detector's own confidence, or
            else the first method.
        image_side: Longest side of an example image in pixels.
        curves: Number of methods in a chart of curves, those with the highest mean AUROC.
        drawn: The runs that charts, and tables with several rows per run, show; without any, the
            first 20 of all benchmarks.
        few: Values from fewer detections or objects than this are printed grey and never marked as
            the best.
        categories: Number of categories in a chart of a split, the most frequent ones.
        gallery: Parameters of the gallery.
        papers: The papers whose tables the report has: elephant, fmiyc, openood, realistic, saod.
        published: The published detector that a run, or a name of `seeds`, is beside in these
            tables.
        seeds: A name for runs that differ in their training seed only: one row, mean ± standard
            deviation, in the tables of their benchmark and in `artifacts/seeds.json`. Or runs on
            several divisions of one dataset's classes (open-set recognition), whose mean is on the
            page of OpenOOD and in the latter.
    """

    title: str | None = None
    examples: int = Field(default=6, ge=0)
    method: str | None = None
    image_side: int = Field(default=320, ge=16)
    curves: int = Field(default=6, ge=1)
    drawn: list[str] = Field(default_factory=list)
    few: int = Field(default=30, ge=0)
    categories: int = Field(default=20, ge=1)
    gallery: GallerySettings = Field(default_factory=GallerySettings)
    papers: list[Literal["elephant", "fmiyc", "openood", "realistic", "saod"]] = Field(
        default_factory=list
    )
    published: dict[str, Counterpart] = Field(default_factory=dict)
    seeds: dict[str, list[str]] = Field(default_factory=dict)
