"""The table of means for a terminal, compared with values worked out by hand."""

from farther.report import overview


def test_each_method_has_a_row_with_means_of_each_distance(evaluated, params):
    distances, metrics, *rows, note, _ = overview(params, evaluated).splitlines()
    assert distances.split() == ["near", "far"]
    assert metrics.split() == ["method", *["AUROC", "↑", "R_U", "↑"] * 2]
    cells_by_method = {row.split()[0]: row.split()[1:] for row in rows}
    assert list(cells_by_method) == ["MSP", "Energy", "kNN"]
    assert cells_by_method["MSP"][:2] == ["50.0", "25.0"]
    assert note == "Means in per cent, over splits; * best."


def test_the_best_of_a_column_has_a_star(evaluated, params):
    rows = overview(params, evaluated).splitlines()[2:-2]
    knn = next(row for row in rows if row.startswith("kNN"))
    assert knn.split()[1] == "100.0*"


def test_no_line_is_wider_than_a_terminal(evaluated, params):
    assert max(len(line) for line in overview(params, evaluated).splitlines()) <= 80


def test_before_anything_is_evaluated_it_says_what_to_run(params, tmp_path):
    text = overview(params, tmp_path)
    assert text == "no detector is evaluated yet; run `farther repro`"
