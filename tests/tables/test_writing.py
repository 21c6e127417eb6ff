"""Writing aside: locks of processes, what killed ones leave, and errors of the disk."""

import errno
import fcntl
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from farther.errors import FartherError
from farther.tables import Images
from farther.tables.documents import read_json, write_json
from farther.tables.writing import locked, unfinished, work_folder, write_aside
from farther_training.run import write_state

WRITES = """
import sys
from farther.tables.writing import write_aside
with write_aside(sys.argv[1]) as folder:
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "half.txt").write_text("half")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def writing(tmp_path):
    """Number and path of another process that has written half of artifacts/tables/coco."""
    command = [sys.executable, "-c", WRITES, tmp_path / "artifacts/tables/coco"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_what_has_the_same_bytes_already_is_not_written_again(tmp_path):
    def written(text: str, *more: str) -> list[int]:
        with write_aside(tmp_path / "folder") as aside:
            (aside / "inner").mkdir(parents=True)
            for name in ("a", *more):
                (aside / "inner" / name).write_text(text)
        write_json(tmp_path / "file.json", text)
        return [
            path.stat().st_ino for path in (tmp_path / "folder/inner/a", tmp_path / "file.json")
        ]

    first = written("old")
    assert written("old") == first
    folder, file = written("old", "b")
    assert folder != first[0] and file == first[1]
    assert all(now != then for now, then in zip(written("new"), (folder, file), strict=True))
    (tmp_path / "file.json").rename(tmp_path / "other.json")
    (tmp_path / "file.json").symlink_to(tmp_path / "other.json")  # as links to DVC's cache
    written("new")
    assert not (tmp_path / "file.json").is_symlink()


def test_equal_sizes_and_times_are_not_equal_bytes(tmp_path):
    for text in ("old", "new", "now"):
        with write_aside(tmp_path / "file") as aside:
            aside.write_text(text)
            os.utime(aside, (1e9, 1e9))
        assert (tmp_path / "file").read_text() == text


def test_an_output_that_is_written_leaves_no_file_open(tmp_path):
    def free() -> int:
        os.close(lowest := os.open(os.devnull, os.O_RDONLY))
        return lowest

    write_json(tmp_path / "a.json", 1)
    before = free()
    for value in range(3):
        write_json(tmp_path / "a.json", value)
    with pytest.raises(RuntimeError), write_aside(tmp_path / "a.json"):
        raise RuntimeError
    assert free() == before


def test_a_lock_that_another_process_holds_for_a_moment_is_waited_for(tmp_path, monkeypatch):
    with locked(tmp_path / "a.json") as lock:
        pass
    lock.parent.mkdir()
    lock.write_text("1 on another machine")
    other = os.open(
        lock, os.O_RDWR
    )  # locks of two descriptors exclude each other, as those of two processes
    fcntl.flock(other, fcntl.LOCK_EX)
    monkeypatch.setattr("farther.tables.writing.PATIENCE", 60)
    waited = []
    monkeypatch.setattr(
        time,
        "sleep",
        lambda seconds: waited.append(seconds) or (len(waited) == 3 and os.close(other)),
    )
    write_json(tmp_path / "a.json", 1)
    assert len(waited) == 3 and read_json(tmp_path / "a.json") == 1
    assert not hidden(tmp_path)


def hidden(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if "/." in str(path)]


def test_what_is_written_is_outside_of_the_outputs_and_another_process_is_refused(
    writing, tmp_path
):
    process, aside = writing
    assert aside.parent == tmp_path / "artifacts/.work"
    assert not list((tmp_path / "artifacts/tables").iterdir())
    with pytest.raises(
        FartherError, match=rf"tables/coco: process {process.pid} on .* is writing it: wait until"
    ):
        write_json(tmp_path / "artifacts/tables/coco", {})
    write_json(tmp_path / "artifacts/tables/voc.json", {})  # another output
    assert (aside / "inner/half.txt").exists()


def test_a_killed_process_holds_no_lock_and_the_next_one_that_writes_anything_deletes_what_it_left(
    writing, tmp_path
):
    process, aside = writing
    process.kill()
    process.wait()
    assert (aside / "inner/half.txt").exists()
    write_json(tmp_path / "artifacts/metrics/other.json", {})
    assert not hidden(tmp_path)
    write_json(tmp_path / "artifacts/tables/coco", {})


def test_a_lock_that_the_disk_does_not_take_is_not_held(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(os, "write", refuse)
        with (
            pytest.raises(FartherError, match=r"a\.json: no space left on device"),
            locked(tmp_path / "a.json"),
        ):
            pass
    assert not hidden(tmp_path)
    write_json(tmp_path / "a.json", 1)


def test_a_worker_that_outlives_the_process_does_not_keep_its_lock(tmp_path):
    with locked(tmp_path / "a"):
        reading, held = os.pipe()
        if not (pid := os.fork()):
            os.close(held)
            os.read(reading, 1)
            os._exit(0)
        os.close(reading)
    try:
        with locked(tmp_path / "a"):
            assert hidden(tmp_path)
    finally:
        os.close(held)
        os.waitpid(pid, 0)


def test_work_that_is_kept_for_resuming_is_not_cleared(tmp_path):
    for path in (tmp_path / "artifacts/regions/r", tmp_path / "other/r"):
        kept = unfinished(path)
        assert kept.parent == work_folder(path)
        kept.mkdir(parents=True)
        write_json(path.with_suffix(".json"), {})
        assert kept.is_dir()


def test_an_error_leaves_what_was_there_and_nothing_else(tmp_path):
    write_json(tmp_path / "out/a.json", 1)
    with pytest.raises(RuntimeError), write_aside(tmp_path / "out") as aside:
        aside.mkdir()
        write_json(aside / "b.json", 2)
        raise RuntimeError
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "a.json"]


def test_the_folder_of_the_project_is_not_replaced(tmp_path, monkeypatch):
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    for path in (".", "x/..", tmp_path):
        with (
            pytest.raises(FartherError, match=f"^{tmp_path}.*the project itself is in this folder"),
            write_aside(path),
        ):
            pass
    assert list(tmp_path.rglob("*")) == [tmp_path / "project"]


@pytest.fixture
def small_files():
    """No file may be larger than 1,000,000 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def table() -> Images:
    names = [os.urandom(16).hex() for _ in range(60_000)]
    return Images(
        image_id=names,
        dataset=["d"] * 60_000,
        file=names,
        width=[1] * 60_000,
        height=[1] * 60_000,
        digest=names,
    )


