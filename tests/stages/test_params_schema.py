"""The JSON schema of params.yaml: what farther reads is valid, and what it refuses is not."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml
from tests.support.described import problems

from farther.command import main
from farther.errors import FartherError
from farther.params import parse, run_entry
from farther.pipeline.dvc_file import ROOT
from farther.pipeline.later_sections import check_later_sections
from farther.pipeline.params_schema import Schemas, any_spelling, params_schema

FILES = [ROOT / "params.yaml", *sorted((ROOT / "profiles").glob("*.yaml"))]

RUN = "detectors: {r: {adapter: yolo, benchmark: b, weights: w.pt, %s}}"
DATASET = "datasets: {d: {format: coco, root: data/d, %s}}"

#: Text of a section, and the place that a validator names.
WRONG = [
    ("threshold: {ruel: 0.1}", "$.threshold"),
    ("threshold: {tolerance: 2}", "$.threshold.tolerance"),
    ("threshold: {rule: best}", "$.threshold.rule"),
    ("threshold: 0.5", "$.threshold"),
    ("fit: {splitt: id_val}", "$.fit"),
    ("fit: {keep: 1.5}", "$.fit.keep"),
    ("scoring: {devise: cpu}", "$.scoring"),
    ("evaluate: {iou: 2}", "$.evaluate.iou"),
    ("evaluate: {replicates: many}", "$.evaluate.replicates"),
    ("deploy: {max_false_alarm: 0.05}", "$.deploy"),
    ("cost: {images: -1}", "$.cost.images"),
    ("cost: {images: 2.5}", "$.cost.images"),
    ("report: {exampels: 6}", "$.report"),
    ("resources: {jobs: 0}", "$.resources.jobs"),
    ("methods: {kn: {}}", "$.methods.kn"),
    ("methods: {knn: {kk: 3}}", "$.methods.knn"),
    ("methods: {kNN: {k: 0}}", "$.methods.kNN.k"),
    ("methods: {k-NN: {k: true}}", "$.methods['k-NN'].k"),
    ("methods: {mine: {method: ViM, dims: 3}}", "$.methods.mine"),
    ("methods: {mine: {method: vimm}}", "$.methods.mine.method"),
    ("methods: {knn: 3}", "$.methods.knn"),
    (DATASET % "rot: 3", "$.datasets.d"),
    (DATASET % "max_warnings: 2", "$.datasets.d.max_warnings"),
    (DATASET % "missing_images: skip", "$.datasets.d.missing_images"),
    ("datasets: {d: {format: coc, root: data/d}}", "$.datasets.d.format"),
    ("datasets: {a b: {format: coco, root: data/d}}", "$.datasets"),
    (RUN % "pases: {}", "$.detectors.r"),
    (RUN % "title: 3", "$.detectors.r.title"),
    (RUN % "params: {imgsz: 640}", "$.detectors.r.params"),
    (RUN % "passes: {dropout: {rate: 2}}", "$.detectors.r.passes.dropout.rate"),
    (RUN % "passes: {mine: {kind: dropout, rat: 1}}", "$.detectors.r.passes.mine"),
    (RUN % "proposals: {anchors: {most: 0}}", "$.detectors.r.proposals.anchors.most"),
    ("detectors: {r: {adapter: yolov8, benchmark: b, weights: w}}", "$.detectors.r.adapter"),
    ("benchmarks: {b: {splits: {s: {dataset: d, subset: s}}}}", "$.benchmarks.b.splits.s"),
]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_file_that_farther_has_is_valid_and_names_the_schema(file):
    text = file.read_text(encoding="utf-8")
    assert problems(yaml.safe_load(text)) == {}
    schema = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    assert (file.parent / schema).resolve() == ROOT / "params.schema.json"


@pytest.mark.parametrize(("text", "place"), WRONG)
def test_what_is_wrong_is_refused_at_its_place(text, place):
    assert place in problems(yaml.safe_load(text))


def read(text: str, folder: Path) -> None:
    """Reads sections as stages do."""
    params = parse(text)
    check_later_sections(params)
    file = folder / "params.yaml"
    file.write_text(text)
    for run in params.get("detectors") or {}:
        run_entry(run, file)


#: The sections that `read` checks completely.
READ = [text for text, _ in WRONG if text.partition(":")[0] not in ("datasets", "benchmarks")]


@pytest.mark.parametrize("text", [text for text in READ if "detectors" not in text])
def test_what_the_schema_refuses_farther_refuses(text, tmp_path):
    with pytest.raises(FartherError):
        read(text, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "methods: {kNN: {k: 5}, EBO: , Max-Logit: {}}",
        "methods: {mine: {method: ViM, dim: 3, pass: crop, fit_on: val}}",
        "methods: {best: {search: {ood_split: s, grids: {knn: {k: [1, 5]}}}}}",
        "threshold: {rule: 0.25}",
        "threshold:",
        RUN % "passes: {mc: {kind: dropout, rate: 0.5}, dropout: }",
        RUN % "threshold: {rule: 0.1}, classes: {cat: Cat, dog: null}",
        DATASET % "renamed: {Dog: dog}, combined: {trainval: [train, val]}",
        "sources: {r: here, datasets: {d: there}}",
        "own_section: {anything: 1}",
    ],
)
def test_what_farther_reads_is_valid(text, tmp_path):
    assert problems(yaml.safe_load(text)) == {}
    read(text, tmp_path)


def test_the_file_of_the_schema_is_what_the_code_makes(capsys):
    assert main(["list", "params", "--schema"]) == 0
    printed = capsys.readouterr().out
    assert (ROOT / "params.schema.json").read_text(encoding="utf-8") == printed


def test_a_method_of_a_project_is_valid_by_the_project_s_own_schema(tmp_path, monkeypatch):
    extension = tmp_path / "extensions/margin.py"
    extension.parent.mkdir()
    extension.write_text(
        "from farther.methods.base import register\n"
        "from farther.methods.logits import LogitsMethod\n\n\n"
        '@register("margin_of_schema")\n'
        "class Margin(LogitsMethod):\n"
        '    """The score.\n\n    Args:\n        power: Its power.\n    """\n\n'
        "    power: float = 1.0\n"
    )
    monkeypatch.chdir(tmp_path)
    method = params_schema()["$defs"]["method margin_of_schema"]
    assert method["properties"]["power"]["description"] == "Its power."


def test_two_definitions_of_one_name_are_an_error():
    schemas = Schemas()
    schemas.define("name", {"type": "string"})
    assert schemas.define("name", {"type": "string"}) == {"$ref": "#/$defs/name"}
    with pytest.raises(ValueError, match="'name'"):
        schemas.define("name", {"type": "integer"})


def test_a_name_is_matched_in_any_spelling():
    pattern = any_spelling(["max_logit", "MLS"])
    for name in ("max_logit", "Max-Logit", "maxlogit", "mls", "M L S"):
        assert problems_of_name(pattern, name) == []
    assert problems_of_name(pattern, "max_logits") != []


def problems_of_name(pattern: str, name: str) -> list[str]:
    validator = jsonschema.Draft7Validator({"pattern": pattern})
    return [error.message for error in validator.iter_errors(name)]
