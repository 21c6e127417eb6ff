"""The page of missed objects, and of proposals.

It shows how many of the unknown objects that detectors miss they cover, and at how many false
alarms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
from markupsafe import Markup

from farther.evaluation.long_table import Result, Results
from farther.evaluation.with_proposals import CHANGED
from farther.report.all_results import AllResults
from farther.report.charts import vega as vl
from farther.report.links import GalleryLinks, View, distance_of
from farther.report.listing import ABSENT, Listing, percent
from farther.report.results import DISTANCES, Run, heading, title_of_split
from farther.report.site import Site
from farther.tables.files import digest
from farther.tables.stored import NO_TIMES, Times

#: Columns of average recall: key and heading.
RECALLS = {
    "ar@10": "AR@10 (%)",
    "ar@100": "AR@100 (%)",
    "ar@100_small": "AR@100, small (%)",
    "ar@100_medium": "AR@100, medium (%)",
    "ar@100_large": "AR@100, large (%)",
}

#: Place of `costs` in the page.
COSTS = "proposal-costs"

#: Metrics of detections and proposals together → their names in the catalogue.
OPEN_WORLD_METRICS = {key: f"open_world_{key}" if key == "u_recall" else key for key in CHANGED}


def applies(results: AllResults) -> bool:
    """Whether any detector has proposals."""
    return any(run.sources for run in results.evaluated)


def write(site: Site, results: AllResults) -> None:
    """Writes the page."""
    runs = [run for run in results.evaluated if run.sources]
    drawn = results.drawn_of(runs)
    runs_with_method = [(run, results.shown_method(run)) for run in drawn.runs]
    part = costs(site, sources(results.evaluated, results.params["detectors"]), NO_TIMES)
    links = {run.name: GalleryLinks.of(run, results, "") for run in runs}
    of_all = {"message": _message(runs), "operating": _operating_table(runs, links)}
    variables = {**content(runs_with_method, links), **of_all, "not_drawn": drawn.note}
    site.write("missed.html", costs=Markup(part), key=digest(part), **variables)


@dataclass(frozen=True)
class TimedSource:
    """A source of proposals of a run, which adds time to detection.

    Args:
        run: The run.
        name, kind: Of the source.
        other_run: The run whose detections it uses, None for the run's own network.
    """

    run: Run
    name: str
    kind: str
    other_run: str | None


def sources(runs: Sequence[Run], detectors: Mapping[str, Any]) -> list[TimedSource]:
    """All sources of the evaluated runs.

    Args:
        runs: The evaluated runs.
        detectors: Section `detectors` of params.yaml.
    """
    timed_sources = []
    for run in runs:
        entries = (detectors.get(run.name) or {}).get("proposals") or {}
        for name, source in run.sources.items():
            if source.rule == "objectness":
                other_run = (entries.get(name) or {}).get("run")
                timed_sources.append(TimedSource(run, name, source.kind, other_run))
    return timed_sources


def costs(site: Site, timed_sources: Sequence[TimedSource], times: Times) -> str:
    """The part of the page that has the times of a machine, or none."""
    rows = []
    for source in timed_sources:
        detection_ms = _detection_ms(source.run.name, times)
        further_ms = None
        share = None
        if detection_ms is not None:
            further_ms = _further_ms(source, times)
        if detection_ms is not None and further_ms is not None:
            share = detection_ms / (detection_ms + further_ms)
        row = {
            "Detector": source.run.full_title,
            "Source": source.name,
            "Detection (ms)": _printed_ms(detection_ms),
            "Further (ms)": _printed_ms(further_ms),
            "Speed with proposals (%)": percent(share),
        }
        rows.append(row)
    caption = (
        "Milliseconds per image of detection, and what each source adds; "
        "imported boxes are not timed."
    )
    numbers = ["Detection (ms)", "Further (ms)", "Speed with proposals (%)"]
    return site.render(
        "missed.html",
        "proposal_costs.html",
        machine=times["machine"],
        listed=Listing.from_rows(caption, rows, numbers),
    )


def _detection_ms(run: str, times: Times) -> float | None:
    """Milliseconds per image of a run's detection; None where they were not measured."""
    if run not in times["runs"]:
        return None
    return times["runs"][run]["detector"]


def _further_ms(source: TimedSource, times: Times) -> float | None:
    """Milliseconds that a source adds: of the network's own pass, or of another run's detection."""
    if source.other_run:
        return _detection_ms(source.other_run, times)
    if source.run.name not in times["runs"]:
        return None
    return times["runs"][source.run.name].get("proposals", {}).get(source.name)


