"""The page and the file of drift: shares over windows, beside those of the ID validation split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from farther.monitor.drift import Drift, Rates, format_share
from farther.monitor.proposal_rates import ProposalRates
from farther.report.charts import vega as vl
from farther.report.charts.vega import ChartGroup, Key
from farther.report.listing import Listing
from farther.report.site import Site
from farther.tables.documents import write_json
from farther.tables.writing import write_aside

#: Sentences about windows outside their interval that the page shows, the last ones.
LINES = 50

TITLES = {
    "unknown": "Detections that are unknown",
    "rejected": "Images that are rejected",
    "empty": "Images without a detection",
}

#: Of a bundle with proposals.
OF_PROPOSALS = {
    "proposals": "Proposals called unknown per image",
    "objectness": "Proposals of an objectness above validation's median",
}

#: Colours of the interval, of shares within it and outside, and of validation.
BAND, INSIDE, OUTSIDE, VALIDATION = "#56B4E9", "#0072B2", "#D55E00", "#767676"

#: Colours of proposals in place of the first two.
PROPOSED_BAND, PROPOSED = "#5FC7AE", "#008A6E"


def write_drift(drift: Drift, folder: Path, name: str) -> None:
    """Writes `drift.json`, and from the second window on the page `drift/index.html`.

    Args:
        drift: What was compared.
        folder: The folder.
        name: Of the source, for the page's title.
    """
    write_json(folder / "drift.json", drift.to_json())
    if drift.count > 1:
        with write_aside(folder / "drift") as aside, Site(aside) as site:
            site.write("index.html", "drift.html", source=name, **content(drift))


def content(drift: Drift) -> dict[str, Any]:
    """Variables of the template `drift.html`."""
    caption = _caption(drift)
    lines = [window.describe(name) for window in drift.windows for name in window.outside]
    shares = ChartGroup(_legend(INSIDE, BAND), tuple(_charts(drift, TITLES, (INSIDE, BAND))))
    return {
        "drift": drift,
        "lines": lines[-LINES:],
        "group": shares,
        "proposals": _proposal_charts(drift),
        "overview": Listing.from_rows(
            f"Compared values. {caption[0].upper()}{caption[1:]}.",
            _value_rows(drift),
            ["ID validation", "all images", "windows outside"],
        ),
    }


def _value_rows(drift: Drift) -> list[dict[str, Any]]:
    """One row per value: in validation, in all images, and the number of windows outside."""
    titles = dict(TITLES)
    if drift.validation.proposals is not None:
        titles |= OF_PROPOSALS
    rows = []
    for name, title in titles.items():
        row = {
            "value": title,
            "ID validation": format_share(name, drift.validation.share(name)),
            "all images": format_share(name, drift.total.share(name)),
            "windows outside": _windows_outside(drift, name),
        }
        rows.append(row)
    return rows


def _windows_outside(drift: Drift, share: str) -> int:
    return sum(share in window.outside for window in drift.windows)


def _caption(drift: Drift) -> str:
    """Numbers of images, detections and proposals that the shares are of."""
    rates_by_source: dict[str, Rates] = {"validation": drift.validation, "monitored": drift.total}
    counts = []
    for source, rates in rates_by_source.items():
        counts.append(f"{source}: {rates.images:,} images, {rates.detections:,} detections")
    caption = "; ".join(counts)
    if drift.validation.proposals is None:
        return caption

    numbers = []
    for source, rates in rates_by_source.items():
        if rates.proposals:
            numbers.append(f"{source} {rates.proposals.number:,}")
    return f"{caption}; proposals: {', '.join(numbers)}"


def _proposal_charts(drift: Drift) -> ChartGroup | None:
    """The charts of proposals; None where the bundle has no proposals."""
    validation, total = drift.validation.proposals, drift.total.proposals
    if validation is None or total is None:
        return None
    charts = list(_charts(drift, OF_PROPOSALS, (PROPOSED, PROPOSED_BAND)))
    charts += _objectness(validation, total)
    return ChartGroup(_legend(PROPOSED, PROPOSED_BAND), tuple(charts))


def _legend(inside: str, band: str) -> tuple[Key, ...]:
    return (
        Key("a window", inside, "●"),
        Key("outside", OUTSIDE, "●"),
        Key("consistent with ID validation", band, "■"),
        Key("ID validation", VALIDATION, "━"),
    )


def _objectness(validation: ProposalRates, total: ProposalRates) -> Iterator[Any]:
    """Share of the monitored proposals in each tenth of validation's, by objectness."""
    if not total.number or not validation.edges:
        return
    tenths = [f"{n + 1}" for n in range(len(total.counts))]
    shares = [count / total.number for count in total.counts]
    rows = [
        {"tenth": tenth, "share": round(share, 4)}
        for tenth, share in zip(tenths, shares, strict=True)
    ]
    values = vl.describe_rows("{share:.0%}", rows)
    yield vl.chart(
        "Objectness of all proposals",
        f"Share of the proposals in each tenth of validation's, from the lowest: {values}.",
        pl.DataFrame(rows),
        vl.layer(
            {"type": "bar", "color": PROPOSED},
            x=vl.nominal(
                "tenth", title="tenth of validation's", sort=tenths, axis={"labelAngle": 0}
            ),
            y=vl.quantitative("share", title=None, axis=vl.PERCENT),
            tooltip=vl.tooltip("tenth", "share:.1%"),
        ),
        vl.layer(
            {"type": "rule", "color": VALIDATION, "strokeDash": [4, 4]},
            y={"datum": 1 / len(tenths)},
        ),
        height=220,
    )


