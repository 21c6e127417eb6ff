"""Projects of the version whose dvc.yaml has one stage `evaluate`, without `fit` and `score`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farther.errors import FartherError, first_line
from farther.params import read_params
from farther.pipeline import adoption
from farther.tables.documents import read_yaml
from farther.tables.files import digest
from farther.tables.folders import files_below

#: Where the stage `code` writes digests: as DVC names the file.
_CODE = "artifacts/code.json"


@dataclass(frozen=True)
class KeptStage:
    """A stage of the earlier version that may not have to run again.

    Args:
        address: As DVC calls it: `infer@voc-vos`.
        reason: Why it runs again; None where its results are kept.
    """

    address: str
    reason: str | None = None


def is_earlier(stages: Mapping[str, Any]) -> bool:
    """Whether the stages of a dvc.yaml are those of the earlier version."""
    return "evaluate" in stages and "fit" not in stages


def adopt_results(folder: Path) -> list[KeptStage]:
    """Has this version keep regions and embeddings that only code changed for.

    Args:
        folder: The project's folder, with the dvc.yaml of the earlier version; DVC is asked what
            changed since.

    Returns:
        `infer` of each run, and `embed` where the project has it. Nothing where dvc.yaml is absent
        or of this version.
    """
    file = folder / "dvc.yaml"
    if not file.is_file():
        return []
    stages = (read_yaml(file) or {}).get("stages") or {}
    if not is_earlier(stages):
        return []
    entries = read_params(folder / "params.yaml").get("detectors") or {}
    run_by_address: dict[str, str | None] = {f"infer@{run}": run for run in entries}
    if "embed" in stages:
        run_by_address["embed"] = None
    try:
        changes_by_address = _changes(folder, list(run_by_address))
    except FartherError as error:
        return [KeptStage(address, str(error)) for address in run_by_address]
    kept_stages = []
    for address, run in run_by_address.items():
        reason = _reason(changes_by_address.get(address, []))
        if reason is None and run is not None and _proposals_changed(folder, run, entries[run]):
            reason = f"detectors.{run}.proposals: a file changed"
        if reason is None:
            try:
                adoption.adopt(folder, address.partition("@")[0], run)
            except FartherError as error:
                reason = str(error)
        kept_stages.append(KeptStage(address, reason))
    return kept_stages


def _changes(folder: Path, addresses: list[str]) -> dict[str, list[Any]]:
    """What changed of each stage since it ran, as `dvc status` has it; no entry where nothing did.

    Raises:
        FartherError: DVC cannot tell.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo(str(folder)) as repo:
            return repo.status(targets=addresses)
    except DvcException as error:
        raise FartherError(f"DVC cannot say what changed: {first_line(error)}") from None


def _reason(changes: list[Any]) -> str | None:
    """The first change of a stage that is not one of code; None where there is none."""
    for change in changes:
        if not isinstance(change, dict):
            return str(change)
        for kind, items in change.items():
            for path, state in items.items():
                if path != _CODE:
                    return f"{kind}: {_first_name(path, state)}"
                if not isinstance(state, dict):
                    return f"{kind}: {path}"
                # Below `rules` are digests of files that users write.
                rules = [key for key in state if key.startswith("rules.")]
                if rules:
                    return f"{kind}: {rules[0]}"
    return None


def _first_name(path: str, state: Any) -> str:
    """A file, or the first of its parameters that changed."""
    if isinstance(state, dict):
        return f"{path}: {next(iter(state))}"
    return path


def _proposals_changed(folder: Path, run: str, entry: Mapping[str, Any]) -> bool:
    """Whether files of proposals differ from those that the run's regions were made with.

    The earlier version stored a digest of them in artifacts/code.json, which is made anew only when
    its stage `code` runs.
    """
    files = []
    for source in (entry.get("proposals") or {}).values():
        if isinstance(source, Mapping) and source.get("file"):
            path = folder / str(source["file"])
            files.extend(sorted(files_below(path)) if path.is_dir() else [path])
    if not files:
        return False
    lock = read_yaml(folder / "dvc.lock")
    params = lock["stages"][f"infer@{run}"]["params"]
    recorded = params.get(_CODE, {}).get(f"rules.detectors.{run}")
    return recorded != digest(*(file for file in files if file.is_file()))
