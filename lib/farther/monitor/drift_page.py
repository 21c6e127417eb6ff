"""The page and the file of drift: shares over windows, beside what the ID validation split showed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from farther.monitor.drift import Drift
from farther.tables.documents import write_json
from farther.tables.files import write_aside

TITLES = {
    "unknown": "Detections that are unknown",
    "rejected": "Images that are rejected",
    "empty": "Images without a detection",
}

#: Colours of the interval, of shares within it and outside, and of validation.
BAND, INSIDE, OUTSIDE, VALIDATION = "#56B4E9", "#0072B2", "#D55E00", "#767676"


def write_drift(drift: Drift, folder: Path, name: str) -> None:
    """Writes `drift.json`, and from the second window on the page `drift/index.html`.

    Args:
        drift: What was compared.
        folder: The folder.
        name: Of the source, for the page's title.
    """
    write_json(folder / "drift.json", drift.to_json())
    if drift.count > 1:
        from farther.report.site import Site

        with write_aside(folder / "drift") as aside, Site(aside) as site:
            site.write("index.html", "drift.html", source=name, **content(drift))


def content(drift: Drift) -> dict[str, Any]:
    """Variables of the template `drift.html`."""
    from farther.report.charts.vega import ChartGroup, Key
    from farther.report.listing import Listing

    legend = (
        Key("share of a window", INSIDE, "●"),
        Key("outside", OUTSIDE, "●"),
        Key("consistent with ID validation", BAND, "■"),
        Key("ID validation", VALIDATION, "━"),
    )
    rows = [
        {
            "": title,
            "ID validation (%)": drift.validation.share(name),
            "all images (%)": drift.total.share(name),
            "windows outside": sum(name in window.outside for window in drift.windows),
        }
        for name, title in TITLES.items()
    ]
    counts = {"validation": drift.validation, "monitored": drift.total}
    caption = "; ".join(f"{key}: {of.images:,} images, {of.detections:,} detections" for key, of in counts.items())
    return {
        "drift": drift,
        "lines": [window.describe(name) for window in drift.windows for name in window.outside][-50:],
        "group": ChartGroup(legend, tuple(_charts(drift))),
        "overview": Listing.of(f"Shares. {caption[0].upper()}{caption[1:]}.", rows),
    }


def _charts(drift: Drift) -> Iterator[Any]:
    from farther.report.charts import vega as vl
    from farther.report.charts.vega import Key

    for name, title in TITLES.items():
        rows = []
        for window in drift.windows:
            share, interval = window.rates.share(name), window.intervals[name]
            if share is not None and interval is not None:
                last = window.first + window.rates.images - 1
                where = "outside" if name in window.outside else "inside"
                rows.append({"last": last, "share": share, "low": interval[0], "high": interval[1], "where": where})
        if not rows:
            continue
        x = vl.number("last", title="images", axis={"format": "~s", "tickCount": 5})
        axis: dict[str, Any] = {"title": None, "axis": vl.PERCENT}
        legend = (Key("inside", INSIDE, "●"), Key("outside", OUTSIDE, "●"))
        outside = sum(row["where"] == "outside" for row in rows)
        words = f"{title}, over {len(rows)} windows; {outside} outside the interval."
        yield vl.chart(
            title,
            words,
            pl.DataFrame(rows),
            vl.layer(
                {"type": "area", "color": BAND, "opacity": 0.35},
                x=x,
                y=vl.number("low", **axis),
                y2={"field": "high"},
            ),
            vl.layer(
                {"type": "rule", "color": VALIDATION, "strokeDash": [4, 4]}, y={"datum": drift.validation.share(name)}
            ),
            vl.layer({"type": "line", "color": INSIDE}, x=x, y=vl.number("share", **axis)),
            vl.layer(
                vl.points(45),
                x=x,
                y=vl.number("share", **axis),
                tooltip=vl.tooltip("last:, up to image", "share:.1%", "low:.1%", "high:.1%"),
                **vl.by("where", legend),
            ),
            height=220,
        )
