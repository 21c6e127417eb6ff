"""What went into the runs: datasets, curation, detectors, methods and their parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farther.curation import PRECEDENCE
from farther.report.results import Run, title_of
from farther.report.tables import percent
from farther.tables.files import read_json


@dataclass(frozen=True)
class Listing:
    """A plain table.

    Args:
        caption: What it shows.
        heads: Column headings.
        rows: Texts and numbers, as they are printed.
        numbers: How many of the last columns are numbers, set flush right.
    """

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: int = 0


def datasets(artifacts: Path) -> Listing:
    """Images and objects of each ingested subset."""
    rows = []
    for file in sorted((artifacts / "metrics" / "ingest").glob("*.json")):
        for subset, counts in read_json(file).items():
            shown = (counts.get(key, 0) for key in ("images", "objects", "categories", "warnings"))
            rows.append((file.stem, subset, *(f"{count:,}" for count in shown)))
    heads = ("Dataset", "Subset", "Images", "Objects", "Categories", "Warnings")
    return Listing("Datasets, as ingested.", heads, tuple(rows), numbers=4)


def splits(benchmark: str, artifacts: Path) -> Listing:
    """Images and objects of each split of a benchmark (FMIYC, Table 2)."""
    counts = _curation(benchmark, artifacts)
    names = [key.removesuffix(".images") for key in counts if key.endswith(".images") and f"{key[:-7]}.objects" in counts]
    rows = tuple(
        (name.replace("_", " "), f"{counts[f'{name}.images']:,}", f"{counts[f'{name}.objects']:,}") for name in names
    )
    return Listing(f"Splits of benchmark {benchmark}.", ("Split", "Images", "Objects"), rows, numbers=2)


def reasons(benchmark: str, artifacts: Path) -> Listing:
    """How many images each kind of rule took, by dataset."""
    kinds: dict[tuple[str, str], int] = {}
    for dataset, rule, count in _rules(benchmark, artifacts):
        kind = rule.partition(": ")[0]
        kinds[dataset, kind] = kinds.get((dataset, kind), 0) + count
    words = {"ID class": "removed: an ID class is labelled", "overlap": "removed: a category overlaps with an ID class"}
    words["near"] = "near: a near category is labelled"
    order = {kind: place for place, kind in enumerate(PRECEDENCE)}
    found = sorted(kinds, key=lambda key: (key[0], order.get(key[1], len(order)), key[1]))  # type: ignore[call-overload]
    rows = tuple((dataset, words.get(kind, kind), f"{kinds[dataset, kind]:,}") for dataset, kind in found)
    return Listing(f"Why images stand where they do in benchmark {benchmark}.", ("Source", "What decided", "Images"), rows, 1)


def rules(benchmark: str, artifacts: Path) -> Listing:
    """How many images each rule took."""
    rows = tuple((dataset, rule, f"{count:,}") for dataset, rule, count in _rules(benchmark, artifacts))
    return Listing(f"Every rule that decided in benchmark {benchmark}.", ("Source", "Rule", "Images"), rows, 1)


def detectors(runs: Sequence[Run]) -> Listing:
    """How good each detector is in distribution, and how often it is silent (FMIYC, Tables 1 and 3)."""
    rows = []
    for run in runs:
        if run.is_evaluated:
            silent = run.detector.get("no_detection", {})
            shares = ", ".join(f"{s.title} {percent(silent.get(s.name))}" for s in run.splits)
            values = (percent(run.detector.get("map50")), percent(run.detector.get("map")))
            threshold = run.detector.get("threshold")
            rows.append((run.name, run.adapter, *values, f"{threshold:.3f}" if threshold is not None else "—", shares))
    heads = ("Run", "Detector", "mAP50 (%)", "mAP (%)", "t*", "Images without any detection (%)")
    caption = "Detectors on their own ID test set, and how often they find nothing above t* in OOD images."
    return Listing(caption, heads, tuple(rows))


def thresholds(run: Run) -> Listing:
    """Parameters of each method, its threshold τ, and the share of ID test detections that it keeps."""
    rows = []
    for method in run.methods:
        details = run.evaluation.get("methods", {}).get(method, {})
        fitted = details.get("fitted", {})
        written = ", ".join(f"{key} = {_word(value)}" for key, value in fitted.get("params", {}).items())
        tau = details.get("tau")
        needs = ", ".join(fitted.get("needs", []))
        shown = (f"{tau:.6g}" if tau is not None else "—", percent(details.get("id_regions_kept")))
        rows.append((title_of(method), run.family(method), needs, written or "none", *shown))
    heads = ("Method", "Family", "Reads", "Parameters", "τ", "ID kept (%)")
    return Listing(f"{run.name}: methods as they were run.", heads, tuple(rows), numbers=2)


def inputs(run: Run) -> Listing:
    """What the figures of a run were computed from: names of contents, so that two reports can be told apart."""
    identity = run.evaluation.get("detector", {})
    rows = [("detector", str(key), _word(value)) for key, value in identity.items() if key != "vos_head"]
    for split, details in run.evaluation.get("splits", {}).items():
        rows += [(split, str(name), str(content)) for name, content in details.get("inputs", {}).items()]
    rows += [("evaluation", str(key), _word(value)) for key, value in run.evaluation.get("settings", {}).items()]
    return Listing(f"{run.name}: what the figures were computed from.", ("Part", "What", "Value"), tuple(rows))


def _curation(benchmark: str, artifacts: Path) -> dict[str, int]:
    file = artifacts / "metrics" / "curate" / f"{benchmark}.json"
    return read_json(file) if file.exists() else {}


def _rules(benchmark: str, artifacts: Path) -> Iterable[tuple[str, str, int]]:
    for key, count in _curation(benchmark, artifacts).items():
        dataset, colon, rule = key.partition(": ")
        if colon:
            yield dataset, rule, count


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {_word(part)}" for key, part in value.items()) or "none"
    return "none" if value is None else str(value)
