"""Locks of paths are in DVC's file while a command runs, and others' locks are respected."""

import json
import os
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from dvc.exceptions import DvcException
from dvc.fs import localfs
from dvc.rwlock import rwlock

from farther.dvc_path_locks import PathLocks


def paths_in(folder: Path) -> dict[str, list[str]]:
    """The paths that DVC's file names."""
    file = folder / "rwlock"
    content = json.loads(file.read_text()) if file.exists() else {}
    return {kind: sorted(entries) for kind, entries in content.items() if entries}


@contextmanager
def lock(late, folder: Path, read: list[str], written: list[str]):
    with late(str(folder), localfs, "dvc repro", read, written, False):
        yield


@pytest.fixture
def locks() -> PathLocks:
    return PathLocks()


@pytest.fixture
def late(locks):
    return locks._late_locks(rwlock)


def lock_for(folder: Path, pid: int, kind: str) -> None:
    """Writes DVC's file as another process would that locked `out`."""
    holder = {"pid": pid, "cmd": "dvc repro"}
    entry = holder if kind == "write" else [holder]
    (folder / "rwlock").write_text(json.dumps({kind: {"out": entry}}))


def test_the_file_has_the_paths_of_a_stage_while_its_command_runs(locks, late, tmp_path):
    with lock(late, tmp_path, ["a", "b"], ["out"]):
        assert paths_in(tmp_path) == {}
        with locks.in_file():
            assert paths_in(tmp_path) == {"read": ["a", "b"], "write": ["out"]}
            with locks.in_file():
                assert paths_in(tmp_path) == {"read": ["a", "b"], "write": ["out"]}
        assert paths_in(tmp_path) == {}
    assert paths_in(tmp_path) == {}


def test_paths_that_the_stage_has_locked_are_not_locked_again(late, tmp_path):
    with lock(late, tmp_path, ["a", "b"], ["out"]):
        with lock(late, tmp_path, ["a", "out"], []):
            assert not (tmp_path / "rwlock").exists()
        with lock(late, tmp_path, ["a"], ["out"]):
            assert not (tmp_path / "rwlock").exists()
        with lock(late, tmp_path, [], ["other"]):
            assert paths_in(tmp_path) == {"write": ["other"]}
        with lock(late, tmp_path, [], ["a"]):  # it was locked for reading only
            assert paths_in(tmp_path) == {"write": ["a"]}
    assert paths_in(tmp_path) == {}


def test_after_an_error_nothing_is_locked(locks, late, tmp_path):
    with pytest.raises(KeyError), lock(late, tmp_path, ["a"], ["out"]), locks.in_file():
        raise KeyError
    assert paths_in(tmp_path) == {}
    with locks.in_file():  # outside a stage
        assert paths_in(tmp_path) == {}


@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_stage_whose_output_another_process_has_locked_does_not_begin(late, tmp_path, kind):
    parent = os.getppid()
    lock_for(tmp_path, parent, kind)
    with (
        pytest.raises(DvcException, match=rf"is busy.*(\n|.)*PID {parent}"),
        lock(late, tmp_path, ["a"], ["out"]),
    ):
        pass
    with lock(late, tmp_path, ["a"], ["elsewhere"]):
        # Beside another process, paths are in the file all the time.
        assert "elsewhere" in paths_in(tmp_path)["write"]


def test_the_lock_of_a_process_that_was_killed_is_no_lock(late, tmp_path):
    absent = max(psutil.pids()) + 1_000_000
    lock_for(tmp_path, absent, "write")
    with lock(late, tmp_path, [], ["out"]):
        pass
    assert paths_in(tmp_path) == {}


def test_a_damaged_file_is_named_before_a_command_runs(locks, late, tmp_path):
    (tmp_path / "rwlock").write_text("{")
    with (
        pytest.raises(DvcException, match="Unable to read RWLock-file"),
        lock(late, tmp_path, [], ["out"]),
        locks.in_file(),
    ):
        pass


def test_the_function_of_dvc_is_as_before_afterwards():
    from dvc import rwlock as module

    usual = module.rwlock
    with PathLocks().keep():
        assert module.rwlock is not usual
    assert module.rwlock is usual
