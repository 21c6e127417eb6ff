"""DVC as its users use it: what changed, experiments, and artifacts shared through real servers."""

import contextlib
import csv
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.stages.in_process import OF_RUN
from tests.support import dvc_commands

pytestmark = [pytest.mark.slow, pytest.mark.drawn(3)]

ROOT = Path(__file__).parents[2]
RUN = "voc-faster_rcnn"
STAGES = ("demo", "ingest", "curate", "infer", "code", *OF_RUN)
WEIGHTS = f"{RUN}.safetensors"


class Clone:
    """A copy of the project under git and DVC."""

    def __init__(self, folder: Path, commands: Path) -> None:
        self.folder, self.commands = folder, commands

    def start(self, *command: str, **options) -> subprocess.Popen:
        """Starts a command, as a program of its own."""
        return self._start(command, Path(sys.executable).parent, **options)

    def _start(self, command: tuple[str, ...], programs: Path, **options) -> subprocess.Popen:
        path = os.pathsep.join(
            [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
        )
        environment = {
            **os.environ,
            "PATH": path,
            "PYTHONPATH": str(ROOT / "lib"),
            "DVC_NO_ANALYTICS": "1",
        }
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdout=pipe,
            stderr=pipe,
            text=True,
            **options,
        )

    def try_to(self, *command: str) -> tuple[int, str]:
        """Runs a command; returns its exit status and all that it printed."""
        process = self._start(command, self.commands)
        out, err = process.communicate()
        return process.returncode, out + err

    def run(self, *command: str) -> str:
        status, printed = self.try_to(*command)
        assert status == 0, f"{' '.join(command)} failed:\n{printed[-6000:]}"
        return printed

    def commit(self) -> None:
        self.run("git", "add", "--all")
        self.run(
            "git",
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.org",
            "commit",
            "--quiet",
            "-m",
            "state",
        )

    def connect(self, remote) -> None:
        """Makes a remote the default: its settings are shared, its secrets belong to this clone."""
        settings = {"url": remote.url, **remote.settings}
        (self.folder / ".dvc" / "config").write_text(
            f"[core]\nremote = {remote.name}\n{section(remote.name, settings)}"
        )
        self.add_secrets(remote)

    def add_secrets(self, remote) -> None:
        (self.folder / ".dvc" / "config.local").write_text(section(remote.name, remote.secrets))

    def cached(self) -> set[str]:
        """MD5s of the objects in the cache."""
        return {
            file.parent.name + file.name
            for file in (self.folder / ".dvc/cache/files/md5").rglob("*")
            if file.is_file()
        }

    def out(self, stage: str, path: str) -> str:
        """The object that holds an output, by dvc.lock."""
        lock = yaml.safe_load((self.folder / "dvc.lock").read_text())
        return next(line["md5"] for line in lock["stages"][stage]["outs"] if line["path"] == path)

    def listed(self, oid: str) -> dict[str, str]:
        """The objects of a folder's files."""
        lines = json.loads((self.folder / ".dvc/cache/files/md5" / oid[:2] / oid[2:]).read_text())
        return {line["relpath"]: line["md5"] for line in lines}


def section(remote: str, settings: dict[str, str]) -> str:
    """A remote's lines in a file of settings."""
    return "\n".join(
        [f"['remote \"{remote}\"']", *(f"{key} = {value}" for key, value in settings.items()), ""]
    )


def make_pipeline_small(pipeline) -> None:
    """Leaves what one run needs, up to its metrics and curves."""
    pipeline["stages"] = {name: pipeline["stages"][name] for name in STAGES}


def make_params_small(params) -> None:
    """Leaves one detector and two methods on the fewest scenes that give every split objects."""
    others = {name: {"train": 2, "val": 2, "test": 2} for name in ("bdd", "drawings")}
    params["demo"].update(
        **others, voc={"train": 12, "val": 6, "test": 6}, coco=24, openimages=2, drawings_unknown=2
    )
    params["datasets"] = {name: params["datasets"][name] for name in ("voc", "coco")}
    voc = params["benchmarks"]["voc"]
    voc["splits"] = {
        name: split for name, split in voc["splits"].items() if split["dataset"] == "coco"
    }
    del voc["shifted"], voc["pseudo_ood"]
    params["benchmarks"], params["derived"] = {"voc": voc}, {}
    params["detectors"] = {RUN: params["detectors"][RUN]}
    params["detectors"][RUN]["proposals"] = {"rpn": {}}  # without the sources of other runs
    params["methods"] = {name: params["methods"][name] for name in ("msp", "knn")}
    params["evaluate"]["replicates"] = 100


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory, commands: Path) -> Clone:
    """The project with a small world, reproduced and committed."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("stages", "lib", "data", "extensions", "training"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.egg-info"))
    for file in (folder / "data" / "demo").glob("*.safetensors"):
        if file.name != WEIGHTS:
            file.unlink()
    for name in (".dvcignore", ".gitignore"):
        shutil.copy(ROOT / name, folder / name)
    for name, make_small in {
        "params.yaml": make_params_small,
        "dvc.yaml": make_pipeline_small,
    }.items():
        content = yaml.safe_load((ROOT / name).read_text())
        make_small(content)
        (folder / name).write_text(yaml.safe_dump(content, sort_keys=False))
    project = Clone(folder, commands)
    project.run("git", "init", "--quiet", "--initial-branch", "main")
    project.run("dvc", "init", "--quiet")
    shutil.copytree(ROOT / ".dvc" / "plots", folder / ".dvc" / "plots")
    project.run("dvc", "repro")
    project.commit()
    return project


@pytest.fixture(scope="session")
def remote(project: Clone, server):
    """A remote on a real server, with all of the project's artifacts."""
    remote = server.remote("store")
    project.connect(remote)
    project.run("dvc", "push")
    project.commit()
    return remote


