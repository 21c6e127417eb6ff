"""Names of methods and metrics by title and alias, in any case."""

import textwrap

import pytest

from farther import methods
from farther.errors import AmbiguousNameError, ParameterError, choose, plain_name
from farther.methods.base import METHODS
from farther.metrics import catalogue
from farther.metrics.catalogue import metric_name
from farther.naming.canonical_names import choose_entry, how_to_have
from farther.params import parse

#: What papers, OpenOOD, pytorch-ood and FMIYC's code call methods.
METHOD_BY_NAME = {
    "kNN": "knn",
    "k-NN": "knn",
    "KNN": "knn",
    "ViM": "vim",
    "VIM": "vim",
    "ebo": "energy",
    "EnergyBased": "energy",
    "maxlogit": "mls",
    "MaxLogit": "mls",
    "max-logit": "mls",
    "MaxSoftmax": "msp",
    "mds": "mahalanobis",
    "RMDS": "relative_mahalanobis",
    "rmd": "relative_mahalanobis",
    "klm": "kl_matching",
    "KL Matching": "kl_matching",
    "godin": "g_odin",
    "DICE+ReAct": "dice_react",
    "temp-scaling": "temperature_scaling",
    "Mahalanobis PCA": "lard_mahalanobis",
    "LaRD (kNN)": "lard_knn",
    "Dempster–Shafer": "dempster_shafer",
}

METRIC_BY_NAME = {
    "AUROC": "auroc",
    "auc": "auroc",
    "R_U": "r_u",
    "r-u": "r_u",
    "AP_U": "ap_u",
    "nOSE": "nose",
    "mAP": "map",
    "MAP": "map",
    "AP50": "map50",
    "mAP50": "map50",
    "FPR95": "fpr95",
    "FPR95TPR": "fpr95_ood_positive",
    "AUPR-IN": "aupr_in",
    "aupr_out": "aupr_out",
    "AOSE": "aose",
    "A-OSE": "open_world_a_ose",  # as it is printed; a-ose may be either
    "U-Recall": "open_world_u_recall",
    "AUROC per image": "per_image_auroc",
    "AUC per image": "per_image_auroc",
    "t*": "threshold",
    "ACC": "accuracy",
    "Found": "tp_u",
}


@pytest.mark.parametrize(("name", "method"), METHOD_BY_NAME.items())
def test_a_method_is_found_by_what_papers_and_libraries_call_it(name, method):
    assert methods.get(name).name == method
    assert methods.create(name).name == method


@pytest.mark.parametrize(("name", "metric"), METRIC_BY_NAME.items())
def test_a_metric_is_found_as_it_is_printed_and_as_papers_call_it(name, metric):
    assert metric_name(name) == metric


@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_is_found_by_its_title_and_in_capitals(name):
    assert methods.get(name.upper()).name == name
    assert methods.get(METHODS.get(name).title).name == name


@pytest.mark.parametrize("metric", catalogue.METRICS.values(), ids=catalogue.METRICS)
def test_every_metric_is_found_by_its_title(metric):
    assert metric_name(metric.title) == metric.name


def test_no_alias_of_a_method_is_another_ones_registered_name():
    """It would be found as that one, or be refused as ambiguous."""
    names = {plain_name(name): name for name in METHODS.names()}
    for name, aliases in METHODS.aliases.items():
        for alias in aliases:
            assert names.get(plain_name(alias), name) == name


def test_aliases_are_those_of_the_class_itself():
    assert "KNN PCA" in methods.get("lard_knn").aliases
    assert set(methods.get("knn").aliases).isdisjoint(methods.get("lard_knn").aliases)
    assert methods.get("dice_react").aliases == ()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("LaRD", ["lard_gmm", "lard_kde", "lard_knn", "lard_mahalanobis"]),
        ("lard", ["lard_gmm", "lard_kde", "lard_knn", "lard_mahalanobis"]),
    ],
)
def test_an_alias_of_several_methods_names_all_of_them(name, meant):
    with pytest.raises(AmbiguousNameError) as error:
        methods.get(name)
    listed = ", ".join(repr(other) for other in meant[:-1])
    assert f"method {name!r} may mean {listed} or {meant[-1]!r}" in str(error.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("AUPR", "'aupr_in' or 'aupr_out'"),
        ("FPR@95", "'fpr95' or 'fpr95_ood_positive'"),  # OpenOOD's has OOD as positives
        ("a-ose", "'aose' or 'open_world_a_ose'"),
        ("wilderness impact", "'known_wi' or 'open_world_wi'"),
    ],
)
def test_an_alias_of_several_metrics_names_all_of_them(name, meant):
    with pytest.raises(AmbiguousNameError, match=f"may mean {meant}: write one of these"):
        metric_name(name)


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("ODIN", "odin: {method: temperature_scaling, temperature: 1000, pass: perturbed}"),
        ("odin", "perturbed: {kind: perturb, epsilon: 0.0014, temperature: 1000}"),
        ("rank-feat", "rankfeat: {method: energy, pass: rankfeat}"),
        ("MC dropout", "mutual_information: {pass: dropout}"),
        ("mc_dropout", "predictive_entropy: {pass: dropout}"),
    ],
)
def test_a_method_over_a_pass_says_which_entry_to_write(name, entry):
    with pytest.raises(ParameterError) as error:
        methods.get(name)
    assert entry in str(error.value) and entry in how_to_have(name)


