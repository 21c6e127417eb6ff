"""Regions that methods are fitted on: held in memory, with annotated classes, of crops."""

from collections import Counter

import numpy as np
import polars as pl
import pytest
from tests.support.fitting import fit_and_score

from farther import methods
from farther.errors import DataError, ParameterError
from farther.methods.base import FitError
from farther.scoring.entries import read_entry
from farther.scoring.fit import fit_method
from farther.scoring.inputs import FitSettings, HeldRegions, RunRegions
from farther.scoring.score import _parts
from farther.tables import Objects, RegionsFolder


@pytest.fixture
def stored(make, tmp_path, monkeypatch):
    """Regions in batches of 16."""
    monkeypatch.setattr("farther.tables.regions.ROW_GROUP", 16)
    left = 20.0 * np.arange(100)[:, None]
    make(100).with_columns(box=left * [1, 0, 1, 0] + [0, 0, 10, 10]).write(tmp_path / "run/train")
    return RegionsFolder(tmp_path / "run/train")


class Counted:
    """Regions that count how often a column is read."""

    def __init__(self, regions):
        self._regions, self.header, self.read = regions, regions.header, Counter()

    def has(self, column):
        return self._regions.has(column)

    def batches(self, columns=None):
        self.read.update(columns or ["all"])
        return self._regions.batches(columns)


@pytest.mark.parametrize(("share", "again"), [(99, False), (1.01, True), (0.5, True), (0, True)])
def test_held_regions_are_those_that_are_stored_and_are_read_again_only_where_they_do_not_fit(
    stored, share, again
):
    always_read = sum(batch.frame.estimated_size() for batch in stored.batches([]))
    counted = Counted(stored)
    held = HeldRegions(counted, int(share * always_read))
    for columns in (["logits"], ["features", "logits"], None, ["features"], ["features"]):
        for batch, expected in zip(held.batches(columns), stored.batches(columns), strict=True):
            for name in (*(columns or ["box", "features"]), "score", "label"):
                np.testing.assert_array_equal(getattr(batch, name), getattr(expected, name))
    assert (counted.read["features"] > 1) is again
    assert counted.read["all"] == 1


def test_annotated_classes_are_those_of_the_rows_in_every_batch(stored, tmp_path):
    regions = pl.concat([batch.frame for batch in stored.batches()])
    wanted = np.arange(len(regions)) // 7 % 5
    annotated = Objects(
        image_id=regions["image_id"].to_numpy(),
        object_id=np.arange(len(regions)),
        box=regions["box"].to_numpy(),
        category=[stored.header.classes[k] for k in wanted],
    )
    (tmp_path / "splits/train").mkdir(parents=True)
    annotated.write(tmp_path / "splits/train/objects.parquet")
    settings = FitSettings(labels="annotated")
    method = methods.create("mahalanobis")
    found = RunRegions(tmp_path / "run", settings=settings, splits=tmp_path / "splits").training_of(
        method
    )
    assert np.concatenate([batch.label for batch in found.batches([])]).tolist() == wanted.tolist()
    with pytest.raises(FitError, match="annotated classes of the training regions are needed"):
        RunRegions(tmp_path / "run", settings=settings).training_of(method)


@pytest.mark.parametrize(
    ("least", "changes", "problem"),
    [
        (0.3, {}, None),
        (0.4, {}, None),
        (
            0.5,
            {},
            r"the pass 'crop' has crops only of detections from 0\.5 on, and t\* is 0\.4: "
            "lower its `min_score`",
        ),
        (
            0.3,
            {"fit_on": "detections"},
            "the pass 'crop' has features of crops: leave `fit_on` out",
        ),
    ],
)
def test_crops_that_do_not_fit_the_run_are_refused(make, tmp_path, least, changes, problem):
    make(20).write(tmp_path / "run/val")
    described = {"pass": {"kind": "crops", "min_score": least}}
    make(20, detector=described).write(tmp_path / "passes/crop/val")
    run = RunRegions(tmp_path / "run", 0.4, passes=tmp_path / "passes")
    entry = read_entry("msp", {"pass": "crop", **changes})
    if problem is None:
        assert run.on(entry).folder == tmp_path / "passes/crop"
    else:
        with pytest.raises(FitError, match=problem):
            run.on(entry)


def test_a_method_is_for_the_runs_that_its_entry_names(tmp_path):
    entry = read_entry("vos", {"runs": ["voc-vos", "bdd-vos"]})
    of_vos = RunRegions(tmp_path, name="voc-vos")
    assert of_vos.on(entry) is of_vos
    with pytest.raises(FitError, match="`runs` lists it for voc-vos, bdd-vos only"):
        RunRegions(tmp_path, name="voc-yolov8").on(entry)


def test_a_method_learns_from_no_split_that_results_are_reported_on(make, tmp_path):
    for split in ("train", "val", "test", "far"):
        make(30).write(tmp_path / split)
    run = RunRegions(tmp_path, test_splits=("far",))
    for split in ("test", "far"):
        method = methods.create("mds_ensemble", ood_split=split)
        with pytest.raises(ParameterError, match=f"results are reported on '{split}'"):
            run.fit(method)


def test_a_value_that_cannot_be_scored_names_the_split(make, tmp_path):
    for split in ("train", "val"):
        make(30).write(tmp_path / "run" / split)
    broken = make(30)
    broken.with_frame(broken.frame.drop("logits")).write(tmp_path / "run/far")
    with pytest.raises(DataError, match=str(tmp_path / "run/far")):
        fit_and_score({"msp": {}}, RunRegions(tmp_path / "run"), tmp_path)


@pytest.mark.parametrize(
    ("rows", "sizes"), [(10, [10]), (20, [10, 10]), (45, [11, 11, 11, 12]), (0, [0])]
)
def test_rows_are_shared_among_cores_in_parts_that_are_not_too_small(
    make, monkeypatch, rows, sizes
):
    monkeypatch.setattr("farther.scoring.score.PART", 10)
    monkeypatch.setattr("farther.scoring.score.count_cores", lambda: 4)
    parts = _parts(make(50)[:rows])
    assert [len(part) for part in parts] == sizes
    assert [number for part in parts for number in part.region_id] == list(
        make(50).region_id[:rows]
    )


def test_a_method_needs_scores_to_take_a_threshold_from_unless_it_has_one(make, tmp_path):
    regions = make(seed=1)
    regions.write(tmp_path / "train")
    regions[:0].write(tmp_path / "val")
    run = RunRegions(tmp_path, settings=FitSettings())
    with pytest.raises(FitError, match="no in-distribution scores to take the threshold"):
        fit_method(methods.create("msp"), run)

    class WithThreshold(methods.get("msp")):
        fixed_threshold = 0.5

    fit_method(WithThreshold(), run)
