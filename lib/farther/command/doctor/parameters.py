"""Checks of params.yaml for `farther doctor`: all that would stop a stage and is known before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from farther.command.doctor.machine import Finding
from farther.command.project import Project, make_detector
from farther.errors import DataError, FartherError, ParameterError, choose, shorten

#: What an entry of section `detectors` may have.
OF_DETECTOR = ("title", "adapter", "benchmark", "weights", "params", "classes", "threshold", "passes")

#: The folders of decisions, which `curate` depends on, and of rules, of which `code` takes digests.
DECISIONS, RULES = Path("data/decisions"), Path("data/benchmarks")


def parameters(project: Project) -> list[Finding]:
    """One finding for each entry that no stage would accept, or one for all where there is none."""
    found: dict[tuple[str, str], None] = {}
    for name, check in _checks(project):
        try:
            check()
        except FartherError as error:
            found[name, str(error)] = None
        except (AttributeError, KeyError, TypeError, ValueError):  # a text or a number where an entry belongs
            found[name, "not of the form that the stages expect; compare it with the documentation"] = None
    wrong = [Finding("parameters", name, "wrong", text) for name, text in found]
    return wrong or [Finding("parameters", str(project.file), "ok", "names and values are known")]


def _checks(project: Project) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The name of each entry, and a function that raises where it is wrong."""
    from farther.detectors.inference import InferenceParams
    from farther.evaluation.choice import Budget
    from farther.evaluation.settings import EvaluationSettings
    from farther.evaluation.threshold import ThresholdSettings
    from farther.registry import build
    from farther.report.settings import ReportSettings
    from farther.scoring.inputs import FitSettings
    from farther.similarity import EmbedParams, EncoderParams, StratifyParams

    for name in project.section("datasets"):
        yield f"datasets.{name}", partial(_dataset, project, name)
    for name in project.section("benchmarks"):
        for check in (_benchmark, _rules, _decisions, _sources, _subsets):
            yield f"benchmarks.{name}", partial(check, project, name)
    for name, values in project.section("methods").items():
        yield f"methods.{name}", partial(_method, project, name, values)
    for name in project.section("detectors"):
        for check in (_detector, _benchmark_of):
            yield f"detectors.{name}", partial(check, project, name)
    sections: dict[str, type] = {
        "inference": InferenceParams,
        "threshold": ThresholdSettings,
        "fit": FitSettings,
        "evaluate": EvaluationSettings,
        "deploy": Budget,
        "report": ReportSettings,
    }
    for name, cls in sections.items():
        yield name, partial(_section, project, name, cls)
    if embed := project.section("embed"):
        yield "embed.encoder", lambda: build(EncoderParams, "embed.encoder", dict(embed.get("encoder") or {}))
        yield "embed.images", lambda: build(EmbedParams, "embed.images", dict(embed.get("images") or {}))
    stratify = {key: value for key, value in project.section("stratify").items() if key != "wordnet"}
    yield "stratify", lambda: build(StratifyParams, "stratify", stratify)
    yield from ((f"derived.{kind}.{name}", check) for kind, name, check in _derived(project))
    yield "report", partial(_report, project)


def _section(project: Project, name: str, cls: type) -> None:
    from farther.registry import build

    build(cls, name, dict(project.section(name)))


def _dataset(project: Project, name: str) -> None:
    from farther import datasets

    datasets.create(**(project.section("datasets")[name] or {}))


def _benchmark(project: Project, name: str) -> None:
    made, known = project.benchmark(name), project.section("datasets")
    derived = made.derived_splits.values()
    used = {made.id, *(dataset for dataset, _ in made.id_sources.values())}
    used |= {split.dataset for split in (*made.splits.values(), *derived)}
    for dataset in sorted(used):
        choose("dataset", dataset, known)