def test_an_entry_that_is_named_after_a_published_method_has_its_title():
    for entry, title in (("odin", "ODIN"), ("ip_ts_mlv", "IP-TS-MLV"), ("knn", "")):
        assert METHODS.written.published_title(entry) == title


def test_what_to_write_for_a_published_method_is_a_valid_entry():
    """Entries are read as the pipeline reads them, and passes as a run's passes are."""
    from farther.detectors.passes.base import read_passes
    from farther.scoring.entries import read_entry
    from farther.tables.documents import parse_yaml

    for name in METHODS.names():
        for entry, of_pass in METHODS.get(name).published_entries.values():
            ((entry_name, values),) = parse_yaml(entry).items()
            checked = read_entry(entry_name, values)
            assert checked.method == name
            passes = parse_yaml(of_pass)
            assert list(passes) == [checked.pass_name]
            assert list(read_passes("run", passes)) == [checked.pass_name]


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("knnn", "Did you mean 'knn'?"),
        ("MaxLogits", "Did you mean 'mls'?"),  # by its alias
        ("mahalanobi", "Did you mean 'mahalanobis'?"),
        ("lard_k", "Did you mean 'lard_kde' or 'lard_knn'?"),
        ("max", "Did you mean 'mcm', 'mls' or 'msp'?"),  # by aliases
        ("zzzzzz", "unknown method 'zzzzzz'. `farther list methods` lists"),
        ("", "unknown method ''. `farther list methods` lists"),
        ("--", "unknown method '--'. `farther list methods` lists"),
        (["knn"], "unknown method ['knn']. `farther list methods` lists"),
        (None, "unknown method None. `farther list methods` lists"),
    ],
)
def test_an_unknown_method_brings_the_nearest_ones(name, suggested):
    with pytest.raises(ParameterError) as error:
        methods.get(name)
    assert suggested in str(error.value)


def test_after_a_suggestion_the_other_names_are_not_listed():
    with pytest.raises(ParameterError) as error:
        methods.get("knnn")
    assert "Did you mean 'knn'? All: `farther list methods`" in str(error.value)
    assert "msp" not in str(error.value)


def test_few_names_are_listed_where_none_is_similar_and_of_many_the_first_ones():
    with pytest.raises(ParameterError, match=r"unknown run 'zz'\. Known: a, b$"):
        choose("run", "zz", ["b", "a"])
    with pytest.raises(ParameterError, match=r"Known: run0, run1, .*, run9 and 2 more$"):
        choose("run", "zz", [f"run{number}" for number in range(10)] + ["run90", "run91"])


def test_without_aliases_a_name_must_be_written_as_it_is_and_the_nearest_is_suggested():
    with pytest.raises(ParameterError, match="Did you mean 'voc-vos'"):
        choose("run", "VOC-VOS", ["voc-vos", "bdd-vos"])


@pytest.mark.parametrize("name", ["Ähnlichkeit", "A\u0308hnlichkeit", "ähnlichkeit"])
def test_forms_of_a_character_that_look_alike_are_one(name):
    assert choose("method", name, {"own": ()}, {"own": ("Ähnlichkeit",)}) == "own"


def test_a_name_as_it_is_written_comes_before_similar_ones():
    names = {"a_b": ("A-B",), "ab": ("AB",)}
    assert choose("name", "A-B", names, names) == "a_b"
    assert choose("name", "AB", names, names) == "ab"
    with pytest.raises(AmbiguousNameError):
        choose("name", "a b", names, names)


# ------------------------------------------------------------------- params.yaml


