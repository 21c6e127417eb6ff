"""Digests of the files that params.yaml names."""

from pathlib import Path

import pytest

from farther.curation.candidates import FROM_POOLS
from farther.curation.class_similarity import ClassesBy
from farther.incremental.named_files import DEFAULTS, OUTPUTS, NamedFiles
from farther.naming.registry import parameters


@pytest.fixture
def named(tmp_path, monkeypatch) -> Path:
    """A project with files for every key that may name one."""
    monkeypatch.chdir(tmp_path)
    files = {
        "data/benchmarks/pets.yaml": (
            "names: ../names/classes.yaml\nclasses_by: {hierarchy: kinds.yaml}\n"
        ),
        "data/benchmarks/kinds.yaml": "animal: [cat, dog]\n",
        "data/benchmarks/plain.yaml": "classes_by: {near_above: 0.5}\nlists: [train]\n",
        "data/names/classes.yaml": "tv: {coco: [tv]}\n",
        "data/similarity/wordnet/data.noun": "1",
        "mine/decisions.csv": "image\n",
        "mine/candidates.csv": "image\n",
        "mine/ann.json": "{}",
        "mine/layer.safetensors": "1",
        "mine/config/config.json": "{}",
        "boxes/a.json": "[]",
        "boxes/inner/b.json": "[]",
        "negatives.txt": "object",
        "data/candidates/pools/pets.csv": "dataset",
        "weights/detr.pt": "1",
        "weights/config.json": "{}",
        "weights/other.pt": "1",
        "weights/other.json": "{}",
        "weights/graph.onnx": "1",
        "weights/graph.onnx.data": "1",
        "graphs/clip.onnx": "1",
        "graphs/tensors.bin": "1",
        "graphs/other.onnx": "1",
        "train/image.jpg": "1",
        "words/list.csv": "1",
        "data/benchmarks/shouted.YAML": "names: ../names/shouted.csv\n",
        "data/benchmarks/rules.json": '{"names": ["../names/json.csv"]}',
        "data/benchmarks/rules.txt": "names: ../names/txt.csv\n",
        "data/names/shouted.csv": "1",
        "data/names/json.csv": "1",
        "data/names/txt.csv": "1",
        "title": "1",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


PARAMS = {
    "datasets": {"d": {"format": "coco", "root": "train", "subset_names": ["train"]}},
    "derived": {
        "paste": {
            "p": {
                "rules": "data/benchmarks/pets.yaml",
                "cutouts": {"source": "masks", "root": "boxes"},
            }
        },
        "blank": {"b": {"images": {"dataset": "d", "rules": "data/benchmarks/plain.yaml"}}},
    },
    "benchmarks": {
        "pets": {
            "rules": "data/benchmarks/pets.yaml",
            "decisions": "mine/decisions.csv",
            "splits": {
                "near": {"dataset": "d", "subset": "train", "candidates": "mine/candidates.csv"},
                "added": {
                    "dataset": "d",
                    "subset": "train",
                    "candidates": "data/candidates/pools/pets.csv",
                },
            },
        },
    },
    "stratify": {"reference": "train", "wordnet": {"folder": "data/similarity/wordnet"}},
    "detectors": {
        "results": {
            "adapter": "coco_results",
            "weights": "weights/detr.pt",
            "params": {
                "annotations": {"a": "mine/ann.json"},
                "last_layer": "mine/layer.safetensors",
            },
            "classes": {"cat": "train"},
            "title": "title",
        },
        "detr": {"weights": "weights/detr.pt", "params": {"config": "mine/config"}},
        "clip": {"weights": "graphs/clip.onnx", "params": {"unknown": "negatives.txt"}},
        "worded": {"weights": "weights/graph.onnx", "kind": "words", "params": {"run": "words"}},
        "boxed": {
            "weights": "none.pt",
            "params": {"folder": "weights"},
            "proposals": {"sam": {"kind": "imported", "file": "boxes"}},
        },
        "twice": {
            "weights": "none.pt",
            "passes": {"ensemble": {"members": ["weights/other.pt"], "skip": ["train"]}},
        },
    },
    "review": {
        "rules": [
            "data/benchmarks/shouted.YAML",
            "data/benchmarks/rules.json",
            "data/benchmarks/rules.txt",
        ]
    },
}


def changed_digests(edit) -> set[tuple[str, ...]]:
    """The keys of the digests that an edit changes."""

    def flat(digests, *keys) -> dict[tuple[str, ...], str]:
        if isinstance(digests, str):
            return {keys: digests}
        digest_by_keys = {}
        for key, inner in digests.items():
            digest_by_keys |= flat(inner, *keys, key)
        return digest_by_keys

    before = flat(NamedFiles(PARAMS).digest_at())
    edit()
    after = flat(NamedFiles(PARAMS).digest_at())
    assert before.keys() == after.keys()
    return {key for key in before if before[key] != after[key]}


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("data/benchmarks/pets.yaml", {"benchmarks", "derived.paste.p"}),
        ("data/benchmarks/kinds.yaml", {"benchmarks", "derived.paste.p"}),
        ("data/names/classes.yaml", {"benchmarks", "derived.paste.p"}),
        ("data/similarity/wordnet/data.noun", {"derived.blank.b", "stratify"}),
        ("mine/decisions.csv", {"benchmarks"}),
        ("mine/candidates.csv", {"benchmarks"}),
        ("data/candidates/pools/pets.csv", set()),  # a stage writes it, on which `curate` depends
        ("mine/ann.json", {"detectors.results"}),
        ("mine/layer.safetensors", {"detectors.results"}),
        ("mine/config/config.json", {"detectors.detr"}),
        ("mine/config/new.json", {"detectors.detr"}),
        ("boxes/inner/b.json", {"detectors.boxed"}),
        ("negatives.txt", {"detectors.clip"}),
        ("weights/other.pt", {"detectors.twice", "detectors.boxed"}),
        (
            "weights/config.json",
            {"detectors.results", "detectors.detr", "detectors.worded", "detectors.boxed"},
        ),
        ("weights/other.json", {"detectors.worded", "detectors.boxed"}),
        ("weights/graph.onnx.data", {"detectors.worded", "detectors.boxed"}),
        ("graphs/tensors.bin", {"detectors.clip"}),  # weights of a graph, whatever their name
        ("graphs/other.onnx", set()),
        ("graphs/clip.onnx", set()),
        ("words/list.csv", {"detectors.worded"}),  # a folder of one word, at any key
        ("data/names/shouted.csv", {"review"}),
        ("data/names/json.csv", {"review"}),
        ("data/names/txt.csv", set()),
        ("data/benchmarks/rules.txt", {"review"}),
        ("title", set()),
        ("train/image.jpg", set()),  # names of a subset and of a class, and a dependency
    ],
)
def test_a_file_that_params_name_changes_the_digests_of_what_names_it(named, file, changed):
    def edit() -> None:
        addition = "\nmore: 1\n" if file.endswith(".yaml") else "1"
        with (named / file).open("a") as opened:
            opened.write(addition)

    assert {".".join(keys) for keys in changed_digests(edit)} == changed


