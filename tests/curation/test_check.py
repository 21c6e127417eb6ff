"""Problems of benchmarks and of searches that are found before their stages run."""

import re

import pytest
from tests.curation.test_parameters import C3, NEAR, params

from farther.curation.check import check_benchmark, check_enrichment
from farther.curation.decisions import HEADER

SMALL_RULES = "{id_classes: {cat: {voc: [cat]}}, protocols: {paper: {overlap: {coco: {}}}}}"


ELSEWHERE = {**NEAR, "candidates": "c.csv"}


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        ({}, []),
        (
            {
                "splits": {"x": {**NEAR, "candidates": "here.csv"}},
                "decisions": "data/decisions/voc.csv",
            },
            [],
        ),
        ({"most": {"trian": 5}}, ["are neither ID nor OOD splits"]),
        ({"id": "lvis"}, ["unknown dataset 'lvis'"]),
        ({"shifted": {"c3": C3}}, ["'voc_shifted'"]),
        ({"rules": "voc.yaml"}, ["voc.yaml: class mappings belong in data/benchmarks"]),
        (
            {"rules": "data/benchmarks/../../voc.yaml"},
            ["voc.yaml: class mappings belong in data/benchmarks"],
        ),
        ({"rules": "data/benchmarks/none.yaml"}, ["none.yaml: the file does not exist"]),
        ({"splits": {"x": {**NEAR, "vocabulary": "lvis"}}}, ["no rules for the vocabulary 'lvis'"]),
        ({"splits": {"x": {**NEAR, "vocabulary": "lvis", "assigned": "as published"}}}, []),
        (
            {"splits": {"x": ELSEWHERE}},
            ["c.csv: the file does not exist: write it, or name .* data/candidates/pools/voc.csv"],
        ),
        ({"splits": {"x": {**NEAR, "candidates": "data/candidates/pools/voc.csv"}}}, []),
        ({"decisions": "here.csv"}, ["here.csv: decisions belong in data/decisions"]),
        (
            {"decisions": "data/decisions/../../here.csv"},
            ["here.csv: decisions belong in data/decisions"],
        ),
        (
            {"decisions": "data/decisions/none.csv"},
            ["none.csv: the file does not exist: leave `decisions` out"],
        ),
        ({"decisions": "data/decisions/cut.csv"}, ["cut.csv: row 2: expected 8 values, found 2"]),
        (
            {"rules": "voc.yaml", "decisions": "here.csv", "splits": {"x": ELSEWHERE}},
            ["class mappings belong", "decisions belong", "c.csv: the file does not exist"],
        ),
    ],
)
def test_all_that_curate_would_refuse_is_found_before_it_runs(
    tmp_path, monkeypatch, changes, problems
):
    monkeypatch.chdir(tmp_path)
    for file, text in {
        "data/benchmarks/voc.yaml": SMALL_RULES,
        "voc.yaml": SMALL_RULES,
        "data/decisions/voc.csv": HEADER,
        "data/decisions/cut.csv": f"{HEADER}2026-11-21T09:00:00Z,ann\n",
        "here.csv": "dataset,subset,image_id\n",
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    found = check_benchmark(
        "voc", params(rules="data/benchmarks/voc.yaml") | changes, ["voc", "coco"]
    )
    assert [(one.name, one.state) for one in found] == [("benchmarks.voc", "wrong")] * len(problems)
    assert all(
        re.search(problem, one.text) for problem, one in zip(problems, found, strict=True)
    ), found


@pytest.mark.parametrize(
    ("name", "entry", "problem"),
    [
        ("voc", {"pools": [{"dataset": "photos", "subset": "pool"}]}, None),
        (
            "vok",
            {"pools": [{"dataset": "photos", "subset": "pool"}]},
            "unknown benchmark 'vok'.*'voc'",
        ),
        (
            "voc",
            {"pools": [{"dataset": "fotos", "subset": "pool"}]},
            "unknown dataset 'fotos'.*photos",
        ),
        ("voc", {"pools": []}, "pools"),
        (
            "voc",
            {"pools": [{"dataset": "photos", "subset": "pool"}], "file": "c.csv"},
            "unknown parameter 'file'",
        ),
    ],
)
def test_all_that_enrich_would_refuse_is_found_before_it_runs(name, entry, problem):
    findings = check_enrichment(name, entry, ["voc"], ["photos", "id"])
    if problem is None:
        assert findings == []
    else:
        (finding,) = findings
        assert finding.name == f"enrich.{name}"
        assert re.search(problem, finding.text)
