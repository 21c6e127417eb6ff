"""Measures what the proposals of all runs find of the unknown objects that their detections miss.

A run whose regions, proposals, threshold, splits and parameters are those of the last time keeps its results.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farther.detectors.proposals import SecondDetector, Source, read_sources
from farther.errors import Finding, ParameterError, choose, refused
from farther.evaluation.files import RunFiles
from farther.evaluation.proposal_rules import reviewed_file
from farther.evaluation.proposals import RecoveredRun, evaluate_proposals, read_recovered
from farther.evaluation.results import write_results
from farther.evaluation.settings import EvaluationSettings
from farther.keyed import KEYS, Keyed
from farther.params import code_digest, section
from farther.registry import build
from farther.stage import run_stage
from farther.tables.documents import write_json
from farther.tables.files import digest
from farther.terminal import say

if TYPE_CHECKING:
    from farther.pipeline.inspection import Inspection

ARTIFACTS = Path("artifacts")
#: A fitted method's file of its threshold τ.
TAU = "threshold.json"
OUTPUT = "artifacts/recovered"
#: The same in short, for `dvc metrics diff`.
METRICS = ARTIFACTS / "recovered.json"


def main() -> None:
    """Reads regions, proposals, thresholds and splits of all runs; writes artifacts/recovered and METRICS."""
    settings = build(EvaluationSettings, "params.yaml: evaluate", section("evaluate"))
    entries, code = section("detectors"), code_digest("proposals")
    sources = {run: read_sources(run, (entry or {}).get("proposals")) for run, entry in entries.items()}
    files = {run: RunFiles(run, entry["benchmark"], ARTIFACTS) for run, entry in entries.items()}
    asked = {run: of for run, of in sources.items() if of}
    for run, of in asked.items():
        check_others(run, of, entries)
    methods = list(section("methods"))
    # The folder of a run's tables comes before its results, which are made with it.
    keys = {
        item: key
        for run, of in asked.items()
        if (key := _key(run, of, files, settings, [code, *methods]))
        for item in (run, f"{run}.json")
    }
    made: dict[str, RecoveredRun] = {}

    def make(item: str, to: Path) -> str:
        run, is_folder = item.removesuffix(".json"), item in asked
        if is_folder or run not in made:
            tables = to if is_folder else None
            made[run] = evaluate_proposals(
                files[run], asked[run], settings, files.__getitem__, methods=methods, tables=tables
            )
        if is_folder:
            to.mkdir(parents=True, exist_ok=True)
            return "tables of the proposals that are called unknown"
        write_results(to, made[run])
        return _summary(made.pop(run))

    Path(OUTPUT).mkdir(parents=True, exist_ok=True)
    Keyed(OUTPUT).update(keys, make, partial(say, flush=True))
    results = {run: read_recovered(files[run].recovered) for run in asked}
    write_json(METRICS, {run: _short(found) for run, found in results.items() if found})


def check_others(run: str, sources: Mapping[str, Source], entries: Mapping[str, Any]) -> None:
    """Refuses second detectors that are no run, this one, or on another benchmark.

    Raises:
        ParameterError: names the source, and what is wrong with it.
    """
    for name, source in sources.items():
        if not isinstance(source, SecondDetector):
            continue
        where = f"detectors.{run}.proposals.{name}"
        benchmark = entries[run]["benchmark"]
        alike = [other for other, entry in entries.items() if entry["benchmark"] == benchmark and other != run]
        try:
            choose(f"run on benchmark {benchmark!r}", source.run, alike)
        except ParameterError as error:
            raise ParameterError(f"{where}: {error}") from None


def _key(
    run: str,
    sources: Mapping[str, Source],
    files: Mapping[str, RunFiles],
    settings: EvaluationSettings,
    said: Sequence[str],
) -> str:
    """Digest of all that the results of a run are made from."""
    of = files[run]
    seconds = [source.run for source in sources.values() if isinstance(source, SecondDetector)]
    folders = [ARTIFACTS / "regions" / name for name in (run, *seconds)]
    folders += [ARTIFACTS / name / run for name in ("proposals", "fitted", "scores")]
    keys = [folder / KEYS for folder in folders]
    names = [*{settings.calibration_split: 0, settings.id_split: 0, **dict.fromkeys(of.roles.test, 0)}]
    tables = [path for name in names for path in (of.images(name), of.objects(name))]
    keys += [reviewed_file(of.benchmark)]
    keys += [of.fitted(name) / file for name in settings.proposals.methods for file in ("method.json", TAU)]
    asked = [repr(sources), repr(replace(settings, user_defined={})), repr(of.roles), *said]
    return digest(json.dumps(asked), of.threshold, *tables, *(file for file in keys if file.exists()))


def _short(found: RecoveredRun) -> dict[str, Any]:
    return {
        name: {distance: _shares(one.values) for distance, one in source.distances.items()} | {"alarms": source.alarms}
        for name, source in found.sources.items()
    }


def _shares(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in ("missed", "still_missed")}


def _summary(found: RecoveredRun) -> str:
    """The share that is missed with and without each source, over all distances."""
    said = []
    for name, source in found.sources.items():
        each = [one.values for one in source.distances.values()]
        objects = sum(values["objects"] or 0 for values in each)
        if objects:
            before, after = (
                sum((values[key] or 0) * (values["objects"] or 0) for values in each) / objects
                for key in ("missed", "still_missed")
            )
            said.append(f"{name}: {before:.1%} of {objects} unknown objects missed, {after:.1%} with proposals")
    return "; ".join(said) or "no unknown objects"


def check(project: Inspection) -> Iterator[Finding]:
    """Second detectors of the runs, and what the rules of `evaluate.proposals` name."""
    asked = project.section("evaluate").get("proposals") or {}
    splits = [split for entry in project.section("benchmarks").values() for split in entry.get("splits") or {}]
    for name in asked.get("methods") or ():
        yield from refused("evaluate.proposals.methods", partial(choose, "method", name, project.section("methods")))
    if (split := asked.get("learn_from")) and split not in splits:
        yield Finding("warnings", "evaluate.proposals.learn_from", "note", f"no benchmark has an OOD split {split!r}")
    for run in project.section("detectors"):
        yield from refused(f"detectors.{run}", partial(_check, run, project.section("detectors")))


def _check(run: str, entries: Mapping[str, Any]) -> None:
    check_others(run, read_sources(run, (entries[run] or {}).get("proposals")), entries)


if __name__ == "__main__":
    run_stage(main, OUTPUT)
