"""One long table with every value of a run."""

import json
import shutil

import polars as pl
import pytest
from tests.evaluation.evaluated_runs import evaluated_run as evaluated_run
from tests.support.evaluations import evaluation_of

from farther.datasets.image_attributes import RESERVED
from farther.errors import DataError
from farther.evaluation.files import RunFiles
from farther.evaluation.long_table import SCHEMA, WHOLE, LongTable, long_table, read_long_table
from farther.evaluation.parts import part_text
from farther.evaluation.results import Ablation, ErrorCauses, MetricValues
from farther.evaluation.stored_results import StoredResults
from farther.metrics.catalogue import METRICS
from farther.report.results import not_significant

KEY = ["run", "split", "method", "group", "metric", "part"]


@pytest.fixture(scope="module")
def run(evaluated_run):
    files, evaluation = evaluated_run
    return files, evaluation, read_long_table(files.long_table)


def one(table, **selected):
    rows = table.filter(**selected).to_dicts()
    assert len(rows) == 1, rows
    return rows[0]


def test_each_value_is_one_row(run):
    _, _, table = run
    assert dict(table.schema) == SCHEMA
    assert not table.select(KEY).is_duplicated().any()


def test_no_attribute_of_images_can_have_the_name_of_another_part(run):
    _, _, table = run
    assert set(LongTable(table).part_keys("open_set")) <= set(RESERVED)


def test_a_metric_of_a_method_on_a_split_has_value_interval_images_and_unit(run):
    _, evaluation, table = run
    results = evaluation.methods["msp"].splits["far"]
    row = one(table, split="far", method="msp", metric="r_u", part="")
    low, high = results.interval(METRICS["r_u"])
    assert row == {
        "run": "r",
        "split": "far",
        "method": "msp",
        "group": "open_set",
        "metric": "r_u",
        "part": "",
        "value": results.value(METRICS["r_u"]),
        "low": low,
        "high": high,
        "no_interval": "",
        "p": None,
        "n": 2,  # of three images, two show unknown objects
        "unit": "fraction",
    }


def test_every_value_of_every_group_is_there_under_the_name_of_its_metric(run):
    _, evaluation, table = run
    whole = table.filter(split="far", method="msp", part="")
    for name, group in evaluation.methods["msp"].splits["far"].groups.items():
        for key, value in group.values.items():
            rows = whole.filter(pl.col("metric").str.ends_with(key), group=name)
            assert value in rows["value"].to_list()


def test_a_metric_of_the_catalogue_is_of_one_group(run):
    _, _, table = run
    for metric, group in table.select("metric", "group").unique().iter_rows():
        if metric in METRICS:
            assert group == METRICS[metric].group


def test_parts_say_what_of(run):
    _, evaluation, table = run
    results = evaluation.methods["msp"].splits["far"]
    row = one(table, split="far", method="msp", part="category=fox", metric="tp_u")
    assert row["value"] == results.by_category["fox"].values["tp_u"]
    assert row["unit"] == "count"


def test_the_detectors_metrics_have_the_names_that_files_of_metrics_have(run):
    files, _, table = run
    stored = json.loads((files.metrics / "detector.json").read_text())
    for name, value in stored.items():
        assert one(table, group="detector", metric=name, part="")["value"] == value
    assert one(table, metric="threshold")["unit"] == "score"


def test_the_files_of_metrics_are_selections(run):
    files, _, table = run
    stored = json.loads((files.metrics / "far" / "msp.json").read_text())
    selected = table.filter(split="far", method="msp", part="")
    for name, value in stored.items():
        assert one(selected, metric=name)["value"] == value


def test_errors_on_unknown_objects_are_parts_of_their_split(run):
    _, evaluation, table = run
    budget = evaluation.methods["msp"].splits["far"].error_budget
    for kind, errors in budget.items():
        of_kind = table.filter(split="far", method="msp", part=f"error={kind}")
        assert set(of_kind["value"].to_list()) == set(errors.values.values())


