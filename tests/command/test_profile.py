"""Profiles: whole files of parameters, and how one becomes the project's."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.support.cases import slow_but

from farther.command import main
from farther.command.doctor import examine, machine
from farther.command.doctor.pipeline import pipeline
from farther.command.project import Project
from farther.curation import benchmark
from farther.curation.rules import Rules
from farther.params import parse
from farther.scoring.entries import read_entry

ROOT = Path(__file__).parents[2]
PROFILES = sorted(file.stem for file in (ROOT / "profiles").glob("*.yaml"))
#: All of them, of which those that are much like another one are slow.
ALL_PROFILES = slow_but(
    ("fmiyc", "openood-cifar10", "openood-v1-osr", "owod", "realistic-wordnet", "saod", "vos"),
    PROFILES,
)
FMIYC = [name for name in PROFILES if name.startswith("fmiyc")]


def read(name):
    return parse((ROOT / "profiles" / f"{name}.yaml").read_text())


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A project under git whose params.yaml is committed."""
    (tmp_path / "params.yaml").write_text("demo: {}\n")
    monkeypatch.chdir(tmp_path)
    git("init", "--quiet")
    git("add", "--all")
    git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "-m", "demo")
    return tmp_path


def git(*arguments):
    subprocess.run(["git", *arguments], check=True, capture_output=True)


def test_all_are_listed_with_what_they_run(here, capsys):
    assert main(["benchmark", "profile"]) == 0
    said = capsys.readouterr().out
    assert all(f"{name} " in said for name in PROFILES)
    assert "published" in said


def test_the_list_is_json_for_programs(here, capsys):
    assert main(["benchmark", "profile", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in listed] == PROFILES
    assert all(entry["description"] for entry in listed)
    assert main(["benchmark", "profile", "fmiyc", "--json"]) == 2
    assert "leave out NAME, or --json" in capsys.readouterr().err


def test_a_profile_may_be_written_in_any_case(here, capsys):
    assert main(["benchmark", "profile", "FMIYC_rebuilt"]) == 0
    assert "params.yaml is now profile fmiyc-rebuilt" in capsys.readouterr().out


def test_switching_keeps_comments_and_puts_the_data_where_they_are(here, capsys):
    assert main(["benchmark", "profile", "fmiyc", "--data", "/mnt/d-1"]) == 0
    text = (here / "params.yaml").read_text()
    assert text.count("\n#") == (ROOT / "profiles/fmiyc.yaml").read_text().count("\n#") > 5
    params = parse(text)
    assert params["datasets"]["voc"]["root"] == "/mnt/d-1/VOCdevkit"
    assert (
        params["detectors"]["voc-rtdetr"]["params"]["config"] == "/mnt/d-1/checkpoints/voc-rtdetr"
    )
    assert params["benchmarks"]["voc"]["rules"] == "data/benchmarks/voc.yaml"
    assert "/data/" not in text.replace("data/benchmarks", "").replace("data/decisions", "")


def test_parameters_that_git_does_not_have_are_not_replaced(here, capsys):
    (here / "params.yaml").write_text("demo: {seed: 8}\n")
    assert main(["benchmark", "profile", "fmiyc"]) == 2
    assert "commit them, or add --force" in capsys.readouterr().err
    assert (here / "params.yaml").read_text() == "demo: {seed: 8}\n"
    assert main(["benchmark", "profile", "fmiyc", "--force"]) == 0
    assert main(["benchmark", "profile", "fmiyc"]) == 0  # nothing would change


def test_a_wrong_name_brings_the_right_one(here, capsys):
    assert main(["benchmark", "profile", "fmiy"]) == 2
    assert "Did you mean 'fmiyc'?" in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["relative/folder", "/with space", '/"quoted"', "/a\nb: c"])
def test_a_folder_that_yaml_would_read_otherwise_is_refused(here, folder, capsys):
    assert main(["benchmark", "profile", "fmiyc", "--data", folder]) == 2
    assert "absolute path" in capsys.readouterr().err
    assert (here / "params.yaml").read_text() == "demo: {}\n"


@pytest.mark.parametrize("name", ALL_PROFILES)
def test_every_parameter_of_a_profile_is_known_and_the_files_of_farther_that_it_names_are_there(
    name, monkeypatch
):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(machine, "repository", lambda project: [])  # not of a profile
    wrong = [
        finding.text
        for finding in examine(Project(Path(f"profiles/{name}.yaml")), quick=True)
        if finding.state == "wrong"
    ]
    assert [
        text for text in wrong if "WordNet is not here" not in text
    ] == []  # users unpack it themselves
    for key, values in read(name)["benchmarks"].items():
        made = benchmark(key, values)
        assert made.rules.is_file() and made.decisions.is_file()


@pytest.mark.parametrize("name", ALL_PROFILES)
def test_a_profile_has_every_section_that_a_stage_reads(name):
    findings = pipeline(Project(ROOT / f"profiles/{name}.yaml", ROOT))
    assert [finding for finding in findings if finding.text.startswith("section")] == []


