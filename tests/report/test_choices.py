"""What is said of methods whose parameters were chosen, and of searches that find not everything."""

import pytest

from farther.report import choices
from farther.report.results import Run, Split


def chosen(*, oracle: bool) -> dict:
    return {"choice": {"trials": [{}, {}, {}], "id_split": "val", "ood_split": "coco_choose", "oracle": oracle}}


def a_run(**fitted) -> Run:
    methods = {name: {"fitted": how} for name, how in fitted.items()}
    splits = (Split("near", "coco", "near"),)
    return Run("net", "voc", "yolo", "", splits, tuple(fitted), {}, {}, {"methods": methods})


def test_a_search_names_the_validation_split_and_the_trials():
    text = choices.how_chosen(chosen(oracle=False))
    assert text == (
        "chosen by search: the best of 3 by AUROC of ID split 'val' against OOD split 'coco_choose', "
        "an OOD validation split"
    )


def test_an_oracle_is_called_so_first_of_all():
    text = choices.how_chosen(chosen(oracle=True))
    assert text.startswith("ORACLE, chosen on test data: the best of 3")
    assert text.endswith("'coco_choose', which results are reported on")


@pytest.mark.parametrize("fitted", [{}, {"choice": None}, {"state": {}}])
def test_given_parameters_and_exact_searches_need_no_remark(fitted):
    assert choices.remarks(a_run(knn=fitted), "knn") == []
    assert choices.note(a_run(knn=fitted)) == ""


def test_an_approximate_index_says_how_much_it_finds():
    fitted = {"state": {"recall_": 0.9876}}
    assert choices.index_recall(fitted) == "approximate index: finds 98.8% of the nearest neighbours"


def test_the_note_below_a_table_names_run_and_method():
    run = a_run(msp={}, knn={**chosen(oracle=True), "state": {"recall_": 1.0}})
    assert choices.note(run).startswith("net, kNN: ORACLE, chosen on test data")
    assert choices.note(run).endswith("finds 100.0% of the nearest neighbours.")
    assert [run.label(name) for name in run.methods] == ["MSP", "kNN (oracle)"]
