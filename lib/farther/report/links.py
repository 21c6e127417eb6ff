"""Addresses of the gallery's page: each number of the report leads to the images that it counts.

The page reads its filters from its address (`static/gallery.js`), so any page can link to a view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import polars as pl

from farther.incremental.keyed import Keyed
from farther.report.gallery.outcomes import splits_with_outcomes
from farther.report.navigation import Navigation
from farther.report.outcomes import COVERED
from farther.report.results import Run
from farther.report.site import Site

if TYPE_CHECKING:
    from farther.report.all_results import AllResults

#: Begins the address's name of all OOD splits of a distance.
DISTANCE = "distance:"

#: False alarms in ID test images: flagged detections, on known objects and elsewhere.
FALSE_ALARMS = ("flagged as unknown", "false unknown")

#: Metric of a table → the outcomes of the objects and detections that it counts.
OUTCOMES_OF_METRIC: Mapping[str, Sequence[str]] = {
    "r_u": ("found",),
    "tp_u": ("found",),
    "nose": ("misclassified",),
    "aose": ("misclassified",),
    "missed": ("missed",),
    "fn_missed": ("missed",),
    "fp_u": ("false unknown",),
    "p_u": ("found", "false unknown"),
    "ap_u": ("found", "false unknown"),
    "false_alarms": FALSE_ALARMS,
    "id_flagged": FALSE_ALARMS,
}


@dataclass(frozen=True)
class View:
    """The images of a run that a number counts.

    Args:
        split: Name of a split, `distance_of` several, or "" for all OOD splits.
        method: The method whose outcomes they are; "" for the one that the report shows.
        source: The source of proposals; "" for the first one.
        category: True category of the objects; "" for all.
        predicted: Class that they are detected as, `(unknown)` where they are flagged, `(missed)`
            where they are not detected; "" for all.
        subset: A subset of images or objects, as "weather=rainy" or "size=small"; "" for all.
        other: Another run: only the objects with which it does something else; "" for all.
        outcomes: Outcomes, as the page names them; () for all.
        count: The number; 0 where it counts no objects.
    """

    split: str = ""
    method: str = ""
    source: str = ""
    category: str = ""
    predicted: str = ""
    subset: str = ""
    other: str = ""
    outcomes: Sequence[str] = ()
    count: int = 0

    def of(self, outcomes: Sequence[str], count: int) -> View:
        """The part of it with some outcomes, and their number."""
        return replace(self, outcomes=outcomes, count=count)


@dataclass(frozen=True)
class GalleryLinks:
    """Links from a page to the images of a run.

    Args:
        run: The run's name.
        up: The path from the page to the report's folder.
        images: Split → number of images; of the splits that the gallery has.
        limit: Largest number of images of a split that the gallery has.
        distances: OOD split → its distance.
    """

    run: str
    up: str
    images: Mapping[str, int] = field(default_factory=dict)
    limit: int = 0
    distances: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run, results: AllResults, up: str) -> GalleryLinks:
        """The links from a page, which has the path `up` to the report's folder."""
        limit = results.settings.gallery.images
        if not limit:
            return cls(run.name, up)
        return cls.of_splits(run, results.artifacts, limit, up)

    @classmethod
    def of_splits(cls, run: Run, artifacts: Path, limit: int, up: str) -> GalleryLinks:
        """The links to a gallery that has at most `limit` images of a split."""
        images = {split: run.images(split) for split in splits_with_outcomes(run, artifacts)}
        distances = {split.name: split.distance for split in run.splits}
        return cls(run.name, up, images, limit, distances)

    def to(self, view: View) -> str:
        """The address of a view; "" where the gallery has no image of its splits.

        >>> links = GalleryLinks("net", "../", {"far": 100}, 5000, {"far": "far"})
        >>> links.to(View("far", category="fox", outcomes=["missed"]))
        '../gallery.html#run=net&split=far&category=fox&outcome=missed'
        >>> links.to(View("test"))
        ''
        """
        splits = self._splits_of(view.split)
        if not splits:
            return ""
        params = {
            "run": self.run,
            "split": view.split,
            "method": view.method,
            "source": view.source,
            "category": view.category,
            "class": view.predicted,
            "subset": view.subset,
            "other": view.other,
            "outcome": ",".join(view.outcomes),
        }
        given = {name: value for name, value in params.items() if value}
        if view.count and any(self.images[split] > self.limit for split in splits):
            given["of"] = str(view.count)
        return f"{self.up}gallery.html#{urlencode(given)}"

    def _splits_of(self, name: str) -> list[str]:
        """The splits of a view that the gallery has."""
        if name in self.images:
            return [name]
        splits = []
        for split, distance in self.distances.items():
            is_meant = name in ("", f"{DISTANCE}{distance}")
            if is_meant and split in self.images:
                splits.append(split)
        return splits


