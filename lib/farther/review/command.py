"""`python -m farther.review BENCHMARK`: starts the page and says where it is."""

from __future__ import annotations

import argparse
import getpass
import sys
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from farther.curation import DecisionsFile, benchmark
from farther.errors import FartherError, ParameterError
from farther.review.catalogue import Catalogue
from farther.review.server import ReviewServer
from farther.review.session import Session

#: Where a benchmark's decisions are kept when its parameters do not say.
DECISIONS = Path("data/decisions")


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m farther.review",
        description="Shows a benchmark's OOD images one at a time on a local web page, and keeps what you decide.",
    )
    parser.add_argument("benchmark", help="a name under 'benchmarks' in params.yaml")
    parser.add_argument("--reviewer", help="your name in the decisions file (the name you are logged in as)")
    parser.add_argument(
        "--run", help="the detector that looks for unlabelled objects (the benchmark's first with regions)"
    )
    parser.add_argument("--decisions", type=Path, help=f"the decisions file ({DECISIONS}/BENCHMARK.csv)")
    parser.add_argument("--port", type=int, default=0, help="of 127.0.0.1 (any that is free)")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    given = parser.parse_args(arguments)
    show: Callable[[str], object] = print if given.no_browser else _open
    try:
        params = read_params(Path("params.yaml"))
        serve(
            given.benchmark,
            params,
            reviewer=given.reviewer,
            run=given.run,
            decisions=given.decisions,
            port=given.port,
            ready=show,
        )
    except FartherError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped. All that the page called saved is in the decisions file.")
    return 0


def serve(
    name: str,
    params: Mapping[str, Any],
    root: str | Path = ".",
    *,
    reviewer: str | None = None,
    run: str | None = None,
    decisions: Path | None = None,
    port: int = 0,
    ready: Callable[[str], object] = print,
) -> None:
    """Serves the review page of a benchmark on 127.0.0.1 until it is interrupted.

    Args:
        name: The benchmark.
        params: All of params.yaml.
        root: The project's folder; the current one for the rules and decisions files that the parameters name.
        reviewer: Who decides; by default the name of the user who is logged in.
        run: The detector whose regions tell where something is unlabelled; by default the benchmark's first that has
            regions.
        decisions: The decisions file; by default the one that the benchmark's parameters name, else
            `data/decisions/<benchmark>.csv`.
        port: 0 for any that is free.
        ready: Is given the page's address when it can be opened.

    Raises:
        ParameterError: a name or a parameter is unknown or wrong, or the port is taken.
        DataError: a table or the decisions file is damaged.
    """
    server = make_server(name, params, root, reviewer=reviewer, run=run, decisions=decisions, port=port)
    with server:
        _warn(server.session)
        ready(server.address)
        server.serve_forever()


def make_server(
    name: str,
    params: Mapping[str, Any],
    root: str | Path = ".",
    *,
    reviewer: str | None = None,
    run: str | None = None,
    decisions: Path | None = None,
    port: int = 0,
) -> ReviewServer:
    """The server that `serve` runs, bound but not yet serving."""
    benchmarks = params.get("benchmarks") or {}
    if name not in benchmarks:
        raise ParameterError(f"params.yaml: no benchmark {name!r}. Known: {', '.join(benchmarks)}")
    made = benchmark(name, benchmarks[name])
    run = _run(name, params.get("detectors") or {}, Path(root) / "artifacts" / "regions", run)
    catalogue = Catalogue(name, made, params.get("datasets") or {}, root, run)
    file = DecisionsFile(decisions or made.decisions or Path(root) / DECISIONS / f"{name}.csv")
    return ReviewServer(Session(catalogue, file, reviewer or getpass.getuser()), port)


def read_params(file: Path) -> dict[str, Any]:
    """The project's parameters.

    Raises:
        ParameterError: the file is absent or holds no mapping.
    """
    try:
        params = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ParameterError(f"{file}: the file does not exist; start this in the project's folder") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ParameterError(f"{file}: not YAML: {error}") from None
    if not isinstance(params, dict):
        raise ParameterError(f"{file}: expected sections, found {params!r}")
    return params


def _run(name: str, detectors: Mapping[str, Mapping[str, Any]], regions: Path, wanted: str | None) -> str | None:
    """The run that was asked for, else the benchmark's first with regions, else None."""
    runs = [run for run, params in detectors.items() if params.get("benchmark") == name]
    there = [run for run in runs if (regions / run).is_dir()]
    if wanted is None:
        return there[0] if there else None
    if wanted not in there:
        known = ", ".join(there) or "none; run `dvc repro infer` first"
        raise ParameterError(f"benchmark {name!r} has no run {wanted!r} with regions. Known: {known}")
    return wanted


def _warn(session: Session) -> None:
    """Says so when `curate` will not see the decisions."""
    named = session.catalogue.benchmark.decisions
    if named is None or named.resolve() != session.file.path.resolve():
        line = f"benchmarks: {session.catalogue.name}: decisions: {session.file.path}"
        print(f"`curate` will not apply these decisions until params.yaml says\n  {line}", file=sys.stderr)


def _open(address: str) -> None:
    print(address, flush=True)
    webbrowser.open(address)
