"""Pages of papers: the tables of the miniature project, with values worked out by hand."""

import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from tests.report.conftest import PARAMS
from tests.support.evaluations import evaluation_of

from farther.evaluation import image_uncertainties
from farther.evaluation.files import RunFiles
from farther.evaluation.results import MetricValues
from farther.report.pages.papers import PAPERS, content
from farther.report.papers import openood
from farther.report.papers.table import Sources
from farther.report.results import IMAGES, read_runs
from farther.report.settings import Counterpart
from farther.tables import ImageAttributes, Images

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sources(evaluated):
    return Sources(read_runs(PARAMS, evaluated / "artifacts")[:1], PARAMS, evaluated)


def tables(sources, name):
    """Number of each table of a paper that has values → the rows of all its listings."""
    paper = next(paper for paper in PAPERS if paper.name == name)
    shown = content(paper, paper.tables(sources))["tables"].values()
    return {
        table.number: [row for part in table.listings for row in part.frame.to_dicts()]
        for table in shown
    }


def test_fmiyc_counts_images_and_those_without_a_detection(sources):
    found = tables(sources, "fmiyc")
    # Two of the four near photos and one of the two far ones have no detection.
    assert found["Table 1"] == [
        {
            "Model": "net",
            "ID pets: photos near, 4 images (%)": 0.5,
            "ID pets: photos far, 2 images (%)": 0.5,
        }
    ]
    assert [(row["OOD"], row["Images"]) for row in found["Table 2"]] == [
        ("photos far", 2),
        ("photos near", 4),
    ]
    assert found["Table 3"] == [
        {"Model": "net", "pets, 20 images (%)": 1.0, "pets, as printed (%)": None}
    ]


def test_fmiyc_puts_a_printed_value_beside_the_split_that_it_is_of(sources):
    class Typed(Sources):
        def printed(self, name, texts, numbers):
            rows = [("net", "pets", "photos_far", 0.25)] if name == "fmiyc_no_detection.csv" else []
            return pl.DataFrame(rows, schema=[*texts, *numbers], orient="row")

    published = {sources.runs[0].name: Counterpart(detector="net", id="pets")}
    rows = tables(Typed(sources.runs, sources.params, sources.root, published), "fmiyc")["Table 1"]
    assert rows[0]["ID pets: photos far, as printed (%)"] == 0.25
    assert [head for head in rows[0] if "as printed" in head] == [
        "ID pets: photos far, as printed (%)"
    ]


def test_fmiyc_lists_what_the_rules_removed_and_what_they_call_near(sources):
    found = tables(sources, "fmiyc")
    assert found["Table 4"] == [{"ID dataset": "pets", "ID class": "cat", "Images": 1}]
    assert found["Tables 5 and 6"] == [{"ID dataset": "pets", "ID class": "cat", "photos": "Lynx"}]


def test_fmiyc_has_the_metrics_of_each_split_as_columns(sources):
    found = tables(sources, "fmiyc")
    msp = next(row for row in found["Tables 8 to 13"] if row["Method"] == "MSP")
    values = {head.replace("\N{NO-BREAK SPACE}", " "): value for head, value in msp.items()}
    assert values["photos near AUC ↑ (%)"] == values["photos near FPR95 ↓ (%)"] == 0.5
    first = found["Tables 14 to 25"][0]
    assert [head.split("\N{NO-BREAK SPACE}")[0] for head in first][:5] == [
        "Method",
        "photos near nOSE",
        "photos near AP_U",
        "photos near P_U",
        "photos near R_U",
    ]


def test_wilderness_has_the_units_of_the_paper(sources):
    found = tables(sources, "elephant")
    assert set(found) >= {"Table 1", "Table 2", "Figure 3", "Table 4"}
    (row,) = found["Table 2"]
    assert list(row) == ["Algorithm", "Recall 0.1", "Recall 0.3", "Recall 0.5", "Images, ID / OOD"]
    assert row["Images, ID / OOD"] == "20 / 6"
    assert (
        len(row["Recall 0.1"].partition(".")[2]) == 4
    )  # a fraction with four decimals, not per cent
    assert set(found["Table 4"][0]) >= {"WR", "F0.5 score", "F1: Prec.", "F1.5: Thre."}


