"""What DVC reads several times for a stage is read once, and again where it changed."""

import os
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from dvc.fs import GitFileSystem, LocalFileSystem
from dvc.scm import NoSCMError
from scmrepo.noscm import NoSCM

from farther.dvc_reads import Reads

LOCAL = LocalFileSystem()


def test_parameters_are_read_again_where_the_file_changed(tmp_path):
    file = tmp_path / "params.yaml"
    file.write_text("a")
    loaded = []

    def load(path, fs):
        loaded.append(path)
        return {"value": [file.read_text()]}

    load_path = Reads()._kept_parameters(load)
    first = load_path(str(file), LOCAL)
    second = load_path(str(file), LOCAL)
    assert first == second == {"value": ["a"]}
    assert first["value"] is not second["value"]
    assert len(loaded) == 1
    file.write_text("longer")
    assert load_path(str(file), LOCAL) == {"value": ["longer"]}


def rewrite(file, content):
    """Writes another content of the same size into a file, and keeps its inode and its times."""
    before = file.stat()
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = file.stat()
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
    assert after.st_mtime_ns == before.st_mtime_ns


def test_parameters_are_read_again_where_only_the_bytes_changed(tmp_path):
    file = tmp_path / "code.json"
    file.write_text("a")
    load_path = Reads()._kept_parameters(lambda path, fs: {"value": file.read_text()})
    assert load_path(str(file), LOCAL) == {"value": "a"}
    rewrite(file, b"b")
    assert load_path(str(file), LOCAL) == {"value": "b"}


def test_parameters_of_a_revision_are_not_those_of_the_file(tmp_path):
    file = tmp_path / "params.yaml"
    file.write_text("a")
    load_path = Reads()._kept_parameters(lambda path, fs: {"value": fs is LOCAL})
    revision = GitFileSystem.__new__(GitFileSystem)
    assert revision.protocol == LOCAL.protocol
    assert load_path(str(file), LOCAL) == {"value": True}
    assert load_path(str(file), revision) == {"value": False}


def test_parameters_of_other_formats_and_absent_files_are_left_to_dvc(tmp_path):
    loaded = []

    def load(path, fs):
        loaded.append(path)
        return {}

    load_path = Reads()._kept_parameters(load)
    code = tmp_path / "params.py"
    code.write_text("")
    for path in (code, code, tmp_path / "params.yaml", tmp_path / "params.yaml"):
        load_path(str(path), LOCAL)
    assert len(loaded) == 4


def test_a_dependency_is_hashed_once_until_hashes_are_forgotten():
    hashed = []

    def build(dependency, **options):
        hashed.append(dependency.fs_path)
        return object()

    reads = Reads()
    build_dependency = reads._kept_hashes(build)
    dependency = SimpleNamespace(fs_path="regions", hash_name="md5", fs=LOCAL)
    remote = SimpleNamespace(fs_path="s3", hash_name="md5", fs=SimpleNamespace(protocol="s3"))
    first = build_dependency(dependency)
    assert build_dependency(dependency) is first
    assert build_dependency(dependency, dry_run=True) is not first
    reads.forget_hashes()
    assert build_dependency(dependency) is not first
    build_dependency(remote)
    build_dependency(remote)
    assert hashed == ["regions", "regions", "regions", "s3", "s3"]


def test_paths_that_the_stage_has_locked_are_not_locked_again():
    events = []

    @contextmanager
    def lock(folder, fs, command, read, write, hardlink=False):
        events.append((sorted(read), sorted(write)))
        yield
        events.append("end")

    lock_once = Reads()._outermost_locks(lock)
    with lock_once("tmp", None, "", ["a", "b"], ["out"]):
        with lock_once("tmp", None, "", ["a"], []):
            pass
        with lock_once("tmp", None, "", ["a"], ["out"]):
            pass
        with lock_once("tmp", None, "", [], ["other"]):
            pass
    with lock_once("tmp", None, "", ["a"], [], False):
        pass
    outer = (["a", "b"], ["out"])
    assert events == [outer, ([], ["other"]), "end", "end", (["a"], []), "end"]


def test_functions_of_dvc_are_as_before_afterwards():
    from dvc import rwlock
    from dvc.dependency import param
    from dvc.dependency.base import Dependency
    from dvc.output import Output

    usual = (param.load_path, rwlock.rwlock)
    with Reads().keep(SimpleNamespace(scm=None)):
        assert param.load_path is not usual[0]
        assert Dependency._build is not Output._build
    assert (param.load_path, rwlock.rwlock) == usual
    assert Dependency._build is Output._build


@pytest.mark.parametrize("change", [rewrite, lambda index, content: index.write_bytes(content)])
def test_the_index_of_git_is_read_again_where_it_changed(change, tmp_path):
    index = tmp_path / "index"
    index.write_bytes(b"1")

    class Repository:
        def index_path(self):
            return str(index)

        def open_index(self):
            return [index.read_bytes()]

    open_index = Reads()._kept_index(Repository().open_index)
    first = open_index()
    assert open_index() is first
    change(index, b"2")
    assert open_index() == [b"2"]
    index.unlink()
    index.parent.joinpath("index").write_bytes(b"123")
    assert open_index() == [b"123"]


def test_a_project_without_git_is_read_as_well():
    project = SimpleNamespace(scm=NoSCM(_raise_not_implemented_as=NoSCMError))
    with Reads().keep(project):
        pass
