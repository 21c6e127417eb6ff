"""Runs stages and records the files of farther whose code they run or that they open.

Usage: traced.py FOLDER STAGE [FOLDER STAGE …]; a stage is "infer voc-yolov8". Appends JSON lines to
FOLDER/traced.jsonl.

Each stage runs in a process of its own, forked from one that has imported other people's packages
only, so that farther's own modules are imported while the stage is traced. This file knows nothing
of how digests are computed.
"""

import importlib
import json
import os
import runpy
import sys
import threading
import traceback
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[2]
LIB = str(ROOT / "lib" / "farther") + os.sep

#: Packages of others that stages import: PyTorch and Polars must not start threads before a fork.
PACKAGES = (
    "jinja2",
    "open_clip",
    "polars",
    "pydantic",
    "scipy.stats",
    "sklearn.covariance",
    "torch",
    "torchvision",
    "tqdm",
)


class Tracer:
    """Writes down each file once.

    Args:
        stage: The stage that runs.
        file: JSON lines are appended: also by processes that the stage forks.
    """

    def __init__(self, stage: str, file: Path):
        self.stage = stage
        self.descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.seen: set[str] = set()

    def start(self) -> None:
        sys.addaudithook(self._on_event)
        if hasattr(sys, "monitoring"):
            tool = sys.monitoring.PROFILER_ID
            sys.monitoring.use_tool_id(tool, "farther's tests")
            sys.monitoring.register_callback(tool, sys.monitoring.events.PY_START, self._on_start)
            sys.monitoring.set_events(tool, sys.monitoring.events.PY_START)
        else:
            threading.setprofile(self._on_call)
            sys.setprofile(self._on_call)

    def _on_start(self, code: CodeType, offset: int) -> object:
        self._add(code.co_filename)
        return sys.monitoring.DISABLE

    def _on_call(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self._add(frame.f_code.co_filename)

    def _on_event(self, event: str, arguments: tuple) -> None:
        if event != "open" or not isinstance(arguments[0], (str, os.PathLike)):
            return
        file = os.path.abspath(os.fspath(arguments[0]))  # noqa: PTH100
        # Python files are opened to find the names that they register: those that count are run.
        if not file.endswith((".py", ".pyc")) and os.path.isfile(file):  # noqa: PTH113
            self._add(file)

    def _add(self, file: str) -> None:
        if file.startswith(LIB) and file not in self.seen:
            self.seen.add(file)
            record = {"stage": self.stage, "file": file}
            os.write(self.descriptor, (json.dumps(record) + "\n").encode())


def run(folder: Path, stage: str) -> None:
    """Runs a stage, traced."""
    name, *arguments = stage.split()
    script = str(ROOT / "stages" / f"{name}.py")
    sys.argv = [script, *arguments]
    os.chdir(folder)
    Tracer(stage, folder / "traced.jsonl").start()
    runpy.run_path(script, run_name="__main__")


def main(*folders_and_stages: str) -> int:
    for package in PACKAGES:
        importlib.import_module(package)
    for folder, stage in zip(folders_and_stages[::2], folders_and_stages[1::2], strict=True):
        pid = os.fork()
        if not pid:
            status = 1
            try:
                run(Path(folder).resolve(), stage)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
