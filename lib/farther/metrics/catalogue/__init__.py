"""Every metric once: its name, title, LaTeX symbol, direction, meaning, formula and source.

Tables, charts, intervals, `farther explain` and `farther compare` read this catalogue.

>>> METRICS["nose"].title, METRICS["nose"].higher_is_better, METRICS["nose"].arrow
('nOSE', False, '↓')
>>> METRICS["ap_u"].best([0.2, None, 0.4])
0.4
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from farther.tables.documents import parse_yaml


@dataclass(frozen=True)
class Metric:
    """One metric.

    Args:
        name: Its key in metrics files, intervals and comparisons.
        title: Its name in tables and charts.
        latex: Its symbol in LaTeX.
        higher_is_better: None where neither direction is better.
        group: The section of an evaluation that holds it: of a method on a split one of
            `farther.evaluation.groups`; "misclassification" and "costs" of a method on the ID
            split; "classifier", "detector" and "error_budget" of a run on the ID split; "split" of
            a detector on one.
        meaning: One sentence.
        formula: How it is computed; {names} are counts stored beside the value.
        source: The publication that defines it.
        ranked: Whether methods are compared with the best one by it; it needs a direction.
        averaged: Whether its means over the near, far and farther splits are given.
        is_count: Whether it is a number of objects or detections, not a fraction.
    """

    name: str
    title: str
    latex: str
    higher_is_better: bool | None
    group: str
    meaning: str
    formula: str
    source: str
    ranked: bool = False
    averaged: bool = False
    is_count: bool = False

    @property
    def key(self) -> str:
        """Its key within the section `group` of an evaluation."""
        return self.name.removeprefix(PREFIXES.get(self.group, ""))

    @property
    def arrow(self) -> str:
        """↑ where higher is better, ↓ where lower is, "" where neither is."""
        return {True: "↑", False: "↓", None: ""}[self.higher_is_better]

    @property
    def latex_header(self) -> str:
        """Symbol and arrow for the header of a LaTeX table."""
        return (
            self.latex
            + {True: r"$\uparrow$", False: r"$\downarrow$", None: ""}[self.higher_is_better]
        )

    def best(self, values: Sequence[float | None]) -> float | None:
        """The best of some values; None where there is none."""
        defined = [value for value in values if value is not None]
        return (min if self.higher_is_better is False else max)(defined) if defined else None


def _read() -> Iterator[Metric]:
    for group, metrics in _CONTENT.items():
        alike = {name: of for name, of in _GROUPS.items() if of.get("like") == group}
        for name, of_group in {group: _GROUPS.get(group, {}), **alike}.items():
            yield from (
                _metric(metric, name, of_group, fields) for metric, fields in metrics.items()
            )


def _metric(
    name: str, group: str, of_group: Mapping[str, Any], fields: Mapping[str, Any]
) -> Metric:
    """A metric of metrics.yaml, or the same one of another group, over other regions."""
    metric = Metric(name=name, group=group, **fields)
    source, formula = (
        metric.source.format_map(_SOURCES),
        metric.formula.replace("<over>", of_group.get("over", "")),
    )
    metric = replace(metric, source=source, formula=formula)
    if "like" not in of_group:
        return metric
    return replace(
        metric,
        name=f"{of_group['prefix']}{name}",
        title=f"{metric.title} {of_group['title']}",
        latex=f"{metric.latex} {of_group['title']}",
        meaning=f"{metric.meaning} {of_group['meaning']}",
        averaged=of_group.get("averaged", False),
    )


_CONTENT = parse_yaml(files(__name__).joinpath("metrics.yaml").read_text(encoding="utf-8"))
_SOURCES, _GROUPS = _CONTENT.pop("sources"), _CONTENT.pop("groups")

#: What names begin with in groups whose sections name the same metrics as other sections.
PREFIXES: dict[str, str] = {group: of["prefix"] for group, of in _GROUPS.items() if "prefix" in of}

#: Every metric by its name.
METRICS: dict[str, Metric] = {metric.name: metric for metric in _read()}

#: Metrics of a metrics file, by which methods are compared: detections wherever they lie, then
#: unknown objects.
COMPARED = ("auroc", "fpr95", "nose", "ap_u", "p_u", "r_u")
