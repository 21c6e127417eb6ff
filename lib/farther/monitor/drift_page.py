"""The page and the file of drift: shares over windows, beside what the ID validation split showed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from farther.monitor.drift import Drift, said
from farther.monitor.proposal_rates import ProposalRates
from farther.tables.documents import write_json
from farther.tables.writing import write_aside

if TYPE_CHECKING:
    from farther.report.charts.vega import Key

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
        from farther.report.site import Site

        with write_aside(folder / "drift") as aside, Site(aside) as site:
            site.write("index.html", "drift.html", source=name, **content(drift))


def content(drift: Drift) -> dict[str, Any]:
    """Variables of the template `drift.html`."""
    from farther.report.charts.vega import ChartGroup
    from farther.report.listing import Listing

    validation, total = drift.validation.proposals, drift.total.proposals
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
    caption = "; ".join(
        f"{key}: {of.images:,} images, {of.detections:,} detections" for key, of in counts.items()
    )
    numbers = {"validation": validation, "monitored": total}
    if validation is not None:
        caption += "; proposals: " + ", ".join(
            f"{key} {of.number:,}" for key, of in numbers.items() if of
        )
    return {
        "drift": drift,
        "numbers": [
            f"{title}: {said(name, drift.validation.share(name))} in ID validation, "
            f"{said(name, drift.total.share(name))} here; "
            f"{sum(name in window.outside for window in drift.windows)} windows outside"
            for name, title in OF_PROPOSALS.items()
            if validation is not None
        ],
        "lines": [window.describe(name) for window in drift.windows for name in window.outside][
            -50:
        ],
        "group": ChartGroup(_legend(INSIDE, BAND), tuple(_charts(drift, TITLES, (INSIDE, BAND)))),
        "proposals": None
        if validation is None or total is None
        else ChartGroup(
            _legend(PROPOSED, PROPOSED_BAND),
            (
                *_charts(drift, OF_PROPOSALS, (PROPOSED, PROPOSED_BAND)),
                *_objectness(validation, total),
            ),
        ),
        "overview": Listing.of(f"Shares. {caption[0].upper()}{caption[1:]}.", rows),
    }


def _legend(inside: str, band: str) -> tuple[Key, ...]:
    from farther.report.charts.vega import Key

    return (
        Key("a window", inside, "●"),
        Key("outside", OUTSIDE, "●"),
        Key("consistent with ID validation", band, "■"),
        Key("ID validation", VALIDATION, "━"),
    )


def _objectness(validation: ProposalRates, total: ProposalRates) -> Iterator[Any]:
    """Share of the monitored proposals in each tenth of validation's, by objectness."""
    from farther.report.charts import vega as vl

    if not total.number or not validation.edges:
        return
    tenths = [f"{n + 1}" for n in range(len(total.counts))]
    shares = [count / total.number for count in total.counts]
    rows = [
        {"tenth": tenth, "share": round(share, 4)}
        for tenth, share in zip(tenths, shares, strict=True)
    ]
    yield vl.chart(
        "Objectness of all proposals",
        f"Share of the proposals in each tenth of validation's, from the lowest: {vl.said('{share:.0%}', rows)}.",
        pl.DataFrame(rows),
        vl.layer(
            {"type": "bar", "color": PROPOSED},
            x=vl.named("tenth", title="tenth of validation's", sort=tenths, axis={"labelAngle": 0}),
            y=vl.number("share", title=None, axis=vl.PERCENT),
            tooltip=vl.tooltip("tenth", "share:.1%"),
        ),
        vl.layer(
            {"type": "rule", "color": VALIDATION, "strokeDash": [4, 4]},
            y={"datum": 1 / len(tenths)},
        ),
        height=220,
    )


def _charts(drift: Drift, titles: Mapping[str, str], colours: tuple[str, str]) -> Iterator[Any]:
    from farther.report.charts import vega as vl
    from farther.report.charts.vega import Key

    inside, band = colours
    for name, title in titles.items():
        rows = []
        for window in drift.windows:
            share, interval = window.rates.share(name), window.intervals[name]
            if share is not None and interval is not None:
                last = window.first + window.rates.images - 1
                where = "outside" if name in window.outside else "inside"
                rows.append(
                    {
                        "last": last,
                        "share": share,
                        "low": interval[0],
                        "high": interval[1],
                        "where": where,
                    }
                )
        if not rows:
            continue
        x = vl.number("last", title="images", axis={"format": "~s", "tickCount": 5})
        is_number = name == "proposals"
        axis: dict[str, Any] = {
            "title": None,
            "axis": {"format": "~g"} if is_number else vl.PERCENT,
        }
        values = [f"{key}:{'.2f' if is_number else '.1%'}" for key in ("share", "low", "high")]
        legend = (Key("inside", inside, "●"), Key("outside", OUTSIDE, "●"))
        outside = sum(row["where"] == "outside" for row in rows)
        words = f"{title}, over {len(rows)} windows; {outside} outside the interval."
        yield vl.chart(
            title,
            words,
            pl.DataFrame(rows),
            vl.layer(
                {"type": "area", "color": band, "opacity": 0.35},
                x=x,
                y=vl.number("low", **axis),
                y2={"field": "high"},
            ),
            vl.layer(
                {"type": "rule", "color": VALIDATION, "strokeDash": [4, 4]},
                y={"datum": drift.validation.share(name)},
            ),
            vl.layer({"type": "line", "color": inside}, x=x, y=vl.number("share", **axis)),
            vl.layer(
                vl.points(45),
                x=x,
                y=vl.number("share", **axis),
                tooltip=vl.tooltip("last:, up to image", *values),
                **vl.by("where", legend),
            ),
            height=220,
        )
