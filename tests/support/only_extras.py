"""An environment in which only what some of farther's extras install can be imported.

Nothing is installed or uninstalled: `sitecustomize` on PYTHONPATH hides the other packages from
every Python process, those that it starts included.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]

#: What Python runs when it starts. Hidden packages are absent for imports, for
#: `importlib.util.find_spec` and for `importlib.metadata`.
HOOK = """\
import sys

HIDDEN_MODULES = {modules!r}
HIDDEN_DISTRIBUTIONS = {distributions!r}


class Visible:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN_MODULES:
            return None
        return self.finder.find_spec(name, path, target)

    def find_distributions(self, *context):
        find = getattr(self.finder, "find_distributions", None)
        for distribution in find(*context) if find else ():
            name = distribution.metadata["Name"].lower().replace("_", "-").replace(".", "-")
            if name not in HIDDEN_DISTRIBUTIONS:
                yield distribution


sys.meta_path[:] = [Visible(finder) for finder in sys.meta_path]
"""


def environment(folder: Path, *extras: str) -> dict[str, str]:
    """Variables for processes in which only farther with some of its extras seems to be installed.

    Args:
        folder: A new folder, for the hook.
        extras: Names of extras; none for farther alone.
    """
    installed = installed_by(*extras)
    hidden_distributions = _distributions() - installed
    hidden_modules = {module for module, names in _modules().items() if not names & installed}
    folder.mkdir(parents=True)
    hook = HOOK.format(modules=hidden_modules, distributions=hidden_distributions)
    (folder / "sitecustomize.py").write_text(hook, encoding="utf-8")
    paths = [str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def installed_by(*extras: str) -> set[str]:
    """Distributions that `pip install "farther[EXTRAS]"` installs, as pyproject.toml has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    wanted = [Requirement(line) for line in project["dependencies"]]
    wanted.append(Requirement(f"farther[{','.join(extras)}]"))
    extras_by_name: dict[str, set[str]] = {}
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        new = {"", *requirement.extras} - extras_by_name.get(name, set())
        if not new:
            continue
        extras_by_name.setdefault(name, set()).update(new)
        if name == "farther":
            for extra in new - {""}:
                wanted += [Requirement(line) for line in optional[extra]]
        else:
            wanted += _required(name, new)
    return set(extras_by_name)


def _required(name: str, extras: Iterable[str]) -> list[Requirement]:
    """What a distribution requires here, with some of its extras."""
    try:
        lines = metadata.requires(name) or []
    except metadata.PackageNotFoundError:  # of another system
        return []
    required = []
    for requirement in map(Requirement, lines):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
            required.append(requirement)
    return required


@cache
def _distributions() -> set[str]:
    return {canonicalize_name(each.metadata["Name"]) for each in metadata.distributions()}


@cache
def _modules() -> dict[str, set[str]]:
    """The distributions of each top-level module."""
    return {
        module: {canonicalize_name(name) for name in names}
        for module, names in metadata.packages_distributions().items()
    }