@pytest.mark.parametrize("name", FMIYC)
def test_a_profile_has_the_papers_splits_detectors_and_methods(name):
    params = read(name)
    splits = {}
    for key, values in params["benchmarks"].items():
        splits[key] = {name for name in values["splits"] if not name.endswith("_added")}
    assert splits == {
        "voc": {"coco_near", "coco_far", "openimages_near", "openimages_far"},
        "bdd": {"coco_farther", "openimages_farther"},
    }
    kinds = ("faster_rcnn", "vos", "yolov8", "rtdetr")
    assert set(params["detectors"]) == {
        f"{id_name}-{kind}" for id_name in ("voc", "bdd") for kind in kinds
    }
    assert (
        set(params["sources"]) - {"embed"}
        == set(params["detectors"])
        == set(params["report"]["published"])
    )
    used = {values.get("method", key) for key, values in params["methods"].items()}
    published = {
        "msp",
        "energy",
        "gen",
        "knn",
        "ddu",
        "mahalanobis",
        "vim",
        "ash",
        "dice",
        "react",
        "dice_react",
        "vos",
    }
    assert used == published | {"confidence", "lard_mahalanobis", "lard_knn", "lard_gmm"}


@pytest.mark.parametrize("name", ALL_PROFILES)
def test_vos_is_a_score_of_detectors_that_were_trained_by_vos(name):
    params = read(name)
    trained = set()
    for run, values in params["detectors"].items():
        if Path(values["weights"]).stem.endswith("vos"):
            trained.add(run)
    for values in params["methods"].values():
        if values.get("method") == "vos" or "output" in values:
            assert set(values["runs"]) == trained


@pytest.mark.parametrize("name", ALL_PROFILES)
def test_classes_that_a_file_does_not_name_are_those_of_its_dataset(name):
    params = read(name)
    for values in params["detectors"].values():
        listed = values.get("params", {}).get("classes")
        if listed:
            made = benchmark(values["benchmark"], params["benchmarks"][values["benchmark"]])
            rules = Rules(ROOT / made.rules, made.protocol)
            unknown = [
                name for name, given in (values.get("classes") or {}).items() if given is None
            ]
            assert sorted(set(listed) - set(unknown)) == sorted(rules.id_classes)
            assert len(set(listed)) == len(listed)


def test_the_elephant_has_one_wild_split_and_the_papers_detectors():
    params = read("elephant")
    assert params["benchmarks"]["voc"]["splits"] == {
        "coco_wild": {"dataset": "coco", "subset": "train2017", "distance": "far"}
    }
    assert set(params["detectors"]) == {
        "faster_rcnn",
        "retinanet",
        "mask_rcnn",
        "yolov2",
        "dropout_sampling",
    }
    once, sampled = (params["detectors"][name] for name in ("faster_rcnn", "dropout_sampling"))
    assert sampled["weights"] == once["weights"]
    assert sampled["params"]["params"] == once["params"]
    assert (
        set(params["sources"]) - {"embed"}
        == set(params["detectors"])
        == set(params["report"]["published"])
    )


def test_open_world_tasks_add_classes_up_to_those_of_coco():
    rules = {
        key: Rules(ROOT / f"data/benchmarks/owod-{key}.yaml").id_classes
        for key in ("m1", "m2", "m3", "s1", "s2", "s3")
    }
    assert [len(rules[key]) for key in rules] == [20, 40, 60, 19, 40, 60]
    names = set(read("owod")["datasets"]["owod_m"]["categories"])
    assert len(names) == 80 and names >= {*rules["m3"], *rules["s3"]}
    for first, second in (("m1", "m2"), ("m2", "m3"), ("s1", "s2"), ("s2", "s3")):
        assert rules[second][: len(rules[first])] == rules[first]
    # The detector's labels are numbered in that order, whatever the task.
    for key, run in ((key, read("owod")["detectors"][f"{key}-prob"]) for key in rules):
        labels = dict(run["params"]["categories"])
        assert labels.pop(80) == "unknown" and labels == dict(enumerate(rules[key]))


def test_the_two_protocols_have_the_same_images_and_checkpoints():
    paper, code = read("fmiyc"), read("fmiyc-published-code")
    assert {values["params"]["protocol"] for values in code["detectors"].values()} == {
        "published-code"
    }
    for params in (paper, code):
        for values in params["detectors"].values():
            values.pop("threshold", None)
            values.setdefault("params", {}).pop("protocol", None)
    assert {key for key in paper if paper[key] != code[key]} == {
        "threshold",
        "fit",
        "methods",
        "evaluate",
    }
    assert code["evaluate"]["protocol"] == "published-code" != paper["evaluate"]["protocol"]


def test_the_published_code_s_methods_follow_its_protocol_and_have_its_neighbours():
    entries = [
        read_entry(name, values) for name, values in read("fmiyc-published-code")["methods"].items()
    ]
    fitted = [entry.create() for entry in entries]
    assert {getattr(method, "protocol", "published-code") for method in fitted} == {
        "published-code"
    }
    for components in (32, None):
        neighbours = {m.k for m in fitted if m.name == "lard_knn" and m.components == components}
        assert neighbours == {8, 10, 12}  # YOLOv8, Faster R-CNN, RT-DETR


def distance_by_split(params: dict) -> dict[str, str]:
    distances = {}
    for entry in params["benchmarks"].values():
        for name, split in entry["splits"].items():
            distances[name] = split["distance"]
    return distances


def test_rebuilt_splits_differ_in_their_images_only():
    published, rebuilt = read("fmiyc"), read("fmiyc-rebuilt")
    changed = {key for key in published if published[key] != rebuilt[key]}
    assert changed == {"datasets", "benchmarks", "enrich", "report"}
    distances = distance_by_split(rebuilt)
    # Each split has a second one for images of the training set (Appendix C of the paper).
    for name, distance in distance_by_split(published).items():
        assert distances.pop(name) == distance
        assert distances.pop(f"{name}_added") == distance
    assert distances == {}
    assert not any(values.get("comparable") for values in rebuilt["report"]["published"].values())
