"""One table for a terminal: means over runs and over splits of a distance.

Methods that apply to every run are compared by their means. The others follow in a block of their
own, with their gain over the detector's confidence on the runs that they apply to.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farther.metrics.catalogue import METRICS, Metric
from farther.report.common_runs import MethodsByRuns, PairedMeans, count_runs, points
from farther.report.listing import ABSENT, percent
from farther.report.results import DISTANCES, Run, read_evaluated_runs, title_of

#: The metrics: how well detections are separated, and how many unknown objects are found.
SHOWN = tuple(METRICS[name] for name in ("auroc", "r_u"))

#: Width of a column, and of the text.
COLUMN_WIDTH = 9
WIDTH = 80

#: Width of the methods' names.
LABEL_WIDTH = 20

#: Printed where nothing is evaluated.
NOTHING = "no detector is evaluated yet; run `farther repro`"


def overview(
    params: Mapping[str, Any], root: str | Path = ".", runs: Sequence[Run] | None = None
) -> str:
    """Text of at most 80 columns.

    Classifiers of whole images are left out where there are detectors of boxes.

    Args:
        params: params.yaml, parsed.
        root: The project's folder.
        runs: Its evaluated runs; read from the folder when None.

    Raises:
        ParameterError: a section of params.yaml is absent.
        DataError: a file is damaged.
    """
    overview = _read(params, root, runs)
    if overview is None:
        return NOTHING
    return overview.text()


def overview_data(
    params: Mapping[str, Any], root: str | Path = ".", runs: Sequence[Run] | None = None
) -> dict[str, Any] | None:
    """The same table for programs, see `Overview.data`; None where nothing is evaluated.

    Args:
        params: params.yaml, parsed.
        root: The project's folder.
        runs: Its evaluated runs; read from the folder when None.

    Raises:
        ParameterError: a section of params.yaml is absent.
        DataError: a file is damaged.
    """
    overview = _read(params, root, runs)
    if overview is None:
        return None
    return overview.data()


def _read(
    params: Mapping[str, Any], root: str | Path, runs: Sequence[Run] | None
) -> Overview | None:
    """The table of a project; None where nothing is evaluated."""
    if runs is None:
        runs = read_evaluated_runs(params, Path(root) / "artifacts")
    if not runs:
        return None
    return Overview.of(runs, list(params["methods"]))


@dataclass(frozen=True)
class Column:
    """Means of a metric over the splits of a distance.

    Args:
        distance: The distance.
        paired: The means; a place is a run.
    """

    distance: str
    paired: PairedMeans

    @property
    def metric(self) -> Metric:
        """The metric."""
        return self.paired.metric

    @property
    def name(self) -> str:
        """Its key in data, such as "near/auroc"."""
        return f"{self.distance}/{self.metric.name}"

    @property
    def has_values(self) -> bool:
        """True if any method has a mean or a gain."""
        return bool(self.paired.means or self.paired.gains)

    def mean(self, method: str) -> str:
        """The mean of a method of every run, with a star if it is the best."""
        mark = "*" if method in self.paired.best else " "
        return f"{percent(self.paired.means.get(method))}{mark}"

    def gain(self, method: str) -> str:
        """The gain of a method of fewer runs, which never has a star."""
        gain = self.paired.gains.get(method)
        if gain is None:
            return f"{ABSENT} "
        return f"{points(gain.gain)} "


@dataclass(frozen=True)
class Overview:
    """The table.

    Args:
        methods: The methods of the runs.
        columns: The columns, the nearest distance first.
        noun: What the runs are: "runs", or "runs of detectors" where classifiers are left out.
    """

    methods: MethodsByRuns
    columns: Sequence[Column]
    noun: str = "runs"

    @classmethod
    def of(cls, runs: Sequence[Run], names: Sequence[str]) -> Overview:
        """The table of detectors of boxes, or of classifiers where there are none.

        Args:
            runs: Evaluated runs.
            names: All methods, in the order of params.yaml.
        """
        detectors = [run for run in runs if not run.whole_images]
        methods = MethodsByRuns.of(detectors or runs, names)
        noun = "runs"
        if 0 < len(detectors) < len(runs):
            noun = "runs of detectors"
        return cls(methods, _columns(methods), noun)

    @property
    def partial_methods(self) -> list[str]:
        """Methods that apply to fewer runs, without the baseline itself."""
        baseline = self.methods.baseline
        return [name for name in self.methods.runs_by_partial_method if name != baseline]

    def text(self) -> str:
        """Text of at most 80 columns."""
        lines = [self._distance_line(), self._metric_line()]
        for method in self.methods.common:
            cells = [column.mean(method) for column in self.columns]
            lines.append(_line(title_of(method), cells))
        lines += textwrap.wrap(self._means_note(), WIDTH)
        if self.partial_methods:
            lines.append("")
            lines += self._partial_lines()
        lines.append("All splits: farther summary --all")
        return "\n".join(lines)

    def _distance_line(self) -> str:
        """The distances, each centred above its columns, with its number of runs."""
        line = " " * LABEL_WIDTH
        for distance in dict.fromkeys(column.distance for column in self.columns):
            of_distance = [column for column in self.columns if column.distance == distance]
            title = distance
            counts = {len(column.paired.places) for column in of_distance if column.paired.means}
            if len(self.methods.runs) > 1 and len(counts) == 1:
                title = f"{distance}, {count_runs(*counts)}"
            line += title.center(COLUMN_WIDTH * len(of_distance))
        return line.rstrip()

    def _metric_line(self) -> str:
        """Titles of the metrics, with their arrows."""
        heads = [f"{column.metric.title} {column.metric.arrow}" for column in self.columns]
        return _line("method", heads)

    def _means_note(self) -> str:
        """A sentence on the means."""
        count = len(self.methods.runs)
        if not self.methods.common:
            return f"No method applies to all {count} {self.noun}: no means are compared."
        if count == 1:
            return "Means in per cent, over splits; * best."
        if not self.methods.runs_by_partial_method:
            return f"Means in per cent, over {count} {self.noun} and their splits; * best."
        return (
            f"Means in per cent, over {count} {self.noun} and their splits; * best of the "
            f"{_count_methods(len(self.methods.common))} to every run."
        )

    def _partial_lines(self) -> Iterator[str]:
        """The block of methods that apply to fewer runs."""
        total = len(self.methods.runs)
        title = f"Applying to fewer runs (k/{total})"
        if self.methods.baseline is None:
            title += ": their gain needs a line `confidence: {}` in section `methods`"
        else:
            title += f": gain over {self.methods.baseline_title} on the same runs, in points"
        yield from textwrap.wrap(title, WIDTH)
        for method in self.partial_methods:
            cells = [column.gain(method) for column in self.columns]
            count = len(self.methods.runs_by_partial_method[method])
            yield _line(title_of(method), cells, f" {count}/{total}")

    def data(self) -> dict[str, Any]:
        """The table for programs; values are fractions.

        Returns:
            `runs`, names; `columns`: distance, metric, whether higher is better, and the runs that
            the common means are over; `common`: methods that apply to every run with their means by
            "distance/metric", and the columns where they are best; `baseline`; `partial`: methods
            that apply to fewer runs, with these runs, their means, the baseline's on the same runs
            and the gain, by "distance/metric".
        """
        columns = []
        for column in self.columns:
            columns.append(
                {
                    "name": column.name,
                    "distance": column.distance,
                    "metric": column.metric.name,
                    "higher_is_better": column.metric.higher_is_better,
                    "runs": list(column.paired.places),
                }
            )
        common = [self._common_data(method) for method in self.methods.common]
        partial = [self._partial_data(method) for method in self.methods.runs_by_partial_method]
        return {
            "runs": [run.name for run in self.methods.runs],
            "columns": columns,
            "common": common,
            "baseline": self.methods.baseline,
            "partial": partial,
        }

    def _common_data(self, method: str) -> dict[str, Any]:
        """A method that applies to every run."""
        means = {column.name: column.paired.means.get(method) for column in self.columns}
        best = [column.name for column in self.columns if method in column.paired.best]
        return {"method": method, "title": title_of(method), "means": means, "best": best}

    def _partial_data(self, method: str) -> dict[str, Any]:
        """A method that applies to fewer runs."""
        means: dict[str, float | None] = {}
        baseline_means: dict[str, float | None] = {}
        gains: dict[str, float | None] = {}
        for column in self.columns:
            gain = column.paired.gains.get(method)
            if gain is not None:
                means[column.name] = gain.mean
                baseline_means[column.name] = gain.baseline_mean
                gains[column.name] = gain.gain
        return {
            "method": method,
            "title": title_of(method),
            "runs": [run.name for run in self.methods.runs_by_partial_method[method]],
            "means": means,
            "baseline_means": baseline_means,
            "gain": gains,
        }


def _columns(methods: MethodsByRuns) -> list[Column]:
    """The columns; metrics without any value and distances without means are left out."""
    columns = []
    for distance in DISTANCES:
        if not _has_distance(methods, distance):
            continue
        for metric in SHOWN:
            values = {}
            for run in methods.runs:
                values[run.name] = _values(run, distance, metric)
            columns.append(Column(distance, methods.compare(metric, values)))
    defined = {column.metric.name for column in columns if column.has_values}
    return [column for column in columns if column.metric.name in defined]


def _has_distance(methods: MethodsByRuns, distance: str) -> bool:
    """True if any method of any run has means at a distance."""
    for run in methods.runs:
        if any(run.has_means(distance, method) for method in run.methods):
            return True
    return False


def _values(run: Run, distance: str, metric: Metric) -> dict[str, float]:
    """Method → its mean over the splits of a distance in a run, where it is defined."""
    values = {}
    for method in run.methods:
        mean = run.mean(distance, method, metric)
        if mean is not None and mean.value is not None:
            values[method] = float(mean.value)
    return values


def _line(label: str, cells: Sequence[str], end: str = "") -> str:
    """A row: the label, the cells flush right, and the end."""
    columns = "".join(cell.rjust(COLUMN_WIDTH) for cell in cells)
    return f"{label[: LABEL_WIDTH - 1]:<{LABEL_WIDTH}}{columns}{end}".rstrip()


def _count_methods(count: int) -> str:
    """A number of methods with the verb that follows."""
    if count == 1:
        return "1 method that applies"
    return f"{count} methods that apply"
