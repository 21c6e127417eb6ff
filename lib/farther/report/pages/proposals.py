"""The page of proposals: what they find of the unknown objects that detectors miss, and at what price."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from farther.evaluation.proposals import FrocPoint, RecoveredObjects, SourceResults
from farther.report.all_results import AllResults
from farther.report.charts import vega as vl
from farther.report.listing import ABSENT, Listing, percent
from farther.report.results import DISTANCES, Run
from farther.report.site import Site

#: Columns of average recall: key and heading.
RECALLS = {
    "ar@10": "AR@10 (%)",
    "ar@100": "AR@100 (%)",
    **{f"ar@100_{size}": f"AR@100, {size} (%)" for size in ("small", "medium", "large")},
}


def write(site: Site, results: AllResults) -> None:
    """Writes the page."""
    site.write("proposals.html", **content([run for run in results.evaluated if run.recovered]))


def content(runs: Sequence[Run]) -> dict[str, Any]:
    """Variables of the template `proposals.html`.

    Args:
        runs: The evaluated runs with proposals.
    """
    rates = sorted({point.alarms for *_, of in _objects(runs) for point in of.froc})
    rows = [_row(run, name, source, distance, of, rates) for run, name, source, distance, of in _objects(runs)]
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
        "charts": {run.full_title: [_chart(run, distance) for distance in _distances(run)] for run in runs},
        "operating": Listing.of(
            "At the threshold τ_o chosen on ID validation images: proposals called unknown in ID test images, all of "
            "which are false alarms, and what is missed then (%).",
            [_operating(run, name, source) for run in runs for name, source in _sources(run)],
            ["τ_o", "False alarms per ID image", *(f"Missed, {d}" for d in DISTANCES)],
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
    }


def _sources(run: Run) -> Iterator[tuple[str, SourceResults]]:
    if run.recovered:
        yield from run.recovered.sources.items()


def _distances(run: Run) -> list[str]:
    found = {distance for _, source in _sources(run) for distance in source.distances}
    return [distance for distance in DISTANCES if distance in found]


def _objects(runs: Sequence[Run]) -> Iterator[tuple[Run, str, SourceResults, str, RecoveredObjects]]:
    for run in runs:
        for distance in _distances(run):
            for name, source in _sources(run):
                if distance in source.distances:
                    yield run, name, source, distance, source.distances[distance]


def _splits(runs: Sequence[Run]) -> Iterator[tuple[Run, str, str, RecoveredObjects]]:
    for run in runs:
        titles = {split.name: split.title for split in run.splits}
        for name, source in _sources(run):
            for split, of in source.splits.items():
                yield run, name, titles.get(split, split), of


def _heading(rate: float) -> str:
    return f"At {rate:g}"


def _row(
    run: Run, name: str, source: SourceResults, distance: str, of: RecoveredObjects, rates: Sequence[float]
) -> dict[str, Any]:
    points: dict[float, FrocPoint] = {point.alarms: point for point in of.froc}
    still = {rate: points.get(rate) for rate in rates}
    return {
        "Detector": run.full_title,
        "Objects of": distance,
        "Source": name,
        "Objects": of.values.get("objects"),
        "Without": percent(of.values.get("missed"), of.intervals.get("missed")),
        **{_heading(rate): ABSENT if p is None else percent(p.still_missed, p.interval) for rate, p in still.items()},
    }


def _chart(run: Run, distance: str) -> vl.ChartGroup:
    """FROC curves of a run's sources: what is still missed, by false alarms per ID image."""
    lines = {name: source.distances[distance].curve for name, source in _sources(run) if distance in source.distances}
    words = f"Share of the {distance} unknown objects that {run.full_title} still misses, by false alarms per ID image."
    y = vl.Axis("still missed")
    return vl.line_group(distance, words, vl.series(lines), vl.Axis("false alarms per ID image", "~g", None), y)


def _operating(run: Run, name: str, source: SourceResults) -> dict[str, Any]:
    within = source.alarms_interval
    alarms = f"{source.alarms:.2f}" + ("" if within is None else f" ({within[0]:.2f} to {within[1]:.2f})")
    missed = {f"Missed, {distance}": ABSENT for distance in DISTANCES}
    for distance, of in source.distances.items():
        now, interval = of.values.get("still_missed"), of.intervals.get("still_missed")
        missed[f"Missed, {distance}"] = f"{percent(of.values.get('missed'))} → {percent(now, interval)}"
    tau = "all" if source.threshold is None else f"{source.threshold:.3g}"
    return {
        "Detector": run.full_title,
        "Source": name,
        "Kind": source.kind,
        "τ_o": tau,
        "False alarms per ID image": alarms,
        **missed,
    }


def _recall(run: Run, name: str, split: str, of: RecoveredObjects) -> dict[str, Any]:
    values = {heading: of.values.get(key) for key, heading in RECALLS.items()}
    return {"Detector": run.full_title, "Source": name, "Split": split, "Objects": of.values.get("objects"), **values}


def _sizes(run: Run, name: str, _: SourceResults, distance: str, of: RecoveredObjects) -> Iterator[dict[str, Any]]:
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
