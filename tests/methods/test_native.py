"""Detectors that label objects as unknown themselves."""

import dataclasses

import numpy as np
import pytest

from farther import methods
from farther.errors import DataError
from farther.methods import FitError
from farther.scoring.fit import fit_method
from farther.scoring.inputs import FitSettings, RunRegions
from farther.tables import Header, Regions

NAMES = ("native", "confidence", "msp", "energy", "knn", "mahalanobis", "vim", "she", "kl_matching")


def with_unknown(regions: Regions, column: int) -> Regions:
    """The same rows of a detector for which a class means unknown objects."""
    return Regions(
        header=dataclasses.replace(regions.header, unknown_columns=(column,)), **regions.columns()
    )


@pytest.mark.parametrize("name", NAMES)
def test_detections_labelled_unknown_are_below_all_others_the_most_confident_lowest(name, make):
    regions = with_unknown(make(seed=2), 4)
    scores = (
        methods.create(name, **({"k": 3} if name == "knn" else {}))
        .fit(with_unknown(make(seed=1), 4))
        .score(regions)
    )
    labelled = regions.label == 4
    assert 0 < labelled.sum() < len(regions)
    assert scores[labelled].max() < scores[~labelled].min()
    order = np.argsort(scores[labelled], kind="stable")
    assert (np.diff(regions.score[labelled][order]) <= 0).all()


@pytest.mark.parametrize("name", ["msp", "energy", "gen", "entropy", "mls"])
def test_scores_of_logits_do_not_read_the_column_of_the_unknown_class(name, make):
    regions = make(seed=2)
    logits = regions.logits.copy()
    logits[:, 4] += 3.0
    kept = regions.label != 4
    other = Regions(header=regions.header, **{**regions.columns(), "logits": logits})
    first, second = (
        methods.create(name).score(with_unknown(each, 4))[kept] for each in (regions, other)
    )
    np.testing.assert_array_equal(first, second)
    header = Header(classes=regions.classes[:4])
    columns = {
        n: v
        for n, v in regions[kept].columns().items()
        if n not in ("features", "latent", "logits")
    }
    without = Regions(header=header, logits=regions.logits[kept][:, :4], **columns)
    np.testing.assert_allclose(first, methods.create(name).score(without), rtol=1e-6)


def run_of(regions: Regions, folder) -> RunRegions:
    for split in ("train", "val"):
        regions.write(folder / split)
    return RunRegions(folder, settings=FitSettings())


def test_the_threshold_of_native_is_the_label(make, tmp_path):
    """τ of other methods comes from the other detections: see evaluation/test_kept_results.py."""
    regions = with_unknown(make(seed=1), 4)
    native = methods.create("native")
    fit_method(native, run_of(regions, tmp_path))
    assert native.fixed_threshold == 0.0
    np.testing.assert_array_equal(
        native.score(regions) < native.fixed_threshold, regions.label == 4
    )


def test_methods_do_not_learn_from_detections_labelled_unknown(make, tmp_path):
    regions = with_unknown(make(seed=1), 4)
    learned = methods.create("mahalanobis")
    fit_method(learned, run_of(regions, tmp_path))
    expected = methods.create("mahalanobis").fit(regions[regions.label != 4])
    test = with_unknown(make(seed=2), 4)
    np.testing.assert_allclose(learned.score(test), expected.score(test), rtol=1e-9)


def test_a_detector_without_such_a_class_has_no_native_score(make):
    with pytest.raises(FitError, match="native needs a class that means unknown objects"):
        methods.create("native").fit(make())


def test_a_method_refuses_regions_whose_unknown_classes_are_others(make):
    fitted = methods.create("mahalanobis").fit(make(seed=1))
    with pytest.raises(DataError, match=r"fitted on \[\], these regions have \[4\]"):
        fitted.score(with_unknown(make(seed=2), 4))


@pytest.mark.parametrize("columns", [(3,), (-1,), (0, 0), (1,)])
def test_unknown_columns_are_different_columns_and_not_the_background(columns):
    with pytest.raises(
        DataError, match="expected different columns from 0 to 2 that are not the background's"
    ):
        Header(classes=("cat", "background", "dog"), background_index=1, unknown_columns=columns)


def test_unknown_columns_are_stored_and_read(make, tmp_path):
    with_unknown(make(), 4).write(tmp_path / "regions")
    read = Regions.read(tmp_path / "regions")
    assert read.header.unknown_columns == (4,)
    assert read.is_labelled_unknown.sum() == (make().label == 4).sum() > 0
