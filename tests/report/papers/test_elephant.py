"""The elephant's tables."""

from tests.report.papers.conftest import rows_by_table


def test_wilderness_has_the_units_of_the_paper(sources):
    found = rows_by_table(sources, "elephant")
    assert set(found) >= {"Table 1", "Table 2", "Figure 3", "Table 4"}
    (row,) = found["Table 2"]
    assert list(row) == ["Algorithm", "Images, ID / OOD", "Recall 0.1", "Recall 0.3", "Recall 0.5"]
    assert row["Images, ID / OOD"] == "20 / 6"
    # A fraction with four decimals, not per cent.
    assert len(row["Recall 0.1"].partition(".")[2]) == 4
    diagnosed = [(row["Images"], row["Recall"]) for row in found["Figure 3"]]
    expected = []
    for images in ("closed set", "open set"):
        expected += [(images, recall) for recall in ("0.1", "0.3", "0.5")]
    assert diagnosed == expected
    # A detector's "Mixed unknowns" are two columns, under no name of the paper.
    columns = {"Nothing labelled, ID image (%)", "Nothing labelled, OOD image (%)"}
    assert columns <= set(found["Figure 3"][0])
    first = found["Table 4"][0]
    assert (first["Class"], first["WR"]) == ("mean over the classes", "0")
    assert {"F0.5 score", "F1 Prec. (%)", "F1.5 Thre."} <= set(first)
