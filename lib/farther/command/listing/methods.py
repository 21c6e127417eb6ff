"""The scores that params.yaml may name under 'methods'."""

from __future__ import annotations

import argparse

NAME = "methods"
SUMMARY = "list the OOD scores, or one with its parameters"
EXAMPLES = """
farther methods
farther methods knn
farther methods knn --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this subcommand."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="one of them")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(given: argparse.Namespace) -> int:
    """Lists them, or says all about one."""
    from farther.command.listing.described import show
    from farther.methods import get, names

    show(given, names(), get)
    return 0