@pytest.fixture
def colleague(project: Clone, remote, tmp_path: Path) -> Clone:
    """A clone with an empty cache, on the machine of somebody who may read the remote."""
    project.run("git", "clone", "--quiet", str(project.folder), str(tmp_path / "clone"))
    clone = Clone(tmp_path / "clone", project.commands)
    clone.add_secrets(remote)
    return clone


def object_name(oid: str) -> str:
    return f"files/md5/{oid[:2]}/{oid[2:]}"


def stages_in(printed: str) -> list[str]:
    return re.findall(r"^Running stage '(.+)':$", printed, flags=re.MULTILINE)


def test_a_colleague_with_an_empty_cache_pulls_and_only_code_runs(colleague: Clone):
    colleague.run("dvc", "pull")
    assert stages_in(colleague.run("dvc", "repro")) == ["code"]
    assert colleague.run("dvc", "status").split() == ["code:", "always", "changed"]
    assert (colleague.folder / f"artifacts/results/{RUN}.parquet").is_file()
    assert colleague.run("git", "status", "--porcelain") == ""


def test_a_partial_pull_fetches_only_what_is_asked(project: Clone, colleague: Clone):
    """Of a folder of all runs, that of one run."""
    path = f"artifacts/scores/{RUN}"
    folder = project.out("score", "artifacts/scores")
    listed = project.listed(folder)
    of_knn = {name: oid for name, oid in listed.items() if name.startswith(f"{RUN}/knn/")}
    assert set(of_knn) < set(listed)
    colleague.run("dvc", "pull", f"{path}/knn")
    assert colleague.cached() == {folder, *of_knn.values()}
    pulled = {
        str(file.relative_to(colleague.folder / "artifacts/scores"))
        for file in (colleague.folder / path).rglob("*.*")
    }
    assert pulled == set(of_knn)
    assert not (colleague.folder / "artifacts/regions").exists()


@pytest.fixture
def interrupted(project: Clone, remote, server) -> Iterator[Any]:
    """Another remote, empty, which is the project's default as long as the test runs."""
    interrupted = server.remote("interrupted")
    project.connect(interrupted)
    yield interrupted
    project.connect(remote)


def test_an_interrupted_push_sends_only_the_rest_when_said_again(
    project: Clone, remote, interrupted
):
    push = project.start("dvc", "push", "--jobs", "1", start_new_session=True)
    while push.poll() is None and len(whole(interrupted)) < 5:
        wait(push, seconds=0.02)
    os.killpg(push.pid, signal.SIGKILL)
    push.communicate()
    arrived = whole(interrupted)
    sent = int(re.search(r"(\d+) files? pushed", project.run("dvc", "push"))[1])
    assert 5 <= len(arrived) < len(arrived) + sent == len(whole(interrupted))
    assert whole(interrupted) == whole(remote)
    for name in whole(interrupted):
        digest = hashlib.md5(interrupted.read(name), usedforsecurity=False).hexdigest()
        assert name.removesuffix(".dir") == object_name(digest)


def whole(remote) -> set[str]:
    """The objects on the remote, without what was left of unfinished ones."""
    return {name for name in remote.names() if not name.endswith(".tmp")}