def _printed_ms(ms: float | None) -> str:
    if ms is None:
        return ABSENT
    return f"{ms:.1f}"


@dataclass(frozen=True)
class SourceObjects:
    """Unknown objects of a distance, and what a source of a run covers of them.

    Args:
        run, name, distance: The run, its source, and the distance.
        values: What is covered at the source's threshold τ_o.
    """

    run: Run
    name: str
    distance: str
    values: Results

    @property
    def at_alarms(self) -> dict[float, Result]:
        """Rate of false alarms per ID image → share of the objects that is still missed."""
        by_alarms = self._by_part("alarms")
        return {float(alarms): values["still_missed"] for alarms, values in by_alarms.items()}

    @property
    def by_size(self) -> Mapping[str, Results]:
        """Size → what is covered of the objects."""
        return self._by_part("size")

    def _by_part(self, key: str) -> Mapping[str, Results]:
        within = {"source": self.name, "distance": self.distance}
        return self.run.results.table.by_part("proposals", key, within=within)


def content(
    runs_with_method: Sequence[tuple[Run, str]], links: Mapping[str, GalleryLinks]
) -> dict[str, Any]:
    """Variables of the template `missed.html`.

    Args:
        runs_with_method: The evaluated runs with proposals, and the method that each is shown with.
        links: Run → the page's links to its images.
    """
    runs = [run for run, _ in runs_with_method]
    return {
        "message": _message(runs),
        "asked": _asked_alarms(runs),
        "missed": _missed_table(runs, links),
        "nothing": _without_recovery(runs),
        "curves": _charts(runs),
        "operating": _operating_table(runs, links),
        "together": _together_table(runs_with_method),
        "recall": _recall_table(runs),
        "sizes": _sizes_table(runs),
        "together_by_size": _together_by_size_table(runs_with_method),
    }


def _asked_alarms(runs: Iterable[Run]) -> float | None:
    """The rate of false alarms that τ_o is chosen for; None without runs."""
    for run in runs:
        if run.description is not None and run.description.proposals is not None:
            return run.description.proposals.asked_alarms
    return None


def _of_distances(run: Run, source: str) -> Mapping[str, Results]:
    """Distance → what a source of a run covers of its unknown objects."""
    return run.results.table.by_part("proposals", "distance", within={"source": source})


def _distances(run: Run) -> list[str]:
    """The distances that any source of a run has results of, the nearest first."""
    measured: set[str] = set()
    for source in run.sources:
        measured.update(_of_distances(run, source))
    return [distance for distance in DISTANCES if distance in measured]


def _all_distances(runs: Iterable[Run]) -> list[str]:
    """The distances that any of several runs has results of, the nearest first."""
    measured: set[str] = set()
    for run in runs:
        measured.update(_distances(run))
    return [distance for distance in DISTANCES if distance in measured]


def _unknown_objects(distance: str, runs: Sequence[Run]) -> str:
    """The unknown objects of a distance in words: a single distance has no name."""
    if len(_all_distances(runs)) == 1:
        return "unknown objects"
    return f"{distance} unknown objects"


def _objects(runs: Iterable[Run]) -> Iterator[SourceObjects]:
    """Unknown objects of each run, distance and source."""
    for run in runs:
        for distance in _distances(run):
            for name in run.sources:
                of_distances = _of_distances(run, name)
                if distance in of_distances:
                    yield SourceObjects(run, name, distance, of_distances[distance])


@dataclass(frozen=True)
class Covered:
    """Missed objects of a distance that a source covers at its threshold τ_o.

    Args:
        objects: The objects.
        missed, not_covered: Shares of the unknown objects.
    """

    objects: SourceObjects
    missed: float
    not_covered: float

    @property
    def share(self) -> float:
        """Share of the unknown objects that is missed and covered."""
        return self.missed - self.not_covered


def _covered(runs: Iterable[Run]) -> Iterator[Covered]:
    """What the first source of each run covers, of each distance."""
    for run in runs:
        if run.first_source is None:
            continue
        for distance, values in _of_distances(run, run.first_source).items():
            missed = values["missed"].value
            not_covered = values["still_missed"].value
            if missed is not None and not_covered is not None:
                objects = SourceObjects(run, run.first_source, distance, values)
                yield Covered(objects, missed, not_covered)


