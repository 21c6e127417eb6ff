"""What `farther repro` checks before it starts: what `farther doctor` checks that takes no time."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farther.command.doctor.inspection import Inspection
from farther.command.doctor.machine import conflict_in
from farther.command.project import Project
from farther.errors import PROBLEMS, DataError, FartherError, Finding, ParameterError, refused
from farther.pipeline.stages import STAGES

if TYPE_CHECKING:
    from farther.pipeline.stages import Stage

#: Sections whose entries are repeated stages: a stage that is named needs one of them.
REPEATED = ("datasets", "detectors", "enrich")
#: Topics of findings that are named after such an entry alone.
TOPICS = ("datasets", "checkpoints")


def refuse(project: Project, targets: Sequence[str] = ()) -> None:
    """Refuses a project whose stages would refuse it, with the sentences of `farther doctor`.

    Names and types of parameters are checked, and whether files and folders exist; none is opened.
    Nothing is checked where the stage `code` has run with these parameters and files, and of a
    dvc.yaml without farther's stages.

    Args:
        project: The project.
        targets: Names of the stages to run; all where there are none. Then entries that they do not
            name may be wrong.

    Raises:
        FartherError: there is no project, or something in it is missing or wrong.
    """
    stages = _stages(project)
    conflict = conflict_in(project.folder / "dvc.lock")
    if conflict is not None:
        raise DataError(conflict)
    own_stages = list(_own_stages(stages))
    if not own_stages or _was_checked(project):
        return
    for find in (_findings, _of_new_runs):
        sentences: dict[str, str] = {}
        for finding in find(project, own_stages):
            if finding.state in PROBLEMS and _concerns(finding, targets):
                sentences.setdefault(finding.text, _sentence(finding))
        if sentences:
            raise ParameterError("\n".join(sentences.values()))


def _was_checked(project: Project) -> bool:
    """Whether code, parameters and the files that they name are those of the last stage `code`."""
    from farther.incremental.stage_digests import StageDigests
    from farther.params import read_params
    from farther.tables.documents import read_json

    try:
        stored = read_json(project.artifacts / "code.json")
        scripts = [Path(script) for script in stored.get("scripts", ())]
        digests = StageDigests(read_params(project.file), scripts).all()
    except (AttributeError, FartherError):
        return False
    return all(stored.get(name) == digest for name, digest in digests.items())


def _stages(project: Project) -> dict[str, Any]:
    """The stages of dvc.yaml.

    Raises:
        DataError: params.yaml or dvc.yaml is absent, or not readable.
    """
    from farther.tables.documents import read_yaml

    if not project.file.is_file():
        advice = "run this in a project's folder; `farther init` makes one"
        raise DataError(f"the file does not exist: {advice}", file=project.file)
    absent = "the file does not exist: `farther init --pipeline` writes it"
    content = read_yaml(project.folder / "dvc.yaml", absent)
    if not isinstance(content, dict):
        return {}
    return content.get("stages") or {}


def _own_stages(stages: dict[str, Any]) -> Iterator[Stage]:
    """The stages of dvc.yaml that run farther's modules or scripts."""
    for stage in STAGES:
        for name in stage.section_by_dvc_name:
            entry = stages.get(name)
            if isinstance(entry, dict):
                command = str(entry.get("do", entry).get("cmd"))
                if "farther.pipeline" in command or f"stages/{stage.script}" in command:
                    yield stage
                    break


def _findings(project: Project, stages: Sequence[Stage]) -> list[Finding]:
    """What `farther doctor` says of dvc.yaml, and of what stages read."""
    from farther.command.doctor.pipeline import pipeline

    findings = pipeline(project)
    failures = []
    inspection = Inspection(project.params, quick=True, opens_nothing=True)
    for name in [name for stage in stages for name in stage.checks]:
        module = import_module(f"farther.command.doctor.{name}")
        try:
            findings.extend(module.check(inspection))
        except FartherError as error:
            failures.append(Finding("parameters", str(project.file), "wrong", str(error)))
        except (AttributeError, KeyError, TypeError, ValueError, ModuleNotFoundError):
            continue  # another check says what is wrong, or the stage does
    if any(finding.state in PROBLEMS for finding in findings):
        return findings
    return findings + failures


def _of_new_runs(project: Project, stages: Sequence[Stage]) -> list[Finding]:
    """What is wrong with the parameters of adapters, of runs without results.

    To check these, the framework of an adapter is imported, by another process: its modules take
    memory, which stages need. `infer` of a run with results starts at once, and says the same.
    """
    entries = {}
    if any(stage.name == "infer" for stage in stages):
        for run, entry in project.section("detectors").items():
            if not (project.artifacts / "regions" / run).is_dir():
                entries[run] = entry
    if not entries:
        return []
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=_ignore_interrupts) as pool:
        return pool.submit(_refused_entries, entries, project.encoder).result()


def _ignore_interrupts() -> None:
    """Has this process leave Ctrl-C to its parent, which waits for it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _refused_entries(entries: Mapping[str, Any], encoder: Any) -> list[Finding]:
    """Findings on entries of the section `detectors`; see `check_entry`."""
    from farther.detectors.check import check_entry

    findings = []
    for run, entry in entries.items():
        with suppress(ModuleNotFoundError):  # the stage says which package to install
            findings += refused(f"detectors.{run}", partial(check_entry, run, entry, encoder))
    return findings


def _concerns(finding: Finding, targets: Sequence[str]) -> bool:
    """Whether a finding is about what stages read; where none is named, every finding is."""
    if not targets:
        return True
    section, _, name = finding.name.partition(".")
    if finding.topic in TOPICS:
        name = finding.name
    elif section not in REPEATED:
        return finding.topic != "pipeline"
    named = [target.partition("@")[2] for target in targets]
    return name in named


def _sentence(finding: Finding) -> str:
    """A finding as `farther doctor` prints it."""
    text = finding.text
    if finding.state == "missing" and finding.topic in TOPICS:
        text = f"missing: {text}"
    text = f"{finding.name}: {text.removeprefix(f'{finding.name}: ')}"
    for name, value in finding.more.items():
        text += f"; {name} {value}"
    return text
