"""Tables of further metrics, with values that were worked out by hand."""

import pytest

from farther.evaluation.groups import GROUPS
from farther.report.metric_groups import cost_tables, further_tables, parts
from farther.report.results import read_runs


@pytest.fixture(scope="module")
def run(evaluated):
    from tests.report.conftest import PARAMS

    return read_runs(PARAMS, evaluated / "artifacts")[0]


def cells(table, metric):
    rows = table.cells.filter(metric=metric, method="msp").select("split_title", "text").iter_rows()
    return dict(rows)


def test_false_alarms_are_the_id_test_detections_below_the_threshold_per_image(run):
    (table,) = cost_tables("pets", [run])
    # Each of the 20 test images has one detection with the confidences of the validation images: τ,
    # their 5% quantile, lies above the lowest alone.
    assert cells(table, "false_alarms") == {"ID test images": "0.050"}
    assert cells(table, "id_flagged") == {"ID test images": "5.0"}
    assert cells(table, "map50") == {"ID test images": "100.0"}
    assert table.counts == {"ID test images": "20 detections, 20 images"}
    low, high = run.group(run.id_split, "msp", "costs")["false_alarms"].interval
    assert 0 <= low <= 0.05 <= high
    alarms = table.cells.filter(metric="false_alarms", method="msp").row(0, named=True)
    assert alarms["interval"] == f"[{low:.3f}, {high:.3f}]"
    assert alarms["printed"] == 0.05


def test_numbers_of_objects_are_not_printed_in_per_cent(run):
    counts = next(table for table in further_tables(run) if table.name == "pets-net-counts")
    assert cells(counts, "tp_u") == {"photos near": "1", "photos far": "1"}
    assert cells(counts, "aose") == {"photos near": "1", "photos far": "0"}
    assert cells(counts, "fn_missed") == {"photos near": "2", "photos far": "1"}


def test_groups_without_values_have_no_table(run):
    with_values = set()
    for group in GROUPS.values():
        has_values = any(run.group(split.name, "msp", group.name) for split in run.splits)
        if group.table is not None and has_values:
            with_values.add(f"pets-net-{group.table.name}")
    names = {table.name for table in further_tables(run)}
    assert names == with_values
    assert "pets-net-counts" in names
    assert "pets-net-pairs" not in names


def test_parts_of_the_results_say_which_objects_and_classes_they_are_of(run):
    over_iou, errors, _, classes = parts(run, "msp")
    assert over_iou.frame["Objects"].to_list() == [4, 2]
    # One object is detected as a cat, see conftest.PHOTOS.
    assert errors.frame.to_dicts() == [
        {"Class": "cat", "All": 1, "photos near": 1, "photos far": 0}
    ]
    assert classes.frame["Class"].to_list() == ["cat", "dog"]
