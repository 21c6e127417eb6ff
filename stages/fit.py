"""Fits one method to one run's training regions and takes its threshold τ.

Usage: stages/fit.py RUN METHOD

Reads params.yaml (detectors.RUN, methods.METHOD, fit), artifacts/regions/RUN, artifacts/thresholds/RUN.json.
Writes artifacts/fitted/RUN/METHOD: state and threshold.json, or why the method does not apply.
"""

import sys
from pathlib import Path

from _params import section
from farther.methods.fitting import FitSettings, fit_run, operating_threshold
from farther.registry import build

ARTIFACTS = Path("artifacts")


def main(run: str, method: str) -> None:
    """Fits `method`, an entry of params.yaml's methods, to `run`, an entry of its detectors."""
    section("detectors", run)
    params = section("methods", method)
    settings = build(FitSettings, "section 'fit'", section("fit"))
    operating = operating_threshold(ARTIFACTS / "thresholds" / f"{run}.json")
    path = ARTIFACTS / "fitted" / run / method
    reason = fit_run(method, params, ARTIFACTS / "regions" / run, operating, settings, path)
    print(f"{run} {method}: " + (f"not applicable: {reason}" if reason else "fitted"))


if __name__ == "__main__":
    main(*sys.argv[1:])
