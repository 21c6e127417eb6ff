"""Checks of datasets for `farther doctor`: what is missing, what `ingest` would refuse, and damaged images."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from farther.command.doctor.machine import Finding
from farther.command.project import IMPORTED, Project
from farther.errors import DataError

if TYPE_CHECKING:
    from farther.datasets import Checked, Missing

    #: What was found in each subset of a dataset.
    Found: TypeAlias = dict[tuple[str, str], Checked]

#: The folder that stages write, datasets of the demo included.
ARTIFACTS = "artifacts"


def datasets(project: Project, found: Found | None = None) -> list[Finding]:
    """One finding per file or folder that a dataset lacks, or one for a complete dataset, and one for damaged images.

    Args:
        project: The project.
        found: Read the annotations where they are small, as `ingest` does, and look at images; takes what was found.
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
            named = (project.section("sources").get("datasets") or {}).get(name)
            findings += [_absent(one, str(params["format"]), Path(params["root"]), named) for one in lacking]
        else:
            findings += _opened(project, name, params, needed.get(name, set()), found)
    return findings


def _opened(
    project: Project, name: str, params: Mapping[str, Any], subsets: Set[str], found: Found | None
) -> list[Finding]:
    """What `ingest` would refuse in a dataset whose files are there, and its damaged images."""
    from farther.datasets import check_subset, create

    complete = Finding("datasets", name, "ok", f"at {params['root']}")
    if found is None:
        return [complete]
    try:
        reader = create(**params)
        read = reader.subsets()
        if absent := sorted(subsets - set(read)):
            problem = f"a benchmark uses the subset {absent[0]!r}, but only {', '.join(read)} are read"
            return [replace(complete, state="wrong", text=problem)]
        checked = {subset: check_subset(reader, subset) for subset in read}
    except DataError as error:
        return [replace(complete, state="wrong", text=str(error))]
    found.update({(name, subset): one for subset, one in checked.items()})
    if problem := next((one.problem for one in checked.values() if one.problem), ""):
        return [replace(complete, state="wrong", text=problem)]
    damaged = [finding for subset, one in checked.items() for finding in _damaged(project, name, subset, one)]
    return [complete, *damaged] if all(one.state == "note" for one in damaged) else damaged


def _damaged(project: Project, name: str, subset: str, checked: Checked) -> Iterator[Finding]:
    """Images of a subset that `ingest` or `infer` will leave out; wrong where these are more than `infer` allows."""
    from farther.detectors.inference import InferenceParams

    limit = float(project.section("inference").get("max_failures", InferenceParams().max_failures))
    runs = project.section("detectors").values()
    opens = any(run.get("adapter") not in IMPORTED for run in runs)  # imported detections need no image
    for stage, damaged in (("ingest", checked.not_images), ("infer", checked.broken)):
        if not damaged:
            continue
        path, reason = next(iter(damaged.items()))
        text = f"{path}: {reason} ({len(damaged)} of {checked.looked_at} images of {subset} that were looked at). "
        if stage == "infer" and opens and len(damaged) > limit * checked.looked_at:
            text += f"These are more than max_failures = {limit:g} allows: replace or delete them"
            yield Finding("datasets", name, "wrong", text)
        else:
            text += f"`{stage}` leaves them out" if stage == "ingest" or opens else "Only detectors would open them"
            yield Finding("datasets", name, "note", text)


def _absent(missing: Missing, format: str, root: Path, named: str | None) -> Finding:
    """A finding about a missing file; `named`: its source as the parameters name it."""
    from farther.datasets.sizes import bytes_of

    inner = [Path(os.path.relpath(path, root)).as_posix() for path in missing.paths]
    text = missing.what + (f" ({', '.join(missing.subsets)})" if missing.subsets else "")
    more = {"belongs at": " or ".join(map(str, missing.paths)), "comes from": named or missing.source}
    return Finding("datasets", missing.dataset, "missing", text, more, bytes_of(format, inner, missing.subsets))