def test_params_yaml_has_registered_names_however_methods_are_written():
    text = """
    methods:
      kNN: {k: 5}
      EBO: {temperature: 2}
      MaxLogit:
      kNN on crops: {method: K-NN, pass: crop}
      chosen: {search: {ood_split: choose, grids: {ViM: {components: [8]}, RMDS: {}}}}
    report: {method: ebo}
    """
    with pytest.raises(ParameterError, match="'kNN on crops' is not allowed"):
        parse(text)
    params = parse(text.replace("kNN on crops", "kNN_on_crops"))
    assert params["methods"] == {
        "knn": {"k": 5},
        "energy": {"temperature": 2},
        "mls": None,
        "kNN_on_crops": {"method": "knn", "pass": "crop"},  # the entry's own name
        "chosen": {
            "search": {
                "ood_split": "choose",
                "grids": {"vim": {"components": [8]}, "relative_mahalanobis": {}},
            }
        },
    }
    assert params["report"]["method"] == "energy"


def test_an_alias_and_the_registered_name_give_the_same_parameters():
    assert parse("methods: {kNN: {k: 5}, MSP: {}}") == parse("methods: {knn: {k: 5}, msp: {}}")


def test_an_entry_that_chooses_from_grids_keeps_its_name():
    text = "methods: {mds: {oracle: {ood_split: far, grids: {mahalanobis: {}}}}}"
    assert list(parse(text)["methods"]) == ["mds"]


@pytest.mark.parametrize(
    "methods_of_project",
    ["kNN: {}, knn: {}", "EBO: {}, energy: {}", "msp: {}, MaxSoftmax: {}"],
)
def test_two_entries_of_one_method_are_refused_with_what_to_write(methods_of_project):
    with pytest.raises(ParameterError, match=r"two entries are '\w+' .* `method: \w+`"):
        parse(f"methods: {{{methods_of_project}}}")


@pytest.mark.parametrize("name", ["lard", "ODIN", "knnn", "7"])
def test_names_that_are_unknown_or_ambiguous_stay_until_they_are_used(name):
    assert list(parse(f"methods: {{'{name}': {{}}}}")["methods"]) == [name]


@pytest.mark.parametrize(
    "text",
    [
        "methods: {knn: {search: 5}}",
        "methods: {knn: {search: {grids: [1]}}}",
        "methods: {knn: {method: [1]}}",
        "report: {method: [1]}",
        "report: {method: none_such}",
        "evaluate: {user_defined: [a]}",
        "methods:",
    ],
)
def test_values_of_other_types_are_left_for_the_checks_of_stages(text):
    parse(text)


def test_extensions_are_found_by_title_and_alias_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "extensions").mkdir()
    (tmp_path / "extensions/own.py").write_text(
        textwrap.dedent(
            """
            from typing import ClassVar
            from farther import Method, Metric, register

            @register("sharpness_of_mine")
            class Sharpness(Method):
                title: ClassVar[str] = "Sharp!"
                aliases: ClassVar[tuple[str, ...]] = ("Edge score",)

            @register("flags_of_mine")
            class Flags(Metric):
                title = "My flags"
            """
        )
    )
    params = parse("methods: {edge-score: {}}\nevaluate: {user_defined: {my-flags: {}}}")
    assert params["methods"] == {"sharpness_of_mine": {}}
    assert params["evaluate"]["user_defined"] == {"flags_of_mine": {}}


def test_a_damaged_extension_does_not_keep_params_from_being_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "extensions").mkdir()
    (tmp_path / "extensions/own.py").write_text("def (\n")
    assert parse("methods: {kNN: {}, mine: {}}")["methods"] == {"knn": {}, "mine": {}}


# ------------------------------------------------------------------- entries of a project

ENTRIES = {
    "energy": {},
    "energy_10": {"method": "energy", "temperature": 10},
    "vim_100": {"method": "vim"},
    "knn_a": {"method": "knn"},
    "knn_b": {"method": "knn"},
    "odin": {"method": "temperature_scaling", "pass": "perturbed"},
}


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("EBO", "energy"),
        ("Energy-10", "energy_10"),
        ("ViM", "vim_100"),
        ("ODIN", "odin"),
        ("temperature scaling", "odin"),
    ],
)
def test_an_entry_is_found_by_its_name_and_by_those_of_its_method(name, entry):
    assert choose_entry("method", name, ENTRIES) == entry


def test_entries_of_one_method_are_all_named():
    with pytest.raises(AmbiguousNameError, match="'kNN' may mean 'knn_a' or 'knn_b'"):
        choose_entry("method", "kNN", ENTRIES)