MARGINS = {"histogram": [], "classes": {"boat": {"mean": 0.5, "sd": 0.25, "detections": 3}}}
BEST = {"f": [0.9, 0.8], "threshold": [0.5, 0.75]}
WILDERNESS = {
    "errors": ErrorCauses(
        ratio=1,
        similar=[],
        recalls=[0.1, 0.3],
        classes=[1, 1],
        detections=[4, 8],
        shares={"correct": [1.0, 0.75]},
        intervals={"correct": [None, (0.5, 0.9)]},
    ),
    "background": {"known": MARGINS, "unknown": {"histogram": [], "classes": {}}},
    "operating_points": {"ratios": [0.0, 1.0], "betas": {"1": {"mean": BEST, "classes": {}}}},
    "map_closed": 0.5,
    "map_open": 0.4,
}
STEP = Ablation(
    confidence_threshold="half", calibrator=None, image_threshold="keep_95", metrics={"daq": 0.3}
)
QUALITY = {"detections_per_image": 2.5, "laece": 0.1, "lrp": 0.6, "ap": 0.4}
SELF_AWARENESS = {
    "splits": {"far": {"auroc": 0.9, "tnr": 0.5}, "all OOD": {"auroc": 0.8, "tnr": 0.5}},
    "aggregates": {"top-3": {"far": 0.9, "all OOD": 0.8}},
    "uncertainties": {"box": MetricValues(values={"min": 0.7}, intervals={"min": (0.6, 0.8)})},
    "calibrated": {"none": {"laece": 0.4}},
    "image_thresholds": {"keep_95": {"tpr": 0.95}},
    "ablation": [STEP],
    "top_k": [{"k": 10, **QUALITY, "ap_low": 0.3, "ap_high": 0.5}],
    "by_threshold": [{"threshold": None, **QUALITY, "ap_low": None, "ap_high": None}],
}


@pytest.mark.parametrize(
    ("group", "metric", "part", "value"),
    [
        ("wilderness", "map_closed", "", 0.5),
        ("wilderness", "map_open", "", 0.4),
        ("wilderness_errors", "detections", "set=open, recall=0.3", 8),
        ("wilderness_errors", "correct", "set=open, recall=0.3", 0.75),
        ("operating_points", "f", "beta=1, ratio=1", 0.8),
        ("background", "sd", "class=boat, objects=known", 0.25),
        ("self_awareness", "self_awareness_auroc", "", 0.8),
        ("self_awareness", "self_awareness_auroc", "aggregate=top-3", 0.8),
        ("self_awareness", "self_awareness_auroc", "uncertainty=box, aggregate=min", 0.7),
        ("self_awareness", "laece", "calibrator=none", 0.4),
        ("self_awareness", "tpr", "image_threshold=keep_95", 0.95),
        (
            "self_awareness",
            "daq",
            "confidence_threshold=half, calibrator=none, image_threshold=keep_95",
            0.3,
        ),
        ("self_awareness", "detections_per_image", "dummies=10", 2.5),
        ("self_awareness", "ap", "score_threshold=lrp_optimal", 0.4),
    ],
)
def test_values_of_papers_tables_are_parts(group, metric, part, value):
    table = long_table(evaluation_of(wilderness=WILDERNESS, self_awareness=SELF_AWARENESS))
    of_whole_run = table.filter(pl.col("split") != "far")
    assert one(of_whole_run, group=group, metric=metric, part=part)["value"] == value


def test_values_of_papers_tables_have_intervals_splits_and_units():
    table = long_table(evaluation_of(wilderness=WILDERNESS, self_awareness=SELF_AWARENESS))
    share = one(table, metric="correct", part="set=open, recall=0.3")
    assert (share["low"], share["high"]) == (0.5, 0.9)
    precision = one(table, metric="ap", part="dummies=10")
    assert (precision["split"], precision["low"], precision["high"]) == ("val", 0.3, 0.5)
    threshold = one(table, metric="operating_points_threshold", part="beta=1, ratio=0")
    assert threshold["unit"] == "score"
    assert one(table, split="far", part="aggregate=top-3")["value"] == 0.9


def test_selections_have_the_values_counts_and_intervals_of_the_evaluation(run):
    _, evaluation, frame = run
    table = LongTable(frame)
    for split, results in evaluation.methods["msp"].splits.items():
        for group, section in results.groups.items():
            selected = table.values(group, split=split, method="msp")
            assert {key: result.value for key, result in selected.items()} == section.values
            for key, result in selected.items():
                assert type(result.value) is type(section.values[key])
                assert result.interval == section.intervals.get(key)
                assert result.no_interval == section.no_interval.get(key, "")


