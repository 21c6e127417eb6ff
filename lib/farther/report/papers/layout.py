"""The layout of papers' tables: one YAML file per paper, checked when it is read.

A table selects rows of a long table (`farther.report.papers.frames`) and says which of their labels
are its rows and its columns. Labels are columns of that table, keys of its column `part`, and those
that a selection makes. In a text, `{label}` is the title of a row's label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from farther.errors import DataError, ParameterError, choose, shorten
from farther.evaluation.long_table import NOT_IN_CATALOGUE
from farther.metrics.catalogue import METRICS
from farther.report.papers.frames import DATA_METRICS, LABELS, label_title
from farther.tables.documents import parse_yaml

#: Names of the papers, in the order of their pages.
PAPERS = ("fmiyc", "saod", "elephant", "realistic", "openood")

#: Roles of splits; `all` is a value over several splits.
Role = Literal["all", "id", "validation", "ood", "shifted"]

#: Values of one key of the column `part`, in the order of the table; [] for any value.
PartValues = list[str]

_LABEL = re.compile(r"\{([^{}]+)\}")


def labels_in(text: str) -> list[str]:
    """The labels in a text.

    >>> labels_in("{split} {metric}")
    ['split', 'metric']
    """
    return _LABEL.findall(text)


class Layout(BaseModel):
    """Base of layouts: a key that is not declared is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Selection(Layout):
    """Some rows of a long table.

    Args:
        metrics: Their metrics, in the order of the table.
        networks: Runs of which networks they are of.
        group: Their group; "" for any.
        splits: Roles of their splits.
        part: Exactly the keys of their column `part`, in its order → the values.
        benchmarks: Kinds of their benchmarks; [] for any.
        protocols: Protocols of the rules of their benchmarks; [] for any.
        other_protocols: Protocols of the rules of benchmarks that are left out.
        labels: Further labels: name → text.
        show: A label that is printed in the place of the values; "" for none.
        intervals: Whether 95% intervals are printed.
    """

    metrics: list[str] = Field(min_length=1)
    networks: Literal["all", "detectors", "classifiers"] = "all"
    group: str = ""
    splits: list[Role] = ["all"]
    part: dict[str, PartValues] = Field(default_factory=dict)
    benchmarks: list[Literal["ad", "osr", "ood"]] = Field(default_factory=list)
    protocols: list[str] = Field(default_factory=list)
    other_protocols: list[str] = Field(default_factory=list)
    labels: dict[str, str] = Field(default_factory=dict)
    show: str = ""
    intervals: bool = False


class Counted(Layout):
    """A number in the caption of a table, of each of its splits.

    Args:
        group, metric: The rows that have it.
        word: What is counted: "images".
        splits: Roles of the splits; [] for those of the table.
    """

    group: str
    metric: str
    word: str
    splits: list[Role] = []


class PrintedValues(Layout):
    """Values that a paper prints: a file of `data/published`, one row per combination of `keys`.

    Args:
        file: Name of the CSV file. Its columns `detector` and `id`, if any, are the published
            detector and its ID dataset: labels `detector` and `dataset`.
        where: Column → its value in the rows that belong to the table.
        keys: Column → the label that it is.
        values: Column of values → the labels of its value.
        same: Label → a run's label → the printed one, where the two differ.
        labels: Further labels: name → text.
        unit: What the values are.
        caption: Caption of the table of all printed values; "" for no such table.
        rows, column, decimals: Those of this table, where they are not those of the runs' table.
    """

    file: str
    where: dict[str, str] = Field(default_factory=dict)
    keys: dict[str, str] = Field(default_factory=dict)
    values: dict[str, dict[str, str]]
    same: dict[str, dict[str, str]] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    unit: Literal["fraction", "count"] = "fraction"
    caption: str = ""
    rows: dict[str, str] = Field(default_factory=dict)
    column: str = ""
    decimals: dict[str, int] = Field(default_factory=dict)

    @property
    def value_labels(self) -> set[str]:
        """The labels that tell its columns of values apart."""
        return {label for labels in self.values.values() for label in labels}


