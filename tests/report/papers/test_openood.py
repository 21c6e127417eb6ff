"""OpenOOD's tables, with values worked out by hand."""

from dataclasses import replace

import polars as pl
import pytest
from tests.report.papers.conftest import ROOT, GivenTables, rows_by_table, texts_of

from farther import methods
from farther.params import parse
from farther.report.papers.frames import Sources, results_of_run
from farther.report.papers.layout import read_paper
from farther.report.papers.render import render


@pytest.fixture
def nine_benchmarks(make_run):
    """Makes the tables of one run per benchmark, of the kinds that OpenOOD has.

    The runs of MNIST-6/4 are two divisions of classes in one group, those of MVTec-AD two
    categories.
    """

    def make(second_division=0.8):
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
            means = {}
            for distance, value in auroc_by_distance.items():
                means[distance] = {"splits": [], "values": {"auroc": value}}
            run = make_run({"msp": {"auroc": 0.5}}, {"methods": {"msp": {"means": means}}})
            runs.append(replace(run, name=benchmark, benchmark=benchmark, title=benchmark))
            benchmarks[benchmark] = {"kind": kind}
        # Open-set recognition without saying so.
        benchmarks["cifar6"] = {"division": {"known": 6, "seed": 1}}
        seeds = {"mnist6": ["mnist6-1", "mnist6-2"]}
        sources = Sources(runs, {"benchmarks": benchmarks}, ROOT, {}, seeds)
        frames = []
        for position, run in enumerate(runs):
            table = run.results.table.frame.with_columns(run=pl.lit(run.name))
            frames.append(results_of_run(run, table, sources, position))
        layout = read_paper("openood").tables[0]
        listings = render(layout, GivenTables(pl.concat(frames), sources)).listings
        return [texts_of(part.listing) for part in listings]

    return make


def row_of(rows, method):
    (row,) = [row for row in rows if row["Method"] == method]
    return row


def test_openood_has_near_and_far_in_a_cell(sources):
    msp = row_of(rows_by_table(sources, "openood")["Table 1"], "MSP")
    assert msp == {
        "Network": "net",
        "Method": "MSP",
        "pets (%)": "50.0 / 100.0",
        "Avg. (%)": "50.0 / 100.0",
    }


def test_openood_has_a_column_per_benchmark_and_the_mean_over_divisions(nine_benchmarks):
    own, *_ = nine_benchmarks()
    assert row_of(own, "MSP") == {
        "Method": "MSP",
        "AD: all categories (%)": "80.0",
        "OSR: mnist6 (%)": "70.0",
        "OSR: cifar6 (%)": "90.0",
        "OSR avg. (%)": "80.0",
        "pets (%)": "50.0 / 100.0",
        "mnist (%)": "70.0 / 80.0",
        "Avg. (%)": "60.0 / 90.0",
    }


def test_openood_has_no_mean_where_a_division_has_no_value(nine_benchmarks):
    own, *_ = nine_benchmarks(second_division=None)
    msp = row_of(own, "MSP")
    # A mean over the other benchmarks alone would not be comparable with those of other methods.
    assert (msp["OSR: mnist6 (%)"], msp["OSR avg. (%)"]) == ("—", "—")


def test_openood_has_the_printed_table(nine_benchmarks):
    _, printed, of_methods = nine_benchmarks()
    assert len(printed) == 34
    assert len(of_methods) == 33  # PatchCore has no means
    assert row_of(printed, "DRÆM")["AD: MVTec (%)"] == "97.0"
    assert row_of(printed, "MSP")["AD: MVTec (%)"] == "—"
    assert list(row_of(printed, "kNN").values())[2:] == [
        *("97.5", "86.9", "83.4", "74.1"),
        *("96.5 / 96.7", "90.5 / 92.8", "79.9 / 82.2", "80.8 / 98.0"),
    ]
    knn = row_of(of_methods, "KNN")
    assert list(knn.values())[3:] == ["85.5", "86.9", "92.4", "77.1", "85"]


def test_mcd_is_a_printed_row_only(nine_benchmarks):
    # Maximum classifier discrepancy (Yu and Aizawa, 2019) needs a training with two heads.
    own, printed, _ = nine_benchmarks()
    assert "MCD" not in [row["Method"] for row in own]
    assert row_of(printed, "MCD")["CIFAR-10 (%)"] == "25.7 / 25.4"
    assert "mcd" not in methods.names()
    for profile in (ROOT / "profiles").glob("openood-v1-*.yaml"):
        assert "mcd" not in parse(profile.read_text())["methods"]


def test_openood_has_rows_of_their_own_for_each_network(sources):
    run = sources.runs[0]
    table = run.results.table.frame
    other = replace(run, name="pets-mixup", title="mixup")
    frames = [
        results_of_run(run, table, sources, 0),
        results_of_run(other, table.with_columns(run=pl.lit(other.name)), sources, 1),
    ]
    layout = read_paper("openood").tables[0]
    (own,) = render(layout, GivenTables(pl.concat(frames), sources)).listings
    rows = texts_of(own.listing)
    assert [row["Network"] for row in rows if row["Method"] == "MSP"] == ["net", "mixup"]
    last = [row["Method"] for row in rows if row["Network"] == "mixup"][-2:]
    assert last == ["Images, ID / OOD", "mAP50"]
