"""Charts of a run's curves, from the files in `artifacts/plots`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from farther.evaluation.plots import thin
from farther.metrics.catalogue import METRICS
from farther.report.charts import vega as vl
from farther.report.results import Run


@dataclass(frozen=True)
class CurveKind:
    """Title and axes of a kind of curve."""

    title: str
    x: vl.Axis
    y: vl.Axis


CURVES = {
    "roc": CurveKind(
        "ROC curves",
        vl.Axis("OOD detections accepted as ID"),
        vl.Axis("ID detections accepted as ID"),
    ),
    "pr": CurveKind(
        "Precision–recall curves of unknown objects",
        vl.Axis("recall R_U", domain=None),
        vl.Axis("precision P_U"),
    ),
}


@dataclass(frozen=True)
class SweptThreshold:
    """A threshold that moves: its column in the file, and its axis."""

    column: str
    x: vl.Axis


SWEEPS = {
    "tau": SweptThreshold("kept", vl.Axis("share of ID detections at or above τ", domain=None)),
    "confidence": SweptThreshold("t", vl.Axis("operating threshold t*", domain=None)),
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
        files: CSV files by kind; see `farther.evaluation.plots.SCHEMAS`.
        methods: The methods to draw.
    """

    run: Run
    files: Mapping[str, Path]
    methods: Sequence[str]

    def curves(self, kind: str, points: int) -> vl.ChartGroup:
        """ROC or precision–recall curves, one chart per split."""
        curve_kind = CURVES[kind]
        table = self._read_by_method(kind, {"x": pl.Float64, "y": pl.Float64})
        charts = []
        for split in self.run.splits:
            curves = table.filter(split=split.name).partition_by("series", maintain_order=True)
            if not curves:
                continue
            chart = vl.lines(
                split.title,
                f"{curve_kind.title} of {self.run.full_title} on {split.title}.",
                pl.concat([_thinned(curve, points) for curve in curves]),
                self._legend,
                curve_kind.x,
                curve_kind.y,
            )
            charts.append(chart)
        return vl.ChartGroup(self._legend, tuple(charts))

    def sweep(self, kind: str, metrics: Sequence[str] = SWEPT) -> vl.ChartGroup:
        """Metrics over a moving threshold, one chart per split and metric."""
        threshold = SWEEPS[kind]
        columns = dict.fromkeys((threshold.column, *SWEPT), pl.Float64)
        table = self._read_by_method(kind, columns).rename({threshold.column: "x"})
        charts = []
        for split in self.run.splits:
            table_of_split = table.filter(split=split.name)
            for metric in metrics:
                points = table_of_split.select("series", "x", y=metric).drop_nulls()
                if points.is_empty():
                    continue
                title = METRICS[metric].title
                chart = vl.lines(
                    f"{split.title}: {title}",
                    f"{title} of {self.run.full_title} on {split.title} by {threshold.x.title}.",
                    points,
                    self._legend,
                    threshold.x,
                    vl.Axis(title, domain=None),
                )
                charts.append(chart)
        return vl.ChartGroup(self._legend, tuple(charts))

    def no_detection(self) -> vl.ChartGroup:
        """Share of images without a detection by operating threshold, one line per split."""
        title_by_split = {split.name: split.title for split in self.run.splits}
        columns = {"t": pl.Float64, "no_detection": pl.Float64}
        table = self._read_series("confidence", "split", title_by_split, columns)
        # The file repeats them for each method.
        rows = table.drop_nulls().unique(["series", "t"], keep="last", maintain_order=True)
        return vl.line_group(
            "Images without detections",
            f"Images of each split without a detection of {self.run.full_title}, by operating "
            "threshold.",
            rows.select("series", x="t", y="no_detection"),
            vl.Axis("operating threshold t*", domain=None),
            vl.Axis("images without detections"),
        )

    def wilderness(self) -> vl.ChartGroup:
        """Wilderness impact over the wilderness ratio, one line per recall.

        Source: Dhamija et al., 2020.
        """
        impact = _read_wilderness(self.files["wilderness"]).with_columns(
            series="at recall " + pl.col("recall")
        )
        return _wilderness_chart(impact, f"{self.run.full_title}: wilderness impact")

    def reliability(self) -> vl.Chart | None:
        """Precision × IoU of detections by their confidence; None where it was not measured.

        Source: Oksuz et al., 2023.
        """
        types = {"confidence": pl.Float64, "performance": pl.Float64, "detections": pl.Int64}
        rows = vl.read_csv(self.files["reliability"], types).drop_nulls("confidence")
        if rows.is_empty():
            return None
        title = self.run.full_title
        text = vl.describe_rows(
            "{confidence:.2f}: {performance:.2f}", rows.drop_nulls("performance")
        )
        return vl.chart(
            f"{title}: reliability on the ID test set",
            f"Reliability of {title}: on the dashed line, confidence equals precision × mean IoU. "
            f"{text}.",
            rows,
            vl.layer(
                {"type": "line", "color": "#767676", "strokeDash": [4, 4]},
                [{"confidence": end, "performance": end} for end in (0, 1)],
            ),
            vl.layer({"type": "line", "color": vl.COLOURS[0], "strokeWidth": 2}),
            vl.layer(
                {"type": "point", "color": vl.COLOURS[0], "filled": True, "opacity": 1},
                size=vl.quantitative(
                    "detections", scale={"type": "sqrt", "range": [25, 350]}, legend=None
                ),
                tooltip=vl.tooltip("confidence:.1%", "performance:.1%", "detections:"),
            ),
            x=vl.quantitative("confidence", title="confidence", axis=vl.PERCENT, scale=vl.UNIT),
            y=vl.quantitative(
                "performance", title="precision × mean IoU", axis=vl.PERCENT, scale=vl.UNIT
            ),
        )

    @property
    def _legend(self) -> tuple[vl.Key, ...]:
        return vl.legend_keys([self.run.label(method) for method in self.methods], vl.DASHES)

    def _read_by_method(self, kind: str, columns: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
        """The rows of the drawn methods, in their order; `series` is a method's label."""
        label_by_method = {method: self.run.label(method) for method in self.methods}
        return self._read_series(kind, "method", label_by_method, {"split": pl.String, **columns})

    def _read_series(
        self,
        kind: str,
        key: str,
        titles: Mapping[str, str],
        columns: Mapping[str, type[pl.DataType]],
    ) -> pl.DataFrame:
        """The rows of a file whose key has a title, in the order of the titles.

        Args:
            kind: The kind of plot.
            key: Its column of keys.
            titles: Key → title, which becomes the column `series`.
            columns: Further columns and their types.
        """
        table = vl.read_csv(self.files[kind], {key: pl.String, **columns})
        series = pl.DataFrame(
            {key: list(titles), "series": list(titles.values())}, schema_overrides={key: pl.String}
        )
        return series.join(table, on=key, maintain_order="left_right")


def _thinned(curve: pl.DataFrame, points: int) -> pl.DataFrame:
    x, y = thin(curve["x"].to_numpy(), curve["y"].to_numpy(), points)
    return pl.DataFrame({"x": x, "y": y}).with_columns(series=pl.lit(curve["series"][0]))


def wilderness_by_run(files: Mapping[str, Path], recall: str) -> vl.ChartGroup:
    """Wilderness impact of several runs at one recall, one line per run."""
    impacts = []
    for run, file in files.items():
        impact = _read_wilderness(file).filter(recall=recall)
        impacts.append(impact.with_columns(series=pl.lit(run)))
    return _wilderness_chart(pl.concat(impacts), f"Wilderness impact at recall {recall}")


def _read_wilderness(file: Path) -> pl.DataFrame:
    columns = {"recall": pl.String, "ratio": pl.Float64, "impact": pl.Float64}
    return vl.read_csv(file, columns).drop_nulls("impact")


def _wilderness_chart(impact: pl.DataFrame, title: str) -> vl.ChartGroup:
    return vl.line_group(
        title,
        f"{title}, by the ratio of images without known objects to images with them; lower is "
        "better.",
        impact.select("series", x="ratio", y="impact"),
        vl.Axis(RATIO, "~g", None),
        vl.Axis("wilderness impact", "~g", None),
    )
