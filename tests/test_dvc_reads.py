"""What DVC reads several times for a stage is read once, and again where it changed."""

import os
import shutil
from functools import partial
from types import SimpleNamespace

import pytest
from dvc.dependency import param
from dvc.fs import GitFileSystem, LocalFileSystem
from dvc.scm import NoSCMError
from scmrepo.noscm import NoSCM

from farther import dvc_reads
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


def reader(read):
    """`read_param_file` that keeps values, where `read` is DVC's."""
    return partial(Reads()._kept_values(read), LOCAL)


def test_parameters_are_looked_up_once_and_again_where_the_bytes_changed(tmp_path):
    file = tmp_path / "params.yaml"
    file.write_text("methods: {knn: {k: 10}}")
    looked_up = []

    def read(fs, path, key_paths, **options):
        looked_up.extend(key_paths)
        return param.read_param_file(fs, path, key_paths, **options)

    read_param_file = reader(read)
    names = ["methods.knn", "methods.absent"]
    first = read_param_file(str(file), names, flatten=True)
    second = read_param_file(str(file), [*names[:1], "methods"], flatten=True)
    assert first == {"methods.knn": {"k": 10}}
    assert second == {"methods.knn": {"k": 10}, "methods": {"knn": {"k": 10}}}
    assert first["methods.knn"] is not second["methods.knn"]
    assert looked_up == [*names, "methods"]
    rewrite(file, b"methods: {knn: {k: 20}}")
    assert read_param_file(str(file), names, flatten=True) == {"methods.knn": {"k": 20}}


def test_parameters_that_change_while_they_are_read_are_not_kept(tmp_path):
    file = tmp_path / "params.yaml"
    file.write_text("a: 1")

    def read(fs, path, key_paths, **options):
        found = param.read_param_file(fs, path, key_paths, **options)
        if found == {"a": 1}:
            file.write_text("a: 2")
        return found

    read_param_file = reader(read)
    assert read_param_file(str(file), ["a"], flatten=True) == {"a": 1}
    file.write_text("a: 1")
    file.write_text("a: 3")
    assert read_param_file(str(file), ["a"], flatten=True) == {"a": 3}


@pytest.mark.parametrize(
    "arguments", [(None,), (["a"],)], ids=["all parameters", "parameters that are not flat"]
)
def test_other_reads_of_parameters_are_left_to_dvc(tmp_path, arguments):
    file = tmp_path / "params.yaml"
    file.write_text("a: 1")
    read_by_dvc = []

    def read(*arguments, **options):
        read_by_dvc.append(arguments)
        return {"a": 1}

    read_param_file = reader(read)
    for _ in range(2):
        assert read_param_file(str(file), *arguments) == {"a": 1}
    assert len(read_by_dvc) == 2


@pytest.fixture
def folder(tmp_path):
    """A folder with a file in a folder in it, which Git or DVC could have written."""
    folder = tmp_path / "regions"
    (folder / "train").mkdir(parents=True)
    (folder / "train" / "rows").write_bytes(b"1")
    (folder / "header").write_bytes(b"1")
    return folder


class Hashes:
    """Counts how often DVC hashes the outputs and dependencies of a path."""

    def __init__(self, path):
        self.output = SimpleNamespace(fs_path=str(path), hash_name="md5", fs=LOCAL)
        self.reads = Reads()
        self.count = 0
        self._get_hash = self.reads._kept_hash_infos(self._hash)
        self._build = self.reads._kept_hashes(self._hash)

    def _hash(self, output):
        self.count += 1
        return self.count

    def for_stage(self):
        """The hash for the next stage, as text and as DVC builds it."""
        self.reads.forget_hashes()
        return self._get_hash(self.output), self._build(self.output)


def test_a_folder_is_hashed_once_for_all_stages(folder):
    hashes = Hashes(folder)
    assert hashes.for_stage() == hashes.for_stage() == (1, 2)
    assert hashes.count == 2


CHANGES = {
    "content of the same size and time": lambda folder: rewrite(folder / "train" / "rows", b"2"),
    "another file": lambda folder: (folder / "other").touch(),
    "a file less": lambda folder: (folder / "header").unlink(),
    "another name": lambda folder: (folder / "header").rename(folder / "header.json"),
    "a file of another folder": lambda folder: (folder / "header").rename(folder / "train/header"),
    "mode": lambda folder: (folder / "header").chmod(0o755),
    "another folder": lambda folder: (folder / "val").mkdir(),
    "no folder": shutil.rmtree,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_folder_is_hashed_again_where_a_file_in_it_changed(folder, change):
    hashes = Hashes(folder)
    hashes.for_stage()
    change(folder)
    assert hashes.for_stage() == (3, 4)


@pytest.mark.parametrize("name", ["train/rows", "header", "train", ""])
def test_what_has_links_is_hashed_for_each_stage(folder, tmp_path, name):
    path = folder / name
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    hashes = Hashes(folder)
    hashes.for_stage()
    assert hashes.for_stage() == (3, 4)


def test_a_folder_of_many_files_is_hashed_for_each_stage(folder, monkeypatch):
    monkeypatch.setattr(dvc_reads, "MOST_FILES", 2)
    hashes = Hashes(folder)
    hashes.for_stage()
    assert hashes.for_stage() == (3, 4)


def test_what_changes_while_it_is_hashed_is_hashed_again(folder):
    hashes = Hashes(folder)
    usual = hashes._hash

    def hash_and_change(output):
        if hashes.count == 0:
            rewrite(folder / "header", b"2")
        return usual(output)

    hashes._get_hash = hashes.reads._kept_hash_infos(hash_and_change)
    hashes.for_stage()
    assert hashes.for_stage() == (3, 2)


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


@pytest.mark.parametrize(("persist", "expected"), [(True, []), (False, ["hashed"])])
def test_what_a_stage_with_kept_outputs_depends_on_is_not_hashed_for_the_cache_of_runs(
    persist, expected
):
    hashed = []

    def can_hash(stage):
        hashed.append("hashed")
        return True

    outputs = [SimpleNamespace(persist=False), SimpleNamespace(persist=persist)]
    stage = SimpleNamespace(outs=outputs)
    assert Reads()._without_hashes(can_hash)(stage) is not persist
    assert hashed == expected


def test_functions_of_dvc_are_as_before_afterwards():
    from dvc.dependency.base import Dependency
    from dvc.output import Output
    from dvc.stage import cache

    def functions():
        return param.load_path, param.read_param_file, cache._can_hash, Output.get_hash

    usual = functions()
    with Reads().keep(SimpleNamespace(scm=None, tmp_dir=None)):
        for replaced, function in zip(functions(), usual, strict=True):
            assert replaced is not function
        assert Dependency._build is not Output._build
    assert functions() == usual
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
    project = SimpleNamespace(scm=NoSCM(_raise_not_implemented_as=NoSCMError), tmp_dir=None)
    with Reads().keep(project):
        pass
