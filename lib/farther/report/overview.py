"""What went into the runs: datasets, curation, detectors, methods and their parameters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import farther
from farther.curation import PRECEDENCE
from farther.curation.fates import NO_NEAR, NO_OVERLAP
from farther.report.choices import remarks
from farther.report.results import Run, title_of
from farther.report.tables import ABSENT, percent
from farther.tables.files import digest, read_json

#: So many digits of the name of a content tell it from others.
SHORT = 12


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


def ran(runs: Sequence[Run]) -> Listing:
    """What ran: a row a run, evaluated or not."""
    rows = []
    for run in runs:
        images = sum(split.get("images", 0) for split in run.evaluation.get("splits", {}).values())
        quality = (percent(run.detector.get("map50")), str(len(run.methods) or ABSENT), f"{images:,}")
        rows.append((run.name, run.benchmark, run.adapter, run.weights, *quality))
    heads = ("Run", "Benchmark", "Detector", "Weights", "mAP50 (%)", "Methods", "Images tested")
    return Listing("Detectors on benchmarks.", heads, tuple(rows), numbers=3)


def checkpoints(runs: Sequence[Run], params: Mapping[str, Any]) -> Listing:
    """Names of the contents of each run's checkpoint and of the parameters that it was made with."""
    shared = {name: params.get(name) for name in ("inference", "threshold", "fit", "methods", "evaluate")}
    rows = []
    for run in runs:
        own = {"detector": params["detectors"][run.name], "benchmark": params["benchmarks"][run.benchmark]}
        written = json.dumps({**shared, **own}, sort_keys=True, default=str)
        weights = str(run.evaluation.get("detector", {}).get("weights_digest", ABSENT))
        rows.append((run.name, weights[:SHORT], digest(written)[:SHORT]))
    caption = f"Checkpoints, and parameters in params.yaml; made by farther {farther.__version__}."
    return Listing(caption, ("Run", "Checkpoint", "Parameters"), tuple(rows))


def tables_of_splits(runs: Sequence[Run]) -> Listing:
    """Names of the contents of each split's tables, as they were when the runs were evaluated."""
    rows: dict[tuple[str, ...], None] = {}
    for run in runs:
        for split, details in run.evaluation.get("splits", {}).items():
            inputs = details.get("inputs", {})
            named = (str(inputs.get(kind, ABSENT))[:SHORT] for kind in ("images", "objects"))
            rows[run.benchmark, split, *named] = None
    heads = ("Benchmark", "Split", "Table of images", "Table of objects")
    return Listing("Tables of images and of labelled objects.", heads, tuple(rows))


def methods(params: Mapping[str, Mapping[str, Any]], runs: Sequence[Run], summaries: Mapping[str, str]) -> Listing:
    """A row a line of section `methods`: what it is, and its mean AUROC and AP_U over all detectors and splits.

    Args:
        params: Section `methods` of params.yaml.
        runs: All runs.
        summaries: Line → what its method is.
    """
    rows = []
    for name in params:
        having = [run for run in runs if name in run.methods]
        families = dict.fromkeys(run.family(name) for run in having)
        values = (_mean([run.value(s.name, name, m) for run in having for s in run.splits]) for m in ("auroc", "ap_u"))
        shown = (percent(value) for value in values)
        label = having[0].label(name) if having else title_of(name)
        rows.append((label, ", ".join(families) or ABSENT, summaries[name].replace("`", ""), str(len(having)), *shown))
    heads = ("Method", "Family", "What it is", "Detectors", "Mean AUROC (%)", "Mean AP_U (%)")
    caption = "Methods; means over all detectors that they apply to, and all splits."
    return Listing(caption, heads, tuple(rows), numbers=3)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def as_run(runs: Sequence[Run], method: str) -> Listing:
    """Parameters of a method and its threshold τ, a row a detector."""
    rows = []
    for run in (run for run in runs if method in run.methods):
        details = run.evaluation.get("methods", {}).get(method, {})
        tau = details.get("tau")
        shown = (ABSENT if tau is None else f"{tau:.6g}", percent(details.get("id_regions_kept")))
        rows.append((run.name, parameters(run, method), *shown))
    heads = ("Detector", "Parameters", "τ", "ID kept (%)")
    caption = "Parameters, threshold τ, and the share of ID test detections that it keeps."
    return Listing(caption, heads, tuple(rows), numbers=2)


def datasets(artifacts: Path) -> Listing:
    """Images and objects of each ingested subset."""
    rows = []
    for file in sorted((artifacts / "metrics" / "ingest").glob("*/*.json")):
        counts = read_json(file)
        shown = (counts.get(key, 0) for key in ("images", "objects", "categories", "warnings"))
        rows.append((file.parent.name, file.stem, *(f"{count:,}" for count in shown)))
    heads = ("Dataset", "Subset", "Images", "Objects", "Categories", "Warnings")
    return Listing("Datasets, as ingested.", heads, tuple(rows), numbers=4)


