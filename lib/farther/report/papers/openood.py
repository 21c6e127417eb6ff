"""Table 1 of OpenOOD (Yang et al., 2022), and leaderboards of its v1.5 (Zhang et al., 2023)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from farther import methods
from farther.curation import benchmark_kind
from farther.report.listing import ABSENT, Listing, percent
from farther.report.papers.table import Paper, PaperTable, Sources, joined_percents
from farther.report.results import DISTANCES, IMAGES, Run, title_of

#: Kinds of benchmarks, in the order of the table's columns.
AD, OSR, OOD = "ad", "osr", "ood"
KINDS = (AD, OSR, OOD)

#: Headings of the kinds, and of the means over their columns.
KIND_TITLES = {AD: "AD", OSR: "OSR", OOD: "OOD detection"}
MEANS = {OSR: "OSR avg.", OOD: "Avg."}

#: ID dataset in `openood_v1.csv` → kind and heading in the paper.
PRINTED_COLUMNS = {
    "mvtec-ad": (AD, "MVTec"),
    "mnist-6-4": (OSR, "M-6"),
    "cifar-6-4": (OSR, "C-6"),
    "cifar-50-50": (OSR, "C-50"),
    "tin-20-180": (OSR, "T-20"),
    "mnist-v1": (OOD, "MNIST"),
    "cifar10-v1": (OOD, "CIFAR-10"),
    "cifar100-v1": (OOD, "CIFAR-100"),
    "imagenet-v1": (OOD, "ImageNet"),
}

#: Why `openood_v1.csv` has no value → what the paper prints.
PRINTED_MISSING = {"not applicable": "N/A", "not run": "not run"}

#: Trainings of the paper whose score another method gives here → that method.
SCORE_OF_TRAINING = {
    **dict.fromkeys(("mixup", "cutmix", "pixmix", "logitnorm", "oe", "mcd", "udg"), "msp"),
    "vos": "energy",
}


@dataclass(frozen=True)
class NearFar:
    """A method's values on a benchmark's near and far splits; None where there is none."""

    near: float | None
    far: float | None

    @property
    def values(self) -> tuple[float | None, float | None]:
        """Both values."""
        return self.near, self.far


@dataclass
class Column:
    """A column of the table: a benchmark, or several in one, with the networks tested on it.

    Args:
        title: Its heading.
        kind: One of `KINDS`.
        networks: Title of each network → its runs: several where these are seeds, divisions of
            classes, or categories.
        printed_id: Title of each network → ID dataset of its published counterpart in
            `openood_v1.csv`.
    """

    title: str
    kind: str
    networks: dict[str, list[Run]] = field(default_factory=dict)
    printed_id: dict[str, str] = field(default_factory=dict)


class PrintedTable:
    """Table 1 as printed.

    Args:
        sources: The data that the tables are computed from.

    Attributes:
        entries: Section `methods` of params.yaml.
        values: ID dataset, distance and method → AUROC, None where there is none.
        missing: The same → why there is none, "" where there is one.
        methods: One row per method, in the paper's order.
    """

    def __init__(self, sources: Sources) -> None:
        self.values: dict[tuple[str, str, str], float | None] = {}
        self.missing: dict[tuple[str, str, str], str] = {}
        cells = sources.printed(
            "openood_v1.csv", ("detector", "id", "ood", "method", "missing"), ("auroc",)
        )
        for row in cells.iter_rows(named=True):
            key = (row["id"], row["ood"], row["method"])
            self.values[key] = row["auroc"]
            self.missing[key] = row["missing"]
        texts = ("method", "title", "section", "training")
        numbers = ("osr_mean", "near_mean", "far_mean", "accuracy", "seconds")
        self.methods = sources.printed("openood_v1_methods.csv", texts, numbers).to_dicts()
        self.entries: Mapping[str, Mapping[str, Any] | None] = sources.params.get("methods", {})

    def title(self, method: str) -> str:
        """The paper's title of a method; the method's name where the paper does not have it."""
        for row in self.methods:
            if row["method"] == method:
                return str(row["title"])
        return method

    def row_of(self, network: str, method: str) -> str | None:
        """The paper's row of a method of params.yaml on a network; None where it has none.

        A network that is called as a training of the paper, such as "mixup", has the row of that
        training, for the score that the paper takes of it.
        """
        training = network.casefold().replace("-", "").replace("_", "")
        if training in SCORE_OF_TRAINING:
            if method in (training, SCORE_OF_TRAINING[training]):
                return training
            return None
        names = [row["method"] for row in self.methods]
        if method in names:
            return method
        entry = self.entries.get(method) or {}
        is_plain = not {"pass", "search", "oracle"} & set(entry)
        if is_plain and entry.get("method") in names:
            return str(entry["method"])
        return None

    def cell(self, id_dataset: str, method: str) -> str:
        """The printed cell of a method on a benchmark, "" where the paper has none."""
        keys = []
        for distance in ("near", "far"):
            key = (id_dataset, distance, method)
            if key in self.values:
                keys.append(key)
        if not keys:
            return ""
        values = [self.values[key] for key in keys]
        if all(value is None for value in values):
            return PRINTED_MISSING.get(self.missing[keys[0]], ABSENT)
        return joined_percents(values)

    def listing(self) -> Listing:
        """All rows and columns of the table."""
        rows = []
        for method in self.methods:
            name = method["method"]
            row = {
                "Section": method["section"],
                "Method": method["title"],
                "Training": method["training"],
            }
            for id_dataset, (kind, heading) in PRINTED_COLUMNS.items():
                if id_dataset == "mnist-v1":
                    row[MEANS[OSR]] = percent(method["osr_mean"])
                row[f"{KIND_TITLES[kind]}: {heading}"] = self.cell(id_dataset, name)
            row[MEANS[OOD]] = joined_percents([method["near_mean"], method["far_mean"]])
            row["Acc. on CIFAR-100"] = percent(method["accuracy"])
            row["Time (s)"] = ABSENT if method["seconds"] is None else f"{method['seconds']:,.0f}"
            rows.append(row)
        numbers = list(rows[0])[3:] if rows else []
        return Listing.from_rows(
            "Table 1 as printed: AUROC in per cent, near / far for OOD detection.", rows, numbers
        )


def tables(sources: Sources) -> list[PaperTable]:
    """Table 1 of version 1, and the full-spectrum table of version 1.5."""
    columns = _columns(sources)
    printed = PrintedTable(sources)
    first = _table(columns, "auroc", printed)
    listings = [first]
    if len(first) > 0:
        listings.append(printed.listing())
    return [
        PaperTable(
            "Table 1",
            "Anomaly detection, open-set recognition and OOD detection",
            listings,
            "AUROC. OOD detection: mean over the near / over the far (or farther) splits. Open-set "
            "recognition: mean over the divisions of classes that report.seeds joins. Anomaly "
            "detection: mean over the categories. Classifiers first. A network that was trained "
            "for a method has rows of its own.",
        ),
        PaperTable(
            "Version 1.5, full spectrum",
            "The same where shifted ID images count as in-distribution",
            [_table(columns, "full_spectrum_auroc", printed)],
        ),
        PaperTable(
            "Version 1.5, FPR@95",
            "The same with the share of ID rejected when 95% of OOD are",
            [_table(columns, "fpr95_ood_positive", printed)],
        ),
    ]


def _columns(sources: Sources) -> list[Column]:
    """The columns, in the order of `KINDS`.

    Within a kind, those with a classifier come first, then in the order of params.yaml.
    """
    group_of_run = {}
    for seed_group, names in sources.seeds.items():
        for name in names:
            group_of_run[name] = seed_group
    classifiers = [run for run in sources.runs if run.whole_images]
    detectors = [run for run in sources.runs if not run.whole_images]

    columns: dict[tuple[str, str], Column] = {}
    for run in (*classifiers, *detectors):
        kind = benchmark_kind(sources.params["benchmarks"][run.benchmark])
        group = group_of_run.get(run.name)
        title = _column_title(run, kind, group)
        network = _network_title(run, kind, group)
        column = columns.setdefault((kind, title), Column(title, kind))
        column.networks.setdefault(network, []).append(run)
        counterpart = sources.published.get(run.name)
        if group is not None and group in sources.published:
            counterpart = sources.published[group]
        if counterpart is not None and counterpart.id in PRINTED_COLUMNS:
            column.printed_id[network] = counterpart.id
    return sorted(columns.values(), key=_position_of_kind)


def _position_of_kind(column: Column) -> int:
    return KINDS.index(column.kind)


def _column_title(run: Run, kind: str, group: str | None) -> str:
    """Title of a run's column: categories share one, and so do the divisions of a group."""
    if kind == AD:
        return "all categories"
    if kind == OSR and group is not None:
        return group
    return run.benchmark_title


