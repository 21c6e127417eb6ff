"""Listings: runs, inputs, datasets, splits, detectors, methods and their parameters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

import farther
from farther.evaluation.results import as_json
from farther.metrics.catalogue import METRICS
from farther.report.documented import remarks
from farther.report.kinds import POST_HOC
from farther.report.listing import Listing, between, percent
from farther.report.results import DISTANCES, VALUES, Run, title_of
from farther.tables.files import digest
from farther.tables.folders import listed
from farther.tables.schema import read_typed

#: Heading of `images`.
IMAGES = "Images, ID / OOD"

#: Digits of a digest that are printed.
SHORT = 12


def runs_table(runs: Sequence[Run]) -> Listing:
    """All runs, evaluated or not."""
    return Listing.of(
        "Detectors on benchmarks.",
        (
            {
                "Detector": run.full_title,
                "Run": run.name,
                "Adapter": run.adapter,
                "Weights": run.weights,
                "mAP50 (%)": None if run.whole_images else run.detector.get("map50"),
                **({"Accuracy (%)": run.detector.get("accuracy")} if any(one.whole_images for one in runs) else {}),
                "Methods": len(run.methods) or None,
                "Images tested": sum(counts.images for counts in run.counts.values()),
            }
            for run in runs
        ),
    )


#: Metrics of `kinds`: of detections, then of unknown objects.
GLANCE = ("auroc", "ap_u", "r_u", "nose")


def kinds(runs: Sequence[Run], shown: Mapping[str, str]) -> Listing | None:
    """Post-hoc, native and text scores side by side: means over splits of a distance; None where there is one kind.

    Args:
        runs: Evaluated runs on one benchmark.
        shown: Run → its post-hoc method, which is not chosen by results.
    """
    rows = []
    for run in runs:
        chosen = [m for m in run.methods if m == shown[run.name] or not run.kinds.get(m, POST_HOC).startswith(POST_HOC)]
        for method in chosen:
            means = run.means(method)
            row = {"Detector": run.full_title, "Method": run.label(method), "Kind": run.kinds.get(method, POST_HOC)}
            for distance, of in ((name, means[name]) for name in DISTANCES if name in means):
                for name in GLANCE:
                    interval = between(of.intervals.get(name))
                    text = f"{percent(of.values.get(name))}{f' ({interval})' if interval else ''}"
                    row[f"{distance.capitalize()} {METRICS[name].title}\N{NO-BREAK SPACE}{METRICS[name].arrow}"] = text
            rows.append(row)
    if len({row["Kind"] for row in rows}) < 2:
        return None
    caption = (
        f"{runs[0].benchmark_title}: post-hoc, native and text scores, means over splits of a distance (%), with 95% "
        "intervals. Post-hoc: the method of the charts; native: the detector's own label of unknown objects; text: "
        "similarities to class names or prompts."
    )
    return Listing.of(caption, rows, numbers=list(rows[0])[3:])


def checkpoints(runs: Sequence[Run], params: Mapping[str, Any]) -> Listing:
    """Digest of each run's checkpoint and of the parameters that it used."""
    shared = {name: params.get(name) for name in ("inference", "threshold", "fit", "methods", "evaluate")}
    rows = []
    for run in runs:
        used = {"detector": params["detectors"][run.name], "benchmark": params["benchmarks"][run.benchmark]}
        written = json.dumps({**shared, **used}, sort_keys=True, default=str)
        weights = run.evaluation and run.evaluation.detector.get("weights_digest")
        short = {"Checkpoint": weights and str(weights)[:SHORT], "Parameters": digest(written)[:SHORT]}
        rows.append({"Detector": run.full_title, "Run": run.name, **short})
    return Listing.of(f"Digests of checkpoints and parameters; farther {farther.__version__}.", rows)


def tables_of_splits(runs: Sequence[Run]) -> Listing:
    """Digests of each split's tables when the runs were evaluated."""
    rows = []
    for run in runs:
        for split, counts in run.counts.items():
            tables = {f"Table of {kind}": counts.inputs[kind][:SHORT] for kind in ("images", "objects")}
            rows.append({"Benchmark": run.benchmark, "Split": split, **tables})
    listing = Listing.of("Digests of the tables of images and objects.", rows)
    return Listing(listing.caption, listing.frame.unique(maintain_order=True))


def methods(params: Mapping[str, Mapping[str, Any]], runs: Sequence[Run], summaries: Mapping[str, str]) -> Listing:
    """One row per line of section `methods`, with its summary, and its means over all detectors and splits."""
    values = pl.concat([pl.DataFrame(schema=VALUES), *(run.values for run in runs)])
    rows = []
    for name in params:
        of_method = values.filter(method=name)
        mean = dict(of_method.group_by("metric").agg(pl.col("value").mean()).iter_rows())
        rows.append(
            {
                "Method": title_of(name) if of_method.is_empty() else of_method["label"][0],
                "Family": ", ".join(of_method["family"].unique(maintain_order=True)) or None,
                "Summary": summaries[name].replace("`", ""),
                "Detectors": of_method["run"].n_unique(),
                "Images": of_method.select("benchmark", "split", "images").unique()["images"].sum() or None,
                "Mean AUROC (%)": mean.get("auroc"),
                "Mean AP_U (%)": mean.get("ap_u"),
            }
        )
    return Listing.of("Methods; means over all splits and all detectors that they apply to.", rows)


