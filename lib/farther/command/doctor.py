"""`farther doctor`: what is missing to run what params.yaml asks for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farther.command.machine import Finding
from farther.command.output import as_json, coloured, hanging, paragraph, size
from farther.command.project import IMPORTED, PARAMS, Json, Params, Project, make_detector, option
from farther.errors import DataError, FartherError

if TYPE_CHECKING:
    from farther.datasets import Missing

#: States of findings that keep something from running.
PROBLEMS = ("missing", "wrong")

#: The folder that stages write, datasets of the demo included.
ARTIFACTS = "artifacts"

#: Where a checkpoint comes from if section `sources` does not name it.
ELSEWHERE = "your own training (docs/training.md), or the detector's authors"


def doctor(
    params: Params = PARAMS,
    json: Json = False,
    quick: Annotated[bool, typer.Option("--quick", help="Look for checkpoints without opening them.")] = False,
    estimate: Annotated[bool, typer.Option("--estimate", help="Measure a sample; estimate time and disk.")] = False,
    sample: Annotated[int, option("N", "Number of images to measure.")] = 32,
    run: Annotated[list[str] | None, option("RUN", "Run to estimate, repeatable.", "detectors")] = None,
) -> int:
    """List what is missing to run; estimate time and disk.

    Checks the parameters; the Python packages behind the names in them; the files of datasets, where they belong,
    where they come from and about how large they are; checkpoints, which are opened as `infer` opens them; free disk
    space; the GPU; git and DVC. With --estimate, a sample of the images goes through the detectors and methods, to
    estimate how long the whole run takes and how much it writes.

    \b
    Examples:
      farther doctor
      farther doctor --params profiles/fmiyc.yaml    # before you switch to it
      farther doctor --quick --json                  # opens no checkpoint
      farther doctor --estimate --sample 64 --run voc-vos
    """
    project = Project(params)
    if estimate:
        from farther.command import estimate as costs

        found = costs.estimate(project, sample, run)
        print(as_json({**costs.totals(found), "stages": [vars(one) for one in found]}) if json else costs.report(found))
        return 0
    findings = examine(project, quick=quick)
    problems = sum(finding.state in PROBLEMS for finding in findings)
    if json:
        listed = [{**vars(one), **one.more} for one in findings]
        print(as_json({"missing": problems, "findings": [{k: v for k, v in o.items() if k != "more"} for o in listed]}))
    else:
        print(_shown(findings, problems))
    return 1 if problems else 0


def examine(project: Project, *, quick: bool = False) -> list[Finding]:
    """All findings about a project; `quick` opens neither annotations nor checkpoints, and tests no GPU."""
    from farther.command import machine
    from farther.command.packages import packages
    from farther.command.parameter_checks import parameters
    from farther.command.pipeline_checks import pipeline

    findings = [*pipeline(project), *parameters(project)]
    data: list[Finding] = []
    topics: dict[str, Callable[[], Sequence[Finding]]] = {
        "packages": lambda: packages(project),
        "datasets": lambda: data.extend(datasets(project, opened=not quick)) or data,  # type: ignore[func-returns-value]
        "checkpoints": lambda: checkpoints(project, opened=not quick),
        "warnings": lambda: warnings(project),
        "disk": lambda: machine.disk(project, data),
        "GPU": lambda: [] if quick else machine.gpu(project),
    }
    for topic, check in topics.items():
        try:
            findings += check()
        except (FartherError, AttributeError, KeyError, TypeError, ValueError):
            if not any(finding.state in PROBLEMS for finding in findings):
                raise
            findings.append(Finding(topic, "not checked", "note", "correct what is wrong above first"))
    return [*findings, *machine.repository(project)]


def _shown(findings: Sequence[Finding], problems: int) -> str:
    lines: list[str] = []
    for topic in dict.fromkeys(finding.topic for finding in findings):
        lines += ["", coloured(topic.capitalize() if topic.islower() else topic, "head")]
        for finding in (one for one in findings if one.topic == topic):
            about = f", about {size(finding.bytes)}" if finding.bytes else ""
            text = paragraph(f"{finding.name}: {finding.text}{about}", 10).strip()
            lines.append(f"  {coloured(finding.state.ljust(8), finding.state)}{text}")
            lines += [hanging(f"{name:<11} {value}", 12, 24) for name, value in finding.more.items()]
    total = sum(finding.bytes for finding in findings)
    about = f", about {size(total)} to fetch" if total else ""
    result = f"{problems} missing or wrong{about}." if problems else "Nothing is missing."
    return "\n".join([*lines[1:], "", coloured(result, "missing" if problems else "ok")])


def datasets(project: Project, *, opened: bool = False) -> list[Finding]:
    """One finding per file or folder that a dataset lacks, or one for a complete dataset.

    Args:
        project: The project.
        opened: Read the annotations where they are small, as `ingest` does, and look whether their images exist.
    """
    from farther.curation import subsets_used
    from farther.datasets import missing

    needed = subsets_used(project.section("benchmarks"))
    findings = []
    for name, params in project.section("datasets").items():
        root = Path(str(params.get("root", "")))
        if not root.is_absolute():
            params = {**params, "root": str(project.folder / root)}
        lacking = missing({name: params}, {name: needed.get(name, set())})
        if root.is_relative_to(ARTIFACTS):
            text = "the pipeline will write it" if lacking else f"at {root}, written by the pipeline"
            findings.append(Finding("datasets", name, "ok", text))
        elif lacking:
            findings += [_absent(one, str(params["format"]), Path(params["root"])) for one in lacking]
        elif problem := _problem(params, needed.get(name, set())) if opened else "":
            findings.append(Finding("datasets", name, "wrong", problem))
        else:
            findings.append(Finding("datasets", name, "ok", f"at {root}"))
    return findings


def _problem(params: Mapping[str, Any], subsets: Set[str]) -> str:
    """What `ingest` would refuse in a dataset, or "" where that is nothing or too large to look."""
    from farther.datasets import create, unreadable

    try:
        reader = create(**params)
        read = reader.subsets()
        if absent := sorted(subsets - set(read)):
            return f"a benchmark uses the subset {absent[0]!r}, but only {', '.join(read)} are read"
        return next((problem for subset in read if (problem := unreadable(reader, subset))), "")
    except DataError as error:
        return str(error)


def warnings(project: Project) -> list[Finding]:
    """What `ingest` and `curate` warned about when they ran last, and methods whose pass no run has."""
    from farther.tables.files import read_json

    findings = []
    for name in project.section("datasets"):
        file = project.artifacts / "tables" / name / "warnings.json"
        counts = read_json(file)["counts"] if file.is_file() else {}
        findings += [
            Finding("warnings", name, "note", f"{kind} ({count}): see {file}") for kind, count in counts.items()
        ]
    for name in project.section("benchmarks"):
        file = project.artifacts / "splits" / name / "warnings.json"
        texts = read_json(file)["warnings"] if file.is_file() else []
        findings += [Finding("warnings", name, "note", text) for text in texts]
    passes = {name for run in project.section("detectors").values() for name in run.get("passes") or {}}
    for name, values in project.section("methods").items():
        wanted = (values or {}).get("pass")
        if wanted is not None and wanted not in passes:
            findings.append(Finding("warnings", f"methods.{name}", "note", f"no run has a pass {wanted!r}"))
    return findings


def _absent(missing: Missing, format: str, root: Path) -> Finding:
    from farther.datasets.sizes import bytes_of

    inner = [Path(os.path.relpath(path, root)).as_posix() for path in missing.paths]
    text = missing.what + (f" ({', '.join(missing.subsets)})" if missing.subsets else "")
    more = {"belongs at": " or ".join(map(str, missing.paths)), "comes from": missing.source}
    return Finding("datasets", missing.dataset, "missing", text, more, bytes_of(format, inner, missing.subsets))


NOT_OPENED = " (not opened)"
#: Adapters whose `weights` may be the name of a model on the hub.
FROM_HUB = ("detr", "transformers_classifier", "open_clip_classifier")


def checkpoints(project: Project, *, opened: bool = True) -> list[Finding]:
    """One finding per run, and one for the image encoder that section `embed` names."""
    sources = project.section("sources")
    entries = project.section("detectors").items()
    found = []
    for name, entry in entries:
        finding = _checkpoint(name, entry, str(sources.get(name, ELSEWHERE)), opened=opened)
        found.append(_compared(project, entry, finding) if finding.state == "ok" else finding)
    return [*found, *_embedder(project, str(sources.get("embed", "open_clip's models on the hub")))]


def _embedder(project: Project, source: str) -> list[Finding]:
    """The weights that section `embed` names; they are not opened."""
    weights = project.section("embed").get("weights")
    if weights is None:
        return []
    if Path(str(weights)).exists():
        return [Finding("checkpoints", "embed", "ok", f"{weights} (not opened)")]
    more = {"belongs at": str(weights), "comes from": source}
    return [Finding("checkpoints", "embed", "missing", "weights of the image encoder", more)]


def _compared(project: Project, entry: Mapping[str, Any], finding: Finding) -> Finding:
    """The finding on a checkpoint that could be opened, or what is wrong with its classes."""
    from farther.command.parameter_checks import id_classes
    from farther.detectors.known_classes import check_classes

    if finding.text.endswith(NOT_OPENED):
        return finding
    try:
        header = make_detector(entry).header()
        absent = check_classes(header, entry.get("classes"), id_classes(project, str(entry.get("benchmark"))))
    except FartherError as error:
        return replace(finding, state="wrong", text=str(error))
    more = f"; it does not have the ID classes {', '.join(absent)}" if absent else ""
    return replace(finding, text=finding.text + more)


def _checkpoint(name: str, entry: Mapping[str, Any], source: str, *, opened: bool) -> Finding:
    weights = Path(str(entry.get("weights", "")))
    config = (entry.get("params") or {}).get("config")  # a folder beside the weights
    lacking = [path for path in (weights, *([] if config is None else [Path(str(config))])) if not path.exists()]
    # The name may be a model's on the hub: owner/name, without the ending of a file.
    named = len(weights.parts) == 2 and weights.suffix in ("", weights.name)
    of_hub = entry.get("adapter") in FROM_HUB and named
    if lacking == [weights] and of_hub:
        return Finding("checkpoints", name, "note", f"{weights}: a model of the hub, fetched when `infer` runs")
    if lacking:
        more = {"belongs at": ", ".join(map(str, lacking)), "comes from": source}
        return Finding("checkpoints", name, "missing", f"{entry.get('adapter')} checkpoint", more)
    try:
        detector = make_detector(entry)
        if not opened and detector.name not in IMPORTED:
            return Finding("checkpoints", name, "ok", f"{weights}{NOT_OPENED}")
        header = detector.header()
    except ModuleNotFoundError as error:
        return Finding("checkpoints", name, "note", f"{weights}: cannot be opened without the package {error.name}")
    except FartherError as error:
        return Finding("checkpoints", name, "wrong", str(error), {"comes from": source})
    layer = "" if header.weight is None else f", last layer {header.weight.shape[0]}×{header.weight.shape[1]}"
    return Finding("checkpoints", name, "ok", f"{weights}: {len(header.known_classes)} classes{layer}")