def _message(runs: Sequence[Run]) -> str:
    """How many missed objects proposals cover, and at how many false alarms; "" without any."""
    covered = list(_covered(runs))
    if not covered:
        return ""
    by_run = sorted(covered, key=lambda candidate: candidate.objects.run.name)
    best = max(by_run, key=lambda candidate: candidate.share)
    if not best.share > 0:
        return "Proposals cover none of the unknown objects that the detectors miss."
    interval = best.objects.values["still_missed"].interval
    bracket = ""
    if interval is not None:
        low, high = interval
        bracket = f" [{100 * low:.0f}, {100 * high:.0f}]"
    rank = ""
    if len(covered) > 1:
        lowest = min(candidate.share for candidate in covered)
        rank = (
            f" (the highest of {len(covered)} pairs of run and distance; "
            f"the lowest: {100 * lowest:.0f}%)"
        )
    alarms = _alarms(best.objects.run, best.objects.name).value
    missed = _unknown_objects(best.objects.distance, runs)
    return (
        f"{best.objects.run.full_title} misses {100 * best.missed:.0f}% of the {missed}. "
        f"Its proposals ({best.objects.name}) cover "
        f"{100 * best.share:.0f}%{rank}, at {alarms:.2f} false alarms per ID image; "
        f"{100 * best.not_covered:.0f}%{bracket} have neither a detection nor a proposal."
    )


def _alarms(run: Run, source: str) -> Result:
    """False alarms per ID image of a source at its threshold τ_o."""
    return run.of_source(source, run.id_split or "")["alarms"]


def _missed_table(runs: Sequence[Run], links: Mapping[str, GalleryLinks]) -> Listing:
    """Missed objects, and those that no proposal covers at each rate of false alarms.

    Args:
        runs: The runs.
        links: Run → the page's links to its images.
    """
    rates: set[float] = set()
    for objects in _objects(runs):
        rates.update(objects.at_alarms)
    titles = {rate: f"Not covered at {rate:g}" for rate in sorted(rates)}

    rows = [_missed_row(objects, titles) for objects in _objects(runs)]
    row_links = [_missed_links(objects, links[objects.run.name]) for objects in _objects(runs)]
    caption = (
        "Share of the unknown objects that is missed (%), and that no proposal covers either at a "
        "number of false alarms per ID image, with 95% intervals."
    )
    listing = Listing.from_rows(caption, rows, ["Objects", "Missed", *titles.values()])
    return _without_single_distance(replace(listing, links=row_links), runs)


def _without_single_distance(listing: Listing, runs: Iterable[Run]) -> Listing:
    """A listing without the columns of labels that are the same in all rows."""
    if len(_all_distances(runs)) == 1:
        listing = replace(listing, frame=listing.frame.drop("Objects of", strict=False))
    return listing.without_same("Detector", "Source")


def _missed_links(objects: SourceObjects, links: GalleryLinks) -> dict[str, str]:
    """The addresses of the images behind a row of the table of missed objects."""
    view = View(distance_of(objects.distance), source=objects.name)
    return {
        "Objects": links.to(view),
        "Missed": links.to(replace(view, outcomes=("missed",))),
    }


def _missed_row(objects: SourceObjects, titles: Mapping[float, str]) -> dict[str, Any]:
    """A row of the table of missed objects.

    Args:
        objects: The row.
        titles: Rate of false alarms → heading of its column.
    """
    values = objects.values
    row = {
        "Detector": objects.run.full_title,
        "Objects of": objects.distance,
        "Source": objects.name,
        "Objects": values["objects"].value,
        "Missed": percent(values["missed"].value, values["missed"].interval),
    }
    row.update(dict.fromkeys(titles.values(), ABSENT))
    for alarms, still_missed in objects.at_alarms.items():
        row[titles[alarms]] = percent(still_missed.value, still_missed.interval)
    return row


def _without_recovery(runs: Sequence[Run]) -> list[str]:
    """Sentences on sources that cover none of the missed objects of a distance."""
    sentences = []
    for objects in _objects(runs):
        if objects.values["missed"].value and not objects.values["recovered"].value:
            sentences.append(
                f"{objects.run.full_title}: {objects.name} covers none of the missed "
                f"{_unknown_objects(objects.distance, runs)} at the chosen threshold."
            )
    return sentences