def parameters_by_run(runs: Sequence[Run], method: str) -> Listing:
    """Parameters of a method and its threshold τ: one row per run."""
    rows = ({"Detector": run.full_title, "Parameters": parameters(run, method), **_tau(run, method)} for run in runs)
    caption = "Parameters, threshold τ, and the share of ID test detections at or above it."
    return Listing.of(caption, rows, numbers=["τ"])


def parameters_by_method(run: Run) -> Listing:
    """Parameters of each method of a run and its threshold τ: one row per method."""
    rows = (
        {
            "Method": run.label(method),
            "Family": run.family(method),
            "Reads": ", ".join(run.fitted(method).needs),
            "Parameters": parameters(run, method),
            **_tau(run, method),
        }
        for method in run.methods
    )
    return Listing.of(f"{run.full_title}: methods, their parameters and thresholds.", rows, numbers=["τ"])


def _tau(run: Run, method: str) -> dict[str, Any]:
    found = run.method(method)
    return {"τ": found and f"{found.tau:.6g}", "ID above τ (%)": found and found.id_regions_kept}


def parameters(run: Run, method: str) -> str:
    """The parameters of a method in a run, and how they were chosen."""
    given = run.fitted(method).params
    written = ", ".join(f"{key} = {_word(value)}" for key, value in given.items()) or "none"
    return "; ".join([written, *remarks(run, method)])


def quality(run: Run) -> Listing:
    """Quality of a detector on the ID test set: a table of one row."""
    row: dict[str, Any] = {}
    kinds = (("mAP50 (%)", "map50", "ap50"), ("mAP (%)", "map", "ap"))
    if run.whole_images:
        kinds = (("Accuracy (%)", "accuracy", "accuracy"), ("ECE (%)", "ece", "ece"))
    found = run.evaluation and (run.evaluation.classifier if run.whole_images else run.evaluation.closed_set)
    intervals = found.intervals if found else {}
    for title, name, detail in kinds:
        interval = f" ({between(intervals[detail])})" if detail in intervals else ""
        row[title] = percent(run.detector.get(name)) + interval
    row["t*"] = run.detector.get("threshold")
    caption = (
        "Quality on the ID test set with 95% intervals, operating threshold t*, and the share of images without a "
        "detection above it."
    )
    images = {"Images": id_images(run)}
    return Listing.of(caption, [{**row, **images, **_without_detection(run)}], numbers=list(row))


def id_images(run: Run) -> int | None:
    """Number of ID test images of a run; None where the details are not on this machine."""
    return run.images(run.id_split) or None


def images(run: Run, *, with_known: bool = False) -> str:
    """Number of ID test images and of OOD images, as "250 / 699".

    Args:
        with_known: Also images of splits that show known objects; wilderness and self-awareness leave these out.
    """
    pure = run.evaluation.self_awareness.splits if run.evaluation else {}
    splits = [split.name for split in run.splits if with_known or split.name in pure]
    return f"{run.images(run.id_split):,} / {sum(map(run.images, splits)):,}"


def detectors(runs: Sequence[Run]) -> Iterator[Listing]:
    """ID quality and images without detections of all runs, one table per benchmark (FMIYC, Tables 1 and 3)."""
    for benchmark in dict.fromkeys(run.benchmark_title for run in runs):
        yield Listing.of(
            f"Detectors on benchmark {benchmark}: quality on the ID test set, operating threshold t*, and the share of "
            "images without a detection above it.",
            (
                {
                    "Detector": run.full_title,
                    "Adapter": run.adapter,
                    **_quality_columns(run),
                }
                for run in runs
                if run.benchmark_title == benchmark
            ),
        )


def _quality_columns(run: Run) -> dict[str, float | None]:
    images = {"Images": id_images(run)}
    if run.whole_images:
        return {**images, **{f"{title} (%)": run.detector.get(title.lower()) for title in ("Accuracy", "ECE")}}
    quality = {"mAP50 (%)": run.detector.get("map50"), "mAP (%)": run.detector.get("map")}
    return {**images, **quality, "t*": run.detector.get("threshold"), **_without_detection(run)}


def _without_detection(run: Run) -> dict[str, float | None]:
    return {f"No detection: {split.title} (%)": run.no_detection(split.name) for split in run.splits}


def inputs(run: Run) -> Listing:
    """Inputs of a run's evaluation: digests of tables, settings, and the detector's identity."""
    parts: dict[str, dict[str, Any]] = {}
    if run.evaluation:
        parts["detector"] = {key: value for key, value in run.evaluation.detector.items() if key != "vos_head"}
        parts |= {split: counts.inputs for split, counts in run.counts.items()}
        parts["evaluation"] = as_json(run.evaluation.settings)
    rows = ({"Part": part, "Name": key, "Value": _word(v)} for part, named in parts.items() for key, v in named.items())
    return Listing.of(f"{run.full_title}: inputs of the evaluation.", rows)


def datasets(artifacts: Path) -> Listing | None:
    """Images and objects of each ingested subset; None where there is none."""
    rows = []
    for file in listed(artifacts / "counts" / "ingest", "*.json"):
        for subset, counts in sorted(read_typed(dict[str, dict[str, int]], file).items()):
            of_subset = {kind.title(): counts.get(kind, 0) for kind in ("images", "objects", "categories", "warnings")}
            rows.append({"Dataset": file.stem, "Subset": subset, **of_subset})
    return Listing.of("Datasets, as ingested.", rows) if rows else None


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {_word(part)}" for key, part in value.items()) or "none"
    return "none" if value is None else str(value)
