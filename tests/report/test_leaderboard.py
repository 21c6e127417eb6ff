"""The leaderboard: what is ranked together, where values are from, and what is refused."""

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest

from farther.command import main
from farther.command.committed import read_committed
from farther.errors import DataError, ParameterError
from farther.report.leaderboard import ranked_together, read_stored_runs

BEST = {"auroc": 0.9, "fpr95": 0.2, "nose": 0.1, "ap_u": 0.6, "p_u": 0.7, "r_u": 0.8}
WORSE = {name: 1 - value for name, value in BEST.items()}


def write_project(
    folder: Path,
    values: dict,
    run: str = "voc-a",
    *,
    iou: float = 0.5,
    splits: str = "5" * 32,
    rule: str = "best_f1",
) -> Path:
    """A project with metrics of one run, and the dvc.lock that its stages would have written."""
    metrics = folder / "artifacts/metrics" / run
    texts = {"detector.json": json.dumps({"map50": 0.5}), "coco_near/detector.json": "{}"}
    texts |= {f"coco_near/{method}.json": json.dumps(found) for method, found in values.items()}
    for path, text in texts.items():
        (metrics / path).parent.mkdir(parents=True, exist_ok=True)
        (metrics / path).write_text(text)
    listed = [
        {"md5": hashlib.md5(text.encode()).hexdigest(), "relpath": f"{run}/{path}"}
        for path, text in sorted(texts.items())
    ]
    written = hashlib.md5(json.dumps(listed).encode()).hexdigest()
    entry = {"title": "Net", "adapter": "yolo", "benchmark": "voc", "weights": "net.safetensors"}
    (folder / "params.yaml").write_text(json.dumps({"detectors": {run: entry}}))
    params = {"evaluate": {"iou": iou}, "fit": {"keep": 0.95, "seed": 3}}
    fit = {"cmd": "touch executed", "params": {"params.yaml": {"threshold": {"rule": rule}}}}
    evaluate = {
        "cmd": "touch executed",
        "params": {
            "params.yaml": params,
            "artifacts/code.json": {"evaluate": "c0de"},
        },
        "outs": [{"path": "artifacts/metrics", "md5": f"{written}.dir"}],
    }
    deps = [
        {"path": "net.safetensors", "md5": "6" * 32},
        {"path": "artifacts/splits/voc", "md5": f"{splits}.dir"},
    ]
    infer = {"cmd": "touch executed", "deps": deps}
    lock = {
        "schema": "2.0",
        "stages": {"evaluate": evaluate, "fit": fit, f"infer@{run}": infer},
    }
    (folder / "dvc.lock").write_text(json.dumps(lock))  # JSON is YAML
    return folder


def commit(folder: Path, message: str) -> None:
    if not (folder / ".git").exists():
        subprocess.run(["git", "init", "-q", "-b", "main", folder], check=True)
    git = ["git", "-C", folder, "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", message], check=True)


def entries(*names: object) -> list:
    return [
        entry for name in names for entry in read_stored_runs(**vars(read_committed(str(name))))
    ]


def test_runs_with_the_same_inputs_are_ranked_by_their_mean_rank(tmp_path):
    first = write_project(tmp_path / "first", {"msp": WORSE})
    second = write_project(tmp_path / "second", {"msp": BEST, "knn": BEST}, "voc-b")
    (group,) = ranked_together(entries(first, second))
    assert group.differences == []
    open_set, ood = group.tables
    ranks = (
        open_set.cells.unique(["project", "method"], maintain_order=True)
        .select("project", "method", "rank")
        .rows()
    )
    # Both of `second` are first, and `first` third.
    assert ranks == [
        (str(second), "knn", "1.0"),
        (str(second), "msp", "1.0"),
        (str(first), "msp", "3.0"),
    ]
    assert ood.cells.filter(metric="fpr95", is_best=True)["text"].to_list() == ["20.0", "20.0"]


