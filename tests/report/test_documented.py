"""Remarks on methods whose parameters were chosen, and those that methods make themselves."""

from dataclasses import replace

import pytest
from tests.support.evaluations import SEARCH

from farther.evaluation.results import FittedMethod
from farther.report import documented


def chosen(*, oracle: bool) -> dict:
    return {"choice": replace(SEARCH, oracle=oracle)}


@pytest.fixture
def a_run(make_run):
    """Makes a run from the fitted methods, by name."""

    def make(**fitted):
        methods = {name: {"fitted": how} for name, how in fitted.items()}
        return make_run({name: {} for name in fitted}, {"methods": methods})

    return make


def test_a_search_names_the_validation_split_and_the_trials():
    text = documented.how_chosen(FittedMethod(name="knn", **chosen(oracle=False)))
    assert text == (
        "chosen by search: the best of 3 by AUROC of ID split 'val' against OOD split "
        "'coco_choose', an OOD validation split"
    )


def test_an_oracle_is_called_so_first_of_all():
    text = documented.how_chosen(FittedMethod(name="knn", **chosen(oracle=True)))
    assert text.startswith("ORACLE, chosen on test data: the best of 3")
    assert text.endswith("'coco_choose', which results are reported on")


@pytest.mark.parametrize("fitted", [{}, {"choice": None}, {"state": {}}])
def test_given_parameters_and_no_remarks_need_no_remark(a_run, fitted):
    assert documented.remarks(a_run(knn=fitted), "knn") == []
    assert documented.note_on(a_run(knn=fitted)) == ""


def test_the_note_below_a_table_names_run_and_method(a_run):
    run = a_run(msp={}, knn={**chosen(oracle=True), "remarks": ["finds 100.0%", "and more"]})
    assert documented.note_on(run).startswith("net (voc), kNN: ORACLE, chosen on test data")
    assert documented.note_on(run).endswith(
        "which results are reported on; finds 100.0%; and more."
    )
    assert [run.label(name) for name in run.methods] == ["MSP", "kNN (oracle)"]
