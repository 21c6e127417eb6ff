"""Measures what the proposals of a run find of the unknown objects that its detections miss."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from farther.detectors.proposals import SecondDetector, Source, read_sources
from farther.errors import ParameterError, choose
from farther.evaluation.files import RunFiles
from farther.evaluation.proposals import RecoveredRun, evaluate_proposals
from farther.evaluation.results import write_results
from farther.evaluation.settings import read_settings
from farther.keyed import write_empty, write_record
from farther.params import run_entry, section
from farther.stage import run_stage
from farther.tables.documents import write_json
from farther.tables.writing import write_aside
from farther.terminal import say

ARTIFACTS = Path("artifacts")
OUTPUT = "artifacts/recovered/{}"
#: The same in short, for `dvc metrics diff`.
METRICS = "artifacts/recovered/{}.json"


def main(run: str) -> None:
    """Reads proposals, regions, t* and splits of a run; writes OUTPUT and METRICS."""
    settings = read_settings(section("evaluate"))
    entries = section("detectors")
    sources = read_sources(run, run_entry(run)["proposals"])
    check_second_detectors(run, sources, entries)

    def files_of(name: str) -> RunFiles:
        return RunFiles(name, entries[name]["benchmark"], ARTIFACTS)

    metrics: dict[str, Any] = {}
    summary = "no proposals"
    with write_aside(OUTPUT.format(run)) as folder:
        folder.mkdir()
        if sources:
            recovered = evaluate_proposals(
                files_of(run), sources, settings, files_of, folder / "called"
            )
            write_results(folder / "results.json", recovered)
            metrics = _metrics(recovered)
            summary = _summary(recovered)
        else:
            write_empty(folder)
    write_json(METRICS.format(run), metrics)
    write_record(OUTPUT.format(run))
    say(f"{run}: {summary}")


def check_second_detectors(
    run: str, sources: Mapping[str, Source], entries: Mapping[str, Any]
) -> None:
    """Refuses a second detector that is no run, the run itself, or a run on another benchmark.

    Raises:
        ParameterError: names the source, and what is wrong with it.
    """
    for name, source in sources.items():
        if not isinstance(source, SecondDetector):
            continue
        benchmark = entries[run]["benchmark"]
        other_runs = []
        for other_run, entry in entries.items():
            if entry["benchmark"] == benchmark and other_run != run:
                other_runs.append(other_run)
        try:
            choose(f"run on benchmark {benchmark!r}", source.run, other_runs)
        except ParameterError as error:
            raise ParameterError(f"detectors.{run}.proposals.{name}: {error}") from None


def _metrics(recovered: RecoveredRun) -> dict[str, Any]:
    """Fractions of missed objects by source and distance, and false alarms."""
    metrics: dict[str, Any] = {}
    for name, source in recovered.sources.items():
        metrics[name] = {}
        for distance, objects in source.distances.items():
            metrics[name][distance] = {
                "missed": objects.values["missed"],
                "still_missed": objects.values["still_missed"],
            }
        metrics[name]["alarms"] = source.alarms
    return metrics


def _summary(recovered: RecoveredRun) -> str:
    """Fraction of missed objects with and without each source, over all distances."""
    sentences = []
    for name, source in recovered.sources.items():
        objects = 0.0
        missed = 0.0
        still_missed = 0.0
        for distance in source.distances.values():
            count = distance.values["objects"] or 0
            objects += count
            missed += (distance.values["missed"] or 0) * count
            still_missed += (distance.values["still_missed"] or 0) * count
        if objects:
            before = missed / objects
            after = still_missed / objects
            sentences.append(
                f"{name}: {before:.1%} of {objects:.0f} unknown objects missed, "
                f"{after:.1%} with proposals"
            )
    return "; ".join(sentences) or "no unknown objects, or all are crowds or difficult"


if __name__ == "__main__":
    run_stage(main, OUTPUT)
