"""Plot files."""

import numpy as np

from farther.evaluation import plots


def test_a_thinned_curve_keeps_its_ends_and_its_shape():
    x = np.linspace(0, 1, 5000)
    y = np.sqrt(x)
    at, value = plots.thin(x, y)
    assert len(at) <= plots.CURVE_POINTS
    assert (at[0], at[-1], value[-1]) == (0, 1, 1)
    assert np.abs(np.interp(x, at, value) - y).max() < 0.01


def test_a_curve_of_no_more_points_than_asked_for_is_returned_whole():
    x = np.linspace(0, 1, 30) ** 5  # many points where it is short
    for points in (30, 31):
        at, value = plots.thin(x, x, points)
        assert np.array_equal(at, x) and np.array_equal(value, x)


def test_columns_are_named_and_fractions_have_six_digits(tmp_path):
    rows = [
        {"split": "far", "method": "msp", "y": 1.0, "x": 1 / 3},
        {"split": "far", "method": "vim", "x": 0.5},
    ]
    plots.write_csv(tmp_path / "roc.csv", plots.frame("roc", rows))
    plots.write_csv(tmp_path / "pr.csv", plots.frame("pr", []))
    assert (
        tmp_path / "roc.csv"
    ).read_text() == "split,method,x,y\nfar,msp,0.333333,1.0\nfar,vim,0.5,\n"
    assert (tmp_path / "pr.csv").read_text() == "split,method,x,y\n"
