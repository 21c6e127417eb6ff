"""Mutation tests: plants small bugs, one at a time, and runs the tests of the changed package.

    python tests/mutants/run.py --mutants 200 --seed 5 metrics

A mutant is caught if a test of its package fails, or if the tests take far longer than without it.
No file is changed: the module is compiled from the changed tree in the process that runs the tests,
a fork of one that has the libraries loaded. Only files of tests that reach the changed function
run, and of these only tests that take less than two seconds. Processes that a test starts see no
mutant. `--at metrics/ood/__init__.py:12` tries all mutants of a line.

mutmut and cosmic-ray write each mutant into a file, and start each time with the imports, which
take longer than the tests; mutmut changes no default values, and nothing outside of functions.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import importlib.util
import json
import os
import random
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from changes import changes

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "lib" / "farther"
#: Packages and modules that results depend on.
PACKAGES = (
    "metrics",
    "evaluation",
    "scoring",
    "curation",
    "similarity",
    "monitor",
    "tables",
    "incremental",
    "naming",
)
#: Most seconds of a test that mutants are tried with, and those of all tests on top of three times
#: what they take.
SLOW, SPARE = 2.0, 30
#: Statuses of pytest: all passed, and no test was found.
PASSED = (0, 5)


@dataclass(frozen=True)
class Mutant:
    """The change with a number among those of a file; see `Change`."""

    package: str
    file: Path
    number: int
    line: int
    span: tuple[int, int] | None
    text: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}: {self.text}"


def mutants_of(package: str) -> Iterator[Mutant]:
    """All mutants of a package or a module."""
    place = LIBRARY / package
    for file in sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]:
        for number, change in enumerate(changes(ast.parse(file.read_text(encoding="utf-8")))):
            yield Mutant(package, file, number, change.line, change.span, change.text)


def tests_of(package: str) -> list[str]:
    """Folders of the tests and the examples of a package; the file of those of a module."""
    is_folder = (LIBRARY / package).is_dir()
    return (
        [f"tests/{package}", f"lib/farther/{package}"]
        if is_folder
        else [f"tests/test_{package}.py"]
    )


# --------------------------------------------------------------------------------------------------
# in the tests' process


class Mutated(SourceFileLoader):
    """Finder and loader of the mutated module, and a plugin of pytest.

    As a plugin it puts itself before the finder of pytest.
    """

    def __init__(self, mutant: Mutant):
        parts = mutant.file.relative_to(LIBRARY.parent).with_suffix("").parts
        self._is_package = parts[-1] == "__init__"
        super().__init__(".".join(parts[:-1] if self._is_package else parts), str(mutant.file))
        self._number = mutant.number

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        within = [str(Path(self.path).parent)] if self._is_package else None
        locations: dict[str, Any] = {"loader": self, "submodule_search_locations": within}
        return (
            importlib.util.spec_from_file_location(name, self.path, **locations)
            if name == self.name
            else None
        )

    def pytest_configure(self) -> None:
        """Pytest has put its finder in front: it reads a file whose examples are tested."""
        sys.meta_path.insert(0, self)

    def get_code(self, fullname: str) -> CodeType:
        """The code with the change."""
        tree = ast.parse(Path(self.path).read_text(encoding="utf-8"))
        list(changes(tree))[self._number].apply()
        return compile(tree, self.path, "exec", dont_inherit=True)


class Recorder:
    """A plugin of pytest that notes how long tests take, and the lines that those of a file run.

    What fixtures of a session run counts for all files.
    """

    def __init__(self) -> None:
        from coverage import Coverage

        self._coverage = Coverage(data_file=None, source=[str(LIBRARY)], config_file=False)
        self._seconds: dict[str, float] = {}
        self._coverage.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self._coverage.switch_context(nodeid.split("::")[0])

    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> None:
        """A fixture is made."""
        shared = fixturedef.scope in ("session", "package")
        self._coverage.switch_context("" if shared else request.node.nodeid.split("::")[0])

    def pytest_runtest_call(self, item: Any) -> None:
        """The fixtures of a test are made."""
        self._coverage.switch_context(item.nodeid.split("::")[0])

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A part of a test has ended."""
        self._seconds[report.nodeid] = max(
            self._seconds.get(report.nodeid, 0), report.duration * (report.when == "call")
        )

    def write(self, file: Path) -> None:
        """Writes what was noted, and the modules of others that were imported."""
        self._coverage.stop()
        data = self._coverage.get_data()
        lines = {path: data.contexts_by_lineno(path) for path in data.measured_files()}
        ours = (str(ROOT), "__main__")
        others = [
            name
            for name, module in sys.modules.items()
            if not str(getattr(module, "__file__", "")).startswith(ours)
        ]
        file.write_text(json.dumps({"seconds": self._seconds, "lines": lines, "loaded": others}))


def pytest_main(arguments: Sequence[str], *plugins: object) -> int:
    """Runs tests in this process, with the same drawn examples each time, which may take long."""
    import hypothesis
    import pytest

    hypothesis.settings.register_profile("mutants", deadline=None, derandomize=True, database=None)
    hypothesis.settings.load_profile("mutants")
    return int(pytest.main(["-x", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments], plugins))