def _charts(drift: Drift, titles: Mapping[str, str], colours: tuple[str, str]) -> Iterator[Any]:
    """One chart per share, over the windows in which it can be compared."""
    inside, band = colours
    x = vl.quantitative("last", title="images", axis={"format": "~s", "tickCount": 5})
    legend = (Key("inside", inside, "●"), Key("outside", OUTSIDE, "●"))
    for name, title in titles.items():
        rows = _window_rows(drift, name)
        if not rows:
            continue
        axis: dict[str, Any] = {"title": None, "axis": vl.PERCENT}
        number_format = ".1%"
        if name == "proposals":
            axis["axis"] = {"format": "~g"}
            number_format = ".2f"
        values = [f"{key}:{number_format}" for key in ("share", "low", "high")]
        outside = sum(row["where"] == "outside" for row in rows)
        yield vl.chart(
            title,
            f"{title}, over {len(rows)} windows; {outside} outside the interval.",
            pl.DataFrame(rows),
            vl.layer(
                {"type": "area", "color": band, "opacity": 0.35},
                x=x,
                y=vl.quantitative("low", **axis),
                y2={"field": "high"},
            ),
            vl.layer(
                {"type": "rule", "color": VALIDATION, "strokeDash": [4, 4]},
                y={"datum": drift.validation.share(name)},
            ),
            vl.layer({"type": "line", "color": inside}, x=x, y=vl.quantitative("share", **axis)),
            vl.layer(
                vl.point_mark(45),
                x=x,
                y=vl.quantitative("share", **axis),
                tooltip=vl.tooltip("last:, up to image", *values),
                **vl.legend_channels("where", legend),
            ),
            height=220,
        )


def _window_rows(drift: Drift, name: str) -> list[dict[str, Any]]:
    """One row per window in which a share can be compared: its last image, share and interval."""
    rows = []
    for window in drift.windows:
        share, interval = window.rates.share(name), window.intervals[name]
        if share is None or interval is None:
            continue
        low, high = interval
        row = {
            "last": window.first + window.rates.images - 1,
            "share": share,
            "low": low,
            "high": high,
            "where": "outside" if name in window.outside else "inside",
        }
        rows.append(row)
    return rows
