"""Charts of a run's curves, from the files in `artifacts/plots/<run>`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from farther.evaluation.plots import thin
from farther.metrics.catalogue import METRICS
from farther.report.charts import vega as vl
from farther.report.results import Run

#: Kind of curve: title and axes.
CURVES = {
    "roc": (
        "ROC curves",
        vl.Axis("OOD detections accepted as ID"),
        vl.Axis("ID detections accepted as ID"),
    ),
    "pr": (
        "Precision–recall curves of unknown objects",
        vl.Axis("recall R_U", domain=None),
        vl.Axis("precision P_U"),
    ),
}

#: Threshold that moves: its column and axis.
SWEEPS = {
    "tau": ("kept", vl.Axis("share of ID detections at or above τ", domain=None)),
    "confidence": ("t", vl.Axis("operating threshold t*", domain=None)),
}
#: Metrics that are drawn over it.
SWEPT = ("nose", "r_u", "p_u")

#: Title of the axis of wilderness.
RATIO = "wilderness ratio: OOD images per ID image"


@dataclass(frozen=True)
class RunCurves:
    """Charts of a run's curves; a file that is absent gives no chart.

    Args:
        run: The run.
        folder: Holds `roc.csv`, `pr.csv`, `tau.csv`, `confidence.csv`, `wilderness.csv` and
            `reliability.csv`.
        methods: The methods to draw.
    """

    run: Run
    folder: Path
    methods: Sequence[str]

    def curves(self, kind: str, points: int) -> vl.ChartGroup:
        """ROC or precision–recall curves, one chart per split."""
        title, x, y = CURVES[kind]
        table = self._of_methods(f"{kind}.csv", {"x": pl.Float64, "y": pl.Float64})
        charts = []
        for split in self.run.splits:
            curves = table.filter(split=split.name).partition_by("series", maintain_order=True)
            if curves:
                words = f"{title} of {self.run.full_title} on {split.title}."
                rows = pl.concat(_thinned(curve, points) for curve in curves)
                charts.append(vl.lines(split.title, words, rows, self._legend, x, y))
        return vl.ChartGroup(self._legend, tuple(charts))

    def sweep(self, kind: str) -> vl.ChartGroup:
        """Metrics over a moving threshold, one chart per split and metric."""
        column, x = SWEEPS[kind]
        table = self._of_methods(f"{kind}.csv", dict.fromkeys((column, *SWEPT), pl.Float64)).rename(
            {column: "x"}
        )
        charts = []
        for split in self.run.splits:
            for name in SWEPT:
                rows = table.filter(split=split.name).select("series", "x", y=name).drop_nulls()
                if len(rows):
                    title = METRICS[name].title
                    words = f"{title} of {self.run.full_title} on {split.title} by {x.title}."
                    y = vl.Axis(title, domain=None)
                    charts.append(
                        vl.lines(f"{split.title}: {title}", words, rows, self._legend, x, y)
                    )
        return vl.ChartGroup(self._legend, tuple(charts))

    def no_detection(self) -> vl.ChartGroup:
        """Share of images without a detection by operating threshold, one line per split."""
        titles = {split.name: split.title for split in self.run.splits}
        table = self._titled(
            "confidence.csv", "split", titles, {"t": pl.Float64, "no_detection": pl.Float64}
        )
        # The file repeats them for each method.
        rows = table.drop_nulls().unique(["series", "t"], keep="last", maintain_order=True)
        words = f"Images of each split without a detection of {self.run.full_title}, by operating threshold."
        axes = (
            vl.Axis("operating threshold t*", domain=None),
            vl.Axis("images without detections"),
        )
        return vl.line_group(
            "Images without detections",
            words,
            rows.select("series", x="t", y="no_detection"),
            *axes,
        )

    def wilderness(self) -> vl.ChartGroup:
        """Wilderness impact over the wilderness ratio, one line per recall (Dhamija et al., 2020)."""
        points = _wilderness(self.folder).with_columns(series="at recall " + pl.col("recall"))
        return _wilderness_chart(points, f"{self.run.full_title}: wilderness impact")

    def reliability(self) -> vl.Chart | None:
        """Precision × IoU of detections by their confidence; None where not measured (Oksuz et al., 2023)."""
        types = {"confidence": pl.Float64, "performance": pl.Float64, "detections": pl.Int64}
        rows = vl.read_csv(self.folder / "reliability.csv", types).drop_nulls("confidence")
        if rows.is_empty():
            return None
        title = self.run.full_title
        text = vl.said("{confidence:.2f}: {performance:.2f}", rows.drop_nulls("performance"))
        return vl.chart(
            f"{title}: reliability on the ID test set",
            f"Reliability of {title}: on the dashed line, confidence equals precision × mean IoU. {text}.",
            rows,
            vl.layer(
                {"type": "line", "color": "#767676", "strokeDash": [4, 4]},
                [{"confidence": end, "performance": end} for end in (0, 1)],
            ),
            vl.layer({"type": "line", "color": vl.COLOURS[0], "strokeWidth": 2}),
            vl.layer(
                {"type": "point", "color": vl.COLOURS[0], "filled": True, "opacity": 1},
                size=vl.number(
                    "detections", scale={"type": "sqrt", "range": [25, 350]}, legend=None
                ),
                tooltip=vl.tooltip("confidence:.1%", "performance:.1%", "detections:"),
            ),
            x=vl.number("confidence", title="confidence", axis=vl.PERCENT, scale=vl.UNIT),
            y=vl.number(
                "performance", title="precision × mean IoU", axis=vl.PERCENT, scale=vl.UNIT
            ),
        )

    @property
    def _legend(self) -> tuple[vl.Key, ...]:
        return vl.keys([self.run.label(method) for method in self.methods], vl.DASHES)

    def _of_methods(self, name: str, numbers: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
        """The rows of the drawn methods, in their order; `series` is a method's label."""
        titles = {method: self.run.label(method) for method in self.methods}
        return self._titled(name, "method", titles, {"split": pl.String, **numbers})

    def _titled(
        self, name: str, key: str, titles: Mapping[str, str], types: Mapping[str, type[pl.DataType]]
    ) -> pl.DataFrame:
        """The rows of a file whose `key` has a title, in the order of the titles, with these as `series`."""
        table = vl.read_csv(self.folder / name, {key: pl.String, **types})
        series = pl.DataFrame(
            {key: list(titles), "series": list(titles.values())}, schema_overrides={key: pl.String}
        )
        return series.join(table, on=key, maintain_order="left_right")


