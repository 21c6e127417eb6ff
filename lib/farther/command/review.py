"""Opens the review page of a benchmark: its OOD images one at a time, and your decisions."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from farther.command.project import Project

NAME = "review"
SUMMARY = "look at a benchmark's images, and decide"
EXAMPLES = """
farther review voc
farther review voc --reviewer ann --no-browser
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this subcommand."""
    parser.add_argument("benchmark", help="a name under 'benchmarks' in params.yaml")
    parser.add_argument("--reviewer", help="your name in the decisions file (the name you are logged in as)")
    parser.add_argument(
        "--run", help="detector that looks for unlabelled objects, of any benchmark (review.BENCHMARK, else the first)"
    )
    parser.add_argument("--decisions", type=Path, help="decisions file (data/decisions/BENCHMARK.csv)")
    parser.add_argument("--port", type=int, default=0, help="port of 127.0.0.1 (any that is free)")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")


def run(given: argparse.Namespace) -> int:
    """Serves the page until it is interrupted."""
    from farther.tools.review import Settings, open_page, serve

    settings = Settings(reviewer=given.reviewer, run=given.run, decisions=given.decisions, port=given.port)
    ready = partial(print, flush=True) if given.no_browser else open_page
    try:
        serve(given.benchmark, Project().params, settings, ready=ready)
    except KeyboardInterrupt:
        print("Stopped. All decisions that the page reported as saved are in the decisions file.")
    return 0