def distance_of(distance: str) -> str:
    """Name of all OOD splits of a distance, for `View.split`."""
    return f"{DISTANCE}{distance}"


def of_part(links: GalleryLinks, view: View, part: str, run: Run) -> str:
    """The address of the images behind a part of a bar of outcomes; "" where there is none.

    Args:
        links: The page's links to the run.
        view: Split and method of the bar.
        part: See `farther.report.outcomes.PARTS`.
        run: The run.
    """
    if part == COVERED:
        outcome = "covered"
    elif part == "missed" and run.first_source is not None:
        outcome = "uncovered"
    else:
        outcome = part
    source = ""
    if outcome in ("covered", "uncovered") and run.first_source is not None:
        source = run.first_source
    return links.to(View(view.split, view.method, source, outcomes=[outcome], count=view.count))


class CellLinks:
    """Links from the cells of tables of results, of all runs of a report.

    Args:
        results: All results.
    """

    def __init__(self, results: AllResults):
        self._results = results
        self._links: dict[str, GalleryLinks | None] = {}

    def of_cell(self, cell: Mapping[str, Any]) -> str:
        """The address of the images behind a value, relative to the report's folder.

        Args:
            cell: A row of `farther.report.results.Run.values`; its split may be a distance.

        Returns:
            The address; "" where the metric counts no outcomes, and for several runs together.
        """
        outcomes = OUTCOMES_OF_METRIC.get(cell["metric"])
        if outcomes is None or cell["value"] is None:
            return ""
        links = self._of_run(cell["run"])
        if links is None:
            return ""
        split = cell["split"]
        if split not in links.images:
            split = distance_of(split)
        return links.to(View(split, cell["method"], outcomes=outcomes))

    def _of_run(self, name: str) -> GalleryLinks | None:
        """The links to a run; None for the name of several runs."""
        if name not in self._links:
            self._links[name] = None
            for run in self._results.runs:
                if run.name == name and run.is_evaluated:
                    self._links[name] = GalleryLinks.of(run, self._results, "")
        return self._links[name]


def linked_site(
    folder: Path,
    navigation: Navigation,
    results: AllResults,
    names_by_title: Mapping[str, str] | None = None,
) -> Site:
    """A site whose tables link detectors, and values to their images.

    Args:
        folder: Where it is written.
        navigation: The pages and their order.
        results: All results. Without a hash of the code of reports, no file of an earlier report is
            reused.
        names_by_title: See `Site.runs`; None to read which runs are measured.
    """
    earlier = None
    if results.code:
        earlier = Keyed(results.artifacts / "report")
    site = Site(folder, navigation, earlier)
    if names_by_title is None:
        names_by_title = {run.full_title: run.name for run in results.measured}
    site.runs = names_by_title
    site.images_of = CellLinks(results).of_cell
    return site


def with_links(rows: pl.DataFrame, results: AllResults, up: str = "") -> pl.DataFrame:
    """Rows of `farther.report.distances.Distances.rows` with a column `href`.

    Args:
        rows: One row per part of a bar.
        results: All results.
        up: The path from the page to the report's folder.

    Returns:
        The rows; without the column where no part has a link.
    """
    run_by_name = {run.name: run for run in results.evaluated}
    links_by_run = {name: GalleryLinks.of(run, results, up) for name, run in run_by_name.items()}
    hrefs = []
    for row in rows.iter_rows(named=True):
        run = run_by_name[row["run"]]
        links = links_by_run[row["run"]]
        method_by_label = {run.label(method): method for method in run.methods}
        view = View(
            distance_of(row["distance"]),
            method_by_label[row["method"]],
            count=round(row["share"] * row["objects"]),
        )
        hrefs.append(of_part(links, view, row["part"], run))
    if not any(hrefs):
        return rows
    return rows.with_columns(href=pl.Series(hrefs, dtype=pl.String))