def test_a_renamed_file_in_a_folder_of_proposals_changes_the_digest(named):
    assert changed_digests(lambda: (named / "boxes/a.json").rename(named / "boxes/c.json")) == {
        ("detectors", "boxed")
    }


def test_comments_in_yaml_change_no_digest_and_absent_files_count_as_absent(named):
    rules = named / "data/benchmarks/pets.yaml"
    assert changed_digests(lambda: rules.write_text(f"# a comment\n{rules.read_text()}")) == set()
    assert changed_digests(lambda: (named / "mine/ann.json").unlink()) == {("detectors", "results")}
    (named / "mine/ann.json").symlink_to("ann.json")  # a loop
    assert changed_digests(lambda: (named / "negatives.txt").unlink()) == {("detectors", "clip")}


def test_a_yaml_file_that_names_itself_and_one_that_is_damaged_end(named):
    (named / "data/benchmarks/kinds.yaml").write_text(
        "again: kinds.yaml\nrules: data/benchmarks/pets.yaml\n"
    )
    paths = {entry.path.name for entry in NamedFiles(PARAMS).named("benchmarks")}
    assert paths == {"pets.yaml", "kinds.yaml", "classes.yaml", "decisions.csv", "candidates.csv"}
    damaged = named / "data/benchmarks/pets.yaml"
    assert changed_digests(lambda: damaged.write_text("{")) == {
        ("benchmarks",),
        ("derived", "paste", "p"),
    }
    assert changed_digests(lambda: damaged.write_text("[")) == {
        ("benchmarks",),
        ("derived", "paste", "p"),
    }


@pytest.mark.parametrize("text", [".", "..", "/", "", "a\0b", "x" * 5000, "y" * 300, "loop"])
def test_a_text_that_is_no_path_names_nothing(named, text):
    (named / "loop").symlink_to("loop")
    params = {"detectors": {"run": {"params": {"note": text}}}}
    assert list(NamedFiles(params).named("detectors", "run")) == []


def test_a_checkpoint_of_another_run_counts_and_the_own_one_is_a_dependency(named):
    runs = {"a": {"weights": "weights/detr.pt"}, "b": {"params": {"members": ["weights/detr.pt"]}}}
    assert not [
        entry
        for entry in NamedFiles({"detectors": runs}).named("detectors", "a")
        if entry.path.name == "detr.pt"
    ]
    files = NamedFiles({"detectors": runs}).files("detectors", "b")
    assert files == {"weights/detr.pt": Path("weights/detr.pt")}


def test_what_lies_in_the_root_of_a_dataset_is_left_out_of_a_folder_that_has_it(named):
    params = {"datasets": {"d": {"root": "mine/config"}}, "review": {"folder": "mine"}}
    names = {file.name for file in NamedFiles(params).files("review").values()}
    assert names == {"ann.json", "layer.safetensors", "decisions.csv", "candidates.csv"}


def test_beside_a_graph_in_the_project_the_files_count_that_it_names(named):
    Path("graph.onnx").write_bytes(b"..tensors.bin..")
    Path("tensors.bin").write_text("1")
    Path("dvc.lock").write_text("1")
    run = {"weights": "graph.onnx"}
    files = NamedFiles({"detectors": {"a": run}}).files("detectors", "a")
    assert set(files) == {"tensors.bin"}


def test_outputs_and_defaults_are_those_of_the_stages():
    assert str(FROM_POOLS) in OUTPUTS
    assert parameters(ClassesBy).items() >= DEFAULTS["classes_by"].items()
