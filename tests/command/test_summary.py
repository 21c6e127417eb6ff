"""The closing lines of `farther summary`: metrics and counts beside those of the last commit."""

import json
import subprocess

import pytest

from farther.command.summary import LISTED, compared_with_commit

MSP = "artifacts/metrics/net/far/msp.json"
COMMITTED = {
    "artifacts/metrics/net/detector.json": {"map": 0.5},
    MSP: {"auroc": 0.75, "fpr95": 0.5, "nose": None},
    "artifacts/counts/ingest/voc.json": {"train": {"images": 400}},
}


def git(folder, *arguments):
    words = ["git", "-C", folder, "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments]
    subprocess.run(words, check=True, capture_output=True)


def write(folder, files):
    for name, values in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(values))


@pytest.fixture
def project(tmp_path):
    """A project with one commit."""
    write(tmp_path, COMMITTED)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "-m", "measured")
    return tmp_path


def test_equal_values_are_counted_in_one_line(project):
    assert (
        compared_with_commit(project)
        == "metrics: 5 values match the last commit (largest difference 0)"
    )


def test_rounding_is_no_difference_but_its_size_is_told(project):
    write(project, {MSP: {**COMMITTED[MSP], "auroc": 0.7500003}})
    assert (
        compared_with_commit(project)
        == "metrics: 5 values match the last commit (largest difference 3e-07)"
    )


def test_values_that_differ_are_listed_with_file_name_and_both_values(project):
    write(
        project,
        {
            MSP: {**COMMITTED[MSP], "auroc": 0.5},
            "artifacts/counts/ingest/voc.json": {"train": {"images": 399}},
        },
    )
    first, heads, *rows = compared_with_commit(project).splitlines()
    assert first == "metrics: 2 of 5 values differ from the last commit (largest difference 1)"
    assert heads.split() == ["file", "name", "committed", "now"]
    assert [row.split() for row in rows] == [
        [MSP, "auroc", "0.75", "0.5"],
        ["artifacts/counts/ingest/voc.json", "train.images", "400", "399"],
    ]


def test_a_value_that_only_one_side_has_differs(project):
    write(
        project,
        {MSP: {"auroc": 0.75, "nose": 0.1}, "artifacts/metrics/new/detector.json": {"map": 0.25}},
    )
    first, _, *rows = compared_with_commit(project).splitlines()
    assert first == "metrics: 3 of 6 values differ from the last commit (largest difference 0)"
    assert {tuple(row.split()[1:]) for row in rows} == {
        ("fpr95", "0.5", "–"),
        ("nose", "–", "0.1"),
        ("map", "–", "0.25"),
    }


def test_after_ten_values_the_others_are_counted(project):
    write(
        project,
        {
            "artifacts/metrics/net/near/knn.json": {
                f"m{number}": number for number in range(LISTED + 3)
            }
        },
    )
    lines = compared_with_commit(project).splitlines()
    assert len(lines) == LISTED + 3 and lines[-1] == "and 3 more"


def test_without_committed_metrics_there_is_no_line(tmp_path, project):
    alone = tmp_path / "alone"  # within the repository, but none of its files is committed
    write(alone, COMMITTED)
    assert compared_with_commit(alone) == ""


def test_outside_of_git_there_is_no_line(tmp_path, monkeypatch):
    write(tmp_path, COMMITTED)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert compared_with_commit(tmp_path) == ""
    monkeypatch.setenv("PATH", "")  # no git on this machine
    assert compared_with_commit(tmp_path) == ""