def splits(benchmark: str, artifacts: Path) -> Listing:
    """Images and objects of each split of a benchmark (FMIYC, Table 2)."""
    counts = _curation(benchmark, artifacts)
    names = [key.removesuffix(".objects") for key in counts if key.endswith(".objects")]
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
    words = {
        "ID class": "removed: an ID class is labelled",
        "overlap": "removed: a category that overlaps with an ID class is labelled",
        "near": "near: a near category is labelled",
        "decision": "people decided",
        NO_NEAR: f"far: {NO_NEAR}",
        NO_OVERLAP: f"farther: {NO_OVERLAP}",
    }
    order: dict[str, int] = {kind: place for place, kind in enumerate(PRECEDENCE)}
    found = sorted(kinds, key=lambda key: (key[0], order.get(key[1], len(order)), key[1]))
    rows = tuple((dataset, words.get(kind, kind), f"{kinds[dataset, kind]:,}") for dataset, kind in found)
    caption = f"Why images stand where they do in benchmark {benchmark}."
    return Listing(caption, ("Source", "What decided", "Images"), rows, numbers=1)


def rules(benchmark: str, artifacts: Path) -> Listing:
    """How many images each rule took."""
    rows = tuple((dataset, rule, f"{count:,}") for dataset, rule, count in _rules(benchmark, artifacts))
    caption = f"Every rule that decided in benchmark {benchmark}."
    return Listing(caption, ("Source", "Rule", "Images"), rows, numbers=1)


def quality(run: Run) -> Listing:
    """What a detector is worth in distribution, as a table of one row."""
    found = run.evaluation.get("closed_set", {}).get("intervals", {})
    cells = []
    for ours, theirs in (("map50", "ap50"), ("map", "ap")):
        interval = found.get(theirs)
        bounds = "" if interval is None else f" ({percent(interval[0])} to {percent(interval[1])})"
        cells.append(percent(run.detector.get(ours)) + bounds)
    threshold = run.detector.get("threshold")
    shares = (percent(run.silent.get(split.name)) for split in run.splits)
    row = (*cells, ABSENT if threshold is None else f"{threshold:.3f}", *shares)
    heads = ("mAP50 (%)", "mAP (%)", "t*", *(f"Silent: {split.title} (%)" for split in run.splits))
    caption = (
        "Quality on the ID test set with 95% intervals, operating threshold t*, and the share of images without any "
        "detection above it."
    )
    return Listing(caption, heads, (row,), numbers=len(heads))


def detectors(runs: Sequence[Run]) -> list[Listing]:
    """How good the detectors of a benchmark are in distribution, how often they are silent (FMIYC, Tables 1 and 3)."""
    by_benchmark: dict[str, list[Run]] = {}
    for run in runs:
        by_benchmark.setdefault(run.benchmark, []).append(run)
    return [_detectors_of(benchmark, those) for benchmark, those in by_benchmark.items()]


def _detectors_of(benchmark: str, runs: Sequence[Run]) -> Listing:
    rows = []
    for run in runs:
        threshold = run.detector.get("threshold")
        precision = (percent(run.detector.get("map50")), percent(run.detector.get("map")))
        shares = (percent(run.silent.get(split.name)) for split in run.splits)
        rows.append((run.name, run.adapter, *precision, ABSENT if threshold is None else f"{threshold:.3f}", *shares))
    splits = [f"Silent: {split.title} (%)" for split in runs[0].splits]
    caption = (
        f"Detectors on benchmark {benchmark}: quality on the ID test set, operating threshold t*, and the share of "
        "images without any detection above it."
    )
    heads = ("Run", "Detector", "mAP50 (%)", "mAP (%)", "t*", *splits)
    return Listing(caption, heads, tuple(rows), numbers=len(heads) - 2)


def open_world(runs: Sequence[Run]) -> list[Listing]:
    """What unknown objects cost a detector, and how well it knows its own errors; [] where none was measured."""
    rows = []
    for run in runs:
        wild, aware = run.evaluation.get("wilderness"), run.evaluation.get("self_awareness")
        if wild and aware:
            impact = [wild["at_recall"][r]["average_impact"] for r in sorted(wild["at_recall"])]
            values = [wild["map_closed"], wild["map_open"], *impact, aware["lrp"], aware["laece"], aware["idq"]]
            recalls = sorted(wild["at_recall"])
            rows.append((run.name, *(percent(value) for value in values)))
    if not rows:
        return []
    heads = ("Run", "mAP closed", "mAP open", *(f"WI at recall {r}" for r in recalls), "LRP", "LaECE", "IDQ")
    caption = (
        "In an open world (%): mAP without and with OOD images, wilderness impact averaged over wilderness ratios "
        "(Dhamija et al., 2020; lower is better), and self-awareness (Oksuz et al., 2023): LRP and LaECE lower, IDQ "
        "higher is better."
    )
    return [Listing(caption, heads, tuple(rows), numbers=len(heads) - 1)]


def thresholds(run: Run) -> Listing:
    """Parameters of each method, its threshold τ, and the share of ID test detections that it keeps."""
    rows = []
    for method in run.methods:
        details = run.evaluation.get("methods", {}).get(method, {})
        fitted = run.fitted(method)
        needs = ", ".join(fitted.get("needs", []))
        tau = details.get("tau")
        shown = (f"{tau:.6g}" if tau is not None else ABSENT, percent(details.get("id_regions_kept")))
        rows.append((run.label(method), run.family(method), needs, parameters(run, method), *shown))
    heads = ("Method", "Family", "Reads", "Parameters", "τ", "ID kept (%)")
    return Listing(f"{run.name}: methods as they were run.", heads, tuple(rows), numbers=2)


def parameters(run: Run, method: str) -> str:
    """The parameters that a method was run with, and how they were chosen."""
    given = run.fitted(method).get("params", {})
    written = ", ".join(f"{key} = {_word(value)}" for key, value in given.items()) or "none"
    return "; ".join([written, *remarks(run, method)])


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