def _charts(runs: Sequence[Run]) -> vl.ChartGroup:
    """A chart of each run and distance: share missed by false alarms, one curve per source.

    The axis of shares ends above the highest share of any curve, for all charts.
    """
    points_by_title = {}
    for run in runs:
        for distance in _distances(run):
            curves = {}
            for name, source in run.sources.items():
                if distance in source.curves:
                    curves[name] = source.curves[distance]
            points = vl.series(curves)
            if not points.is_empty():
                points_by_title[run.full_title, distance] = points
    if not points_by_title:
        return vl.ChartGroup()

    every_point = pl.concat(points_by_title.values())
    legend = vl.legend_keys(every_point["series"].unique(maintain_order=True), vl.DASHES)
    top = _round_up(every_point["y"].to_list())
    charts = []
    has_one_distance = len(_all_distances(runs)) == 1
    for (title, distance), points in points_by_title.items():
        subject = _unknown_objects(distance, runs)
        description = (
            f"Share of the {subject} that {title} misses and no proposal covers, "
            "by false alarms per ID image."
        )
        chart_title = title if has_one_distance else f"{title}: {distance}"
        x = vl.Axis("false alarms per ID image", "~g", None)
        y = vl.Axis("missed and not covered", domain=(0, top))
        charts.append(vl.lines(chart_title, description, points, legend, x, y))
    return vl.ChartGroup(legend, tuple(charts))


def _round_up(shares: Iterable[float]) -> float:
    """The highest share, rounded up to tenths; 0.1 at least."""
    return max(1, math.ceil(10 * max(shares) - 1e-9)) / 10


def _operating_table(runs: Sequence[Run], links: Mapping[str, GalleryLinks]) -> Listing:
    """False alarms and missed objects at the chosen threshold τ_o: one row per source.

    Args:
        runs: The runs.
        links: Run → the page's links to its images.
    """
    titles = {distance: f"Missed, {distance}" for distance in _all_distances(runs)}
    if len(titles) == 1:
        titles = dict.fromkeys(titles, "Missed")
    rows = []
    row_links = []
    for run in runs:
        for name in run.sources:
            row_links.append(_operating_links(run, name, links[run.name], titles))
            cells = _operating_cells(run, name, titles)
            rows.append({"Detector": run.full_title, "Source": name, **cells})
    caption = (
        "At the threshold τ_o chosen on ID validation images: proposals at or above it in ID test "
        "images, all of which are false alarms; missed objects → missed objects that no proposal "
        "covers (%)."
    )
    numbers = ["τ_o", "False alarms per ID image", *titles.values()]
    listing = replace(Listing.from_rows(caption, rows, numbers), links=row_links)
    return listing.without_same("Detector")


def _operating_links(
    run: Run, name: str, links: GalleryLinks, titles: Mapping[str, str]
) -> dict[str, str]:
    """The addresses of the images behind a row of the table of sources at τ_o."""
    view = View(run.id_split or "", source=name, outcomes=("false proposal",))
    addresses = {"False alarms per ID image": links.to(view)}
    for distance in _of_distances(run, name):
        view = View(distance_of(distance), source=name, outcomes=("uncovered",))
        addresses[titles[distance]] = links.to(view)
    return addresses


def _operating_cells(run: Run, source: str, titles: Mapping[str, str]) -> dict[str, str]:
    """A source at its threshold τ_o.

    Args:
        run, source: The source of a run.
        titles: Distance → heading of its column.
    """
    on_id_images = run.of_source(source, run.id_split or "")
    tau = on_id_images["threshold"].value
    threshold = "all" if tau is None else f"{tau:.3g}"
    alarms = f"{on_id_images['alarms'].value:.2f}"
    if on_id_images["alarms"].interval is not None:
        low, high = on_id_images["alarms"].interval
        alarms += f" [{low:.2f}, {high:.2f}]"

    kind = run.sources[source].kind
    cells = {"Kind": kind, "τ_o": threshold, "False alarms per ID image": alarms}
    cells.update(dict.fromkeys(titles.values(), ABSENT))
    for distance, values in _of_distances(run, source).items():
        missed = percent(values["missed"].value)
        still_missed = percent(values["still_missed"].value, values["still_missed"].interval)
        cells[titles[distance]] = f"{missed} → {still_missed}"
    return cells


