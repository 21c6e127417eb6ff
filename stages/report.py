"""Writes the report: `python stages/report.py`."""

from farther.params import section
from farther.report import build


def main() -> None:
    """Reads all metrics, curves and splits; writes artifacts/report."""
    print(f"Report: {build(section())}")


if __name__ == "__main__":
    main()
