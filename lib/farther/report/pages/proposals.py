"""The page of proposals: what they find of the unknown objects that detectors miss, and at what price."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from farther.evaluation.proposals import FrocPoint, RecoveredObjects, SourceResults
from farther.evaluation.with_proposals import CHANGED, MethodWithProposals
from farther.report.all_results import AllResults
from farther.report.charts import vega as vl
from farther.report.listing import ABSENT, Listing, percent
from farther.report.results import DISTANCES, Run, heading, title_of_split
from farther.report.site import Site
from farther.tables.files import digest
from farther.tables.stored import NO_TIMES, Times

#: Columns of average recall: key and heading.
RECALLS = {
    "ar@10": "AR@10 (%)",
    "ar@100": "AR@100 (%)",
    **{f"ar@100_{size}": f"AR@100, {size} (%)" for size in ("small", "medium", "large")},
}

#: Place of `costs` in the page.
COSTS = "proposal-costs"

#: Metrics of detections and proposals together → their names in the catalogue.
TOGETHER = {key: f"open_world_{key}" if key == "u_recall" else key for key in CHANGED}


def write(site: Site, results: AllResults) -> None:
    """Writes the page."""
    shown = [(run, results.shown_method(run)) for run in results.evaluated if run.recovered]
    part = costs(site, sources(results.evaluated, results.params["detectors"]), NO_TIMES)
    site.write("proposals.html", costs=Markup(part), key=digest(part), **content(shown))


@dataclass(frozen=True)
class TimedSource:
    """A source of proposals of a run: its name and kind, and the run whose detections it takes, None for its own."""

    run: Run
    name: str
    kind: str
    other: str | None


def sources(runs: Sequence[Run], detectors: Mapping[str, Any]) -> list[TimedSource]:
    """All sources of the evaluated runs.

    Args:
        runs: The evaluated runs.
        detectors: Section `detectors` of params.yaml.
    """
    entries = {run.name: (detectors.get(run.name) or {}).get("proposals") or {} for run in runs}
    return [
        TimedSource(run, name, source.kind, (entries[run.name].get(name) or {}).get("run"))
        for run in runs
        for name, source in _sources(run)
        if source.rule == "objectness"
    ]


def costs(site: Site, of: Sequence[TimedSource], times: Times) -> str:
    """The part of the page that has the times of a machine, or none."""
    rows = []
    for source in of:
        timed = times["runs"].get(source.run.name)
        alone, further = (timed["detector"], _further(source, times)) if timed else (None, None)
        share = None if alone is None or further is None else alone / (alone + further)
        rows.append(
            {
                "Detector": source.run.full_title,
                "Source": source.name,
                "Detection (ms)": ABSENT if alone is None else f"{alone:.1f}",
                "Further (ms)": ABSENT if further is None else f"{further:.1f}",
                "Speed with proposals (%)": percent(share),
            }
        )
    caption = "Milliseconds per image of detection, and what each source adds; imported boxes are not timed."
    listing = Listing.of(
        caption, rows, ["Detection (ms)", "Further (ms)", "Speed with proposals (%)"]
    )
    return site.render(
        "proposals.html", "proposal_costs.html", machine=times["machine"], listed=listing
    )


def _further(source: TimedSource, times: Times) -> float | None:
    """Milliseconds that a source adds: of the network's own pass, or all of another run's detection."""
    timed = times["runs"].get(source.other or source.run.name)
    if timed is None:
        return None
    return timed["detector"] if source.other else timed.get("proposals", {}).get(source.name)


def content(shown: Sequence[tuple[Run, str]]) -> dict[str, Any]:
    """Variables of the template `proposals.html`.

    Args:
        shown: The evaluated runs with proposals, and the method that each is shown with.
    """
    runs = [run for run, _ in shown]
    rates = sorted({point.alarms for *_, of in _objects(runs) for point in of.froc})
    rows = [
        _row(run, name, source, distance, of, rates)
        for run, name, source, distance, of in _objects(runs)
    ]
    heads = [_heading(rate) for rate in rates]
    caption = (
        "Share of the unknown objects that is missed (%): by the detections alone, and still with proposals at a "
        "number of false alarms per ID image, with 95% intervals."
    )
    return {
        "asked": next((run.recovered.asked_alarms for run in runs if run.recovered), None),
        "missed": Listing.of(caption, rows, ["Objects", "Without", *heads]),
        "nothing": [
            f"{run.full_title}: {name} recovers none of the {distance} unknown objects at the chosen threshold."
            for run, name, _, distance, of in _objects(runs)
            if of.values.get("missed") and not of.values.get("recovered")
        ],
        "charts": {
            run.full_title: [_chart(run, distance) for distance in _distances(run)] for run in runs
        },
        "operating": Listing.of(
            "At the threshold τ_o chosen on ID validation images: proposals called unknown in ID test images, all of "
            "which are false alarms, and what is missed then (%).",
            [_operating(run, name, source) for run in runs for name, source in _sources(run)],
            ["τ_o", "False alarms per ID image", *(f"Missed, {d}" for d in DISTANCES)],
        ),
        "together": Listing.of(
            "Detections alone → detections and proposals above τ_o (%), with 95% intervals of the latter.",
            [row for run, method in shown for row in _together(run, method)],
            [heading(name) for name in TOGETHER.values()],
        ),
        "recall": Listing.of(
            "Average recall (AR@k) of unknown objects by the best k proposals of each image, over IoU 0.50 to 0.95.",
            [_recall(run, name, split, of) for run, name, split, of in _splits(runs)],
        ),
        "sizes": Listing.of(
            "Missed without and with proposals at τ_o (%), by size (COCO's).",
            [row for found in _objects(runs) for row in _sizes(*found)],
            ["Without", "With proposals"],
        ),
        "together_by_size": Listing.of(
            "R_U of detections alone, and of detections and proposals above τ_o, by size (COCO's).",
            [row for run, method in shown for row in _by_size(run, method)],
        ),
    }


def _sources(run: Run) -> Iterator[tuple[str, SourceResults]]:
    if run.recovered:
        yield from run.recovered.sources.items()


def _distances(run: Run) -> list[str]:
    found = {distance for _, source in _sources(run) for distance in source.distances}
    return [distance for distance in DISTANCES if distance in found]


def _objects(
    runs: Sequence[Run],
) -> Iterator[tuple[Run, str, SourceResults, str, RecoveredObjects]]:
    for run in runs:
        for distance in _distances(run):
            for name, source in _sources(run):
                if distance in source.distances:
                    yield run, name, source, distance, source.distances[distance]


def _splits(runs: Sequence[Run]) -> Iterator[tuple[Run, str, str, RecoveredObjects]]:
    for run in runs:
        for name, source in _sources(run):
            for split, of in source.splits.items():
                yield run, name, title_of_split(split), of


def _heading(rate: float) -> str:
    return f"At {rate:g}"


def _row(
    run: Run,
    name: str,
    source: SourceResults,
    distance: str,
    of: RecoveredObjects,
    rates: Sequence[float],
) -> dict[str, Any]:
    points: dict[float, FrocPoint] = {point.alarms: point for point in of.froc}
    still = {rate: points.get(rate) for rate in rates}
    return {
        "Detector": run.full_title,
        "Objects of": distance,
        "Source": name,
        "Objects": of.values.get("objects"),
        "Without": percent(of.values.get("missed"), of.intervals.get("missed")),
        **{
            _heading(rate): ABSENT if p is None else percent(p.still_missed, p.interval)
            for rate, p in still.items()
        },
    }


def _chart(run: Run, distance: str) -> vl.ChartGroup:
    """FROC curves of a run's sources: what is still missed, by false alarms per ID image."""
    lines = {
        name: source.distances[distance].curve
        for name, source in _sources(run)
        if distance in source.distances
    }
    words = f"Share of the {distance} unknown objects that {run.full_title} still misses, by false alarms per ID image."
    y = vl.Axis("still missed")
    return vl.line_group(
        distance, words, vl.series(lines), vl.Axis("false alarms per ID image", "~g", None), y
    )


