"""dvc.lock with new states of some stages is the text that DVC would write."""

from copy import deepcopy
from types import SimpleNamespace

import pytest
from dvc.utils.serialize import dumps_yaml

from farther import dvc_lock
from farther.dvc_lock import write_lock

STATE = {
    "cmd": "python stages/fit.py 'voc'",
    "deps": [{"path": "a b", "hash": "md5", "md5": "0123.dir", "size": 5, "nfiles": 2}],
    "params": {"params.yaml": {"methods": {"knn": {"k": 10, "note": "x: y # z"}}, "rate": 0.1}},
}
OTHER = {
    "cmd": "echo one\necho two\n\n  three",
    "outs": [{"path": "out", "hash": "md5", "md5": "4", "size": 1}],
}


def lock(**states) -> str:
    # Copies: DVC writes a value that two stages share as an alias.
    return dumps_yaml(
        {"schema": "2.0", "stages": {name: deepcopy(state) for name, state in states.items()}}
    )


class File:
    """A `dvc.dvcfile.ProjectFile` that counts what is left to DVC."""

    def __init__(self, path):
        self._lockfile = SimpleNamespace(path=str(path), relpath=path.name)
        self.tracked = []
        self.repo = SimpleNamespace(scm_context=SimpleNamespace(track_file=self.tracked.append))
        self.dumped = 0

    def dump_stages(self, stages, update_pipeline):
        assert not update_pipeline
        self.dumped += 1


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(dvc_lock, "_as_data", dict)
    return File(tmp_path / "dvc.lock")


def write(file, text: str, states: dict) -> str:
    path = dvc_lock._lock_file(file)
    path.write_text(text, encoding="utf-8")
    write_lock(file, states)
    return path.read_text(encoding="utf-8")


def test_a_stage_is_replaced_in_its_place(file):
    before = lock(a=STATE, **{"fit@b-1": OTHER}, c=STATE)
    after = write(file, before, {"fit@b-1": STATE})
    assert after == lock(a=STATE, **{"fit@b-1": STATE}, c=STATE)
    assert file.tracked == ["dvc.lock"]
    assert not file.dumped


def test_a_new_stage_comes_last(file):
    assert write(file, lock(b=STATE), {"a": OTHER}) == lock(b=STATE, a=OTHER)


def test_a_text_that_does_not_change_is_not_written(file):
    assert write(file, lock(b=STATE), {"b": STATE}) == lock(b=STATE)
    assert not file.tracked


@pytest.mark.parametrize(
    "text",
    [
        lock(b=STATE).replace("  b:\n", "# mine\n  b:\n"),
        lock(b=STATE).replace("nfiles", "# nfiles"),
        dumps_yaml({"schema": "2.0", "stages": {"b": STATE, "c": STATE}}),
        lock(b=STATE).replace("schema: '2.0'", 'schema: "2.0"'),
        lock(b=STATE) + "datasets: []\n",
        lock(b=STATE).removesuffix("\n"),
        lock(b=STATE) * 2,
        "",
    ],
    ids=[
        "comment",
        "comment in a stage",
        "alias",
        "quotes",
        "another section",
        "cut off",
        "twice",
        "empty",
    ],
)
def test_a_file_of_another_form_is_left_to_dvc(file, text):
    assert write(file, text, {"a": STATE}) == text
    assert file.dumped == 1


@pytest.mark.parametrize("folder", [".dvc/tmp", "."])
def test_a_process_that_ends_while_it_writes_leaves_the_file_as_it_was(
    folder, file, tmp_path, monkeypatch
):
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    before = lock(a=STATE)

    def half(path, text, **options):
        with path.open("w") as stream:
            stream.write(text[: len(text) // 2])
        raise KeyboardInterrupt

    path = dvc_lock._lock_file(file)
    path.write_text(before, encoding="utf-8")
    monkeypatch.setattr(dvc_lock.Path, "write_text", half)
    with pytest.raises(KeyboardInterrupt):
        write_lock(file, {"a": OTHER})
    assert path.read_text(encoding="utf-8") == before
    assert [entry for entry in (tmp_path / folder).iterdir() if entry.is_file()] in ([], [path])


def test_a_link_and_the_permissions_of_the_file_stay(file, tmp_path):
    target = tmp_path / "elsewhere"
    target.write_text(lock(a=STATE), encoding="utf-8")
    target.chmod(0o640)
    path = dvc_lock._lock_file(file)
    path.symlink_to(target)
    write_lock(file, {"a": OTHER})
    assert path.is_symlink() and target.read_text(encoding="utf-8") == lock(a=OTHER)
    assert target.stat().st_mode & 0o777 == 0o640


def test_an_absent_file_is_left_to_dvc(file):
    write_lock(file, {"a": STATE})
    assert file.dumped == 1
