"""The shipped files of parameters, read by what the stages use and rewritten as DVC does for `--set-param`."""

from pathlib import Path

import pytest
from dvc.utils.serialize import dumps_yaml, parse_yaml, parse_yaml_for_update

from farther.errors import DataError, ParameterError
from farther.params import code_digest, parse, section

ROOT = Path(__file__).parents[2]
SHIPPED = ("params.yaml", "training/params.yaml", *sorted(f"profiles/{f.name}" for f in (ROOT / "profiles").iterdir()))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_file_of_parameters_means_the_same_after_dvc_has_rewritten_it(name):
    text = (ROOT / name).read_text()
    rewritten = dumps_yaml(parse_yaml_for_update(text, name))
    assert parse_yaml(rewritten, name) == parse(rewritten) == parse(text)


def test_a_section_that_is_absent_is_named_with_those_that_are_there(tmp_path):
    file = tmp_path / "params.yaml"
    file.write_text("fit:\nmethods: {msp: {}, knn: {k: 3}}\n")
    assert section("methods", "knn", "k", file=file) == 3
    assert section("fit", file=file) == {}
    with pytest.raises(ParameterError, match=r"no 'methods\.vim'\. Known here: msp, knn"):
        section("methods", "vim", file=file)


def test_the_code_of_a_name_that_the_stage_code_has_not_seen_is_an_error_that_says_what_to_run(tmp_path):
    file = tmp_path / "code.json"
    file.write_text('{"infer": {"yolo": "12ab"}, "curate": "34cd"}')
    assert code_digest("infer", "yolo", file=file) == "12ab"
    assert code_digest("curate", file=file) == "34cd"
    for keys in (("infer", "detr"), ("infer",), ("curate", "voc")):
        with pytest.raises(DataError, match="run `dvc repro code`"):
            code_digest(*keys, file=file)
