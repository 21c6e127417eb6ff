"""Digests of the files that params.yaml names."""

from pathlib import Path

import pytest

from farther.pipeline.named_files import file_digests, named_files


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
        "train/image.jpg": "1",
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
        },
        "detr": {"weights": "weights/detr.pt", "params": {"config": "mine/config"}},
        "clip": {"weights": "weights/graph.onnx", "params": {"unknown": "negatives.txt"}},
        "boxed": {
            "weights": "weights",
            "proposals": {"sam": {"kind": "imported", "file": "boxes"}},
        },
        "twice": {
            "weights": "none.pt",
            "passes": {"ensemble": {"members": ["weights/other.pt"], "skip": ["train"]}},
        },
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

    before = flat(file_digests(PARAMS))
    edit()
    after = flat(file_digests(PARAMS))
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
        ("weights/other.pt", {"detectors.twice"}),
        ("weights/config.json", {"detectors.results", "detectors.detr", "detectors.clip"}),
        ("weights/other.json", set()),
        ("weights/graph.onnx.data", {"detectors.clip"}),
        ("weights/detr.pt", set()),  # a dependency of DVC
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
    paths = {entry.path.name for entry in named_files(PARAMS["benchmarks"], "benchmarks")}
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
    assert list(named_files({"params": {"note": text}}, "detectors", "run")) == []