def test_rows_that_lack_a_value_are_not_ranked_and_have_their_gain_over_confidence(tmp_path):
    confidence = {**WORSE, "r_u": 0.3}
    partial = {**BEST, "ap_u": None}
    project = write_project(
        tmp_path / "one", {"confidence": confidence, "msp": WORSE, "knn": partial}
    )
    (group,) = ranked_together(entries(project))
    ranked, unranked, ood = group.tables
    assert ranked.different("Method") == ["Confidence", "MSP"]
    assert ranked.cells.filter(metric="r_u", is_best=True)["method"].to_list() == ["confidence"]
    assert unranked.different("Method") == ["kNN"]
    assert "Mean rank" not in unranked.labels
    texts = dict(unranked.cells.select("metric", "text").iter_rows())
    assert texts == {"nose": "-80.0", "ap_u": "—", "p_u": "+40.0", "r_u": "+50.0"}
    assert not unranked.cells["is_best"].any()
    assert "points" in unranked.caption
    # In the other table it has all values.
    assert "kNN" in ood.different("Method")


def test_without_confidence_rows_that_lack_a_value_have_no_gain(tmp_path):
    project = write_project(tmp_path / "one", {"msp": WORSE, "knn": {**BEST, "ap_u": None}})
    (group,) = ranked_together(entries(project))
    _, unranked, _ = group.tables
    assert set(unranked.cells["text"]) == {"—"}


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        ({"iou": 0.6}, "evaluate.iou: 0.6 instead of 0.5"),
        ({"rule": "fixed"}, 'threshold.rule: "fixed" instead of "best_f1"'),
        ({"splits": "9" * 32}, f"splits: {'9' * 32} instead of {'5' * 32}"),
    ],
)
def test_runs_with_other_inputs_are_not_ranked_together_and_the_difference_is_named(
    tmp_path, changed, difference
):
    same = [write_project(tmp_path / name, {"msp": BEST}) for name in ("one", "two")]
    other = write_project(tmp_path / "other", {"msp": WORSE}, **changed)
    groups = ranked_together(entries(other, *same))
    assert [len(group.runs) for group in groups] == [2, 1]
    assert groups[1].differences == [difference]
    assert groups[1].tables[0].cells["project"].unique().to_list() == [str(other)]


def test_a_revision_and_an_address_are_read_from_the_commit_and_nothing_is_executed(tmp_path):
    project = write_project(tmp_path / "project", {"msp": BEST})
    mark = tmp_path / "executed"
    hook = project / ".hook"
    hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
    hook.chmod(0o755)
    (project / ".gitattributes").write_text("*.json filter=harm\n")
    commit(project, "one")
    for name in (
        "post-checkout",
        "post-index-change",
        "pre-auto-gc",
        "reference-transaction",
        "fsmonitor-watchman",
    ):
        shutil.copy(hook, project / ".git/hooks" / name)
    for key in (
        "core.fsmonitor",
        "filter.harm.smudge",
        "filter.harm.clean",
        "core.sshCommand",
        *RUN_BY_GIT,
    ):
        subprocess.run(["git", "-C", project, "config", key, str(hook)], check=True)
    write_project(project, {"msp": WORSE})
    (then,), (now,) = entries(f"{project}@HEAD"), entries(project)
    (cloned,) = entries(f"file://{project}@main")
    assert then.values["coco_near", "msp"] == cloned.values["coco_near", "msp"] == BEST
    assert now.values["coco_near", "msp"] == WORSE
    assert then.commit == cloned.commit == now.commit
    assert re.fullmatch(r"[0-9a-f]{40}", then.commit)
    assert (then.checkpoint, then.code) == ("6" * 32, "c0de")
    assert not list(tmp_path.rglob("executed"))


#: What git may start by itself: when it shows a commit, packs one, or looks for the refs of another
#: repository.
RUN_BY_GIT = (
    "gpg.program",
    "core.pager",
    "diff.external",
    "uploadpack.packObjectsHook",
    "core.alternateRefsCommand",
)


@pytest.mark.parametrize(
    "name",
    [
        "ext::sh -c 'touch executed'",
        "ext::sh -c 'touch executed'@main",
        "--upload-pack=x",
        "absent",
        "absent@main",
    ],
)
def test_what_is_neither_a_folder_nor_a_repository_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ParameterError, match="not a folder, FOLDER@REVISION, or the address of a git repository"
    ):
        read_committed(name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "address", ["ssh://-oProxyCommand=touch executed/x", "-oProxyCommand@-x:y"]
)
def test_an_address_whose_host_is_an_option_is_refused(tmp_path, monkeypatch, address):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match=r"strange hostname '.*' blocked"):
        read_committed(address)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_revision_that_is_an_option_is_refused(tmp_path, scheme):
    with pytest.raises(ParameterError, match="'--output=x' is not a revision"):
        read_committed(f"{scheme}{write_project(tmp_path, {})}@--output=x")
    assert not list(tmp_path.rglob("x"))


