"""What the shell completes: subcommands and, for every argument that takes names, these names."""

import pytest

from farther.command import main

PARAMS = """
benchmarks:
  voc: {splits: {coco_near: {}, coco_far: {}}}
  bdd: {splits: {coco_farther: {}}}
detectors:
  voc-vos: {benchmark: voc}
  voc-yolo: {benchmark: voc}
  bdd-vos: {benchmark: bdd}
methods: {knn: {}, msp: {}}
"""

PIPELINE = """
stages:
  curate: {cmd: x}
  evaluate: {foreach: "${detectors}", do: {cmd: x}}
"""

RUNS, METHODS, BENCHMARKS = ["voc-vos", "voc-yolo", "bdd-vos"], ["knn", "msp"], ["voc", "bdd"]
NEAR_AND_FAR = ["coco_near", "coco_far"]
SPLITS = [*NEAR_AND_FAR, "coco_farther"]

#: What was typed, and what may follow; the last word is unfinished, or "" after a blank.
COMPLETED = {
    "be": ["benchmark"],
    "benchmark du": ["duplicates"],
    "init --add --benchmark ": BENCHMARKS,
    "doctor --run v": ["voc-vos", "voc-yolo"],
    "repro ": ["curate", *(f"evaluate@{run}" for run in RUNS)],
    "repro --first b": ["bdd-vos"],
    "explain image x --benchmark ": BENCHMARKS,
    "explain image x --run ": RUNS,
    "explain image x --run voc-vos --method ": METHODS,
    "explain number ": RUNS,
    "explain number voc-vos ": METHODS,
    "explain number voc-vos knn ": NEAR_AND_FAR,
    "explain number voc-vos knn coco_near nos": ["nose"],
    "explain uncertainty ": RUNS,
    "explain uncertainty bdd-vos --split ": ["coco_farther"],
    "compare --run ": RUNS,
    "compare --split ": SPLITS,
    "compare --run bdd-vos --split ": ["coco_farther"],
    "compare --method ": METHODS,
    "compare --methods ": METHODS,
    "compare --metric nos": ["nose"],
    "choose ": RUNS,
    "choose voc-vos --method k": ["knn"],
    "choose voc-vos --choose-on ": NEAR_AND_FAR,
    "bundle ": RUNS,
    "bundle voc-vos ": METHODS,
    "bundle voc-vos out --choose-on ": NEAR_AND_FAR,
    "list methods maha": ["mahalanobis"],
    "list detectors coco": ["coco_results"],
    "list datasets vo": ["voc", "vos"],
    "list metrics nos": ["nose"],
    "list params thr": ["threshold"],
    "benchmark profile fmiyc-": ["fmiyc-published-code", "fmiyc-rebuilt"],
    "benchmark review ": BENCHMARKS,
    "benchmark review voc --run ": RUNS,
    "benchmark duplicates ": BENCHMARKS,
    "benchmark negatives ": BENCHMARKS,
    "benchmark publish ": BENCHMARKS,
    "benchmark publish bdd out --split ": ["coco_farther"],
}


@pytest.fixture
def completed(tmp_path, monkeypatch, capsys):
    """What bash is told to complete."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dvc.yaml").write_text(PIPELINE)

    def ask(typed):
        words = ["farther", *typed.split(" ")]
        monkeypatch.setenv("_FARTHER_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(words))
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        main([])
        said = capsys.readouterr()
        assert said.err == ""
        return said.out.split()

    return ask


@pytest.mark.parametrize("typed", COMPLETED)
def test_names_are_completed(typed, completed, tmp_path):
    (tmp_path / "params.yaml").write_text(PARAMS)
    assert completed(typed) == COMPLETED[typed]


@pytest.mark.parametrize(
    "params", [None, "benchmarks: [voc", "benchmarks: {voc: }\ndetectors: {voc-vos: 3}\n"]
)
def test_parameters_that_cannot_be_read_complete_nothing(params, completed, tmp_path):
    if params:
        (tmp_path / "params.yaml").write_text(params)
    assert completed("explain number voc-vos knn ") == []


def test_names_are_those_of_the_parameters_that_are_given(completed, tmp_path):
    (tmp_path / "other.yaml").write_text(PARAMS)
    assert completed("choose --params other.yaml v") == ["voc-vos", "voc-yolo"]