class TableLayout(Layout):
    """A table or figure of a paper.

    Args:
        number: Its number in the paper: "Table 2".
        title: The title of its section on the page.
        note: Printed above the values.
        caption: One sentence; may have labels.
        source: The long table that it selects from; see `farther.report.papers.frames`.
        per: One table per run, or per dataset; "" for one of all.
        counted: Numbers of each split in the caption.
        needs: Label → value: only runs with such a row are in the table.
        select: The rows of the long table.
        methods: Methods in the order of the table; others follow.
        rows: Labels that tell its rows apart → headings.
        column: Headings of the columns of values.
        joined: A label by whose values several values are in one cell, as "22.4 / 13.7"; "" for
            one value per cell.
        averages_runs: Whether the values of several runs in one cell are averaged, over the runs of
            each benchmark, then over benchmarks. There is no mean where a run is missing that its
            network has in the same column of other rows.
        names: Label → its value → the title of the value; beside those of the paper.
        decimals: Metric → number of decimals, of metrics that are not printed in per cent.
        published: The values that the paper prints.
    """

    number: str
    title: str
    note: str = ""
    caption: str
    source: Literal["results", "images", "categories", "similarity", "objects", "attributes"] = (
        "results"
    )
    per: Literal["", "run", "dataset"] = ""
    counted: list[Counted] = Field(default_factory=list)
    needs: dict[str, str] = Field(default_factory=dict)
    select: list[Selection] = Field(min_length=1)
    methods: list[str] = Field(default_factory=list)
    rows: dict[str, str] = Field(min_length=1)
    column: str
    joined: str = ""
    averages_runs: bool = False
    names: dict[str, dict[str, str]] = Field(default_factory=dict)
    decimals: dict[str, int] = Field(default_factory=dict)
    published: list[PrintedValues] = Field(default_factory=list)

    @property
    def stem(self) -> str:
        """Its number as a part of a file name: "tables-8-to-13"."""
        return re.sub(r"[^a-z0-9]+", "-", self.number.casefold()).strip("-")

    def title_of(self, label: str, row: Mapping[str, Any]) -> str:
        """The title of a row's label."""
        value = row.get(label)
        names = self.names.get(label, {})
        if value in names:
            return names[value]
        if label == "metric" and value in METRICS:
            metric = METRICS[value]
            return f"{metric.title}\N{NO-BREAK SPACE}{metric.arrow}".rstrip()
        return label_title(label, row)

    def fill(self, text: str, row: Mapping[str, Any]) -> str:
        """A text with the titles of a row's labels.

        Args:
            text: The text, with `{label}` in it.
            row: The row.
        """

        def title(match: re.Match[str]) -> str:
            return self.title_of(match[1], row)

        return _LABEL.sub(title, text)

    @model_validator(mode="after")
    def _check(self) -> TableLayout:
        metrics = [counted.metric for counted in self.counted]
        labels = set(LABELS)
        for selection in self.select:
            metrics += selection.metrics
            labels.update(selection.part, selection.labels)
        _check_names("metric", metrics, {*METRICS, *NOT_IN_CATALOGUE, *DATA_METRICS})

        _check_labels(self.rows, labels)
        _check_labels(labels_in(self.column), labels)
        _check_labels(labels_in(self.caption), labels)
        _check_labels(self.needs, labels)
        if self.joined:
            _check_labels([self.joined], labels)
        for selection in self.select:
            if selection.show:
                _check_labels([selection.show], labels)
            for text in selection.labels.values():
                _check_labels(labels_in(text), labels)
        for printed in self.published:
            printed_labels = labels | set(printed.keys.values()) | printed.value_labels
            printed_labels.update(printed.labels)
            _check_labels(printed.rows, printed_labels)
            _check_labels(labels_in(printed.column), printed_labels)
        return self


def _check_labels(names: Iterable[str], known: set[str]) -> None:
    _check_names("label", names, known)


def _check_names(kind: str, names: Iterable[str], known: set[str]) -> None:
    """Raises an error of pydantic where a name is not known."""
    for name in names:
        try:
            choose(kind, name, known)
        except ParameterError as error:
            problem = {"problem": str(error)}
            raise PydanticCustomError("unknown_name", "{problem}", problem) from None


class PaperLayout(Layout):
    """A paper.

    Args:
        title: Its short name.
        citation: Authors, year, title and identifier.
        names: Label → its value → the title of the value, in all tables.
        tables: Its tables and figures.
        absent: Table → why the page does not have it.
    """

    title: str
    citation: str
    names: dict[str, dict[str, str]] = Field(default_factory=dict)
    tables: list[TableLayout]
    absent: dict[str, str]

    def with_names(self) -> PaperLayout:
        """The paper, whose tables have its names."""
        tables = []
        for table in self.tables:
            names = dict(self.names)
            for label, titles in table.names.items():
                names[label] = {**self.names.get(label, {}), **titles}
            tables.append(table.model_copy(update={"names": names}))
        return self.model_copy(update={"tables": tables})


def parse_paper(text: str, file: str) -> PaperLayout:
    """The paper of a YAML text.

    Args:
        text: The text.
        file: The name of its file, for messages.

    Raises:
        DataError: it is not YAML, or has a key, a metric or a label that does not exist; names the
            file and the field.
    """
    content: Any = parse_yaml(text, file)
    try:
        return PaperLayout.model_validate(content).with_names()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or None
        problem = first["msg"]
        if first["type"] != "unknown_name":
            problem = f"{problem}, found {shorten(first['input'])}"
        raise DataError(problem, file=file, field=field) from None


def read_paper(name: str) -> PaperLayout:
    """One of `PAPERS`.

    Raises:
        DataError: see `parse_paper`.
    """
    file = f"{name}.yaml"
    text = files("farther.report.papers").joinpath(file).read_text(encoding="utf-8")
    return parse_paper(text, file)