@pytest.mark.parametrize("kind", ["json", "parquet", "safetensors", "pt"])
def test_a_file_that_the_disk_does_not_take_is_one_message_with_the_space(
    tmp_path, small_files, kind
):
    file = tmp_path / f"artifacts/tables/coco/out.{kind}"
    act = {
        "json": lambda path: write_json(path, "x" * 2_000_000),
        "parquet": lambda path: table().write(path),
        "safetensors": lambda path: save_file({"a": np.zeros(500_000)}, path),
        "pt": lambda path: write_state(
            path, {"a": torch.zeros(500_000)}
        ),  # PyTorch's own error has no number
    }[kind]
    with (
        pytest.raises(FartherError) as error,
        write_aside(tmp_path / "artifacts/tables/coco") as aside,
    ):
        aside.mkdir()
        write_json(aside / "first.json", "x" * 500_000)
        with write_aside(aside / file.name) as inner:
            act(inner)
    assert str(error.value) == f"{file}: file too large"
    assert not hidden(tmp_path)
    assert not (tmp_path / "artifacts/tables/coco").exists()


def test_an_error_that_is_not_the_disks_stays_what_it_is(tmp_path):
    with pytest.raises(RuntimeError, match="other"), write_aside(tmp_path / "a"):
        raise RuntimeError("other")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(
        FartherError, match=r"out\.txt: the file system has no file locks \(flock\)"
    ):
        write_text(tmp_path / "out.txt")


def write_text(path):
    with write_aside(path) as aside:
        aside.write_text("x")


def test_a_full_disk_is_one_message(tmp_path):
    message = (
        r"coco: no space left on device: more than [\d,]+ bytes are needed "
        r"\(1,500,000 were written, [\d,]+ are free\)"
    )
    with pytest.raises(FartherError, match=message), write_aside(tmp_path / "coco") as aside:
        aside.write_bytes(b"x" * 1_500_000)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_folder_that_may_not_be_written_is_named(tmp_path):
    def act() -> None:
        if not os.getuid():
            os.setuid(65534)
        write_json(tmp_path / "artifacts/metrics/a.json", {})

    (tmp_path / "artifacts").mkdir()
    tmp_path.chmod(0o755)
    (tmp_path / "artifacts").chmod(0o555)
    for above in tmp_path.parents:
        if above.name.startswith(("pytest-", "popen-")):
            above.chmod(0o755)
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        try:
            act()
        except FartherError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == f"{tmp_path}/artifacts/metrics: permission denied"


def test_a_file_in_place_of_a_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FartherError, match=r"file/.*: not a directory"):
        write_json(tmp_path / "file/a.json", {})


def test_a_name_of_255_characters_is_written(tmp_path):
    write_json(tmp_path / ("é" * 120 + "a.json"), 1)
    assert read_json(tmp_path / ("é" * 120 + "a.json")) == 1
    with pytest.raises(FartherError, match="file name too long"):
        write_json(tmp_path / ("a" * 256), 1)
