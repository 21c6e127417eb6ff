"""Stages of all runs: side by side, with what fails named and the rest kept."""

import json
from pathlib import Path

import pytest
import yaml
from tests.stages.work_of_runs import OUTPUT

from farther.errors import FartherError, ParameterError
from farther.params import use_snapshot
from farther.pipeline import workers
from farther.pipeline.workers import Resources, memory_of, usual_jobs, work_on_runs
from farther.tables.writing import write_aside

MODULE = "tests.stages.work_of_runs"


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """A folder with three runs; two are worked on at the same time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(workers.JOBS, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    write({})
    return tmp_path


def write(entries: dict, jobs: int = 2) -> None:
    runs = {name: entries.get(name, {}) for name in ("a", "b", "c")}
    params = {"detectors": runs, "resources": {"jobs": jobs}}
    Path("params.yaml").write_text(yaml.safe_dump(params))


def made() -> dict:
    return {file.stem: json.loads(file.read_text()) for file in Path(OUTPUT).glob("*.json")}


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_run_is_worked_on_and_has_a_line(jobs, capsys):
    write({}, jobs)
    work_on_runs(MODULE, [], [OUTPUT])
    assert sorted(capsys.readouterr().out.splitlines()) == ["a: made", "b: made", "c: made"]
    assert set(made()) == {"a", "b", "c"}
    processes = {content["process"] for content in made().values()}
    assert len(processes) <= jobs


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_that_fails_is_named_and_the_others_are_kept(jobs):
    write({"b": {"wrong": True}}, jobs)
    with pytest.raises(FartherError) as caught:
        work_on_runs(MODULE, [], [OUTPUT])
    assert str(caught.value) == (
        "b: detectors.b: it is wrong\nWhat was made of the other runs (2) is kept"
    )
    assert set(made()) == {"a", "c"}


def test_a_bug_has_its_traceback():
    write({"a": {"bug": True}})
    with pytest.raises(FartherError, match=r"(?s)a: an unexpected error.*KeyError: 'a bug'"):
        work_on_runs(MODULE, [], [OUTPUT])
    assert set(made()) == {"b", "c"}


def test_a_process_that_is_killed_is_said_with_what_to_write():
    write({"a": {"killed": True}, "b": {"killed": True}, "c": {"killed": True}})
    with pytest.raises(FartherError, match=r"a: a process was killed, .* section `resources`"):
        work_on_runs(MODULE, [], [OUTPUT])


def test_what_is_stored_of_runs_that_are_gone_is_deleted_unless_runs_are_named():
    folder = Path(OUTPUT, "former")
    folder.mkdir(parents=True)
    Path(OUTPUT, "former.json").write_text("{}")
    work_on_runs(MODULE, ["a"], [OUTPUT])
    assert folder.exists()
    work_on_runs(MODULE, [], [OUTPUT])
    assert {entry.name for entry in Path(OUTPUT).iterdir()} == {"a.json", "b.json", "c.json"}


def test_without_runs_an_output_is_a_folder_that_dvc_can_store():
    Path("params.yaml").write_text("detectors: {}\n")
    work_on_runs(MODULE, [], [OUTPUT])
    assert [entry.name for entry in Path(OUTPUT).iterdir()] == ["empty.txt"]


def test_processes_work_with_the_parameters_that_the_stage_began_with():
    write({"a": {"note": "before"}})
    use_snapshot(Path("params.yaml").read_text())
    try:
        write({"a": {"note": "after"}})
        work_on_runs(MODULE, [], [OUTPUT])
    finally:
        use_snapshot(None)
    assert made()["a"]["entry"] == {"note": "before"}


@pytest.mark.parametrize(("cores", "gib", "jobs"), [(8, 100, 3), (2, 100, 2), (8, 9, 2), (8, 1, 1)])
def test_as_many_runs_are_worked_on_as_cores_and_memory_allow(monkeypatch, cores, gib, jobs):
    monkeypatch.setattr(workers, "count_cores", lambda: cores)
    monkeypatch.setattr(workers, "free_memory", lambda: gib * 2**30)
    assert usual_jobs(["a", "b", "c"], Resources(memory=4.0)) == jobs
    assert usual_jobs(["a", "b", "c"], Resources(memory=4.0, jobs=2)) == 2
    monkeypatch.setenv(workers.JOBS, "1")
    assert usual_jobs(["a", "b", "c"], Resources(memory=4.0, jobs=2)) == 1


def test_the_memory_of_a_run_grows_with_its_regions():
    with write_aside(Path("artifacts/regions/a/test.parquet")) as file:
        file.write_bytes(bytes(2**20))
    assert memory_of("b", Resources()) == 1
    assert memory_of("a", Resources()) == pytest.approx(1 + 4 / 1024)
    assert memory_of("a", Resources(memory=2.5)) == 2.5


def test_a_wrong_key_of_the_section_is_refused():
    Path("params.yaml").write_text("detectors: {a: {}}\nresources: {job: 2}\n")
    with pytest.raises(ParameterError, match=r"params\.yaml: resources.*jobs"):
        work_on_runs(MODULE, [], [OUTPUT])