def test_self_awareness_has_a_column_per_aggregate_and_calibrator(sources):
    found = tables(sources, "saod")
    assert list(found["Table 2"][0])[2:-1] == [
        f"{how} (%)" for how in ("sum", "mean", "top-5", "top-3", "top-2", "min")
    ]
    assert [row["Metric"] for row in found["Table 5"]] == ["LaECE", "LRP", "IDQ"]
    assert list(found["Table 5"][0])[3:7] == ["uncalibrated (%)", "LR (%)", "HB (%)", "IR (%)"]
    assert list(found["Table 4"][0])[2:] == [
        "photos near, 4 images (%)",
        "photos far, 2 images (%)",
        "all OOD (%)",
        "Images, ID / OOD",
    ]
    (three,), (eight,) = found["Table 3"], found["Table A.8"]
    assert list(three)[2:-1] == [
        "H(p) (%)",
        "DS (%)",
        "1 − p (%)",
        "|Σ| (%)",
        "tr(Σ) (%)",
        "H(Σ) (%)",
    ]
    assert re.fullmatch(r"\d+\.\d \(\d+\.\d to \d+\.\d\)", three["1 − p (%)"])
    assert three["|Σ| (%)"] == "—"  # its boxes have no variance
    assert float(three["1 − p (%)"].split()[0]) == pytest.approx(
        100 * found["Table 2"][0]["top-3 (%)"], abs=0.06
    )
    assert list(eight)[2:4] == ["Val (%)", "ID (%)"]
    assert found["Table 6"][0]["Val AP ↑ (%)"] == eight["Val (%)"]
    assert [row["u"] for row in found["Table A.11"]] == ["1 − p"]
    assert not {"Table A.9", "Table A.10"} & set(found)
    (full,) = found["Table A.16"]
    assert full["BA ↑ (%)"] == pytest.approx(
        2 * full["TPR ↑ (%)"] * full["TNR ↑ (%)"] / (full["TPR ↑ (%)"] + full["TNR ↑ (%)"])
    )


def test_objects_are_counted_by_class_in_both_id_splits(sources):
    assert tables(sources, "saod")["Figure A.6"] == [
        {"Class": "cat", "ID validation": 10, "ID test": 10},
        {"Class": "dog", "ID validation": 10, "ID test": 10},
    ]


def test_images_are_counted_by_weather_where_their_dataset_says_it(sources):
    assert "Figure A.8" not in tables(sources, "saod")
    run = next(run for run in sources.runs if run.evaluation.self_awareness)
    images = Images.read(
        RunFiles(run.name, run.benchmark, sources.artifacts).images("test")
    ).image_id.tolist()
    assert len(images) == 20
    rows = [
        {"image_id": name, "attribute": "weather", "value": "rainy"}
        for name in [*images[:5], "of no split"]
    ]
    rows += [{"image_id": name, "attribute": "weather", "value": "clear"} for name in images[5:15]]
    file = sources.artifacts / "tables/pets/test/attributes.parquet"
    ImageAttributes.from_frame(pl.DataFrame(rows)).write(file)
    try:
        shown = tables(sources, "saod")["Figure A.8"]
    finally:
        file.unlink()
    assert shown == [
        {"Attribute": "weather", "Value": "clear", "Images": 10, "Share (%)": "50.0"},
        {"Attribute": "weather", "Value": "rainy", "Images": 5, "Share (%)": "25.0"},
    ]


def test_printed_values_of_saod_follow_those_of_the_runs(sources):
    of_repository = Sources(sources.runs, sources.params, sources.root, {})

    class Printed(Sources):
        def printed(self, name, texts, numbers):
            return Sources(self.runs, self.params, ROOT).printed(name, texts, numbers)

    ours = tables(of_repository, "saod")
    both = tables(Printed(sources.runs, sources.params, sources.root), "saod")
    assert {
        name: len(both[name]) - len(ours[name])
        for name in ("Table 2", "Table 5", "Table 6", "Table 7")
    } == {
        "Table 2": 6,
        "Table 5": 12,
        "Table 6": 6,
        "Table 7": 4,
    }
    linear = both["Table 5"][-12]
    assert (linear["Detector"], linear["Metric"], linear["LR (%)"], linear["HB (%)"]) == (
        "F-RCNN",
        "LaECE",
        0.177,
        0.186,
    )
    last = both["Table 7"][-1]
    assert (last["v"], last["Calibrator"], last["u"], last["DAQ (%)"]) == (
        "LRP-optimal",
        "LR",
        "pseudo-OOD",
        0.397,
    )
    assert both["Table 2"][-1]["Detector"] == "ATSS"
    assert both["Table 2"][-1]["Dataset"] == "SAOD-AV"


