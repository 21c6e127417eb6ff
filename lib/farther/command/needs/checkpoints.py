"""Checkpoints: whether each run's is there, and whether its adapter can read it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from farther.command.needs.finding import Finding
from farther.command.project import Project
from farther.errors import FartherError

#: Whether checkpoints are opened, or only looked for.
Depth = Literal["open", "look"]

ELSEWHERE = "your own training (docs/training.md), or the detector's authors"


def checkpoints(project: Project, depth: Depth = "open") -> list[Finding]:
    """One finding a run, and one for the network that embeds images, where there is one.

    Args:
        project: Its section `sources` may say where the checkpoint of a run comes from.
        depth: "open" loads each network, as `infer` does; "look" only looks for the files.
    """
    sources = project.section("sources")
    return [
        *(
            _run(name, entry, depth, str(sources.get(name, ELSEWHERE)))
            for name, entry in project.section("detectors").items()
        ),
        *_embedder(project, str(sources.get("embed", "open_clip's models on the hub"))),
    ]


def _embedder(project: Project, source: str) -> list[Finding]:
    """The weights that section `embed` names; they are not opened."""
    weights = project.section("embed").get("weights")
    if weights is None:
        return []
    if Path(str(weights)).exists():
        return [Finding("checkpoints", "embed", "ok", f"{weights} (not opened)")]
    more = {"belongs at": str(weights), "comes from": source}
    return [Finding("checkpoints", "embed", "missing", "weights of the image encoder", more)]


def make_detector(entry: Mapping[str, Any]) -> Any:
    """The adapter of an entry of section `detectors`.

    Raises:
        ParameterError: the adapter or a parameter is unknown, or a value does not fit.
    """
    from farther import detectors

    weights = {"weights": entry["weights"]} if "weights" in entry else {}
    return detectors.create(str(entry.get("adapter", "")), **weights, **(entry.get("params") or {}))


def _run(name: str, entry: Mapping[str, Any], depth: Depth, source: str) -> Finding:
    weights = Path(str(entry.get("weights", "")))
    lacking = [path for path in (weights, *_described(entry)) if not path.exists()]
    if lacking == [weights] and _of_hub(entry, weights):
        return Finding("checkpoints", name, "note", f"{weights}: a model of the hub, fetched when `infer` runs")
    if lacking:
        more = {"belongs at": ", ".join(map(str, lacking)), "comes from": source}
        return Finding("checkpoints", name, "missing", f"{entry.get('adapter')} checkpoint", more)
    try:
        detector = make_detector(entry)
        if depth == "look":
            return Finding("checkpoints", name, "ok", f"{weights} (not opened)")
        header = detector.header()
    except ModuleNotFoundError as error:
        return Finding("checkpoints", name, "note", f"{weights}: cannot be opened without the package {error.name}")
    except FartherError as error:
        return Finding("checkpoints", name, "wrong", str(error), {"comes from": source})
    layer = "" if header.weight is None else f", last layer {header.weight.shape[0]}×{header.weight.shape[1]}"
    return Finding("checkpoints", name, "ok", f"{weights}: {len(header.known_classes)} classes{layer}")


def _described(entry: Mapping[str, Any]) -> list[Path]:
    """Folders that describe the network beside the weights."""
    config = (entry.get("params") or {}).get("config")
    return [] if config is None else [Path(str(config))]


def _of_hub(entry: Mapping[str, Any], weights: Path) -> bool:
    """Whether the name may be a model's on the hub: owner/name, without the ending of a file."""
    return entry.get("adapter") == "detr" and len(weights.parts) == 2 and weights.suffix in ("", weights.name)
