"""Stored results of methods with the proposals called unknown, of the stage `evaluate`."""

from __future__ import annotations

from dataclasses import asdict, replace

from farther.evaluation.inputs import RunInputs
from farther.evaluation.methods import FittedRun
from farther.evaluation.results import write_results
from farther.evaluation.threshold import stored_tau
from farther.evaluation.with_proposals import called_sources, measure_methods
from farther.incremental.keyed import Keyed, key_of


def update_with_proposals(inputs: RunInputs, code: str) -> list[str]:
    """Measures the methods whose scores, threshold τ or proposals changed.

    The results of methods that no longer apply are deleted.

    Args:
        inputs: The run's inputs.
        code: Hash of the code that measures.

    Returns:
        Names of the methods that were measured. Without proposals there are none, and the folder
        has no results.

    Raises:
        DataError: a file of an earlier stage is absent or damaged.
    """
    files = inputs.files
    sources = called_sources(files)
    keys: dict[str, str] = {}
    if sources:
        keys = _keys(inputs, code)

    results = Keyed(files.all_with_proposals)
    files.all_with_proposals.mkdir(parents=True, exist_ok=True)
    outdated = [item.removesuffix(".json") for item in results.outdated(keys)]
    if not outdated:
        return []

    taus = {name: stored_tau(files.tau(name)) for name in outdated}
    for name, measured in measure_methods(inputs, sources, taus).items():
        item = f"{name}.json"
        with results.make(item, keys[item]) as path:
            write_results(path, measured)
    return outdated


def _keys(inputs: RunInputs, code: str) -> dict[str, str]:
    """The cache key of the results of each method that applies to the run."""
    files = inputs.files
    settings = asdict(replace(inputs.settings, user_defined={}))
    shared_paths = [files.splits, files.all_regions, files.threshold, files.recovered.parent]
    shared = key_of(shared_paths, {"settings": settings, "code": code})

    keys = {}
    for name in FittedRun.read(files).applicable:
        paths = [files.fitted(name), files.all_scores(name), files.tau(name)]
        keys[f"{name}.json"] = key_of(paths, {"shared": shared})
    return keys
