"""Starts the review page of a benchmark."""

from __future__ import annotations

import getpass
import sys
import webbrowser
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farther.curation import DecisionsFile, benchmark
from farther.errors import ParameterError, choose
from farther.evaluation.reviewed_images import reviewed_file
from farther.evaluation.settings import EvaluationSettings
from farther.review.catalogue import Catalogue
from farther.review.server import ReviewServer
from farther.review.session import Session
from farther.review.suspects import Suspects
from farther.review.watcher import watcher_for
from farther.terminal import say

#: Folder of a benchmark's decisions where its parameters name no file.
DECISIONS = Path("data/decisions")


@dataclass(frozen=True, kw_only=True)
class ReviewSettings:
    """Who reviews, and with what.

    Args:
        reviewer: Name in the decisions file; by default that of the user who is logged in.
        run: Detector whose regions suggest unlabelled objects; see `watcher_for`.
        decisions: Decisions file; by default the one that the benchmark's parameters name, else
            `data/decisions/<benchmark>.csv`.
        suspects: Review ID images with false alarms of proposals instead, see `Suspects`; decisions
            are by default in `data/decisions/<benchmark>.id.csv`, which the stage `proposals`
            reads.
        port: Port of 127.0.0.1; 0 for any that is free.
    """

    reviewer: str | None = None
    run: str | None = None
    decisions: Path | None = None
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
    with make_server(name, params, settings, root) as server:
        _warn(server.session)
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
    if name not in benchmarks:
        raise ParameterError(
            f"params.yaml: unknown benchmark {name!r}. Known: {', '.join(benchmarks)}"
        )
    chosen, reviewer = benchmark(name, benchmarks[name]), settings.reviewer or getpass.getuser()
    if settings.suspects:
        detectors, rule = params.get("detectors") or {}, params.get("evaluate") or {}
        alike = [
            run for run, of in detectors.items() if of["benchmark"] == name and of.get("proposals")
        ]
        run = choose("run with proposals", settings.run or next(iter(alike), ""), alike)
        splits = tuple(
            rule.get(key, getattr(EvaluationSettings, key))
            for key in ("id_split", "calibration_split")
        )
        suspects = Suspects((name, chosen), params, splits, run, root)
        file = DecisionsFile(settings.decisions or reviewed_file(name, root))
        return ReviewServer(Session(suspects, file, reviewer), settings.port)
    watcher = watcher_for(name, params, root, settings.run)
    catalogue = Catalogue(name, chosen, params.get("datasets") or {}, root, watcher)
    file = DecisionsFile(
        settings.decisions or chosen.decisions or Path(root) / DECISIONS / f"{name}.csv"
    )
    return ReviewServer(Session(catalogue, file, reviewer), settings.port)


def _warn(session: Session) -> None:
    """Warns when `curate` does not read the decisions file."""
    if isinstance(session.catalogue, Suspects):
        return
    named = session.catalogue.benchmark.decisions
    if named is None or named.resolve() != session.file.path.resolve():
        line = f"benchmarks: {session.catalogue.name}: decisions: {session.file.path}"
        say(
            f"`curate` applies these decisions only if params.yaml contains\n  {line}",
            file=sys.stderr,
        )