# --------------------------------------------------------------------------------------------------
# in the parent


@dataclass(frozen=True)
class Baseline:
    """What the tests of a package do without a mutant."""

    seconds: dict[str, float]
    lines: dict[str, dict[str, list[str]]]

    @classmethod
    def of(cls, package: str) -> Baseline:
        """Runs the tests; then loads what they have loaded, so that forks need not."""
        with tempfile.NamedTemporaryFile(suffix=".json") as file:

            def run() -> int:
                recorder = Recorder()
                status = pytest_main(tests_of(package), recorder)
                recorder.write(Path(file.name))
                return status

            printed = Path(f"{file.name}.txt")
            _, status = os.waitpid(fork(run, 3600, printed), 0)
            if status:
                sys.exit(f"{printed.read_text()}\nthe tests of {package} fail without a mutant")
            printed.unlink()
            noted = json.loads(Path(file.name).read_text())
        for name in noted["loaded"]:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        return cls(noted["seconds"], noted["lines"])

    def arguments(self, mutant: Mutant) -> list[str]:
        """Arguments of pytest: the files of tests that reach the function of a mutant.

        All files of the package, where the mutant is in no function or a shared fixture reaches it.
        """
        files = sorted({test.split("::")[0] for test in self.seconds})
        if mutant.span is not None:
            lines = self.lines.get(str(mutant.file), {})
            first, last = mutant.span
            reached = {
                file
                for line, found in lines.items()
                if first <= int(line) <= last
                for file in found
            }
            files = files if "" in reached else sorted(reached)
        slow = [
            test
            for test, seconds in self.seconds.items()
            if seconds > SLOW and test.split("::")[0] in files
        ]
        return [*files, *(f"--deselect={test}" for test in slow)] if files else []


def fork(run: Callable[[], int], seconds: float, printed: Path = Path(os.devnull)) -> int:
    """Runs a function in a fork that prints to a file; returns the number of its process.

    The fork ends after `seconds` at the latest.
    """
    if child := os.fork():
        return child
    status = 1
    try:
        os.setsid()
        signal.signal(
            signal.SIGINT, signal.default_int_handler
        )  # which a shell's background has ignored
        signal.setitimer(signal.ITIMER_REAL, seconds)
        sys.dont_write_bytecode = True
        for stream in () if os.environ.get("MUTANTS_LOUD") else (1, 2):
            os.dup2(os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
        with tempfile.TemporaryDirectory(prefix="farther-mutants-") as folder:
            os.environ["PYTEST_DEBUG_TEMPROOT"] = folder
            Path(folder).chmod(0o755)  # as a test that gives up root's rights expects
            status = run()
    finally:
        os._exit(status)


def survivors(mutants: Sequence[Mutant], jobs: int) -> Iterator[tuple[Mutant, bool]]:
    """Each mutant, and whether it survived, in the order in which they end."""
    baselines = {
        package: Baseline.of(package)
        for package in dict.fromkeys(mutant.package for mutant in mutants)
    }
    waiting, running = list(mutants), {}
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop(0)
            if arguments := baselines[mutant.package].arguments(mutant):

                def run(mutant: Mutant = mutant, arguments: list[str] = arguments) -> int:
                    mutated = Mutated(mutant)
                    sys.meta_path.insert(0, mutated)  # before files of fixtures are imported
                    return pytest_main(arguments, mutated)

                limit = SPARE + 3 * sum(baselines[mutant.package].seconds.values())
                running[fork(run, limit)] = mutant
            else:
                yield mutant, True
        if running:
            child, status = os.wait()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            yield running.pop(child), os.waitstatus_to_exitcode(status) in PASSED


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("packages", nargs="*", default=PACKAGES)
    parser.add_argument("--mutants", type=int, default=200, help="how many are drawn")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--at", default="", help="a file, or file:line, of which all mutants are tried"
    )
    given = parser.parse_args()
    warnings.simplefilter(
        "ignore", DeprecationWarning
    )  # forks of a process in which libraries have started threads
    os.chdir(ROOT)
    os.environ |= {"OMP_NUM_THREADS": "1", "COVERAGE_CORE": "ctrace"}
    file, _, line = given.at.partition(":")
    packages = [Path(file).parts[0].removesuffix(".py")] if file else given.packages
    mutants = [mutant for package in packages for mutant in mutants_of(package)]
    if file:
        found = [m for m in mutants if m.file == LIBRARY / file and line in ("", str(m.line))]
    else:
        found = random.Random(given.seed).sample(mutants, min(given.mutants, len(mutants)))
    total, left = Counter(mutant.package for mutant in found), Counter[str]()
    for mutant, survived in survivors(found, given.jobs):
        left[mutant.package] += survived
        if survived:
            print(f"survived  {mutant}", flush=True)
        elif file:
            print(f"caught    {mutant}", flush=True)
    print("package".ljust(12) + "mutants  caught  survived")
    for package in [*total, "all"]:
        count, alive = (c.total() if package == "all" else c[package] for c in (total, left))
        share = f"{1 - alive / count:.1%}" if count else ""
        print(f"{package:12}{count:7}{count - alive:8}{alive:10}  {share}")
    print(f"seed {given.seed}")


if __name__ == "__main__":
    main()
