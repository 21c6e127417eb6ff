"""Every metric once: its name, title, LaTeX symbol, direction, meaning, formula and source.

Tables, charts, intervals, `farther explain` and `farther compare` read this catalogue.

>>> METRICS["nose"].title, METRICS["nose"].higher_is_better, METRICS["nose"].arrow
('nOSE', False, '↓')
>>> METRICS["ap_u"].best([0.2, None, 0.4])
0.4
>>> metric_name("R-U"), metric_name("mAP"), metric_name("auc")
('r_u', 'map', 'auroc')
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from farther.errors import choose
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
        is_rate: Whether it is a number per image, not a fraction.
        aliases: Further names in papers and other libraries, which users may write.
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
    is_rate: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Its key within the section `group` of an evaluation."""
        return self.name.removeprefix(PREFIXES.get(self.group, ""))

    @property
    def arrow(self) -> str:
        """↑ where higher is better, ↓ where lower is, "" where neither is."""
        if self.higher_is_better is None:
            return ""
        return "↑" if self.higher_is_better else "↓"

    @property
    def latex_header(self) -> str:
        """Symbol and arrow for the header of a LaTeX table."""
        if self.higher_is_better is None:
            return self.latex
        arrow = r"$\uparrow$" if self.higher_is_better else r"$\downarrow$"
        return self.latex + arrow

    def best(self, values: Sequence[float | None]) -> float | None:
        """The best of some values; None where there is none."""
        defined = [value for value in values if value is not None]
        if not defined:
            return None
        if self.higher_is_better is False:
            return min(defined)
        return max(defined)


def _read(content: Mapping[str, Any]) -> dict[str, Metric]:
    """Every metric of metrics.yaml by its name.

    A group's metrics are followed by the same metrics of the groups that are like it, over other
    regions.

    Args:
        content: Content of the file.
    """
    groups = content["groups"]
    metrics = {}
    for group, metrics_of_group in content.items():
        if group in ("sources", "groups"):
            continue
        alike = {
            name: settings for name, settings in groups.items() if settings.get("like") == group
        }
        settings_by_group = {group: groups.get(group, {}), **alike}
        for name_of_group, settings in settings_by_group.items():
            for name, fields in metrics_of_group.items():
                metric = _metric(name, name_of_group, settings, fields, content["sources"])
                metrics[metric.name] = metric
    return metrics


def _metric(
    name: str,
    group: str,
    settings: Mapping[str, Any],
    fields: Mapping[str, Any],
    sources: Mapping[str, str],
) -> Metric:
    """One metric of metrics.yaml.

    Args:
        name: Its key.
        group: Its group, or one that is like that.
        settings: Those of the group.
        fields: Of the metric.
        sources: Publications by their short names.
    """
    metric = Metric(name=name, group=group, **fields)
    metric = replace(
        metric,
        source=metric.source.format_map(sources),
        formula=metric.formula.replace("<over>", settings.get("over", "")),
        aliases=tuple(metric.aliases),
    )
    if "like" not in settings:
        return metric
    return replace(
        metric,
        name=f"{settings['prefix']}{name}",
        title=f"{metric.title} {settings['title']}",
        latex=f"{metric.latex} {settings['title']}",
        meaning=f"{metric.meaning} {settings['meaning']}",
        averaged=settings.get("averaged", False),
        aliases=tuple(f"{alias} {settings['title']}" for alias in metric.aliases),
    )


def _prefixes(groups: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Group → what the names of its metrics begin with, for groups that have such a prefix."""
    return {group: settings["prefix"] for group, settings in groups.items() if "prefix" in settings}


_CONTENT = parse_yaml(files(__name__).joinpath("metrics.yaml").read_text(encoding="utf-8"))

#: Prefixes of the names in groups whose sections name the same metrics as other sections.
PREFIXES: dict[str, str] = _prefixes(_CONTENT["groups"])

#: Every metric by its name.
METRICS: dict[str, Metric] = _read(_CONTENT)

#: Metrics of a metrics file, by which methods are compared: detections wherever they lie, then
#: unknown objects.
COMPARED = ("auroc", "fpr95", "nose", "ap_u", "p_u", "r_u")


def metric_name(name: str, known: Iterable[str] = METRICS) -> str:
    """The name of a metric, by its name, its title or an alias, in any case.

    Args:
        name: What a user wrote.
        known: The names that it may mean, of which `METRICS` may lack some.

    Raises:
        ParameterError: it is none of these; the message suggests the nearest.
        AmbiguousNameError: several may be meant; the message lists them.
    """
    aliases = {metric.name: (metric.title, *metric.aliases) for metric in METRICS.values()}
    return choose("metric", name, known, aliases, "farther list metrics")
