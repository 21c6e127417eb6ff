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
from typing import Any, Literal

from farther.tables.documents import parse_yaml

Group = Literal[
    "ood",
    "ood_per_image",
    "full_spectrum",
    "gtu",
    "uu",
    "correct_id",
    "open_set",
    "known",
    "open_world",
    "pairs",
    "recognition",
    "misclassification",
    "costs",
    "classifier",
    "detector",
    "error_budget",
    "split",
]

#: What names begin with in groups whose sections name the same metrics as other sections.
PREFIXES: dict[str, str] = {
    "ood_per_image": "per_image_",
    "full_spectrum": "full_spectrum_",
    "gtu": "gtu_",
    "uu": "uu_",
    "correct_id": "correct_id_",
    "known": "known_",
    "open_world": "open_world_",
    "pairs": "pairs_",
    "misclassification": "misclassification_",
    "error_budget": "gain_",
}

_OVER = "over the {id_regions} regions of the ID test split (positives) and the {ood_regions} of this split"
#: Further sides that are separated: words of the title, meaning, and what the formula is taken over.
_SIDES: dict[Group, tuple[str, str, str]] = {
    "ood_per_image": (
        "per image",
        "Of images, each with the score of its least in-distribution detection.",
        "over the {id_images} images of the ID test split (positives) and the {ood_images} of this split",
    ),
    "full_spectrum": (
        "full-spectrum",
        "Shifted ID images count as in-distribution (Yang et al., 2023, arXiv:2306.09301).",
        "over the {id_regions} regions of the ID test split and of shifted ID images (positives) and the {ood_regions} "
        "of this split",
    ),
    "gtu": (
        "GTU",
        "Of the detections in OOD images only those that lie on a labelled unknown object.",
        f"{_OVER} that lie on a labelled unknown object",
    ),
    "uu": (
        "UU",
        "Of the detections in OOD images only those that lie on no object: on unlabelled ones, or on background.",
        f"{_OVER} that lie on no object",
    ),
    "correct_id": (
        "of correct ID",
        "Of the detections in ID images only those of the right class.",
        "over the {id_regions} regions of the ID test split whose class is right (positives) and the {ood_regions} of "
        "this split",
    ),
}


@dataclass(frozen=True)
class Metric:
    """One metric.

    Args:
        name: Its key in metrics files, intervals and comparisons.
        title: Its name in tables and charts.
        latex: Its symbol in LaTeX.
        higher_is_better: None where neither direction is better.
        group: The section of an evaluation that holds it: "ood", those of `_SIDES`, "open_set", "known", "open_world",
            "pairs" and "recognition" of a method on a split; "misclassification" and "costs" of a method on the ID
            split; "classifier", "detector" and "error_budget" of a run on the ID split; "split" of a detector on one.
        meaning: One sentence.
        formula: How it is computed; {names} are counts stored beside the value.
        source: The publication that defines it.
    """

    name: str
    title: str
    latex: str
    higher_is_better: bool | None
    group: Group
    meaning: str
    formula: str
    source: str

    @property
    def key(self) -> str:
        """Its key within the section `group` of an evaluation."""
        prefix = PREFIXES.get(self.group, "")
        return self.name.removeprefix(prefix)

    @property
    def arrow(self) -> str:
        """↑ where higher is better, ↓ where lower is, "" where neither is."""
        return {True: "↑", False: "↓", None: ""}[self.higher_is_better]

    @property
    def latex_header(self) -> str:
        """Symbol and arrow for the header of a LaTeX table."""
        return self.latex + {True: r"$\uparrow$", False: r"$\downarrow$", None: ""}[self.higher_is_better]

    def best(self, values: Sequence[float | None]) -> float | None:
        """The best of some values; None where there is none."""
        defined = [value for value in values if value is not None]
        return (min if self.higher_is_better is False else max)(defined) if defined else None

    def of(self, results: Mapping[str, Any]) -> float | None:
        """Its value among the results of a method on a split (`evaluation/<run>.json`); None where there is none."""
        value: float | None = results.get(self.group, {}).get(self.key)
        return value


def _read() -> Iterator[Metric]:
    text = files(__name__).joinpath("metrics.yaml").read_text(encoding="utf-8")
    groups = parse_yaml(text)
    sources = groups.pop("sources")
    for group, given in groups.items():
        metrics = [Metric(name=name, group=group, **fields) for name, fields in given.items()]
        metrics = [replace(metric, source=metric.source.format_map(sources)) for metric in metrics]
        yield from (replace(metric, formula=metric.formula.replace("<over>", _OVER)) for metric in metrics)
        if group == "ood":
            yield from (_again(metric, side) for side in _SIDES for metric in metrics)


def _again(metric: Metric, side: Group) -> Metric:
    """The same metric over other regions."""
    words, meaning, over = _SIDES[side]
    return replace(
        metric,
        name=f"{PREFIXES[side]}{metric.name}",
        title=f"{metric.title} {words}",
        latex=f"{metric.latex} {words}",
        group=side,
        meaning=f"{metric.meaning} {meaning}",
        formula=metric.formula.replace("<over>", over),
    )


#: Every metric by its name.
METRICS: dict[str, Metric] = {metric.name: metric for metric in _read()}

#: Metrics of a metrics file, by which methods are compared: detections wherever they lie, then unknown objects.
COMPARED = ("auroc", "fpr95", "nose", "ap_u", "p_u", "r_u")

#: Metrics of a method on a split that have a best method, with intervals of the difference to it.
RANKED = (
    *COMPARED,
    "fpr95_ood_positive",
    "aupr_in",
    "aupr_out",
    "detection_error",
    "ap_u_11",
    *(metric.name for metric in METRICS.values() if metric.group in (*_SIDES, "known", "pairs", "recognition")),
    "open_world_u_recall",
    "open_world_a_ose",
)

#: Metrics of a method on a split of which the means over near, far and farther splits are given.
AVERAGED = (
    *COMPARED,
    *(
        name
        for name in RANKED
        if METRICS[name].group in ("ood", "full_spectrum", "recognition") and name not in COMPARED
    ),
)
