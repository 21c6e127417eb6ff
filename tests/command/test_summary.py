"""`farther summary`: its last line, the comparison with the last commit, and its JSON."""

import json
import subprocess

import pytest

from farther.command import main
from farther.command.summary import LISTED, _say_differences, compared_with_commit

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
    differences = compared_with_commit(project)
    assert differences.sentence() == "5 metrics and counts match the last commit within 1e-4."
    assert differences.largest == 0


def test_rounding_is_no_difference_and_takes_one_line(project):
    write(project, {MSP: {**COMMITTED[MSP], "auroc": 0.75003}})
    differences = compared_with_commit(project)
    assert differences.sentence() == "5 metrics and counts match the last commit within 1e-4."
    assert differences.data(every=True) == {
        "compared": 5,
        "differ": 0,
        "largest": pytest.approx(3e-5),
        "rounding": 1e-4,
        "values": [],
    }


def test_values_that_differ_are_counted_in_one_line_and_listed_with_both_values(project):
    write(
        project,
        {
            MSP: {**COMMITTED[MSP], "auroc": 0.5},
            "artifacts/counts/ingest/voc.json": {"train": {"images": 399}},
        },
    )
    differences = compared_with_commit(project)
    assert differences.sentence() == (
        "2 of 5 metrics and counts differ from the last commit, at most by 1 (train.images of "
        "artifacts/counts/ingest/voc.json)"
    )
    heads, *rows = differences.table().splitlines()
    assert heads.split() == ["file", "name", "committed", "now"]
    assert [row.split() for row in rows] == [
        [MSP, "auroc", "0.75", "0.5"],
        ["artifacts/counts/ingest/voc.json", "train.images", "400", "399"],
    ]
    assert "values" not in differences.data(every=False)
    first, _ = differences.data(every=True)["values"]
    assert first == {"file": MSP, "name": "auroc", "before": 0.75, "after": 0.5}


def test_a_value_that_only_one_side_has_differs(project):
    write(
        project,
        {MSP: {"auroc": 0.75, "nose": 0.1}, "artifacts/metrics/new/detector.json": {"map": 0.25}},
    )
    differences = compared_with_commit(project)
    assert differences.sentence() == (
        "3 of 6 metrics and counts differ from the last commit, which only one side has"
    )
    _, *rows = differences.table().splitlines()
    assert {tuple(row.split()[1:]) for row in rows} == {
        ("fpr95", "0.5", "–"),
        ("nose", "–", "0.1"),
        ("map", "–", "0.25"),
    }


def test_all_names_the_values_and_otherwise_the_option_that_does(project, capsys):
    write(project, {MSP: {**COMMITTED[MSP], "auroc": 0.5}})
    differences = compared_with_commit(project)
    _say_differences(differences, every=False)
    assert " ".join(capsys.readouterr().out.split()).endswith("; all: farther summary --all")
    _say_differences(differences, every=True)
    printed = capsys.readouterr().out
    assert "--all" not in printed and printed.splitlines()[-1].split() == [
        MSP,
        "auroc",
        "0.75",
        "0.5",
    ]


def test_after_ten_values_the_others_are_counted(project):
    write(
        project,
        {
            "artifacts/metrics/net/near/knn.json": {
                f"m{number}": number for number in range(LISTED + 3)
            }
        },
    )
    lines = compared_with_commit(project).table().splitlines()
    assert len(lines) == LISTED + 2
    assert lines[-1] == "and 3 more; all: farther summary --all --json"


def test_without_committed_metrics_there_is_no_comparison(tmp_path, project):
    alone = tmp_path / "alone"  # within the repository, but none of its files is committed
    write(alone, COMMITTED)
    assert compared_with_commit(alone) is None


def test_outside_of_git_there_is_no_comparison(tmp_path, monkeypatch):
    write(tmp_path, COMMITTED)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert compared_with_commit(tmp_path) is None
    monkeypatch.setenv("PATH", "")  # no git on this machine
    assert compared_with_commit(tmp_path) is None


PARAMS = {
    "datasets": {},
    "benchmarks": {
        "voc": {
            "id": "voc",
            "rules": "rules.yaml",
            "splits": {"far": {"dataset": "coco", "subset": "val", "distance": "far"}},
        }
    },
    "detectors": {"net": {"adapter": "yolo", "benchmark": "voc", "weights": "net.pt"}},
    "methods": {"confidence": {}, "msp": {}},
}


@pytest.fixture
def summarised(project, capsys, monkeypatch):
    """Runs the command on the project; returns its output."""
    monkeypatch.chdir(project)
    (project / "params.yaml").write_text(json.dumps(PARAMS))  # JSON is YAML

    def run(*arguments):
        capsys.readouterr()
        assert main(["summary", *arguments]) == 0
        return capsys.readouterr()

    return run


def test_the_last_line_of_the_result_is_one_sentence_and_the_table_comes_with_all(
    project, summarised
):
    assert summarised().out.splitlines()[-1] == (
        "5 metrics and counts match the last commit within 1e-4."
    )
    write(project, {MSP: {**COMMITTED[MSP], "auroc": 0.5}})
    assert "committed" not in summarised().out
    assert "committed" in summarised("--all").out


def test_json_has_findings_means_report_and_commit(project, summarised):
    output = summarised("--json")
    data = json.loads(output.out)
    assert list(data) == ["findings", "means", "report", "commit"]
    assert data["report"] is None
    assert data["commit"] == {"compared": 5, "differ": 0, "largest": 0.0, "rounding": 1e-4}
    assert data["means"]["runs"] == ["net"]
    assert output.err == ""  # no next step for programs


def test_json_of_all_has_the_values_of_each_run(summarised):
    data = json.loads(summarised("--json", "--all").out)
    (run,) = data["runs"]
    assert run["run"] == "net"
    assert run["detector"] == {"map": 0.5}
    auroc = next(row for row in run["values"] if row["metric"] == "auroc")
    assert (auroc["split"], auroc["method"], auroc["value"]) == ("far", "msp", 0.75)
    assert auroc["low"] is None
    assert data["commit"]["values"] == []


def test_short_json_has_no_table(summarised):
    assert "means" not in json.loads(summarised("--json", "--short").out)


def test_json_before_anything_is_evaluated_is_empty(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text(json.dumps(PARAMS))
    assert main(["summary", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "findings": [],
        "means": None,
        "report": None,
        "commit": None,
    }
