"""The first table: means over distances.

They are compared with values worked out by hand from conftest.PHOTOS.
"""

from dataclasses import replace

import pytest
from tests.report.conftest import evaluation_in

from farther.evaluation.stored_results import StoredResults
from farther.report.means import table
from farther.report.results import read_runs


@pytest.fixture
def run(evaluated, params):
    return read_runs(params, evaluated / "artifacts")[0]


def cell(means, method: str, distance: str, metric: str) -> dict:
    return means.cells.filter(method=method, split=distance, metric=metric).row(0, named=True)


def test_means_of_one_split_are_its_values_and_carry_intervals_and_how_many_images_halve_them(
    run, evaluated
):
    means = table([run], evaluated / "artifacts")
    assert means.splits == ["near", "far"]
    near = cell(means, "msp", "near", "nose")
    assert (near["text"], near["images"], near["objects"], near["halved"]) == ("25.0", 4, 4, 16)
    of_split = run.values.filter(method="msp", split="photos_near", metric="nose")
    assert near["interval"] == of_split["interval"].item()
    assert cell(means, "msp", "far", "r_u")["text"] == "50.0"
    assert means.counts == {"near": "4 objects, 4 images", "far": "2 objects, 2 images"}
    assert means.halving == {"near": "16 images", "far": "8 images"}


def test_the_dagger_is_that_of_the_split_where_a_distance_has_one(run, evaluated):
    cells = table([run], evaluated / "artifacts").cells
    for distance in ("near", "far"):
        for metric in ("nose", "r_u", "auroc"):
            of_distance = cells.filter(split=distance, metric=metric)
            of_split = run.values.filter(split=f"photos_{distance}", metric=metric)
            assert of_distance["is_tied"].to_list() == of_split["is_tied"].to_list()


def test_runs_of_one_title_share_rows_unless_they_have_a_distance_in_common(run, evaluated):
    def only(distance: str):
        evaluation = evaluation_in(evaluated)
        for method in evaluation.methods.values():
            method.means = {distance: method.means[distance]}
        results = StoredResults.of(evaluation)
        return replace(run, name=distance, known_title=distance, results=results)

    shared = table([only("near"), only("far")], evaluated / "artifacts")
    assert list(shared.labels) == ["Method"]
    assert shared.caption.endswith("Detector: net.")
    assert cell(shared, "msp", "far", "r_u")["text"] == "50.0"
    apart = table([only("near"), replace(run, name="both")], evaluated / "artifacts")
    assert apart.different("Detector") == ["net (near)", "net (pets)"]
    assert cell(apart, "msp", "far", "r_u")["text"] == "—"


def test_without_details_there_is_no_table(make_run, tmp_path):
    assert table([make_run({"msp": {"auroc": 0.5}})], tmp_path) is None