def git(project, *arguments: str, text: str | None = None) -> str:
    """Output of a command of git in a project; `text` is its input."""
    command = ["git", "-C", project, *arguments]
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return result.stdout.strip()


@pytest.mark.parametrize(("mode", "kind"), [("160000", "a submodule"), ("120000", "a link")])
@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize("path", ["artifacts/metrics/voc-b", "artifacts/metrics"])
def test_a_commit_that_leads_elsewhere_is_refused(tmp_path, scheme, path, mode, kind):
    """Neither a submodule nor a link is followed.

    Wherever it leads: to a program, to files outside of the project.
    """
    project = write_project(tmp_path / "project", {"msp": BEST})
    (project / ".gitmodules").write_text(
        '[submodule "s"]\n'
        f"\tpath = {path}\n"
        f'\turl = ext::sh -c "touch {tmp_path}/executed"\n'
        "\tupdate = !touch x\n"
    )
    commit(project, "one")
    if mode == "160000":
        target = git(project, "rev-parse", "HEAD")
    else:
        target = git(project, "hash-object", "-w", "--stdin", text="/etc")
    git(project, "rm", "-q", "-r", "--cached", "--ignore-unmatch", path)
    git(project, "update-index", "--add", "--cacheinfo", f"{mode},{target},{path}")
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    git(project, *identity, "commit", "-q", "-m", "two")
    with pytest.raises(
        DataError, match=rf"{path}: {kind}: only files that the commit itself holds are read"
    ):
        entries(f"{scheme}{project}@main")
    assert not list(tmp_path.rglob("executed"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"auroc": "<script>"}', r"coco_near/msp.json.*auroc.*valid number, found .<script>."),
        ('{"auroc": NaN}', r"coco_near/msp.json.*auroc.*the number NaN is not finite"),
        ('{"auroc": ', r"coco_near/msp.json.*not JSON"),
        ("[1]", r"coco_near/msp.json.*expected metrics by name"),
    ],
)
def test_a_damaged_file_is_named_with_its_field(tmp_path, text, problem):
    files = read_committed(str(write_project(tmp_path, {"msp": BEST}))).files
    path = "artifacts/metrics/voc-a/coco_near/msp.json"
    lock = json.loads(files["dvc.lock"])
    files[path] = text.encode()
    metrics = [name for name in sorted(files) if name.startswith("artifacts/")]
    listed = [
        {"md5": hashlib.md5(files[name]).hexdigest(), "relpath": name.split("/", 2)[2]}
        for name in metrics
    ]
    md5 = hashlib.md5(json.dumps(listed).encode()).hexdigest()
    lock["stages"]["evaluate"]["outs"][0]["md5"] = f"{md5}.dir"
    with pytest.raises(DataError, match=problem):
        read_stored_runs("p", {**files, "dvc.lock": json.dumps(lock).encode()})


def test_metrics_that_were_changed_by_hand_are_refused(tmp_path):
    project = write_project(tmp_path, {"msp": WORSE})
    (project / "artifacts/metrics/voc-a/coco_near/msp.json").write_text(json.dumps(BEST))
    with pytest.raises(DataError, match=r"artifacts/metrics: not the metrics that dvc.lock lists"):
        entries(project)


def test_a_link_out_of_the_project_is_refused(tmp_path):
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    project = write_project(tmp_path / "project", {"msp": BEST})
    (project / "artifacts/metrics/voc-a/more.json").symlink_to(secret)
    with pytest.raises(DataError, match=r"more\.json: a link that leads out of the project"):
        entries(project)


def test_the_command_writes_one_page_that_can_be_replaced_and_nothing_else(tmp_path, capsys):
    project, out = write_project(tmp_path / "<b>project", {"msp": BEST}), tmp_path / "out"
    for _ in range(2):
        assert main(["benchmark", "leaderboard", str(project), "--out", str(out)]) == 0
    assert "1 run in 1 group: " in capsys.readouterr().out
    page = (out / "index.html").read_text()
    assert "&lt;b&gt;project" in page
    assert "<b>" not in page
    assert "Content-Security-Policy" in page
    assert pl.read_json(out / "leaderboard.json")["run"].to_list() == ["voc-a"]
    assert main(["benchmark", "leaderboard", str(project), "--out", str(tmp_path)]) == 2
    assert "was not written by `farther benchmark leaderboard`" in capsys.readouterr().err
