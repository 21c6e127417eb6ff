"""Prints the main tables of the last run and where to look. No stage of the pipeline: it reads what they wrote."""

from pathlib import Path

from farther.params import section
from farther.report import summary


def main() -> None:
    """Reads artifacts/metrics."""
    print(summary(section()), f"Report: {Path('artifacts/report/index.html').resolve()}", sep="\n\n")


if __name__ == "__main__":
    main()
