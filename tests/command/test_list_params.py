"""`farther list params`."""

import json

import pytest

from farther.command import main
from farther.pipeline.params_schema import SECTIONS


def listed(capsys, *words):
    assert main(["list", "params", *words]) == 0
    return capsys.readouterr().out


def test_all_sections_are_listed(capsys):
    lines = listed(capsys).splitlines()
    assert [line.split()[0] for line in lines] == ["section", *(s.name for s in SECTIONS)]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("section", [section.name for section in SECTIONS])
def test_a_section_is_described_in_80_columns(section, capsys):
    text = listed(capsys, section)
    assert text.startswith(section)
    assert max(map(len, text.splitlines())) <= 80


def test_a_key_is_described_with_type_default_meaning_and_stages(capsys):
    text = listed(capsys, "threshold.rule")
    assert "rule: best_f1, best_map or number; default: best_f1" in text
    assert "A number from 0 to 1: that number is t*." in " ".join(text.split())
    assert "Reruns: fit" in text
    assert "tolerance:" not in text


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("tresholds", "threshold"),
        ("thresh", "threshold"),
        ("evaluate.proposal", "evaluate.proposals"),
        ("threshold.rul", "threshold.rule"),
        ("detectors.pases", "detectors.passes"),
        ("detectors.voc-vos.pases", "detectors.passes"),
    ],
)
def test_an_unknown_name_suggests_the_nearest_one(name, nearest, capsys):
    assert main(["list", "params", name]) == 2
    assert f"Did you mean '{nearest}'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("detectors.voc-vos", "detectors"),
        ("detectors.voc-vos.passes", "detectors.passes"),
        ("detectors.voc-vos.passes.crop", "detectors.passes"),
        ("benchmarks.voc.splits.coco_near.distance", "benchmarks.splits.distance"),
        ("methods.knn", "methods"),
    ],
)
def test_names_of_a_project_stand_for_any_name(name, place, capsys):
    assert listed(capsys, name) == listed(capsys, place)


@pytest.mark.parametrize(
    "name", ["", ".", "threshold.", "x" * 1000, "threshold.rule.more", "detectors..adapter"]
)
def test_what_is_no_name_is_refused_in_one_line(name, capsys):
    assert main(["list", "params", name]) == 2
    message = capsys.readouterr().err
    assert len(message.splitlines()) == 1
    assert "unknown" in message


def test_json_has_types_and_defaults(capsys):
    (section,) = json.loads(listed(capsys, "fit", "--json"))
    assert (section["name"], section["reruns"]) == ("fit", ["fit", "evaluate", "choose"])
    (table,) = section["tables"]
    keys = {key["name"]: key for key in table["keys"]}
    assert keys["keep"]["default"] == 0.95
    assert keys["max_regions"]["default"] is None
    assert not keys["max_regions"]["required"]
    assert keys["labels"]["type"] == "predicted or annotated"
    (enrich,) = json.loads(listed(capsys, "enrich.pools", "--json"))
    assert [key["required"] for key in enrich["tables"][0]["keys"]] == [True, True, False]


def test_the_former_form_of_other_lists_is_not_one_of_this(capsys):
    assert main(["params"]) == 2
    assert "list params" not in capsys.readouterr().out
