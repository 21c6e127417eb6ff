"""Proposals where a detector is deployed: those of the pipeline, on no detection and above the threshold."""

import json

import numpy as np
import polars as pl
import pytest
from PIL import Image
from tests.monitor.conftest import DEMO, INFERENCE, make

from farther import detectors
from farther.detectors.inference import infer_splits
from farther.detectors.proposals import read_sources, selections
from farther.evaluation.proposals import RecoveredRun, SourceResults
from farther.evaluation.results import write_results
from farther.metrics.open_set.proposals import beside
from farther.monitor.drawing import PROPOSED, draw
from farther.monitor.predict import PredictSettings, predict
from farther.monitor.sources import open_source
from farther.tables import Regions

#: Objectness above which a proposal is called unknown.
THRESHOLD = 1e-4


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    entry = {
        "adapter": "yolo",
        "weights": str(DEMO / "voc-yolov8.safetensors"),
        "params": {"score_threshold": 0.005},
        "proposals": {"boxes": {"kind": "anchors", "most": 20}},
    }
    made = make(tmp_path_factory.mktemp("run"), entry, {"energy": {}}, 0.01)
    artifacts = made.folder / "artifacts"
    detector = detectors.create("yolo", weights=entry["weights"], **entry["params"])
    wanted = selections("run", read_sources("run", entry["proposals"]), detector)
    folders = artifacts / "splits/drawn", {"drawn": made.folder}, artifacts / "regions/run", artifacts / ".work/r"
    infer_splits(
        detector, *folders, INFERENCE, proposals=(artifacts / "proposals/run", wanted), progress=False, log=str
    )
    source = SourceResults(kind="anchors", threshold=THRESHOLD, alarms=0.2, proposals=1, splits={}, distances={})
    write_results(made.files.recovered, RecoveredRun(asked_alarms=0.2, iou=0.5, sources={"boxes": source}))
    return made


def test_proposals_of_the_monitor_are_those_of_the_pipeline(deployed):
    monitor = deployed.monitor("energy")
    stored = Regions.read(deployed.files.proposals("boxes", "val"))
    detections = deployed.stored("energy")[0]
    wanted = stored[beside(stored, detections) & (stored.score > THRESHOLD)]
    assert len(wanted) > 5
    for ids, files in deployed.batches():
        for name, found in zip(ids, monitor(files, ids, batch_size=len(ids)), strict=True):
            own = wanted[wanted.image_id == name]
            np.testing.assert_allclose(found.proposals.box, own.box, atol=1e-2)
            np.testing.assert_allclose(found.proposals.score, own.score, atol=1e-5)
            assert len(found) == len(found.score) == np.sum(detections.image_id == name)


def test_predict_writes_and_draws_them(deployed, tmp_path):
    monitor = deployed.monitor("energy")
    predict(monitor, open_source(str(deployed.folder / "val")), PredictSettings(out=tmp_path / "out"), log=str)
    table = pl.read_parquet(tmp_path / "out/proposals.parquet")
    images = pl.read_parquet(tmp_path / "out/images.parquet")
    assert images["proposals"].sum() == len(table) > 5
    assert (table["objectness"] > THRESHOLD).all()
    # The images are those of validation: so are the numbers of drift.
    drift = json.loads((tmp_path / "out/drift.json").read_text())
    validation, total = (drift[name]["proposals"] for name in ("validation", "total"))
    assert sum(validation["counts"]) == sum(total["counts"]) == len(table)
    assert np.abs(np.subtract(validation["counts"], total["counts"])).max() <= 1  # the network's rounding
    name = table["image_id"][0]
    pixels = np.asarray(Image.open(deployed.folder / "val" / name).convert("RGB"))
    picture = draw(pixels, monitor(pixels, [name]))
    colour = np.array([int(PROPOSED[k : k + 2], 16) for k in (5, 3, 1)])
    assert (np.abs(picture.astype(int) - colour).max(axis=2) < 8).sum() > 50


def test_a_bundle_without_them_gives_none(deployed, tmp_path):
    deployed.files.recovered.rename(tmp_path / "kept.json")
    try:
        monitor = deployed.monitor("energy")
    finally:
        (tmp_path / "kept.json").rename(deployed.files.recovered)
    assert monitor(deployed.folder / "val/100.png").proposals is None
