"""Table 1 of OpenOOD (Yang et al., 2022), and the leaderboards of its version 1.5 (Zhang et al., 2023)."""

from __future__ import annotations

from collections.abc import Sequence

from farther.report.listing import Listing
from farther.report.overview import IMAGES, images
from farther.report.papers.table import PaperTable, Sources, listing, together
from farther.report.results import DISTANCES, Run, title_of

ABSENT = {
    "columns AD and OSR": "anomaly detection, and unknown classes of the ID dataset, are other benchmarks",
    "rows of methods that train a network": "a trained network is a run here: each has a column",
    "times": "times are of one machine; the page Cost has those of this one",
    "Acc. of each method": "post-hoc methods do not change the network: the last row has the accuracy of each run",
}


def tables(sources: Sources) -> list[PaperTable]:
    """Table 1 of version 1, and the full-spectrum table of version 1.5."""
    return [
        PaperTable(
            "Table 1",
            "OOD detection, near-OOD / far-OOD",
            _table(sources.runs, "auroc"),
            "AUROC, mean over the near and over the far (or farther) splits of each run. Classifiers first.",
        ),
        PaperTable(
            "Version 1.5, full spectrum",
            "The same where shifted ID images count as in-distribution",
            _table(sources.runs, "full_spectrum_auroc"),
        ),
        PaperTable(
            "Version 1.5, FPR@95",
            "The same with the share of ID rejected when 95% of OOD are",
            _table(sources.runs, "fpr95_ood_positive"),
        ),
    ]


def _table(runs: Sequence[Run], metric: str) -> list[Listing]:
    ordered = sorted(runs, key=lambda run: not run.whole_images)
    methods = dict.fromkeys(method for run in ordered for method in run.methods)
    rows, heads = [], [run.full_title for run in ordered]
    for method in methods:
        cells = {run.full_title: _near_far(run, method, metric) for run in ordered}
        both = [pair for pair in cells.values() if pair is not None]
        if both:
            means = [_mean([pair[side] for pair in both]) for side in (0, 1)]
            row = {"Method": title_of(method), **{head: pair and together(pair) for head, pair in cells.items()}}
            rows.append({**row, "Avg.": together(means)})
    if rows:
        rows.append({"Method": IMAGES, **{run.full_title: images(run, with_known=True) for run in ordered}})
    if rows and metric == "auroc":
        quality = {run.full_title: f"{_quality(run)}" for run in ordered}
        rows.append({"Method": "Accuracy or mAP50", **quality})
    caption = "In per cent. Avg.: mean over the runs that the method applies to."
    return listing(caption, rows, [*heads, "Avg."])


def _near_far(run: Run, method: str, metric: str) -> list[float | None] | None:
    """The means over near splits and over the others."""
    means = run.method(method).get("means", {})
    near = means.get("near", {}).get(metric)
    far = next((means[name].get(metric) for name in DISTANCES[1:] if name in means), None)
    return None if near is None and far is None else [near, far]


def _mean(values: Sequence[float | None]) -> float | None:
    given = [value for value in values if value is not None]
    return sum(given) / len(given) if given else None


def _quality(run: Run) -> str:
    return together([run.detector.get("accuracy" if run.whole_images else "map50")])