def wait(process: subprocess.Popen, seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


def test_a_corrupted_object_is_detected_named_and_replaced(
    project: Clone, remote, colleague: Clone
):
    project.connect(remote)
    path = "artifacts/scores"
    oid = project.listed(project.out("score", path))[f"{RUN}/knn/test.parquet"]
    content = remote.read(object_name(oid))
    remote.write(object_name(oid), bytes([content[0] ^ 1]) + content[1:])

    status, printed = colleague.try_to("dvc", "pull", path)
    assert status != 0
    assert path in printed
    assert oid not in colleague.cached()

    status, printed = project.try_to("farther", "remote", "check", "--remove")
    assert status == 1
    assert f"{path}/{RUN}/knn/test.parquet: object {oid} is damaged" in printed
    assert "Faults: 1." in printed
    addresses = re.findall(rf"^  {re.escape(remote.url)}/(.+)$", printed, flags=re.MULTILINE)
    assert sorted(addresses) == sorted([object_name(oid), object_name(project.out("score", path))])

    for name in addresses:
        remote.delete(name)
    project.run("dvc", "push")
    assert remote.read(object_name(oid)) == content
    colleague.run("dvc", "pull", path)
    assert (colleague.folder / path / RUN / "knn/test.parquet").read_bytes() == content


def test_a_corrupted_object_in_the_cache_is_named(project: Clone):
    path = "artifacts/scores"
    oid = project.listed(project.out("score", path))[f"{RUN}/msp/val.parquet"]
    file = project.folder / ".dvc/cache/files/md5" / oid[:2] / oid[2:]
    content = file.read_bytes()
    file.chmod(0o644)
    file.write_bytes(content[:-1])
    status, printed = project.try_to("farther", "remote", "check", "--cache")
    file.write_bytes(content)
    assert status == 1
    assert f"{path}/{RUN}/msp/val.parquet: object {oid} is damaged" in printed


def test_secrets_stay_out_of_git(project: Clone, remote):
    assert "config.local" not in project.run("git", "ls-files", ".dvc")
    shared = (project.folder / ".dvc" / "config").read_text()
    assert not any(secret in shared for secret in remote.secrets.values())


@pytest.fixture(scope="module")
def experiment(project: Clone) -> str:
    """An experiment with another k, in the workspace; what it printed."""
    return project.run("dvc", "exp", "run", "--name", "wider", "--set-param", "methods.knn.k=3")


@pytest.mark.usefixtures("experiment")
def test_what_an_experiment_changed_is_shown_by_every_diff(project: Clone):
    changed = json.loads(project.run("dvc", "params", "diff", "--json"))
    assert changed["params.yaml"] == {"methods.knn.k": {"old": 10, "new": 3, "diff": -7}}
    metrics = json.loads(project.run("dvc", "metrics", "diff", "--json"))
    assert {Path(path).name for path in metrics} == {"knn.json", "methods.json"}
    page = (
        project.run("dvc", "plots", "diff", "HEAD", "--out", "artifacts/compared")
        .strip()
        .splitlines()[-1]
    )
    html = Path(page.removeprefix("file://")).read_text()
    for curve in (
        "ROC",
        "unknowns",
        "R_U by t*",
        "nOSE by share of ID kept",
        "wilderness impact",
        "reliability",
    ):
        assert curve in html


def test_an_experiment_runs_only_what_its_parameters_concern(experiment: str):
    assert stages_in(experiment) == ["code", *OF_RUN]


@pytest.mark.usefixtures("experiment")
def test_experiments_are_listed_with_their_parameters_and_metrics(project: Clone):
    table = csv.DictReader(io.StringIO(project.run("dvc", "exp", "show", "--csv")))
    rows = {row["Experiment"] or row["rev"]: row for row in table}
    assert (rows["wider"]["methods.knn.k"], rows["main"]["methods.knn.k"]) == ("3", "10")
    metric = next(name for name in rows["wider"] if name.endswith("coco_far/knn.json:auroc"))
    assert 0 <= float(rows["wider"][metric]) <= 1


def test_a_grid_is_queued_an_experiment_a_point(project: Clone):
    printed = project.run("dvc", "exp", "run", "--queue", "--set-param", "methods.knn.k=5,7")
    assert printed.count("Queued experiment") == 2
    assert project.run("dvc", "queue", "status").count("Queued") == 2
    project.run("dvc", "queue", "remove", "--all")


def test_every_command_of_the_guide_is_one_that_dvc_knows():
    text = (ROOT / "docs/dvc.md").read_text()
    blocks = re.findall(r"^```bash\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    lines = [
        shlex.split(line, comments=True) for block in blocks for line in re.split(r"\n|&&", block)
    ]
    commands = [words[1:] for words in lines if words[:1] == ["dvc"]]
    assert len(commands) > 10
    for command in commands:
        dvc_commands.check(command)


@pytest.fixture
def shipped(tmp_path: Path, commands: Path) -> Clone:
    """The project as it is shipped, with params.yaml as people write it, under git and DVC."""
    read = [
        f"data/{name}"
        for name in ("benchmarks", "candidates", "decisions", "demo", "names", "similarity")
    ]
    for name in ("stages", "lib", "extensions", "training", *read):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.egg-info"))
    for name in (".dvcignore", ".gitignore", "params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, tmp_path / name)
    clone = Clone(tmp_path, commands)
    clone.run("git", "init", "--quiet", "--initial-branch", "main")
    clone.run("dvc", "init", "--quiet")
    clone.commit()
    return clone


def test_experiments_run_and_are_queued_on_the_shipped_parameters(shipped: Clone):
    printed = shipped.run(
        "dvc", "exp", "run", "--name", "wider", "--set-param", "methods.knn.k=3", "code"
    )
    assert "Running stage 'code'" in printed
    assert yaml.safe_load((shipped.folder / "params.yaml").read_text())["methods"]["knn"] == {
        "k": 3
    }
    printed = shipped.run(
        "dvc", "exp", "run", "--queue", "--set-param", "methods.knn.k=5,7", "code"
    )
    assert printed.count("Queued experiment") == 2
