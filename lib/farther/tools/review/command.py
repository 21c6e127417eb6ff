"""`python -m farther.tools.review BENCHMARK`: starts the page and says where it is."""

from __future__ import annotations

import argparse
import getpass
import sys
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from farther.curation import Benchmark, DecisionsFile, Rules, benchmark
from farther.datasets import ClassNames
from farther.errors import DataError, FartherError, ParameterError
from farther.tables import RegionsFolder
from farther.tools.review.catalogue import Catalogue
from farther.tools.review.server import ReviewServer
from farther.tools.review.session import Session
from farther.tools.review.suspicion import Watcher

#: Where a benchmark's decisions are kept when its parameters do not say.
DECISIONS = Path("data/decisions")

#: What each dataset calls a class.
CLASS_NAMES = Path("data/names/classes.yaml")


def main(arguments: Sequence[str], name: str = "python -m farther.tools.review") -> int:
    """Runs the command, which its help calls `name`; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog=name,
        description="Shows a benchmark's OOD images one at a time on a local web page, and keeps what you decide.",
    )
    parser.add_argument("benchmark", help="a name under 'benchmarks' in params.yaml")
    parser.add_argument("--reviewer", help="your name in the decisions file (the name you are logged in as)")
    parser.add_argument(
        "--run",
        help="the detector that looks for unlabelled objects, of any benchmark (review.BENCHMARK, else the first)",
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
        run: The detector whose regions tell where something is unlabelled; see `watcher_for`.
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
    watcher = watcher_for(name, params, root, run)
    catalogue = Catalogue(name, made, params.get("datasets") or {}, root, watcher)
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


def watcher_for(
    name: str, params: Mapping[str, Any], root: str | Path = ".", wanted: str | None = None
) -> Watcher | None:
    """The run that looks for objects that nobody labelled in a benchmark's images.

    A run of another benchmark may know the ID classes better: its classes are matched by `data/names/classes.yaml`,
    and by their names where that file does not know them.

    Args:
        name: The benchmark.
        params: All of params.yaml.
        root: The project's folder.
        wanted: The run; by default the one that `review.<benchmark>` of the parameters names, if it has regions, else
            the benchmark's first that has.

    Returns:
        None where no run of the benchmark has regions.

    Raises:
        ParameterError: the wanted run is unknown or has no regions, or knows none of the ID classes.
        DataError: the file of names is damaged.
    """
    detectors, benchmarks = params.get("detectors") or {}, params["benchmarks"]
    regions = Path(root) / "artifacts" / "regions"
    there = [run for run in detectors if (regions / run).is_dir()]
    named = (params.get("review") or {}).get(name)
    wanted = wanted or (named if named in there else None)
    own = [run for run in there if detectors[run].get("benchmark") == name]
    if wanted is None and not own:
        return None
    run = wanted or own[0]
    if run not in there:
        known = ", ".join(there) or "none; run `dvc repro infer` first"
        raise ParameterError(f"no run {run!r} with regions. Known: {known}")
    watched = benchmark(detectors[run]["benchmark"], benchmarks[detectors[run]["benchmark"]])
    splits: dict[tuple[str, str], list[str]] = {}
    for split, drawn in watched.splits.items():
        splits.setdefault((drawn.dataset, drawn.subset), []).append(split)
    made = benchmark(name, benchmarks[name])
    id_class = _id_classes(_classes(regions / run), watched.id, made, Path(root) / CLASS_NAMES)
    if not id_class:
        raise ParameterError(f"run {run!r} knows none of the classes of benchmark {name!r}")
    return Watcher(run, splits, id_class)


def _classes(regions: Path) -> Sequence[str]:
    """The classes of a run: those of any of its regions folders."""
    folders = sorted(file.parent for file in regions.glob("*/regions.json"))
    return RegionsFolder(folders[0]).classes if folders else ()


def _id_classes(classes: Sequence[str], dataset: str, made: Benchmark, file: Path) -> dict[str, str]:
    """Class of a detector of `dataset` → ID class of the benchmark."""
    ids = set(Rules(made.rules, made.protocol).id_classes)
    names = ClassNames(file) if dataset != made.id and file.is_file() else None
    found = {}
    for called in classes:
        same = [one for one in (called, *_others(names, called, dataset, made.id)) if one in ids]
        if same:
            found[called] = same[0]
    return found


def _others(names: ClassNames | None, called: str, dataset: str, other: str) -> tuple[str, ...]:
    """What another dataset calls a class; nothing where the file of names does not know it."""
    try:
        return () if names is None else names.same(called, dataset, other)
    except DataError:
        return ()


def _warn(session: Session) -> None:
    """Says so when `curate` will not see the decisions."""
    named = session.catalogue.benchmark.decisions
    if named is None or named.resolve() != session.file.path.resolve():
        line = f"benchmarks: {session.catalogue.name}: decisions: {session.file.path}"
        print(f"`curate` will not apply these decisions until params.yaml says\n  {line}", file=sys.stderr)


def _open(address: str) -> None:
    print(address, flush=True)
    webbrowser.open(address)
