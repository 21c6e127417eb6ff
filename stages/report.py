"""Writes the report and prints the main tables: `python stages/report.py`."""

from _params import section
from farther.report import build, summary


def main() -> None:
    """Reads all metrics, curves and splits; writes artifacts/report."""
    params = section()
    page = build(params)
    print(summary(params), f"Report: {page}", sep="\n\n")


if __name__ == "__main__":
    main()
