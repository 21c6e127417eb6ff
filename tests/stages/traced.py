"""Runs stages and records the functions of farther that they call and the data that they read.

Usage: traced.py FOLDER STAGE …; a stage is "infer voc-yolov8". Appends JSON lines to
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
    """Writes down each function and data file once.

    Args:
        stage: The stage that runs.
        file: JSON lines are appended: also by processes that the stage forks.
    """

    def __init__(self, stage: str, file: Path):
        self.stage = stage
        self.descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.seen: set[tuple] = set()

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
        if not code.co_filename.startswith(LIB):
            return sys.monitoring.DISABLE
        importing = self._add_call(code, sys._getframe(1))
        return None if importing else sys.monitoring.DISABLE

    def _on_call(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(LIB):
            self._add_call(frame.f_code, frame)

    def _add_call(self, code: CodeType, frame: FrameType) -> str | None:
        importing = imported_by(frame)
        if code.co_name != "<module>" and code.co_filename.endswith(
            ".py"
        ):  # Jinja's templates are code, too
            self._add(code.co_filename, code.co_firstlineno, importing, names=code.co_names)
        return importing

    def _on_event(self, event: str, arguments: tuple) -> None:
        if event != "open" or not isinstance(arguments[0], (str, os.PathLike)):
            return
        file = os.path.abspath(os.fspath(arguments[0]))  # noqa: PTH100
        if file.startswith(LIB) and not file.endswith((".py", ".pyc")) and os.path.isfile(file):  # noqa: PTH113
            self._add(file, None, imported_by(sys._getframe(1)))

    def _add(
        self, file: str, line: int | None, importing: str | None, names: tuple[str, ...] = ()
    ) -> None:
        key = (file, line, importing)
        if key not in self.seen:
            self.seen.add(key)
            record = {
                "stage": self.stage,
                "file": file,
                "line": line,
                "importing": importing,
                "names": names,
            }
            os.write(self.descriptor, (json.dumps(record) + "\n").encode())


def imported_by(frame: FrameType | None) -> str | None:
    """The innermost file of farther that is being imported while a frame runs, or None."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(LIB):
            return frame.f_code.co_filename
        frame = frame.f_back
    return None


def run(folder: Path, stage: str) -> None:
    """Runs a stage, traced."""
    name, *arguments = stage.split()
    script = str(ROOT / "stages" / f"{name}.py")
    sys.argv = [script, *arguments]
    os.chdir(folder)
    Tracer(stage, folder / "traced.jsonl").start()
    runpy.run_path(script, run_name="__main__")


def main(folder: Path, *stages: str) -> int:
    for package in PACKAGES:
        importlib.import_module(package)
    for stage in stages:
        pid = os.fork()
        if not pid:
            status = 1
            try:
                run(folder, stage)
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
    sys.exit(main(Path(sys.argv[1]).resolve(), *sys.argv[2:]))
