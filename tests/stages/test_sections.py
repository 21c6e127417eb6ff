"""What `farther list params` and the page params.yaml say is what the code reads."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter
from tests.support.described import classes_of_sections, described

import farther.pipeline
from farther import datasets
from farther.errors import ParameterError
from farther.methods.base import METHODS
from farther.naming.registry import build
from farther.params import RunEntry, parse, run_entry
from farther.pipeline.described_keys import find_tables
from farther.pipeline.dvc_file import ROOT
from farther.pipeline.later_sections import class_of
from farther.pipeline.params_schema import SECTION_BY_NAME, SECTIONS
from farther.pipeline.reruns import reruns
from farther.scoring.entries import read_entry
from farther.text.documentation import describe

TABLES = described()
ALL_TABLES = [table for tables in TABLES.values() for table in tables]
CLASSES = classes_of_sections()
#: Those of pydantic dataclasses that can be created; a run's entry is another model.
CREATED = [cls for cls in CLASSES if cls is not RunEntry and not inspect.isabstract(cls)]


@pytest.mark.parametrize("cls", CREATED, ids=lambda cls: cls.__name__)
def test_a_key_that_is_not_described_is_refused(cls):
    with pytest.raises(ParameterError, match="unknown parameter 'no_such_key'"):
        build(cls, "section", {"no_such_key": 1})


def test_an_unknown_key_of_an_entry_is_refused(tmp_path):
    file = tmp_path / "params.yaml"
    file.write_text("detectors: {r: {adapter: yolo, benchmark: b, weights: w, pases: {}}}")
    with pytest.raises(ParameterError, match=r"detectors\.r.*'pases'\. Did you mean 'passes'\?"):
        run_entry("r", file)
    with pytest.raises(ParameterError, match="unknown parameter 'rot'"):
        datasets.create(format="coco", root="x", rot="y")
    with pytest.raises(ParameterError, match="unknown parameter 'kk'"):
        read_entry("knn", {"kk": 3}).create()


def test_each_described_key_of_an_entry_is_read(tmp_path):
    values: dict[str, Any] = dict.fromkeys(RunEntry.model_fields)
    values |= {"adapter": "yolo", "benchmark": "b"}
    file = tmp_path / "params.yaml"
    file.write_text(yaml.safe_dump({"detectors": {"r": values}}))
    assert run_entry("r", file)["adapter"] == "yolo"

    (methods,) = (table for table in TABLES["methods"] if table.path == "methods.METHOD")
    assert [key.name for key in methods.keys] == [
        "method",
        "search",
        "oracle",
        "fit_on",
        "runs",
        "pass",
    ]
    entry = read_entry("mine", {"method": "knn", "pass": "crop", "fit_on": "val", "k": 3})
    assert (entry.method, entry.pass_name, entry.fit_on) == ("knn", "crop", "val")
    assert entry.params == {"k": 3}
    assert read_entry("mine", {"method": "msp", "search": {"ood_split": "s"}}).search is not None
    assert read_entry("mine", {"method": "msp", "oracle": {"ood_split": "s"}}).oracle is not None


@pytest.mark.parametrize("cls", CREATED, ids=lambda cls: cls.__name__)
def test_the_default_that_is_shown_is_the_one_that_is_used(cls):
    schema = TypeAdapter(cls).json_schema()
    for name, field in cls.__pydantic_fields__.items():
        shown = schema["properties"].get(name, {})
        if "default" not in shown:
            continue
        used = field.get_default(call_default_factory=True)
        assert TypeAdapter(field.annotation).validate_python(shown["default"]) == used, name


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("threshold", {"split": "val", "rule": "best_f1", "tolerance": 0.0}),
        ("cost", {"images": 16, "split": "test"}),
        ("scoring", {"device": "cpu"}),
    ],
)
def test_defaults_of_small_sections_are_these(section, values):
    (table,) = TABLES[section]
    assert {key.name: key.default for key in table.keys} == values
    assert vars(build(class_of(section), section, {})) == values


def classes_that_stages_read() -> set[str]:
    """Names of the classes that stages build from sections, as in `build(Budget, …)`."""
    names = set()
    for file in Path(farther.pipeline.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or getattr(node.func, "id", "") != "build":
                continue
            if len(node.args) == 3:
                names.add(ast.unparse(node.args[0]))
    return names


def test_the_classes_are_those_that_the_stages_read():
    # `InferenceParams` is another name of `StreamParams`; `class_of(section)` is one of
    # `later_sections`, which other stages build, too.
    read = classes_that_stages_read() - {"InferenceParams", "class_of(section)"}
    assert {"FitSection", "ThresholdSettings", "EmbedSection", "StratifySection"} <= read
    assert read <= {cls.__name__ for cls in CLASSES}


def test_every_key_has_a_meaning_that_needs_no_source_code():
    for table in ALL_TABLES:
        for key in table.keys:
            place = f"{table.title}: {key.name}: {key.meaning}"
            assert re.fullmatch(r"[\"`\w].*\.", key.meaning), place
            assert not re.search(r"^[Ss]ee |\bNone\b|\bfarther\.\w|docs/", key.meaning), place


def test_sections_and_kinds_have_a_sentence_each():
    for section in SECTIONS:
        assert len(section.summary) <= 68, "the list has 80 columns"
    for table in ALL_TABLES:
        assert table.summary or table.path in ("review", "sources"), table.path


def test_the_sections_are_those_of_dvc_yaml_and_those_that_commands_read():
    content = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))
    named = set()
    for stage in content["stages"].values():
        for parameter in stage.get("do", stage).get("params", ()):
            keys = [parameter] if isinstance(parameter, str) else parameter["artifacts/code.json"]
            named.update(key.partition(".")[0] for key in keys)
    named &= {"datasets", "detectors", *SECTION_BY_NAME}
    assert set(SECTION_BY_NAME) == named | {"report", "resources", "review", "sources"}


def test_what_reruns_is_what_dvc_yaml_says():
    assert reruns("detectors.RUN.passes.PASS")[:2] == ("infer@RUN", "fit")
    assert reruns("embed.encoder") == ("embed", "infer", "choose")
    assert reruns("embed.images") == ("embed",)
    assert reruns("embed.weights") == ("embed", "infer")
    assert reruns("derived.blank.DATASET") == ("blank@DATASET",)
    assert reruns("fit") == ("fit", "evaluate", "choose")
    assert reruns("cost") == ("choose",)
    assert reruns("benchmarks.BENCHMARK") == ("enrich@BENCHMARK", "curate", "stratify")
    assert reruns("resources") == ()
    assert reruns("sources") == ()


def test_names_that_users_choose_may_be_left_out():
    short = [table.title for table in find_tables("detectors.passes")]
    assert short == [table.title for table in find_tables("detectors.RUN.passes.PASS")]
    assert "detectors.RUN.passes.PASS, kind: crops" in short
    (row,) = find_tables("threshold.rule")
    assert [key.name for key in row.keys] == ["rule"]
    assert row.keys[0].default == "best_f1"


def test_the_page_says_how_t_star_is_lowered():
    text = TABLES["threshold"][0].text
    for rule in re.findall(r"rule: ([\d.]+)", text):
        settings = build(class_of("threshold"), "threshold", {"rule": float(rule)})
        assert settings.rule == float(rule)
    params = parse("detectors: {r: {threshold: {rule: 0.1}}}")
    assert params["detectors"]["r"]["threshold"] == {"rule": 0.1}


def test_a_docstring_with_one_argument_keeps_its_last_line():
    (parameter,) = [
        parameter for parameter in describe(METHODS.get("knn")).parameters if parameter.name == "k"
    ]
    assert parameter.description.endswith(".")
    gallery = find_tables("report.gallery")[0]
    assert gallery.keys[0].meaning.endswith("0 for no gallery.")


def test_no_message_names_a_file_of_the_docs():
    """Who installed a wheel has no folder docs."""
    for file in [*(ROOT / "lib/farther").rglob("*.py"), *(ROOT / "lib/farther").rglob("*.jinja")]:
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"docs/[\w-]+\.md", text), file
