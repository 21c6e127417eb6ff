"""Methods that learn from validation detections whose true class is known."""

import numpy as np
import pytest

from farther import methods
from farther.errors import DataError
from farther.methods import FitError
from farther.methods.temperature_scaling import fit_temperature
from farther.scoring.entries import read_entry
from farther.scoring.fit import fit_entry
from farther.scoring.inputs import RunRegions
from farther.tables import Regions, TrueClasses


@pytest.fixture
def run(tmp_path, make):
    """A folder of regions, and the true classes of the split `val`; every third has none."""
    train, val = make(200, seed=1, background=True), make(90, seed=2, background=True)
    train.write(tmp_path / "run" / "train")
    val.write(tmp_path / "run" / "val")
    shown = np.array(
        [val.classes[k] for k in (val.label + (np.arange(90) % 4 == 0)) % 5], dtype=object
    )
    shown[::3] = ""
    TrueClasses(image_id=val.image_id, region_id=val.region_id, category=shown).write(
        tmp_path / "truth.parquet"
    )
    return tmp_path / "run", val, shown


def fitted(
    run: tuple, folder, operating=0.0, truth="truth.parquet", **params
) -> methods.Method | str:
    path = run[0].parent / folder
    truth = None if truth is None else run[0].parent / truth
    why = fit_entry(
        read_entry("temperature_scaling", params), RunRegions(run[0], operating, truth=truth), path
    )
    return why or methods.load(path)


def test_the_temperature_is_fitted_to_detections_of_known_objects(run):
    _, val, shown = run
    known = shown != ""
    truth = np.array([val.classes.index(name) for name in shown[known]])
    expected = fit_temperature(val.logits[known][:, :5], truth)
    assert fitted(run, "state").temperature_ == pytest.approx(expected, rel=1e-9)


def test_detections_of_nothing_are_background_where_that_is_kept(run):
    _, val, shown = run
    truth = np.array(
        [val.classes.index(name) if name else val.header.background_index for name in shown]
    )
    expected = fit_temperature(val.logits, truth)
    assert fitted(run, "state", background="keep").temperature_ == pytest.approx(expected, rel=1e-9)


def test_only_detections_above_the_operating_threshold_count(run):
    _, val, shown = run
    kept = (val.score >= 0.6) & (shown != "")
    truth = np.array([val.classes.index(name) for name in shown[kept]])
    expected = fit_temperature(val.logits[kept][:, :5], truth)
    assert fitted(run, "state", operating=0.6).temperature_ == pytest.approx(expected, rel=1e-9)


def test_a_given_temperature_needs_neither_truth_nor_fitting(run):
    _, val, _ = run
    scores = fitted(run, "state", truth=None, temperature=2.5).score(val)
    np.testing.assert_allclose(
        scores, methods.create("temperature_scaling", temperature=2.5).score(val), rtol=1e-9
    )


def test_without_true_classes_the_method_does_not_apply_and_says_why(run):
    assert "true classes of the ID validation detections are needed" in fitted(
        run, "state", truth=None
    )


def test_a_table_that_lacks_a_detection_is_refused(run):
    TrueClasses(image_id=["image0"], region_id=[0], category=["class1"]).write(
        run[0].parent / "short.parquet"
    )
    with pytest.raises(DataError, match=r"short.parquet.*no row for region 1 of image 'image0'"):
        fitted(run, "state", truth="short.parquet")


def test_truth_without_any_known_object_does_not_apply(run):
    _, val, shown = run
    nothing = TrueClasses(
        image_id=val.image_id, region_id=val.region_id, category=[""] * len(shown)
    )
    nothing.write(run[0].parent / "nothing.parquet")
    assert "no ID validation detection matches an object" in fitted(
        run, "state", truth="nothing.parquet"
    )


def test_scoring_before_the_temperature_is_known_is_an_error(make):
    with pytest.raises(FitError, match="call learn_truth, or give `temperature`"):
        methods.create("temperature_scaling").fit(make()).score(make())


def test_a_header_without_background_marks_what_shows_nothing(make):
    """Detections of nothing are left out of the fit whatever number stands for them."""
    val: Regions = make(60, seed=3)
    # One in four of the others has another class than the largest logit says.
    true_class = (val.label + (np.arange(60) % 8 == 1)) % val.logits.shape[1]
    truth = np.where(np.arange(60) % 2, true_class, -1)
    method = methods.create("temperature_scaling").fit(val)
    method.learn_truth(val, truth)
    known = truth >= 0
    assert method.temperature_ == pytest.approx(
        fit_temperature(val.logits[known], truth[known]), rel=1e-9
    )
