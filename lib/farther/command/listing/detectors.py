"""The adapters that a line under 'detectors' in params.yaml may name."""

from __future__ import annotations

import argparse

NAME = "detectors"
SUMMARY = "list the detector adapters, or one with its parameters"
EXAMPLES = """
farther detectors
farther detectors yolo
farther detectors yolo --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this subcommand."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="one of them")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(given: argparse.Namespace) -> int:
    """Lists them, or says all about one."""
    from farther.command.listing.described import show
    from farther.detectors import get, names

    show(given, names(), get)
    return 0
