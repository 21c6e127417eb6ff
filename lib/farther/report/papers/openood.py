"""Table 1 of OpenOOD (Yang et al., 2022), and the leaderboards of its version 1.5 (Zhang et al., 2023)."""

from __future__ import annotations

from collections.abc import Sequence

from farther.report.listing import Listing
from farther.report.papers.table import Paper, PaperTable, Sources, together
from farther.report.results import DISTANCES, IMAGES, Run, title_of


def tables(sources: Sources) -> list[PaperTable]:
    """Table 1 of version 1, and the full-spectrum table of version 1.5."""
    return [
        PaperTable(
            "Table 1",
            "OOD detection, near-OOD / far-OOD",
            [_table(sources.runs, "auroc")],
            "AUROC, mean over the near and over the far (or farther) splits of each run. Classifiers first.",
        ),
        PaperTable(
            "Version 1.5, full spectrum",
            "The same where shifted ID images count as in-distribution",
            [_table(sources.runs, "full_spectrum_auroc")],
        ),
        PaperTable(
            "Version 1.5, FPR@95",
            "The same with the share of ID rejected when 95% of OOD are",
            [_table(sources.runs, "fpr95_ood_positive")],
        ),
    ]


def _table(runs: Sequence[Run], metric: str) -> Listing:
    ordered = sorted(runs, key=lambda run: not run.whole_images)
    rows, heads = [], [run.full_title for run in ordered]
    for method in dict.fromkeys(method for run in ordered for method in run.methods):
        pairs = [_near_far(run, method, metric) for run in ordered]
        if any(any(value is not None for value in pair) for pair in pairs):
            cells = {head: together(pair) for head, pair in zip(heads, pairs, strict=True)}
            means = [_mean([pair[side] for pair in pairs]) for side in (0, 1)]
            rows.append({"Method": title_of(method), **cells, "Avg.": together(means)})
    if rows:
        rows.append({"Method": IMAGES, **{run.full_title: run.image_counts(with_known=True) for run in ordered}})
    if rows and metric == "auroc":
        quality = {
            run.full_title: together([run.detector.get("accuracy" if run.whole_images else "map50")]) for run in ordered
        }
        rows.append({"Method": "Accuracy or mAP50", **quality})
    return Listing.of("In per cent. Avg.: mean over the runs that the method applies to.", rows, [*heads, "Avg."])


def _near_far(run: Run, method: str, metric: str) -> list[float | None]:
    """The means over near splits and over the others."""
    means = run.means(method)
    near, far = (
        next((means[name].values.get(metric) for name in names if name in means), None)
        for names in (DISTANCES[:1], DISTANCES[1:])
    )
    return [near, far]


def _mean(values: Sequence[float | None]) -> float | None:
    given = [value for value in values if value is not None]
    return sum(given) / len(given) if given else None


PAPER = Paper(
    "openood",
    "OpenOOD",
    "Yang et al., 2022: OpenOOD: Benchmarking Generalized Out-of-Distribution Detection. arXiv:2210.07242",
    tables,
    {
        "columns AD and OSR": "anomaly detection, and unknown classes of the ID dataset, are other benchmarks",
        "rows of methods that train a network": "a trained network is a run here: each has a column",
        "times": "times are of one machine; the page Cost has those of this one",
        "Acc. of each method": "post-hoc methods do not change the network: the last row has the accuracy of each run",
    },
)
