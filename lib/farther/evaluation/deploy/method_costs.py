"""The order of methods by what they add to the detector, the cheapest first.

It follows from the fitted methods alone, so that every machine has the same order: first the
methods that need no extra inference, then those that need it for a smaller share of the detections
(`cascade`); among equal ones those of a smaller fitted state (kNN's stored regions, covariances; of
`fused` that of all its parts), and then those that read the confidence alone. Methods that are
still equal are in the order of their names. Added latencies, which differ between machines, are on
the report's page *Deploy*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from farther.evaluation.paths import RunFiles
from farther.evaluation.results import FittedMethod
from farther.methods.loading import share_asked
from farther.scoring.fitted import read_entries

#: File with the arrays of a fitted method.
STATE = "state.safetensors"

#: Column of regions that every detector has: the confidence.
CONFIDENCE = "score"


def passes(files: RunFiles) -> dict[str, list[str]]:
    """The passes that a method scores, of those that score one or more.

    Raises:
        DataError: `methods.json` is absent or damaged.
    """
    passes_by_name = {}
    for entry in read_entries(files.all_fitted).entries:
        names = list(entry.passes_beside)
        if entry.pass_name is not None:
            names.append(entry.pass_name)
        if names:
            passes_by_name[entry.name] = names
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
    passes_by_name = passes(files)

    def cost(name: str) -> tuple[float, int, bool, str]:
        needs_inference = 0.0
        if name in passes_by_name:
            needs_inference = share_asked(fitted[name].state, "detections")
        reads_more = bool(set(fitted[name].needs) - {CONFIDENCE})
        return needs_inference, _state_bytes(files, name), reads_more, name

    return sorted(names, key=cost)


def _state_bytes(files: RunFiles, name: str) -> int:
    """Size of a method's fitted state in bytes; 0 where it has none."""
    file = files.fitted(name) / STATE
    if not file.is_file():
        return 0
    return file.stat().st_size
