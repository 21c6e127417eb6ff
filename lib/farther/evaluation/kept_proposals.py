"""Stored results of the proposals of a run by themselves; measured where an input changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from farther.detectors.proposal_sources import SecondDetector, Source
from farther.errors import ParameterError, choose
from farther.evaluation.files import RunFiles
from farther.evaluation.recovery import RecoveredRun, evaluate_proposals
from farther.evaluation.results import read_results, write_results
from farther.evaluation.reviewed_images import reviewed_file
from farther.evaluation.settings import EvaluationSettings
from farther.incremental.keyed import Keyed, key_of

#: Items below `recovered/<run>`.
RESULTS = "results.json"
CALLED = "called"


def update_proposals(
    files: RunFiles,
    sources: Mapping[str, Source],
    settings: EvaluationSettings,
    others: Callable[[str], RunFiles],
    code: str,
) -> RecoveredRun | None:
    """Evaluates the sources of a run's proposals; see `evaluate_proposals`.

    Writes `recovered/<run>`.

    Args:
        files: Paths of the run's files.
        sources: Its sources, by name.
        settings: How runs are evaluated.
        others: Files of another run, by its name.
        code: Hash of the code that evaluates.

    Returns:
        The results; None where there are no sources.

    Raises:
        DataError: an input is absent or wrong.
    """
    folder = files.recovered.parent
    folder.mkdir(parents=True, exist_ok=True)
    kept = Keyed(folder)
    if not sources:
        kept.keep_only([])
        return None

    key = _key(files, sources, settings, others, code)
    outdated = kept.outdated({RESULTS: key, CALLED: key})
    if outdated:
        with kept.make(CALLED, key) as called:
            called.mkdir()
            recovered = evaluate_proposals(files, sources, settings, others, called)
        with kept.make(RESULTS, key) as results:
            write_results(results, recovered)
    else:
        recovered = read_results(RecoveredRun, files.recovered, "run `farther repro evaluate`")
    return recovered


def _key(
    files: RunFiles,
    sources: Mapping[str, Source],
    settings: EvaluationSettings,
    others: Callable[[str], RunFiles],
    code: str,
) -> str:
    """Cache key of the results."""
    paths = [files.splits, files.all_regions, files.all_proposals, files.threshold]
    paths.append(reviewed_file(files.benchmark, files.root.parent))
    parameters = {}
    for name, source in sources.items():
        parameters[name] = repr(source)
        if isinstance(source, SecondDetector):
            paths.append(others(source.run).all_regions)
    settings = replace(settings, user_defined={})
    return key_of(paths, {"settings": asdict(settings), "sources": parameters, "code": code})


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
