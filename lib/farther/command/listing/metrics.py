"""The figures in artifacts/metrics: what each says, and from what it is computed."""

from __future__ import annotations

import argparse

NAME = "metrics"
SUMMARY = "list the figures, or one with its definition"
EXAMPLES = """
farther metrics
farther metrics nose
farther explain number voc-vos knn coco_near nose
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this subcommand."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="one of them")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(given: argparse.Namespace) -> int:
    """Lists them, or defines one."""
    import re
    from dataclasses import asdict

    from farther.command.definitions import DEFINITIONS
    from farther.command.output import as_json, table
    from farther.command.project import choose

    chosen = [DEFINITIONS[choose("metric", given.name, DEFINITIONS)]] if given.name else list(DEFINITIONS.values())
    if given.json:
        print(as_json([asdict(definition) for definition in chosen]))
    elif given.name:
        rows = [(key, re.sub(r"[{}]", "", text)) for key, text in asdict(chosen[0]).items() if text]
        print(table(("", ""), rows))
    else:
        listed = [(one.name, one.better or "–", one.says) for one in chosen]
        print(table(("name", "better", "what it says"), listed))
        print("\n`farther metrics NAME` says how one is computed, `farther explain number` what\nwent into it.")
    return 0