@dataclass(frozen=True)
class CombinedResults:
    """A method of a run on a split, with the proposals of a source.

    Args:
        run, method, source, split: Of which.
        together, alone: Metrics of detections and proposals together, and of detections alone.
    """

    run: Run
    method: str
    source: str
    split: str
    together: Results
    alone: Results

    @property
    def by_size(self) -> Mapping[str, Results]:
        """Size → metrics of detections and proposals together."""
        return self.run.results.table.by_part(
            "with_proposals",
            "size",
            split=self.split,
            method=self.method,
            within={"source": self.source},
        )


def _combined(runs_with_method: Iterable[tuple[Run, str]]) -> Iterator[CombinedResults]:
    """Results of the shown method of each run with each source, on each split."""
    for run, method in runs_with_method:
        table = run.results.table
        for source in run.sources:
            part = f"source={source}"
            part_of_alone = f"{part}, regions=detections"
            for split in run.tested_splits:
                subject = {"split": split, "method": method}
                together = table.values("with_proposals", **subject, part=part)
                alone = table.values("with_proposals", **subject, part=part_of_alone)
                if together:
                    yield CombinedResults(run, method, source, split, together, alone)


def _together_table(runs_with_method: Iterable[tuple[Run, str]]) -> Listing:
    """Metrics of detections, and of detections and proposals together."""
    rows = []
    for combined in _combined(runs_with_method):
        row = {
            "Detector": combined.run.full_title,
            "Method": combined.run.label(combined.method),
            "Source": combined.source,
            "Split": title_of_split(combined.split),
        }
        for key, metric in OPEN_WORLD_METRICS.items():
            without = percent(combined.alone[key].value)
            result = combined.together[key]
            together = percent(result.value, result.interval)
            row[heading(metric)] = f"{without} → {together}"
        rows.append(row)
    caption = (
        "Detections alone → detections and proposals above τ_o (%), "
        "with 95% intervals of the latter."
    )
    numbers = [heading(metric) for metric in OPEN_WORLD_METRICS.values()]
    listing = Listing.from_rows(caption, rows, numbers)
    return listing.without_same("Detector", "Method", "Source", "Split")


def _together_by_size_table(runs_with_method: Iterable[tuple[Run, str]]) -> Listing:
    """Recall of unknown objects by size, of detections, and with proposals."""
    rows = []
    for combined in _combined(runs_with_method):
        alone_by_size = combined.run.results.table.by_part(
            "open_set", "size", split=combined.split, method=combined.method
        )
        for size, together in combined.by_size.items():
            recall = None
            if size in alone_by_size:
                recall = alone_by_size[size]["r_u"].value
            row = {
                "Detector": combined.run.full_title,
                "Source": combined.source,
                "Split": title_of_split(combined.split),
                "Size": size,
                "Objects": together["unknown_objects"].value,
                "Detections (%)": recall,
                "With proposals (%)": together["r_u"].value,
            }
            rows.append(row)
    caption = (
        "R_U of detections alone, and of detections and proposals above τ_o, by size (COCO's)."
    )
    return Listing.from_rows(caption, rows).without_same("Detector", "Source", "Split")


def _recall_table(runs: Iterable[Run]) -> Listing:
    """Average recall of each source on each split."""
    rows = []
    for run in runs:
        for name in run.sources:
            for split in run.tested_splits:
                values = run.of_source(name, split)
                if "objects" not in values:  # the ID split
                    continue
                row = {
                    "Detector": run.full_title,
                    "Source": name,
                    "Split": title_of_split(split),
                    "Objects": values["objects"].value,
                }
                for key, title in RECALLS.items():
                    row[title] = values.get(key, Result(None)).value
                rows.append(row)
    caption = (
        "Average recall (AR@k) of unknown objects by the best k proposals of each image, "
        "over IoU 0.50 to 0.95."
    )
    return Listing.from_rows(caption, rows).without_same("Detector")


def _sizes_table(runs: Sequence[Run]) -> Listing:
    """Missed objects, and those that no proposal covers, by size."""
    rows = []
    for objects in _objects(runs):
        for size, values in objects.by_size.items():
            if values["objects"].value:
                row = {
                    "Detector": objects.run.full_title,
                    "Source": objects.name,
                    "Objects of": objects.distance,
                    "Size": size,
                    "Objects": int(values["objects"].value),
                    "Missed": percent(values["missed"].value),
                    "Not covered": percent(values["still_missed"].value),
                }
                rows.append(row)
    caption = "Missed, and not covered by a proposal at τ_o either (%), by size (COCO's)."
    listing = Listing.from_rows(caption, rows, ["Missed", "Not covered"])
    return _without_single_distance(listing, runs)
