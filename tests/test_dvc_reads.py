"""What DVC reads several times for a stage is read once, and again where it changed."""

from contextlib import contextmanager
from types import SimpleNamespace

from farther.dvc_reads import Reads


def test_parameters_are_read_again_where_the_file_changed(tmp_path):
    file = tmp_path / "params.yaml"
    file.write_text("a")
    loaded = []

    def load(path, fs):
        loaded.append(path)
        return {"value": [file.read_text()]}

    load_path = Reads()._kept_parameters(load)
    first = load_path(str(file), None)
    second = load_path(str(file), None)
    assert first == second == {"value": ["a"]}
    assert first["value"] is not second["value"]
    assert len(loaded) == 1
    file.write_text("longer")
    assert load_path(str(file), None) == {"value": ["longer"]}


def test_parameters_of_other_formats_and_absent_files_are_left_to_dvc(tmp_path):
    loaded = []

    def load(path, fs):
        loaded.append(path)
        return {}

    load_path = Reads()._kept_parameters(load)
    code = tmp_path / "params.py"
    code.write_text("")
    for path in (code, code, tmp_path / "params.yaml", tmp_path / "params.yaml"):
        load_path(str(path), None)
    assert len(loaded) == 4


def test_a_dependency_is_hashed_once_until_hashes_are_forgotten():
    hashed = []

    def build(dependency, **options):
        hashed.append(dependency.fs_path)
        return object()

    reads = Reads()
    build_dependency = reads._kept_hashes(build)
    fs = SimpleNamespace(protocol="local")
    dependency = SimpleNamespace(fs_path="regions", hash_name="md5", fs=fs)
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


def test_the_index_of_git_is_read_again_where_it_changed(tmp_path):
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
    index.write_bytes(b"12")
    assert open_index() == [b"12"]
    index.unlink()
    index.parent.joinpath("index").write_bytes(b"123")
    assert open_index() == [b"123"]
