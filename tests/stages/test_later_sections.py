"""Sections that only late stages read are checked before the first stage computes."""

from pathlib import Path

import pytest
from tests.support.described import RecordedSchemas

from farther.errors import ParameterError
from farther.params import read_params
from farther.pipeline import code_digests, later_sections
from farther.pipeline.later_sections import CLASSES, check_later_sections, class_of
from farther.pipeline.params_schema import SECTIONS

ROOT = Path(__file__).parents[2]
#: Sections that are read before inference, or by it.
EARLY = {"embed", "stratify", "review", "inference", "demo"}

WRONG = [
    ("threshold: {ruel: 0.1}", "threshold: unknown parameter 'ruel'"),
    ("fit: {splitt: id_val}", "fit: unknown parameter 'splitt'"),
    ("scoring: {device: gpu}", "scoring: .*'device'"),
    ("evaluate: {iou: 2}", "evaluate: .*'iou'"),
    ("deploy: {max_false_alarms: 2}", "deploy: .*for 2 of 100 ID images write 0.02"),
    ("cost: {images: -1}", "cost: .*'images'"),
    ("report: {exampels: 6}", "report: unknown parameter 'exampels'"),
    ("threshold: {rule: 2}", "'rule': expected a number from 0 to 1, found 2"),
    ("detectors: {a: {threshold: {rule: -0.1}}}", "'rule': expected a number from 0 to 1"),
    ("detectors: {a: {threshold: {rule: best}}}", r"detectors\.a\.threshold: parameter .*'best'"),
    ("methods: {kn: {}}", "'kn'.*knn"),
    ("methods: {knn: {kk: 3}}", "'kk'"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_wrong_value_of_a_late_section_stops_before_any_stage(
    tmp_path, monkeypatch, text, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text(text)
    with pytest.raises(ParameterError, match=message):
        code_digests.main()
    assert not (tmp_path / "artifacts").exists()


@pytest.mark.parametrize("file", sorted(ROOT.glob("profiles/*.yaml")), ids=lambda file: file.stem)
def test_all_profiles_pass(file):
    check_later_sections(read_params(file))


def test_methods_of_extensions_are_left_to_the_stages_that_run_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "extensions").mkdir()
    registered = '@register("mine")\nclass Mine(Method): ...\n'
    text = f"from farther import Method, register\n\nx = 1 / 0\n{registered}"
    (tmp_path / "extensions/mine.py").write_text(text)
    by_grids = {"search": {"grids": {"mine": {"k": [1]}}}}
    check_later_sections({"methods": {"mine": {"k": 1}, "a": {"method": "mine"}, "b": by_grids}})


def test_every_section_that_one_class_reads_is_checked_here_or_read_early():
    read_by_one = {}
    for section in SECTIONS:
        schemas = RecordedSchemas()
        schema = section.make(schemas)
        if len(schemas.classes) == 1 and "x-name" not in schema:
            (read_by_one[section.name],) = schemas.classes
    late = {name: cls for name, cls in read_by_one.items() if name not in EARLY}
    assert late == {name: class_of(name) for name in CLASSES}


def test_what_was_checked_is_not_checked_again_until_it_or_the_code_changes(monkeypatch):
    params = {"methods": {"knn": {"k": 3}}, "evaluate": {"iou": 0.5}}
    before = check_later_sections(params, code="1")
    assert before.keys() == {"methods.knn", "evaluate"}

    checked = []
    monkeypatch.setattr(later_sections, "_check_method", lambda name, *_: checked.append(name))
    monkeypatch.setattr(later_sections, "_check_section", lambda name, *rest: checked.append(name))
    assert check_later_sections(params, before, code="1") == before
    assert checked == []
    check_later_sections({**params, "methods": {"knn": {"k": 4}}}, before, code="1")
    assert checked == ["knn"]
    check_later_sections(params, before, code="2")
    assert checked == ["knn", "evaluate", "knn"]
