"""OpenOOD's tables, with values worked out by hand."""

from dataclasses import replace

import pytest
from tests.report.papers.conftest import ROOT, rows_by_table

from farther.report.papers import openood
from farther.report.papers.table import Sources
from farther.report.results import IMAGES
from farther.report.settings import Counterpart


@pytest.fixture
def nine_benchmarks(make_run):
    """Makes the sources of one run per benchmark, of the kinds that OpenOOD has.

    The runs of MNIST-6/4 are two divisions of classes in one group, those of MVTec-AD two
    categories.
    """

    def make(second_division=0.8, published=None):
        values = {
            ("bottle", "ad"): {"far": 0.7},
            ("cable", "ad"): {"far": 0.9},
            ("mnist6-1", "osr"): {"near": 0.6},
            ("mnist6-2", "osr"): {"near": second_division},
            ("cifar6", "osr"): {"near": 0.9},
            ("pets", "ood"): {"near": 0.5, "far": 1.0},
            ("mnist", None): {"near": 0.7, "far": 0.8},
        }
        runs = []
        benchmarks = {}
        for (benchmark, kind), auroc_by_distance in values.items():
            means = {
                distance: {"splits": [], "values": {"auroc": value}}
                for distance, value in auroc_by_distance.items()
            }
            run = make_run({"msp": {"auroc": 0.5}}, {"methods": {"msp": {"means": means}}})
            runs.append(replace(run, name=benchmark, benchmark=benchmark, title=benchmark))
            benchmarks[benchmark] = {"kind": kind}
        benchmarks["cifar6"] = {
            "division": {"known": 6, "seed": 1}
        }  # open-set recognition without saying so
        seeds = {"mnist6": ["mnist6-1", "mnist6-2"]}
        return Sources(runs, {"benchmarks": benchmarks}, ROOT, published or {}, seeds)

    return make


def test_openood_has_near_and_far_in_a_cell(sources):
    found = rows_by_table(sources, "openood")
    msp = next(row for row in found["Table 1"] if row["Method"] == "MSP")
    assert msp == {
        "Network": "net",
        "Method": "MSP",
        "pets": "50.0 / 100.0",
        "Avg.": "50.0 / 100.0",
    }


def test_openood_has_a_column_per_benchmark_and_the_mean_over_divisions(nine_benchmarks):
    own, _ = openood.tables(nine_benchmarks())[0].listings
    assert own.frame.to_dicts()[0] == {
        "Method": "MSP",
        "AD: all categories": "80.0",
        "OSR: mnist6": "70.0",
        "OSR: cifar6": "90.0",
        "OSR avg.": "80.0",
        "pets": "50.0 / 100.0",
        "mnist": "70.0 / 80.0",
        "Avg.": "60.0 / 90.0",
    }


def test_openood_has_no_mean_where_a_division_has_no_value(nine_benchmarks):
    own, _ = openood.tables(nine_benchmarks(second_division=None))[0].listings
    msp = own.frame.to_dicts()[0]
    # A mean over the other benchmarks alone would not be comparable with those of other methods.
    assert (msp["OSR: mnist6"], msp["OSR avg."]) == ("—", "—")


def test_openood_puts_the_printed_value_beside_the_benchmark_that_it_is_of(nine_benchmarks):
    published = {
        "mnist6": Counterpart(detector="lenet", id="mnist-6-4"),
        "pets": Counterpart(detector="resnet18", id="cifar10-v1"),
    }
    own, printed = openood.tables(nine_benchmarks(published=published))[0].listings
    msp = own.frame.to_dicts()[0]
    assert list(msp)[2:4] == ["OSR: mnist6", "M-6, as printed"]
    assert (msp["M-6, as printed"], msp["CIFAR-10, as printed"]) == ("96.2", "86.9 / 89.6")
    assert [head for head in msp if "printed" in head] == [
        "M-6, as printed",
        "CIFAR-10, as printed",
    ]
    rows = {row["Method"]: row for row in printed.frame.to_dicts()}
    assert len(rows) == 34
    assert rows["DRÆM"]["AD: MVTec"] == "97.0"
    assert rows["MSP"]["AD: MVTec"] == rows["OE"]["OOD detection: MNIST"] == "N/A"
    assert rows["PatchCore"]["OSR: C-50"] == rows["VOS"]["OOD detection: ImageNet"] == "not run"
    assert list(rows["KNN"].values())[4:] == [
        *("97.5", "86.9", "83.4", "74.1", "85.5"),
        *("96.5 / 96.7", "90.5 / 92.8", "79.9 / 82.2", "80.8 / 98.0", "86.9 / 92.4"),
        *("77.1", "85"),
    ]


@pytest.mark.parametrize(
    ("network", "method", "row"),
    [
        ("resnet18", "msp", "msp"),
        ("resnet18", "gram_resnet", "gram"),  # an entry of another name
        ("resnet18", "energy_of_dropout", None),  # of a pass: another score
        ("resnet18", "temperature_fitted", None),  # the paper searches T
        ("resnet18", "scale", None),
        ("MixUp", "msp", "mixup"),  # a network that was trained so: not the printed MSP
        ("MixUp", "knn", None),
        ("vos", "energy", "vos"),
    ],
)
def test_openood_puts_a_printed_value_beside_the_same_score_of_the_same_training_only(
    network, method, row
):
    entries = {
        "gram_resnet": {"method": "gram", "layer": ["layer1"]},
        "energy_of_dropout": {"method": "energy", "pass": "dropout"},
        "temperature_fitted": {"method": "temperature_scaling"},
        "msp": None,
    }
    assert (
        openood.PrintedTable(Sources([], {"methods": entries}, ROOT)).row_of(network, method) == row
    )


def test_openood_has_rows_of_their_own_for_each_network(sources):
    run = sources.runs[0]
    other = replace(run, name="pets-mixup", title="mixup")
    rows = rows_by_table(replace(sources, runs=[run, other]), "openood")["Table 1"]
    names = [row["Network"] for row in rows if row["Method"] == "MSP"]
    assert names == ["net", "mixup"]
    assert [row["Method"] for row in rows if row["Network"] == "mixup"][-2:] == [
        IMAGES,
        "Accuracy or mAP50",
    ]
