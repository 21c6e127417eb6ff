"""The order of methods by what they add to the detector, the cheapest first.

It follows from the fitted methods alone, so that every machine has the same order: first the
methods that need no extra inference, among these those of a smaller fitted state (kNN's stored
regions, covariances), and among equal ones those that read the confidence alone. Methods that are
still equal are in the order of their names. Added latencies, which differ between machines, are on
the report's page *Deploy*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from farther.evaluation.paths import RunFiles
from farther.evaluation.results import FittedMethod
from farther.scoring.fitted import read_entries

#: File with the arrays of a fitted method.
STATE = "state.safetensors"

#: Column of regions that every detector has: the confidence.
CONFIDENCE = "score"


def passes(files: RunFiles) -> dict[str, str]:
    """The pass that a method scores, of those that score one.

    Raises:
        DataError: `methods.json` is absent or damaged.
    """
    passes_by_name = {}
    for entry in read_entries(files.all_fitted).entries:
        if entry.pass_name is not None:
            passes_by_name[entry.name] = entry.pass_name
    return passes_by_name


def by_cost(files: RunFiles, names: Sequence[str], fitted: Mapping[str, FittedMethod]) -> list[str]:
    """The methods from the cheapest to the most expensive.

    Args:
        files: The run's files.
        names: The methods.
        fitted: Content of `method.json` of each method.

    Raises:
        DataError: `methods.json` is absent or damaged.
    """
    pass_by_name = passes(files)

    def cost(name: str) -> tuple[bool, int, bool, str]:
        needs_inference = pass_by_name.get(name) is not None
        reads_more = bool(set(fitted[name].needs) - {CONFIDENCE})
        return needs_inference, _state_bytes(files, name), reads_more, name

    return sorted(names, key=cost)


def _state_bytes(files: RunFiles, name: str) -> int:
    """Size of a method's fitted state in bytes; 0 where it has none."""
    file = files.fitted(name) / STATE
    if not file.is_file():
        return 0
    return file.stat().st_size
