"""Names the code of every method in params.yaml, so that a changed line reruns the methods that it concerns.

Usage: stages/code.py

Reads params.yaml (methods) and, for methods that farther does not know, data/methods. Writes artifacts/code.json.
"""

from pathlib import Path

from _params import section
from farther.scoring.entries import code_digests
from farther.tables.files import write_json


def main() -> None:
    """Writes one digest an entry of params.yaml's methods."""
    write_json(Path("artifacts/code.json"), code_digests(section("methods")))


if __name__ == "__main__":
    main()