def _operating(run: Run, name: str, source: SourceResults) -> dict[str, Any]:
    within = source.alarms_interval
    alarms = f"{source.alarms:.2f}" + (
        "" if within is None else f" ({within[0]:.2f} to {within[1]:.2f})"
    )
    missed = {f"Missed, {distance}": ABSENT for distance in DISTANCES}
    for distance, of in source.distances.items():
        now, interval = of.values.get("still_missed"), of.intervals.get("still_missed")
        missed[f"Missed, {distance}"] = (
            f"{percent(of.values.get('missed'))} → {percent(now, interval)}"
        )
    tau = "all" if source.threshold is None else f"{source.threshold:.3g}"
    return {
        "Detector": run.full_title,
        "Source": name,
        "Kind": source.kind,
        "τ_o": tau,
        "False alarms per ID image": alarms,
        **missed,
    }


def _measured(run: Run, method: str) -> Iterator[tuple[str, str, MethodWithProposals]]:
    """Source, split, and metrics of a method with the source's proposals."""
    for name, source in _sources(run):
        for split, of in source.methods.get(method, {}).items():
            yield name, split, of


def _together(run: Run, method: str) -> Iterator[dict[str, Any]]:
    for name, split, of in _measured(run, method):
        place = {"Detector": run.full_title, "Method": run.label(method), "Source": name}
        changed = {
            heading(
                title
            ): f"{percent(of.without[key])} → {percent(of.values[key], of.intervals.get(key))}"
            for key, title in TOGETHER.items()
        }
        yield {**place, "Split": title_of_split(split), **changed}


def _by_size(run: Run, method: str) -> Iterator[dict[str, Any]]:
    for name, split, of in _measured(run, method):
        alone = run.details(split, method).by_size
        for size, found in of.by_size.items():
            yield {
                "Detector": run.full_title,
                "Source": name,
                "Split": title_of_split(split),
                "Size": size,
                "Objects": found.values["unknown_objects"],
                "Detections (%)": alone[size].values.get("r_u") if size in alone else None,
                "With proposals (%)": found.values["r_u"],
            }


def _recall(run: Run, name: str, split: str, of: RecoveredObjects) -> dict[str, Any]:
    values = {heading: of.values.get(key) for key, heading in RECALLS.items()}
    return {
        "Detector": run.full_title,
        "Source": name,
        "Split": split,
        "Objects": of.values.get("objects"),
        **values,
    }


def _sizes(
    run: Run, name: str, _: SourceResults, distance: str, of: RecoveredObjects
) -> Iterator[dict[str, Any]]:
    for size, values in of.by_size.items():
        if values["objects"]:
            yield {
                "Detector": run.full_title,
                "Source": name,
                "Objects of": distance,
                "Size": size,
                "Objects": int(values["objects"]),
                "Without": percent(values["missed"]),
                "With proposals": percent(values["still_missed"]),
            }
