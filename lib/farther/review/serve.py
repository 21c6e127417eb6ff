"""Starts the review page of a benchmark."""

from __future__ import annotations

import getpass
import sys
import webbrowser
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farther.curation import Benchmark, DecisionsFile, benchmark
from farther.errors import choose
from farther.evaluation.reviewed_images import reviewed_file
from farther.evaluation.settings import EvaluationSettings
from farther.review.catalogue import Catalogue
from farther.review.label_checker import label_checker_for
from farther.review.server import ReviewServer
from farther.review.session import Session
from farther.review.suspects import read_suspects
from farther.text.terminal import say

#: Folder of a benchmark's decisions where its parameters name no file.
DECISIONS = Path("data/decisions")


@dataclass(frozen=True, kw_only=True)
class ReviewSettings:
    """Who reviews, and with what.

    Args:
        reviewer: Name in the decisions file; by default that of the user who is logged in.
        run: Detector whose regions suggest unlabelled objects; see `label_checker_for`.
        suspects: Review ID images with false alarms of proposals instead, see
            `farther.review.suspects`; decisions are in `data/decisions/<benchmark>.id.csv`, which
            the stage `evaluate` reads.
        port: Port of 127.0.0.1; 0 for any that is free.
    """

    reviewer: str | None = None
    run: str | None = None
    port: int = 0
    suspects: bool = False


def open_page(address: str) -> None:
    """Prints the page's address and opens it in the browser."""
    say(address, flush=True)
    webbrowser.open(address)


def serve(
    name: str,
    params: Mapping[str, Any],
    settings: ReviewSettings | None = None,
    root: str | Path = ".",
    ready: Callable[[str], object] = say,
) -> None:
    """Serves the review page of a benchmark on 127.0.0.1 until it is interrupted.

    Raises:
        ParameterError: a name or a parameter is unknown or wrong, or the port is taken.
        DataError: a table or the decisions file is damaged.
        KeyboardInterrupt: it was interrupted.
    """
    settings = settings or ReviewSettings()
    with make_server(name, params, settings, root) as server:
        if not settings.suspects:
            _warn_if_not_applied(server.session)
        ready(server.address)
        server.run()


def make_server(
    name: str,
    params: Mapping[str, Any],
    settings: ReviewSettings | None = None,
    root: str | Path = ".",
) -> ReviewServer:
    """The server that `serve` runs, bound to its port but not yet answering."""
    settings = settings or ReviewSettings()
    benchmarks = params.get("benchmarks") or {}
    reviewed = benchmark(name, benchmarks[choose("benchmark", name, benchmarks)])
    reviewer = settings.reviewer or getpass.getuser()
    if settings.suspects:
        catalogue = _read_suspects(name, reviewed, params, settings, root)
        path = reviewed_file(name, root)
    else:
        checker = label_checker_for(name, params, root, settings.run)
        datasets = params.get("datasets") or {}
        catalogue = Catalogue.read(name, reviewed, datasets, root, checker)
        default_path = Path(root) / DECISIONS / f"{name}.csv"
        path = reviewed.decisions or default_path
    return ReviewServer(Session(catalogue, DecisionsFile(path), reviewer), settings.port)


def _read_suspects(
    name: str,
    reviewed: Benchmark,
    params: Mapping[str, Any],
    settings: ReviewSettings,
    root: str | Path,
) -> Catalogue:
    """The ID images with false alarms of the proposals of a run, by default of the first one."""
    runs_with_proposals = []
    for run, entry in (params.get("detectors") or {}).items():
        if entry["benchmark"] == name and entry.get("proposals"):
            runs_with_proposals.append(run)
    default_run = runs_with_proposals[0] if runs_with_proposals else ""
    run = choose("run with proposals", settings.run or default_run, runs_with_proposals)
    evaluation = params.get("evaluate") or {}
    splits = (
        evaluation.get("id_split", EvaluationSettings.id_split),
        evaluation.get("calibration_split", EvaluationSettings.calibration_split),
    )
    return read_suspects(name, reviewed, params, splits, run, root)


def _warn_if_not_applied(session: Session) -> None:
    """Warns when `curate` does not read the decisions file."""
    if session.catalogue.benchmark.decisions is None:
        line = f"benchmarks: {session.catalogue.name}: decisions: {session.file.path}"
        say(
            f"`curate` applies these decisions only if params.yaml contains\n  {line}",
            file=sys.stderr,
        )