def _network_title(run: Run, kind: str, group: str | None) -> str:
    """Title of a run's network, "" where titles do not tell networks apart."""
    if kind == OSR and group is not None:
        return ""
    if kind == OOD and group is not None:
        return group.removeprefix(f"{run.benchmark}-")
    if run.title == run.name:  # named as its benchmark is: the title says nothing of the network
        return ""
    return run.title


def divided_benchmarks(benchmarks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Names of the benchmarks for open-set recognition: divisions of a dataset's classes.

    Args:
        benchmarks: Section `benchmarks` of params.yaml.
    """
    return [name for name, params in benchmarks.items() if benchmark_kind(params) == OSR]


def _table(columns: Sequence[Column], metric: str, printed: PrintedTable) -> Listing:
    """One row per network and method with a value, then accuracy and images of each network."""
    rows: list[dict[str, str]] = []
    for network, names in _methods_by_network(columns).items():
        method_rows = _method_rows(columns, network, names, metric, printed)
        if method_rows:
            rows += method_rows
            rows += _network_rows(columns, network, with_quality=metric == "auroc")
    if not any(row["Network"] for row in rows):
        for row in rows:
            del row["Network"]
    headings = _headings(columns, metric)
    ordered_rows = []
    for row in rows:
        ordered_rows.append({heading: row[heading] for heading in headings if heading in row})
    caption = (
        "In per cent. Avg.: mean over all columns of the network, of methods that apply to all."
    )
    return Listing.from_rows(caption, ordered_rows, headings[2:])


def _methods_by_network(columns: Sequence[Column]) -> dict[str, list[str]]:
    """Title of each network → the methods that any of its runs has."""
    methods_by_network: dict[str, list[str]] = {}
    for column in columns:
        for network, runs in column.networks.items():
            names = methods_by_network.setdefault(network, [])
            for run in runs:
                for method in run.methods:
                    if method not in names:
                        names.append(method)
    return methods_by_network


def _headings(columns: Sequence[Column], metric: str) -> list[str]:
    """All headings, in their order."""
    headings = ["Network", "Method"]
    for kind in KINDS:
        columns_of_kind = [column for column in columns if column.kind == kind]
        for column in columns_of_kind:
            headings.append(_heading(column))
            if metric == "auroc":
                for id_dataset in dict.fromkeys(column.printed_id.values()):
                    headings.append(_printed_heading(id_dataset))
        if columns_of_kind and kind in MEANS:
            headings.append(MEANS[kind])
    return headings


def _heading(column: Column) -> str:
    if column.kind == OOD:
        return column.title
    return f"{KIND_TITLES[column.kind]}: {column.title}"


def _printed_heading(id_dataset: str) -> str:
    return f"{PRINTED_COLUMNS[id_dataset][1]}, as printed"


def _method_rows(
    columns: Sequence[Column],
    network: str,
    names: Sequence[str],
    metric: str,
    printed: PrintedTable,
) -> list[dict[str, str]]:
    """The rows of a network's methods that have any value of the metric."""
    rows = []
    for method in names:
        values_by_column = [
            _mean_near_far(column.networks.get(network, ()), method, metric) for column in columns
        ]
        if not any(_has_value(values) for values in values_by_column):
            continue
        title = title_of(method) if method in methods.names() else printed.title(method)
        row = {"Network": network, "Method": title}
        for column, values in zip(columns, values_by_column, strict=True):
            row[_heading(column)] = _cell(values, column.kind)
            if metric == "auroc" and network in column.printed_id:
                printed_row = printed.row_of(network, method)
                if printed_row is not None:
                    id_dataset = column.printed_id[network]
                    row[_printed_heading(id_dataset)] = printed.cell(id_dataset, printed_row)
        of_network = [column for column in columns if network in column.networks]
        values_of_network = [
            values
            for column, values in zip(columns, values_by_column, strict=True)
            if network in column.networks
        ]
        for kind, heading in MEANS.items():
            row[heading] = _cell(_mean_of_kind(of_network, values_of_network, kind), kind)
        rows.append(row)
    return rows


def _has_value(values: NearFar) -> bool:
    return values.near is not None or values.far is not None


def _mean_of_kind(
    columns: Sequence[Column], values_by_column: Sequence[NearFar], kind: str
) -> NearFar:
    """Mean over all columns of a kind; without one where the method lacks a column.

    A benchmark without near or without far splits has no such value under any method, and is no
    part of that mean.
    """
    near = []
    far = []
    for column, values in zip(columns, values_by_column, strict=True):
        if column.kind != kind:
            continue
        if not _has_value(values):
            return NearFar(None, None)
        near.append(values.near)
        far.append(values.far)
    return NearFar(_mean(near), _mean(far))


def _network_rows(
    columns: Sequence[Column], network: str, *, with_quality: bool
) -> list[dict[str, str]]:
    """The rows with the images that a network saw, and with its accuracy or mAP."""
    images = {"Network": network, "Method": IMAGES}
    quality = {"Network": network, "Method": "Accuracy or mAP50"}
    for column in columns:
        runs = column.networks.get(network, ())
        counts = sorted({run.image_counts(with_known=True) for run in runs})
        if len(counts) == 1:
            images[_heading(column)] = counts[0]
        elif counts:
            images[_heading(column)] = f"{len(runs)} benchmarks, see page Data"
        quality[_heading(column)] = percent(_complete_mean([_quality(run) for run in runs]))
    if with_quality:
        return [images, quality]
    return [images]


def _quality(run: Run) -> float | None:
    """Accuracy of a classifier, mAP50 of an object detector."""
    if run.whole_images:
        return run.detector.get("accuracy")
    return run.detector.get("map50")


def _mean_near_far(runs: Sequence[Run], method: str, metric: str) -> NearFar:
    """Means over runs of a method's near and far value; None where a run has none."""
    values_by_run = [_near_far(run, method, metric) for run in runs]
    near = _complete_mean([values.near for values in values_by_run])
    far = _complete_mean([values.far for values in values_by_run])
    return NearFar(near, far)


def _near_far(run: Run, method: str, metric: str) -> NearFar:
    """The means over near splits, and over the far splits.

    Where there is no far split, over the farther ones.
    """
    mean_by_distance = run.means(method)
    near_distance, *far_distances = DISTANCES
    near = None
    if near_distance in mean_by_distance:
        near = mean_by_distance[near_distance].values.get(metric)
    for distance in far_distances:
        if distance in mean_by_distance:
            return NearFar(near, mean_by_distance[distance].values.get(metric))
    return NearFar(near, None)


def _cell(values: NearFar, kind: str) -> str:
    """Near / far for OOD detection; otherwise one value, the mean of those that there are."""
    if kind == OOD:
        return joined_percents(values.values)
    return percent(_mean(values.values))


def _complete_mean(values: Sequence[float | None]) -> float | None:
    """The mean, None where a value is None or there are none."""
    if any(value is None for value in values):
        return None
    return _mean(values)


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean of the values that are not None, None where there are none."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return None
    return sum(numbers) / len(numbers)


PAPER = Paper(
    "openood",
    "OpenOOD",
    "Yang et al., 2022: OpenOOD: Benchmarking Generalized Out-of-Distribution Detection. "
    "arXiv:2210.07242",
    tables,
    {
        "columns without a run": "the profiles openood-v1-… have the nine benchmarks, one project "
        "each or several in one",
        "rows of methods that train a network": "a trained network is a run here, with rows of its "
        "own; scores made elsewhere are a method `imported`",
        "times": "times are of one machine; the page Deploy has those of this one",
        "Acc. of each method": "post-hoc methods do not change the network: a row per network has "
        "its accuracy",
        "FPR@95 and AUPR-In of version 1": "metrics fpr95 and aupr_in of the page of each run",
    },
)
