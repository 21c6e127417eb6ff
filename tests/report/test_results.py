"""Runs as they are read from files, and their methods."""

import shutil
from types import SimpleNamespace

import polars as pl
import pytest
from tests.support.messages import OUTSIDE

from farther.errors import DataError, ParameterError
from farther.evaluation.long_table import SCHEMA, LongTable
from farther.evaluation.parts import part_text
from farther.report.results import Run, read_runs
from farther.tables.documents import write_json


def test_without_an_own_method_in_the_settings_the_detectors_confidence_is_shown(make_run):
    run = make_run({"energy": {"ap_u": 0.9}, "confidence": {"ap_u": 0.1}})
    assert run.shown_method(None) == "confidence"
    assert make_run({"energy": {"ap_u": 0.1}, "knn": {"ap_u": 0.9}}).shown_method(None) == "energy"


def test_families_follow_what_a_method_reads(make_run):
    needs = {
        "a": ["logits"],
        "b": ["features", "labels"],
        "c": ["features", "last_layer"],
        "d": ["latent"],
    }
    needs["e"] = ["latent.confidence"]  # an output of the network, whatever its column's name
    methods = {name: {"fitted": {"needs": inputs}} for name, inputs in needs.items()}
    run = make_run({name: {} for name in needs}, {"methods": methods})
    families = [run.family(name) for name in "abcde"]
    assert families == ["output", "feature", "mixed", "latent", "output"]


def test_ranking_goes_by_the_mean_over_splits_and_leaves_out_methods_without_a_value(make_run):
    run = make_run({"a": {"auroc": 0.5}, "b": {"auroc": 0.9}, "c": {"auroc": None}})
    assert run.ranked("auroc") == ["b", "a"]
    with pytest.raises(ParameterError, match=r"net has no method 'z'\. Known: a, b, c"):
        run.shown_method("z")


def test_a_damaged_metrics_file_is_named_with_its_field(evaluated, params, tmp_path):
    shutil.copytree(evaluated / "artifacts" / "metrics", tmp_path / "metrics")
    file = tmp_path / "metrics" / "pets-net" / "photos_near" / "knn.json"
    write_json(file, {"auroc": "high"})
    with pytest.raises(DataError, match=r"knn\.json: field 'auroc': .*valid number, found 'high'"):
        _ = read_runs(params, tmp_path)[0].values


def test_a_run_on_an_unknown_benchmark_is_refused(params, tmp_path):
    params["detectors"]["pets-net"]["benchmark"] = "pest"
    with pytest.raises(ParameterError, match=r"names no known benchmark: 'pest'\. Known: pets"):
        read_runs(params, tmp_path)


def test_a_run_name_that_leaves_the_folder_is_refused(params, tmp_path):
    params["detectors"] = {"../elsewhere": params["detectors"]["pets-net"]}
    with pytest.raises(DataError, match=OUTSIDE):
        read_runs(params, tmp_path)


def test_categories_have_their_names_whatever_these_hold():
    row = {"run": "r", "split": "far", "method": "msp", "group": "open_set", "no_interval": ""}
    row |= {"metric": "unknown_objects", "value": 1.0, "unit": "count"}
    rows = [{**row, "part": part_text({"category": name})} for name in ("fox", "a, size=b")]
    table = LongTable(pl.DataFrame(rows, schema=SCHEMA))
    run = Run("r", "b", "", "", (), SimpleNamespace(table=table))
    assert run.categories(["far"], "msp") == ["fox", "a, size=b"]
