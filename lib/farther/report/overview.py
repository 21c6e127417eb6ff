"""One table for a terminal: means of each method over detectors and over near, far and farther splits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from farther.metrics.catalogue import METRICS, Metric
from farther.report.listing import percent
from farther.report.results import DISTANCES, Run, read_runs, title_of

#: The metrics: how well detections are separated, and how many unknown objects are found.
SHOWN = tuple(METRICS[name] for name in ("auroc", "r_u"))
#: Width of a column, and of the methods' names.
COLUMN, LABEL = 9, 20


def overview(params: Mapping[str, Any], root: str | Path = ".") -> str:
    """Text of at most 80 columns; classifiers of whole images are left out where there are detectors of boxes.

    Args:
        params: params.yaml, parsed.
        root: The project's folder.

    Raises:
        ParameterError: a section of params.yaml is absent.
        DataError: a file is damaged.
    """
    evaluated = [run for run in read_runs(params, Path(root) / "artifacts") if run.is_evaluated]
    runs = [run for run in evaluated if not run.whole_images] or evaluated
    if not runs:
        return "no detector is evaluated yet; run `farther repro`"
    methods = [name for name in params["methods"] if any(name in run.methods for run in runs)]
    distances = [
        d for d in DISTANCES if any(d in run.means(name) for run in runs for name in methods)
    ]
    means = {
        (name, distance, metric.name): _mean(runs, name, distance, metric)
        for name in methods
        for distance in distances
        for metric in SHOWN
    }
    shown = [
        metric
        for metric in SHOWN
        if any(v is not None for (_, _, name), v in means.items() if name == metric.name)
    ]
    best = {
        (distance, metric.name): metric.best(
            [means[name, distance, metric.name] for name in methods]
        )
        for distance in distances
        for metric in shown
    }
    heads = " " * LABEL + "".join(distance.center(COLUMN * len(shown)) for distance in distances)
    names = "method".ljust(LABEL) + "".join(
        f"{one.title} {one.arrow}".rjust(COLUMN) for _ in distances for one in shown
    )
    lines = [heads.rstrip(), names]
    for name in methods:
        cells = [
            (means[name, distance, one.name], best[distance, one.name])
            for distance in distances
            for one in shown
        ]
        texts = [
            f"{percent(value)}{'*' if value is not None and value == top else ' '}"
            for value, top in cells
        ]
        having = sum(name in run.methods for run in runs)
        few = f" {having}/{len(runs)}" if having < len(runs) else ""
        lines.append(
            f"{title_of(name)[: LABEL - 1]:<{LABEL}}{''.join(one.rjust(COLUMN) for one in texts)}{few}".rstrip()
        )
    over = f"{len(runs)} detectors (k/{len(runs)}: k of them) and " if len(runs) > 1 else ""
    return "\n".join(
        [
            *lines,
            f"Means in per cent, over {over}splits; * best.",
            "All splits: farther summary --all",
        ]
    )


def _mean(runs: list[Run], method: str, distance: str, metric: Metric) -> float | None:
    """Mean over the detectors that a method applies to; None where none has a value."""
    of_runs = (run.means(method).get(distance) for run in runs if method in run.methods)
    values = [of.values.get(metric.name) for of in of_runs if of is not None]
    defined = [value for value in values if value is not None]
    return float(np.mean(defined)) if defined else None
