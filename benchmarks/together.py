"""AUROC and cost of methods that are made of others, beside those that they are made of.

    python benchmarks/together.py PROJECT energy knn_on_crops cascade

PROJECT is a project whose stages `evaluate` and `choose` ran, with entries of these names. Cells:
mean AUROC over the OOD splits of a run in per cent with its 95% interval, and milliseconds per
image that the method adds to the detector, those of passes by the share that they run for.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import polars as pl

from farther.tables.stored import RunCost, RunTimes, read_cost, read_times


def main() -> None:
    """Prints one table row per run that all methods apply to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("project", type=Path)
    parser.add_argument("methods", nargs="+")
    arguments = parser.parse_args()
    artifacts = arguments.project / "artifacts"
    costs = read_cost(artifacts / "cost.json")["runs"]
    times = read_times(artifacts / "times.json")["runs"]

    print("| run |", " | ".join(arguments.methods), "|")
    print("| --- |", " | ".join("---:" for _ in arguments.methods), "|")
    for file in sorted((artifacts / "results").glob("*.parquet")):
        run = file.stem
        if not set(arguments.methods) <= costs[run]["methods"].keys():
            continue
        cells = []
        for method in arguments.methods:
            further_ms = milliseconds(method, costs[run], times[run])
            cells.append(f"{mean_auroc(file, method)}, {further_ms:.1f} ms")
        print(f"| {run} |", " | ".join(cells), "|")


def mean_auroc(results: Path, method: str) -> str:
    """Mean AUROC over the OOD splits and its interval, in per cent."""
    rows = pl.read_parquet(results).filter(
        pl.col("method") == method,
        pl.col("group") == "ood",
        pl.col("metric") == "auroc",
        pl.col("part") == "distance=all",
    )
    value, low, high = rows.select("value", "low", "high").row(0)
    return f"{100 * value:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def milliseconds(method: str, cost: RunCost, times: RunTimes) -> float:
    """Milliseconds per image of scoring, and of passes for the share that they run for."""
    further_ms = times["methods"][method]
    for name, share in cost["methods"][method]["passes"].items():
        further_ms += share * (times["passes"][name] or 0.0)
    return further_ms


if __name__ == "__main__":
    main()
