"""The page of comparisons: means over splits as OpenOOD reports them, classifiers, errors on ID images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farther.report import power
from farther.report.all_results import AllResults
from farther.report.charts import ranking
from farther.report.listing import ABSENT, Listing, percent
from farther.report.results import DISTANCES, Run, heading
from farther.report.site import Site

#: Metrics of means over splits that have columns.
MEANS = ("auroc", "fpr95", "full_spectrum_auroc", "oscr", "macro_auroc")

#: Metrics of errors on ID images that have columns.
ERRORS = ("auroc", "fpr95", "detection_error", "detection_error95", "aurc", "e_aurc")


#: Sections of the page.
SECTIONS = {
    "size": "Is the test set large enough?",
    "mean-ranks": "Mean ranks",
    "classifiers": "Classifiers",
    "ranks": "Images and objects",
    "agreement": "Do classic and open-set metrics rank methods alike?",
    "gaps": "Near against far",
    "means": "Means over splits",
    "errors": "Errors on ID images",
}


def write(site: Site, results: AllResults) -> None:
    """Writes the page."""
    sizes = [
        table for name in results.by_benchmark if (table := power.listing(name, results.sizes))
    ]
    site.write("across.html", **content(results.evaluated, sizes))


def content(runs: Sequence[Run], sizes: Sequence[Listing] = ()) -> dict[str, Any]:
    """Variables of the template `across.html`.

    Args:
        runs: All evaluated runs.
        sizes: What the images of each benchmark can show.
    """
    benchmarks: dict[str, list[Run]] = {}
    for run in runs:
        benchmarks.setdefault(run.benchmark_title, []).append(run)
    found = {
        "size": sizes,
        "classifiers": classifiers(runs),
        "ranks": ranking.ranks(runs),
        **ranking.comparisons(runs),
        "means": [table for pair in benchmarks.items() if (table := _means(*pair))],
        "errors": [table for pair in benchmarks.items() if (table := _errors(*pair))],
    }
    return {
        **found,
        "contents": {
            anchor: title for anchor, title in SECTIONS.items() if found[anchor.replace("-", "_")]
        },
    }


def classifiers(runs: Sequence[Run]) -> Listing:
    """Accuracy and calibration of classifiers on the ID test split, and accuracy on shifted images."""
    rows = []
    for run in runs:
        found = run.evaluation and run.evaluation.classifier
        if found:
            values, within = found.values, found.intervals
            rows.append(
                {
                    "Detector": run.full_title,
                    "Benchmark": run.benchmark_title,
                    "Images": run.id_images or None,
                    "Accuracy (%)": percent(values["accuracy"], within.get("accuracy")),
                    "Top-5 accuracy (%)": percent(
                        values.get("accuracy_top5"), within.get("accuracy_top5")
                    ),
                    "NLL": _nll(values["nll"], within.get("nll")),
                    "ECE (%)": percent(values["ece"], within.get("ece")),
                    **{
                        f"Accuracy: {name} (%)": of["accuracy"]
                        for name, of in found.shifted.items()
                    },
                }
            )
    caption = "Classifiers on the ID test split, with 95% intervals; and their accuracy on shifted ID images."
    return Listing.of(caption, rows, ["Accuracy (%)", "Top-5 accuracy (%)", "NLL", "ECE (%)"])


def _nll(value: float | None, interval: Sequence[float] | None) -> str:
    if value is None:
        return ABSENT
    return f"{value:.3f}" + (f" ({interval[0]:.3f} to {interval[1]:.3f})" if interval else "")


def _means(benchmark: str, runs: Sequence[Run]) -> Listing:
    rows, splits = [], dict[str, list[str]]()
    for run in runs:
        for method in run.methods:
            found = run.means(method)
            splits |= {distance: of.splits for distance, of in found.items()}
            cells = {
                f"{distance.capitalize()} {heading(name)} (%)": found[distance].values[name]
                for distance in DISTANCES
                for name in MEANS
                if distance in found and name in found[distance].values
            }
            rows += (
                [{"Detector": run.full_title, "Method": run.label(method), **cells}]
                if cells
                else []
            )
    images = {split.name: run.images(split.name) for run in runs for split in run.splits}
    over = "; ".join(
        f"{name}: {', '.join(f'{split} ({images[split]:,} images)' for split in splits[name])}"
        for name in DISTANCES
        if name in splits
    )
    caption = f"{benchmark}: means over splits ({over}). Full-spectrum: shifted ID images count as in-distribution."
    return Listing.of(caption, rows)


def _errors(benchmark: str, runs: Sequence[Run]) -> Listing:
    rows = []
    for run in runs:
        for method in run.methods:
            if results := run.method(method):
                found = results.misclassification.values
                counts = {"Correct": found["correct"], "Errors": found["errors"]}
                values = {
                    f"{heading(f'misclassification_{name}')} (%)": found[name] for name in ERRORS
                }
                rows.append(
                    {"Detector": run.full_title, "Method": run.label(method), **counts, **values}
                )
    caption = (
        f"{benchmark}: separation of ID test regions of the right class from errors. AURC is the mean share of errors "
        "among the highest-scored regions, E-AURC its excess over that of a perfect ranking."
    )
    return Listing.of(caption, rows)
