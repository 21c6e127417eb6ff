"""Proposals of a deployed detector: those of the pipeline that match no detection, above t*."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from PIL import Image
from tests.monitor.conftest import DEMO, make, propose

from farther.errors import ParameterError
from farther.evaluation.deploy.choose import choose_deployment
from farther.evaluation.deploy.results import Budget
from farther.evaluation.inputs import RunInputs
from farther.evaluation.settings import EvaluationSettings
from farther.metrics.open_set.proposals import apart_from_detections
from farther.monitor import Bundle, Chosen, Monitor, ProposalChoice, write_bundle
from farther.monitor.drawing import PROPOSED, draw
from farther.monitor.predict import PredictSettings, predict
from farther.monitor.sources import open_source
from farther.tables import Objects, Regions
from farther.tables.documents import write_json

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
    made = make(tmp_path_factory.mktemp("run"), entry, {"energy": {}}, 0.01, ("test", "near"))
    propose(made, "boxes", THRESHOLD)
    entry["proposals"]["other"] = {"kind": "second_detector", "run": "x"}
    return made


def test_proposals_of_the_monitor_are_those_of_the_pipeline(deployed):
    monitor = deployed.monitor("energy", proposals="boxes")
    stored = Regions.read(deployed.files.proposals("boxes", "val"))
    detections = deployed.stored("energy")[0]
    wanted = stored[apart_from_detections(stored, detections) & (stored.score > THRESHOLD)]
    assert len(wanted) > 5
    for ids, files in deployed.batches():
        for name, found in zip(ids, monitor(files, ids, batch_size=len(ids)), strict=True):
            own = wanted[wanted.image_id == name]
            np.testing.assert_allclose(found.proposals.box, own.box, atol=1e-2)
            np.testing.assert_allclose(found.proposals.score, own.score, atol=1e-5)
            assert len(found) == len(found.score) == np.sum(detections.image_id == name)


def test_predict_writes_and_draws_them(deployed, tmp_path):
    monitor = deployed.monitor("energy", proposals="boxes")
    predicted = predict(
        monitor,
        open_source(str(deployed.folder / "val")),
        PredictSettings(out=tmp_path / "out"),
        log=str,
    )
    assert predicted.alarmed == monitor.bundle.validation.alarmed > 0
    table = pl.read_parquet(tmp_path / "out/proposals.parquet")
    images = pl.read_parquet(tmp_path / "out/images.parquet")
    assert images["proposals"].sum() == len(table) > 5
    assert (table["objectness"] > THRESHOLD).all()
    # The images are those of validation: so are the numbers of drift.
    drift = json.loads((tmp_path / "out/drift.json").read_text())
    validation, total = (drift[name]["proposals"] for name in ("validation", "total"))
    assert sum(validation["counts"]) == sum(total["counts"]) == len(table)
    assert (
        np.abs(np.subtract(validation["counts"], total["counts"])).max() <= 1
    )  # the network's rounding
    name = table["image_id"][0]
    pixels = np.asarray(Image.open(deployed.folder / "val" / name).convert("RGB"))
    picture = draw(pixels, monitor(pixels, [name]))
    colour = np.array([int(PROPOSED[k : k + 2], 16) for k in (5, 3, 1)])
    assert (np.abs(picture.astype(int) - colour).max(axis=2) < 8).sum() > 50


def test_a_bundle_without_a_limit_that_they_share_gives_none(deployed):
    monitor = deployed.monitor("energy")
    assert monitor(deployed.folder / "val/100.png").proposals is None


@pytest.fixture(scope="module")
def with_unknown(deployed):
    """The run's split `near` with unknown objects where every other proposal on no detection is."""
    files = deployed.files
    proposals = Regions.read(files.proposals("boxes", "near"))
    detections = Regions.read(files.regions("near")).above(deployed.operating)
    yaks = proposals[apart_from_detections(proposals, detections)][::2]
    objects = Objects(
        image_id=yaks.image_id,
        object_id=np.arange(len(yaks)),
        box=yaks.box,
        category=["yak"] * len(yaks),
    )
    objects.write(files.objects("near"))
    roles = {"test": ["near"], "distance": {"near": "near"}}
    write_json(deployed.folder / "artifacts/splits/drawn/roles.json", roles)
    return RunInputs(files, files.roles, EvaluationSettings(replicates=0))


@pytest.mark.parametrize("limit", [0.3, 0.6])
def test_predict_on_the_validation_images_raises_the_alarms_that_choose_printed(
    limit, deployed, with_unknown, tmp_path
):
    budget = Budget(max_false_alarms=limit, guarantee="none")
    choice = choose_deployment(with_unknown, budget, source="boxes").choice
    assert choice.source == "boxes"
    proposals = ProposalChoice("boxes", choice.objectness, iou=0.5)
    chosen = Chosen(choice.operating, choice.tau, proposals=proposals)
    bundle = write_bundle(replace(deployed.source(choice.method), chosen=chosen), tmp_path / "b")
    monitor = Monitor.load(bundle, device="cpu")
    predicted = predict(
        monitor,
        open_source(str(deployed.folder / "val")),
        PredictSettings(out=tmp_path / "out", pictures=False),
        log=str,
    )
    count = choice.chosen_on["false_alarms"].count
    assert 0 < count <= limit * 10
    assert predicted.alarmed == monitor.bundle.validation.alarmed == count
    # What it finds of the unknown objects by itself is what was chosen for it.
    found = sum(len(one.proposals) for one in monitor([*(deployed.folder / "near").iterdir()]))
    assert found >= choice.chosen_on["found"].count > 0


def test_proposals_of_another_detector_are_none_of_a_bundles_network(deployed):
    folder = deployed.bundle("energy", "boxes")
    info = json.loads((folder / "bundle.json").read_text())
    info["proposals"]["params"] = deployed.entry["proposals"]["other"]
    (folder / "bundle.json").write_text(json.dumps(info))
    with pytest.raises(
        ParameterError, match="kind 'second_detector': they do not come of the bundle's network"
    ):
        Monitor.load(folder, device="cpu")


def test_a_graph_gives_only_proposals_that_it_computes(deployed, monkeypatch):
    def outputs():
        info = Bundle.load(deployed.bundle("energy", "boxes", onnx=True)).info
        return {port.name for port in info.onnx.outputs}, info.proposals.not_in_graphs

    with_proposals, reason = outputs()
    assert reason is None
    monkeypatch.setattr("farther.monitor.bundle_proposals.IN_GRAPHS", ("rpn", "queries"))
    without, reason = outputs()
    assert reason == "'anchors' is no part of the graph"
    assert with_proposals - without == {"proposal_box", "proposal_objectness"}