def _thinned(curve: pl.DataFrame, points: int) -> pl.DataFrame:
    x, y = thin(curve["x"].to_numpy(), curve["y"].to_numpy(), points)
    return pl.DataFrame({"x": x, "y": y}).with_columns(series=pl.lit(curve["series"][0]))


def wilderness_of(folders: Mapping[str, Path], recall: str) -> vl.ChartGroup:
    """Wilderness impact of several runs at one recall, one line per run."""
    frames = [
        _wilderness(folder).filter(recall=recall).with_columns(series=pl.lit(run))
        for run, folder in folders.items()
    ]
    return _wilderness_chart(pl.concat(frames), f"Wilderness impact at recall {recall}")


def _wilderness(folder: Path) -> pl.DataFrame:
    types = {"recall": pl.String, "ratio": pl.Float64, "impact": pl.Float64}
    return vl.read_csv(folder / "wilderness.csv", types).drop_nulls("impact")


def _wilderness_chart(points: pl.DataFrame, title: str) -> vl.ChartGroup:
    words = f"{title}, by the ratio of images without known objects to images with them; lower is better."
    axes = vl.Axis(RATIO, "~g", None), vl.Axis("wilderness impact", "~g", None)
    return vl.line_group(title, words, points.select("series", x="ratio", y="impact"), *axes)
