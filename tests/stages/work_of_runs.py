"""What a stage of all runs does for one of them, in tests: see `test_workers`."""

import os
import signal
from pathlib import Path

from farther.errors import ParameterError
from farther.params import section
from farther.tables.documents import write_json

#: Folder with a file per run, which is what a stage makes.
OUTPUT = "artifacts/made"


def work(run: str) -> str:
    """Writes what params.yaml has for a run, with its process; or fails as it says."""
    entry = section("detectors", run)
    if entry.get("wrong"):
        raise ParameterError(f"detectors.{run}: it is wrong")
    if entry.get("bug"):
        raise KeyError("a bug")
    if entry.get("killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    process = {"entry": entry, "process": os.getpid(), "threads": os.environ["OMP_NUM_THREADS"]}
    write_json(Path(OUTPUT) / f"{run}.json", process)
    return "made"
