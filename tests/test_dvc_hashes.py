"""Hashes that DVC computed in one run are used by the next one where no file changed."""

import json
from types import SimpleNamespace

import pytest
from dvc.fs import LocalFileSystem
from dvc.output import Output
from dvc_data.hashfile.hash_info import HashInfo

from farther import dvc_hashes
from farther.dvc_hashes import StoredHash, StoredHashes
from farther.dvc_reads import Reads


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a folder of two files, whose hashes DVC counts."""
    root = tmp_path / "project"
    folder = root / "artifacts" / "regions"
    folder.mkdir(parents=True)
    (folder / "header").write_text("1")
    (folder / "rows").write_text("1")
    temporary = root / ".dvc" / "tmp"
    temporary.mkdir(parents=True)
    hashed = []

    def get_hash(output):
        hashed.append(output.fs_path)
        return HashInfo("md5", f"{len(hashed)}.dir")

    monkeypatch.setattr(Output, "get_hash", get_hash)
    repo = SimpleNamespace(scm=None, root_dir=str(root), tmp_dir=str(temporary))
    return SimpleNamespace(root=root, folder=folder, repo=repo, hashed=hashed)


def hash_in_a_run(project):
    """The hash of the project's folder in a run of its own."""
    output = SimpleNamespace(fs_path=str(project.folder), hash_name="md5", fs=LocalFileSystem())
    with Reads().keep(project.repo):
        return Output.get_hash(output)


def stored_file(project):
    return project.root / ".dvc" / "tmp" / dvc_hashes.NAME


def test_a_folder_is_hashed_once_for_all_runs(project):
    for _ in range(3):
        assert hash_in_a_run(project) == HashInfo("md5", "1.dir")
    assert project.hashed == [str(project.folder)]


CHANGES = {
    "content": lambda project: (project.folder / "rows").write_text("2"),
    "another file": lambda project: (project.folder / "other").touch(),
    "a file less": lambda project: (project.folder / "rows").unlink(),
    "what is left out": lambda project: (project.folder / ".dvcignore").write_text("rows"),
    "what is left out of the project": lambda project: (project.root / ".dvcignore").touch(),
    "what is left out of a folder above": lambda project: (
        project.root / "artifacts" / ".dvcignore"
    ).write_text("rows"),
    "no file of hashes": lambda project: stored_file(project).unlink(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_folder_is_hashed_again_after_a_change(project, change):
    hash_in_a_run(project)
    change(project)
    assert hash_in_a_run(project) == HashInfo("md5", "2.dir")
    assert hash_in_a_run(project) == HashInfo("md5", "2.dir")


def test_a_folder_above_the_project_has_no_say(project):
    hash_in_a_run(project)
    (project.root.parent / ".dvcignore").write_text("rows")
    hash_in_a_run(project)
    assert len(project.hashed) == 1


def test_a_folder_is_hashed_again_by_another_version_of_dvc(project, monkeypatch):
    hash_in_a_run(project)
    monkeypatch.setattr(dvc_hashes, "version", lambda package: "99")
    assert hash_in_a_run(project) == HashInfo("md5", "2.dir")


def test_a_run_that_hashes_nothing_leaves_the_file_as_it_is(project):
    hash_in_a_run(project)
    before = stored_file(project).stat()
    hash_in_a_run(project)
    assert stored_file(project).stat() == before


def test_hashes_of_what_was_deleted_are_dropped(project):
    hash_in_a_run(project)
    gone = project.folder
    gone.rename(gone.with_name("renamed"))
    project.folder = gone.with_name("renamed")
    hash_in_a_run(project)
    stored = StoredHashes(project.root, project.repo.tmp_dir).read()
    assert [entry.path for entry in stored] == [str(project.folder)]


def damaged(stored, **fields):
    return json.dumps({**stored, "hashes": [{**stored["hashes"][0], **fields}]})


DAMAGES = {
    "empty": lambda stored: "",
    "no JSON": lambda stored: "{",
    "a list": lambda stored: "[]",
    "nested too deeply": lambda stored: "[" * 100_000,
    "no hashes": lambda stored: json.dumps({"versions": stored["versions"]}),
    "hashes of another type": lambda stored: json.dumps({**stored, "hashes": [1]}),
    "another field": lambda stored: damaged(stored, other="x"),
    "a value of another type": lambda stored: damaged(stored, value=1),
    "a path that is no text": lambda stored: damaged(stored, path=None),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_of_a_damaged_file_nothing_is_used(project, damage):
    hash_in_a_run(project)
    file = stored_file(project)
    file.write_text(damage(json.loads(file.read_text())))
    assert hash_in_a_run(project) == HashInfo("md5", "2.dir")
    assert hash_in_a_run(project) == HashInfo("md5", "2.dir")


def test_where_the_file_cannot_be_written_each_run_hashes_again(project):
    stored_file(project).mkdir()
    assert hash_in_a_run(project) == HashInfo("md5", "1.dir")
    assert hash_in_a_run(project) == HashInfo("md5", "2.dir")
    assert [path.name for path in stored_file(project).parent.iterdir()] == [dvc_hashes.NAME]


def test_hashes_are_read_as_they_were_written(project):
    hashes = [
        StoredHash(str(project.folder), "md5", "a" * 64, "b.dir"),
        StoredHash("/elsewhere/images", "md5", "c" * 64, "d.dir"),
    ]
    stored = StoredHashes(project.root, project.repo.tmp_dir)
    stored.write(hashes)
    assert StoredHashes(project.root, project.repo.tmp_dir).read() == hashes
