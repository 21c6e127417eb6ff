"""The dataset formats that a line under 'datasets' in params.yaml may name."""

from __future__ import annotations

import argparse

NAME = "datasets"
SUMMARY = "list the dataset formats, or one with its parameters"
EXAMPLES = """
farther datasets
farther datasets coco
farther datasets coco --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this subcommand."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="one of them")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(given: argparse.Namespace) -> int:
    """Lists them, or says all about one."""
    from farther.command.listing.described import show
    from farther.datasets.base import FORMATS

    show(given, FORMATS.names(), FORMATS.get)
    return 0