def _rules(project: Project, name: str) -> None:
    """The rules file, the names in it, and the vocabulary of each split."""
    from farther.curation import IdSplit, Rules

    made = project.benchmark(name)
    if not made.rules.is_relative_to(RULES):
        raise DataError(f"rules files belong into {RULES}, which stage `code` depends on", file=made.rules)
    rules = Rules(project.folder / made.rules, made.protocol)
    _ = rules.similarity  # opens WordNet where the rules use it
    shifted = [split for split in made.shifted.values() if split.classes == "by rules"]
    ruled = [split for split in made.splits.values() if split.assigned == "by rules"]
    others = [split for split in made.subsets.values() if isinstance(split, IdSplit)]
    for vocabulary in dict.fromkeys(split.names for split in (*ruled, *shifted, *others)):
        rules.of(vocabulary)


def _decisions(project: Project, name: str) -> None:
    from farther.curation import DecisionsFile
    from farther.curation.decisions import HEADER

    path = project.benchmark(name).decisions
    if path is None:
        return
    if not path.is_relative_to(DECISIONS):
        raise DataError(f"decisions belong into {DECISIONS}, which `curate` depends on", file=path)
    if not (project.folder / path).is_file():
        problem = f"the file does not exist: leave `decisions` out, or write a file with the line {HEADER.strip()}"
        raise DataError(problem, file=path)
    DecisionsFile(project.folder / path).read()


def _sources(project: Project, name: str) -> None:
    """Files of candidates, which the splits name."""
    for split in project.benchmark(name).splits.values():
        if split.candidates is not None and not (project.folder / split.candidates).is_file():
            raise DataError("the file does not exist; `farther enrich` writes it", file=split.candidates)


def _subsets(project: Project, name: str) -> None:
    """The ID splits that methods are fitted on, calibrated on and evaluated against."""
    made = project.benchmark(name)
    fit, evaluate = project.section("fit"), project.section("evaluate")
    for section, key, split in (
        ("fit", "split", fit.get("split", "train")),
        ("fit", "calibration_split", fit.get("calibration_split", "val")),
        ("evaluate", "id_split", evaluate.get("id_split", "test")),
        ("evaluate", "calibration_split", evaluate.get("calibration_split", "val")),
    ):
        if split not in made.subsets:
            known = ", ".join(made.subsets)
            raise ParameterError(f"{section}.{key} is {split!r}, which is not an ID split. Known: {known}")


def _method(project: Project, name: str, values: Any) -> None:
    from farther.scoring.entries import read_entry

    entry = read_entry(name, values or {})
    if (choice := entry.search or entry.oracle) is None:
        entry.create()
    else:
        for benchmark in project.section("benchmarks"):
            choose(f"OOD split of {benchmark}", choice.ood_split, project.benchmark(benchmark).splits)


def _detector(project: Project, name: str) -> None:
    from farther.detectors.passes import read_passes
    from farther.evaluation.threshold import ThresholdSettings
    from farther.registry import build

    entry = project.section("detectors")[name]
    if not isinstance(entry, Mapping):
        raise ParameterError(f"expected {{adapter, benchmark, weights}}, found {shorten(entry)}")
    for key in entry:
        choose("parameter of a detector", str(key), OF_DETECTOR)
    make_detector(entry)
    read_passes(name, entry.get("passes"), project.encoder)
    build(ThresholdSettings, "threshold", {**project.section("threshold"), **(entry.get("threshold") or {})})


def _benchmark_of(project: Project, name: str) -> None:
    project.benchmark(str(project.section("detectors")[name].get("benchmark")))


def _derived(project: Project) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    from farther.derived import derived

    for kind, entries in project.section("derived").items():
        for name, values in (entries or {}).items():
            yield kind, name, partial(derived, kind, name, values)


def _report(project: Project) -> None:
    section = project.section("report")
    if section.get("method") is not None:
        choose("method", str(section["method"]), project.section("methods"))
    for name, runs in (section.get("seeds") or {}).items():
        for run in runs:
            choose(f"run of report.seeds.{name}", str(run), project.section("detectors"))


def id_classes(project: Project, benchmark: str) -> tuple[str, ...]:
    """Names of the ID classes of a benchmark, by its rules file."""
    from farther.curation import Rules

    made = project.benchmark(benchmark)
    return Rules(project.folder / made.rules, made.protocol).id_classes
