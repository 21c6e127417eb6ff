"""Opens the review page of a benchmark: its images one at a time, and your decisions."""

from __future__ import annotations

import argparse

NAME = "review"
SUMMARY = "look at a benchmark's images, and decide"
EXAMPLES = """
farther review voc
farther review voc --reviewer ann --no-browser
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Passes all that follows to `python -m farther.tools.review`, which documents those arguments."""
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(given: argparse.Namespace) -> int:
    """Serves the page until it is interrupted; 2 where the input cannot be used."""
    from farther.tools.review.command import main

    return 2 if main(given.rest, "farther review") else 0