def test_uncertainties_of_probabilistic_boxes_and_sigmoid_heads_have_tables_of_their_own(sources):
    titles = [*image_uncertainties.COMPUTED, "entropy + box entropy", "4 · entropy + box entropy"]
    titles += ["1 − confidence", "both entropies, normalised"]
    made = {title: MetricValues(values={"top-3": n / 20}) for n, title in enumerate(titles)}
    made["box entropy"].intervals["top-3"] = (0.25, 0.5)
    aware = sources.runs[0].evaluation.self_awareness.model_copy(update={"uncertainties": made})
    run = replace(
        sources.runs[0],
        evaluation=evaluation_of(self_awareness=aware, splits=sources.runs[0].evaluation.splits),
    )
    found = tables(Sources([run], sources.params, sources.root), "saod")
    assert list(found["Table A.9"][0].values())[2:5] == ["5.0", "10.0", "0.0"]
    assert [list(row.values())[2:7] for row in found["Table A.10"]] == [
        ["✓", "✗", "✗", "✗", "0.0"],
        ["✗", "✓", "✗", "✗", "30.0 (25.0 to 50.0)"],
        ["✓", "✓", "✗", "✗", "35.0"],
        ["✓", "✓", "✓", "✗", "40.0"],
        ["✓", "✓", "✗", "✓", "50.0"],
    ]
    assert [(row["u"], row["top-3 (%)"]) for row in found["Table A.11"]] == [
        ("1 − p", "45.0"),
        ("|Σ|", "20.0"),
    ]


def test_class_similarity_has_a_column_per_method_and_three_metrics_in_a_cell(sources):
    found = tables(sources, "realistic")
    near = next(row for row in found["Table VI"] if row["Dataset"] == "photos near")
    # The score of one of two near detections is above those of all ID detections: AUROC 50, and FPR
    # 50 at any TPR. The detection error is 2.5 + FPR / 2.
    assert near["MSP"] == "50.0 / 27.5 / 50.0"
    assert near["Detections"] == 2
    assert {"T1: OODness 2 and 3", "T2: OODness 3"} <= {row["Dataset"] for row in found["Table VI"]}


def test_printed_detection_errors_are_those_at_tpr_95():
    printed = pl.read_csv(ROOT / "data/published/realistic.csv")
    assert len(printed) == 48
    expected = 0.025 + printed["fpr95"] / 2
    differs = (printed["detection_error95"] - expected).abs() > 0.00016
    assert printed.filter(differs)["method"].to_list() == ["oodl", "oodl"]
    # TS is at a large temperature: it ranks as the largest logit does.
    auroc = printed.pivot("method", index=["table", "dataset"], values="auroc")
    assert (auroc["temperature_scaling"] - auroc["mls"]).abs().max() < 0.0002


def test_openood_has_near_and_far_in_a_cell(sources):
    found = tables(sources, "openood")
    msp = next(row for row in found["Table 1"] if row["Method"] == "MSP")
    assert msp == {
        "Network": "net",
        "Method": "MSP",
        "pets": "50.0 / 100.0",
        "Avg.": "50.0 / 100.0",
    }


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
    assert (msp["OSR: mnist6"], msp["OSR avg."]) == ("—", "90.0")


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
    rows = tables(replace(sources, runs=[run, other]), "openood")["Table 1"]
    names = [row["Network"] for row in rows if row["Method"] == "MSP"]
    assert names == ["net", "mixup"]
    assert [row["Method"] for row in rows if row["Network"] == "mixup"][-2:] == [
        IMAGES,
        "Accuracy or mAP50",
    ]


def test_every_table_is_on_the_page_or_has_a_reason(sources):
    for paper in PAPERS:
        found = paper.tables(sources)
        page = content(paper, found)
        assert list(page["tables"].values()) == [table for table in found if table.is_shown] != []
        assert {table.number for table in found if not table.is_shown} <= set(
            page["absent"].frame["Table"]
        )
        assert all(page["absent"].frame["Reason"])