def test_a_method_is_compared_with_the_best_of_its_split(run):
    _, evaluation, frame = run
    table = LongTable(frame)
    for method, results in evaluation.methods.items():
        for split, of_split in results.splits.items():
            differences = table.from_best(split, method)
            assert differences.keys() == of_split.against_best.keys()
            for name, difference in of_split.against_best.items():
                assert differences[name].best == difference.best
                assert differences[name].interval == difference.interval
                assert differences[name].p == difference.p
                no_test = difference.interval is None and difference.p != 1
                assert differences[name].is_significant == (
                    no_test or not not_significant(difference.interval, difference.p)
                )


def test_a_clone_without_the_table_has_the_values_of_the_files_of_metrics(run, tmp_path):
    files, _, frame = run
    shutil.copytree(files.metrics, tmp_path / "metrics/r")
    cloned = StoredResults(RunFiles("r", files.benchmark, tmp_path))
    assert cloned.description is None
    whole = LongTable(frame)
    assert cloned.table.methods == sorted(whole.methods)
    of_clone = cloned.table.values("ood", split="far", method="msp")["auroc"]
    assert of_clone.value == whole.values("ood", split="far", method="msp")["auroc"].value
    assert of_clone.interval is of_clone.images is None
    assert cloned.detector == StoredResults(files).detector


def test_users_query_it_with_polars(run):
    files, _, _ = run
    results = pl.read_parquet(files.root / "results" / "*.parquet")
    best = results.filter(metric="auroc", part="", split="far").sort("value", descending=True)
    assert best["method"].to_list() == ["msp"]


def test_a_damaged_table_is_refused(run, tmp_path):
    files, _, _ = run
    file = tmp_path / "r.parquet"
    file.write_bytes(files.long_table.read_bytes()[:-20])
    with pytest.raises(DataError) as error:
        read_long_table(file)
    assert error.value.file == str(file)


def table_with_parts(**value_by_part):
    """A long table with counts of one metric by their parts."""
    row = {"run": "r", "split": "far", "method": "msp", "group": "open_set", "metric": "tp_u"}
    rows = []
    for part, value in value_by_part.items():
        rows.append({**row, "part": part, "value": value, "no_interval": "", "unit": "count"})
    return LongTable(pl.DataFrame(rows, schema=SCHEMA))


def test_values_by_a_key_have_names_with_commas_and_no_parts_of_further_keys():
    table = table_with_parts(
        **{
            "category=tench, Tinca tinca": 3,
            "category=tench, Tinca tinca, class=a=b": 2,
            "category=fox": 1,
            "size=small": 4,
        }
    )

    def values(key, within=WHOLE):
        by_part = table.by_part("open_set", key, split="far", method="msp", within=within)
        return {name: results["tp_u"].value for name, results in by_part.items()}

    assert values("category") == {"tench, Tinca tinca": 3, "fox": 1}
    assert values("class", within={"category": "tench, Tinca tinca"}) == {"a=b": 2}
    assert values("class", within={"category": "fox"}) == {}
    assert table.outer_parts("open_set", "category") == ["tench, Tinca tinca"]
    assert table.part_keys("open_set") == ["category", "size"]
    assert table.by_part("open_set", "category", split="near", method="msp") == {}


@pytest.mark.parametrize(
    "name",
    [
        "a, size=b",
        "a, class=horse",
        "a, b=c, d=e",
        ", size=b",
        "a%2C size=b",
        "a%252C, size=b",
        "a,",
        "a, ",
        "100%",
    ],
)
def test_a_name_that_reads_like_further_keys_is_one_name(name):
    pair = {"category": name, "class": name}
    table = table_with_parts(**{part_text({"category": name}): 1, part_text(pair): 2})

    def values(key, within=WHOLE):
        by_part = table.by_part("open_set", key, split="far", method="msp", within=within)
        return {name: results["tp_u"].value for name, results in by_part.items()}

    assert values("category") == {name: 1}
    assert values("class", within={"category": name}) == {name: 2}
    assert table.outer_parts("open_set", "category") == [name]
    assert table.parts("category") == [name]
    assert table.part_keys("open_set") == ["category"]
