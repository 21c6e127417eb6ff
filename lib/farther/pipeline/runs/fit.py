"""Takes the operating threshold t* of a run, and fits the methods to its training regions."""

from __future__ import annotations

from farther.errors import ParameterError
from farther.evaluation.files import RunFiles
from farther.evaluation.threshold import ThresholdSettings, choose_threshold
from farther.incremental.code import code_digest
from farther.naming.registry import build
from farther.params import run_entry, section
from farther.scoring.entries import read_entries
from farther.scoring.fit import fit_run
from farther.scoring.inputs import FitSection, RunRegions
from farther.scoring.search import search


def work(run: str) -> str:
    """Reads regions, passes and splits; writes artifacts/thresholds, truth and fitted.

    Returns:
        Names of the methods that were fitted.

    Raises:
        ParameterError: methods of extensions failed; the others are fitted.
    """
    detector = run_entry(run)
    rule = section("threshold") | detector["threshold"]
    thresholds = build(ThresholdSettings, "params.yaml: threshold", rule)
    settings = build(FitSection, "params.yaml: fit", section("fit")).fit_settings()
    entries = read_entries(section("methods"))
    code = {}
    for entry in entries:
        digests = [code_digest("kept", "fit", method) for method in entry.methods_with_parts]
        if entry.search or entry.oracle:
            digests.append(code_digest("kept", "search"))
        code[entry.name] = " ".join([*digests, code_digest("files", "methods", entry.name)])

    files = RunFiles(run, detector["benchmark"])
    roles = files.roles
    regions = RunRegions(
        files.all_regions,
        choose_threshold(files, thresholds),
        settings,
        truth=files.truth,
        test_splits=tuple(roles.test),
        passes=files.all_passes,
        splits=files.splits,
        name=run,
    )
    paired_splits = [pairs["of"] for pairs in roles.pairs.values()]
    scored_splits = [thresholds.split, *paired_splits]
    summary = fit_run(entries, regions, files.all_fitted, code, scored_splits, search)
    if summary.failed:
        problems = [f"methods.{name}: {text}" for name, text in summary.failed.items()]
        raise ParameterError("; ".join(problems))
    return str(summary)
