"""Measures what the proposals of a run find of the unknown objects that its detections miss.

If regions, proposals, threshold, splits and parameters are those of the last time, results are kept; and so are those
of each method whose scores are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from farther.detectors.proposals import SecondDetector, Source, read_sources
from farther.errors import ParameterError, choose
from farther.evaluation.files import RunFiles
from farther.evaluation.methods import AppliedMethod, read_methods
from farther.evaluation.proposal_rules import reviewed_file
from farther.evaluation.proposals import RecoveredRun, evaluate_proposals, read_recovered
from farther.evaluation.results import write_results
from farther.evaluation.settings import EvaluationSettings
from farther.evaluation.with_proposals import KeptMethod, measure_methods
from farther.keyed import KEYS, Keyed
from farther.params import code_digest, section
from farther.registry import build
from farther.stage import run_stage
from farther.tables.documents import read_json, write_json
from farther.tables.files import digest
from farther.tables.writing import disk_errors
from farther.terminal import say

ARTIFACTS = Path("artifacts")
#: A fitted method's file of its threshold τ.
TAU = "threshold.json"
OUTPUT = "artifacts/recovered/{}"
#: The same in short, for `dvc metrics diff`.
METRICS = "artifacts/recovered/{}.json"


def main(run: str) -> None:
    """Reads proposals, regions, thresholds, scores and splits of a run; writes OUTPUT and METRICS."""
    settings = build(EvaluationSettings, "params.yaml: evaluate", section("evaluate"))
    entries = section("detectors")
    sources = read_sources(run, (entries[run] or {}).get("proposals"))
    check_others(run, sources, entries)
    files = lambda name: RunFiles(name, entries[name]["benchmark"], ARTIFACTS)  # noqa: E731
    kept = _Kept(files(run), sources, settings, files)
    with disk_errors(kept.folder):
        kept.folder.mkdir(parents=True, exist_ok=True)
    Keyed(kept.folder).update(kept.keys(list(section("methods"))), kept.make, log=lambda _: None)
    found = read_recovered(kept.of.recovered)
    write_json(METRICS.format(run), _short(found) if found else {})
    say(f"{run}: {_summary(found) if found else 'no proposals'}")


class _Kept:
    """The items of a run: `called`, tables; `results.json`, made with them; and `methods/<method>.json`, made of them.

    Args:
        of: The run's files.
        sources: Its sources of proposals.
        settings: How runs are evaluated.
        others: Files of another run.
    """

    def __init__(
        self,
        of: RunFiles,
        sources: Mapping[str, Source],
        settings: EvaluationSettings,
        others: Callable[[str], RunFiles],
    ):
        self.of, self._sources, self._settings, self._others = of, sources, settings, others
        self.folder = of.recovered.parent
        self._outdated: list[AppliedMethod] = []
        self._results: RecoveredRun | None = None
        self._measured: dict[str, KeptMethod] = {}

    def keys(self, methods: list[str]) -> dict[str, str]:
        """The key of each item; none where the run has no sources."""
        if not self._sources:
            return {}
        key = _key(self.of, self._sources, self._settings, code_digest("proposals"))
        keys = {"called": key, "results.json": key}
        scores, items = read_json(self.of.root / "scores" / self.of.run / KEYS), Keyed(self.folder)
        for method in read_methods(self.of, methods)[0]:
            own = sorted(made for made in scores.items() if made[0].startswith(f"{method.name}/"))
            item = f"methods/{method.name}.json"
            keys[item] = digest(key, repr(own), repr(method.tau))
            if not items.is_current(item, keys[item]):
                self._outdated.append(method)
        return keys

    def make(self, item: str, to: Path) -> str:
        """Writes an item."""
        if item == "called":
            to.mkdir()
            self._results = self._evaluated(to)
        elif item == "results.json":
            write_results(to, self._results or self._evaluated())
        else:
            if not self._measured:
                self._measured = measure_methods(self.of, self._settings, list(self._sources), self._outdated)
            write_results(to, self._measured[Path(item).stem])
        return item

    def _evaluated(self, tables: Path | None = None) -> RecoveredRun:
        return evaluate_proposals(self.of, self._sources, self._settings, self._others, tables)


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


def _key(of: RunFiles, sources: Mapping[str, Source], settings: EvaluationSettings, code: str) -> str:
    """Digest of all that the results of a run are made from, without those of methods."""
    seconds = [source.run for source in sources.values() if isinstance(source, SecondDetector)]
    keys = [of.root / "regions" / name / KEYS for name in (of.run, *seconds)]
    keys += [of.root / "proposals" / of.run / KEYS, reviewed_file(of.benchmark)]
    names = [*{settings.calibration_split: 0, settings.id_split: 0, **dict.fromkeys(of.roles.test, 0)}]
    tables = [path for name in names for path in (of.images(name), of.objects(name))]
    keys += [of.fitted(name) / file for name in settings.proposals.methods for file in ("method.json", TAU)]
    asked = [repr(sources), repr(replace(settings, user_defined={})), repr(of.roles), code]
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


if __name__ == "__main__":
    run_stage(main, OUTPUT)
