"""Lines of params.yaml: names, chosen parameters, and the code they stand for."""

import json

import pytest

from farther import methods
from farther.errors import ParameterError
from farther.scoring.entries import read_entry
from farther.scoring.fit import fit_entry
from farther.scoring.inputs import RunRegions
from farther.scoring.search import search


@pytest.fixture
def run(make, tmp_path):
    for seed, split in enumerate(["train", "val", "test", "choose", "coco_far"]):
        make(80, seed=seed, shift=3.0 if split in ("choose", "coco_far") else 0.0).write(
            tmp_path / "run" / split
        )
    return tmp_path / "run"


def fit(entry, run, path):
    return fit_entry(entry, RunRegions(run, test_splits=("coco_far",)), path, search)


def test_a_line_is_called_as_its_method_unless_it_says_otherwise():
    assert read_entry("knn", {"k": 3}).create().k == 3
    entry = read_entry("gen_published", {"method": "gen", "protocol": "published-code"})
    assert (entry.name, entry.method) == ("gen_published", "gen")
    assert entry.create().protocol == "published-code"


def test_an_unknown_method_gets_the_nearest_one():
    with pytest.raises(ParameterError, match=r"Did you mean 'mahalanobis'.*farther list methods"):
        read_entry("mahalanobi", {})


SEARCH = {"ood_split": "choose", "grids": {"energy": {"temperature": [0.5, 100.0]}}}


def test_chosen_parameters_are_fitted_and_how_is_kept(run, tmp_path):
    entry = read_entry("energy", {"search": SEARCH})
    assert fit(entry, run, tmp_path / "fitted") is None
    info = json.loads((tmp_path / "fitted" / "method.json").read_text())
    choice = info["choice"]
    assert info["params"]["temperature"] == choice["best"]["params"]["temperature"]
    assert choice["best"]["value"] == max(trial["value"] for trial in choice["trials"])
    assert (choice["id_split"], choice["ood_split"], choice["oracle"]) == ("val", "choose", False)


def test_a_test_split_is_refused_unless_called_an_oracle(run, tmp_path):
    on_test = {"ood_split": "coco_far", "grids": {"lard_knn": {"k": [3]}, "lard_mahalanobis": {}}}
    with pytest.raises(ParameterError, match="results are reported on"):
        fit(read_entry("lard", {"search": on_test, "method": "lard_knn"}), run, tmp_path / "fitted")
    assert (
        fit(read_entry("lard", {"oracle": on_test, "method": "lard_knn"}), run, tmp_path / "fitted")
        is None
    )
    choice = json.loads((tmp_path / "fitted" / "method.json").read_text())["choice"]
    assert choice["oracle"] is True
    assert [trial["name"] for trial in choice["trials"]] == ["lard_knn", "lard_mahalanobis"]


def test_if_nothing_can_be_chosen_the_method_does_not_apply_and_says_why(run, tmp_path):
    impossible = {"ood_split": "choose", "grids": {"knn": {"k": [5000]}}}
    assert "k is 5000" in fit(read_entry("knn", {"search": impossible}), run, tmp_path / "fitted")
    assert "k is 5000" in methods.not_applicable(tmp_path / "fitted")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ({"search": SEARCH, "oracle": SEARCH}, "cannot be combined"),
        ({"search": SEARCH, "temperature": 2.0}, "parameters go into its"),
        ({"search": {"grids": {}}}, "ood_split"),
    ],
)
def test_a_choice_that_is_none_is_refused(line, problem):
    with pytest.raises(ParameterError, match=problem):
        read_entry("energy", line)


SECTION = {
    "energy": {"temperature": 2},
    "knn_on_crops": {"method": "knn", "pass": "crop"},
    "for_one": {"method": "knn", "runs": ["voc"]},
    "both": {"method": "fused", "of": ["energy", "knn"]},
}


def test_a_method_made_of_others_names_entries_or_methods():
    entry = read_entry("cascade", {"first": "EBO", "then": "knn_on_crops"}, SECTION)
    assert entry.params["first"] == {"energy": {"temperature": 2}}
    assert entry.params["then"] == {"knn_on_crops": {"method": "knn", "pass": "crop"}}
    assert entry.passes_beside == ("crop",)
    assert entry.methods_with_parts == ["cascade", "energy", "knn"]
    fused = read_entry("fused", {"of": ["energy", "msp"]}, SECTION)
    assert fused.params["of"] == {"energy": {"temperature": 2}, "msp": {}}
    assert fused.passes_beside == ()


@pytest.mark.parametrize(
    ("name", "values", "problem"),
    [
        ("both", {"method": "fused", "of": ["energy", "both"]}, "'of' names the entry itself"),
        ("cascade", {"first": "energy", "then": "cascade"}, "'then' names the entry itself"),
        ("fused", {"of": ["energy", "both"]}, "'both', which is made of others itself"),
        ("fused", {"of": ["energy", "for_one"]}, "'for_one', which has 'runs'"),
        ("fused", {"of": ["energy", "energy"]}, "'energy' twice"),
        ("fused", {"of": ["energy", 3]}, "found 3"),
        ("cascade", {"first": "energy", "then": "knn_on_crop"}, "Did you mean 'knn_on_crops'"),
        ("cascade", {"first": "energy", "then": "knn_on_crops", "pass": "crop"}, "leave it out"),
    ],
)
def test_what_a_method_cannot_be_made_of_is_named_with_its_entry(name, values, problem):
    with pytest.raises(ParameterError, match=f"methods.{name}.*{problem}"):
        read_entry(name, values, SECTION)
