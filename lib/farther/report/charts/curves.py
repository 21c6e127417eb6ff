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
    "roc": ("ROC curves", vl.Axis("OOD detections taken as ID"), vl.Axis("ID detections taken as ID")),
    "pr": ("Precision–recall curves of unknown objects", vl.Axis("recall R_U", domain=None), vl.Axis("precision P_U")),
}

#: Threshold that moves: its column and axis.
SWEEPS = {
    "tau": ("kept", vl.Axis("share of ID detections at or above τ", domain=None)),
    "confidence": ("t", vl.Axis("operating threshold t*", domain=None)),
}
#: Metrics that are drawn over it.
SWEPT = ("nose", "r_u", "p_u")

EMPTY = vl.ChartGroup((), ())


@dataclass(frozen=True)
class RunCurves:
    """Charts of a run's curves; a file that is absent gives no chart.

    Args:
        run: The run.
        folder: Holds `roc.csv`, `pr.csv`, `tau.csv`, `confidence.csv`, `wilderness.csv` and `reliability.csv`.
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
                rows = vl.line_rows(pl.concat(_thinned(curve, points) for curve in curves))
                words = f"{title} of {self.run.full_title} on {split.title}."
                charts.append(vl.lines(split.title, words, rows, self._legend, x, y))
        return vl.ChartGroup(self._legend, tuple(charts))

    def sweep(self, kind: str) -> vl.ChartGroup:
        """Metrics over a moving threshold, one chart per split and metric."""
        column, x = SWEEPS[kind]
        table = self._of_methods(f"{kind}.csv", dict.fromkeys((column, *SWEPT), pl.Float64)).rename({column: "x"})
        charts = []
        for split in self.run.splits:
            for name in SWEPT:
                rows = table.filter(split=split.name).select("series", "x", y=name).drop_nulls()
                if len(rows):
                    title = METRICS[name].title
                    words = f"{title} of {self.run.full_title} on {split.title} by {x.title}."
                    y = vl.Axis(title, domain=None)
                    charts.append(vl.lines(f"{split.title}: {title}", words, vl.line_rows(rows), self._legend, x, y))
        return vl.ChartGroup(self._legend, tuple(charts))

    def no_detection(self) -> vl.ChartGroup:
        """Share of images without a detection by operating threshold, one line per split."""
        table = vl.read_csv(
            self.folder / "confidence.csv", {"split": pl.String, "t": pl.Float64, "no_detection": pl.Float64}
        )
        titles = {split.name: split.title for split in self.run.splits}
        points = table.drop_nulls().unique(["split", "t"], keep="last", maintain_order=True)
        points = points.filter(pl.col("split").is_in(list(titles)))
        if points.is_empty():
            return EMPTY
        rows = points.select(series=pl.col("split").replace(titles), x="t", y="no_detection")
        present = rows["series"].unique()
        legend = vl.keys([title for title in titles.values() if title in present], vl.DASHES)
        words = f"Images of each split without a detection of {self.run.full_title}, by operating threshold."
        axes = (vl.Axis("operating threshold t*", domain=None), vl.Axis("images without detections"))
        return vl.ChartGroup(legend, (vl.lines("Images without detections", words, vl.line_rows(rows), legend, *axes),))

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
        place = {
            "x": vl.number("confidence", title="confidence", axis=vl.PERCENT, scale=vl.UNIT),
            "y": vl.number("performance", title="precision × mean IoU", axis=vl.PERCENT, scale=vl.UNIT),
        }
        shown = [vl.number("confidence", format=".1%"), vl.number("performance", format=".1%"), vl.number("detections")]
        size = vl.number("detections", scale={"type": "sqrt", "range": [25, 350]}, legend=None)
        ends = [{"confidence": end, "performance": end} for end in (0, 1)]
        body = {
            "height": 240,
            "encoding": place,
            "layer": [
                {"data": {"values": ends}, "mark": {"type": "line", "color": "#767676", "strokeDash": [4, 4]}},
                {"mark": {"type": "line", "color": vl.COLOURS[0], "strokeWidth": 2}},
                {
                    "mark": {"type": "point", "color": vl.COLOURS[0], "filled": True, "opacity": 1},
                    "encoding": {"size": size, "tooltip": shown},
                },
            ],
        }
        words = f"Reliability of {self.run.full_title}: on the dashed line, confidence equals precision × mean IoU. "
        words += "; ".join(
            f"{c:.2f}: {p:.2f}" for c, p in rows.select("confidence", "performance").iter_rows() if p is not None
        )
        return vl.chart(f"{self.run.full_title}: reliability on the ID test set", f"{words}.", rows, body)

    @property
    def _legend(self) -> tuple[vl.Key, ...]:
        return vl.keys([self.run.label(method) for method in self.methods], vl.DASHES)

    def _of_methods(self, name: str, numbers: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
        """The rows of the drawn methods, in their order; `series` is a method's label."""
        table = vl.read_csv(self.folder / name, {"split": pl.String, "method": pl.String, **numbers})
        labels = pl.DataFrame({"method": self.methods, "series": [self.run.label(method) for method in self.methods]})
        return labels.join(table, on="method", maintain_order="left_right")


def _thinned(curve: pl.DataFrame, points: int) -> pl.DataFrame:
    x, y = thin(curve["x"].to_numpy(), curve["y"].to_numpy(), points)
    return pl.DataFrame({"x": x, "y": y}).with_columns(series=pl.lit(curve["series"][0]))


def wilderness_of(folders: Mapping[str, Path], recall: str) -> vl.ChartGroup:
    """Wilderness impact of several runs at one recall, one line per run."""
    frames = [
        _wilderness(folder).filter(recall=recall).with_columns(series=pl.lit(run)) for run, folder in folders.items()
    ]
    return _wilderness_chart(pl.concat(frames), f"Wilderness impact at recall {recall}") if frames else EMPTY


def _wilderness(folder: Path) -> pl.DataFrame:
    types = {"recall": pl.String, "ratio": pl.Float64, "impact": pl.Float64}
    return vl.read_csv(folder / "wilderness.csv", types).drop_nulls("impact")


def _wilderness_chart(points: pl.DataFrame, title: str) -> vl.ChartGroup:
    if points.is_empty():
        return EMPTY
    legend = vl.keys(points["series"].unique(maintain_order=True), vl.DASHES)
    x = vl.Axis("wilderness ratio: OOD images per ID image", "~g", None)
    y = vl.Axis("wilderness impact", "~g", None)
    words = f"{title}, by the ratio of images without known objects to images with them; lower is better."
    rows = vl.line_rows(points.rename({"ratio": "x", "impact": "y"}))
    return vl.ChartGroup(legend, (vl.lines(title, words, rows, legend, x, y),))
