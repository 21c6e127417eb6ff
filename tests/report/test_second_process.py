"""Two processes write the report that one writes, and say what is wrong as one does."""

import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from farther.errors import DataError, FartherError
from farther.keyed import Keyed
from farther.report import second_process
from farther.report.second_process import SecondProcess
from farther.report.write import build
from farther.tables.files import digest

RUNS = ("a", "b", "c", "d")


class Site(SimpleNamespace):
    """Stands for a site."""


class Results(SimpleNamespace):
    """Stands for all results, of which only the names of runs are read."""


class Run(SimpleNamespace):
    """Stands for a run."""

    def __init__(self, name: str):
        super().__init__(name=name)


class Files:
    """Stands for `FilesOfRuns`: what is written depends on the run's name."""

    def __init__(self, site: Site, results: Results):
        self._site = site

    def write(self, run: Run) -> dict[str, str]:
        if run.name == "damaged":
            raise DataError("not readable", file="scores.parquet", row=3)
        if run.name == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if run.name == "interrupted":
            os.kill(os.getpid(), signal.SIGINT)
        self._site.keys[run.name] = f"key of {run.name}"
        return {"split": f"summary of {run.name}"}


def read_with(names: tuple[str, ...]) -> tuple[Any, Any]:
    """Called in the second process: results of runs, whose files are those of `Files`."""
    second_process.FilesOfRuns = Files  # type: ignore[misc]
    return Site(keys={}, read={}), Results(measured=[Run(name) for name in names])


def read_damaged() -> tuple[Any, Any]:
    """Called in the second process: results that cannot be read."""
    raise DataError("damaged", file="evaluation.json")


@pytest.fixture
def second(monkeypatch) -> Iterator[SecondProcess]:
    """A thread in the place of the process: what it shares with this one does not matter here."""
    monkeypatch.setattr(second_process, "FilesOfRuns", Files)
    monkeypatch.setattr(
        second_process, "ProcessPoolExecutor", lambda *_, **options: ThreadPoolExecutor(1)
    )
    with SecondProcess(partial(read_with, RUNS)) as process:
        yield process


def test_it_writes_what_is_not_taken_back(second):
    assert second.finish().summaries == {}
    second.begin(RUNS)
    written = second.finish()
    assert list(written.summaries) == list(RUNS)
    assert written.summaries["c"] == {"split": "summary of c"}
    assert written.keys == {name: f"key of {name}" for name in RUNS}
    assert list(second.take_back()) == []


def test_each_run_is_written_by_one_of_the_two(second):
    second.begin(RUNS)
    taken_back = list(second.take_back())
    assert taken_back == list(reversed(RUNS))[: len(taken_back)]
    written = list(second.finish().summaries)
    assert written == list(RUNS)[: len(written)]
    assert sorted([*written, *taken_back]) == list(RUNS)


def test_after_an_error_of_this_process_it_begins_no_other_run(second):
    def fail() -> None:
        with second:
            second.begin(RUNS)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list(second.take_back()) == []


def test_an_error_while_results_are_read_is_that_of_the_report(second, monkeypatch):
    monkeypatch.setattr(second, "_read", read_damaged)
    with second:
        second.begin(RUNS)
        with pytest.raises(DataError, match=r"evaluation.json: damaged"):
            second.finish()


@pytest.mark.parametrize(
    ("run", "problem"),
    [
        ("damaged", "scores.parquet: row 3: not readable"),
        ("killed", "was killed, most likely for lack of memory"),
    ],
)
def test_an_error_of_the_process_and_its_death_are_errors_of_the_report(run, problem):
    with (
        SecondProcess(partial(read_with, ("interrupted", run, "b"))) as process,
        pytest.raises(FartherError, match=problem),
    ):
        process.begin(["interrupted", run, "b"])  # the interruption is left to the first process
        process.finish()


def digests_of(folder: Path) -> dict[Path, str]:
    """Hash of each file below a folder."""
    return {file.relative_to(folder): digest(file) for file in folder.rglob("*.*")}


def test_two_processes_write_the_files_that_one_writes(built, params, tmp_path, monkeypatch):
    monkeypatch.setattr("farther.report.write.RUNS_FOR_TWO_PROCESSES", 1)
    monkeypatch.setattr(SecondProcess, "take_back", lambda self: iter(()))
    project = tmp_path / "again"
    shutil.copytree(built, project)
    before = digests_of(built / "artifacts/report")
    build(params, project, code="1", processes=2)
    assert digests_of(project / "artifacts/report") == before
    keys = Keyed(project / "artifacts/report").recorded_keys()
    assert "detectors/pets-net.html" in keys

    build(params, project, code="1")  # files that the second process wrote are kept
    assert digests_of(project / "artifacts/report") == before
    assert Keyed(project / "artifacts/report").recorded_keys() == keys
